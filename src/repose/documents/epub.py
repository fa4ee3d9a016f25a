"""Books (.epub): an archive of pages in XHTML, each translated as a page of HTML is."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from urllib.parse import unquote

from repose.documents.archive import LIMITS, Archive, Limits
from repose.documents.encodings import Encoded, read_text
from repose.documents.html import HtmlDocument
from repose.documents.segment import Placed, Segment
from repose.documents.xml_source import Element, Xml
from repose.system.errors import DataError

_SUFFIXES = (".xhtml", ".html", ".htm")
_KINDS = frozenset(["application/xhtml+xml", "text/html", "text/x-oeb1-document"])
_CONTAINER, _ENCRYPTED = "META-INF/container.xml", "META-INF/encryption.xml"
_MOST_PACKAGES = 4
"""Of one book, in as many renditions: each takes time to read."""
_URI = re.compile(rb"""\bURI\s*=\s*["']([^"']*)""")


class EpubDocument:
    """A book. Whatever is no page stays as it is: styles, pictures, what describes the book, tables of contents of
    EPUB 2 (toc.ncx)."""

    def __init__(self, content: bytes, limits: Limits = LIMITS) -> None:
        """Raises DataError for what is no book, is damaged or encrypted, or unpacks to more than the limits."""
        self._archive = Archive(content, limits)
        members = self._archive.members
        pages = {name: members[name] for name in _pages(members)}
        encrypted = {unquote(found.decode("utf-8", "replace")) for found in _URI.findall(members.get(_ENCRYPTED, b""))}
        if encrypted & pages.keys():
            raise DataError("the book is encrypted: it can be translated only without that")
        if not pages:
            raise DataError("this is no book (.epub): it holds no pages")
        if sum(map(len, pages.values())) > limits.member_bytes:
            raise DataError(f"the book has more than {limits.member_bytes:,} bytes of text and markup: split it")
        self._pages: dict[str, Encoded] = {}
        self._num_nodes = 0
        for name, data in pages.items():
            try:
                self._pages[name] = read_text(data, self._page, markup="xhtml")
            except DataError as error:
                raise DataError(f"{name} of the book: {error}") from error

    def _page(self, source: str) -> HtmlDocument:
        if re.search(r"<!DOCTYPE[^>\[]*\[", source[:4096]):
            raise DataError("it declares entities or markup of its own, which are not read: save the book again")
        page = HtmlDocument(source, xhtml=True, others=self._num_nodes)
        self._num_nodes += page.num_nodes
        return page

    @property
    def segments(self) -> Sequence[Segment]:
        """Those of all pages."""
        return [segment for page in self._pages.values() for segment in page.segments]

    def assemble(self, placed: Sequence[Placed]) -> bytes:
        """The book with these translations."""
        left = iter(placed)
        changed = {name: page.assemble(list(islice(left, len(page.segments)))) for name, page in self._pages.items()}
        return self._archive.written(changed)


def _pages(members: Mapping[str, bytes]) -> list[str]:
    """Those that the book names as such, or where it cannot be asked, all that look like it."""
    named = list(dict.fromkeys(name for name in _named_pages(members) if name in members))
    return named or [name for name in members if name.lower().endswith(_SUFFIXES) and "__MACOSX" not in name]


def _named_pages(members: Mapping[str, bytes]) -> Iterator[str]:
    """Of each package file: META-INF/container.xml names it, and it names the pages."""
    named = dict.fromkeys(rootfile.attribute("full-path") for rootfile in _elements(members, _CONTAINER, "rootfile"))
    for package in islice(named, _MOST_PACKAGES):
        for item in _elements(members, package, "item"):
            if item.attribute("media-type") in _KINDS:
                yield posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(item.attribute("href"))))


def _elements(members: Mapping[str, bytes], name: str, wanted: str) -> Iterator[Element]:
    """The elements of one name in a member; none where there is none, or it cannot be read."""
    try:
        root = Xml(members.get(name, b""), {}, name, attributes=frozenset(["full-path", "media-type", "href"])).root
    except DataError:
        return
    yield from (element for element in root.walk() if element.name.rpartition(":")[2] == wanted)
