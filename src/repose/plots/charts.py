"""Charts that compare systems, one panel per corpus: curves by epoch, bars, and scores against costs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf, isfinite, nan
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from repose.plots.canvas import BEHIND, GREY, INCH, INK, MARKERS, PALETTE, canvas, inches, place, width_of

FEW = len(PALETTE)
"""How many systems one panel can distinguish by colour."""
DASHED = (0, (4, 1.6))
"""Line style of systems whose figures cannot be compared with others'."""
_TRAINING: Any = (0, (1, 1.4))
_MARKED, _MARKS = 40, 6  # up to this many points, each has a marker; number of markers on a training curve
_BAND = 0.18  # opacity of a band
_NUMBERS = 6  # how many numbers of runs fit side by side
_OFFSETS = (7.0, 21.0, -16.0, -30.0, -44.0)  # points from a curve to its number of runs, the first that is free
_SIZE, _LINE = 10.5, 0.19  # font size in points, height of a line in inches
_ALONE, _SMALL = (5.4, 3.2), (2.35, 1.75)  # inches: a single panel, and one of several
_LEFT, _BETWEEN, _BELOW, _ABOVE, _RIGHT = 0.72, 0.55, 0.38, 0.28, 0.15  # inches: space around panels and their labels
_BAR = 0.3  # inches: height of a bar and the space to the next
_LEAST = 2.0  # points of BLEU that an axis spans at least, lest it exaggerate small differences


@dataclass(frozen=True, kw_only=True)
class DrawnSystem:
    """A system's name and how to draw it."""

    label: str
    number: int
    """Its index among the picture's systems, from 0."""
    comparable: bool = True
    """False if its figures cannot be compared with others': lines are then dashed, bars and points hollow."""

    @property
    def style(self) -> dict[str, Any]:
        """Line colour and dashes."""
        return {"color": PALETTE[self.number % FEW], "linestyle": "-" if self.comparable else DASHED}

    @property
    def marker(self) -> str:
        """Marker shape, for readers who cannot see colours; with the colour, it distinguishes up to 49 systems."""
        return MARKERS[(self.number + self.number // FEW) % FEW]


@dataclass(frozen=True)
class Point:
    """The mean of several runs' figures at one epoch or update."""

    x: float
    mean: float
    deviation: float | None
    """Standard deviation over the runs (n - 1); None for one run."""
    n: int
    """Number of runs that reached this point."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """A system's curve on one corpus, by epoch or update."""

    system: DrawnSystem
    points: tuple[Point, ...]
    training: tuple[Point, ...] = ()
    """The same figure on the training set, drawn as a thin line."""

    @property
    def end(self) -> Point:
        """The curve's last point."""
        return self.points[-1]


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A system's figure: the mean and standard deviation over its runs, and each run's value."""

    system: DrawnSystem
    mean: float
    deviation: float | None
    """Standard deviation of the values (n - 1); None for one value."""
    values: tuple[float, ...]
    text: str

    @property
    def end(self) -> float:
        """The largest value drawn."""
        return max(self.mean + (self.deviation or 0.0), *self.values)


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A system's score and its cost."""

    system: DrawnSystem
    score: Mean
    cost: Mean


@contextmanager
def chart_canvas(text: str, font: Path | None = None, *, any_font: bool = False) -> Iterator[None]:
    """Return the canvas for charts (see `canvas`). SVG text is drawn as outlines, since names could be wider
    in another font and be cut off."""
    with canvas(text, font, size=_SIZE, any_font=any_font), rc_context({"svg.fonttype": "path"}):
        yield


def draw_curves(
    panels: Mapping[str, Sequence[Series]], x: str, y: str, *, baseline: str | None = None, most: float = inf
) -> Figure:
    """Draw curves with bands of one standard deviation, one panel per title; a single panel names curves at their ends.

    If one title has too many systems to distinguish, each gets a panel of its own, with `baseline` in all of them.
    Values above `most` are cut off, so that the other curves can be seen.
    """
    first, *more = panels.values()
    if not more and len(first) > FEW:
        return _draw_each(first, x, y, baseline, most)
    every = [series for found in panels.values() for series in found]
    systems = _systems(series.system for series in every)
    kinds = _kinds(GREY) if any(series.training for series in every) else []
    kinds += _band(every)
    keys = [*((_handle(system), system.label) for system in systems), *kinds] if more else []
    y = _wrapped(y, (_SMALL if more else _ALONE)[1])
    left = _LEFT + _LINE * y.count("\n")
    figure, axes = _panels(list(panels), keys, left=left, right=_RIGHT if more else 0.2 + _widest(systems))
    for panel, found in zip(axes, panels.values(), strict=True):
        for series in found:
            _curve(panel, series)
        _curve_scales(panel)
        _cut(panel, found, most)
        _tell_numbers(panel, [_seen(series, most) for series in found])
        if not more:
            _name_ends(panel, [(series.end.x, series.end.mean, series.system) for series in found])
            if kinds:
                panel.legend(*zip(*kinds, strict=True), loc="best")
    _name_axes(axes, x, y)
    return figure


def _seen(series: Series, most: float) -> Series:
    """Return the part of a series that stays in the picture."""
    return replace(series, points=tuple(point for point in series.points if point.mean <= most))


def limits_of(found: Sequence[Series], most: float) -> tuple[float, float] | None:
    """Return the lowest and highest value, up to `most`, of the curves that end below `most`; None if no value is above
    `most`, or if no curve ends below it."""
    values = [point.mean for series in found for point in (*series.points, *series.training)]
    ends = [series for series in found if series.end.mean <= most]
    inside = [point.mean for series in ends for point in (*series.points, *series.training) if point.mean <= most]
    return (min(inside), max(inside)) if inside and max(values) > most else None


def _cut(axes: Axes, found: Sequence[Series], most: float) -> None:
    """Set a panel's limits to those of `limits_of`."""
    if (limits := limits_of(found, most)) is not None:
        low, high = limits
        axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low or 1.0))


def _draw_each(found: Sequence[Series], x: str, y: str, baseline: str | None, most: float) -> Figure:
    """Draw one panel per system, with the baseline in black and all others in grey behind it."""
    has_training = any(series.training for series in found)
    plain: list[tuple[Artist, str]] = [(Line2D([], [], color=PALETTE[1]), "the system of the panel")]
    keys = _kinds(PALETTE[1]) if has_training else plain
    keys.append((Line2D([], [], color=BEHIND, linewidth=1), "the others" + ", validation" * has_training))
    keys += _band(found)
    if any(series.system.label == baseline for series in found):
        keys.append((Line2D([], [], color=INK, linewidth=1), str(baseline)))
    y = _wrapped(y, _SMALL[1])
    figure, axes = _panels([series.system.label for series in found], keys, left=_LEFT + _LINE * y.count("\n"))
    coloured = [replace(series, system=replace(series.system, number=1)) for series in found]
    for panel, series in zip(axes, coloured, strict=True):
        _behind(panel, [other for other in found if other.system.label != baseline], BEHIND)
        _behind(panel, [other for other in found if other.system.label == baseline], INK)
        _curve(panel, series)
        _curve_scales(panel)
        _cut(panel, found, most)
    low, high = min(a.get_ylim()[0] for a in axes), max(a.get_ylim()[1] for a in axes)
    for panel, series in zip(axes, coloured, strict=True):
        panel.set_ylim(low, high)
        _tell_numbers(panel, [_seen(series, most)])
    _name_axes(axes, x, y)
    return figure


def _kinds(colour: str) -> list[tuple[Artist, str]]:
    """Return legend entries for the training and the validation set."""
    thin = Line2D([], [], color=colour, linestyle=_TRAINING, linewidth=1)
    return [(Line2D([], [], color=colour), "validation"), (thin, "training, dropout on")]


def _band(found: Sequence[Series]) -> list[tuple[Artist, str]]:
    """Return the legend entry for bands, if there are any."""
    is_drawn = any(point.n > 1 for series in found for point in series.points)
    return [(Patch(facecolor=GREY, alpha=_BAND), "± 1 standard deviation")] if is_drawn else []


def _curve(axes: Axes, series: Series) -> None:
    """Draw a mean and its band."""
    style, points = series.system.style, series.points
    if series.training:
        x, mean = [p.x for p in series.training], [p.mean for p in series.training]
        few: dict[str, Any] = {"marker": series.system.marker, "markersize": 2.5, "markevery": ceil(len(x) / _MARKS)}
        axes.plot(x, mean, color=style["color"], linestyle=_TRAINING, linewidth=1, **few)
    marks: dict[str, Any] = {"marker": series.system.marker, "markersize": 3.5} if len(points) <= _MARKED else {}
    x, mean = [p.x for p in points], [p.mean for p in points]
    axes.plot(x, mean, **style, **marks)
    if any(p.n > 1 for p in points):
        low, high = ([p.mean + sign * (p.deviation or 0.0) for p in points] for sign in (-1, 1))
        axes.fill_between(x, low, high, color=style["color"], alpha=_BAND, linewidth=0)


def _tell_numbers(axes: Axes, found: Sequence[Series]) -> None:
    """Where a run ends, write how many go on; once for all curves with runs that end there."""
    places: dict[float, list[tuple[Point, str]]] = {}
    for series in found:
        for before, point in pairwise(series.points):
            if point.n != before.n:
                places.setdefault(point.x, []).append((point, series.system.style["color"]))
    above: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": _SIZE - 2}
    (width, height), (left, right), (low, high) = inches(axes), axes.get_xlim(), axes.get_ylim()
    taken: list[tuple[float, float]] = []  # inches: places of the numbers so far
    for x, here in sorted(places.items()):
        numbers = sorted({point.n for point, _ in here})
        colour = here[0][1] if len(here) == 1 else INK
        text = "n = " + " to ".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))
        y = max(point.mean for point, _ in here)
        across, up = (x - left) / (right - left) * width, (y - low) / (high - low) * height
        for points in _OFFSETS:
            at = up + points / INCH
            if at < height and all(abs(across - a) > width / _NUMBERS or abs(at - b) >= _LINE for a, b in taken):
                break
        taken.append((across, at))
        axes.annotate(text, (x, y), (0, points), color=colour, **above)


def _behind(axes: Axes, found: Sequence[Series], colour: str) -> None:
    """Draw several background lines as one line with gaps, which makes the file smaller."""
    x = [place for series in found for place in (*(p.x for p in series.points), nan)]
    y = [value for series in found for value in (*(p.mean for p in series.points), nan)]
    axes.plot(x, y, color=colour, linewidth=1)


def _curve_scales(axes: Axes) -> None:
    axes.grid(axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    places = {float(x) for line in axes.lines for x in np.asarray(line.get_xdata(), dtype=float) if isfinite(x)}
    if len(places) == 1:  # for a single place, the locator would use fractions
        (place,) = places
        axes.set_xlim(place - 0.5, place + 0.5)
        axes.set_xticks([place])
    axes.yaxis.set_major_locator(_ticks(5))


def draw_bars(panels: Mapping[str, Sequence[Mean]], x: str) -> Figure:
    """Draw a bar per system with its standard deviation, and each run as a point."""
    systems = _systems(bar.system for found in panels.values() for bar in found)
    size = (_SMALL[0] if len(panels) > 1 else _ALONE[0], _BAR * len(systems) + 0.1)
    tails = max(width_of(bar.text) for found in panels.values() for bar in found)
    figure, axes = _panels(list(panels), [], size=size, left=_widest(systems) + 0.2, between=0.25)
    for index, (panel, found) in enumerate(zip(axes, panels.values(), strict=True)):
        for bar in found:
            _bar(panel, bar, systems.index(bar.system))
        panel.set(ylim=(len(systems) - 0.4, -0.6), yticks=[])
        panel.set_xlim(0, max(bar.end for bar in found) * (1 + (tails + 0.15) / max(size[0] - tails - 0.15, 0.5)))
        panel.xaxis.set_major_locator(_ticks(4))
        if index % _columns(len(panels)) == 0:
            panel.set_yticks(range(len(systems)), [system.label for system in systems])
            panel.tick_params(axis="y", length=0)
    _name_axes(axes, x, "")
    return figure


def _bar(axes: Axes, bar: Mean, row: int) -> None:
    """Draw one bar; all have the same colour, as each has its name beside it."""
    filled = bar.system.comparable
    (patch,) = axes.barh(row, bar.mean, height=0.62, linewidth=0.7, edgecolor=PALETTE[0])
    patch.set(facecolor=PALETTE[0] if filled else "none", hatch=None if filled else "////", alpha=0.6)
    if len(bar.values) > 1:
        axes.errorbar(bar.mean, row, xerr=bar.deviation or 0.0, color=INK, linewidth=1, capsize=2.5)
        axes.plot(bar.values, [row] * len(bar.values), "o", color=INK, markersize=2.5, alpha=0.7)
    offset: dict[str, Any] = {"xytext": (6, 0), "textcoords": "offset points", "va": "center", "annotation_clip": False}
    axes.annotate(bar.text, (bar.end, row), **offset)


def draw_spots(panels: Mapping[str, Sequence[Spot]], x: str, y: str, *, millions: bool) -> Figure:
    """Draw each system's score against its cost, with error bars of one standard deviation."""
    systems = _systems(spot.system for found in panels.values() for spot in found)
    alone = len(panels) == 1
    keys = [] if alone else [(_handle(system, line=False), system.label) for system in systems]
    figure, axes = _panels(list(panels), keys, right=0.6 + _widest(systems) if alone else _RIGHT)
    for panel, found in zip(axes, panels.values(), strict=True):
        for spot in found:
            _spot(panel, spot)
        panel.set_xlim(0, max(spot.cost.mean + (spot.cost.deviation or 0.0) for spot in found) * 1.12)
        panel.margins(y=0.15)
        low, high = panel.get_ylim()
        if high - low < _LEAST:
            panel.set_ylim((low + high - _LEAST) / 2, (low + high + _LEAST) / 2)
        panel.grid(axis="y")
        panel.xaxis.set_major_locator(_ticks(5 if alone else 3))
        panel.yaxis.set_major_locator(_ticks(5))
        if millions:
            panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e6:g}"))
        if alone:
            named = [spot.system for spot in sorted(found, key=lambda spot: -spot.score.mean)]
            lines, labels = [_handle(system, line=False) for system in named], [system.label for system in named]
            panel.legend(lines, labels, loc="center left", bbox_to_anchor=(1, 0.5), handlelength=1)
    _name_axes(axes, x, y)
    return figure


def _spot(axes: Axes, spot: Spot) -> None:
    colour = spot.system.style["color"]
    score, cost = spot.score, spot.cost
    filled = colour if spot.system.comparable else "none"
    marker: dict[str, Any] = {"marker": spot.system.marker, "markersize": 6, "markerfacecolor": filled}
    spreads: dict[str, Any] = {"xerr": cost.deviation or None, "yerr": score.deviation or None}
    axes.errorbar(cost.mean, score.mean, **spreads, **marker, color=colour, linewidth=0.9)


def _name_ends(axes: Axes, ends: Sequence[tuple[float, float, DrawnSystem]]) -> None:
    """Write names at the right edge, each near the end of its curve and joined to it by a thin line."""
    width, height = inches(axes)
    low, high = axes.get_ylim()
    wanted = [(min(y, high) - low) / (high - low) * height for _, y, _ in ends]
    thread = {"arrowstyle": "-", "linewidth": 0.7, "linestyle": (0, (1, 1.5)), "shrinkA": 1, "shrinkB": 3}
    for (x, y, system), at in zip(ends, spread_out(wanted, _LINE, 0.05, height), strict=True):
        where: dict[str, Any] = {"xytext": (1 + 0.16 / width, at / height), "textcoords": "axes fraction"}
        arrow = {**thread, "color": system.style["color"], "relpos": (0, 0.5)}
        label = f"{system.label} \N{UPWARDS ARROW}" if y > high else system.label  # its curve ends above the panel
        axes.annotate(label, (x, min(y, high)), **where, va="center", annotation_clip=False, arrowprops=arrow)


def spread_out(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move labels apart: return places in the order of `wanted` and close to it, at least `gap` apart, and between
    `low` and `high` if there is room. Neighbours that would overlap are centred on their mean."""
    blocks: list[list[int]] = []

    def centre(block: Sequence[int]) -> float:
        half = gap * (len(block) - 1) / 2
        mean = sum(wanted[index] for index in block) / len(block)
        return max(min(mean, high - half), low + half)

    for index in sorted(range(len(wanted)), key=wanted.__getitem__):
        block = [index]
        while blocks and centre(block) - centre(blocks[-1]) < gap * (len(blocks[-1]) + len(block)) / 2 - 1e-9:
            block = blocks.pop() + block
        blocks.append(block)
    places = [0.0] * len(wanted)
    for block in blocks:
        for rank, index in enumerate(block):
            places[index] = centre(block) + gap * (rank - (len(block) - 1) / 2)
    return places


def _handle(system: DrawnSystem, *, line: bool = True) -> Line2D:
    """Return a system's legend entry."""
    style = system.style if line else system.style | {"linestyle": ""}
    filled = style["color"] if system.comparable or line else "none"
    return Line2D([], [], **style, marker=system.marker, markersize=4.5, markerfacecolor=filled)


def _panels(
    titles: list[str],
    keys: Sequence[tuple[Artist, str]],
    *,
    size: tuple[float, float] | None = None,
    left: float = _LEFT,
    between: float = _BETWEEN,
    right: float = _RIGHT,
) -> tuple[Figure, list[Axes]]:
    """Create a figure with one panel per title and a legend above them; a single panel has no title."""
    several = len(titles) > 1
    columns, (width, height) = _columns(len(titles)), size or (_SMALL if several else _ALONE)
    letters = int((width + between / 2) / width_of("reinforced-sentence") * len("reinforced-sentence"))
    titles = [fill(title, letters) for title in titles]
    whole = left + columns * width + (columns - 1) * between + right
    across = max(1, int(whole / (0.6 + max((width_of(label) for _, label in keys), default=0))))
    tops = [1.2 * _LINE * ceil(len(keys) / across) + 0.08]
    for row in range(0, len(titles), columns):
        lines = max(title.count("\n") for title in titles[row : row + columns])
        tops[-1] += (_LINE * lines + _ABOVE) * several
        tops.append(tops[-1] + height + _BELOW)
    figure = Figure(figsize=(whole, tops.pop() + 0.2))
    if keys:
        spaces: dict[str, Any] = {"borderpad": 0, "borderaxespad": 0.1, "columnspacing": 1.5}
        figure.legend(*zip(*keys, strict=True), ncols=across, loc="upper left", **spaces)
    axes = []
    for index, title in enumerate(titles):
        row, column = divmod(index, columns)
        axes.append(place(figure, left + column * (width + between), tops[row], width, height))
        if several:
            axes[-1].set_title(title, pad=5)
    return figure, axes


def _name_axes(axes: Sequence[Axes], x: str, y: str) -> None:
    """Label the x axes of the lowest panels and the y axes of the leftmost ones."""
    columns = _columns(len(axes))
    for index, panel in enumerate(axes):
        if index + columns >= len(axes):
            panel.set_xlabel(x)
        if index % columns == 0:
            panel.set_ylabel(y)


def _wrapped(text: str, width: float) -> str:
    """Return a text in as many lines as it needs to be at most so many inches wide."""
    return fill(text, max(1, int(len(text) * width / width_of(text)))) if text and width_of(text) > width else text


def _columns(panels: int) -> int:
    return 1 if panels == 1 else 2 if panels in (2, 4) else 3


def _ticks(most: int) -> MaxNLocator:
    return MaxNLocator(most, steps=[1, 2, 2.5, 5, 10])


def _systems(found: Iterator[DrawnSystem]) -> list[DrawnSystem]:
    return sorted(set(found), key=lambda system: system.number)


def _widest(systems: Sequence[DrawnSystem]) -> float:
    return max(width_of(system.label) for system in systems)
