"""The verbs that turn a corpus into a model: `repose train`, `init`, `prepare`, `fetch`, `demo`."""

import json
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperCommand

from repose.cli.options import TrainingDevice, change
from repose.data.readers import holds_pairs, may_follow
from repose.system.errors import ConfigError
from repose.system.files import write_file
from repose.system.signals import Interrupted, interruptible
from repose.system.terminal import counted, say

if TYPE_CHECKING:
    from repose.config.experiment import Experiment
    from repose.runs.run import RunResult

Files = Annotated[
    list[Path] | None,
    Argument(
        help="Two aligned text files (source and target); one TSV or CSV file; JSONL, Parquet or TMX files; or an "
        "experiment's TOML file."
    ),
]
Config = Annotated[
    str | None, Option("--config", "-c", help="An experiment file, or the name of one that ships with repose.")
]
PresetName = Annotated[
    str | None, Option("--preset", "-p", help="Use a published architecture (see `repose presets`).")
]
Overrides = Annotated[list[str] | None, change("one setting")]
Valid = Annotated[
    list[Path] | None,
    Option("--valid", metavar="SRC TGT", help="Validation pairs, in files as the corpus's (default: some of its own)."),
]
Test = Annotated[list[Path] | None, Option("--test", metavar="SRC TGT", help="Test pairs, likewise.")]
Synthetic = Annotated[
    tuple[Path, Path] | None,
    Option(metavar="SRC TGT", help="More pairs to train on, whose sources `repose backtranslate` wrote."),
]
Epochs = Annotated[int | None, Option(help="Passes over the corpus, at most (default: the recipe's).")]
Minutes = Annotated[float | None, Option(help="Minutes of training, at most. They cannot be changed later.")]


_EQUALS = ("--valid=", "--test=")


class WithFiles(TyperCommand):
    """A command whose `--valid` and `--test` take two aligned files after them, or one file that holds pairs; and whose
    `--synthetic` takes two, without which an error says so."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Write `--valid A B` as the parser wants it: `--valid A --valid B`."""
        written: list[str] = []
        given = [part for arg in args for part in (arg.split("=", 1) if arg.startswith(_EQUALS) else [arg])]
        bound = [arg.split("=", 1)[1] for arg in args if arg.startswith(_EQUALS)]
        while given:
            written.append(arg := given.pop(0))
            if arg == "--synthetic" and (len(given) < 2 or any(part.startswith("-") for part in given[:2])):
                raise ConfigError("--synthetic needs two aligned text files after it: sources and targets")
            if arg in ("--valid", "--test") and given:
                written.append(first := given.pop(0))
                if first.startswith("-"):
                    raise ConfigError(f"{arg} needs two aligned text files after it, or a file of pairs, such as TSV")
                if not holds_pairs(Path(first)) and given and not given[0].startswith("-"):
                    written += [arg, given.pop(0)]
                if given and may_follow(Path(first), Path(given[0])) and first not in bound:
                    raise ConfigError(
                        f"does {given[0]} belong to {arg}? Write {arg}={first} where it does not, and "
                        f"{arg}={first} {arg}={given[0]} where it does"
                    )
        return super().parse_args(ctx, written)


def given_settings(**given: Any) -> list[str]:
    """Plain options as `--set` has them, by `section.field` with the dot as two underscores; None where not given."""
    named = {name.replace("__", "."): value for name, value in given.items() if value not in (None, [])}
    shown = {n: [str(path) for path in v] if isinstance(v, list) else v for n, v in named.items()}
    return [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in shown.items()]


def train(
    out: Annotated[
        Path | None, Option("--out", "-o", help="Run directory, required. The same command resumes the run in it.")
    ] = None,
    files: Files = None,
    config: Config = None,
    preset: PresetName = None,
    valid: Valid = None,
    test: Test = None,
    epochs: Epochs = None,
    minutes: Minutes = None,
    overrides: Overrides = None,
    start: Annotated[
        Path | None,
        Option("--from", metavar="RUN", help="Go on from this trained model, with its sizes and tokenizers."),
    ] = None,
    synthetic: Synthetic = None,
    print_config: Annotated[
        bool, Option("--print-config", help="Show every setting and where it comes from, then exit.")
    ] = False,
    device: TrainingDevice = "auto",
    workers: Annotated[
        int | None, Option(help="Number of processes that share each batch (default: one per GPU or core).")
    ] = None,
    stop_after: Annotated[
        int | None, Option(min=1, help="Stop after this many further updates. The same command resumes the run.")
    ] = None,
    tensorboard: Annotated[
        bool, Option("--tensorboard", help="Also write TensorBoard events (extra `tensorboard`).")
    ] = False,
) -> None:
    """Train a model on a parallel corpus and evaluate it. Run the same command again to resume."""
    from repose.runs.arguments import loaded_experiment, refuse_other_files

    if out is not None and not print_config:
        refuse_other_files(out)
    if out is None and not print_config:
        raise ConfigError("name a new folder for the run, as in --out runs/mine")
    if minutes is not None and not minutes > 0:
        raise ConfigError(f"--minutes should be more than 0, not {minutes:g}")
    plain = given_settings(corpus__valid=valid, corpus__test=test, training__epochs=epochs)
    plain += given_settings(training__max_hours=None if minutes is None else minutes / 60)
    _refuse_twice(plain, overrides or [])
    loaded = loaded_experiment(files, config, preset, [*plain, *(overrides or [])], start, synthetic, out=out)
    if print_config:
        from repose.config.file import format_config

        print(format_config(loaded))
        return
    assert out is not None
    _tell_of_tables(files, config)
    result = _run(
        loaded.experiment, out, device=device, workers=workers, stop_after=stop_after, tensorboard=tensorboard
    )
    if result.scores is not None:
        from repose.cli.tables import run_table
        from repose.runs.next_steps import next_steps

        run_table(out, result)
        for sentence in next_steps(out, result.outcome.metrics):
            say(sentence)


def _tell_of_tables(files: list[Path] | None, config: str | None) -> None:
    """Say that what else is in an experiment file is for other commands."""
    from repose.config.file import file_layer

    name = config or (str(files[0]) if files and files[0].suffix == ".toml" else None)
    layer = None if name is None else file_layer(name)
    for table in ("grid", "search"):
        if layer is not None and getattr(layer, table) is not None:
            command = f"repose {table} {shlex.quote(str(name))}"
            say(f"{name} has a table [{table}], for `{command}`: its settings are trained here")


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
        from repose.runs.folder import RunFolder
        from repose.runs.records import RunStatus

        if result.outcome.update and RunFolder(out).records(may_be_empty=True).status is RunStatus.STOPPED:
            raise typer.Exit(3)  # the training has said so itself
        why = result.outcome.reason.describe(experiment.training)
        where = f" after {counted(result.outcome.update, 'update')}" if result.outcome.update else ""
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
    from repose.data.lines import check_file
    from repose.runs.arguments import loaded_experiment

    loaded = loaded_experiment(files, config, preset, overrides)
    for path in loaded.experiment.corpus.train:  # by which the recipe is chosen
        check_file(Path(path))
    folder = Path(os.path.abspath(out)).parent  # noqa: PTH100  # without "..", and no link followed
    text = commented_toml(loaded, folder=folder)
    if out.exists():
        raise ConfigError(f"{out} exists already: remove it, or name another file with --out")
    write_file(out, text)
    say(f"wrote {out}: edit it, then run `repose train {shlex.quote(str(out))} --out runs/mine`")


def prepare(
    files: Files = None,
    config: Config = None,
    preset: PresetName = None,
    overrides: Overrides = None,
    out: Annotated[Path | None, Option("--out", "-o", help="Folder to write (default: in the cache).")] = None,
    workers: Annotated[int | None, Option(help="Number of tokenising processes (default: one per core).")] = None,
) -> None:
    """Read, split and tokenise a corpus, as `train` does first, and say what was dropped."""
    from repose.runs.arguments import loaded_experiment
    from repose.system.device import available_cores
    from repose.tasks.corpus import prepare_corpus

    loaded = loaded_experiment(files, config, preset, overrides)
    workers = available_cores() if workers is None else workers
    print(prepare_corpus(loaded.experiment, folder=out, workers=workers, say=say).folder)


def _refuse_twice(plain: list[str], overrides: list[str]) -> None:
    """Raise ConfigError for a setting that has an option of its own and is in --set, too."""
    set_there = {text.partition("=")[0].strip() for text in overrides}
    for name in (text.partition("=")[0] for text in plain):
        if name in set_there:
            option = "--minutes" if name == "training.max_hours" else f"--{name.partition('.')[2]}"
            raise ConfigError(f"{option} and --set {name} say the same setting: give one of them")


def fetch(
    name: Annotated[str | None, Argument(help="Corpus to fetch. Without it, all corpora are listed.")] = None,
    source: Annotated[Path | None, Option("--from", help="Use this archive or folder instead of downloading.")] = None,
) -> None:
    """Download a published corpus into the cache (REPOSE_HOME) and verify it."""
    from repose.data import corpora

    if name is None and source is not None:
        raise ConfigError(f"--from {source} needs the name of a corpus: repose fetch NAME --from {source}")
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
    with Progress(*columns, console=Console(stderr=True, emoji=False)) as progress:
        tasks: dict[str, Any] = {}

        def update(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        yield update


def demo(
    out: Annotated[Path, Option("--out", "-o", help="Run directory.")] = Path("runs/demo"),
    device: TrainingDevice = "auto",
) -> None:
    """Train on the built-in phrasebook (about three minutes), evaluate, and translate a few sentences."""
    from repose.cli.tables import run_table
    from repose.config.file import load

    run_table(out, _run(load("demo").experiment, out, device=device))
