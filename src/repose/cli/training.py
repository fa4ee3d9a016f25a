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
from repose.data.readers import holds_pairs
from repose.system.errors import CheckpointError, ConfigError, ReposeError
from repose.system.files import write_file
from repose.system.signals import Interrupted, interruptible
from repose.system.terminal import counted, say

if TYPE_CHECKING:
    from repose.config.experiment import Experiment
    from repose.config.file import Loaded
    from repose.config.recipes import Recipe
    from repose.runs.run import RunResult

Files = Annotated[
    list[Path] | None,
    Argument(
        help="Two aligned text files (source and target); one TSV, CSV, JSONL, Parquet or TMX file; or an experiment's "
        "TOML file."
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
Minutes = Annotated[float | None, Option(help="Minutes of training, at most.")]


_EQUALS = ("--valid=", "--test=")


class WithFiles(TyperCommand):
    """A command whose `--valid` and `--test` take two aligned files after them, or one file that holds pairs; and whose
    `--synthetic` takes two, without which an error says so."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Write `--valid A B` as the parser wants it: `--valid A --valid B`."""
        written: list[str] = []
        given = [part for arg in args for part in (arg.split("=", 1) if arg.startswith(_EQUALS) else [arg])]
        while given:
            written.append(arg := given.pop(0))
            if arg == "--synthetic" and (len(given) < 2 or any(part.startswith("-") for part in given[:2])):
                raise ConfigError("--synthetic needs two aligned text files after it: sources and targets")
            if arg in ("--valid", "--test") and given:
                written.append(first := given.pop(0))
                if first.startswith("-"):
                    raise ConfigError(f"{arg} needs two aligned text files after it, or one file of pairs, such as TSV")
                if not holds_pairs(Path(first)) and given and not given[0].startswith("-"):
                    written += [arg, given.pop(0)]
        return super().parse_args(ctx, written)


def given_settings(**given: Any) -> list[str]:
    """Plain options as `--set` has them, by `section.field` with the dot as two underscores; None where not given."""
    named = {name.replace("__", "."): value for name, value in given.items() if value not in (None, [])}
    shown = {n: [str(path) for path in v] if isinstance(v, list) else v for n, v in named.items()}
    return [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in shown.items()]


def loaded_experiment(
    files: list[Path] | None,
    config: str | None,
    preset: str | None,
    overrides: list[str] | None,
    start: Path | None = None,
    synthetic: tuple[Path, ...] | None = None,
    *,
    by_size: bool = True,
    out: Path | None = None,
) -> "Loaded":
    """The experiment that the arguments describe. Where none is named: the default, with `by_size` under the recipe
    for so many pairs unless `out` holds a run without it, or that of fine-tuning where it starts from a model."""
    from repose.config.file import load, shipped

    train = files or []
    if train and train[0].suffix == ".toml":
        if len(train) > 1 or config is not None:
            raise ConfigError("give one experiment file: either as the argument or with --config")
        config, train = str(train[0]), []
    if len(train) > 2:
        raise ConfigError(
            f"a corpus is two aligned text files, or one file of pairs, such as TSV, not {len(train)} files: so are "
            "those after --valid and --test"
        )
    if len(train) == 1 and not train[0].exists() and str(train[0]) in shipped():
        raise ConfigError(f"{train[0]} is an experiment that ships with repose: write --config {train[0]}")
    given: dict[str, Any] = {"train": train, "synthetic": synthetic or (), "overrides": overrides or []}
    if start is None:
        loaded = load(config or "default", preset=preset, **given)
        wanted = by_size and config is None and not (out is not None and _holds(out, loaded.experiment))
        recipe = _recipe(loaded.experiment) if wanted else None
        if recipe is not None:
            loaded = load("default", preset=preset, recipe=recipe.layer, **given)
            _tell_of(recipe, loaded)
        return loaded
    from repose.data.language import UNKNOWN
    from repose.runs.fine_tuning import RECIPE, other_languages, settings_of

    loaded = load(config or RECIPE, preset=preset, model=settings_of(start), **given)
    if (others := other_languages(loaded)) is None:
        return loaded
    theirs = loaded.experiment.corpus
    loaded = load(config or RECIPE, preset=preset, model=settings_of(start, others), **given)
    before, now, tag = f"{theirs.src_lang}-{theirs.tgt_lang}", "-".join(others), loaded.experiment.corpus.tag
    if theirs.tag != tag:
        now += f" with the tag {tag}" if tag else " without a tag (--set corpus.tag=TAG gives it one)"
    if before != f"{UNKNOWN}-{UNKNOWN}":
        say(f"the model is of {before}, and the files are named {'-'.join(others)}: the new model is of {now}")
    return loaded


def _holds(out: Path, experiment: "Experiment") -> bool:
    """Whether a run with these settings was begun there, which the same command then goes on with."""
    from repose.runs.folder import RunFolder

    try:
        theirs = RunFolder(out).config().experiment
    except CheckpointError:
        return False
    return all(getattr(theirs, name) == getattr(experiment, name) for name in ("tokenizer", "architecture", "training"))


def _recipe(experiment: "Experiment") -> "Recipe | None":
    """The settings for a corpus of this size, having said which they are and why."""
    from repose.config.experiment import TASK_SETTINGS
    from repose.config.recipes import most_pairs, recipe_for
    from repose.data.advice import too_few
    from repose.tasks.corpus_files import num_training_pairs

    if not TASK_SETTINGS[experiment.training.task].translates:
        return None
    try:
        number = num_training_pairs(experiment.corpus, at_most=most_pairs() + 1)
    except ReposeError:  # what is wrong with the files, whoever reads them for good says
        return None
    if number is None or (recipe := recipe_for(number)) is None:
        return None
    if (few := too_few(number)) is not None:
        say(few)
    say(
        f"{counted(number, 'pair')}: the recipe {recipe.name} (for at most {recipe.pairs:,}; --config default is for "
        "more), which sets"
    )
    return recipe


def _tell_of(recipe: "Recipe", loaded: "Loaded") -> None:
    """Say what it sets: not what the command line or a preset sets over it."""
    for section, table in recipe.settings.items():
        own = [field for field in table if loaded.sources[f"{section}.{field}"].kind == "recipe"]
        if own:
            say(f"    {section:<13} {', '.join(f'{field} {table[field]}' for field in own)}")


def train(
    out: Annotated[Path, Option("--out", "-o", help="Run directory. The same command resumes the run in it.")],
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
    if not print_config:
        _refuse_other_files(out)
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
    _tell_of_tables(files, config)
    result = _run(
        loaded.experiment, out, device=device, workers=workers, stop_after=stop_after, tensorboard=tensorboard
    )
    if result.scores is not None:
        from repose.cli.tables import longer_training, run_table

        run_table(out, result)
        if (advice := longer_training(out)) is not None:
            say(advice)


def _tell_of_tables(files: list[Path] | None, config: str | None) -> None:
    """Say that what else is in an experiment file is for other commands."""
    from repose.config.file import file_layer

    name = config or (str(files[0]) if files and files[0].suffix == ".toml" else None)
    layer = None if name is None else file_layer(name)
    for table in ("grid", "search"):
        if layer is not None and getattr(layer, table) is not None:
            command = f"repose {table} {shlex.quote(str(name))}"
            say(f"{name} has a table [{table}], for `{command}`: its settings are trained here")


def _refuse_other_files(out: Path) -> None:
    """Raise ConfigError where a folder holds something, and no run."""
    from repose.runs.folder import RunFolder

    if (found := RunFolder(out).other_file()) is not None:
        raise ConfigError(f"{out} holds {found} and no run: choose another --out")


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
