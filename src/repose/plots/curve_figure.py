"""Learning curves as a picture."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from repose.plots.canvas import GREY, MARKERS, PALETTE
from repose.plots.learning_curves import UNITS, By, Curve, Point

_DASHES: tuple[Any, ...] = ("-", (0, (4, 1)), (0, (1, 1)))
FEW = 40
"""Points up to which each is marked."""


def draw_curves(curves: Sequence[Curve], metric: str, by: By, *, training: bool = True) -> Figure:
    """Validation figures as lines, training figures as thin dashed ones, with a band of one standard deviation over
    seeds; where a run of several stops, the number of those that go on is written."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    handles = []
    for index, curve in enumerate(curves):
        colour, marker = PALETTE[index % len(PALETTE)], MARKERS[index % len(MARKERS)]
        dashes = _DASHES[index // len(PALETTE) % len(_DASHES)]
        if training and curve.training:
            draw_line(axes, curve.training, color=colour, linestyle=(0, (3, 2)), linewidth=0.8)
        if curve.validation:
            mark = {"marker": marker, "markersize": 3.5} if len(curve.validation) <= FEW else {}
            draw_line(axes, curve.validation, color=colour, linestyle=dashes, **mark)
            mark_numbers(axes, curve.validation, colour)
        seeds = f" ({len(curve.runs)} seeds)" if len(curve.runs) > 1 else ""
        end = (curve.validation or curve.training)[-1].mean
        handles.append(
            (end, Line2D([], [], color=colour, linestyle=dashes, marker=marker, markersize=3.5), curve.label + seeds)
        )
    handles.sort(key=lambda handle: -handle[0])  # in the order of the lines' ends
    axes.set(xlabel=by, ylabel=f"{metric}, {UNITS[metric]}" if metric in UNITS else metric)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)
    lines, labels = [line for _, line, _ in handles], [label for _, _, label in handles]
    if training and any(c.training for c in curves) and any(c.validation for c in curves):
        lines += [Line2D([], [], color=GREY), Line2D([], [], color=GREY, linestyle=(0, (3, 2)), linewidth=0.8)]
        labels += ["validation", "training, dropout on"]
    figure.legend(lines, labels, loc="outside right upper")
    return figure


def draw_line(axes: Axes, points: Sequence[Point], **style: Any) -> None:
    """A mean, and a band of one standard deviation where it is one of several runs."""
    x, mean = [p.x for p in points], [p.mean for p in points]
    axes.plot(x, mean, **style)
    if any(p.n > 1 for p in points):
        low, high = ([p.mean + sign * p.deviation for p in points] for sign in (-1, 1))
        axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0)


def mark_numbers(axes: Axes, points: Sequence[Point], colour: str) -> None:
    """How many runs a mean is of, from where it is of fewer than before."""
    for before, point in pairwise(points):
        if point.n != before.n:
            axes.annotate(
                f"n = {point.n}",
                (point.x, point.mean),
                xytext=(0, 7),
                textcoords="offset points",
                ha="center",
                fontsize=6.5,
                color=colour,
            )
