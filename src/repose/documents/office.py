"""Office documents: archives of XML files, in which the text of paragraphs is translated.

A paragraph with letters is written anew, from its translation and its markup. Everything else in the archive stays as
it was.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from repose.data.scripts import has_letters
from repose.documents.archive import MOST_MEMBER_BYTES, Archive, most_written
from repose.documents.segment import Piece, Placed, Segment, Text, segment, text_of
from repose.documents.xml_source import Element, Xml
from repose.system.errors import DataError


class _Place(NamedTuple):
    member: str
    paragraph: Element
    before: str
    after: str


class OfficeDocument(ABC):
    """An office document: an archive of XML files. Its subclasses say what the elements of their formats mean."""

    what: ClassVar[str]
    """Such a document, with its article, for error messages."""
    members: ClassVar[re.Pattern[str]]
    """Pattern of the names of members with text."""
    prefixes: ClassVar[dict[str, str]]
    """Usual prefix of each namespace."""
    attributes: ClassVar[frozenset[str]]
    """Names, without prefixes, of the attributes that are read."""
    paragraphs: ClassVar[frozenset[str]]
    """Names of the elements that are paragraphs."""
    collapse: ClassVar[bool]
    """Whether white space is collapsed, as in HTML."""

    def __init__(self, content: bytes) -> None:
        """Raises DataError if the content is no such document, is damaged, or unpacks to more than the limits."""
        self._archive = Archive(content)
        self._xml: dict[str, Xml] = {}
        self._places: list[_Place] = []
        self.segments: list[Segment] = []
        """Paragraphs with letters."""
        texts = {name: data for name, data in self._archive.members.items() if self.members.fullmatch(name)}
        if sum(map(len, texts.values())) > MOST_MEMBER_BYTES:
            raise DataError(f"the document has more than {MOST_MEMBER_BYTES:,} bytes of text and markup: split it")
        for member, data in texts.items():
            others = sum(xml.num_nodes for xml in self._xml.values())
            xml = Xml(data, self.prefixes, member, attributes=self.attributes, others=others)
            self._xml[member] = xml
            xml.tags = self.tags(xml)
            for element in xml.root.walk(self.skips):
                if element.name in self.paragraphs:
                    self._add(member, element, self.pieces(xml, element))
        if not self._xml:
            raise DataError(f"this is not {self.what}: it holds no text in the usual place")

    def tags(self, xml: Xml) -> dict[int, str]:  # noqa: ARG002
        """Return replacements (`Xml.tags`) for start tags that would hide a translation. By default, none."""
        return {}

    def skips(self, element: Element) -> bool:  # noqa: ARG002
        """Return whether the paragraphs in an element stay as they are. By default, none do."""
        return False

    @abstractmethod
    def pieces(self, xml: Xml, paragraph: Element) -> list[Piece]:
        """Return the text and the markup of a paragraph."""

    @abstractmethod
    def written(self, xml: Xml, paragraph: Element, placed: Placed, changed: dict[int, str]) -> Iterator[str]:
        """Yield the translated paragraph, in pieces. `changed`: the paragraphs inside it, as for `Xml.written`."""

    def assemble(self, placed: Sequence[Placed]) -> bytes:
        """Return the archive with these translations.

        Raises DataError if the paragraphs would be far larger than before. A small file can cause this, since
        formatting is repeated for each piece into which a run is split.
        """
        left = most_written(sum(len(xml.data) for xml in self._xml.values()))
        changed: dict[str, dict[int, str]] = {member: {} for member in self._xml}
        # Backwards: a paragraph inside another one starts after it, but has to be written before it.
        for place, translated in reversed(list(zip(self._places, placed, strict=True))):
            member, paragraph, before, after = place
            whole = [Text(before), *translated, Text(after)]
            written = self.written(self._xml[member], paragraph, whole, changed[member])
            changed[member][paragraph.start] = joined = _joined(written, left)
            left -= len(joined)
        return self._archive.written({member: self._member(member, some) for member, some in changed.items() if some})

    def _member(self, member: str, changed: dict[int, str]) -> bytes:
        xml = self._xml[member]
        root = xml.root
        return (xml.slice(0, root.start) + xml.written(root, changed) + xml.slice(root.end, len(xml.data))).encode()

    def _add(self, member: str, paragraph: Element, pieces: Sequence[Piece]) -> None:
        if has_letters(text_of(pieces)):
            before, made, after = segment(pieces, collapse=self.collapse)
            self.segments.append(made)
            self._places.append(_Place(member, paragraph, before, after))


def _joined(pieces: Iterable[str], most: int) -> str:
    """Join the pieces. Raises DataError if they have more than `most` characters together."""
    kept = []
    for piece in pieces:
        most -= len(piece)
        if most < 0:
            raise DataError("the translated document would be far larger than the document: simplify its formatting")
        kept.append(piece)
    return "".join(kept)
