"""Plain text: every line is translated by itself, or every paragraph, and all white space between them stays."""

import re
from collections.abc import Iterator, Sequence

from repose.data.scripts import has_letters
from repose.decoding.parts import is_wide
from repose.documents.segment import (
    LINE,
    MOST_NODES,
    Markup,
    Placed,
    Segment,
    Text,
    TextDocument,
    segment,
    too_many_nodes,
)

_ITEM = re.compile(r"\s*([-*•·–—|]|#{1,6}|>(?:\s*>)*|\d{1,3}[.)])\s")
"""How the lines of a list begin, and those of a quotation or a heading: they go on with nothing before them, and
what they begin with is not translated."""


class PlainDocument(TextDocument):
    """A text. `paragraphs`: lines that follow each other without a blank line are one paragraph, which becomes one
    line; otherwise every line stands alone. Raises DataError for more than `MOST_NODES` of either."""

    def __init__(self, text: str, *, paragraphs: bool = False) -> None:
        self.segments: list[Segment] = []
        """Lines or paragraphs."""
        self._parts: list[str | int] = []  # what stays, and places in the segments
        for piece in _paragraphs(text) if paragraphs else LINE.findall(text):
            if has_letters(piece):
                if len(self.segments) == MOST_NODES:
                    raise too_many_nodes()
                body = piece.rstrip("\r\n")
                item = found[0] if (found := _ITEM.match(body)) else ""
                before, made, after = segment([Text(body[len(item) :])], collapse=False)
                self._parts += [item + before, len(self.segments), after + piece[len(body) :]]
                self.segments.append(made)
            else:
                self._parts.append(piece)

    def text(self, placed: Sequence[Placed]) -> str:
        """The text with these translations."""
        return "".join(part if isinstance(part, str) else letters(placed[part]) for part in self._parts)


def letters(placed: Placed) -> str:
    """A translated segment without markup."""
    return "".join(piece.text for piece in placed if not isinstance(piece, Markup))


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs as one line each with its end, and what is between them."""
    begun: list[str] = []
    for line in LINE.findall(text):
        if begun and (not line.strip() or _begins_item(line, begun)):
            yield "".join(begun)
            begun = []
        if not line.strip():
            yield line
        elif not begun:
            begun = [line]
        else:
            before, after = begun[-1].rstrip(), line.lstrip()
            begun[-1:] = [before, " " * (not (is_wide(before[-1]) and is_wide(after[0]))), after]
        if begun and _kind_of_item(begun[0]) == "#":  # nothing goes on after a heading
            yield "".join(begun)
            begun = []
    yield "".join(begun)


def _begins_item(line: str, begun: Sequence[str]) -> bool:
    """Whether a line goes on with nothing of the paragraph that has begun. A dash or a number may be of its sentence:
    "on\n3. May", "he came\n– as always –"."""
    if (kind := _kind_of_item(line)) is None:
        return False
    last = begun[-1].rstrip()[-1]
    is_within = kind in ("–", "2.") and (last.islower() or last == ",")
    return not is_within or _kind_of_item(begun[0]) in (kind, "1." if kind == "2." else kind)


def _kind_of_item(line: str) -> str | None:
    """The first of a numbered list, another of it, or the sign that a line begins with."""
    if (found := _ITEM.match(line)) is None:
        return None
    sign = found[1]
    if sign[0].isdigit():
        return "1." if sign[:-1] in ("0", "1") else "2."
    return "–" if sign == "—" else sign[0]
