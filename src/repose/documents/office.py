"""Documents of word processors: an archive of XML, of which the text in paragraphs is translated.

A paragraph that has letters is written anew, from its translation and the markup that stood in it; everything else in
the archive stays as it was.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from repose.data.scripts import has_letters
from repose.documents.archive import LIMITS, Archive, Limits
from repose.documents.segment import Piece, Placed, Segment, Text, segment, text_of
from repose.documents.xml_source import Element, Xml
from repose.system.errors import DataError


class XmlFormat(Protocol):
    """What the XML of a kind of document means."""

    what: str
    """What people call such a document."""
    members: re.Pattern[str]
    """Names of the members that hold text."""
    prefixes: dict[str, str]
    """Usual prefixes by namespace."""
    attributes: frozenset[str]
    """Names, without prefixes, of those that are read."""
    paragraphs: frozenset[str]
    """Names of elements."""
    collapse: bool
    """Whether white space is as in HTML."""

    def tags(self, xml: Xml) -> dict[int, str]:  # noqa: ARG002
        """Start tags that would hide a translation, as they are to be written (`Xml.tags`); none, unless a format has
        such."""
        return {}

    def skips(self, element: Element) -> bool:  # noqa: ARG002
        """Whether the paragraphs in an element stay as they are; those of none, unless a format has such."""
        return False

    def pieces(self, xml: Xml, paragraph: Element) -> list[Piece]:
        """The letters and the markup of a paragraph."""

    def written(self, xml: Xml, paragraph: Element, placed: Placed, changed: dict[int, str]) -> Iterator[str]:
        """The translated paragraph. `changed`: the paragraphs that stand in it, as `Xml.written` takes them."""


class _Place(NamedTuple):
    member: str
    paragraph: Element
    before: str
    after: str


class OfficeDocument:
    """A document in an archive."""

    def __init__(self, content: bytes, xml_format: XmlFormat, limits: Limits = LIMITS) -> None:
        """Raises DataError for anything but such a document, and for one that is damaged or unpacks to more than the
        limits."""
        self._archive, self._format, self._limits = Archive(content, limits), xml_format, limits
        self._xml: dict[str, Xml] = {}
        self._places: list[_Place] = []
        self.segments: list[Segment] = []
        """Paragraphs."""
        texts = {name: data for name, data in self._archive.members.items() if xml_format.members.fullmatch(name)}
        if sum(map(len, texts.values())) > limits.member_bytes:
            raise DataError(f"the document has more than {limits.member_bytes:,} bytes of text and markup: split it")
        for member, data in texts.items():
            others = sum(xml.num_nodes for xml in self._xml.values())
            xml = Xml(data, xml_format.prefixes, member, attributes=xml_format.attributes, others=others)
            self._xml[member] = xml
            xml.tags = xml_format.tags(xml)
            for element in xml.root.walk(xml_format.skips):
                if element.name in xml_format.paragraphs:
                    self._add(member, element, xml_format.pieces(xml, element))
        if not self._xml:
            raise DataError(f"this is no {xml_format.what}: it holds no text where one has it")

    def assemble(self, placed: Sequence[Placed]) -> bytes:
        """The archive with these translations. Raises DataError where the paragraphs would be far larger than before,
        which few bytes can do: looks are written for each piece that a run comes apart into."""
        left = self._limits.written(sum(len(xml.data) for xml in self._xml.values()))
        changed: dict[str, dict[int, str]] = {member: {} for member in self._xml}
        # A paragraph that stands in another begins after it, and is needed before it.
        for place, translated in reversed(list(zip(self._places, placed, strict=True))):
            member, paragraph, before, after = place
            whole = [Text(before), *translated, Text(after)]
            written = self._format.written(self._xml[member], paragraph, whole, changed[member])
            changed[member][paragraph.start] = joined = _joined(written, left)
            left -= len(joined)
        return self._archive.written({member: self._member(member, some) for member, some in changed.items() if some})

    def _member(self, member: str, changed: dict[int, str]) -> bytes:
        xml = self._xml[member]
        root = xml.root
        return (xml.slice(0, root.start) + xml.written(root, changed) + xml.slice(root.end, len(xml.data))).encode()

    def _add(self, member: str, paragraph: Element, pieces: Sequence[Piece]) -> None:
        if has_letters(text_of(pieces)):
            before, made, after = segment(pieces, collapse=self._format.collapse)
            self.segments.append(made)
            self._places.append(_Place(member, paragraph, before, after))


def _joined(pieces: Iterable[str], most: int) -> str:
    """The pieces as one text. Raises DataError where it has more than so many characters."""
    kept = []
    for piece in pieces:
        most -= len(piece)
        if most < 0:
            raise DataError("the translated document would be far larger than the document: simplify its formatting")
        kept.append(piece)
    return "".join(kept)
