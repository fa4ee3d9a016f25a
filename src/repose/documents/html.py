"""HTML: translate the text that a browser shows, and keep everything else byte for byte.

The standard library's parser finds tokens, and every token keeps its slice of the source. No tree is built and written
anew, so malformed HTML stays as it was. Segments contain inline elements. Between segments are block elements, line
breaks, and inline tags without a partner in the same segment.
"""

import contextlib
import html
import re
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple, TypeAlias

from repose.data.scripts import has_letters
from repose.documents.segment import (
    MOST_NODES,
    Close,
    Open,
    Piece,
    Placed,
    Point,
    Segment,
    Text,
    TextDocument,
    is_number,
    is_sign,
    paired,
    raised,
    segment,
    sign,
    too_many_nodes,
)

_BLOCKS = """
    address article aside base basefont bgsound blockquote body br button caption center col colgroup dd details dialog
    dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html
    iframe legend li link main marquee menu meta nav noframes noscript ol optgroup option p param plaintext pre search
    section select source summary table tbody td template tfoot th thead title tr track ul xmp
"""
BLOCKS = frozenset(_BLOCKS.split())
"""Elements that separate segments. Custom elements, with a hyphen in the name, do, too. All others are inline."""
_OPAQUE = """
    applet audio canvas code embed iframe kbd map math noframes object plaintext pre rp rt samp script style svg
    template textarea var video xmp
"""
OPAQUE = frozenset(_OPAQUE.split())
"""Elements whose content is not translated. This also holds for translate="no" and the class notranslate."""
_VOID = "area base basefont bgsound br col embed frame hr img input link meta param source track wbr"
VOID = frozenset(_VOID.split())
"""Elements without content or end tag."""
_SHORT = 16
"""Maximum number of tokens, inner tags included, of an element that can be a sign (`is_sign`)."""
_CELLS, _GROUPS = frozenset(["td", "th", "tr"]), frozenset(["tbody", "tfoot", "thead"])
_ENDED_BY: dict[str, frozenset[str]] = {
    **dict.fromkeys(["html", "body"], frozenset()),
    "li": frozenset(["li"]),
    **dict.fromkeys(["dt", "dd"], frozenset(["dt", "dd"])),
    **dict.fromkeys(["td", "th"], _CELLS | _GROUPS),
    "tr": frozenset(["tr"]) | _GROUPS,
    **dict.fromkeys(_GROUPS, _GROUPS),
    "option": frozenset(["option", "optgroup"]),
    "optgroup": frozenset(["optgroup"]),
}
"""Start tags that end an element whose end tag is omitted, as HTML allows. The end of its parent ends it, too."""
_TEXT_ALONE = frozenset(["title", "textarea"])
"""Elements in which only their end tag is markup."""
_FOREIGN = frozenset(["math", "svg"])
_COMMENT = re.compile(r"<!--(?:-?>|(?s:.)*?--!?>)")
_NOT_SHOWN = "area link meta param rp rt script source style template track wbr"
_UNSEEN = frozenset(_NOT_SHOWN.split())
"""Elements that do not separate words, such as the reading above the letters of a ruby."""
_RAISED = frozenset(["sup", "sub"])
"""Elements whose numbers belong to the word before them."""

_CDATA = "<![CDATA["
_MARKUP = re.compile(r"<[a-zA-Z/!?]")

_Kind: TypeAlias = Literal["text", "start", "end", "point"]


class _Token(NamedTuple):
    kind: _Kind
    start: int
    end: int
    name: str = ""
    """Name of the element; empty for text, comments and declarations."""
    text: str = ""
    """The text that a browser shows."""
    opaque: bool = False
    """Whether it starts an element whose content is not translated."""

    @property
    def between(self) -> bool:
        """Whether it separates segments."""
        return self.name in BLOCKS or "-" in self.name


class HtmlDocument(TextDocument):
    """An HTML page, or a fragment of one."""

    def __init__(self, source: str, *, xhtml: bool = False, others: int = 0) -> None:
        """`xhtml`: whether any element may be self-closing. `others`: number of tokens in a book's other pages.

        Raises DataError if there are more than `MOST_NODES` tokens, with the others.
        """
        self._source = source
        tokens = list(_tokens(source, xhtml, others))
        self.num_nodes = len(tokens)
        self.segments: list[Segment] = []
        """Text that is shown: paragraphs, titles, cells."""
        self._parts: list[str | int] = []  # slices of the source, and indices of segments
        begun: list[_Token] = []
        for token in _without_opaque(tokens):
            if token.between:
                self._end(begun)
                self._keep(token)
                begun = []
            else:
                begun.append(token)
        self._end(begun)

    def text(self, placed: Sequence[Placed]) -> str:
        """Return the page with these translations, in which special characters are escaped."""
        return "".join(part if isinstance(part, str) else written(placed[part]) for part in self._parts)

    def _keep(self, *tokens: _Token) -> None:
        self._parts += [self._source[token.start : token.end] for token in tokens]

    def _end(self, tokens: Sequence[_Token]) -> None:
        """Turn the tokens between two blocks into a segment, or into several if tags without a partner split them."""
        tags = ((place, t.name, t.kind == "start") for place, t in enumerate(tokens) if t.kind in ("start", "end"))
        partners = paired(tags)
        alone = _alone(tokens, partners)
        for before, after in pairwise([-1, *alone, len(tokens)]):
            self._segment(tokens, before + 1, after, partners)
            self._keep(*tokens[after : after + 1])

    def _segment(self, tokens: Sequence[_Token], first: int, end: int, partners: dict[int, int]) -> None:
        """Turn the tokens from `first` to before `end` into a segment.

        Markup at their edges, and tags around all of them, are kept as they are.
        """
        low, high = first, end
        while low < high:
            if _is_blank(tokens[low]):
                low += 1
            elif _is_blank(tokens[high - 1]):
                high -= 1
            elif partners.get(low) == high - 1:
                low, high = low + 1, high - 1
            else:
                break
        inside = tokens[low:high]
        if not has_letters("".join(token.text for token in inside)):
            self._keep(*tokens[first:end])
            return
        self._keep(*tokens[first:low])
        whole = _without_references(tokens, low, high, partners)
        before, made, after = segment(map(self._piece, whole), collapse=True)
        self._parts += [before, len(self.segments), after]
        self.segments.append(made)
        self._keep(*tokens[high:end])

    def _piece(self, token: _Token) -> Piece:
        source = self._source[token.start : token.end]
        match token.kind:
            case "text":
                return Text(token.text)
            case "start":
                return Open(source)
            case "end":
                return Close(source)
            case "point" if token.name in _RAISED:
                return raised(source, token.text)
            case "point" if token.text:
                return sign(source, token.text)
            case "point":
                return Point(source, shows=bool(token.name) and token.name not in _UNSEEN)


def written(placed: Placed) -> str:
    """Return a translated segment as HTML."""
    return "".join(
        html.escape(piece.text, quote=False) if isinstance(piece, Text) else str(piece.source) for piece in placed
    )


def _is_blank(token: _Token) -> bool:
    return token.kind == "point" or (token.kind == "text" and not token.text.strip())


def _without_references(tokens: Sequence[_Token], low: int, high: int, partners: dict[int, int]) -> Iterator[_Token]:
    """Yield the tokens from `low` to before `high`. Each raised or lowered number, and each sign, becomes one token."""
    place = low
    while place < high:
        token, last = tokens[place], partners.get(place, place)
        raises = token.name in _RAISED and last > place
        is_short = place < last <= place + _SHORT
        text = "".join(t.text for t in tokens[place:last]) if raises or is_short else ""
        if (raises and is_number(text)) or (is_short and is_sign(text)):
            yield _Token("point", token.start, tokens[last].end, token.name, text)
            place = last
        else:
            yield token
        place += 1


def _alone(tokens: Sequence[_Token], partners: dict[int, int]) -> list[int]:
    """Return the indices of tags without a partner, and of tags with such a tag between them and their partner."""
    single = [token.kind in ("start", "end") and place not in partners for place, token in enumerate(tokens)]
    before = [0, *accumulate(single)]

    def parted(place: int) -> bool:
        first, last = sorted((place, partners[place]))
        return before[first] != before[last]

    return [place for place in range(len(tokens)) if single[place] or (place in partners and parted(place))]


def _without_opaque(tokens: Sequence[_Token]) -> Iterator[_Token]:
    """Replace every element whose content is not translated by one token."""
    ends, blocks = _ends(tokens), _next_blocks(tokens)
    place = 0
    while place < len(tokens):
        token = tokens[place]
        if token.opaque:
            last = ends[place] if place in ends else _implied_end(tokens, place, ends, blocks)
            yield _Token("point", token.start, tokens[last].end, token.name)
            place = last + 1
        else:
            yield token
            place += 1


def _ends(tokens: Sequence[_Token]) -> dict[int, int]:
    """Return the index of each start tag's end tag, matched by name alone."""
    ends: dict[int, int] = {}
    opened: dict[str, list[int]] = {}
    for place, token in enumerate(tokens):
        if token.kind == "start":
            opened.setdefault(token.name, []).append(place)
        elif token.kind == "end" and opened.get(token.name):
            ends[opened[token.name].pop()] = place
    return ends


def _implied_end(tokens: Sequence[_Token], place: int, ends: dict[int, int], blocks: Sequence[int]) -> int:
    """Return the index of the last token of an element without an end tag."""
    if (ended_by := _ENDED_BY.get(tokens[place].name)) is None:
        return blocks[place] - 1
    at = place + 1
    while at < len(tokens):
        token = tokens[at]
        if token.kind == "end" or (token.kind == "start" and token.name in ended_by):
            break  # end tags of inner elements were passed with their start tags
        at = ends.get(at, at) + 1
    return at - 1


def _next_blocks(tokens: Sequence[_Token]) -> list[int]:
    """Return, for each token, the index of the next token that separates segments."""
    following = accumulate(
        (place if tokens[place].between else len(tokens) for place in range(len(tokens) - 1, 0, -1)),
        lambda later, place: min(later, place),
        initial=len(tokens),
    )
    return list(following)[::-1]


def _tokens(source: str, xhtml: bool, others: int) -> Iterator[_Token]:
    """Split the whole source into tokens."""
    found = _Tokenizer(source, xhtml, others).found
    for token, after in pairwise([*found, _Token("point", len(source), len(source))]):
        piece = source[token.start : after.start]
        text = ""
        if token.kind == "text":
            is_cdata = xhtml and piece.startswith(_CDATA)
            text = piece[len(_CDATA) : -len("]]>")] if is_cdata else html.unescape(piece)
        yield token._replace(end=after.start, text=text)


def _local(name: str) -> str:
    """Return the name of an XML element without its prefix."""
    return name.rpartition(":")[2]


class _EndlessMarkupError(Exception):
    """Raised if the rest of a source is one unfinished piece of markup, with no more tokens to find."""


class _Tokenizer(HTMLParser):
    """Finds where tokens start, with the same result in all versions of the standard library."""

    CDATA_CONTENT_ELEMENTS = ("script", "style")  # type: ignore[misc]
    RCDATA_CONTENT_ELEMENTS = ()  # type: ignore[misc]

    def __init__(self, source: str, xhtml: bool, others: int) -> None:
        super().__init__(convert_charrefs=False)
        self._xhtml, self._others = xhtml, others
        self._is_closing = False
        self.found: list[_Token] = []
        self._text_alone = set() if xhtml else set(_TEXT_ALONE)
        self._source = source
        self._lines = [0, *(place + 1 for place, character in enumerate(source) if character == "\n")]
        with contextlib.suppress(_EndlessMarkupError):
            self.feed(source.replace("&", "_"))  # it would stop at some; `html.unescape` resolves them
            self._is_closing = True
            self.close()
        if not self.found or self.found[0].start:
            self.found.insert(0, _Token("point", 0, 0))

    def _place(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def _add(self, kind: _Kind, name: str = "", *, opaque: bool = False, further: int = 0) -> None:
        start = self._place() + further
        if self.found and start <= self.found[-1].start:
            return  # the parser reports twice what it could not read
        if len(self.found) + self._others >= MOST_NODES:
            raise too_many_nodes()
        self.found.append(_Token(kind, start, start, name.lower(), opaque=opaque))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add a start tag."""
        tag = _local(tag) if self._xhtml else tag
        if tag in VOID:
            self._add("point", tag)
            return
        values = dict(reversed(attrs))  # of repeated attributes, the first counts
        kept = (values.get("translate") or "").strip().lower() == "no"
        kept = kept or "notranslate" in (values.get("class") or "").split()
        self._add("start", tag, opaque=kept or tag in OPAQUE)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add a self-closing tag. Elements of svg and math may be self-closing; HTML's own may not."""
        if self._xhtml:
            name = _local(tag)
            is_empty = not (name in VOID or name in BLOCKS or name in OPAQUE)  # an anchor, say, which is invisible
            self._add("point", "" if is_empty else name)
        elif (tag in BLOCKS or tag in OPAQUE) and tag not in _FOREIGN:
            self.handle_starttag(tag, attrs)
        else:
            self._add("point", tag)

    def handle_endtag(self, tag: str) -> None:
        """Add an end tag."""
        tag = _local(tag) if self._xhtml else tag
        self._add("point" if tag in VOID else "end", tag)

    def handle_data(self, data: str) -> None:
        """Add text. A comment or tag that never ends extends to the end of the source, as in browsers."""
        if self.cdata_elem is None and _MARKUP.match(self._source, self._place()):  # not in a script
            self._add("point")
            raise _EndlessMarkupError
        self._add("text")

    def handle_comment(self, data: str) -> None:
        """Add a comment."""
        self._add("point")

    def parse_pi(self, i: int) -> int:
        """Parse a processing instruction; in XHTML, up to where XML ends it."""
        if not self._xhtml:
            return super().parse_pi(i)
        if (place := self.rawdata.find("?>", i + 2)) < 0:
            return -1
        self.handle_pi(self.rawdata[i + 2 : place])
        return place + 2

    def handle_pi(self, data: str) -> None:
        """Add a processing instruction."""
        self._add("point")

    def parse_starttag(self, i: int) -> int:
        """Parse a start tag up to its end; for a title, with its content up to the end tag.

        A tag that never ends extends to the end of the source.
        """
        end = self._or_all(super().parse_starttag(i))
        name = self.found[-1].name if end > 0 and self.found and self.found[-1].kind == "start" else ""
        if name not in self._text_alone:
            return end
        closing = re.compile(rf"</{name}[\s/>]", re.IGNORECASE).search(self.rawdata, end)
        if closing is None:
            self._text_alone.remove(name)  # later ones have no end tag either
            return end
        if closing.start() > end:
            self._add("text", further=end - i)
        return closing.start()

    def parse_endtag(self, i: int) -> int:
        """Parse an end tag up to its end, or to the end of the source if the tag never ends."""
        if self.rawdata.startswith("</>", i):  # browsers ignore it
            self._add("point")
        return self._or_all(super().parse_endtag(i))

    def _or_all(self, end: int) -> int:
        if end < 0 and self._is_closing:  # newer versions of the library would omit it
            self._add("point")
            raise _EndlessMarkupError
        return end

    def parse_comment(self, i: int, report: bool = True) -> int:
        """Parse a comment up to where browsers end it; the library follows older rules."""
        if (found := _COMMENT.match(self.rawdata, i)) is None:
            return -1
        self.handle_comment(found[0])
        return found.end()

    def parse_html_declaration(self, i: int) -> int:
        """Parse a declaration. As in browsers, it ends with >, and a CDATA section with ]]>."""
        if self.rawdata.startswith("<!--", i):
            return self.parse_comment(i)
        end = "]]>" if self.rawdata.startswith("<![CDATA[", i) else ">"
        place = self.rawdata.find(end, i + 2)
        if place < 0:
            return -1
        self.unknown_decl(self.rawdata[i:place])
        return place + len(end)

    def unknown_decl(self, data: str) -> None:
        """Add a doctype, a CDATA section or a conditional comment."""
        self._add("text" if self._xhtml and data.startswith(_CDATA) else "point")
