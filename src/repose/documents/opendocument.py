"""OpenDocument (.odt, .odp, .ods): paragraphs and headings of text, notes, tables, frames, headers and footers."""

import re
from collections.abc import Iterator

from repose.documents.office import OfficeDocument
from repose.documents.segment import (
    MOST_OF_A_SIGN,
    Close,
    End,
    Open,
    Piece,
    Placed,
    Point,
    Text,
    is_number,
    is_sign,
    raised,
    sign,
    text_of,
)
from repose.documents.xml_source import Element, Letters, Xml, escape

_OASIS = "urn:oasis:names:tc:opendocument:xmlns:"
_WITHIN = frozenset(["text:span", "text:a", "text:meta", "text:ruby", "text:ruby-base"])
"""Inline elements, whose text belongs to the sentence."""
_SHOWN = frozenset(["text:tab", "text:line-break", "draw:frame", "text:page-number", "text:date", "text:sequence"])
"""Elements that are visible even without text."""
_UNSEEN = frozenset(["text:script", "text:ruby-text"])
"""Elements whose text is not in the line. All other elements with text of their own are fields."""
_ENDS: dict[str, End] = {"text:tab": "column", "text:line-break": "line"}
_LEFT_OUT = frozenset(["text:soft-page-break"])
_CELLS = frozenset(["table:table-cell", "table:covered-table-cell"])
_SKIPPED = frozenset(["text:tracked-changes", "table:tracked-changes", "text:ruby-text", "office:annotation"])
_VALUE = re.compile(r"""\s[\w.-]+:string-value\s*=\s*(?:"[^"]*"|'[^']*')""")
"""A cell's text as an attribute. Programs show it instead of the cell's paragraph."""


class OpenDocument(OfficeDocument):
    """An OpenDocument file (.odt, .odp, .ods)."""

    what = "an OpenDocument file (.odt, .odp, .ods)"
    members = re.compile(r"content\.xml|styles\.xml")
    prefixes = {f"{_OASIS}{name}:1.0": name for name in ("text", "table", "office", "style", "presentation")} | {
        f"{_OASIS}drawing:1.0": "draw"
    }
    attributes = frozenset(["name", "style-name", "text-position", "value-type", "formula", "placeholder"])
    paragraphs = frozenset(["text:p", "text:h", "presentation:footer-decl", "presentation:header-decl"])
    collapse = True

    def __init__(self, content: bytes) -> None:
        """Raises the errors of `OfficeDocument`."""
        self._raised: dict[Xml, frozenset[str]] = {}
        super().__init__(content)

    def tags(self, xml: Xml) -> dict[int, str]:
        """Return start tags of cells without the attribute that repeats the text, so that paragraphs are shown."""
        found = {}
        for element in xml.root.walk():
            if element.name in _CELLS and not self.skips(element) and any(map(_is_text, element.elements())):
                tag = xml.slice(element.start, element.inner)
                if ":string-value" in tag:
                    found[element.start] = _VALUE.sub("", tag, count=1)
        return found

    def skips(self, element: Element) -> bool:
        """Return whether an element is skipped: deleted text, comments, prompts of master slides, and sheet cells with
        numbers, dates or formulas."""
        if element.name in _CELLS:
            return element.attribute("value-type") not in ("", "string") or element.attribute("formula") != ""
        return element.name in _SKIPPED or (element.name == "draw:frame" and element.attribute("placeholder") == "true")

    def pieces(self, xml: Xml, paragraph: Element) -> list[Piece]:
        """Return the text and the markup of a paragraph."""
        if xml not in self._raised:
            self._raised[xml] = frozenset(_raised_styles(xml.root))
        return _with_indent(list(_pieces(xml, paragraph, self._raised[xml])))

    def written(self, xml: Xml, paragraph: Element, placed: Placed, changed: dict[int, str]) -> Iterator[str]:
        """Yield the translated paragraph, in pieces."""
        yield xml.tag(paragraph)
        for piece in placed:
            if isinstance(piece, Text):
                yield escape(piece.text)
            elif isinstance(piece.source, Element):
                yield xml.written(piece.source, changed)
            else:
                yield str(piece.source)
        yield xml.end_tag(paragraph)


def _is_text(element: Element) -> bool:
    return element.name == "text:p" and bool(element.children)


def _raised_styles(root: Element) -> Iterator[str]:
    """Yield the names of the file's automatic styles that raise or lower text."""
    for styles in root.elements():
        if styles.name == "office:automatic-styles":
            for style in styles.elements():
                positions = [looks.attribute("text-position").split() for looks in style.elements()]
                if any(position and position[0].strip("-0%") for position in positions):
                    yield style.attribute("name")


def _with_indent(pieces: list[Piece]) -> list[Piece]:
    """Keep `text:s` spaces before a paragraph's first letters and after its last; replace others by plain spaces."""
    letters = [place for place, piece in enumerate(pieces) if isinstance(piece, Text) and piece.text.strip()]
    first, last = (letters[0], letters[-1]) if letters else (len(pieces), -1)
    return [Text(" ") if first < place < last and _is_spaces(piece) else piece for place, piece in enumerate(pieces)]


def _is_spaces(piece: Piece) -> bool:
    return isinstance(piece, Point) and isinstance(piece.source, Element) and piece.source.name == "text:s"


def _pieces(xml: Xml, element: Element, styles: frozenset[str]) -> Iterator[Piece]:
    """Yield the text and the markup in an element. `styles`: names of styles that raise or lower text."""
    for child in element.children:
        if isinstance(child, Letters):
            yield Text(child.text)
        elif not isinstance(child, Element):
            yield Point(xml.slice(child.start, child.end), shows=False)
        elif child.name == "text:s":
            yield Point(child, shows=True, separates=True)
        elif child.name in _WITHIN and child.children:
            within = list(_pieces(xml, child, styles))
            if child.attribute("style-name") in styles and is_number(text := text_of(within)):
                yield raised(child, text)
                continue
            if len(within) <= MOST_OF_A_SIGN and is_sign(text := text_of(within)):
                yield sign(child, text)
                continue
            yield Open(xml.slice(child.start, child.inner))
            yield from within
            yield Close(xml.slice(child.closes, child.end))
        elif child.name not in _LEFT_OUT:
            ends = _ENDS.get(child.name, "none")
            yield Point(child, _shows(child), separates=ends != "none", ends=ends)


def _shows(element: Element) -> bool:
    has_text = any(isinstance(child, Letters) and child.text.strip() for child in element.children)
    return element.name in _SHOWN or (has_text and element.name not in _UNSEEN)
