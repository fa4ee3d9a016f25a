"""What systems cost, as pictures: seconds per epoch, and BLEU against parameters and seconds."""

from repose.report import figures
from repose.report.content import Picture
from repose.report.drawing import System, both
from repose.report.panels import Mean, Spot, draw_bars, draw_spots
from repose.report.picture_parts import systems_of, title_of
from repose.report.runs import RunSet
from repose.report.score_tables import beam_name
from repose.report.summaries import Figure, Of, Row, figure_table, number, over_seeds, rows_of, shown

_APART = 1.2  # the dearest system against the cheapest, from which on scores are drawn against costs


def _mean(row: Row, system: System, figure: Figure) -> Mean | None:
    """A figure of a system on a corpus as it is drawn."""
    found, values = over_seeds(row.runs, figure), [figure.of(run) for run in row.runs]
    if found is None:
        return None
    return Mean(
        system=system,
        mean=found.mean,
        deviation=found.deviation or 0.0,
        values=tuple(value for value in values if value is not None),
        text=number(found.mean, figure.digits) if figure.exact else shown(found, figure.digits),
    )


def times(part: RunSet, name: str) -> Picture | None:
    """Bars of seconds per epoch; None where no clock was read. `name`: what is added to the picture's id."""
    figure = Figure(name="time", unit="seconds per epoch", digits=1, of=figures.seconds_per_epoch)
    systems, rows = systems_of(part), rows_of(part)
    panels: dict[str, list[Mean]] = {}
    for row in rows:
        if bar := _mean(row, systems[row.group], figure):
            panels.setdefault(row.corpus, []).append(bar)
    if not panels:
        return None
    name, title = f"time{name}", title_of(part, "Seconds per epoch")
    caption = (
        "Training alone, by the clock: the median over the epochs of a run, then mean and standard deviation over "
        "runs, each of which is a point. Only runs of one machine, under one load, can be compared."
    )
    light, dark = both(
        lambda theme: draw_bars(panels, theme, "seconds per epoch"),
        "".join([*panels, *(s.label for s in systems.values())]),
    )
    bars = "; ".join(
        f"{corpus}: " + ", ".join(f"{b.system.label} {b.text}" for b in found) for corpus, found in panels.items()
    )
    return Picture(
        id=name,
        title=title,
        light=light,
        dark=dark,
        description=f"{title}, bars. {bars}.",
        numbers=figure_table(rows, [figure], name=name, title=title, caption=caption),
    )


def against_parameters(part: RunSet, name: str) -> Picture | None:
    """BLEU of the test set against parameters; None where it has none, or all have about the same."""
    cost = Figure(name="parameters", digits=0, exact=True, of=figures.parameters)
    return _against(part, f"bleu-and-parameters{name}", cost, "parameters, millions")


def against_time(part: RunSet, name: str) -> Picture | None:
    """BLEU of the test set against seconds per epoch; None as above."""
    cost = Figure(name="time", unit="seconds per epoch", digits=1, of=figures.seconds_per_epoch)
    return _against(part, f"bleu-and-time{name}", cost, "seconds per epoch")


def _against(part: RunSet, name: str, cost: Figure, x_label: str) -> Picture | None:
    """BLEU of the test set against a cost, a point for each system."""
    score, width = _score(part)
    systems, rows = systems_of(part), rows_of(part)
    panels: dict[str, list[Spot]] = {}
    can_translate = [row for row in rows if not systems[row.group].looks_ahead]
    for row in can_translate:
        x, y = _mean(row, systems[row.group], cost), _mean(row, systems[row.group], score)
        if x is not None and y is not None:
            panels.setdefault(row.corpus, []).append(Spot(system=systems[row.group], score=y, cost=x))
    costs = [[spot.cost.mean for spot in found] for found in panels.values()]
    if not any(max(found) > _APART * min(found) for found in costs):
        return None  # points above one another say nothing of the cost
    title = title_of(part, f"BLEU against {x_label.split(',')[0]}")
    light, dark = both(
        lambda theme: draw_spots(panels, theme, x_label, f"BLEU, {width}", millions="millions" in x_label),
        "".join([*panels, *(s.label for s in systems.values())]),
    )
    points = "; ".join(
        f"{corpus}: " + ", ".join(f"{s.system.label} {s.score.text} at {s.cost.text}" for s in found)
        for corpus, found in panels.items()
    )
    splits = sorted({run.split for row in rows for run in row.runs})
    caption = f"Free-running BLEU ({width}), {' or '.join(splits)} set: mean over seeds, with bars of one deviation."
    if len(can_translate) < len(rows):
        caption += " Systems that look ahead cannot translate, and are left out."
    return Picture(
        id=name,
        title=title,
        light=light,
        dark=dark,
        description=f"{title}, a point for each system. {points}.",
        numbers=figure_table(can_translate, [cost, score], name=name, title=title, caption=caption),
    )


def _score(part: RunSet) -> tuple[Figure, str]:
    """The widest beam's BLEU, or greedy where there is no beam."""
    done = [run for run in part.runs if run.done]
    has_beam = any(figures.beam(run) for run in done)
    name = beam_name(done) if has_beam else "greedy"
    of: Of = lambda run: figures.score(run, None if has_beam else "greedy", "bleu")  # noqa: E731
    return Figure(name=f"BLEU {name}", digits=1, of=of), name
