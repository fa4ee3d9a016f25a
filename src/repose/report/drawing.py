"""What the pictures of a report share: a look for light and for dark pages, and names beside what they name."""

import re
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from repose.plots.canvas import INCH, MARKERS, PALETTE, canvas, svg
from repose.plots.fonts import families
from repose.system.errors import ConfigError

FEW = len(PALETTE)
"""Systems that can be told apart by colour in one panel."""
DASHED = (0, (4, 1.6))
"""Lines of systems that look ahead."""
_SIZE, _LINE = 9.0, 0.155  # of letters in points, of a line of them in inches
_LETTER = 0.47  # mean width of a letter in this face, of its size


Box = tuple[float, float, float, float]
"""Left, bottom, right and top, in inches."""
Reach = tuple[float, float, float]
"""A value, and before and after it what its deviation reaches."""


@dataclass(frozen=True, kw_only=True)
class Theme:
    """Colours for one kind of page."""

    paper: str
    """The page's, which shows through and is drawn around names alone."""
    ink: str
    dim: str
    grid: str
    behind: str
    """Of lines that another one is compared with."""
    palette: tuple[str, ...]

    @property
    def settings(self) -> dict[str, Any]:
        """For matplotlib. Letters are drawn as outlines, so that they are as wide on every machine."""
        return {
            "svg.fonttype": "path",
            "savefig.transparent": True,
            "font.size": _SIZE,
            "axes.titlesize": _SIZE,
            "axes.labelsize": _SIZE,
            "xtick.labelsize": _SIZE - 0.5,
            "ytick.labelsize": _SIZE - 0.5,
            "legend.fontsize": _SIZE,
            "text.color": self.ink,
            "axes.titlecolor": self.ink,
            "axes.labelcolor": self.ink,
            "axes.edgecolor": self.dim,
            "xtick.color": self.dim,
            "ytick.color": self.dim,
            "xtick.labelcolor": self.ink,
            "ytick.labelcolor": self.ink,
        }


LIGHT = Theme(paper="#fefdfa", ink="#201f1c", dim="#63615a", grid="#e6e3db", behind="#cbc8bf", palette=PALETTE)
DARK = Theme(
    paper="#17181a",
    ink="#dddbd5",
    dim="#a3a097",
    grid="#323233",
    behind="#515153",
    palette=("#4c9fe0", "#f08a45", "#35c194", "#dd93bf", "#8ed6f2", "#e8c24e", "#b9b9b9"),
)


@dataclass(frozen=True, kw_only=True)
class System:
    """How a system is called and drawn."""

    name: str
    number: int
    """Its place among those of the picture, from 0."""
    looks_ahead: bool = False
    failed_audit: bool = False

    @property
    def label(self) -> str:
        """Its name, and what must be known of its figures."""
        why = "looks ahead" if self.looks_ahead else "failed the audit" if self.failed_audit else ""
        return f"{self.name} ({why})" if why else self.name

    @property
    def dashes(self) -> Any:
        """Dashed where its figures cannot be compared."""
        return DASHED if self.looks_ahead or self.failed_audit else "-"

    @property
    def marker(self) -> str:
        """A shape of its own, for those who cannot see its colour."""
        return MARKERS[self.number % FEW]

    def colour(self, theme: Theme) -> str:
        """Its own among up to seven."""
        return theme.palette[self.number % FEW]

    def handle(self, theme: Theme, *, line: bool) -> Line2D:
        """What stands for it in a legend."""
        style: Any = self.dashes if line else ""
        filled = self.colour(theme) if self.dashes == "-" or line else "none"
        return Line2D(
            [], [], color=self.colour(theme), linestyle=style, marker=self.marker, markersize=4, markerfacecolor=filled
        )


def both(draw: Callable[[Theme], Figure], text: str) -> tuple[str, str]:
    """A picture as SVG for a light and for a dark page.

    `text`: what the picture says. Letters that no font of this machine has are drawn as boxes.
    """
    face = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "STIXGeneral.ttf"
    try:
        families(text, face)
    except ConfigError:
        text = ""
    pages = []
    for theme in (LIGHT, DARK):
        with canvas(text, face, theme.settings), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            pages.append(_short(svg(draw(theme))))
    return pages[0], pages[1]


_LONG = re.compile(r"scale\([^)]*\)|-?\d+\.\d{3,}")
_SPARE = re.compile(
    r"<!--.*?-->|(?<=>)\s+(?=<)| id=\"(?:figure|axes|patch|text|legend|matplotlib\.axis|[a-z]+\d*[a-z]*)_\d+\""
)


def _short(text: str) -> str:
    """An SVG picture to a hundredth of a point, without names and spaces that nothing needs: half the size."""
    text = _LONG.sub(lambda found: found[0] if found[0][0] == "s" else f"{float(found[0]):.2f}", _SPARE.sub("", text))
    return text.replace("\n", " ") + "\n"


def width_of(text: str, size: float = _SIZE) -> float:
    """About how wide a text is, in inches."""
    letters = sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
    return letters * _LETTER * size / INCH


def apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places in the order of `wanted` and as near to it as can be, no two nearer than `gap`, between `low` and `high`
    if there is room: neighbours that would touch are centred on their mean."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    blocks: list[list[int]] = []

    def centre(block: Sequence[int]) -> float:
        half = gap * (len(block) - 1) / 2
        mean = sum(wanted[index] for index in block) / len(block)
        return max(min(mean, high - half), low + half)

    for index in order:
        blocks.append([index])
        while len(blocks) > 1:
            before, after = blocks[-2:]
            reach = gap * (len(before) + len(after)) / 2
            if centre(after) - centre(before) >= reach - 1e-9:
                break
            blocks[-2:] = [before + after]
    places = [0.0] * len(wanted)
    for block in blocks:
        for rank, index in enumerate(block):
            places[index] = centre(block) + gap * (rank - (len(block) - 1) / 2)
    return places


def name_ends(axes: Axes, ends: Sequence[tuple[float, float, System]], theme: Theme) -> None:
    """Names of lines beside the right edge, each at the height of its line's end or near it, led to by a thread."""
    width, height = inches(axes)
    low, high = axes.get_ylim()
    wanted = [(y - low) / (high - low) * height for _, y, _ in ends]
    for (x, y, system), place in zip(ends, apart(wanted, _LINE, 0.05, height), strict=True):
        axes.annotate(
            system.label,
            (x, y),
            xytext=(1 + 0.16 / width, place / height),
            textcoords="axes fraction",
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": system.colour(theme),
                "linewidth": 0.7,
                "linestyle": (0, (1, 1.5)),
                "shrinkA": 1,
                "shrinkB": 3,
                "relpos": (0, 0.5),
            },
        )


def name_points(axes: Axes, points: Sequence[tuple[Reach, Reach, System]], theme: Theme) -> None:
    """Names beside points, where they hide neither another name nor another point; led to by a thread if far."""
    size = inches(axes)

    def place(x: Reach, y: Reach) -> tuple[list[float], list[float]]:
        left, right, low, high = *axes.get_xlim(), *axes.get_ylim()
        return [(v - left) / (right - left) * size[0] for v in x], [(v - low) / (high - low) * size[1] for v in y]

    taken: list[Box] = []
    for at_x, at_y, _ in points:
        x, y = place(at_x, at_y)
        taken += [
            (x[1] - 0.05, y[1] - 0.05, x[1] + 0.05, y[1] + 0.05),
            (x[0] - 0.03, y[1] - 0.03, x[2] + 0.03, y[1] + 0.03),
            (x[1] - 0.03, y[0] - 0.03, x[1] + 0.03, y[2] + 0.03),
        ]
    for at_x, at_y, system in points:
        x, y = place(at_x, at_y)
        box, distance = _room(x[1], y[1], width_of(system.label), taken, size)
        taken.append(box)
        thread = {"arrowstyle": "-", "color": theme.dim, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}
        axes.annotate(
            system.label,
            (at_x[1], at_y[1]),
            xytext=(box[0] / size[0], (box[1] + box[3]) / 2 / size[1]),
            textcoords="axes fraction",
            va="center",
            annotation_clip=False,
            arrowprops=thread if distance > 0.2 else None,
            bbox={"facecolor": theme.paper, "edgecolor": "none", "pad": 0.3},
        )


def _room(x: float, y: float, width: float, taken: Sequence[Box], size: tuple[float, float]) -> tuple[Box, float]:
    """Where a name has room near a point, and how far from it; beside it where there is none."""
    half = _LINE / 2
    for distance in (0.09, 0.22, 0.36, 0.5, 0.64):
        for across, up in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)):
            middle = y + up * (distance + half * (distance < 0.1))
            begin = x + across * distance - (width if across < 0 else 0 if across else width / 2)
            box = (begin, middle - half, begin + width, middle + half)
            inside = box[0] >= 0.03 and box[2] <= size[0] and box[1] >= 0.03 and box[3] <= size[1]
            if inside and not any(_overlap(box, other) for other in taken):
                return box, distance
    return (x + 0.09, y - half, x + 0.09 + width, y + half), 0.09


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def inches(axes: Axes) -> tuple[float, float]:
    """Width and height of axes."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    box, (width, height) = axes.get_position(), figure.get_size_inches()
    return float(box.width * width), float(box.height * height)
