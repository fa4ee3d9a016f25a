"""HTML: translate the text that a browser shows, and keep everything else byte for byte.

Tokens are found where browsers find them, and every token keeps its slice of the source. No tree is built and written
anew, so malformed HTML stays as it was. Segments contain inline elements. Between segments are block elements, line
breaks, and inline tags without a partner in the same segment.
"""

import html
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice, pairwise
from typing import Literal, NamedTuple, TypeAlias

from repose.data.scripts import has_letters
from repose.documents.segment import (
    MOST_NODES,
    Close,
    Open,
    Piece,
    Placed,
    Point,
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
_NOT_SHOWN = "area link meta param rp rt script source style template track wbr"
_UNSEEN = frozenset(_NOT_SHOWN.split())
"""Elements that do not separate words, such as the reading above the letters of a ruby."""
_RAISED = frozenset(["sup", "sub"])
"""Elements whose numbers belong to the word before them."""

_CDATA = "<![CDATA["
_BEGINS = re.compile(r"<[a-zA-Z/!?]")
"""The beginning of markup; any other < is text."""
_S = r"\t\n\f\r "  # white space
_VALUE = rf'(?:"([^"]*+)"|\'([^\']*+)\'|(?!["\'])([^{_S}>]*+))'
_ATTRIBUTE = re.compile(rf"[{_S}/]*+([^{_S}/>][^{_S}/>=]*+)(?:[{_S}]*+=[{_S}]*+{_VALUE}|(?![{_S}]*+=))")
_MARKUP = re.compile(
    r"<!--(?:-?>|(?s:.)*?--!?>)"
    r"|<!\[CDATA\[(?s:.)*?\]\]>"
    r"|<(?!!--|!\[CDATA\[)[!?][^>]*+>"
    r"|</(?![a-zA-Z])[^>]*+>"
    rf"|</?+(?P<name>[a-zA-Z][^{_S}/>]*+)(?P<attributes>(?:{_ATTRIBUTE.pattern})*+)(?P<rest>[{_S}/]*+)>"
)
"""Comments, CDATA sections, declarations, bogus comments and tags: https://html.spec.whatwg.org/#tokenization."""
_INSTRUCTION = re.compile(r"<\?(?s:.)*?\?>")
"""A processing instruction in XHTML."""
_CLOSING = {
    name: re.compile(rf"</{name}[{_S}/>]", re.IGNORECASE | re.ASCII) for name in ("script", "style", *_TEXT_ALONE)
}
"""The end tags of elements in which nothing else is markup."""

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
        super().__init__()
        self._source = source
        tokens = list(islice(_tokens(source, xhtml), MOST_NODES - others + 1))
        if len(tokens) + others > MOST_NODES:
            raise too_many_nodes()
        self.num_nodes = len(tokens)
        begun: list[_Token] = []
        for token in _without_opaque(tokens):
            if token.between:
                self._end(begun)
                self._keep(token)
                begun = []
            else:
                begun.append(token)
        self._end(begun)

    def _written(self, _: int, placed: Placed) -> str:
        return "".join(
            html.escape(piece.text, quote=False) if isinstance(piece, Text) else str(piece.source) for piece in placed
        )

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
        self._add(before, made, after)
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
    ends = _ends(tokens)
    place = 0
    while place < len(tokens):
        token = tokens[place]
        if token.opaque:
            last = ends[place] if place in ends else _implied_end(tokens, place, ends)
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


def _implied_end(tokens: Sequence[_Token], place: int, ends: dict[int, int]) -> int:
    """Return the index of the last token of an element without an end tag."""
    at = place + 1
    if (ended_by := _ENDED_BY.get(tokens[place].name)) is None:  # it ends before the next block
        return next((later for later in range(at, len(tokens)) if tokens[later].between), len(tokens)) - 1
    while at < len(tokens):
        token = tokens[at]
        if token.kind == "end" or (token.kind == "start" and token.name in ended_by):
            break  # end tags of inner elements were passed with their start tags
        at = ends.get(at, at) + 1
    return at - 1


def _tokens(source: str, xhtml: bool) -> Iterator[_Token]:
    """Split the whole source into tokens, where browsers do."""
    endless: set[str] = set()  # elements of `_TEXT_ALONE` that have no end tag any more
    place = 0
    while place < len(source):
        if _BEGINS.match(source, place):
            token = _markup(source, place, xhtml)
        else:
            token = _text(source, place, _BEGINS.search(source, place))
        yield token
        place = token.end
        if token.kind != "start" or token.name in endless or (xhtml and not _has_raw_text(source, token)):
            continue
        if (closing := _CLOSING.get(token.name)) is not None:
            found = closing.search(source, place)
            if found is None and token.name in _TEXT_ALONE:
                endless.add(token.name)
                continue
            content = _text(source, place, found)
            if content.end > place:
                yield content
            place = content.end


def _has_raw_text(source: str, token: _Token) -> bool:
    """Return whether nothing in an element of XHTML is taken for markup: in scripts and styles without a prefix."""
    return token.name not in _TEXT_ALONE and source[token.start + 1 : token.end].lower().startswith(token.name)


def _text(source: str, start: int, until: re.Match[str] | None) -> _Token:
    end = len(source) if until is None else until.start()
    return _Token("text", start, end, text=html.unescape(source[start:end]))


def _markup(source: str, start: int, xhtml: bool) -> _Token:
    """Return the token of the markup that begins at `start`. If it never ends, it extends to the end of the source."""
    pattern = _INSTRUCTION if xhtml and source.startswith("<?", start) else _MARKUP
    if (found := pattern.match(source, start)) is None:
        return _Token("point", start, len(source))
    end = found.end()
    if pattern is _INSTRUCTION or found["name"] is None:
        if xhtml and source.startswith(_CDATA, start):
            return _Token("text", start, end, text=source[start + len(_CDATA) : end - len("]]>")])
        return _Token("point", start, end)
    name = found["name"].lower()
    if xhtml:
        name = name.rpartition(":")[2]  # without the prefix
    if source.startswith("</", start):
        return _Token("point" if name in VOID else "end", start, end, name)
    is_closed = found["rest"].endswith("/")
    is_known = name in VOID or name in BLOCKS or name in OPAQUE
    if is_closed and xhtml:
        return _Token("point", start, end, name if is_known else "")  # an anchor, say, is invisible
    # Elements of svg and math may be self-closing; HTML's own may not.
    if name in VOID or (is_closed and (not is_known or name in _FOREIGN)):
        return _Token("point", start, end, name)
    return _Token("start", start, end, name, opaque=name in OPAQUE or _is_untranslated(found["attributes"]))


def _is_untranslated(attributes: str) -> bool:
    """Return whether the attributes of a tag say that its element is not translated."""
    values: dict[str, str] = {}
    for name, *value in _ATTRIBUTE.findall(attributes):
        values.setdefault(name.lower(), "".join(value))  # of repeated attributes, the first counts
    return values.get("translate", "").strip().lower() == "no" or "notranslate" in values.get("class", "").split()
