"""Books (.epub): an archive of pages in XHTML, each translated as a page of HTML is."""

from collections.abc import Sequence
from itertools import islice

from repose.documents.archive import LIMITS, Archive, Limits
from repose.documents.encodings import Encoded, read_text
from repose.documents.html import HtmlDocument
from repose.documents.segment import Placed, Segment
from repose.system.errors import DataError

_PAGES = (".xhtml", ".html", ".htm")
_ENCRYPTED = "META-INF/encryption.xml"


class EpubDocument:
    """A book. Whatever is no page stays as it is: styles, pictures, what describes the book, tables of contents of
    EPUB 2 (toc.ncx)."""

    def __init__(self, content: bytes, limits: Limits = LIMITS) -> None:
        """Raises DataError for what is no book, is damaged or encrypted, or unpacks to more than the limits."""
        self._archive = Archive(content, limits)
        members = self._archive.members
        pages = {name: data for name, data in members.items() if name.lower().endswith(_PAGES)}
        if any(name.encode() in members.get(_ENCRYPTED, b"") for name in pages):
            raise DataError("the book is encrypted: it can be translated only without that")
        if not pages:
            raise DataError("this is no book (.epub): it holds no pages")
        if sum(map(len, pages.values())) > limits.member_bytes:
            raise DataError(f"the book has more than {limits.member_bytes:,} bytes of text and markup: split it")
        self._pages: dict[str, Encoded] = {}
        self._num_nodes = 0
        for name, data in pages.items():
            self._pages[name] = read_text(data, self._page, markup=True)

    def _page(self, source: str) -> HtmlDocument:
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
