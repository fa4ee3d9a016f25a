"""Pictures of reports and of `repose plot curves`: the curves, bars and points to draw, and their numbers.

`repose.plots` draws them.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from repose.config.experiment import TASK_SETTINGS
from repose.plots.canvas import Plotted, files_of, page_svg, save, save_numbers
from repose.plots.charts import (
    FEW,
    DrawnSystem,
    Mean,
    Point,
    Series,
    Spot,
    chart_canvas,
    draw_bars,
    draw_curves,
    draw_spots,
    limits_of,
)
from repose.report import figures, tables
from repose.report.collect import read_curves
from repose.report.content import Cell, Column, Picture, Shows, Table, suffixes
from repose.report.differences import unlike
from repose.report.run_set import ReportRun, RunSet
from repose.report.tables_scores import judged_decoding, translation_score
from repose.system.errors import ConfigError, unknown

By: TypeAlias = Literal["epoch", "update"]
_TRAINING_NAME = {"tf_loss": "nll", "tf_loss_keras": "nll_keras"}
"""Maps validation figures to their names in the training records, if different. `nll` is the training loss without
label smoothing, to compare with `tf_loss`."""
_NATS = figures.TARGET_NATS
_CALLED = {
    **dict.fromkeys(("tf_loss", "nll"), ("loss", _NATS)),
    **dict.fromkeys(("tf_loss_keras", "nll_keras"), ("loss, means of batches", _NATS)),
    "loss": ("loss with label smoothing", _NATS),
    "loss_keras": ("loss with label smoothing, means of batches", _NATS),
    "tf_accuracy": ("accuracy", "share of target tokens"),
    "bleu": ("BLEU", "greedy translations"),
    "chrf": ("chrF", "greedy translations"),
    "source_gain": ("what the source is worth", _NATS),
    "tf_bleu": ("BLEU", "given the reference: no translation"),
}
"""Maps recorded figures to the name and unit on their axis."""
_NO_FIGURES = {"kind", "update", "epoch", "wall"}
_FEW_FOR_TRAINING = 4  # most systems for which training figures are drawn, too
_MOST_POINTS, _MOST_ROWS = 150, 60  # points of a curve, rows of a table; more are thinned out
_APART = 1.2  # least ratio of the largest to the smallest cost for drawing scores against costs


def pictures(runs: RunSet) -> tuple[Picture, ...]:
    """Draw whatever the runs have data for: validation loss, source gain and BLEU by epoch; seconds per epoch; BLEU
    against parameters and against seconds per epoch. Each panel shows one corpus. A corpus with more than seven systems
    has its own pictures."""
    kinds = (_loss_curves, _source_curves, _bleu_curves, _times, _against_parameters, _against_time)
    found = [draw(part, name) for part, name in _parts(runs) for draw in kinds]
    return tuple(picture for picture in found if picture is not None)


def _parts(runs: RunSet) -> Iterator[tuple[RunSet, str]]:
    """Yield runs that share pictures, with a suffix for the pictures' ids: first all corpora with few systems, then
    each corpus with many."""
    for task in runs.tasks:
        of_task = runs.of_task(task)
        alone = [corpus for corpus in of_task.corpora if len(of_task.on([corpus]).groups) > FEW]
        others = [corpus for corpus in of_task.corpora if corpus not in alone]
        if len(of_task.on(others).groups) > FEW:  # few systems on each corpus, but not the same ones
            alone, others = list(of_task.corpora), []
        of_corpus = suffixes(of_task.corpora)
        suffix = "".join(f"-{name}" for name in _named_task(task))
        if others:
            yield of_task.on(others), suffix
        for corpus in alone:
            yield of_task.on([corpus]), suffix + of_corpus[corpus]


def _systems(part: RunSet) -> dict[str, DrawnSystem]:
    systems = {}
    for place, group in enumerate(part.groups):
        runs = [run for run in part.runs if run.group == group]
        ahead = any(run.looks_ahead for run in runs)
        why = " (looks ahead)" if ahead else " (failed the audit)" if any(run.failed_checks for run in runs) else ""
        systems[group] = DrawnSystem(label=group + why, number=place, comparable=not why)
    return systems


def _title(part: RunSet, title: str) -> str:
    """Return a title that includes what all panels have in common: task and corpus."""
    where = [name.replace("_", " ") for name in _named_task(part.tasks[0])]
    return ", ".join([title, *where, *[*part.corpora] * (len(part.corpora) == 1)])


def _named_task(task: str) -> list[str]:
    """Return the task as a list, which is empty for translation, the default."""
    return [] if TASK_SETTINGS[task].translates else [task]


def _picture(
    draw: Callable[[], Any], part: RunSet, description: str, numbers: Table, shows: Shows = Shows.COSTS
) -> Picture:
    """Draw a picture with any fonts that this machine has: a name in a script without a font does not stop a report."""
    with chart_canvas("".join([*part.corpora, *part.groups]), any_font=True):
        return Picture(
            id=numbers.id,
            title=numbers.title,
            shows=shows,
            svg=page_svg(draw()),
            description=description,
            numbers=numbers,
        )


# Curves


def _loss_curves(part: RunSet, name: str) -> Picture | None:
    """Draw the validation loss by epoch, and the training loss if there are few systems; None without validations.

    `name`: suffix of the picture's id.
    """
    unit = figures.nats(part.runs)
    given = ", given the reference's earlier tokens" * all(run.translates for run in part.runs)
    given = given or ", given the earlier ones" * (unit == "nats per token")
    caption = f"{unit.capitalize()}{given}. "
    if any(len(tables.tokenizers([r for r in tables.rows_of(part) if r.corpus == c])) > 1 for c in part.corpora):
        caption += "Systems of a corpus have different vocabularies here, whose tokens cannot be compared. "
    few, title = len(part.groups) <= _FEW_FOR_TRAINING, "Validation loss"
    name = f"learning-curves{name}"
    return _curves(part, "tf_loss", unit, name=name, title=title, caption=caption, training=few)


def _source_curves(part: RunSet, name: str) -> Picture | None:
    """Draw by epoch how much the source helps (`source_gain`); None if validations did not measure it."""
    caption = "How many nats per target token the true source saves against another sentence's: near 0 it is ignored. "
    title = "What the source is worth"
    return _curves(part, "source_gain", _NATS, name=f"source-curves{name}", title=title, caption=caption)


def _bleu_curves(part: RunSet, name: str) -> Picture | None:
    """Draw free-running BLEU on the validation set by epoch; None if training did not measure it."""
    caption = "Greedy translations from START of the validation set's first sentences, as training scored them. "
    return _curves(part, "bleu", "BLEU, greedy", name=f"bleu-curves{name}", title="Validation BLEU", caption=caption)


_GUESSED = 15.0
"""Loss in nats per token: more than that of a uniform guess among three million tokens."""


def _most(metric: str) -> float:
    """Return the largest value to draw: larger ones, after divergence, mean nothing and would flatten other curves."""
    return _GUESSED if _is_loss(metric) else math.inf


def _is_loss(metric: str) -> bool:
    return "loss" in metric or "nll" in metric


def _curves(
    part: RunSet, metric: str, y_label: str, *, name: str, title: str, caption: str, training: bool = False
) -> Picture | None:
    """Draw a validation figure by epoch; by update if no run was validated after its first epoch, or if validations are
    within epochs. `name`: the picture's id."""
    several = max((r["epoch"] for run in part.runs for r in run.of_kind("valid")), default=0) > 1
    by = _axis(part) if several else "update"
    systems = _systems(part)
    panels = _panels(part, systems, metric, by, training=training, unvalidated=False)
    if not panels:
        return None
    baseline = systems[part.baseline].label if part.baseline in systems else None
    caption += (
        f"Mean over seeds by {by}, with a band of one standard deviation (n - 1); where fewer runs got that far, n "
        "says how many."
    )
    if len(part.groups) > FEW and len(panels) == 1:
        others = f", {baseline} in black" if baseline else ""
        caption += f" Each panel shows one system in colour and the others in grey{others}."
    if any(limits_of(found, _most(metric)) for found in panels.values()):
        caption += f" Values above {_GUESSED:.0f} nats, more than any guess costs, are left out of the picture."
    title = _title(part, f"{title} by {by}")
    numbers = _curve_numbers(panels, name, title, caption, by, digits=1 if metric == "bleu" else 3)
    return _picture(
        lambda: draw_curves(panels, by, y_label, baseline=baseline, most=_most(metric)),
        part,
        f"{title}, curves. {_ends(panels, by)}",
        numbers,
        Shows.CURVES,
    )


def _panels(
    part: RunSet, systems: Mapping[str, DrawnSystem], metric: str, by: By, *, training: bool, unvalidated: bool
) -> dict[str, list[Series]]:
    """Return each corpus's curves of a validation figure. `unvalidated`: use the training figure of that name if there
    are no validations."""
    panels: dict[str, list[Series]] = {}
    for corpus in part.corpora:
        for group, system in systems.items():
            runs = part.of(group, corpus)
            points = aggregate([points_of(run, "valid", metric, by) for run in runs])
            thin = aggregate([points_of(run, "epoch", _TRAINING_NAME.get(metric, metric), by) for run in runs])
            if not points and unvalidated:
                points, thin = thin, ()
            if points:
                series = Series(system=system, points=_some(points), training=_some(thin) if training else ())
                panels.setdefault(corpus, []).append(series)
    return panels


def _axis(runs: RunSet) -> By:
    """Return what to draw validations by: updates if they are within epochs (seeds share these), else epochs."""
    return "update" if any(map(figures.validated_within, runs.runs)) else "epoch"


def points_of(run: ReportRun, kind: str, metric: str, by: By) -> dict[float, float]:
    """Return a figure's finite values by epoch (a fraction within one) or update; after divergence there are none."""
    records = figures.by_epoch(run, kind) if by == "epoch" else [(r["update"], r) for r in run.of_kind(kind)]
    found = {x: record.get(metric) for x, record in records}
    return {x: y for x, y in found.items() if isinstance(y, int | float) and math.isfinite(y)}


def aggregate(runs: Sequence[Mapping[float, float]]) -> tuple[Point, ...]:
    """Return mean and deviation at each place over the runs that got so far, each as `points_of` returns it."""
    points = []
    for x in sorted({x for run in runs for x in run}):
        found = tables.spread([run[x] for run in runs if x in run])
        assert found is not None
        points.append(Point(x, found.mean, found.deviation, found.n))
    return tuple(points)


def _some(points: tuple[Point, ...]) -> tuple[Point, ...]:
    """Thin out many points, as more cannot be seen: keep every n-th and the last."""
    return (*points[: -1 : math.ceil(len(points) / _MOST_POINTS)], points[-1]) if points else ()


def _ends(panels: Mapping[str, Sequence[Series]], by: By) -> str:
    """Say where the curves end."""
    sentences = []
    for corpus, found in panels.items():
        ends = [f"{s.system.label} {s.end.mean:.2f} at {by} {_place(s.end.x)}" for s in found]
        sentences.append(f"Last values on {corpus}: {', '.join(ends)}.")
    return " ".join(sentences)


def _curve_numbers(
    panels: Mapping[str, Sequence[Series]], name: str, title: str, caption: str, by: By, *, digits: int
) -> Table:
    """Return a table with a row for each place and a column for each system; a long training has every n-th row."""
    several = len(panels) > 1
    systems = list(dict.fromkeys(series.system for found in panels.values() for series in found))
    rows = []
    for corpus, found in panels.items():
        places = sorted({point.x for series in found for point in series.points})
        step = math.ceil(len(places) / _MOST_ROWS)
        at = {(s.system, point.x): point for s in found for point in s.points}
        most = {s.system: max(point.n for point in s.points) for s in found}
        for x in [*places[:-1:step], places[-1]]:
            cells = (_point_cell(at.get((system, x)), most.get(system, 0), digits) for system in systems)
            rows.append([*[Cell(corpus)] * several, Cell(_place(x), x), *cells])
    columns = [*[Column("corpus", numeric=False)] * several, Column(by), *(Column(system.label) for system in systems)]
    return Table(id=name, title=title, columns=columns, rows=rows, caption=caption)


def _place(x: float) -> str:
    """Format an epoch, which may be a fraction, or an update."""
    return tables.number(x, 0 if x == int(x) else 2)


def _point_cell(point: Point | None, most: int, digits: int) -> Cell:
    found = None if point is None else tables.Spread(point.mean, point.deviation, point.n)
    return tables.spread_cell(found, digits, expected=most)


# Costs


def _mean(row: tables.Row, system: DrawnSystem, figure: tables.Figure) -> Mean | None:
    found, values = tables.over_seeds(row.runs, figure), [figure.of(run) for run in row.runs]
    if found is None:
        return None
    return Mean(
        system=system,
        mean=found.mean,
        deviation=found.deviation,
        values=tuple(value for value in values if value is not None),
        text=tables.number(found.mean, figure.digits) if figure.exact else tables.shown(found, figure.digits),
    )


def _times(part: RunSet, name: str) -> Picture | None:
    """Draw bars of seconds per epoch; None if no times were recorded."""
    figure = tables.Figure("time", figures.seconds_per_epoch, unit="seconds per epoch", digits=1, cost=True)
    systems, rows = _systems(part), tables.rows_of(part)
    panels: dict[str, list[Mean]] = {}
    for row in rows:
        if bar := _mean(row, systems[row.group], figure):
            panels.setdefault(row.corpus, []).append(bar)
    if not panels:
        return None
    title = _title(part, "Seconds per epoch")
    bars = "; ".join(
        f"{corpus}: " + ", ".join(f"{b.system.label} {b.text}" for b in found) for corpus, found in panels.items()
    )
    numbers = tables.figure_table(rows, [figure], f"time{name}", like="time", title=title)
    return _picture(lambda: draw_bars(panels, "seconds per epoch"), part, f"{title}, bars. {bars}.", numbers)


def _against_parameters(part: RunSet, name: str) -> Picture | None:
    """Draw test BLEU against parameters; None if there is no BLEU, or if all systems have about as many parameters."""
    cost = tables.Figure("parameters", figures.parameters, digits=0, exact=True)
    return _against(part, f"bleu-and-parameters{name}", cost, "parameters", millions=True)


def _against_time(part: RunSet, name: str) -> Picture | None:
    """Draw test BLEU against seconds per epoch; None if there is no BLEU, or if all systems take about as long."""
    cost = tables.Figure("time", figures.seconds_per_epoch, unit="seconds per epoch", digits=1)
    return _against(part, f"bleu-and-time{name}", cost, "seconds per epoch", millions=False)


def _against(part: RunSet, name: str, cost: tables.Figure, x_label: str, *, millions: bool) -> Picture | None:
    """Draw test BLEU against a cost, with a point for each system."""
    score, width = _score(part)
    systems, rows = _systems(part), tables.rows_of(part)
    unlike = {c for c in part.corpora if len(score.kinds([row for row in rows if row.corpus == c])) > 1}
    rows = [row for row in rows if row.corpus not in unlike]  # scores of two kinds cannot share an axis
    panels: dict[str, list[Spot]] = {}
    can_translate = [row for row in rows if not any(run.looks_ahead for run in row.runs)]
    for row in can_translate:
        x, y = _mean(row, systems[row.group], cost), _mean(row, systems[row.group], score)
        if x is not None and y is not None:
            panels.setdefault(row.corpus, []).append(Spot(system=systems[row.group], score=y, cost=x))
    costs = [[spot.cost.mean for spot in found] for found in panels.values()]
    if not any(max(found) > _APART * min(found) for found in costs):
        return None  # points at the same cost say nothing about it
    title = _title(part, f"BLEU against {x_label}")
    points = "; ".join(
        f"{corpus}: " + ", ".join(f"{s.system.label} {s.score.text} at {s.cost.text}" for s in found)
        for corpus, found in panels.items()
    )
    sets = " or ".join(sorted({run.split for row in rows for run in row.runs}))
    more = " Systems that look ahead cannot translate, and are left out." * (len(can_translate) < len(rows))
    words: dict[str, Any] = {"title": title, "width": width, "sets": sets, "more": more}
    return _picture(
        lambda: draw_spots(panels, x_label + ", millions" * millions, f"BLEU, {width}", millions=millions),
        part,
        f"{title}, a point for each system. {points}.",
        tables.figure_table(can_translate, [cost, score], name, like="bleu-against-cost", **words),
        Shows.SCORES_AND_SIZES if millions else Shows.COSTS,
    )


def _score(part: RunSet) -> tuple[tables.Figure, str]:
    """Return BLEU with a beam, or with greedy search if not all runs have a beam, and the decoding's name."""
    decoding, name = judged_decoding([run for run in part.runs if run.done])
    return translation_score(f"BLEU {name}", decoding, "bleu"), name


# repose plot curves


def plot_curves(
    folders: Sequence[Path],
    out: Path,
    *,
    metric: str = "tf_loss",
    by: str | None = None,
    training: bool = True,
    font: Path | None = None,
) -> Plotted:
    """Plot learning curves of run directories to files; runs that differ only in their seed are one curve.

    Raises ConfigError for an unknown metric, and suggests the closest one that a run has; CheckpointError for a folder
    that is not a run.
    """
    files_of(out)
    if by is not None and by not in get_args(By):
        raise ConfigError(unknown("axis", by, get_args(By)))
    runs = read_curves(folders)
    axis: By = _axis(runs) if by is None else "update" if by == "update" else "epoch"
    systems = {group: _with_seeds(runs, group, system, metric) for group, system in _systems(runs).items()}
    is_figure = metric not in _NO_FIGURES
    panels = _panels(runs, systems, metric, axis, training=training, unvalidated=True) if is_figure else {}
    if not panels:
        if metric in ("bleu", "chrf"):
            raise ConfigError(
                f"these runs recorded no {metric}: train with --set training.bleu_every_epochs=1 to record it"
            )
        records = [r for run in runs.runs for kind in ("valid", "epoch") for r in run.of_kind(kind)]
        raise ConfigError(unknown("metric", metric, sorted({name for r in records for name in r} - _NO_FIGURES)))
    with chart_canvas("".join([*runs.corpora, *runs.groups]), font):
        figure = draw_curves(panels, axis, _label(metric, runs), most=_most(metric))
        files = save(figure, out)
    content, rows = [], []
    for corpus, found in panels.items():
        for series in found:
            of = runs.of(runs.groups[series.system.number], corpus)
            points = {"validation": series.points, "training": series.training}
            numbers = {name: [dataclasses.asdict(point) for point in each] for name, each in points.items()}
            content.append(
                {"label": series.system.label, "corpus": corpus, "runs": [str(run.folder) for run in of]} | numbers
            )
            rows.append([series.system.label, *[corpus] * (len(panels) > 1), *_last_and_best(of, metric, axis)])
    header = ["model", *["corpus"] * (len(panels) > 1), "runs", f"last {axis}", f"{metric} there", "best"]
    files.append(save_numbers({"metric": metric, "by": axis, "curves": content}, out))
    return Plotted(files, header, rows, [*runs.problems, *unlike(runs.runs)])


def _label(metric: str, runs: RunSet) -> str:
    """Return the axis label of a figure."""
    name, unit = _CALLED.get(metric, (metric.replace("_", " "), ""))
    unit = figures.nats(runs.runs) if unit == _NATS else unit
    return f"{name}, {unit}" if unit else name


def _with_seeds(runs: RunSet, group: str, system: DrawnSystem, metric: str) -> DrawnSystem:
    """Return the system with its number of runs in the label, of those that have the metric, if that is the same on
    each corpus; they are called seeds only if no two have the same one."""
    of = [runs.of(group, corpus) for corpus in runs.corpora]
    found = [
        [run.seed for run, points in zip(each, _drawn(each, metric, "update"), strict=True) if points]
        for each in of
        if each
    ]
    numbers = {len(seeds) for seeds in found if seeds}
    number = max(numbers) if len(numbers) == 1 else 1
    what = "seeds" if all(len(set(seeds)) == len(seeds) for seeds in found) else "runs"
    return dataclasses.replace(system, label=system.label + f" ({number} {what})" * (number > 1))


def _drawn(runs: Sequence[ReportRun], metric: str, by: By) -> list[dict[float, float]]:
    """Return each run's figures that a curve is the mean of: those of validations, if there are any."""
    points = [points_of(run, "valid", metric, by) for run in runs]
    if any(points):
        return points
    return [points_of(run, "epoch", _TRAINING_NAME.get(metric, metric), by) for run in runs]


def _last_and_best(runs: Sequence[ReportRun], metric: str, by: By) -> list[str]:
    """Return the number of runs, where they end, and their last and best figures (of validations if there are any)."""
    points = [run for run in _drawn(runs, metric, by) if run]
    is_loss, is_score = _is_loss(metric), any(x in metric for x in ("accuracy", "bleu", "chrf"))
    best = [(min if is_loss else max)(run.values()) for run in points] if is_loss or is_score else []
    ends = sorted({max(run) for run in points})
    last_x = _place(ends[0]) if len(ends) == 1 else f"{_place(ends[0])}–{_place(ends[-1])}"
    last = [run[max(run)] for run in points] if len(ends) == 1 else []  # no mean over runs that end at different places
    digits = 0 if max(last + best, default=0.0) >= 1000 else 1 if "bleu" in metric or "chrf" in metric else 3
    shown = [tables.NONE if (found := tables.spread(x)) is None else tables.shown(found, digits) for x in (last, best)]
    return [f"{len(points)}", last_x, *shown]
