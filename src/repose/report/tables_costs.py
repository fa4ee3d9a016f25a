"""Tables of what systems cost (parameters, operations, time), of how far they were trained, and of all runs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from repose.report import figures, tables
from repose.report.content import Cell, Column, Table
from repose.report.figures import number_of
from repose.report.run_set import ReportRun, RunSet
from repose.report.tables_scores import shown_decodings
from repose.system.terminal import counted

_COMPLETED = " Only completed epochs count: 0 where training ended within the first."
_UNEQUAL = "The systems have different numbers of epochs on this corpus: see the comparison at equal epochs."
_NOT_A_SCORE = (
    " Validation BLEU is of greedy translations of the validation set's first sentences, as training scored them."
)


def costs_table(runs: RunSet) -> Table:
    """Return the table of parameters, operations, seconds, epochs and updates."""
    rows = tables.rows_of(runs)
    unequal = unequal_epochs(runs)
    done = [run for row in rows for run in row.runs]
    operations = tables.count("all operations", _in(1e12, figures.training_flops), "TFLOP", digits=1)
    epochs = tables.count("epochs", lambda run: float(figures.epochs(run)))
    updates = tables.count("updates", lambda run: float(run.records.updates))
    shown = [
        tables.count("parameters", figures.parameters),
        tables.count("operations", _in(1e6, figures.flops_per_token), "MFLOP per target token", digits=1),
        operations,
        tables.Figure("time", figures.seconds_per_epoch, cost=True, unit="seconds per epoch", digits=1),
        tables.Figure("training and validation", figures.total_seconds, cost=True, unit="seconds", digits=0),
        epochs,
        updates,
    ]

    def marks(row: tables.Row, figure: tables.Figure) -> list[str]:
        return [_UNEQUAL] * (figure in (operations, epochs, updates) and row.corpus in unequal)

    more = _COMPLETED * (not all(map(figures.epochs, done)))
    said = tables.caption("costs-operations") if operations.kinds(rows) else ""
    return tables.figure_table(rows, shown, "costs", marks=marks, operations=said, more=more)


def _in(unit: float, of: tables.Of) -> tables.Of:
    return lambda run: figures.times(1 / unit, of(run))


def runs_table(runs: RunSet) -> Table:
    """Return the table of all single runs, with their ids and main figures."""
    decodings: dict[str, str | None] = {}
    if runs.translations.runs:
        decodings = {f"BLEU {name}": decoding for name, decoding in shown_decodings(runs.runs).items()}
    lines = []
    for run in runs.runs:
        failed = [f"Failed the audit: {', '.join(run.failed_checks)}."] if run.failed_checks else []
        numbers = [
            tables.value_cell(figures.valid_loss(run), 3),
            *(tables.value_cell(figures.score(run, decoding, "bleu"), 2) for decoding in decodings.values()),
        ]
        version = Cell(run.config.versions.get("repose", ""))
        what = [Cell(run.name, notes=failed), Cell(run.group), Cell(run.corpus), tables.value_cell(run.seed, 0)]
        lines.append([*what, Cell(run.run_id), Cell(_state(run)), *numbers, version])
    heads = ["run", "system", "corpus", "seed", "run id", "state", "valid. loss", *decodings, "repose"]
    columns = [Column(name, numeric=name in ("seed", "valid. loss", *decodings)) for name in heads]
    return tables.captioned("runs", columns, lines)


def _state(run: ReportRun) -> str:
    """Say how far a run is: its completed epochs, or its updates if it completed no epoch."""
    state = run.status
    if run.trained and not run.done:
        state = "trained, being scored" if run.running else "trained, not scored"
    epochs = figures.epochs(run)
    return (
        f"{state} ({counted(epochs, 'epoch')})" if epochs else f"{state} ({run.records.updates:,} updates, in epoch 1)"
    )


def best_and_last_table(runs: RunSet) -> Table | None:
    """Return the table of validation figures after each run's last epoch and at its best; None without validations."""
    rows = tables.rows_of(runs)
    if not any(run.of_kind("valid") for row in rows for run in row.runs):
        return None

    def last(name: str) -> tables.Of:
        return lambda run: number_of(_last(run), name)

    kind, nats = tables.validated_on, figures.nats(run for row in rows for run in row.runs)
    by = "update" if any(figures.validated_within(run) for row in rows for run in row.runs) else "epoch"
    shown = [
        tables.count(f"last {by}", lambda run: _place(run, _last(run), by)),
        tables.loss("loss, last", last("tf_loss"), nats, kind),
        tables.Figure(f"best {by}", lambda run: _place(run, _best(run, "tf_loss", min), by), digits=0, exact=True),
        tables.loss("loss, best", lambda run: number_of(_best(run, "tf_loss", min), "tf_loss"), nats, kind),
        tables.accuracy("accuracy, last", last("tf_accuracy"), kind),
        tables.quality("BLEU, last", last("bleu"), kind),
        tables.quality("BLEU, best", lambda run: number_of(_best(run, "bleu", max), "bleu"), kind),
    ]
    return tables.figure_table(rows, shown, "best-and-last", by=by, more=_bleu_caption(rows))


def equal_epochs_table(runs: RunSet) -> Table | None:
    """Return the table of validation figures after the largest number of epochs that all runs of a corpus completed. A
    corpus is left out if one of its runs completed no epoch; None if no corpus remains."""
    rows = tables.rows_of(runs)
    ends = {
        corpus: {_validated_epochs(run) for row in rows if row.corpus == corpus for run in row.runs}
        for corpus in runs.corpora
    }
    common = {corpus: min(found) for corpus, found in ends.items() if found and min(found) > 0}
    rows = [row for row in rows if row.corpus in common]
    if not rows:
        return None

    def at(kind: str, name: str) -> tables.Of:
        return lambda run: number_of(_at(run, kind, common[run.corpus]), name)

    def seconds(run: ReportRun) -> float | None:
        found = figures.epoch_seconds(run)
        return sum(found[: common[run.corpus]]) if found else None

    more = _bleu_caption(rows)
    if any(len(ends[corpus]) > 1 for corpus in common):
        more += (
            " The numbers of epochs differ: where the schedule falls, a run that went on was still at a higher "
            "learning rate there than one that ended."
        )
    kind, nats = tables.validated_on, figures.nats(run for row in rows for run in row.runs)
    shown = [
        tables.count("epochs", lambda run: float(common[run.corpus])),
        tables.Figure("train loss", at("epoch", "nll"), unit=nats, digits=3),
        tables.loss("valid. loss", at("valid", "tf_loss"), nats, kind),
        tables.accuracy("accuracy", at("valid", "tf_accuracy"), kind),
        tables.quality("BLEU", at("valid", "bleu"), kind),
        tables.Figure("time so far", seconds, cost=True, unit="seconds of training", digits=0),
    ]
    return tables.figure_table(rows, shown, "equal-epochs", more=more)


def unequal_epochs(runs: RunSet) -> tuple[str, ...]:
    """Return the corpora whose finished runs completed different numbers of epochs."""
    rows = tables.rows_of(runs)
    return tuple(
        corpus
        for corpus in runs.corpora
        if len({figures.epochs(run) for row in rows if row.corpus == corpus for run in row.runs}) > 1
    )


def _bleu_caption(rows: Sequence[tables.Row]) -> str:
    scored = any("bleu" in record for row in rows for run in row.runs for record in run.of_kind("valid"))
    return _NOT_A_SCORE if scored else ""


def _validated_epochs(run: ReportRun) -> int:
    """Return the number of epochs, counted from the first without a gap, at whose end a run was validated."""
    found = {place for place, _ in figures.by_epoch(run, "valid")}
    return next(epoch for epoch in range(len(found) + 1) if epoch + 1 not in found)


def _at(run: ReportRun, kind: str, epoch: int) -> Mapping[str, Any] | None:
    """Return a run's last record of a kind at the end of an epoch."""
    return next((record for place, record in reversed(figures.by_epoch(run, kind)) if place == epoch), None)


def _place(run: ReportRun, validation: Mapping[str, Any] | None, by: str) -> float | None:
    """Return the update or epoch of one of a run's validations."""
    if by == "update":
        return number_of(validation, by)
    return next((place for place, record in figures.by_epoch(run, "valid") if record is validation), None)


def _last(run: ReportRun) -> Mapping[str, Any] | None:
    """Return the last validation."""
    return next(reversed(run.of_kind("valid")), None)


def _best(run: ReportRun, name: str, pick: Any) -> Mapping[str, Any] | None:
    """Return the validation with the best figure; `pick` is min or max."""
    found = [r for r in run.of_kind("valid") if (value := number_of(r, name)) is not None and math.isfinite(value)]
    best: Mapping[str, Any] | None = pick(found, key=lambda record: record[name], default=None)
    return best
