"""Plain text: translate each line by itself, or each paragraph. The white space between them stays."""

import re
from collections.abc import Iterator, Sequence

from repose.data.scripts import has_letters
from repose.decoding.parts import is_wide
from repose.documents.segment import (
    LINE,
    MOST_NODES,
    Placed,
    Text,
    TextDocument,
    segment,
    text_of,
    too_many_nodes,
)

_ITEM = re.compile(r"\s*([-*•·–—|]|#{1,6}|>(?:\s*>)*|\d{1,3}[.)])\s")
"""The beginning of a line in a list, a quotation or a heading. Such a line does not continue the line before it, and
this beginning is not translated."""


class PlainDocument(TextDocument):
    """A plain text.

    With `paragraphs`, lines without a blank line between them are one paragraph, which becomes one line. Otherwise each
    line is translated alone. Raises DataError if there are more than `MOST_NODES` paragraphs or lines.
    """

    def __init__(self, text: str, *, paragraphs: bool = False) -> None:
        super().__init__()
        for piece in _paragraphs(text) if paragraphs else LINE.findall(text):
            if has_letters(piece):
                if len(self.segments) == MOST_NODES:
                    raise too_many_nodes()
                body = piece.rstrip("\r\n")
                item = found[0] if (found := _ITEM.match(body)) else ""
                before, made, after = segment([Text(body[len(item) :])], collapse=False)
                self._add(item + before, made, after + piece[len(body) :])
            else:
                self._parts.append(piece)

    def _written(self, _: int, placed: Placed) -> str:
        return text_of(placed)


def _paragraphs(text: str) -> Iterator[str]:
    """Yield each paragraph as one line with its line end, and the blank lines between paragraphs."""
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
        if begun and _kind_of_item(begun[0]) == "#":  # a heading ends with its line
            yield "".join(begun)
            begun = []
    yield "".join(begun)


def _begins_item(line: str, begun: Sequence[str]) -> bool:
    """Return whether a line starts a new item instead of continuing the paragraph `begun`.

    A dash or a number may belong to the paragraph's sentence: "on\n3. May", "he came\n– as always –".
    """
    if (kind := _kind_of_item(line)) is None:
        return False
    last = begun[-1].rstrip()[-1]
    is_within = kind in ("–", "2.") and (last.islower() or last == ",")
    return not is_within or _kind_of_item(begun[0]) in (kind, "1." if kind == "2." else kind)


def _kind_of_item(line: str) -> str | None:
    """Return the kind of item that a line starts: "1." for the first of a numbered list, "2." for a later one, or else
    the sign at its start. None if it starts no item."""
    if (found := _ITEM.match(line)) is None:
        return None
    sign = found[1]
    if sign[0].isdigit():
        return "1." if sign[:-1] in ("0", "1") else "2."
    return "–" if sign == "—" else sign[0]
