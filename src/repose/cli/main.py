"""The command line: one verb per job. Each loads what it needs and calls one function; none computes anything itself.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 stopped early and resumable.
Results go to stdout, all else to stderr.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from repose._version import __version__
from repose.cli import grid as cli_grid
from repose.cli import models as cli_models
from repose.cli import plot as cli_plot
from repose.cli import positions as cli_positions
from repose.cli import report as cli_report
from repose.cli.models import say
from repose.system.errors import ConfigError, ReposeError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train, compare, explain and serve small encoder-decoder Transformers for translation.",
)

Files = Annotated[
    list[Path] | None,
    typer.Argument(help="Aligned source and target files; or one TSV, JSONL or Parquet file; or an experiment's TOML."),
]
Config = Annotated[str | None, typer.Option("--config", "-c", help="An experiment file, or the name of a shipped one.")]
PresetName = Annotated[
    str | None, typer.Option("--preset", "-p", help="A published architecture: see `repose presets`.")
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="SECTION.FIELD=VALUE", help="Change one setting; repeatable.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")]


def main() -> None:
    """Runs the command line; errors that a user can mend are one sentence."""
    # Threads that wait by spinning collapse as soon as anything else runs on the machine. Read when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        app()
    except ReposeError as error:
        print(f"repose: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except BrokenPipeError:  # a reader such as `head` has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, MemoryError) as error:
        print(f"repose: {error or 'out of memory'}", file=sys.stderr)
        sys.exit(1)


def _loaded(files: list[Path] | None, config: str | None, preset: str | None, overrides: list[str] | None) -> Any:
    """The experiment that the arguments describe; the default recipe where none is named."""
    from repose.config.file import load

    train: list[Path] = []
    if files and files[0].suffix == ".toml":
        if len(files) > 1 or config is not None:
            raise ConfigError("give one experiment file: either as the argument or with --config")
        config = str(files[0])
    else:
        train = files or []
    return load(config or "default", preset=preset, train=train, overrides=overrides or [])


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


@app.command()
def train(
    out: Annotated[Path, typer.Option("--out", "-o", help="Run directory; the same command resumes it.")],
    files: Files = None,
    config: Config = None,
    preset: PresetName = None,
    overrides: Overrides = None,
    print_config: Annotated[bool, typer.Option(help="Show every setting and where it came from, and exit.")] = False,
    device: Device = "auto",
    workers: Annotated[
        int | None, typer.Option(help="Processes that share each batch (default: per GPU or core).")
    ] = None,
    stop_after: Annotated[int | None, typer.Option(help="Stop, resumable, after this many updates.")] = None,
    tensorboard: Annotated[bool, typer.Option(help="Also write TensorBoard events (extra `tensorboard`).")] = False,
) -> None:
    """Train a model on a parallel corpus and evaluate it; rerun to resume."""
    loaded = _loaded(files, config, preset, overrides)
    if print_config:
        from repose.config.file import format_config

        print(format_config(loaded))
        return
    from repose.runs.run import run

    result = run(
        loaded.experiment,
        out,
        device=device,
        workers=workers,
        stop_after=stop_after,
        tensorboard=tensorboard,
        say=say,
    )
    if result.outcome.status == "stopped":
        why = result.outcome.reason.describe(loaded.experiment.training)
        where = f" after {result.outcome.update} updates" if result.outcome.update else ""
        say(f"stopped{where} ({why}): the same command goes on")
        raise typer.Exit(3)
    if result.scores is not None:
        from repose.cli.tables import run_table

        run_table(out, result)


@app.command()
def init(
    files: Files = None,
    config: Config = None,
    preset: PresetName = None,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the experiment file.")] = Path("repose.toml"),
) -> None:
    """Write a commented experiment file to begin from."""
    from repose.config.file import commented_toml

    text = commented_toml(_loaded(files, config, preset, overrides), folder=out.absolute().parent)
    if out.exists():
        raise ConfigError(f"{out} exists already: remove it, or name another file with --out")
    out.write_text(text, encoding="utf-8")
    say(f"wrote {out}: edit it, then run `repose train {out} --out runs/mine`")


@app.command()
def fetch(
    name: Annotated[
        str | None, typer.Argument(help="Name of a published corpus; without it, all names are listed.")
    ] = None,
    source: Annotated[Path | None, typer.Option("--from", help="An archive or folder obtained otherwise.")] = None,
) -> None:
    """Fetch a published corpus into the cache (REPOSE_HOME), checked."""
    from repose.data import corpora

    if name is None:
        for known in corpora.names():
            info = corpora.describe(known)
            print(f"{known}\t{', '.join('-'.join(pair) for pair in info.pairs)}\t{info.licence}")
        return
    from repose.cli.tables import download_progress

    with download_progress() as progress:
        folder = corpora.fetch(name, source=source, progress=progress)
    print(folder)


@app.command()
def prepare(
    files: Files = None,
    config: Config = None,
    preset: PresetName = None,
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder (default: in the cache).")] = None,
    workers: Annotated[int | None, typer.Option(help="Tokenising processes (default: one per core).")] = None,
) -> None:
    """Read, split and tokenise a corpus, as `train` does first; says what was dropped."""
    from repose.system.device import available_cores
    from repose.tasks.corpus import prepare_corpus

    loaded = _loaded(files, config, preset, overrides)
    data = prepare_corpus(loaded.experiment, folder=out, workers=workers or available_cores())
    for sentence in data.report:
        say(sentence)
    print(data.folder)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Run directory.")] = Path("runs/demo"),
    device: Device = "auto",
) -> None:
    """Train on the embedded phrasebook for about three minutes, evaluate, and translate a few sentences."""
    from repose.cli.tables import demo_table
    from repose.config.file import load
    from repose.runs.run import run

    loaded = load("demo")
    result = run(loaded.experiment, out, device=device, say=say)
    if result.outcome.status == "stopped":
        raise typer.Exit(3)
    demo_table(out, result)


for verb in (
    cli_models.translate,
    cli_models.score,
    cli_models.evaluate,
    cli_models.audit,
    cli_models.presets,
    cli_models.describe,
    cli_grid.grid,
    cli_report.report,
):
    app.command()(verb)
app.add_typer(cli_plot.app, name="plot")
app.add_typer(cli_positions.app, name="positions")
