"""Shared by all pictures: the style, reproducible files, SVG for a page. No display and no global state."""

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
from repose.system.files import json_bytes, replacing_file, write_file

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#444444")
"""Okabe and Ito's colours, safe for the colour-blind, without the yellow that is hard to see on white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK, GREY, GRID, BEHIND = "#201f1c", "#63615a", "#e6e3db", "#cbc8bf"
"""Colours of text, axes, grid lines, and curves in the background."""
_ON_A_PAGE = {INK: "ink", GREY: "dim", GRID: "grid", BEHIND: "behind"} | {
    colour: f"series-{number}" for number, colour in enumerate(PALETTE, start=1)
}
"""CSS variables that replace colours on a page, which may have a dark theme."""
_SERIF = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "STIXGeneral.ttf"
_DATED = {".png": ["Software"], ".svg": ["Date", "Creator"], ".pdf": ["CreationDate", "Creator", "Producer"]}
"""Metadata that differs between days or machines; left out so that files are reproducible."""
SUFFIXES = (".png", ".svg")
INCH = 72.0
"""Points per inch."""


class Plotted(NamedTuple):
    """The result of drawing a picture."""

    files: list[Path]
    """Pictures, and the numbers as JSON."""
    header: list[str]
    rows: list[list[str]]
    """The numbers, as a table to print."""
    remarks: Sequence[str] = ()
    """Notes on what was left out or cannot be compared."""


def _style(size: float) -> dict[str, Any]:
    """Return matplotlib's settings, with text of `size` points."""
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
        "svg.fonttype": "none",  # keep text as text
        "pdf.fonttype": 42,  # keep text as text, in a font type that publishers accept
        "svg.hashsalt": "repose",  # makes ids reproducible
        "text.hinting": "none",  # so that text in a PNG is as wide as `width_of` says
        "text.parse_math": False,  # a token may be a dollar sign
    }


@contextmanager
def canvas(text: str = "", font: Path | None = None, *, size: float = 8.0, any_font: bool = False) -> Iterator[None]:
    """Within this context, matplotlib uses this project's style instead of the user's, and has fonts for `text`.

    `font`: preferred font; by default, a serif font that comes with matplotlib. `size`: font size in points. Create
    and save figures inside the context. Raises ConfigError if no font has all characters of `text`, unless `any_font`
    is true: then missing characters are drawn as boxes.
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
    """Return the files to write: `out`, or a PNG and an SVG if it has no suffix. `part` is added to their names.

    Raises ConfigError for an unknown suffix.
    """
    if out.suffix not in ("", *_DATED):
        raise ConfigError(
            f"pictures are written as .png, .svg or .pdf, not {out.suffix}: give --out one of these suffixes, or none"
        )
    stem = out.stem + (f".{part}" if part else "")
    return [out.with_name(stem + suffix) for suffix in ([out.suffix] if out.suffix else SUFFIXES)]


def save(figure: Figure, out: Path, part: str = "") -> list[Path]:
    """Write a figure to the files of `out`, on a white background; the same figure always gives the same bytes.

    Raises WriteError if a file cannot be written; no half-written file is left.
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
    """Return a figure as an SVG element to embed in a page; the same figure always gives the same text.

    Colours listed in `_ON_A_PAGE` become the page's CSS variables. Letters are outlines, so that text has the same
    width on every machine. Coordinates are rounded to a hundredth of a point; unused names and spaces are removed.
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
    """Write the numbers behind a picture as JSON next to it, to six digits; NaN and infinities become null."""
    path = out.with_suffix(".json")
    short = json.loads(
        json.dumps(numbers), parse_float=lambda text: float(f"{float(text):.6g}"), parse_constant=lambda _: None
    )
    write_file(path, json_bytes(json.dumps(short, indent=1, ensure_ascii=False) + "\n"))
    return path


def place(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes of this size at this place, in inches from the figure's upper left corner."""
    whole_width, whole_height = figure.get_size_inches()
    box = (left / whole_width, 1 - (top + height) / whole_height, width / whole_width, height / whole_height)
    return figure.add_axes(box)


def inches(axes: Axes) -> tuple[float, float]:
    """Return the width and height of axes, in inches."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    box, (width, height) = axes.get_position(), figure.get_size_inches()
    return float(box.width * width), float(box.height * height)


def width_of(text: str) -> float:
    """Return the width of a text in the canvas's font size, in inches."""
    lines = text.split("\n")
    font = FontProperties(size=rcParams["font.size"])
    return max(text_to_path.get_text_width_height_descent(line, font, ismath=False)[0] for line in lines) / INCH
