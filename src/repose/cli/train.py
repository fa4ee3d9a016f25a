"""Commands that turn a corpus into a model: `repose train`, `init`, `prepare`, `demo`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from repose.cli.corpus_options import (
    Config,
    Files,
    Overrides,
    PresetName,
    SrcField,
    SrcLang,
    Synthetic,
    Test,
    TgtField,
    TgtLang,
    Valid,
    corpus_settings,
    given_settings,
    with_overrides,
)
from repose.cli.options import TrainingDevice
from repose.system.errors import ConfigError
from repose.system.files import write_file
from repose.system.signals import Interrupted, interruptible
from repose.system.terminal import counted, quoted, say

if TYPE_CHECKING:
    from repose.config.experiment import Experiment
    from repose.runs.run import RunResult

Epochs = Annotated[
    int | None, Option(help="Maximum passes over the corpus (default: the recipe's). Cannot be changed later.")
]
Minutes = Annotated[
    float | None,
    Option(
        help="Maximum minutes of training, without preparing the corpus before it, and without choosing how to search "
        "and scoring after it. Cannot be changed later."
    ),
]


def train(
    out: Annotated[
        Path | None, Option("--out", "-o", help="Run directory, required. The same command resumes the run in it.")
    ] = None,
    files: Files = None,
    config: Config = None,
    preset: PresetName = None,
    valid: Valid = None,
    test: Test = None,
    src_field: SrcField = None,
    tgt_field: TgtField = None,
    src_lang: SrcLang = None,
    tgt_lang: TgtLang = None,
    epochs: Epochs = None,
    minutes: Minutes = None,
    overrides: Overrides = None,
    start: Annotated[
        Path | None,
        Option("--from", metavar="RUN", help="Start from this trained model (on its own corpus if you name no other)."),
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
    from repose.runs.arguments import check_training_device, loaded_experiment, refuse_other_files, tell_of_bf16

    if out is not None and not print_config:
        refuse_other_files(out, start)
    if out is None and not print_config:
        raise ConfigError("name a new folder for the run, as in --out runs/mine")
    if minutes is not None and not minutes > 0:
        raise ConfigError(f"--minutes should be more than 0, not {minutes:g}")
    plain = corpus_settings(valid, test, src_field, tgt_field, src_lang, tgt_lang)
    plain += given_settings("training", {"epochs": epochs, "max_hours": None if minutes is None else minutes / 60})
    settings = with_overrides(plain, overrides)
    with interruptible():  # loading torch and counting the pairs may take a while
        if not print_config:
            check_training_device(device)
        loaded = loaded_experiment(files, config, preset, settings, start, synthetic, out=out)
    if print_config:
        from repose.config.file import format_config

        print(format_config(loaded))
        return
    assert out is not None
    _tell_of_tables(files, config)
    tell_of_bf16(loaded, out, device, say)
    result = _run(
        loaded.experiment, out, device=device, workers=workers, stop_after=stop_after, tensorboard=tensorboard
    )
    if result.scores_if_any is not None:
        from repose.cli.tables import run_table
        from repose.runs.next_steps import next_steps

        run_table(out, result)
        for sentence in next_steps(out, result.outcome.metrics):
            say(sentence)


def _tell_of_tables(files: list[Path] | None, config: str | None) -> None:
    """Say that the tables [grid] and [search] of an experiment file are for other commands."""
    from repose.config.file import file_layer

    name = config or (str(files[0]) if files and files[0].suffix == ".toml" else None)
    layer = None if name is None else file_layer(name)
    for table in ("grid", "search"):
        if layer is not None and getattr(layer, table) is not None:
            command = f"repose {table} {quoted(name)}"
            say(f"{name} has a table [{table}], which is for `{command}`: this training uses the other settings")


def _run(experiment: "Experiment", out: Path, **options: Any) -> "RunResult":
    """Train. Exits with code 3 if stopped, even while libraries are being loaded."""
    try:
        with interruptible():
            from repose.runs.run import run

            result = run(experiment, out, say=say, **options)
    except Interrupted as signal:
        say(f"stopped ({signal.name}): the same command resumes the run")
        raise typer.Exit(3) from None
    if result.outcome.status == "stopped":
        from repose.saved_run.folder import RunFolder
        from repose.saved_run.records import RunStatus

        if result.outcome.update and RunFolder(out).records(may_be_empty=True).status is RunStatus.STOPPED:
            raise typer.Exit(3)  # the training has reported it already
        why = result.outcome.reason.describe(experiment.training)
        where = f" after {counted(result.outcome.update, 'update')}" if result.outcome.update else ""
        say(f"stopped{where} ({why}): the same command resumes the run")
        raise typer.Exit(3)
    return result


def init(
    files: Files = None,
    config: Config = None,
    preset: PresetName = None,
    valid: Valid = None,
    test: Test = None,
    src_field: SrcField = None,
    tgt_field: TgtField = None,
    src_lang: SrcLang = None,
    tgt_lang: TgtLang = None,
    synthetic: Synthetic = None,
    overrides: Overrides = None,
    out: Annotated[Path, Option("--out", "-o", help="File to write.")] = Path("repose.toml"),
) -> None:
    """Write a commented experiment file to start from."""
    from repose.config.experiment import TASK_SETTINGS
    from repose.config.file import commented_toml
    from repose.data.lines import check_file
    from repose.runs.arguments import RECIPES, loaded_experiment
    from repose.tasks.corpus_files import num_training_pairs

    given = with_overrides(corpus_settings(valid, test, src_field, tgt_field, src_lang, tgt_lang), overrides)
    loaded = loaded_experiment(files, config, preset, given, synthetic=synthetic)
    experiment = loaded.experiment
    for path in experiment.corpus.train:
        check_file(Path(path))
    if experiment.corpus.train and TASK_SETTINGS[experiment.training.task].translates:
        num_training_pairs(experiment.corpus, at_most=max(RECIPES) + 1)  # raises for a corpus that cannot be read
    folder = Path(os.path.abspath(out)).parent  # noqa: PTH100  # without "..", and no link followed
    text = commented_toml(loaded, folder=folder)
    if out.exists():
        raise ConfigError(f"{out} exists already: remove it, or name another file with --out")
    write_file(out, text)
    say(f"wrote {out}: edit it, then run `repose train {quoted(out)} --out runs/mine`")


def prepare(
    files: Files = None,
    config: Config = None,
    preset: PresetName = None,
    valid: Valid = None,
    test: Test = None,
    src_field: SrcField = None,
    tgt_field: TgtField = None,
    src_lang: SrcLang = None,
    tgt_lang: TgtLang = None,
    synthetic: Synthetic = None,
    overrides: Overrides = None,
    out: Annotated[Path | None, Option("--out", "-o", help="Folder to write (default: in the cache).")] = None,
    workers: Annotated[int | None, Option(help="Number of tokenising threads (default: one per core).")] = None,
) -> None:
    """Read, split and tokenise a corpus, as `repose train` does first, and report what was dropped."""
    from repose.runs.arguments import loaded_experiment
    from repose.system.device import available_cores
    from repose.tasks.corpus import prepare_corpus

    given = with_overrides(corpus_settings(valid, test, src_field, tgt_field, src_lang, tgt_lang), overrides)
    loaded = loaded_experiment(files, config, preset, given, synthetic=synthetic)
    workers = available_cores() if workers is None else workers
    print(prepare_corpus(loaded.experiment, folder=out, workers=workers, say=say).folder)


def demo(
    out: Annotated[Path, Option("--out", "-o", help="Run directory.")] = Path("runs/demo"),
    device: TrainingDevice = "auto",
) -> None:
    """Train on the built-in phrasebook (about three minutes), evaluate, and translate a few sentences."""
    from repose.cli.tables import run_table
    from repose.config.file import load

    run_table(out, _run(load("demo").experiment, out, device=device))
