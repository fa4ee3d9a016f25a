"""Figures over epochs: at the best and at the last one, and where all systems have had equally many."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from repose.report import figures
from repose.report.content import Table
from repose.report.runs import ReportRun, RunSet
from repose.report.summaries import Figure, Of, Row, figure_table, rows_of

NATS = "nats per token"
_NOT_A_SCORE = (
    " Validation BLEU is of greedy translations of the validation set's first sentences, as training scored them."
)


def best_and_last_table(runs: RunSet) -> Table | None:
    """Each run's validation figures after its last epoch and at its own best one; None where nothing was validated."""
    rows = rows_of(runs)
    if not any(run.of_kind("valid") for row in rows for run in row.runs):
        return None
    return figure_table(
        rows,
        [
            Figure(name="last epoch", cost=True, digits=0, exact=True, of=_last("epoch")),
            Figure(name="loss, last", unit=NATS, digits=3, better="lower", judged_by_tokens=True, of=_last("tf_loss")),
            Figure(
                name="best epoch", digits=0, exact=True, of=lambda run: _number(_best(run, "tf_loss", min), "epoch")
            ),
            Figure(
                name="loss, best",
                unit=NATS,
                digits=3,
                better="lower",
                judged_by_tokens=True,
                of=lambda run: _number(_best(run, "tf_loss", min), "tf_loss"),
            ),
            Figure(name="accuracy, last", unit="%", digits=1, better="higher", judged_by_tokens=True, of=_accuracy),
            Figure(name="BLEU, last", digits=1, better="higher", of=_last("bleu")),
            Figure(
                name="BLEU, best", digits=1, better="higher", of=lambda run: _number(_best(run, "bleu", max), "bleu")
            ),
        ],
        name="best-and-last",
        title="Best and last epoch",
        caption="Validation set; each run at its own epoch of lowest loss, or of highest BLEU. What is best was chosen "
        "on the set that it is shown of, and flatters." + _bleu_caption(rows),
    )


def equal_epochs_table(runs: RunSet) -> Table | None:
    """All systems of a corpus after as many epochs as each of its runs has completed; None where one has no epoch."""
    rows = rows_of(runs)
    ends = {
        corpus: {_validated_epochs(run) for row in rows if row.corpus == corpus for run in row.runs}
        for corpus in runs.corpora
    }
    common = {corpus: min(found) for corpus, found in ends.items() if found and min(found) > 0}
    rows = [row for row in rows if row.corpus in common]
    if not rows:
        return None

    def at(kind: str, name: str, factor: float = 1) -> Of:
        return lambda run: figures.times(factor, _number(_at(run, kind, common[run.corpus]), name))

    def seconds(run: ReportRun) -> float | None:
        found = figures.epoch_seconds(run)
        return sum(found[: common[run.corpus]]) if found else None

    unequal = [corpus for corpus in common if len(ends[corpus]) > 1]
    caption = (
        "Validation set, after the largest number of epochs that every run of the corpus completed."
        + _bleu_caption(rows)
    )
    if unequal:
        caption += (
            " Epochs were unequal: a run that went on was still at a higher learning rate there than one that ended, "
            "where the schedule falls."
        )
    return figure_table(
        rows,
        [
            Figure(name="epochs", cost=True, digits=0, exact=True, of=lambda run: float(common[run.corpus])),
            Figure(name="train loss", unit=NATS, digits=3, of=at("epoch", "nll")),
            Figure(
                name="valid. loss",
                unit=NATS,
                digits=3,
                better="lower",
                judged_by_tokens=True,
                of=at("valid", "tf_loss"),
            ),
            Figure(
                name="accuracy",
                unit="%",
                digits=1,
                better="higher",
                judged_by_tokens=True,
                of=at("valid", "tf_accuracy", 100),
            ),
            Figure(name="BLEU", digits=1, better="higher", of=at("valid", "bleu")),
            Figure(name="time so far", cost=True, unit="seconds of training", digits=0, of=seconds),
        ],
        name="equal-epochs",
        title="At equal epochs",
        caption=caption,
    )


def unequal_epochs(runs: RunSet) -> tuple[str, ...]:
    """Corpora whose finished runs completed unequal numbers of epochs."""
    rows = rows_of(runs)
    return tuple(
        corpus
        for corpus in runs.corpora
        if len({figures.epochs(run) for row in rows if row.corpus == corpus for run in row.runs}) > 1
    )


def _bleu_caption(rows: Sequence[Row]) -> str:
    """What the columns of BLEU are, where there are such."""
    scored = any("bleu" in record for row in rows for run in row.runs for record in run.of_kind("valid"))
    return _NOT_A_SCORE if scored else ""


def _validated_epochs(run: ReportRun) -> int:
    """Epochs at whose end, or in which, it was validated, from the first on."""
    found = {record["epoch"] for record in run.of_kind("valid")} & {record["epoch"] for record in run.of_kind("epoch")}
    return next(epoch for epoch in range(len(found) + 1) if epoch + 1 not in found)


def _at(run: ReportRun, kind: str, epoch: int) -> Mapping[str, Any] | None:
    """Its last record of a kind in an epoch."""
    return next((record for record in reversed(run.of_kind(kind)) if record["epoch"] == epoch), None)


def _last(name: str) -> Of:
    return lambda run: _number(next(iter(reversed(run.of_kind("valid"))), None), name)


def _accuracy(run: ReportRun) -> float | None:
    return figures.times(100, _last("tf_accuracy")(run))


def _best(run: ReportRun, name: str, pick: Any) -> Mapping[str, Any] | None:
    """The validation with the least or largest figure."""
    found = [r for r in run.of_kind("valid") if (value := _number(r, name)) is not None and math.isfinite(value)]
    best: Mapping[str, Any] | None = pick(found, key=lambda record: record[name], default=None)
    return best


def _number(record: Mapping[str, Any] | None, name: str) -> float | None:
    value = None if record is None else record.get(name)
    return float(value) if isinstance(value, int | float) else None
