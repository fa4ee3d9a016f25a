"""Text of office files in runs: pieces of one look, of which programs make more than one sees, one for each spelling
check, say. Runs of the same looks are one; the looks of most of a paragraph's letters are its own, and runs of others
are marks in it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from repose.documents.segment import Close, Open, Piece, Placed, Point, Text, is_number, is_sign, raised, sign
from repose.documents.xml_source import Element, Letters, Xml, escape

_LINE_BREAKS = re.compile(r"[\r\n]+")


class Run(NamedTuple):
    """A run of the document, told from others by `is`."""

    properties: str
    """Its looks, as they are written."""


Raw: TypeAlias = tuple[tuple[Element | str, Run | None], ...]
"""XML that stays, each piece with the run that it stands in, if it is in one."""


class _Looks(NamedTuple):
    """The looks of the letters in a mark."""

    properties: str


class RunLetters(NamedTuple):
    """Letters of a run, with its looks."""

    text: str
    properties: str
    raw: Raw
    is_raised: bool
    """Whether they are raised or lowered."""


def letters_of(text: Element) -> str:
    """The letters of a run's text, with line breaks as the programs show them."""
    return _LINE_BREAKS.sub(" ", "".join(node.text for node in text.children if isinstance(node, Letters)))


def own_looks(atoms: Iterable[object]) -> str:
    """The looks of most letters."""
    looks: Counter[str] = Counter()
    for atom in atoms:
        if isinstance(atom, RunLetters) and not (atom.is_raised and is_number(atom.text)):
            looks[atom.properties] += len(atom.text)
    return max(looks, key=lambda properties: looks[properties], default="")


def _bounds_range(point: Point) -> bool:
    """Whether a bookmark or a comment's range begins or ends there. Within a mark, it would move without the other."""
    nodes = [node for node, run in point.source if run is None]  # type: ignore[attr-defined]
    return any(isinstance(node, Element) and node.name.endswith(("Start", "End")) for node in nodes)


def marked(atoms: Iterator[RunLetters | Open | Close | Point], own: str) -> Iterator[Piece]:
    """The paragraph's pieces: runs of one look after another are one mark, those of its own look none."""
    looks: str | None = None
    for atom in atoms:
        if isinstance(atom, RunLetters) and atom.is_raised and atom.properties != own and is_number(atom.text):
            atom = raised(atom.raw, atom.text)
        elif isinstance(atom, RunLetters) and atom.properties != own and is_sign(atom.text):
            atom = sign(atom.raw, atom.text)
        wanted = atom.properties if isinstance(atom, RunLetters) and atom.properties != own else None
        if looks is not None and wanted != looks and (not isinstance(atom, Point) or _bounds_range(atom)):
            yield Close(_Looks(looks))
            looks = None
        if wanted is not None and looks is None:
            yield Open(_Looks(wanted))
            looks = wanted
        yield Text(atom.text) if isinstance(atom, RunLetters) else atom
    if looks is not None:
        yield Close(_Looks(looks))


class Runs:
    """Writes runs of paragraph `tag`, whose prefix the names of elements have; `attributes`: of the text's."""

    def __init__(self, xml: Xml, tag: str, attributes: str, changed: dict[int, str]) -> None:
        self._prefix = tag[1:].split(">")[0].split()[0].removesuffix("p")
        self._xml, self._attributes, self._changed = xml, attributes, changed

    def written(self, placed: Placed, own: str) -> Iterator[str]:
        """A paragraph's. What stood in one run, with nothing between, stays in one: its looks may be long."""
        within: Run | None = None
        for piece, run in self._pieces(placed, own):
            if run is not within:
                yield self._end(within) + self._begin(run)
                within = run
            yield piece
        yield self._end(within)

    def _pieces(self, placed: Placed, own: str) -> Iterator[tuple[str, Run | None]]:
        """Each with the run that it is to stand in, if it is not one itself."""
        looks = [own]
        text = ""
        for piece in placed:
            if isinstance(piece, Text):
                text += piece.text
                continue
            if text:
                yield self._run(text, looks[-1]), None
            text = ""
            if not isinstance(piece.source, _Looks):
                yield from ((self._kept(node), run) for node, run in piece.source)  # type: ignore[attr-defined]
            elif piece.opens:
                looks.append(piece.source.properties)
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
