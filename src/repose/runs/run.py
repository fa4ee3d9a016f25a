"""One run: its corpus is prepared, its model trained and scored, in one directory (`repose.runs.folder`)."""

import hashlib
import json
import platform
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy
import tokenizers
import torch

from repose._version import __version__
from repose.config.experiment import Experiment, TokenizerConfig
from repose.config.run_id import MEASURING, differing_settings, run_id, setting
from repose.data.language import UNKNOWN
from repose.positions_rl.table import PositionTable, default_table
from repose.positions_rl.table import read as read_table
from repose.runs.card import card as card_text
from repose.runs.card import waits_for_scores, write_card
from repose.runs.folder import OTHER_CODE, SCORED_SPLITS, TRAIN_ANEW, RunConfig, RunFolder, model_code
from repose.runs.records import EndReason, RunStatus
from repose.saved_model import directory as model_dir
from repose.system.device import available_cores, check_workers
from repose.system.errors import CheckpointError, ConfigError
from repose.system.files import check_writable
from repose.system.signals import Interrupted, StopSignals, interruptible
from repose.system.terminal import Say
from repose.tasks.base import check_start
from repose.tasks.corpus import CorpusData, direction_of, prepare_corpus
from repose.tasks.corpus_files import is_pretokenized, languages_of, with_languages
from repose.tasks.registry import get_task
from repose.training.checkpoint import read_state
from repose.training.display import ProgressKind
from repose.training.distributed import choose_device, outer_launcher
from repose.training.job import Outcome, TrainingJob
from repose.training.journal import read_whole
from repose.training.run import check_stop_after, train

MOST_DIFFERENCES = 5
"""Settings that a sentence names."""


@dataclass(frozen=True)
class RunResult:
    """How a run stands."""

    outcome: Outcome
    run_id: str
    """"" where it was stopped before its data was prepared."""
    scores: dict[str, Any] | None
    """Content of scores.test.json (of the validation set where there is no test set); None while not done, and on all
    workers of an outer launcher but the first."""


def run(
    experiment: Experiment,
    folder: Path,
    *,
    device: str = "auto",
    workers: int | None = None,
    stop_after: int | None = None,
    until_epoch: int | None = None,
    progress: ProgressKind = "auto",
    tensorboard: bool = False,
    say: Say = lambda _: None,
) -> RunResult:
    """Prepares, trains and evaluates in `folder`, going on from whatever is there; a finished run is not repeated.

    With `until_epoch` it trains up to that epoch's validation and evaluates nothing: the test set is not looked at.

    Raises CheckpointError where `folder` holds another run, and what preparing and training raise.
    """
    check_stop_after(stop_after)
    task = get_task(experiment.training.task)
    experiment = with_languages(experiment)
    if experiment.looks_ahead:
        say(task.look_ahead_warning)
    if (warning := experiment.positions_warning) is not None:
        say(warning)
    _check_before_reading(experiment, folder, device, workers)
    outer = outer_launcher()
    is_first = outer is None or outer.rank == 0  # under torchrun or SLURM every process comes here
    say = say if is_first else lambda _: None
    identity, outcome, scores, signals = "", None, None, StopSignals()
    try:
        with interruptible():
            if is_first:
                _check_files(RunFolder(folder))
            experiment = _in_languages_of(RunFolder(folder), experiment)
            data, table, identity = _begun(experiment, folder, say)
            was_done = is_first and _is_done(RunFolder(folder))
            if is_first and not was_done:
                _forget_scores(RunFolder(folder))
            outcome = train(
                _job(_config(folder, experiment), data, table),
                folder,
                device=device,
                workers=workers,
                stop_after=stop_after,
                until_epoch=until_epoch,
                progress=progress,
                tensorboard=tensorboard,
                evaluate=task.validation_figures(experiment, data),
                samples=None if progress == "none" else task.validation_samples(data),
                signals=signals,
            )
            if signals.received is not None:
                raise Interrupted(signals.received)
            if is_first and outcome.status is RunStatus.DONE and until_epoch is None:
                if not was_done:
                    _forget_scores(RunFolder(folder))
                scores = _evaluated(experiment, data, folder, device, say)
    except Interrupted as signal:
        reason = EndReason(signal.name)
        reached = (0, {}) if outcome is None else (outcome.update, outcome.metrics)
        outcome = Outcome(RunStatus.STOPPED, reason, *reached)
    return RunResult(outcome, identity, scores)


def _check_before_reading(experiment: Experiment, folder: Path, device: str, workers: int | None) -> None:
    """What cannot be had is said before the corpus is read."""
    choose_device(device)
    if workers is not None:
        check_workers(workers)
    check_writable(folder)
    if experiment.training.init_from is not None:
        check_start(experiment.training.init_from, experiment.architecture)


def _check_files(run: RunFolder) -> None:
    """Likewise what a run that is to go on has lost. Raises CheckpointError."""
    if run.exists:
        state = read_state(run.checkpoint, run.config().run_id)
        read_whole(run, state.metrics_bytes, state.metrics_crc32)
        _is_done(run)


def _begun(experiment: Experiment, folder: Path, say: Say) -> tuple[CorpusData, PositionTable | None, str]:
    """What is trained on, in a directory that is now this run's: its data, its position table, and its id."""
    data = prepare_corpus(experiment, workers=available_cores(), say=say)
    get_task(experiment.training.task).check_sets(experiment, data)
    digests, table = digests_of(experiment, data), _position_table(experiment)
    identity = run_id(experiment, digests)
    _claim(folder, experiment, identity, digests, data, table)
    if (direction := direction_of(experiment, data.check)) is not None:
        say(direction)
    if RunFolder(folder).has_other_code:
        say(f"{folder}: begun {OTHER_CODE}")
    return data, table, identity


def _in_languages_of(run: RunFolder, experiment: Experiment) -> Experiment:
    """With the languages that the run was begun with, where nothing says now which they are: the same pairs may be in a
    table, or in files of other names."""
    languages = languages_of(experiment.corpus)
    if UNKNOWN not in languages or not run.exists or (theirs := run.config().experiment.corpus).name is not None:
        return experiment
    both = zip(languages, languages_of(theirs), strict=True)
    src, tgt = (was if now == UNKNOWN else now for now, was in both)
    return replace(experiment, corpus=replace(experiment.corpus, src_lang=src, tgt_lang=tgt))


def _config(folder: Path, experiment: Experiment) -> RunConfig:
    """What the run was begun with, but saved as often as is now asked for."""
    config = RunFolder(folder).config()
    training = replace(config.experiment.training, save_every_minutes=experiment.training.save_every_minutes)
    return replace(config, experiment=replace(config.experiment, training=training))


def _is_done(run: RunFolder) -> bool:
    records = run.records(may_be_empty=True, remedy=TRAIN_ANEW) if run.metrics_file.exists() else None
    return records is not None and records.status is RunStatus.DONE


def _forget_scores(run: RunFolder) -> None:
    """Remove scores of a model whose training was not over, as `repose evaluate --out` may have put there."""
    for split in SCORED_SPLITS:
        run.scores_file(split).unlink(missing_ok=True)


def digests_of(experiment: Experiment, data: CorpusData) -> dict[str, str]:
    """What a run reads, by digest, as it enters `run_id`: data, tokenizers, initial weights, position table, and the
    validation's text, in the characters that the model reads it in, where translations decide which weights are kept.
    """
    digests = data.digests
    if experiment.training.best_by == "chrf":
        text = [side[: experiment.training.bleu_sentences] for side in data.text("valid")]
        seen = get_task(experiment.training.task).seen(experiment, data)
        if (normalization := model_dir.source_normalization(seen)) is not None:
            text[0] = [normalization(source) for source in text[0]]
        digests["valid_text"] = hashlib.sha256(json.dumps(text).encode()).hexdigest()
    if experiment.training.init_from is not None:
        digests["init_from"] = model_dir.read_config(Path(experiment.training.init_from))["sha256"][model_dir.WEIGHTS]
    if (table := _position_table(experiment)) is not None and experiment.training.init_from is None:
        digests["position_table"] = table.digest
    return digests


def _position_table(experiment: Experiment) -> PositionTable | None:
    """The small table of `positions = policy`."""
    path = experiment.training.position_table
    if (kind := experiment.architecture.positions) != "policy":
        if path is not None:
            raise ConfigError(
                f"training.position_table = {path!r} is for architecture.positions = 'policy', not {kind!r}: "
                "remove it, or set positions"
            )
        return None
    if path is not None and experiment.training.init_from is not None:
        raise ConfigError(
            f"training.position_table = {path!r} has no effect on the model of training.init_from, which has a table: "
            "remove one of the two settings"
        )
    return default_table() if path is None else read_table(Path(path))


def _claim(
    folder: Path,
    experiment: Experiment,
    identity: str,
    digests: Mapping[str, str],
    data: CorpusData,
    table: PositionTable | None,
) -> None:
    """Writes config.json, or makes sure that the one there is of this run. A training that cannot begin with its
    `init_from` writes none, which would stand in the way of the right one."""
    run = RunFolder(folder)
    if run.config_file.exists():
        theirs = run.config()
        if theirs.run_id != identity:
            raise CheckpointError(_holds_another(folder, theirs, experiment, identity, digests))
        same_test = theirs.data == data.folder.name or (theirs.test is not None and theirs.test == data.test_digest)
        if theirs.experiment.decoding != experiment.decoding or not same_test:
            raise CheckpointError(
                f"{folder} holds this training with other files, another test set, limits or [decoding]: choose "
                "another --out, name what it was begun with, or measure it with `repose evaluate`"
            )
        if (otherwise := next(_measured_otherwise(theirs.experiment, experiment), None)) is not None:
            name, was, now = otherwise
            raise CheckpointError(
                f"{folder} holds this training with {name} = {was!r}, not {now!r}: choose another --out, or that value"
            )
        return
    if (held := run.other_run(identity, by_scores=True)) is not None:
        raise CheckpointError(
            f"{folder} has no {run.config_file.name}, but holds what run {held} trained, and these settings and data "
            f"make run {identity}: choose another --out, or the settings of that run"
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
    if experiment.training.init_from is not None:
        get_task(experiment.training.task).start_of(_job(config, data, table))
    if not run.write_new_config(config):  # another process was first
        _claim(folder, experiment, identity, digests, data, table)


def _holds_another(
    folder: Path, theirs: RunConfig, experiment: Experiment, identity: str, digests: Mapping[str, str]
) -> str:
    """The sentence about a folder that holds another run than the one that is asked for."""
    settings, further = _differing_settings(theirs, experiment).keys(), f"--from {shlex.quote(str(folder))}"
    same_data = not _differing_data(theirs, digests)
    if same_data and settings == {"training.max_hours"}:
        hours = (of.training.max_hours for of in (theirs.experiment, experiment))
        was, now = ("without --minutes" if of is None else f"with --minutes {60 * of:.4g}" for of in hours)
        return (
            f"{folder} was begun {was}, not {now}: a limit of time is part of a training, since its learning rate "
            "follows it, and cannot be changed later; begin anew with another --out, or train the weights further with "
            f"another --out and {further}"
        )
    same_version = theirs.versions.get("repose") == __version__  # another may prepare the same files otherwise
    files = _same_files(theirs.experiment, experiment) and bool(experiment.corpus.train)
    if not settings and files and same_version and _reads_other_pairs(theirs, digests):
        return (
            f"the files of the corpus have changed since the training in {folder} began: put them back as they were to "
            "resume it, or begin anew with another --out"
        )
    return (
        f"{folder} holds run {theirs.run_id}, these settings and data make run {identity} "
        f"({_differences(theirs, experiment, digests)}): choose another --out, or the settings of that run"
    ) + f"; to train its weights further, give {further} and another --out" * (
        same_data and bool(settings) and settings <= _LENGTH  # nothing makes another run of it but how long it trains
    )


def _measured_otherwise(theirs: Experiment, experiment: Experiment) -> Iterator[tuple[str, object, object]]:
    """Settings that are in no run's id, since they only decide how a training is measured and what its model says of
    itself, and that differ: their names, and both values."""
    both = theirs, experiment
    told = [(*languages_of(one.corpus), is_pretokenized(one.corpus)) for one in both]
    names = ["corpus.src_lang", "corpus.tgt_lang", "corpus.pretokenized", *(f"training.{name}" for name in MEASURING)]
    values = [
        (*of_corpus, *(getattr(one.training, name) for name in MEASURING))
        for one, of_corpus in zip(both, told, strict=True)
    ]
    for name, was, now in zip(names, *values, strict=True):
        if was != now:
            yield name, was, now


def _differences(theirs: RunConfig, experiment: Experiment, digests: Mapping[str, str]) -> str:
    """What makes another run of one, in words: the settings, and whether other data is read."""
    settings = list(_differing_settings(theirs, experiment).values())
    if len(settings) > MOST_DIFFERENCES:
        settings[MOST_DIFFERENCES:] = [f"and {len(settings) - MOST_DIFFERENCES} more"]
    return ", ".join([*settings, *_differing_data(theirs, digests)]) or "another version of repose"


def _differing_settings(theirs: RunConfig, experiment: Experiment) -> dict[str, str]:
    """The settings that make another run of one, by name, in words."""
    by_content = [f"tokenizer.{field.name}" for field in fields(TokenizerConfig)]  # they are in the id by their files
    by_content += ["training.init_from", "training.position_table"]
    both = theirs.experiment, experiment
    names = [name for name in by_content if setting(both[0], name) != setting(both[1], name)]
    names += differing_settings(*both)
    found = {name: [_written(name, setting(one, name)) for one in both] for name in names}
    return {name: f"{name} was {was}, is {now}" for name, (was, now) in found.items()}


def _same_files(theirs: Experiment, experiment: Experiment) -> bool:
    """Whether both name the same files, and split them alike."""
    one, other = (replace(of.corpus, src_lang=UNKNOWN, tgt_lang=UNKNOWN) for of in (theirs, experiment))
    return one == other


def _reads_other_pairs(theirs: RunConfig, digests: Mapping[str, str]) -> bool:
    return any(theirs.digests.get(name) != digests.get(name) for name in ("train", "valid"))


def _differing_data(theirs: RunConfig, digests: Mapping[str, str]) -> list[str]:
    """What else it read that was another, in words."""
    data = [name for name in ("train", "valid") if theirs.digests.get(name) != digests.get(name)]
    others = dict.fromkeys(what for name, what in _READ.items() if theirs.digests.get(name) != digests.get(name))
    return [f"other {' and '.join(data)} data"] * bool(data) + list(others)


_LENGTH = {"training.epochs", "training.updates", "training.max_hours", "training.patience"}
_READ = {
    "src": "another tokenizer",
    "tgt": "another tokenizer",
    "init_from": "other weights in training.init_from",
    "position_table": "another position table",
    "valid_text": "other validation text",
}
"""What a run reads beside its data, by the name of its digest."""


def _written(name: str, value: object) -> str:
    """A setting as a person reads it; hours as the option has them, too."""
    if not isinstance(value, float):
        return repr(value)
    return f"{value:.4g}" + (f" (--minutes {60 * value:.4g})" if name == "training.max_hours" else "")


def _job(config: RunConfig, data: CorpusData, table: PositionTable | None) -> TrainingJob:
    experiment, identity = config.experiment, config.run_id
    task = get_task(experiment.training.task)
    return TrainingJob(
        task=task,
        architecture=experiment.architecture,
        training=experiment.training,
        decoding=experiment.decoding,
        train_data=data.ids("train"),
        valid_data=data.ids("valid"),
        src_tokenizer=data.tokenizer_path("src"),
        tgt_tokenizer=data.tokenizer_path("tgt"),
        run_id=identity,
        data=task.data_record(data),
        position_table=None if table is None else tuple(map(tuple, table.values.tolist())),
        synthetic_tag=experiment.corpus.synthetic_tag if experiment.corpus.synthetic else None,
        card=card_text(config),
        model_extra={"run_id": identity, **task.model_extra(experiment), **task.seen(experiment, data)},
    )


def _evaluated(experiment: Experiment, data: CorpusData, folder: Path, device: str, say: Say) -> dict[str, Any]:
    """Scores of the finished model; computed where they, or the translations that belong to them, are missing."""
    run, split = RunFolder(folder), data.measured
    model_dir.check(run.model)
    if (scores := run.scores(split)) is not None:
        if run.has_all_hypotheses(split):
            if waits_for_scores(run.model):
                write_card(folder)
            return scores
        say(f"{run.hypotheses_file(split, '*').parent} is not as it was scored: the model is evaluated again")
    task = get_task(experiment.training.task)
    # On a CPU unless a device was named: there translations are searched by one process per core, and alike everywhere.
    task.score_run(experiment, data, folder, "cpu" if device == "auto" else device)
    scores = run.scores(split)
    assert scores is not None
    write_card(folder)
    return scores
