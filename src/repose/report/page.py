"""A report as one HTML page that needs nothing else: no network, no other file, and nothing to be run."""

import base64
import difflib
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from itertools import groupby, pairwise
from typing import Any

from repose.report.content import Cell, Picture, Report, Table
from repose.system.errors import ConfigError
from repose.system.terminal import printable

Pieces = tuple[tuple[str, bool], ...]
"""A text in pieces, and of each whether it differs from the other text."""

_SCRIPT = """
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0], rows = [...body.rows];
  if (rows.length < 3) continue;
  for (const [column, head] of [...table.tHead.rows[0].cells].entries()) {
    const button = document.createElement("button"), key = row => row.cells[column].dataset.value ?? "";
    const text = row => row.cells[column].textContent, number = head.classList.contains("number");
    const named = (a, b) => text(a).localeCompare(text(b), "en", {numeric: true});
    const before = (a, b) => number ? Number(key(a)) - Number(key(b)) : named(a, b);
    button.append(...head.childNodes);
    button.title = "sort by this column";
    head.append(button);
    button.onclick = () => {
      const next = {ascending: "descending", descending: null}, now = head.getAttribute("aria-sort");
      const order = now === null ? "ascending" : next[now];
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      const known = rows.filter(row => !number || key(row) !== ""), unknown = rows.filter(row => !known.includes(row));
      if (order !== null) {
        head.setAttribute("aria-sort", order);
        known.sort((a, b) => order === "ascending" ? before(a, b) : before(b, a));
      }
      table.classList.toggle("sorted", order !== null);
      body.append(...(order === null ? rows : [...known, ...unknown]));
    };
  }
}
"""
"""Columns are sorted by a click on their heads: up, down, and as they were; cells without a number stay last. Without
it, the page lacks nothing else."""

# Scripts that are written without spaces: a character each. Korean has spaces, and Hangul is not among them.
_CHARACTER = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
_MARK = r"!-/:-@\[-`{-~¡«·»¿‐-‧‰-⁞"
_WORD = rf"[^\s{_CHARACTER}{_MARK}]"
_TOKENS = re.compile(rf"[{_CHARACTER}]|{_WORD}+(?:['’\-.,]{_WORD}+)*|\s+|.", re.DOTALL)
_REST = re.compile(r"(.+?)(\s*[±(].*)?", re.DOTALL)
_NARROW = re.compile(r"[\s.,()]")
_CODE = re.compile("`([^`]+)`")  # every second piece is what stands between backticks
_SIZE = re.compile(r"<svg[^>]*?\sviewBox=\"0 0 ([\d.]+) [\d.]+\"")
_ID = re.compile(r"(\bid=\"|href=\"#|url\(#)")
_POINT = 96 / 72  # CSS pixels
_SPACES = str.maketrans("\t\n\r", "   ")
_SHORT = 24  # letters of a text in a cell that is not broken into lines


@dataclass(frozen=True)
class _Mark:
    key: str
    first: bool
    """Whether it is the first of its note, which the note leads back to."""


@dataclass(frozen=True)
class _Cell:
    """A cell whose number, deviation and marks stand below those of the rows above, whether they have such or not."""

    figure: str
    rest: str
    marks: tuple[_Mark, ...]
    tail_width: float
    """Of the deviation and the marks in the column, in digits; 0 where it has none."""
    value: float | None
    classes: str


@dataclass(frozen=True)
class _Row:
    cells: tuple[_Cell, ...]
    apart: bool
    """Whether it begins another block of rows."""


@dataclass(frozen=True)
class _Layout:
    rows: tuple[_Row, ...]
    marked: frozenset[str]
    """Keys of notes that some cell has."""


def write_page(report: Report) -> str:
    """The whole page. Raises ConfigError where jinja2 is not installed."""
    script_hash = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    return _template().render(
        report=report,
        script_hash=f"sha256-{script_hash}",  # the one script that a browser may run
        script=_SCRIPT,
        anchor=_anchors(report),
        lay_out=lay_out,
        compare=differences,
        inline_svg=_inline_svg,
        pieces_of=_CODE.split,
    )


@cache
def _template() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise ConfigError("a report as a page needs jinja2: pip install 'repose-nmt[report]'") from error

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_visible
    )
    return environment.from_string(files("repose.report").joinpath("page.html").read_text(encoding="utf-8"))


def _visible(value: object) -> object:
    """Text with its control characters written out; not of what is HTML already."""
    return printable(value.translate(_SPACES)) if type(value) is str else value


def lay_out(table: Table) -> _Layout:
    """The cells of a table, its numeric columns such that figures stand below figures."""
    columns = zip(*table.rows, strict=True) if table.rows else [()] * len(table.columns)
    tails = [_tail_width(cells) if head.numeric else 0.0 for head, cells in zip(table.columns, columns, strict=True)]
    firsts = [row[0].text for row in table.rows]
    blocks = any(one == other for one, other in pairwise(firsts))
    rows, seen = [], set[str]()
    for index, row in enumerate(table.rows):
        cells = []
        for cell, head, tail_width in zip(row, table.columns, tails, strict=True):
            figure, rest = _split(cell.text) if head.numeric else (cell.text, "")
            marks = tuple(_Mark(key, key not in seen) for key in cell.notes)
            seen.update(cell.notes)
            kind = "number" if head.numeric else "short" if len(cell.text) <= _SHORT else ""
            classes = " ".join(filter(None, (kind, "best" * cell.best)))
            cells.append(_Cell(figure, rest, marks, tail_width, cell.value, classes))
        rows.append(_Row(tuple(cells), blocks and index > 0 and firsts[index] != firsts[index - 1]))
    return _Layout(tuple(rows), frozenset(seen))


def _tail_width(cells: Sequence[Cell]) -> float:
    """How many digits wide what follows the figures of a column is at most."""
    return max(
        (
            sum(0.5 if _NARROW.match(char) else 1.0 for char in _split(cell.text)[1])
            + sum(0.75 * len(key) + 0.25 for key in cell.notes)
            for cell in cells
        ),
        default=0.0,
    )


def _split(text: str) -> tuple[str, str]:
    """`34.2` and ` ± 0.3` of a cell; a minus is a minus."""
    found = _REST.fullmatch(re.sub(r"^-(?=[\d.])", "−", text))
    return (found[1], found[2] or "") if found else (text, "")


def differences(one: str, other: str) -> tuple[Pieces, Pieces]:
    """Two texts in pieces, words that only one of them has marked; characters in scripts without spaces."""
    left, right = _TOKENS.findall(one), _TOKENS.findall(other)
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    changed: tuple[set[int], set[int]] = (set(), set())
    for kind, i, i_end, j, j_end in matcher.get_opcodes():
        if kind != "equal":
            changed[0].update(range(i, i_end))
            changed[1].update(range(j, j_end))
    return _pieces(left, changed[0]), _pieces(right, changed[1])


def _pieces(tokens: Sequence[str], changed: set[int]) -> Pieces:
    """Tokens joined to runs; spaces go with the words around them, and are not marked at a run's ends."""
    marks = [index in changed and not token.isspace() for index, token in enumerate(tokens)]
    for index, token in enumerate(tokens):
        if token.isspace() and 0 < index < len(tokens) - 1:
            marks[index] = marks[index - 1] and marks[index + 1]
    runs = groupby(zip(tokens, marks, strict=True), key=lambda pair: pair[1])
    return tuple(("".join(token for token, _ in run), differs) for differs, run in runs)


def _anchors(report: Report) -> Callable[[object], str]:
    """Names of the places that links lead to, no two the same; they stay while titles and ids do."""
    parts: list[tuple[object, str]] = []
    for section in report.sections:
        parts.append((section, f"section-{section.title}"))
        parts += [(table, f"table-{table.id}") for table in section.tables]
        parts += [(picture, f"picture-{picture.id}") for picture in section.pictures]
        parts += [(comparison, f"sentences-{comparison.id}") for comparison in section.comparisons]
    names: dict[int, str] = {}
    for part, wanted in parts:
        plain = re.sub(r"\W+", "-", wanted.lower()).strip("-")
        same = [name for name in names.values() if re.fullmatch(rf"{re.escape(plain)}(-\d+)?", name)]
        names[id(part)] = f"{plain}-{len(same) + 1}" if same else plain
    return lambda part: names[id(part)]


def _inline_svg(picture: Picture, anchor: str) -> str:
    """The picture as an element of the page: not wider than it was drawn, with ids that no other picture has."""
    svg = _ID.sub(lambda found: f"{found[1]}{anchor}-", picture.svg)
    found = _SIZE.search(svg)
    assert found, "an SVG picture has a viewBox from 0 0"
    width = round(float(found[1]) * _POINT)
    sizes = f"max-width: {width}px; min-width: {int(0.72 * width)}px; "
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2).replace('style="', f'style="{sizes}', 1)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(printable(picture.description))}"', 1)
