"""One run in one directory (`repose.saved_run.folder`): prepare a corpus, train a model, evaluate it."""

import hashlib
import json
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from repose.config.experiment import Experiment
from repose.config.run_id import run_id
from repose.data.bpe_dropout import Merges
from repose.data.language import UNKNOWN
from repose.positions_rl.table import PositionTable, default_table
from repose.positions_rl.table import read as read_table
from repose.runs.card import card as card_text
from repose.runs.card import waits_for_scores, write_card
from repose.runs.claim import claim, refuse_other_settings
from repose.saved_model import directory as model_dir
from repose.saved_run.folder import OTHER_CODE, SCORED_SPLITS, TRAIN_ANEW, RunConfig, RunFolder
from repose.saved_run.records import EndReason, Record, RunStatus
from repose.system.device import available_cores, check_workers
from repose.system.errors import ConfigError, ReposeError
from repose.system.files import check_writable
from repose.system.signals import Interrupted, StopSignals, interruptible
from repose.system.terminal import Say, counted
from repose.tasks.base import check_start
from repose.tasks.corpus import SET_NAMES, prepare_corpus
from repose.tasks.corpus_files import direction_of, languages_of, with_languages
from repose.tasks.corpus_of_run import TRAINED_ON_SHARE, TrainedOn, record_trained_on
from repose.tasks.prepared import CorpusData
from repose.tasks.registry import get_task
from repose.training.checkpoint import read_state
from repose.training.display import ProgressKind, check_progress
from repose.training.distributed import choose_device, outer_launcher
from repose.training.job import Outcome, TrainingJob
from repose.training.journal import board_class, read_whole
from repose.training.run import check_free, check_stop_after, train


@dataclass(frozen=True)
class RunResult:
    """The result of a run, or its state so far."""

    folder: Path
    """Its run directory (its files are listed in docs/own-corpus.md)."""
    outcome: Outcome
    run_id: str
    """"" if it was stopped before its data was prepared."""
    scores_if_any: dict[str, Any] | None
    """The `scores`; None until it is done, and on all workers of an outer launcher but the first."""

    def __fspath__(self) -> str:
        return str(self.folder)  # usable wherever a run directory is

    @property
    def scores(self) -> dict[str, Any]:
        """Content of scores.test.json (or, without a test set, scores.valid.json). Raises ReposeError if there are no
        scores."""
        if self.scores_if_any is not None:
            return self.scores_if_any
        if self.outcome.status is RunStatus.DONE:
            raise ReposeError(f"only the first process has the scores of {self.folder}: ask for them there")
        raise ReposeError(f"{self.folder} has no scores until its training is over: train there again to resume it")

    @property
    def records(self) -> tuple[Record, ...]:
        """Records of the training so far, in order: of some updates ("kind" is "train"), each epoch, each validation
        ("valid"), and of the model if it is an average ("model")."""
        run = RunFolder(self.folder)
        return run.records(may_be_empty=True).training if run.metrics_file.exists() else ()

    def __repr__(self) -> str:
        scores = self.scores_if_any
        main = "" if scores is None else f", scores of {', '.join(scores.get('decoded') or scores['figures'])}"
        return f"RunResult({str(self.folder)!r}, {self.outcome.status} at update {self.outcome.update}{main})"


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
    stop: threading.Event | None = None,
) -> RunResult:
    """Prepare, train and evaluate in `folder`, resuming what is there; a finished run is not repeated.

    With `until_epoch`, train up to that epoch's validation and do not evaluate, so the test set is not used.

    Raises CheckpointError if `folder` holds another run, and what preparing and training raise.
    """
    check_stop_after(stop_after)
    check_progress(progress)
    if tensorboard:
        board_class()
    task = get_task(experiment.training.task)
    experiment = with_languages(experiment)
    if experiment.looks_ahead:
        say(task.look_ahead_warning)
    if (warning := experiment.positions_warning) is not None:
        say(warning)
    _check_before_reading(experiment, folder, device, workers)
    outer = outer_launcher()
    is_first = outer is None or outer.rank == 0  # under torchrun or SLURM, every process runs this
    say = say if is_first else lambda _: None
    here, identity, outcome, scores, signals = RunFolder(folder), "", None, None, StopSignals(stop)
    try:
        with interruptible():
            if outer is None:  # else an error of the first process alone would leave the others waiting
                check_free(here)
            if is_first:
                _check_files(here)
            experiment = _in_languages_of(here, experiment)
            refuse_other_settings(folder, experiment)
            data, table, identity = _begun(experiment, folder, say)
            was_done = is_first and _is_done(here)
            if is_first and not was_done:
                _forget_scores(here)
                record_trained_on(here, data, experiment.training.init_from)
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
                samples=task.validation_samples(data),
                signals=signals,
                say=say,
            )
            if signals.received is not None:
                raise Interrupted(signals.received)
            if is_first and outcome.status is RunStatus.DONE and until_epoch is None:
                if not was_done:
                    _forget_scores(here)
                scores = _evaluated(experiment, data, folder, device, progress, say)
    except Interrupted as signal:
        reason = EndReason(signal.name)
        reached = (0, {}) if outcome is None else (outcome.update, outcome.metrics)
        outcome = Outcome(RunStatus.STOPPED, reason, *reached)
    return RunResult(folder, outcome, identity, scores)


def _check_before_reading(experiment: Experiment, folder: Path, device: str, workers: int | None) -> None:
    """Raise errors about unavailable devices and libraries before reading the corpus."""
    choose_device(device)
    if workers is not None:
        check_workers(workers)
    check_writable(folder)
    if experiment.training.init_from is not None:
        check_start(experiment.training.init_from, experiment.architecture)


def _check_files(run: RunFolder) -> None:
    """Check a run's files before resuming it. Raises CheckpointError."""
    if run.exists:
        state = read_state(run.checkpoint, run.config().run_id)
        read_whole(run, state.metrics_bytes, state.metrics_crc32)
        _is_done(run)


def _begun(experiment: Experiment, folder: Path, say: Say) -> tuple[CorpusData, PositionTable | None, str]:
    """Claim the directory for this run; return its data, its position table, and its id."""
    data = prepare_corpus(experiment, workers=available_cores(), say=say)
    get_task(experiment.training.task).check_sets(experiment, data)
    digests, table = digests_of(experiment, data), _position_table(experiment)
    identity = run_id(experiment, digests)
    claim(folder, experiment, identity, digests, data, lambda config: _check_start(config, data, table))
    if (direction := direction_of(experiment, data.check)) is not None:
        say(direction)
    if (start := experiment.training.init_from) is not None:
        _tell_of_trained_on(Path(start), data, say)
    if RunFolder(folder).has_other_code:
        say(f"{folder}: begun {OTHER_CODE}: train it again in another folder")
    return data, table, identity


def _tell_of_trained_on(start: Path, data: CorpusData, say: Say) -> None:
    """Warn if the initial model was trained on parts of a set, for example because a corrected corpus was split
    anew."""
    found = {SET_NAMES[split]: data.text(split)[0] for split in ("valid", "test") if data.has_text(split)}
    known = TrainedOn.of(start)
    for (name, sources), number in zip(found.items(), known.counts(*found.values()), strict=True):
        if number >= max(1, TRAINED_ON_SHARE * len(sources)):
            say(
                f"WARNING: {start} was trained on {number:,} of {counted(len(sources), f'{name} source')}, so scores "
                f"of that set will be too high: name pairs that neither training has seen (--valid and --test)"
            )
    if found and not known.is_all:
        say(
            f"not all that {start} was trained on is known: if it has learnt from the validation or test set, their "
            "scores will be too high"
        )


def _check_start(config: RunConfig, data: CorpusData, table: PositionTable | None) -> None:
    """Raise if the training cannot start from the model in `init_from`, or cannot segment words anew in each epoch."""
    training, job = config.experiment.training, _job(config, data, table)
    task = get_task(training.task)
    if training.init_from is not None:
        task.start_of(job)
    if training.bpe_dropout:
        for tokenizer in task.tokenizers(job):
            Merges(tokenizer)


def _in_languages_of(run: RunFolder, experiment: Experiment) -> Experiment:
    """Use the languages that the run was begun with if they are not stated now: the same pairs may come from a table,
    or from files with other names."""
    languages = languages_of(experiment.corpus)
    if UNKNOWN not in languages or not run.exists or (theirs := run.config().experiment.corpus).name is not None:
        return experiment
    both = zip(languages, languages_of(theirs), strict=True)
    src, tgt = (was if now == UNKNOWN else now for now, was in both)
    return replace(experiment, corpus=replace(experiment.corpus, src_lang=src, tgt_lang=tgt))


def _config(folder: Path, experiment: Experiment) -> RunConfig:
    """Return the run's original settings, but with the current saving interval, and the current paths of files with the
    same content."""
    config, now = RunFolder(folder).config(), experiment.training
    training = replace(
        config.experiment.training,
        save_every_minutes=now.save_every_minutes,
        init_from=now.init_from,
        position_table=now.position_table,
    )
    return replace(config, experiment=replace(config.experiment, training=training))


def _is_done(run: RunFolder) -> bool:
    records = run.records(may_be_empty=True, remedy=TRAIN_ANEW) if run.metrics_file.exists() else None
    return records is not None and records.status is RunStatus.DONE


def _forget_scores(run: RunFolder) -> None:
    """Remove scores from before the training's end, as `repose evaluate --out` may have written them."""
    for split in SCORED_SPLITS:
        run.scores_file(split).unlink(missing_ok=True)


def digests_of(experiment: Experiment, data: CorpusData) -> dict[str, str]:
    """Return the digests of a run's inputs for `run_id`: data, tokenizers, initial weights, position table, and, if
    translations decide which weights are kept, the normalised text of the validation set.
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
    """Return the small table of `positions = policy`."""
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


def _evaluated(
    experiment: Experiment, data: CorpusData, folder: Path, device: str, progress: ProgressKind, say: Say
) -> dict[str, Any]:
    """Return the finished model's scores; compute them if they or their translations are missing."""
    run, split = RunFolder(folder), data.measured
    model_dir.check(run.model)
    if (scores := run.scores(split)) is not None:
        if run.has_all_hypotheses(split):
            if waits_for_scores(run.model):
                write_card(folder)
            return scores
        say(f"{run.hypotheses_file(split, '*').parent} has changed since it was scored: the model is evaluated again")
    task = get_task(experiment.training.task)
    # On a CPU unless a device was named: it runs one process per core, and gives the same translations everywhere.
    task.score_run(experiment, data, folder, "cpu" if device == "auto" else device, progress, say)
    scores = run.scores(split)
    assert scores is not None
    write_card(folder)
    return scores
