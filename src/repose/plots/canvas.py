"""What all pictures share: a style, on white; files of the same bytes each time; no display and no global state."""

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repose.system.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444")
"""Okabe and Ito's colours, which the colour-blind can tell apart, less the yellow that is hard to see on white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#666666"
SUFFIXES = (".png", ".svg")
INCH = 72.0
"""Points."""

_STYLE: dict[str, Any] = {
    "figure.dpi": 150,
    "savefig.dpi": 150,
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "lines.linewidth": 1.4,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "repose",  # ids that would otherwise be random
    "text.parse_math": False,  # a token may be a dollar sign
}


def require_matplotlib() -> None:
    """Raises ConfigError where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ConfigError("pictures need matplotlib: pip install 'repose-nmt[plot]'") from error


@contextmanager
def canvas(text: str = "", font: Path | None = None, changes: Mapping[str, Any] | None = None) -> Iterator[None]:
    """While open, matplotlib draws in this project's style, whatever its user's settings, and with fonts for `text`.

    `changes`: settings of matplotlib that differ from the style. Figures must be made and saved inside. Raises
    ConfigError without matplotlib or a font for `text`.
    """
    require_matplotlib()
    from matplotlib import style

    from repose.plots.fonts import families

    with style.context(["default", {**_STYLE, "font.family": families(text, font), **(changes or {})}]):
        yield


def files_of(out: Path, part: str = "") -> list[Path]:
    """The files that `out` asks for: itself, or without suffix a PNG and an SVG; with `part` in their names.

    Raises ConfigError for another suffix.
    """
    if out.suffix not in ("", *SUFFIXES):
        raise ConfigError(
            f"pictures are written as .png or .svg, not {out.suffix}: give --out one of these, or neither"
        )
    stem = out.with_suffix("").name + (f".{part}" if part else "")
    return [out.with_name(stem + suffix) for suffix in ([out.suffix] if out.suffix else SUFFIXES)]


def save(figure: "Figure", out: Path, part: str = "") -> list[Path]:
    """Write a figure to the files of `out`; the same figure gives the same bytes."""
    paths = files_of(out, part)
    out.parent.mkdir(parents=True, exist_ok=True)
    for path in paths:
        nothing = {"Software": None} if path.suffix == ".png" else {"Date": None, "Creator": None}
        figure.savefig(path, metadata=nothing)
    return paths


def svg(figure: "Figure") -> str:
    """A figure as an SVG element, without what only a file needs; the same figure gives the same text."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    whole = written.getvalue()
    return whole[whole.index("<svg") :].rstrip() + "\n"


def save_numbers(numbers: Mapping[str, object], out: Path) -> Path:
    """Write the numbers behind a picture as JSON beside it, with six digits; null for what is no number."""
    path = out.with_suffix("").with_name(out.with_suffix("").name + ".json")
    out.parent.mkdir(parents=True, exist_ok=True)
    short = json.loads(
        json.dumps(numbers), parse_float=lambda text: float(f"{float(text):.6g}"), parse_constant=lambda _: None
    )
    path.write_text(json.dumps(short, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def place(figure: "Figure", left: float, top: float, width: float, height: float) -> "Axes":
    """Axes of a size and place in inches, from the figure's upper left corner."""
    whole_width, whole_height = figure.get_size_inches()
    box = (left / whole_width, 1 - (top + height) / whole_height, width / whole_width, height / whole_height)
    return figure.add_axes(box)
