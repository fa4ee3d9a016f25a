"""Claim a run directory for a new training, or check that a resumed training matches the run in it."""

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy
import tokenizers
import torch

from repose._version import __version__
from repose.config.experiment import Experiment, TokenizerConfig
from repose.config.file import to_toml
from repose.config.run_id import MEASURING, differing_settings, setting
from repose.data.language import UNKNOWN
from repose.saved_run.folder import RunConfig, RunFolder, model_code
from repose.system.errors import CheckpointError
from repose.system.terminal import quoted
from repose.tasks.corpus_files import is_pretokenized, languages_of
from repose.tasks.prepared import CorpusData

_MOST_DIFFERENCES = 5
"""Maximum number of settings that an error names."""
_LENGTH = {"training.epochs", "training.updates", "training.max_hours", "training.patience"}
_READ = {
    "src": "another tokenizer",
    "tgt": "another tokenizer",
    "init_from": "other weights in training.init_from",
    "position_table": "another position table",
    "valid_text": "other validation text",
}
"""Other inputs of a run besides its data, by the names of their digests."""


def claim(
    folder: Path,
    experiment: Experiment,
    identity: str,
    digests: Mapping[str, str],
    data: CorpusData,
    check: Callable[[RunConfig], None],
) -> None:
    """Write config.json, or check that the existing one belongs to this run. Raises CheckpointError if it does not.

    `check` raises for a training that cannot begin, so that no config.json is written, which would block a correct one.
    """
    run = RunFolder(folder)
    if run.config_file.exists():
        theirs = run.config()
        if theirs.run_id != identity:
            raise CheckpointError(_holds_another(folder, theirs, experiment, digests))
        if theirs.data != data.folder.name and theirs.test != data.test_digest:
            raise CheckpointError(
                f"{folder} holds this training with other files, another test set or other limits: choose another "
                "folder, name what it was started with, or measure it with `repose evaluate`"
            )
        was, now = _measuring_settings(theirs.experiment), _measuring_settings(experiment)
        if (name := next((name for name in now if was[name] != now[name]), None)) is not None:
            value, asked = ("none" if of[name] is None else repr(of[name]) for of in (was, now))
            raise CheckpointError(
                f"{folder} holds this training with {name} = {value}, not {asked}: choose another folder, or that value"
            )
        return
    if (held := run.other_run(identity, by_scores=True)) is not None:
        raise CheckpointError(
            f"{folder} has no {run.config_file.name}, but holds what run {held} trained, and these settings and data "
            f"make run {identity}: choose another folder, or the settings of that run"
        )
    versions = {module.__name__: module.__version__ for module in (torch, tokenizers, numpy)}
    versions = {"repose": __version__, **versions, "python": platform.python_version(), "code": model_code()}
    config = RunConfig(
        run_id=identity,
        experiment=experiment,
        digests=digests,
        data=data.folder.name,
        report=tuple(data.report),
        versions=versions,
        test=data.test_digest,
    )
    check(config)
    if not run.write_new_config(config):  # another process was faster
        claim(folder, experiment, identity, digests, data, check)


def refuse_other_settings(folder: Path, experiment: Experiment) -> None:
    """Raise CheckpointError, as `claim` would, if the folder's run has the same files but other settings.

    So a training that cannot be resumed ends before its corpus is prepared."""
    run = RunFolder(folder)
    if not run.config_file.exists():
        return
    theirs = run.config()
    if _same_files(theirs.experiment, experiment) and differing_settings(theirs.experiment, experiment):
        raise CheckpointError(_holds_another(folder, theirs, experiment, theirs.digests))


def _holds_another(folder: Path, theirs: RunConfig, experiment: Experiment, digests: Mapping[str, str]) -> str:
    """Return the error for a folder that holds another run than the requested one."""
    settings, further = _differing_settings(theirs, experiment), f"--from {quoted(folder)}, or start in Python"
    same_data = not _differing_data(theirs, digests)
    if same_data and settings.keys() == {"training.max_hours"}:
        hours = (of.training.max_hours for of in (theirs.experiment, experiment))
        was, now = ("without a time limit" if of is None else f"with a limit of {60 * of:.4g} min" for of in hours)
        return (
            f"{folder} was started {was}, not {now}: a time limit is part of a training, since its learning rate "
            "follows it, and cannot be changed later; resume it as it was started, start again in another folder, or "
            f"train the weights further in one ({further})"
        )
    same_version = theirs.versions.get("repose") == __version__  # other versions may prepare the same files differently
    files = _same_files(theirs.experiment, experiment) and bool(experiment.corpus.train)
    if not settings and files and same_version and _other_sets(theirs, digests):
        return (
            f"the files of the corpus have changed since the training in {folder} began: put them back as they were to "
            "resume it, or start again in another folder"
        )
    # No option takes another model (--from) back.
    resumes = theirs.experiment.training.init_from is not None or experiment.training.init_from is None
    return (
        f"{folder} holds run {theirs.run_id}, and these settings and data would make another "
        f"({_differences(settings, theirs, digests)}): choose another folder, or the settings of that run"
        f"{_as_options(settings, theirs) * resumes}"
    ) + f"; to train its weights further, do so in another folder ({further})" * (
        same_data and bool(settings) and settings.keys() <= _LENGTH  # the runs differ only in their length
    )


def _measuring_settings(experiment: Experiment) -> dict[str, object]:
    """Return settings that are not part of the run id, because they only affect how a training is measured and what its
    model says about itself."""
    corpus, training = experiment.corpus, experiment.training
    src_lang, tgt_lang = languages_of(corpus)
    return {
        "corpus.src_lang": src_lang,
        "corpus.tgt_lang": tgt_lang,
        "corpus.pretokenized": is_pretokenized(corpus),
        **{f"training.{name}": getattr(training, name) for name in MEASURING},
        **{f"decoding.{name}": value for name, value in asdict(experiment.decoding).items()},
    }


def _differences(settings: Mapping[str, str], theirs: RunConfig, digests: Mapping[str, str]) -> str:
    """Say how the runs differ: in which settings, and whether in their data."""
    shown = list(settings.values())
    if len(shown) > _MOST_DIFFERENCES:
        shown[_MOST_DIFFERENCES:] = [f"and {len(shown) - _MOST_DIFFERENCES} more"]
    return ", ".join([*shown, *_differing_data(theirs, digests)]) or "another version of repose"


def _as_options(settings: Iterable[str], theirs: RunConfig) -> str:
    """Return, in brackets, the options that give these settings their values in that run: nobody may have changed them
    but another version of repose, whose recipe is another."""
    values = {name: setting(theirs.experiment, name) for name in settings}
    texts = {name: value if isinstance(value, str) else to_toml(value).strip('"') for name, value in values.items()}
    options = " ".join(f"--set {quoted('='.join(each))}" for each in texts.items())
    return f" ({options})" * bool(options)


def _differing_settings(theirs: RunConfig, experiment: Experiment) -> dict[str, str]:
    """Return the settings in which the runs differ, as text, by name."""
    by_content = [f"tokenizer.{field.name}" for field in fields(TokenizerConfig)]  # the id has the tokenizers' digests
    by_content += ["training.init_from", "training.position_table"]
    before = theirs.experiment
    names = [name for name in by_content if setting(before, name) != setting(experiment, name)]
    return {
        name: f"{name} was {_written(name, setting(before, name))}, is {_written(name, setting(experiment, name))}"
        for name in (*names, *differing_settings(before, experiment))
    }


def _same_files(theirs: Experiment, experiment: Experiment) -> bool:
    """Return whether both name the same files and split them in the same way."""
    one, other = (replace(of.corpus, src_lang=UNKNOWN, tgt_lang=UNKNOWN) for of in (theirs, experiment))
    return one == other


def _other_sets(theirs: RunConfig, digests: Mapping[str, str]) -> list[str]:
    """Return the sets that differ."""
    return [name for name in ("train", "valid") if theirs.digests.get(name) != digests.get(name)]


def _differing_data(theirs: RunConfig, digests: Mapping[str, str]) -> list[str]:
    """Return which other inputs differ, as text."""
    data = _other_sets(theirs, digests)
    others = dict.fromkeys(what for name, what in _READ.items() if theirs.digests.get(name) != digests.get(name))
    return [f"other {' and '.join(data)} data"] * bool(data) + list(others)


def _written(name: str, value: object) -> str:
    """Return a setting as text to show; hours also as the option that sets them."""
    if value is None:
        return "not set"
    if not isinstance(value, float):
        return repr(value)
    return f"{value:.4g}" + (f" (--minutes {60 * value:.4g})" if name == "training.max_hours" else "")
