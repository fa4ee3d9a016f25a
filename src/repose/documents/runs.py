"""Runs of office files: pieces of text with the same formatting.

Programs split text into more runs than a reader sees, at spelling checks for example. So adjacent runs with the same
formatting are treated as one. The formatting of most of a paragraph's letters is the paragraph's own. Runs with other
formatting are marks in it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from repose.documents.segment import Close, Open, Piece, Placed, Point, Text, is_number, is_sign, raised, sign
from repose.documents.xml_source import Element, Letters, Xml, escape

_LINE_BREAKS = re.compile(r"[\r\n]+")


class Run(NamedTuple):
    """A run of the document. Runs are compared by identity (`is`)."""

    properties: str
    """Its formatting, as XML."""


Raw: TypeAlias = tuple[tuple[Element | str, Run | None], ...]
"""XML that stays as it is: pieces, each with the run that contains it, if any."""


class RunLetters(NamedTuple):
    """Letters of a run, with the run's formatting."""

    text: str
    properties: str
    raw: Raw
    is_raised: bool
    """Whether the letters are raised or lowered."""


def letters_of(text: Element) -> str:
    """Return the letters of a run's text. Line breaks become spaces, as programs show them."""
    return _LINE_BREAKS.sub(" ", "".join(node.text for node in text.children if isinstance(node, Letters)))


def own_looks(atoms: Iterable[object]) -> str:
    """Return the formatting of most letters."""
    looks: Counter[str] = Counter()
    for atom in atoms:
        if isinstance(atom, RunLetters) and not (atom.is_raised and is_number(atom.text)):
            looks[atom.properties] += len(atom.text)
    return max(looks, key=lambda properties: looks[properties], default="")


def _bounds_range(point: Point) -> bool:
    """Return whether a bookmark or a comment's range begins or ends at a point.

    Inside a mark, such a point could move away from the other end of its range.
    """
    nodes = [node for node, run in point.source if run is None]  # type: ignore[attr-defined]
    return any(isinstance(node, Element) and node.name.endswith(("Start", "End")) for node in nodes)


def marked(atoms: Iterator[RunLetters | Open | Close | Point], own: str) -> Iterator[Piece]:
    """Yield a paragraph's pieces. Adjacent runs with the same formatting become a mark, unless it is `own`.

    The source of such a mark is the formatting; that of all other markup is `Raw`.
    """
    looks: str | None = None
    for atom in atoms:
        if isinstance(atom, RunLetters) and atom.is_raised and atom.properties != own and is_number(atom.text):
            atom = raised(atom.raw, atom.text)
        elif isinstance(atom, RunLetters) and atom.properties != own and is_sign(atom.text):
            atom = sign(atom.raw, atom.text)
        wanted = atom.properties if isinstance(atom, RunLetters) and atom.properties != own else None
        if looks is not None and wanted != looks and (not isinstance(atom, Point) or _bounds_range(atom)):
            yield Close(looks)
            looks = None
        if wanted is not None and looks is None:
            yield Open(wanted)
            looks = wanted
        yield Text(atom.text) if isinstance(atom, RunLetters) else atom
    if looks is not None:
        yield Close(looks)


class Runs:
    """Writes the runs of a paragraph. `tag`: its start tag, whose prefix is used for new elements, too. `attributes`:
    attributes of text elements."""

    def __init__(self, xml: Xml, tag: str, attributes: str, changed: dict[int, str]) -> None:
        self._prefix = tag[1:].split(">")[0].split()[0].removesuffix("p")
        self._xml, self._attributes, self._changed = xml, attributes, changed

    def written(self, placed: Placed, own: str) -> Iterator[str]:
        """Yield a paragraph's runs, in pieces. `own`: the paragraph's formatting.

        Adjacent pieces from one run stay in one run, since its formatting may be long.
        """
        within: Run | None = None
        for piece, run in self._pieces(placed, own):
            if run is not within:
                yield self._end(within) + self._begin(run)
                within = run
            yield piece
        yield self._end(within)

    def _pieces(self, placed: Placed, own: str) -> Iterator[tuple[str, Run | None]]:
        """Yield pieces of XML, each with the run to write it in; None for whole runs and for pieces outside runs."""
        looks = [own]
        text = ""
        for piece in placed:
            if isinstance(piece, Text):
                text += piece.text
                continue
            if text:
                yield self._run(text, looks[-1]), None
            text = ""
            if not isinstance(piece.source, str):
                yield from ((self._kept(node), run) for node, run in piece.source)  # type: ignore[attr-defined]
            elif isinstance(piece, Open):
                looks.append(piece.source)
            else:
                looks.pop()
        if text:
            yield self._run(text, looks[-1]), None

    def _run(self, text: str, properties: str) -> str:
        p = self._prefix
        return f"<{p}r>{properties}<{p}t{self._attributes}>{escape(text)}</{p}t></{p}r>"

    def _kept(self, node: Element | str) -> str:
        return node if isinstance(node, str) else self._xml.written(node, self._changed)

    def _begin(self, run: Run | None) -> str:
        return "" if run is None else f"<{self._prefix}r>{run.properties}"

    def _end(self, run: Run | None) -> str:
        return "" if run is None else f"</{self._prefix}r>"
