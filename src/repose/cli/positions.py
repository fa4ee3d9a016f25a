"""`repose positions`: position tables learned by reinforcement."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from repose.cli.models import say
from repose.system.errors import ConfigError

if TYPE_CHECKING:
    from repose.positions_rl.table import PositionTable

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Learn position tables by Soft Actor-Critic (extra `rl`)."""


@app.command()
def learn(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the table, as JSON.")],
    reward: Annotated[str, typer.Option(help="sound, or literal: the paper's, whose best is constant.")] = "sound",
    shape: Annotated[str, typer.Option(help="Positions x numbers for each.")] = "8x16",
    steps: Annotated[int, typer.Option(help="Tables tried.")] = 80_000,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    work: Annotated[
        Path | None, typer.Option(help="Folder of an unfinished run (default: beside the table, .work).")
    ] = None,
) -> None:
    """Learn a position table, in a minute or two on one core; rerun to resume."""
    from repose.positions_rl.policy import Settings, learn

    sizes = re.fullmatch(r"(\d{1,4})x(\d{1,4})", shape)
    if sizes is None:
        raise ConfigError(f"{shape!r} is no shape: write positions x numbers for each, such as 8x16")
    settings = Settings(reward=reward, shape=(int(sizes[1]), int(sizes[2])), steps=steps, seed=seed)
    try:
        table = learn(settings, out, work or out.with_suffix(".work"), say)
    except KeyboardInterrupt:
        say("stopped: the same command goes on from the last step shown")
        raise typer.Exit(3) from None
    _show(table)
    say(f"wrote {out}")


def _show(table: "PositionTable") -> None:
    """Its score beside those of its baselines, on stdout."""
    from rich.console import Console
    from rich.table import Table

    rows = Table("positions", f"{table.reward} reward")
    rows.columns[1].justify = "right"
    names = {
        "random": "random tables (mean)",
        "sinusoid": "sinusoid",
        "policy": "learned",
        "oracle": "gradient ascent",
    }
    for key, name in names.items():
        rows.add_row(name, f"{table.provenance['scores'][key]:.4f}")
    Console(highlight=False).print(rows)
