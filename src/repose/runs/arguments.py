"""The experiment that a command's arguments describe: files, configuration, preset, settings, an initial model.

Without a configuration, the number of pairs chooses the recipe (docs/little-data.md).
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from repose.config.experiment import TASK_SETTINGS, Experiment
from repose.config.file import Loaded, load, parse_overrides, shipped
from repose.config.run_id import setting
from repose.data.advice import too_few
from repose.data.language import UNKNOWN
from repose.data.readers import may_follow
from repose.model.presets import PRESETS
from repose.runs.fine_tuning import FINE_TUNING, other_languages, settings_of
from repose.saved_run.folder import RunFolder
from repose.system.device import multiplies_in_bf16
from repose.system.errors import CheckpointError, ConfigError, ReposeError
from repose.system.terminal import Say, counted, say
from repose.tasks.corpus import HELD_OUT_SHARE
from repose.tasks.corpus_files import num_training_pairs

RECIPES = {12_000: "little-data", 50_000: "medium-data"}
"""Maximum number of training pairs for each recipe that is used if none is named; above all of them, `default`."""
FEW_TO_TUNE = 200
"""With fewer pairs than this, a model that is trained further learns little else."""
_SPLIT = ("valid", "test", "splits", "held_out_valid", "held_out_test", "split_seed")
"""Corpus settings that decide which pairs are held out."""
FEW_MEASURED = 50
"""With fewer sentences than this, scores say next to nothing."""


def loaded_experiment(
    files: Sequence[Path] | None,
    config: str | None,
    preset: str | None,
    overrides: Sequence[str] | None,
    start: Path | None = None,
    synthetic: tuple[Path, ...] | None = None,
    *,
    by_size: bool = True,
    out: Path | None = None,
    say: Say = say,
) -> Loaded:
    """Return the experiment that the arguments describe. If none is named, it is the default; with `by_size`, the
    recipe for the number of pairs, unless `out` holds a run without it; and for training a model further, the one for
    fine-tuning, by default on the model's own corpus with the same split.
    """
    train = files or []
    parse_overrides(overrides or [])  # first, since pieces of a list that a shell has split look like files
    if train and train[0].suffix == ".toml":
        if len(train) > 1 or config is not None:
            raise ConfigError("give one experiment file: either as the argument or with --config")
        config, train = str(train[0]), []
    if len(train) > 2 and not all(may_follow(train[0], path) for path in train):
        raise ConfigError(
            "a corpus, and a set to validate or test with, is two aligned text files, one TSV or CSV file, or JSONL, "
            f"Parquet or TMX files of one kind: these are {len(train)} files" + _why_several(train)
        )
    if len(train) == 1 and not train[0].exists() and str(train[0]) in shipped():
        raise ConfigError(f"{train[0]} is an experiment that ships with repose: write --config {train[0]}")
    if len(train) == 1 and not train[0].exists() and str(train[0]) in PRESETS:
        raise ConfigError(f"{train[0]} is an architecture and no corpus: write --preset {train[0]}, and name the files")
    load_given = partial(load, preset=preset, train=train, synthetic=synthetic or (), overrides=overrides or [])
    if start is not None:
        return _from_model(start, partial(load_given, config or FINE_TUNING), say)
    loaded = load_given(config or "default")
    if not by_size or config is not None or (out is not None and _holds(out, loaded.experiment)):
        return loaded
    if (recipe := _recipe(loaded.experiment, say)) is None:
        return loaded
    loaded = load_given(recipe)
    _tell_of(loaded, recipe, say)
    return loaded


def _from_model(start: Path, load_given: Callable[..., Loaded], say: Say) -> Loaded:
    """Return the experiment that trains the model `start` further. `load_given` is `load` with what the user gave."""
    loaded = load_given(model=settings_of(start))
    if not loaded.experiment.corpus.train and loaded.experiment.corpus.name is None:
        loaded = load_given(model=settings_of(start, with_corpus=True))
        if other := [name for name in _SPLIT if loaded.sources[f"corpus.{name}"].kind not in ("model", "default")]:
            raise ConfigError(
                f"the corpus of {start} keeps its split, so that the model is not measured on pairs that it knows: "
                f"leave out corpus.{other[0]}, or name the pairs to train on"
            )
        _tell_of_start(start, loaded.experiment, say)
        return loaded
    _tell_of_start(start, loaded.experiment, say)
    if (others := other_languages(loaded)) is None:
        return loaded
    theirs = loaded.experiment.corpus
    loaded = load_given(model=settings_of(start, others))
    before, now, tag = f"{theirs.src_lang}-{theirs.tgt_lang}", "-".join(others), loaded.experiment.corpus.tag
    if theirs.tag != tag:
        now += f" with the tag {tag}" if tag else " without a tag (--set corpus.tag=TAG gives it one)"
    if before != f"{UNKNOWN}-{UNKNOWN}":
        say(f"the model translates {before}, but the files are named {'-'.join(others)}: the new model is for {now}")
    return loaded


def _why_several(files: Sequence[Path]) -> str:
    """Return what to do about this many files, if some do not exist."""
    if all(path.exists() for path in files):
        return ""
    return ", and not all of them are there: in a shell, put quotes around names with spaces"


def _holds(out: Path, experiment: Experiment) -> bool:
    """Return whether `out` holds a run with these settings, which the same command resumes."""
    try:
        theirs = RunFolder(out).config().experiment
    except CheckpointError:
        return False
    return all(getattr(theirs, name) == getattr(experiment, name) for name in ("tokenizer", "architecture", "training"))


def _recipe(experiment: Experiment, say: Say) -> str | None:
    """Return the recipe for a corpus of this size, and say which one it is and why; None for the default."""
    if not TASK_SETTINGS[experiment.training.task].translates:
        return None
    try:
        number = num_training_pairs(experiment.corpus, at_most=max(RECIPES) + 1)
    except ReposeError:  # errors in files are reported when they are read
        return None
    if number is None or (most := min((pairs for pairs in RECIPES if number <= pairs), default=None)) is None:
        return None
    if (few := too_few(number)) is not None:
        say(few)
    say(
        f"{counted(number, 'pair')}: the recipe {RECIPES[most]} (for at most {most:,}; --config default is for more), "
        "which sets"
    )
    return RECIPES[most]


def _tell_of(loaded: Loaded, recipe: str, say: Say) -> None:
    """Say in which settings the recipe differs from the default, without those that the command line or a preset
    overrides."""
    plain, theirs = load("default").experiment, load(recipe)
    sets: dict[str, list[str]] = {}
    lost = []
    for name, origin in theirs.sources.items():
        section, _, field = name.partition(".")
        value, now = setting(theirs.experiment, name), loaded.sources[name]
        if now == origin and value != setting(plain, name):
            shown = f"{field} {'none' if value is None else value}"
            sets.setdefault(section, []).append(f"preset {origin.name}" if origin.kind == "preset" else shown)
        is_of_preset = section == "architecture" and (origin.kind, now.kind) == ("file", "preset")
        if is_of_preset and value != setting(loaded.experiment, name):
            lost.append(f"--set {name}={value}")
    for section, settings in sets.items():
        say(f"    {section:<13} {', '.join(dict.fromkeys(settings))}")
    if lost:
        say(
            f"the preset {loaded.preset} has values of its own instead of the recipe's: {' '.join(lost)} restores these"
        )


def _tell_of_start(start: Path, experiment: Experiment, say: Say) -> None:
    """Say which model is trained further, and warn of too few pairs."""
    say(f"starts from the model {start}: its weights, sizes and tokenizers")
    corpus = experiment.corpus
    if not TASK_SETTINGS[experiment.training.task].translates or not corpus.train:
        return
    enough = math.ceil(FEW_MEASURED / HELD_OUT_SHARE)
    try:
        number = num_training_pairs(corpus, at_most=enough) or 0
    except ReposeError:  # errors in files are reported when they are read
        return
    if number < FEW_TO_TUNE:
        say(f"{counted(number, 'pair')}: few to train a model further: it may learn them by heart and forget others")
    if number < enough and not (corpus.valid or corpus.test) and corpus.held_out_test is None:
        held_out = counted(max(1, int(number * HELD_OUT_SHARE)), "pair")
        say(
            f"its scores will be measured on {held_out}, too few to mean anything: give a test set of your own (--test)"
        )


def tell_of_bf16(loaded: Loaded, out: Path, device: str, say: Say) -> None:
    """Say if a new translation model would train faster in bf16 on this CPU, unless a precision was chosen."""
    from repose.training.distributed import choose_device

    if (
        loaded.sources["training.precision"].kind == "default"
        and TASK_SETTINGS[loaded.experiment.training.task].translates
        and not RunFolder(out).exists
        and choose_device(device).type == "cpu"  # on a GPU, long trainings in bf16 have diverged: docs/speed.md
        and multiplies_in_bf16()
    ):
        say("training is faster in bf16 on this processor: --set training.precision=bf16")


def check_training_device(name: str) -> None:
    """Raise DeviceError for a device that cannot train or is not there, before a corpus is read."""
    from repose.training.distributed import choose_device

    choose_device(name)


def refuse_other_files(out: Path, start: Path | None = None) -> None:
    """Raise ConfigError if a folder holds something other than a run, or if it is the run of the initial model."""
    run = RunFolder(out)
    if (found := run.other_file()) is not None:
        raise ConfigError(f"{out} holds {found} and no run: choose another folder")
    if start is not None and start.resolve() in (run.path.resolve(), run.model.resolve()):
        raise ConfigError(f"{out} holds the model to start from: choose another folder to train in")
