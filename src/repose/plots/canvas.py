"""What all pictures share: a style, files of the same bytes each time, SVG for a page; no display, no global state."""

import io
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib import rc_context, rcParams, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from repose.plots.fonts import families
from repose.system.errors import ConfigError
from repose.system.files import replacing_file, write_file

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#444444")
"""Okabe and Ito's colours, which the colour-blind can tell apart, less the yellow that is hard to see on white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK, GREY, GRID, BEHIND = "#201f1c", "#63615a", "#e6e3db", "#cbc8bf"
"""Colours of text, of axes, of lines across a panel, and of curves that another one is compared with."""
_ON_A_PAGE = {INK: "ink", GREY: "dim", GRID: "grid", BEHIND: "behind"} | {
    colour: f"series-{number}" for number, colour in enumerate(PALETTE, start=1)
}
"""Names of the CSS variables by which a page chooses colours: a dark one has others."""
_SERIF = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "STIXGeneral.ttf"
_DATED = {".png": ["Software"], ".svg": ["Date", "Creator"], ".pdf": ["CreationDate", "Creator", "Producer"]}
"""What of a file's metadata differs from day to day, or from machine to machine."""
SUFFIXES = (".png", ".svg")
INCH = 72.0
"""Points."""


class Plotted(NamedTuple):
    """What was drawn."""

    files: list[Path]
    """Pictures, and the numbers as JSON."""
    header: list[str]
    rows: list[list[str]]
    """The numbers as a table to print."""
    remarks: Sequence[str] = ()
    """Sentences about what was left out, or cannot be compared."""


def _style(size: float) -> dict[str, Any]:
    """Settings of matplotlib, with text of `size` points."""
    inked = ("text.color", "axes.titlecolor", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor")
    return {
        **dict.fromkeys(("figure.dpi", "savefig.dpi"), 150),
        **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize", "legend.fontsize"), size),
        **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), size - 0.5),
        **dict.fromkeys(inked, INK),
        **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), GREY),
        **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width", "grid.linewidth"), 0.6),
        **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
        **{"axes.titlelocation": "left", "axes.axisbelow": True, "grid.color": GRID, "lines.linewidth": 1.4},
        "svg.fonttype": "none",  # text stays text
        "pdf.fonttype": 42,  # likewise, in fonts that publishers accept
        "svg.hashsalt": "repose",  # ids that would otherwise be random
        "text.hinting": "none",  # letters in a PNG are as wide as `width_of` counts them
        "text.parse_math": False,  # a token may be a dollar sign
    }


@contextmanager
def canvas(text: str = "", font: Path | None = None, *, size: float = 8.0, any_font: bool = False) -> Iterator[None]:
    """While open, matplotlib draws in this project's style, whatever its user's settings, and with fonts for `text`.

    `font`: the first to be asked for a character, else a serif face that matplotlib brings along. `size`: of text, in
    points. Figures must be made and saved inside. Raises ConfigError without a font for `text`
    unless `any_font`: then characters that no font has are drawn as boxes.
    """
    font = font or _SERIF
    try:
        names = families(text, font)
    except ConfigError:
        if not any_font:
            raise
        names = families("", font)
    with style.context(["default", {**_style(size), "font.family": names}]), warnings.catch_warnings():
        if any_font:
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def files_of(out: Path, part: str = "") -> list[Path]:
    """The files that `out` asks for: itself, or without suffix a PNG and an SVG; with `part` in their names.

    Raises ConfigError for another suffix.
    """
    if out.suffix not in ("", *_DATED):
        raise ConfigError(
            f"pictures are written as .png, .svg or .pdf, not {out.suffix}: give --out one of these, or none"
        )
    stem = out.stem + (f".{part}" if part else "")
    return [out.with_name(stem + suffix) for suffix in ([out.suffix] if out.suffix else SUFFIXES)]


def save(figure: Figure, out: Path, part: str = "") -> list[Path]:
    """Write a figure to the files of `out`, on white; the same figure gives the same bytes.

    Raises WriteError where one cannot be written; none is left half-written.
    """
    paths = files_of(out, part)
    for path in paths:
        nothing = dict.fromkeys(_DATED[path.suffix])
        with replacing_file(path) as temporary:
            figure.savefig(temporary, format=path.suffix[1:], metadata=nothing)
    return paths


_LONG = re.compile(r"scale\([^)]*\)|-?\d+\.\d{3,}")
_SPARE = re.compile(
    r"<!--.*?-->|<defs>\s*<style.*?</style>\s*</defs>|(?<=>)\s+(?=<)"
    r"| id=\"(?:figure|axes|patch|text|legend|matplotlib\.axis|[a-z]+\d*[a-z]*)_\d+\"",
    re.DOTALL,
)
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")


def page_svg(figure: Figure) -> str:
    """A figure as an SVG element within a page; the same figure gives the same text.

    Its colours are the page's CSS variables where it has them (`_ON_A_PAGE`). Letters are outlines, so that they are as
    wide on every machine, and places are to a hundredth of a point, without names and spaces that nothing needs.
    """
    written = io.StringIO()
    with rc_context({"svg.fonttype": "path"}):
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(written, format="svg", metadata=nothing, transparent=True)
    whole = written.getvalue()
    text = _SPARE.sub("", whole[whole.index("<svg") :]).replace("\n", " ").strip()
    text = _LONG.sub(lambda found: found[0] if found[0][0] == "s" else f"{float(found[0]):.2f}", text)
    text = _COLOUR.sub(_of_the_page, text)
    return text.replace("<svg", '<svg style="stroke-linejoin: round; stroke-linecap: butt"', 1)


def _of_the_page(colour: re.Match[str]) -> str:
    name = _ON_A_PAGE.get(colour[0])
    return colour[0] if name is None else f"var(--{name}, {colour[0]})"


def save_numbers(numbers: Mapping[str, object], out: Path) -> Path:
    """Write the numbers behind a picture as JSON beside it, with six digits; NaN and infinities become null."""
    path = out.with_suffix(".json")
    short = json.loads(
        json.dumps(numbers), parse_float=lambda text: float(f"{float(text):.6g}"), parse_constant=lambda _: None
    )
    text = json.dumps(short, indent=1, ensure_ascii=False) + "\n"
    write_file(path, text.encode(errors="backslashreplace"))  # names of files may be no UTF-8
    return path


def place(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes of a size and place in inches, from the figure's upper left corner."""
    whole_width, whole_height = figure.get_size_inches()
    box = (left / whole_width, 1 - (top + height) / whole_height, width / whole_width, height / whole_height)
    return figure.add_axes(box)


def inches(axes: Axes) -> tuple[float, float]:
    """Width and height of axes."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    box, (width, height) = axes.get_position(), figure.get_size_inches()
    return float(box.width * width), float(box.height * height)


def width_of(text: str) -> float:
    """How wide a text of the canvas's size is, in inches."""
    lines = text.split("\n")
    font = FontProperties(size=rcParams["font.size"])
    return max(text_to_path.get_text_width_height_descent(line, font, ismath=False)[0] for line in lines) / INCH
