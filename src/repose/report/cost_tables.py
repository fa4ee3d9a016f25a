"""What systems cost: parameters, operations and time; and the list of all runs."""

from repose.report import figures
from repose.report.content import Column, Table
from repose.report.epochs import unequal_epochs
from repose.report.figures import score
from repose.report.runs import ReportRun, RunSet
from repose.report.score_tables import beam_name
from repose.report.summaries import Figure, Notes, Of, Row, figure_table, rows_of, text_cell, value_cell

_COMPLETED = " Epochs are completed ones: 0 where the updates ended within the first."


def costs_table(runs: RunSet) -> Table:
    """Parameters, operations, seconds, epochs and updates."""
    rows = rows_of(runs)
    unequal = unequal_epochs(runs)
    done = [run for row in rows for run in row.runs]

    def marks(row: Row, figure: Figure, notes: Notes) -> list[str]:
        if figure.name in ("epochs", "updates", "all operations") and row.corpus in unequal:
            return [notes.key("Epochs are unequal on this corpus: see the comparison at equal epochs.")]
        return []

    shown = [
        Figure(name="parameters", cost=True, digits=0, exact=True, of=figures.parameters),
        Figure(
            name="operations",
            unit="MFLOP per target token",
            digits=1,
            exact=True,
            cost=True,
            of=_in(1e6, figures.flops_per_token),
        ),
        Figure(
            name="all operations", cost=True, unit="TFLOP", digits=1, exact=True, of=_in(1e12, figures.training_flops)
        ),
        Figure(name="time", cost=True, unit="seconds per epoch", digits=1, of=figures.seconds_per_epoch),
        Figure(name="training and validation", cost=True, unit="seconds", digits=0, of=figures.total_seconds),
        Figure(name="epochs", cost=True, digits=0, exact=True, of=lambda run: float(figures.epochs(run))),
        Figure(name="updates", cost=True, digits=0, exact=True, of=lambda run: float(figures.updates(run))),
    ]
    return figure_table(
        rows,
        shown,
        name="costs",
        title="Costs",
        caption="Operations: floating-point operations of one training step, forward and backward, counted by torch on "
        "sentences of the corpus's mean length; all operations: times the target tokens of the whole training. Seconds "
        "per epoch: training alone, median over the epochs of a run, then mean ± standard deviation over runs; by the "
        "clock, so that whatever else ran on the machine counts." + _COMPLETED * (not all(map(figures.epochs, done))),
        marks=marks,
    )


def _in(unit: float, of: Of) -> Of:
    return lambda run: figures.times(1 / unit, of(run))


def _state(run: ReportRun) -> str:
    """How far it is: completed epochs, or updates where its first epoch was never completed."""
    state = "trained, not scored" if run.trained and not run.done else run.status
    epochs = figures.epochs(run)
    return f"{state} ({epochs} epochs)" if epochs else f"{state} ({figures.updates(run):,} updates, in epoch 1)"


def runs_table(runs: RunSet) -> Table:
    """Every run by itself: what it is, and what its id is."""
    scored: dict[str, Of] = {
        "BLEU greedy": lambda run: score(run, "greedy", "bleu"),
        f"BLEU {beam_name(runs.runs)}": lambda run: score(run, None, "bleu"),
    }
    shown: dict[str, Of] = scored if "translation" in runs.tasks else {}
    notes = Notes()
    lines = []
    for run in runs.runs:
        keys = [] if not run.failed_checks else [notes.key(f"Failed the audit: {', '.join(run.failed_checks)}.")]
        lines.append(
            (
                text_cell(run.name, notes=keys),
                text_cell(run.group),
                text_cell(run.corpus),
                value_cell(run.seed, 0),
                text_cell(run.run_id),
                text_cell(_state(run)),
                value_cell(figures.valid_loss(run), 3),
                *(value_cell(of(run), 2) for of in shown.values()),
                text_cell(run.config.versions.get("repose", "")),
            )
        )
    heads = ["run", "system", "corpus", "seed", "run id", "state", "valid. loss", *shown, "repose"]
    return Table(
        id="runs",
        title="Runs",
        columns=tuple(Column(name=name, numeric=name in ("seed", "valid. loss", *shown)) for name in heads),
        rows=tuple(lines),
        caption="A run's id is a digest of all that can move its numbers: data, settings, seed.",
        notes=dict(notes.sentences),
    )
