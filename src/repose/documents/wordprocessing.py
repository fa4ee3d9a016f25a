"""Office Open XML text (.docx): paragraphs of text, notes, tables, text boxes, headers and footers.

Word cuts a sentence into runs, one for each spelling check, say. Runs of the same looks are one; the looks of most of a
paragraph's letters are its own, and runs of others are marks in it.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from repose.documents.office import OfficeDocument
from repose.documents.segment import Close, Open, Piece, Placed, Point, Text, is_number, raised
from repose.documents.xml_source import Element, Letters, Xml, escape

_MAIN = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",
)
_MATH = (
    "http://schemas.openxmlformats.org/officeDocument/2006/math",
    "http://purl.oclc.org/ooxml/officeDocument/math",
)
_AROUND = frozenset(["w:hyperlink", "w:ins", "w:moveTo", "w:smartTag", "w:customXml", "w:bdo", "w:dir", "w:fldSimple"])
"""Elements around runs of the sentence."""
_PROPERTIES = frozenset(["w:smartTagPr", "w:customXmlPr", "w:fldData"])
"""Elements that those begin with, before all runs."""
_FORM = frozenset(["w:sdtPr", "w:sdtEndPr"])
"""What stands before the content of a form's field."""
_LINE_BREAKS = re.compile(r"[\r\n]+")
_LEFT_OUT = frozenset(["w:proofErr", "w:lastRenderedPageBreak", "w:softHyphen", "w:pPr", "w:rPr"])
_SHOWN = frozenset(
    [
        "w:tab",
        "w:ptab",
        "w:br",
        "w:cr",
        "w:drawing",
        "w:pict",
        "w:object",
        "w:sym",
        "w:footnoteRef",
        "w:endnoteRef",
        "w:pgNum",
        "m:oMath",
        "m:oMathPara",
    ]
)
_SEPARATING = frozenset(["w:tab", "w:ptab", "w:br", "w:cr"])


class _Run(NamedTuple):
    """One of the document, told from others by `is`."""

    properties: str
    """Its looks (w:rPr), as they are written."""


_Raw: TypeAlias = tuple[tuple[Element | str, _Run | None], ...]
"""XML that stays, each piece with the run that it stands in, if it is in one."""


class _Looks(NamedTuple):
    """Of the letters in a mark."""

    properties: str


class _Letters(NamedTuple):
    text: str
    properties: str
    raw: _Raw
    is_raised: bool
    """Or lowered."""


class _Bound(NamedTuple):
    """Of a field: an instruction stands between "begin" and "separate", and what it shows between that and "end"."""

    which: str
    raw: _Raw


_Atom: TypeAlias = _Letters | _Bound | Open | Close | Point


class _WordProcessing:
    what = "Word document (.docx)"
    members = re.compile(r"word/(?:document|header|footer|footnotes|endnotes)\d*\.xml")
    prefixes = dict.fromkeys(_MAIN, "w") | dict.fromkeys(_MATH, "m")
    attributes = frozenset(["fldCharType", "val"])
    paragraphs = frozenset(["w:p"])
    skipped = frozenset(["w:del", "w:moveFrom", "w:pPr", "w:rPr"]) | _PROPERTIES | _FORM
    collapse = False

    def pieces(self, xml: Xml, paragraph: Element) -> list[Piece]:
        """Of a paragraph."""
        atoms = list(_atoms(xml, paragraph))
        return list(_marked(_without_fields(atoms), _own_looks(atoms)))

    def written(self, xml: Xml, paragraph: Element, placed: Placed, changed: dict[int, str]) -> Iterator[str]:
        """The translated paragraph."""
        tag = xml.tag(paragraph)
        yield tag
        yield from (xml.written(child, {}) for child in paragraph.elements() if child.name == "w:pPr")
        runs = _Runs(xml, tag[1:].split(">")[0].split()[0].removesuffix("p"), changed)
        own = _own_looks(list(_atoms(xml, paragraph)))
        yield from runs.written(placed, own)
        yield xml.end_tag(paragraph)


def _atoms(xml: Xml, parent: Element) -> Iterator[_Atom]:
    begins = _begins(parent)
    for child in (child for child in parent.elements() if child.start >= begins):
        if child.name == "w:r":
            yield from _of_run(xml, child)
        elif child.name in _AROUND and child.children:
            yield Open(((xml.slice(child.start, _begins(child)), None),))
            yield from _atoms(xml, child)
            yield Close(((xml.slice(child.closes, child.end), None),))
        elif child.name == "w:sdt" and (content := _content(child)) is not None:
            yield Open(((xml.slice(child.start, content.inner), None),))
            yield from _atoms(xml, content)
            yield Close(((xml.slice(content.closes, child.end), None),))
        elif child.name not in _LEFT_OUT:
            yield Point(((child, None),), child.name in _SHOWN)


def _begins(element: Element) -> int:
    """Where an element's content begins, after its properties."""
    first = next(element.elements(), None)
    return first.end if first is not None and first.name in _PROPERTIES else element.inner


def _content(element: Element) -> Element | None:
    """Of a form's field, if there is nothing but its properties before it."""
    first = next((child for child in element.elements() if child.name not in _FORM), None)
    return first if first is not None and first.name == "w:sdtContent" and first.children else None


def _of_run(xml: Xml, run: Element) -> Iterator[_Atom]:
    looks = next((child for child in run.elements() if child.name == "w:rPr"), None)
    properties = "" if looks is None else xml.written(looks, {})
    is_raised = looks is not None and any(map(_raises, looks.elements()))
    around = _Run(properties)
    for child in run.elements():
        raw: _Raw = ((child, around),)
        if child.name == "w:t":
            text = "".join(node.text for node in child.children if isinstance(node, Letters))
            text = _LINE_BREAKS.sub(" ", text)  # as Word shows them
            yield _Letters(text, properties, raw, is_raised)
        elif child.name == "w:noBreakHyphen":
            yield _Letters("\N{NON-BREAKING HYPHEN}", properties, raw, is_raised)
        elif child.name == "w:fldChar":
            yield _Bound(child.attribute("fldCharType"), raw)
        elif child.name not in _LEFT_OUT:
            yield Point(raw, child.name in _SHOWN, child.name in _SEPARATING)


def _raises(look: Element) -> bool:
    return look.name == "w:vertAlign" and look.attribute("val") in ("superscript", "subscript")


def _own_looks(atoms: Sequence[_Atom]) -> str:
    """Those of most letters."""
    looks: Counter[str] = Counter()
    for atom in atoms:
        if isinstance(atom, _Letters) and not (atom.is_raised and is_number(atom.text)):
            looks[atom.properties] += len(atom.text)
    return max(looks, key=lambda properties: looks[properties], default="")


def _fields(atoms: Sequence[_Atom]) -> dict[int, tuple[int, int]]:
    """Of each field that begins, shows and ends in one paragraph and element: by its place, those of the others."""
    fields: dict[int, tuple[int, int]] = {}
    begun: list[list[int]] = [[]]  # by element
    shows: dict[int, int] = {}
    for place, atom in enumerate(atoms):
        match atom:
            case Open():
                begun.append([])
            case Close():
                begun.pop()
            case _Bound("begin"):
                begun[-1].append(place)
            case _Bound("separate") if begun[-1]:
                shows.setdefault(begun[-1][-1], place)
            case _Bound("end") if begun[-1]:
                start = begun[-1].pop()
                if start in shows:
                    fields[start] = shows[start], place
    return fields


def _torn(atoms: Sequence[_Atom], fields: dict[int, tuple[int, int]]) -> dict[int, int]:
    """Of each field of the paragraph that begins and ends in different elements, as of two tracked changes: the places
    of the first and the last of the elements that hold it."""
    whole = {place for start, others in fields.items() for place in (start, *others)}
    found: list[tuple[int, int]] = []
    begun: list[int] = []
    outermost: list[int] = [0] * len(atoms)
    depth = 0
    for place, atom in enumerate(atoms):
        outermost[place] = outermost[place - 1] if depth else place
        depth += isinstance(atom, Open) - isinstance(atom, Close)
        if isinstance(atom, _Bound) and place not in whole:
            if atom.which == "begin":
                begun.append(place)
            elif atom.which == "end" and begun:
                found.append((outermost[begun.pop()], place))
    firsts = [*sorted(set(outermost)), len(atoms)]
    torn: dict[int, int] = {}
    done = -1
    for first, last in sorted(found):
        end = firsts[bisect_right(firsts, last)] - 1
        if first <= done:
            first = max(torn)
        torn[first] = done = max(done, end)
    return torn


def _without_fields(atoms: Sequence[_Atom]) -> Iterator[_Letters | Open | Close | Point]:
    """A field is markup around what it shows; one in several elements stays as a whole; of others, which end elsewhere,
    the parts are points."""
    fields = _fields(atoms)
    torn = _torn(atoms, fields)
    ends: set[int] = set()
    place = 0
    while place < len(atoms):
        atom = atoms[place]
        if place in torn:
            yield Point(tuple(raw for part in atoms[place : torn[place] + 1] for raw in _raw(part)), shows=True)
            place = torn[place]
        elif place in fields:
            shows, end = fields[place]
            yield Open(tuple(raw for part in atoms[place : shows + 1] for raw in _raw(part)))
            ends.add(end)
            place = shows
        elif isinstance(atom, _Bound):
            yield Close(atom.raw) if place in ends else Point(atom.raw, shows=False)
        else:
            yield atom
        place += 1


def _raw(atom: _Atom) -> _Raw:
    if isinstance(atom, _Letters | _Bound):
        return atom.raw
    return atom.source  # type: ignore[return-value]


def _bounds_range(point: Point) -> bool:
    """Whether a bookmark or a comment's range begins or ends there. Within a mark, it would move without the other."""
    nodes = [node for node, run in point.source if run is None]  # type: ignore[attr-defined]
    return any(isinstance(node, Element) and node.name.endswith(("Start", "End")) for node in nodes)


def _marked(atoms: Iterator[_Letters | Open | Close | Point], own: str) -> Iterator[Piece]:
    """The paragraph's pieces: runs of one look after another are one mark, those of its own look none."""
    looks: str | None = None
    for atom in atoms:
        if isinstance(atom, _Letters) and atom.is_raised and atom.properties != own and is_number(atom.text):
            atom = raised(atom.raw, atom.text)
        wanted = atom.properties if isinstance(atom, _Letters) and atom.properties != own else None
        if looks is not None and wanted != looks and (not isinstance(atom, Point) or _bounds_range(atom)):
            yield Close(_Looks(looks))
            looks = None
        if wanted is not None and looks is None:
            yield Open(_Looks(wanted))
            looks = wanted
        yield Text(atom.text) if isinstance(atom, _Letters) else atom
    if looks is not None:
        yield Close(_Looks(looks))


class _Runs:
    """Writes runs. `prefix`: of the names of elements, as the file has it."""

    def __init__(self, xml: Xml, prefix: str, changed: dict[int, str]) -> None:
        self._xml, self._prefix, self._changed = xml, prefix, changed

    def written(self, placed: Placed, own: str) -> Iterator[str]:
        """A paragraph's. What stood in one run, with nothing between, stays in one: its looks may be long."""
        within: _Run | None = None
        for piece, run in self._pieces(placed, own):
            if run is not within:
                yield self._end(within) + self._begin(run)
                within = run
            yield piece
        yield self._end(within)

    def _pieces(self, placed: Placed, own: str) -> Iterator[tuple[str, _Run | None]]:
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
        w = self._prefix
        return f'<{w}r>{properties}<{w}t xml:space="preserve">{escape(text)}</{w}t></{w}r>'

    def _kept(self, node: Element | str) -> str:
        return node if isinstance(node, str) else self._xml.written(node, self._changed)

    def _begin(self, run: _Run | None) -> str:
        return "" if run is None else f"<{self._prefix}r>{run.properties}"

    def _end(self, run: _Run | None) -> str:
        return "" if run is None else f"</{self._prefix}r>"


def read_docx(data: bytes) -> OfficeDocument:
    """Raises DataError for what is no such document, is damaged or unpacks to more than the limits."""
    return OfficeDocument(data, _WordProcessing())
