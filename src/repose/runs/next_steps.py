"""Advice at the end of a training: what is wrong with the model, and how to get a better one."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from repose.config.experiment import TrainingConfig
from repose.saved_run.folder import RunFolder
from repose.saved_run.records import LITTLE_GAIN, EndReason, Records, hardly_reads
from repose.system.terminal import duration, quoted


def next_steps(folder: Path, figures: Mapping[str, float]) -> Iterator[str]:
    """Yield sentences about a finished run, given its model's figures on the validation set."""
    run = RunFolder(folder)
    records, training = run.records(may_be_empty=True), run.config().experiment.training
    gain = figures.get("source_gain")
    has_learnt = gain is None or gain >= LITTLE_GAIN
    advice = _cut_short(records, training)
    if advice is not None and has_learnt:
        advice += f", or train this one further: repose train --from {quoted(folder)} --out ANOTHER"
    if advice is None:
        advice = _longer_training(records, training)
    if advice is not None:
        yield advice
    if gain is not None and not has_learnt:
        may_go_on = records.end is not None and records.end.reason is not EndReason.PATIENCE
        yield (
            f"WARNING: {hardly_reads(gain)}, so its translations may be fluent but have nothing to do with what they "
            "translate: check that the pairs are translations of each other, "
            f"{'train longer, ' * may_go_on}or add pairs"
        )


def _longer_training(records: Records, training: TrainingConfig) -> str | None:
    """Return advice if a training reached its limit and was best at its last validation."""
    by_chrf = training.best_by == "chrf"
    figures = [record.get("chrf") if by_chrf else -record["tf_loss"] for record in records.of_kind("valid")]
    *before, last = [figure for figure in figures if figure is not None] or [0.0]
    if records.end is None or records.end.reason is EndReason.PATIENCE or not before or last <= max(before):
        return None
    return (
        "its last validation was its best: a longer training (--epochs or --minutes, with another --out) may do better"
    )


def _cut_short(records: Records, training: TrainingConfig) -> str | None:
    """Say how much of a training the time limit cut off, if other limits define its length."""
    end = records.end
    if end is None or end.reason is not EndReason.HOURS or end.total is None or end.total <= end.update:
        return None
    reached = f"after {end.update:,} of {end.total:,} updates"
    if training.epochs is not None and (training.updates is None or end.total < training.updates):
        reached = f"in epoch {end.epoch} of {training.epochs}"
    left = duration(end.seconds / end.update * (end.total - end.update))
    bound = "about" if training.patience is None else "at most"
    return (
        f"--minutes {60 * (training.max_hours or 0.0):.4g} ended the training {reached}: without this limit, it would "
        f"go on for {bound} {left}; for a better model, train with another --out and without --minutes"
    )
