"""The pictures of a report: curves by epoch, bars of times, and scores against what they cost; a panel per corpus."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, nan
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from repose.plots.canvas import place
from repose.plots.curve_figure import FEW as FEW_POINTS
from repose.plots.curve_figure import draw_line, mark_numbers
from repose.plots.learning_curves import Point
from repose.report.drawing import FEW, System, Theme, name_ends, name_points, width_of

_ALONE, _SMALL = (4.0, 2.7), (1.95, 1.45)  # inches: a panel by itself, and one of several
_LEFT, _BETWEEN, _BELOW, _ABOVE, _RIGHT = 0.6, 0.5, 0.32, 0.24, 0.12  # around panels: what stands there, and space
_BAR, _KEY, _LINE = 0.26, 0.19, 0.15  # height of a bar with the space to the next, of a line of the legend, of a title
_LEAST = 2.0  # points of BLEU on an axis: fewer would make much of nothing
_TRAINING = (0, (1, 1.4))


@dataclass(frozen=True, kw_only=True)
class Series:
    """A system's figures on one corpus, by epoch."""

    system: System
    points: tuple[Point, ...]
    training: tuple[Point, ...] = ()
    """The same figure of the training set, drawn thin."""


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A system's figure: mean and standard deviation over its runs, and each run's."""

    system: System
    mean: float
    deviation: float
    values: tuple[float, ...]
    text: str


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A system's score, and what it cost."""

    system: System
    score: Mean
    cost: Mean


def draw_curves(panels: dict[str, list[Series]], theme: Theme, by: str, name: str) -> Figure:
    """Curves with bands of one standard deviation, a panel for each title; names at their ends in a single panel."""
    systems = _systems([series.system for found in panels.values() for series in found])
    alone = len(panels) == 1
    kinds = []
    if any(series.training for found in panels.values() for series in found):
        thin = Line2D([], [], color=theme.dim, linestyle=_TRAINING, linewidth=0.9)
        kinds = [(Line2D([], [], color=theme.dim), "validation"), (thin, "training, dropout on")]
    keys = [] if alone else [(system.handle(theme, line=True), system.label) for system in systems] + kinds
    figure, axes = _panels(list(panels), keys, right=0.2 + _widest(systems) if alone else _RIGHT)
    for panel, found in zip(axes, panels.values(), strict=True):
        for series in found:
            _curve(panel, series, series.system.colour(theme), series.system.marker)
        _scales(panel, theme)
        if alone:
            name_ends(panel, [(s.points[-1].x, s.points[-1].mean, s.system) for s in found], theme)
            if kinds:
                panel.legend(*zip(*kinds, strict=True), loc="upper right")
    _name_axes(axes, by, name)
    return figure


def draw_each(found: list[Series], theme: Theme, by: str, name: str, baseline: str | None) -> Figure:
    """The curves of one corpus where there are too many for one panel: one for each system, all others behind it in
    grey, and the baseline in black."""
    figure, axes = _panels([series.system.label for series in found], [])
    for panel, series in zip(axes, found, strict=True):
        _behind(panel, [other for other in found if other.system.name != baseline], theme.behind)
        _behind(panel, [other for other in found if other.system.name == baseline], theme.ink)
        _curve(panel, series, theme.palette[1], "o")
        _scales(panel, theme)
    low, high = min(a.get_ylim()[0] for a in axes), max(a.get_ylim()[1] for a in axes)
    for panel in axes:
        panel.set_ylim(low, high)
    _name_axes(axes, by, name)
    return figure


def draw_bars(panels: dict[str, list[Mean]], theme: Theme, name: str) -> Figure:
    """A bar for each system with its standard deviation, the runs as points."""
    systems = _systems([bar.system for found in panels.values() for bar in found])
    few = len(systems) <= FEW
    size = (_SMALL[0] if len(panels) > 1 else _ALONE[0], _BAR * len(systems) + 0.1)
    tails = max(width_of(bar.text) for found in panels.values() for bar in found)
    figure, axes = _panels(list(panels), [], size=size, left=_widest(systems) + 0.15, between=0.25)
    for index, (panel, found) in enumerate(zip(axes, panels.values(), strict=True)):
        longest = max(max(bar.mean + bar.deviation, *bar.values) for bar in found)
        for bar in found:
            _bar(panel, bar, systems.index(bar.system), theme, bar.system.colour(theme) if few else theme.palette[0])
        panel.set(ylim=(len(systems) - 0.4, -0.6), yticks=[])
        panel.set_xlim(0, longest * (1 + (tails + 0.15) / max(size[0] - tails - 0.15, 0.5)))
        panel.spines["left"].set_color(theme.dim)
        panel.xaxis.set_major_locator(_ticks(4))
        if index % _columns(len(panels)) == 0:
            panel.set_yticks(range(len(systems)), [system.label for system in systems])
            panel.tick_params(axis="y", length=0)
    _name_axes(axes, name, "")
    return figure


def draw_spots(panels: dict[str, list[Spot]], theme: Theme, cost: str, score: str, *, millions: bool) -> Figure:
    """A point for each system, its score against its cost, with bars of one standard deviation."""
    systems = _systems([spot.system for found in panels.values() for spot in found])
    alone = len(panels) == 1
    keys = [] if alone else [(system.handle(theme, line=False), system.label) for system in systems]
    figure, axes = _panels(list(panels), keys)
    for panel, found in zip(axes, panels.values(), strict=True):
        for spot in found:
            _spot(panel, spot, theme, few=len(systems) <= FEW)
        most = max(spot.cost.mean + spot.cost.deviation for spot in found)
        panel.set_xlim(0, most * 1.12)
        panel.margins(y=0.15)
        low, high = panel.get_ylim()
        if high - low < _LEAST:
            panel.set_ylim((low + high - _LEAST) / 2, (low + high + _LEAST) / 2)
        panel.grid(axis="y", color=theme.grid, linewidth=0.6)
        panel.xaxis.set_major_locator(_ticks(5 if alone else 3))
        panel.yaxis.set_major_locator(_ticks(5))
        if millions:
            panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1e6:g}"))
        if alone:
            name_points(panel, [(_reach(spot.cost), _reach(spot.score), spot.system) for spot in found], theme)
    _name_axes(axes, cost, score)
    return figure


def _curve(axes: Axes, series: Series, colour: str, marker: str) -> None:
    system = series.system
    if series.training:
        x, y = [p.x for p in series.training], [p.mean for p in series.training]
        axes.plot(x, y, color=colour, linestyle=_TRAINING, linewidth=0.9)
    marks = {"marker": marker, "markersize": 3} if len(series.points) <= FEW_POINTS else {}
    draw_line(axes, series.points, color=colour, linestyle=system.dashes, **marks)
    mark_numbers(axes, series.points, colour)


def _behind(axes: Axes, found: Sequence[Series], colour: str) -> None:
    """Several lines as one with gaps, which makes the picture smaller."""
    x = [place for series in found for place in (*(p.x for p in series.points), nan)]
    y = [value for series in found for value in (*(p.mean for p in series.points), nan)]
    axes.plot(x, y, color=colour, linewidth=0.9)


def _scales(axes: Axes, theme: Theme) -> None:
    axes.grid(axis="y", color=theme.grid, linewidth=0.6)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(_ticks(5))


def _ticks(most: int) -> MaxNLocator:
    """At round places."""
    return MaxNLocator(most, steps=[1, 2, 2.5, 5, 10])


def _bar(axes: Axes, bar: Mean, row: int, theme: Theme, colour: str) -> None:
    """Hatched and hollow where the system's other figures cannot be compared."""
    hollow = bar.system.dashes != "-"
    drawn = axes.barh(row, bar.mean, height=0.62, linewidth=0.6, edgecolor=colour, alpha=0.75)
    for patch in drawn:
        patch.set(facecolor="none" if hollow else colour, hatch="////" if hollow else None)
    if len(bar.values) > 1:
        axes.errorbar(bar.mean, row, xerr=bar.deviation, color=theme.ink, linewidth=0.9, capsize=2)
        axes.plot(bar.values, [row] * len(bar.values), "o", color=theme.ink, markersize=2, alpha=0.7)
    end = max(bar.mean + bar.deviation, *bar.values)
    axes.annotate(bar.text, (end, row), xytext=(5, 0), textcoords="offset points", va="center", annotation_clip=False)


def _spot(axes: Axes, spot: Spot, theme: Theme, *, few: bool) -> None:
    """Hollow where its figures cannot be compared."""
    colour = spot.system.colour(theme) if few else theme.palette[0]
    axes.errorbar(
        spot.cost.mean,
        spot.score.mean,
        xerr=spot.cost.deviation or None,
        yerr=spot.score.deviation or None,
        color=colour,
        marker=spot.system.marker if few else "o",
        markersize=5,
        markerfacecolor=colour if spot.system.dashes == "-" else "none",
        linewidth=0.8,
    )


def _reach(figure: Mean) -> tuple[float, float, float]:
    return figure.mean - figure.deviation, figure.mean, figure.mean + figure.deviation


def _panels(
    titles: list[str],
    keys: list[tuple[Line2D, str]],
    *,
    size: tuple[float, float] | None = None,
    left: float = _LEFT,
    between: float = _BETWEEN,
    right: float = _RIGHT,
) -> tuple[Figure, list[Axes]]:
    """A figure with axes for each title, and a legend above them; a single panel goes without title."""
    several = len(titles) > 1
    columns, (width, height) = _columns(len(titles)), size or (_SMALL if several else _ALONE)
    rows, letters = ceil(len(titles) / columns), int((width + between / 2) / width_of("n"))
    titles = [fill(title, letters, break_on_hyphens=False) for title in titles]
    title = (_LINE * max(name.count("\n") for name in titles) + _ABOVE) * several
    whole = left + columns * width + (columns - 1) * between + right
    across = max(1, int(whole / (0.5 + max((width_of(label) for _, label in keys), default=0))))
    legend = _KEY * ceil(len(keys) / across) + 0.08
    figure = Figure(figsize=(whole, legend + rows * (title + height + _BELOW) + 0.2))
    if keys:
        lines, labels = zip(*keys, strict=True)
        figure.legend(lines, labels, ncols=across, loc="upper left", borderpad=0, borderaxespad=0.1, columnspacing=1.5)
    axes = []
    for index, name in enumerate(titles):
        row, column = divmod(index, columns)
        top = legend + row * (title + height + _BELOW) + title
        axes.append(place(figure, left + column * (width + between), top, width, height))
        axes[-1].set_axisbelow(True)
        if several:
            axes[-1].set_title(name, pad=4)
    return figure, axes


def _name_axes(axes: list[Axes], x: str, y: str) -> None:
    """Names below the lowest panels and left of the first ones."""
    columns = _columns(len(axes))
    for index, panel in enumerate(axes):
        if index + columns >= len(axes):
            panel.set_xlabel(x)
        if index % columns == 0:
            panel.set_ylabel(y)


def _columns(panels: int) -> int:
    return 1 if panels == 1 else 2 if panels in (2, 4) else 3


def _systems(found: Sequence[System]) -> list[System]:
    """Each once, in their order."""
    return sorted(set(found), key=lambda system: system.number)


def _widest(systems: Sequence[System]) -> float:
    return max(width_of(system.label) for system in systems)
