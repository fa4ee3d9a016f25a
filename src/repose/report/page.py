"""A report as one self-contained HTML page: it needs no network and no other file, and works without scripts."""

import base64
import difflib
import hashlib
import re
from collections.abc import Callable, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from itertools import groupby, pairwise
from typing import Any

from repose.report.content import Picture, Report, Table, slug, unused
from repose.system.errors import of_extra
from repose.system.terminal import printable

Pieces = tuple[tuple[str, bool], ...]
"""A text in pieces, each with True if it differs from the other text."""

# In scripts without spaces, each character is a token. Korean has spaces, so Hangul is not in this range.
_CHARACTER = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
_MARK = r"!-/:-@\[-`{-~¡«·»¿‐-‧‰-⁞"
_WORD = rf"[^\s{_CHARACTER}{_MARK}]"
_TOKENS = re.compile(rf"[{_CHARACTER}]|{_WORD}+(?:['’\-.,]{_WORD}+)*|\s+|.", re.DOTALL)
_REST = re.compile(r"(.+?)(\s*[±(].*)?", re.DOTALL)
_NARROW = re.compile(r"[\s.,()]")
_CODE = re.compile("`([^`]+)`")  # splits a text so that every second piece was between backticks
_SIZE = re.compile(r"<svg[^>]*?\sviewBox=\"0 0 ([\d.]+) [\d.]+\"")
_ID = re.compile(r"(\bid=\"|href=\"#|url\(#)")
_POINT = 96 / 72  # in CSS pixels
_SPACES = str.maketrans("\t\n\r", "   ")
_SHORT = 28  # longest text (in letters) of a cell whose lines never break


def write_page(report: Report) -> str:
    """Return the whole page. Raises ConfigError if jinja2 is not installed."""
    return _template().render(report=report, anchor=_anchors(report))


@cache
def _template() -> Any:
    with of_extra("report", "a report as a page needs jinja2"):
        import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_visible
    )
    environment.globals |= {
        "digest": lambda script: base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "split": split,
        "tail_widths": tail_widths,
        "in_blocks": in_blocks,
        "new_set": set,
        "compare": differences,
        "inline_svg": _inline_svg,
        "pieces_of": _CODE.split,
        "short": _SHORT,
    }
    return environment.from_string(files("repose.report").joinpath("page.html").read_text(encoding="utf-8"))


def _visible(value: object) -> object:
    """Make control characters of a text visible; leave HTML (a subclass of str) as it is."""
    return printable(value.translate(_SPACES)) if type(value) is str else value


def in_blocks(table: Table) -> bool:
    """Return whether consecutive rows begin with the same text, so that the page separates such blocks of rows."""
    return any(one[0].text == other[0].text for one, other in pairwise(table.rows))


def tail_widths(table: Table) -> list[float]:
    """Return, per column, the largest width in digits of what follows a number: deviation and keys of notes."""
    return [
        max(
            sum(0.5 if _NARROW.match(char) else 1.0 for char in split(cell.text)[1])
            + sum(0.75 * len(key) + 0.25 for key in table.keys_of(cell))
            for cell in column
        )
        for column in zip(*table.rows, strict=True)
    ]


def split(text: str) -> tuple[str, str]:
    """Split a cell's text into number and rest, such as `34.2` and ` ± 0.3`; a leading hyphen becomes a minus."""
    found = _REST.fullmatch(re.sub(r"^-(?=[\d.])", "−", text))
    return (found[1], found[2] or "") if found else (text, "")


def differences(one: str, other: str) -> tuple[Pieces, Pieces]:
    """Return two texts in pieces, marking words (or characters, in scripts without spaces) that only one has."""
    left, right = _TOKENS.findall(one), _TOKENS.findall(other)
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    changed: tuple[set[int], set[int]] = (set(), set())
    for kind, i, i_end, j, j_end in matcher.get_opcodes():
        if kind != "equal":
            changed[0].update(range(i, i_end))
            changed[1].update(range(j, j_end))
    return _pieces(left, changed[0]), _pieces(right, changed[1])


def _pieces(tokens: Sequence[str], changed: set[int]) -> Pieces:
    """Join neighbouring tokens with the same mark. Spaces are marked between two marked words only."""
    marks = [index in changed and not token.isspace() for index, token in enumerate(tokens)]
    for index, token in enumerate(tokens):
        if token.isspace() and 0 < index < len(tokens) - 1:
            marks[index] = marks[index - 1] and marks[index + 1]
    runs = groupby(zip(tokens, marks, strict=True), key=lambda pair: pair[1])
    return tuple(("".join(token for token, _ in run), differs) for differs, run in runs)


def _anchors(report: Report) -> Callable[[object], str]:
    """Return a function from a part of the report to its anchor, the target of links. Anchors are unique, and stable as
    long as titles and ids are."""
    names = {} if report.picture is None else {id(report.picture): f"picture-{report.picture.id}"}
    for section in report.sections:
        parts: list[tuple[object, str]] = [(section, f"section-{section.title}")]
        parts += [(table, f"table-{table.id}") for table in section.tables]
        parts += [(picture, f"picture-{picture.id}") for picture in section.pictures]
        parts += [(comparison, f"sentences-{comparison.id}") for comparison in section.comparisons]
        for part, wanted in parts:
            names[id(part)] = unused(slug(wanted), names.values())
    return lambda part: names[id(part)]


def _inline_svg(picture: Picture, anchor: str) -> str:
    """Return the picture as an element of the page: no wider than it was drawn, with ids that no other picture has."""
    svg = _ID.sub(lambda found: f"{found[1]}{anchor}-", picture.svg)
    found = _SIZE.search(svg)
    assert found, "an SVG picture has a viewBox from 0 0"
    width = round(float(found[1]) * _POINT)
    sizes = f"max-width: {width}px; min-width: {int(0.72 * width)}px; "
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2).replace('style="', f'style="{sizes}', 1)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(printable(picture.description))}"', 1)
