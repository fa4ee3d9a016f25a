"""Office Open XML documents (.docx): paragraphs of text, notes, tables, text boxes, headers and footers.

Besides runs (`repose.documents.runs`), paragraphs contain fields and tracked changes.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from repose.data.scripts import has_letters
from repose.documents.office import OfficeDocument
from repose.documents.runs import Raw, Run, RunLetters, Runs, letters_of, marked, own_looks
from repose.documents.segment import MOST_DEPTH, MOST_OF_A_SIGN, Close, End, Open, Piece, Placed, Point, is_sign, sign
from repose.documents.xml_source import Element, Xml

_MAIN = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",
)
_MATH = (
    "http://schemas.openxmlformats.org/officeDocument/2006/math",
    "http://purl.oclc.org/ooxml/officeDocument/math",
)
_AROUND = frozenset(["w:hyperlink", "w:ins", "w:moveTo", "w:smartTag", "w:customXml", "w:bdo", "w:dir", "w:fldSimple"])
"""Elements that enclose runs of the sentence."""
_PROPERTIES = frozenset(["w:smartTagPr", "w:customXmlPr", "w:fldData"])
"""Elements at the start of those in `_AROUND`, before all runs."""
_FORM = frozenset(["w:sdtPr", "w:sdtEndPr"])
"""Elements before the content of a form field."""
_SKIPPED = frozenset(["w:del", "w:moveFrom", "w:pPr", "w:rPr"]) | _PROPERTIES | _FORM
"""Elements whose paragraphs stay as they are."""
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
_ENDS: dict[str, End] = {"w:tab": "column", "w:ptab": "column", "w:br": "line", "w:cr": "line"}
_NO_LOOKS = frozenset(["w:lang", "w:noProof"])
"""Invisible properties of a run: its language, and whether the spelling checker skips it."""


class _Bound(NamedTuple):
    """A boundary of a field: its instruction is between "begin" and "separate", its result from there to "end"."""

    which: str
    raw: Raw


_Atom: TypeAlias = RunLetters | _Bound | Open | Close | Point


class WordDocument(OfficeDocument):
    """A Word document (.docx)."""

    what = "a Word document (.docx)"
    members = re.compile(r"word/(?:document|header|footer|footnotes|endnotes)\d*\.xml")
    prefixes = dict.fromkeys(_MAIN, "w") | dict.fromkeys(_MATH, "m")
    attributes = frozenset(["fldCharType", "val"])
    paragraphs = frozenset(["w:p"])
    collapse = False

    def skips(self, element: Element) -> bool:
        """Return whether an element is deleted text or properties."""
        return element.name in _SKIPPED

    def pieces(self, xml: Xml, paragraph: Element) -> list[Piece]:
        """Return the text and the markup of a paragraph."""
        atoms = list(_atoms(xml, paragraph))
        return list(marked(_without_fields(atoms), own_looks(atoms)))

    def written(self, xml: Xml, paragraph: Element, placed: Placed, changed: dict[int, str]) -> Iterator[str]:
        """Yield the translated paragraph, in pieces."""
        tag = xml.tag(paragraph)
        yield tag
        yield from (xml.written(child, {}) for child in paragraph.elements() if child.name == "w:pPr")
        runs = Runs(xml, tag, ' xml:space="preserve"', changed)
        yield from runs.written(placed, own_looks(_atoms(xml, paragraph)))
        yield xml.end_tag(paragraph)


def _atoms(xml: Xml, parent: Element) -> Iterator[_Atom]:
    begins = _begins(parent)
    for child in (child for child in parent.elements() if child.start >= begins):
        if child.name == "w:r":
            yield from _of_run(xml, child)
        elif child.name in _AROUND and child.children:
            yield from _around(xml, child, child, _begins(child))
        elif child.name == "w:sdt" and (content := _content(child)) is not None:
            yield from _around(xml, child, content, content.inner)
        elif child.name not in _LEFT_OUT:
            yield Point(((child, None),), child.name in _SHOWN)


def _around(xml: Xml, element: Element, content: Element, inner: int) -> Iterator[_Atom]:
    """Yield the atoms of an element around runs. `content`: the element with the runs, which begin at `inner`.

    The element is one point if its text is a sign, or a number that a field shows.
    """
    within = list(_atoms(xml, content))
    text = _short_text(within, 0, len(within))
    if is_sign(text) or (element.name == "w:fldSimple" and _is_value(text)):
        yield sign(((element, None),), text)
        return
    yield Open(((xml.slice(element.start, inner), None),))
    yield from within
    yield Close(((xml.slice(content.closes, element.end), None),))


def _short_text(atoms: Sequence[_Atom], start: int, end: int) -> str:
    """Return the text of some atoms; nothing if it is too long for a sign or a number."""
    if end - start > MOST_OF_A_SIGN:
        return ""
    letters = (atom.text for atom in atoms[start:end] if isinstance(atom, RunLetters))
    text = "".join(piece[: MOST_OF_A_SIGN + 1] for piece in letters)
    return text if len(text) <= MOST_OF_A_SIGN else ""


def _is_value(text: str) -> bool:
    """Return whether a field's result is no word of the sentence, but a page number, say."""
    return bool(text.strip()) and not has_letters(text)


def _begins(element: Element) -> int:
    """Return where an element's content begins, after its properties."""
    first = next(element.elements(), None)
    return first.end if first is not None and first.name in _PROPERTIES else element.inner


def _content(element: Element) -> Element | None:
    """Return the content of a form field, if only the field's properties come before it."""
    first = next((child for child in element.elements() if child.name not in _FORM), None)
    return first if first is not None and first.name == "w:sdtContent" and first.children else None


def _of_run(xml: Xml, run: Element) -> Iterator[_Atom]:
    looks = next((child for child in run.elements() if child.name == "w:rPr"), None)
    properties = "" if looks is None else _properties(xml, looks)
    is_raised = looks is not None and any(map(_raises, looks.elements()))
    around = Run(properties)
    for child in run.elements():
        raw: Raw = ((child, around),)
        if child.name == "w:t":
            yield RunLetters(letters_of(child), properties, raw, is_raised)
        elif child.name == "w:noBreakHyphen":
            yield RunLetters("\N{NON-BREAKING HYPHEN}", properties, raw, is_raised)
        elif child.name == "w:fldChar":
            yield _Bound(child.attribute("fldCharType"), raw)
        elif child.name not in _LEFT_OUT:
            ends = _ENDS.get(child.name, "none")
            yield Point(raw, child.name in _SHOWN, separates=ends != "none", ends=ends)


def _properties(xml: Xml, looks: Element) -> str:
    """Return a run's formatting as XML; nothing if it has no visible formatting of its own."""
    unseen = {look.start: "" for look in looks.elements() if look.name in _NO_LOOKS}
    return xml.written(looks, unseen) if len(unseen) < len(list(looks.elements())) else ""


def _raises(look: Element) -> bool:
    return look.name == "w:vertAlign" and look.attribute("val") in ("superscript", "subscript")


def _fields(atoms: Sequence[_Atom]) -> dict[int, tuple[int, int]]:
    """Return the places of "separate" and "end" of each field, by the place of its "begin".

    All three must be in the same paragraph and element, and not nested deeper than `MOST_DEPTH` in other fields.
    """
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
                if start in shows and len(begun[-1]) < MOST_DEPTH:
                    fields[start] = shows[start], place
    return fields


def _torn(atoms: Sequence[_Atom], fields: dict[int, tuple[int, int]]) -> dict[int, int]:
    """Find fields that begin and end in different elements, such as two tracked changes.

    Return the places of the first and the last atom of the elements around each such field.
    """
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


def _without_fields(atoms: Sequence[_Atom]) -> Iterator[RunLetters | Open | Close | Point]:
    """Turn fields into markup.

    A field becomes markup around its result. A field across several elements stays as a whole. The boundaries of other
    fields, which end outside the paragraph, become points.
    """
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
            if _is_value(text := _short_text(atoms, shows, end + 1)):
                yield sign(tuple(raw for part in atoms[place : end + 1] for raw in _raw(part)), text)
                place = end + 1
                continue
            yield Open(tuple(raw for part in atoms[place : shows + 1] for raw in _raw(part)))
            ends.add(end)
            place = shows
        elif isinstance(atom, _Bound):
            yield Close(atom.raw) if place in ends else Point(atom.raw, shows=False)
        else:
            yield atom
        place += 1


def _raw(atom: _Atom) -> Raw:
    if isinstance(atom, RunLetters | _Bound):
        return atom.raw
    return atom.source  # type: ignore[return-value]
