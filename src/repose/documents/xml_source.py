"""XML as a tree over its source. Every element knows its slice, so that unchanged parts stay byte for byte.

The parser is safe for untrusted files: it refuses document types (so there are no custom entities) and elements nested
deeper than `MOST_LEVELS`, and expat fetches nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias
from xml.parsers import expat

from repose.documents.segment import MOST_NODES, too_many_nodes
from repose.system.errors import DataError

MOST_LEVELS = 200
"""Maximum nesting depth of elements."""
_LONGEST_NAMESPACE = 256  # characters; names are copied with their namespace each time they occur


@dataclass(slots=True)
class Letters:
    """A piece of text."""

    text: str
    start: int
    end: int = 0
    """Offset in bytes of the source, as everywhere in this module."""


@dataclass(slots=True)
class Aside:
    """A comment or a processing instruction."""

    start: int
    end: int = 0


@dataclass(slots=True)
class Element:
    """An element from `start` to `end`, with its content from `inner` to `closes`."""

    name: str
    """Name with the usual prefix of its namespace, such as "w:p", whatever prefix the file has. For an unknown
    namespace, the URI is the prefix."""
    attributes: dict[str, str]
    """The attributes that the format reads, by names with namespaces."""
    start: int
    inner: int = 0
    closes: int = 0
    end: int = 0
    children: list["Node"] = field(default_factory=list)

    def attribute(self, name: str) -> str:
        """Return the value of an attribute with this name and any prefix; empty if it is missing."""
        return next((value for key, value in self.attributes.items() if key.rpartition(":")[2] == name), "")

    def elements(self) -> Iterator["Element"]:
        """Return the children that are elements."""
        return (child for child in self.children if isinstance(child, Element))

    def walk(self, skips: Callable[["Element"], bool] = lambda _: False) -> Iterator["Element"]:
        """Yield this element and all elements in it, in document order, without skipped ones and their content."""
        waiting = [self]
        while waiting:
            element = waiting.pop()
            if not skips(element):
                yield element
                waiting.extend(reversed(list(element.elements())))


Node: TypeAlias = Element | Letters | Aside


class Xml:
    """A parsed XML file."""

    def __init__(
        self,
        data: bytes,
        prefixes: dict[str, str],
        name: str,
        *,
        attributes: frozenset[str] = frozenset(),
        others: int = 0,
    ) -> None:
        """Parse a file.

        `prefixes`: the usual prefix of each namespace. If empty, names stay as they are in the file.
        `name`: the file's name, for error messages.
        `attributes`: names, without prefixes, of the attributes to keep. A document may have far more.
        `others`: number of nodes in the document's other files.

        Raises DataError if the data is no XML or is not safe to read.
        """
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"{name} is not in UTF-8: save the document again") from error
        self.data = data
        self.tags: dict[int, str] = {}
        """Replacements for start tags, by the start of their elements."""
        built = _Builder(data, prefixes, name, attributes, others)
        self.root, self.num_nodes = built.root, built.number - others

    def slice(self, start: int, end: int) -> str:
        """Return a piece of the source."""
        return self.data[start:end].decode()

    def written(self, node: Node, changed: dict[int, str]) -> str:
        """Return a node as XML. `changed`: replacements for elements in it, by their starts."""
        if not isinstance(node, Element):
            return self.slice(node.start, node.end)
        if node.start in changed:
            return changed[node.start]
        pieces, done = [], node.inner
        for child in node.elements():
            pieces += [self.slice(done, child.start), self.written(child, changed)]
            done = child.end
        return (
            self.tags.get(node.start, self.slice(node.start, node.inner)) + "".join(pieces) + self.slice(done, node.end)
        )

    def tag(self, element: Element) -> str:
        """Return the start tag. A self-closing tag is turned into an opening one."""
        source = self.slice(element.start, element.inner)
        return source[:-2].rstrip() + ">" if source.endswith("/>") else source

    def end_tag(self, element: Element) -> str:
        """Return the end tag, also for an element with a self-closing tag."""
        return (
            self.slice(element.closes, element.end) or f"</{_written_name(self.slice(element.start, element.inner))}>"
        )


def escape(text: str) -> str:
    """Escape text for XML, and drop the characters that XML cannot contain."""
    kept = "".join(c for c in text if c >= " " or c == "\t")
    kept = "".join(c for c in kept if c not in "\ufffe\uffff" and not "\ud800" <= c <= "\udfff")
    return kept.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _written_name(tag: str) -> str:
    return tag[1:].split(maxsplit=1)[0].rstrip("/>")


class _Builder:
    def __init__(
        self, data: bytes, prefixes: dict[str, str], name: str, attributes: frozenset[str], others: int
    ) -> None:
        self._kept = attributes
        self._data, self._prefixes, self._name = data, prefixes, name
        self._opened: list[Element] = []
        self._last: Node | None = None  # the node whose start or end tag the parser has met last
        self._closing = False
        self.number = others
        self._cdata: int | None = None  # start of a CDATA section whose text has not been met yet
        self._parser = parser = expat.ParserCreate(namespace_separator=":" if prefixes else None)
        parser.StartNamespaceDeclHandler = self._check_namespace
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._text
        parser.StartCdataSectionHandler, parser.EndCdataSectionHandler = self._start_cdata, self._end_cdata
        parser.CommentHandler = parser.ProcessingInstructionHandler = self._aside
        parser.StartDoctypeDeclHandler = self._refuse
        parser.XmlDeclHandler = self._declared
        try:
            parser.Parse(data, True)
        except (expat.ExpatError, UnicodeDecodeError) as error:
            raise DataError(f"{name} is damaged ({error}): save the document again") from error

    def _place(self) -> int:
        """Return the parser's position. The node or tag before it ends here."""
        place = self._parser.CurrentByteIndex
        if isinstance(self._last, Element) and not self._closing:
            self._last.inner = place
        elif self._last is not None:
            self._last.end = place
        self._last, self._closing = None, False
        return place

    def _begin(self, node: Node) -> None:
        self.number += 1
        if self.number > MOST_NODES:
            raise too_many_nodes()
        if self._opened:
            self._opened[-1].children.append(node)
        self._last = node

    def _check_namespace(self, _: str | None, namespace: str | None) -> None:
        if len(namespace or "") > _LONGEST_NAMESPACE:
            raise DataError(
                f"{self._name} has a namespace of more than {_LONGEST_NAMESPACE} characters: save the document again"
            )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        place = self._place()
        if len(self._opened) == MOST_LEVELS:
            raise DataError(f"{self._name} has more than {MOST_LEVELS} levels of elements: simplify the document")
        kept = {key: value for key, value in attributes.items() if key.rpartition(":")[2] in self._kept}
        namespace, _, local = name.rpartition(":")
        prefix = self._prefixes.get(namespace)
        element = Element(f"{prefix}:{local}" if prefix else name, kept, place)
        if not self._opened:
            self.root = element
        self._begin(element)
        self._opened.append(element)

    def _end(self, _: str) -> None:
        place = self._place()
        element = self._opened.pop()
        element.closes = element.end = place
        if not self._data.startswith(b"/>", element.inner - 2):
            self._last, self._closing = element, True
            if not self._opened:
                element.end = self._data.index(b">", place) + 1

    def _text(self, text: str) -> None:
        place, self._cdata = self._place() if self._cdata is None else self._cdata, None
        self._begin(Letters(text, place))

    def _start_cdata(self) -> None:
        """Let the text begin at the section's start and end after the section, since its replacement is no section."""
        self._cdata = self._place()

    def _end_cdata(self) -> None:
        if self._cdata is not None:  # an empty section
            self._aside_at(self._cdata)
            self._cdata = None

    def _aside(self, *_: object) -> None:
        self._aside_at(self._place())

    def _aside_at(self, place: int) -> None:
        if self._opened:
            self._begin(Aside(place))

    def _refuse(self, *_: object) -> None:
        raise DataError(f"{self._name} declares a document type, which may hold entities: save the document again")

    def _declared(self, _: str, encoding: str | None, __: int) -> None:
        if encoding is not None and encoding.lower() not in ("utf-8", "utf8", "us-ascii", "ascii"):
            raise DataError(f"{self._name} is in {encoding}: save the document again, as UTF-8")
