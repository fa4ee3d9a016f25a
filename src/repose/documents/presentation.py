"""Office Open XML presentations (.pptx): paragraphs of slides, notes, chart titles and diagrams."""

import re
from collections.abc import Iterator

from repose.documents.office import OfficeDocument
from repose.documents.runs import Run, RunLetters, Runs, letters_of, marked, own_looks
from repose.documents.segment import Piece, Placed, Point
from repose.documents.xml_source import Element, Xml, escape

_DRAWING = ("http://schemas.openxmlformats.org/drawingml/2006/main", "http://purl.oclc.org/ooxml/drawingml/main")
_OF_TEXT = re.compile(r"""\s(?:lang|altLang|dirty|err|smtClean)\s*=\s*(?:"[^"]*"|'[^']*')""")
"""Attributes of a run that do not affect its formatting: its language, and the spelling checker's results."""


class Presentation(OfficeDocument):
    """A presentation (.pptx)."""

    what = "a presentation (.pptx)"
    members = re.compile(r"ppt/(?:slides/slide|notesSlides/notesSlide|charts/chart|diagrams/(?:data|drawing))\d*\.xml")
    prefixes = dict.fromkeys(_DRAWING, "a")
    attributes = frozenset(["baseline"])
    paragraphs = frozenset(["a:p"])
    collapse = False

    def pieces(self, xml: Xml, paragraph: Element) -> list[Piece]:
        """Return the text and the markup of a paragraph."""
        return list(marked(_atoms(xml, paragraph), _own_looks(xml, paragraph)))

    def written(self, xml: Xml, paragraph: Element, placed: Placed, changed: dict[int, str]) -> Iterator[str]:
        """Yield the translated paragraph, between its properties and its end properties, in pieces."""
        tag = xml.tag(paragraph)
        yield tag
        yield from (xml.written(child, {}) for child in paragraph.elements() if child.name == "a:pPr")
        yield from Runs(xml, tag, "", changed).written(placed, _own_looks(xml, paragraph))
        yield from (xml.written(child, {}) for child in paragraph.elements() if child.name == "a:endParaRPr")
        yield xml.end_tag(paragraph)


def _atoms(xml: Xml, paragraph: Element) -> Iterator[RunLetters | Point]:
    for child in paragraph.elements():
        if child.name == "a:r":
            looks = next((one for one in child.elements() if one.name == "a:rPr"), None)
            properties = "" if looks is None else _properties(xml, looks)
            is_raised = looks is not None and looks.attribute("baseline").strip("-0%") != ""
            for text in (one for one in child.elements() if one.name == "a:t"):
                begin, end = xml.tag(text), xml.end_tag(text)
                for number, piece in enumerate(letters_of(text).split("\t")):
                    if number:
                        yield Point(((f"{begin}\t{end}", Run(properties)),), shows=True, separates=True, ends="column")
                    raw = f"{begin}{escape(piece)}{end}"
                    yield RunLetters(piece, properties, ((raw, Run(properties)),), is_raised)
        elif child.name not in ("a:pPr", "a:endParaRPr"):  # a line break, a field such as the slide's number, a formula
            is_break = child.name == "a:br"
            yield Point(((child, None),), shows=True, separates=is_break, ends="line" if is_break else "none")


def _own_looks(xml: Xml, paragraph: Element) -> str:
    """Return the formatting of most letters outside links. A link would be lost where other marks cover its words."""
    atoms = (atom for atom in _atoms(xml, paragraph) if isinstance(atom, RunLetters))
    return own_looks(atom for atom in atoms if ":hlink" not in atom.properties)


def _properties(xml: Xml, looks: Element) -> str:
    """Return a run's formatting as XML; nothing if it is the paragraph's usual formatting."""
    tag = xml.slice(looks.start, looks.inner)
    shorter = _OF_TEXT.sub("", tag)
    rest = xml.written(looks, {}).removeprefix(tag)
    plain = re.fullmatch(r"<[^\s/>]+\s*/?>", shorter) is not None and not list(looks.elements())
    return "" if plain else shorter + rest
