"""`repose positions`: learns position tables by reinforcement learning."""

import re
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from repose.system.errors import ConfigError
from repose.system.terminal import make_table, say, show

app = typer.Typer(
    name="positions",
    no_args_is_help=True,
    help="Learn position tables by reinforcement learning (Soft Actor-Critic; extra `rl`).",
)
app.callback()(lambda: None)  # makes a group out of a single command


@app.command()
def learn(
    out: Annotated[Path, Option("--out", "-o", help="File to write the table to, as JSON.")],
    reward: Annotated[
        str, Option(help="sound, or literal (as the paper prints it; its optimum is a constant table).")
    ] = "sound",
    shape: Annotated[str, Option(help="Number of positions x numbers per position.")] = "8x16",
    steps: Annotated[int, Option(help="Number of tables to try.")] = 80_000,
    seed: Annotated[int, Option(help="Random seed.")] = 0,
    work: Annotated[
        Path | None, Option(help="Folder for the unfinished run (default: next to the table, with suffix .work).")
    ] = None,
) -> None:
    """Learn a position table (one or two minutes on one core). Run the same command again to resume."""
    from repose.positions_rl.policy import Settings, learn

    sizes = re.fullmatch(r"(\d{1,4})x(\d{1,4})", shape)
    if sizes is None:
        raise ConfigError(
            f"{shape!r} is not a shape: write the number of positions x numbers per position, such as 8x16"
        )
    settings = Settings(reward=reward, shape=(int(sizes[1]), int(sizes[2])), steps=steps, seed=seed)
    if out.is_dir():
        raise ConfigError(f"--out is {str(out)!r}, a folder: name a file, such as {out / 'positions.json'}")
    try:
        table = learn(settings, out, work or out.with_suffix(".work"), say)
    except KeyboardInterrupt:
        say("stopped: the same command resumes from the last step shown")
        raise typer.Exit(3) from None
    names = {"random": "random tables (mean)", "sinusoid": "sinusoid", "policy": "learned", "oracle": "gradient ascent"}
    rows = [(name, f"{table.provenance['scores'][key]:.4f}") for key, name in names.items()]
    show(make_table(("positions", f"{table.reward} reward"), rows, right=[1]))
    say(f"wrote {out}")
