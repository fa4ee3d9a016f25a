"""The verbs that turn a corpus into a model: `repose train`, `init`, `prepare`, `fetch`, `demo`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from repose.system.errors import ConfigError
from repose.system.signals import Interrupted, interruptible
from repose.system.terminal import say

if TYPE_CHECKING:
    from repose.config.experiment import Experiment
    from repose.config.file import Loaded
    from repose.runs.run import RunResult

Files = Annotated[
    list[Path] | None,
    Argument(
        help="Two aligned text files (source and target); one TSV, JSONL or Parquet file; or an experiment's TOML file."
    ),
]
Config = Annotated[
    str | None, Option("--config", "-c", help="An experiment file, or the name of one that ships with repose.")
]
PresetName = Annotated[
    str | None, Option("--preset", "-p", help="Use a published architecture (see `repose presets`).")
]
Overrides = Annotated[
    list[str] | None,
    Option("--set", "-s", metavar="SECTION.FIELD=VALUE", help="Change one setting. Can be repeated."),
]
Device = Annotated[str, Option(help="auto, cpu, cuda, cuda:1 or mps.")]


def _loaded(files: list[Path] | None, config: str | None, preset: str | None, overrides: list[str] | None) -> "Loaded":
    """The experiment that the arguments describe; the default recipe where none is named."""
    from repose.config.file import load

    train = files or []
    if train and train[0].suffix == ".toml":
        if len(train) > 1 or config is not None:
            raise ConfigError("give one experiment file: either as the argument or with --config")
        config, train = str(train[0]), []
    return load(config or "default", preset=preset, train=train, overrides=overrides or [])


def train(
    out: Annotated[Path, Option("--out", "-o", help="Run directory. The same command resumes the run in it.")],
    files: Files = None,
    config: Config = None,
    preset: PresetName = None,
    overrides: Overrides = None,
    print_config: Annotated[
        bool, Option("--print-config", help="Show every setting and where it comes from, then exit.")
    ] = False,
    device: Device = "auto",
    workers: Annotated[
        int | None, Option(help="Number of processes that share each batch (default: one per GPU or core).")
    ] = None,
    stop_after: Annotated[
        int | None, Option(min=1, help="Stop after this many updates. The same command resumes the run.")
    ] = None,
    tensorboard: Annotated[
        bool, Option("--tensorboard", help="Also write TensorBoard events (extra `tensorboard`).")
    ] = False,
) -> None:
    """Train a model on a parallel corpus and evaluate it. Run the same command again to resume."""
    loaded = _loaded(files, config, preset, overrides)
    if print_config:
        from repose.config.file import format_config

        print(format_config(loaded))
        return
    result = _run(
        loaded.experiment, out, device=device, workers=workers, stop_after=stop_after, tensorboard=tensorboard
    )
    if result.scores is not None:
        from repose.cli.tables import run_table

        run_table(out, result)


def _run(experiment: "Experiment", out: Path, **options: Any) -> "RunResult":
    """Train. Leaves with exit code 3 where it was stopped, be it while libraries are loaded."""
    try:
        with interruptible():
            from repose.runs.run import run

            result = run(experiment, out, say=say, **options)
    except Interrupted as signal:
        say(f"stopped ({signal.name}): the same command resumes the run")
        raise typer.Exit(3) from None
    if result.outcome.status == "stopped":
        why = result.outcome.reason.describe(experiment.training)
        where = f" after {result.outcome.update} updates" if result.outcome.update else ""
        say(f"stopped{where} ({why}): the same command resumes the run")
        raise typer.Exit(3)
    return result


def init(
    files: Files = None,
    config: Config = None,
    preset: PresetName = None,
    overrides: Overrides = None,
    out: Annotated[Path, Option("--out", "-o", help="File to write.")] = Path("repose.toml"),
) -> None:
    """Write a commented experiment file to start from."""
    from repose.config.file import commented_toml

    text = commented_toml(_loaded(files, config, preset, overrides), folder=out.absolute().parent)
    if out.exists():
        raise ConfigError(f"{out} exists already: remove it, or name another file with --out")
    out.write_text(text, encoding="utf-8")
    say(f"wrote {out}: edit it, then run `repose train {out} --out runs/mine`")


def prepare(
    files: Files = None,
    config: Config = None,
    preset: PresetName = None,
    overrides: Overrides = None,
    out: Annotated[Path | None, Option("--out", "-o", help="Folder to write (default: in the cache).")] = None,
    workers: Annotated[int | None, Option(help="Number of tokenising processes (default: one per core).")] = None,
) -> None:
    """Read, split and tokenise a corpus, as `train` does first, and say what was dropped."""
    from repose.system.device import available_cores
    from repose.tasks.corpus import prepare_corpus

    loaded = _loaded(files, config, preset, overrides)
    data = prepare_corpus(loaded.experiment, folder=out, workers=workers or available_cores())
    for sentence in data.report:
        say(sentence)
    print(data.folder)


def fetch(
    name: Annotated[str | None, Argument(help="Corpus to fetch. Without it, all corpora are listed.")] = None,
    source: Annotated[Path | None, Option("--from", help="Use this archive or folder instead of downloading.")] = None,
) -> None:
    """Download a published corpus into the cache (REPOSE_HOME) and verify it."""
    from repose.data import corpora

    if name is None:
        for known in corpora.names():
            info = corpora.describe(known)
            print(f"{known}\t{', '.join('-'.join(pair) for pair in info.pairs)}\t{info.licence}")
        return
    with _download_progress() as progress:
        folder = corpora.fetch_corpus(corpora.describe(name), source=source, progress=progress)
    print(folder)


@contextmanager
def _download_progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """A live line per download, on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: dict[str, Any] = {}

        def update(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        yield update


def demo(
    out: Annotated[Path, Option("--out", "-o", help="Run directory.")] = Path("runs/demo"),
    device: Device = "auto",
) -> None:
    """Train on the built-in phrasebook (about three minutes), evaluate, and translate a few sentences."""
    from repose.cli.tables import demo_table
    from repose.config.file import load

    demo_table(out, _run(load("demo").experiment, out, device=device))
