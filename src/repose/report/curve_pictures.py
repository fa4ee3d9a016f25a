"""Learning curves of a report, with the numbers that are drawn."""

import math
from collections.abc import Mapping, Sequence

from repose.plots.learning_curves import TRAINING_NAME, By, Point, Run, aggregate
from repose.report.content import Cell, Column, Picture, Table
from repose.report.drawing import FEW, both
from repose.report.panels import Series, draw_curves, draw_each
from repose.report.picture_parts import systems_of, title_of
from repose.report.runs import ReportRun, RunSet
from repose.report.summaries import Spread, rows_of, spread_cell, text_cell, tokenizers, value_cell

_FEW_FOR_TRAINING = 4  # systems whose training figures can be drawn, too
_MOST_POINTS, _MOST_ROWS = 150, 60  # epochs of a curve, and of a table of numbers: every so many of more


def loss_curves(part: RunSet, name: str) -> Picture | None:
    """Validation loss by epoch, and that of training where there are few systems; None where nothing was validated.

    `name`: what is added to the picture's id.
    """
    token = "target token" if part.tasks == ("translation",) else "token"
    caption = f"Nats per {token}, given the reference's earlier tokens. "
    if any(len(tokenizers([row for row in rows_of(part) if row.corpus == corpus])) > 1 for corpus in part.corpora):
        caption += "Systems of a corpus have different vocabularies here, whose tokens cannot be compared. "
    few = len(part.groups) <= _FEW_FOR_TRAINING
    return _curves(
        part, "tf_loss", f"nats per {token}", f"learning-curves{name}", "Validation loss", caption, training=few
    )


def bleu_curves(part: RunSet, name: str) -> Picture | None:
    """Free-running BLEU of the validation set by epoch; None where training did not score it."""
    caption = "Greedy translations from START of the validation set's first sentences, as training scored them. "
    return _curves(part, "bleu", "BLEU, greedy", f"bleu-curves{name}", "Validation BLEU", caption, training=False)


def _curves(
    part: RunSet, metric: str, y_label: str, name: str, title: str, caption: str, *, training: bool
) -> Picture | None:
    """A figure of the validations by epoch, or by update where no run had two epochs."""
    ends = [record["epoch"] for run in part.runs for record in run.of_kind("valid")]
    by: By = "epoch" if max(ends, default=0) > 1 else "update"
    panels: dict[str, list[Series]] = {}
    for corpus in part.corpora:
        for group, system in systems_of(part).items():
            runs = part.of(group, corpus)
            if points := _points(runs, "valid", metric, by):
                thin = _points(runs, "epoch", TRAINING_NAME.get(metric, metric), by) if training else ()
                panels.setdefault(corpus, []).append(Series(system=system, points=_some(points), training=_some(thin)))
    if not panels:
        return None
    caption += f"Mean over seeds by {by}, with a band of one standard deviation; n where fewer runs got so far."
    each = len(part.groups) > FEW and len(panels) == 1
    if each:
        others = f", {part.baseline} in black" if part.baseline else ""
        caption += f" Each panel shows one system in colour and the others in grey{others}."
    title = title_of(part, f"{title} by {by}")
    labels = "".join(series.system.label for found in panels.values() for series in found) + "".join(panels)
    light, dark = both(
        lambda theme: (
            draw_each(next(iter(panels.values())), theme, by, y_label, part.baseline)
            if each
            else draw_curves(panels, theme, by, y_label)
        ),
        labels,
    )
    return Picture(
        id=name,
        title=title,
        light=light,
        dark=dark,
        description=f"{title}, curves. {_ends(panels, by)}",
        numbers=_curve_numbers(panels, name, title, caption, by, digits=1 if metric == "bleu" else 3),
    )


def _points(runs: Sequence[ReportRun], kind: str, metric: str, by: By) -> tuple[Point, ...]:
    """Mean and deviation over the runs; a run that diverged has no figure from there on."""
    found = [Run(run.folder, {}, run.records.training).points(kind, metric, by) for run in runs]
    return aggregate([{x: y for x, y in points.items() if math.isfinite(y)} for points in found])


def _some(points: tuple[Point, ...]) -> tuple[Point, ...]:
    """Of many points every so many and the last: no more can be seen."""
    return (*points[: -1 : math.ceil(len(points) / _MOST_POINTS)], points[-1]) if points else ()


def _ends(panels: Mapping[str, Sequence[Series]], by: By) -> str:
    """Where the curves end, in words."""
    sentences = []
    for corpus, found in panels.items():
        ends = [f"{s.system.label} {s.points[-1].mean:.2f} at {by} {s.points[-1].x}" for s in found]
        sentences.append(f"Last values on {corpus}: {', '.join(ends)}.")
    return " ".join(sentences)


def _curve_numbers(
    panels: Mapping[str, Sequence[Series]], name: str, title: str, caption: str, by: By, *, digits: int
) -> Table:
    """A row for each place, a column for each system; every so many rows of a long training."""
    several = len(panels) > 1
    systems = list(dict.fromkeys(series.system for found in panels.values() for series in found))
    rows = []
    for corpus, found in panels.items():
        places = sorted({point.x for series in found for point in series.points})
        step = math.ceil(len(places) / _MOST_ROWS)
        at = {(s.system.name, point.x): point for s in found for point in s.points}
        most = {s.system.name: max(point.n for point in s.points) for s in found}
        for x in [*places[:-1:step], places[-1]]:
            cells = [_point_cell(at.get((s.name, x)), most.get(s.name, 0), digits) for s in systems]
            rows.append((*([text_cell(corpus)] if several else []), value_cell(x, 0), *cells))
    heads = [Column(name="corpus", numeric=False)] * several + [Column(name=by)]
    return Table(
        id=name,
        title=title,
        columns=(*heads, *(Column(name=system.label) for system in systems)),
        rows=tuple(rows),
        caption=caption,
    )


def _point_cell(point: Point | None, most: int, digits: int) -> Cell:
    deviation = point.deviation if point is not None and point.n > 1 else None
    found = None if point is None else Spread(mean=point.mean, deviation=deviation, n=point.n)
    return spread_cell(found, digits, expected=most)
