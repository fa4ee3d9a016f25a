"""Books (.epub): archives of XHTML pages, each translated like an HTML page."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from urllib.parse import unquote

from repose.documents.archive import MOST_MEMBER_BYTES, Archive
from repose.documents.encodings import read_text
from repose.documents.html import HtmlDocument
from repose.documents.segment import Document, Placed, Segment, text_of
from repose.documents.xml_source import Element, Letters, Xml, escape
from repose.system.errors import DataError

_SUFFIXES = (".xhtml", ".html", ".htm")
_KINDS = frozenset(["application/xhtml+xml", "text/html", "text/x-oeb1-document"])
_CONTENTS = frozenset(["application/x-dtbncx+xml"])
_DOCTYPE = re.compile(rb"<!DOCTYPE[^>\[]*>")
_CONTAINER, _ENCRYPTED = "META-INF/container.xml", "META-INF/encryption.xml"
_MOST_PACKAGES = 4
"""Maximum number of a book's packages (renditions) that are read, since each takes time."""
_URI = re.compile(rb"""\bURI\s*=\s*["']([^"']*)""")


class EpubDocument:
    """A book. Only pages and tables of contents change; styles, pictures and metadata stay as they are."""

    def __init__(self, content: bytes) -> None:
        """Raises DataError if the content is no book, is damaged or encrypted, or unpacks to more than the limits."""
        self._archive = Archive(content)
        members = self._archive.members
        named = {name: kind for name, kind in _named(members) if name in members}
        pages = {name: members[name] for name in _pages(members, named)}
        contents = {name: members[name] for name, kind in named.items() if kind in _CONTENTS}
        encrypted = {unquote(found.decode("utf-8", "replace")) for found in _URI.findall(members.get(_ENCRYPTED, b""))}
        if encrypted & (pages.keys() | contents.keys()):
            raise DataError("the book is encrypted: translate a copy without encryption")
        if not pages:
            raise DataError("this is not a book (.epub): it holds no pages")
        if sum(map(len, [*pages.values(), *contents.values()])) > MOST_MEMBER_BYTES:
            raise DataError(f"the book has more than {MOST_MEMBER_BYTES:,} bytes of text and markup: split it")
        self._parts: dict[str, Document] = {}
        self._num_nodes = 0
        for name, data in pages.items():
            try:
                self._parts[name] = read_text(data, self._page, markup="xhtml")
            except DataError as error:
                raise DataError(f"{name} of the book: {error}") from error
        for name, data in contents.items():
            with suppress(DataError):  # readers can do without a table of contents
                self._parts[name] = _Contents(data, name, self._num_nodes)

    def _page(self, source: str) -> HtmlDocument:
        if re.search(r"<!DOCTYPE[^>\[]*\[", source[:4096]):
            raise DataError("it declares entities or markup of its own, which are not read: save the book again")
        page = HtmlDocument(source, xhtml=True, others=self._num_nodes)
        self._num_nodes += page.num_nodes
        return page

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments of all pages, then those of the tables of contents."""
        return [segment for part in self._parts.values() for segment in part.segments]

    def assemble(self, placed: Sequence[Placed]) -> bytes:
        """Return the book with these translations."""
        left = iter(placed)
        changed = {name: part.assemble(list(islice(left, len(part.segments)))) for name, part in self._parts.items()}
        return self._archive.written(changed)


class _Contents:
    """The titles in a table of contents of EPUB 2 (toc.ncx)."""

    def __init__(self, data: bytes, name: str, others: int) -> None:
        """`others`: number of nodes in the book's other files. Raises DataError if the file cannot be read."""
        self._data = data
        readable = _DOCTYPE.sub(lambda found: b" " * len(found[0]), data, count=1)  # keeps the length
        root = Xml(readable, {}, name, others=others).root
        texts = [one for one in root.walk(lambda one: _local(one) == "docAuthor") if _local(one) == "text"]
        found = [(one, _words_of(one)) for one in texts if not any(one.elements())]
        self._titles = [one for one, words in found if words]
        self.segments = [Segment(words) for _, words in found if words]

    def assemble(self, placed: Sequence[Placed]) -> bytes:
        """Return the file with these translations."""
        pieces, done = [], 0
        for title, translated in zip(self._titles, placed, strict=True):
            pieces += [self._data[done : title.inner], escape(text_of(translated)).encode()]
            done = title.closes
        return b"".join([*pieces, self._data[done:]])


def _words_of(element: Element) -> str:
    return " ".join("".join(child.text for child in element.children if isinstance(child, Letters)).split())


def _local(element: Element) -> str:
    return element.name.rpartition(":")[2]


def _pages(members: Mapping[str, bytes], named: Mapping[str, str]) -> list[str]:
    """Return the names of the pages: those that the book lists, or if it lists none, all files with a page's suffix."""
    pages = [name for name, kind in named.items() if kind in _KINDS]
    return pages or [name for name in members if name.lower().endswith(_SUFFIXES) and "__MACOSX" not in name]


def _named(members: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    """Yield the names and media types of pages and tables of contents.

    META-INF/container.xml lists the packages, and each package lists its files.
    """
    named = dict.fromkeys(rootfile.attribute("full-path") for rootfile in _elements(members, _CONTAINER, "rootfile"))
    for package in islice(named, _MOST_PACKAGES):
        for item in _elements(members, package, "item"):
            if (kind := item.attribute("media-type")) in _KINDS | _CONTENTS:
                name = posixpath.join(posixpath.dirname(package), unquote(item.attribute("href")))
                yield posixpath.normpath(name), kind


def _elements(members: Mapping[str, bytes], name: str, wanted: str) -> Iterator[Element]:
    """Yield a member's elements of one name. Yields none if the member is missing or cannot be read."""
    try:
        root = Xml(members.get(name, b""), {}, name, attributes=frozenset(["full-path", "media-type", "href"])).root
    except DataError:
        return
    yield from (element for element in root.walk() if _local(element) == wanted)
