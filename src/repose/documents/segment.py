"""What is translated as a whole, a paragraph or a title, with the markup that stands in it.

A segment knows nothing of formats: a mark carries whatever its format writes for it. Offsets are characters.
"""

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol, TypeAlias

from repose.data.scripts import has_letters
from repose.system.errors import DataError

LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
"""A line with its end. The last one of a text is empty."""
MOST_OF_A_SIGN = 64
"""Characters of what is no word; of parts, too, that hold it."""
_BRACKETED = re.compile(r"\[\d+\]")
_BESIDE_SIGNS = frozenset(["Mn", "Cf", "Zs", "Cc", "Sk"])
"""Categories of what makes one emoji of several characters, and of white space."""
_SPACES = re.compile(r"[ \t\n\r\f]+")
MOST_NODES = 300_000
"""Elements and pieces of text of a document, of some 400 bytes and ten microseconds each: a long book has fewer."""
MOST_DEPTH = 64
"""Marks within marks; what stands deeper is no markup of one segment any more."""


def too_many_nodes() -> DataError:
    """The error for a document with more than `MOST_NODES`."""
    return DataError(f"the document has more than {MOST_NODES:,} elements and texts: split it")


def paired(tags: Iterable[tuple[int, str, bool]]) -> dict[int, int]:
    """The place of the end tag of each start tag, and the other way round, where they nest.

    `tags`: place, name, and whether it is a start tag, in order.
    """
    partners: dict[int, int] = {}
    opened: list[tuple[str, int]] = []
    for place, name, is_start in tags:
        if is_start:
            opened.append((name, place))
        elif any(other == name for other, _ in opened[-MOST_DEPTH:]):
            while opened[-1][0] != name:
                opened.pop()
            start = opened.pop()[1]
            if len(opened) < MOST_DEPTH:
                partners |= {start: place, place: start}
    return partners


End: TypeAlias = Literal["none", "line", "column"]


class Text(NamedTuple):
    """Letters."""

    text: str


class Markup(NamedTuple):
    """What a format writes where a mark opens, closes or stands."""

    source: object
    opens: bool = False


class Open(NamedTuple):
    """The beginning of a mark that holds letters."""

    source: object


class Close(NamedTuple):
    """The end of the mark that was opened last."""

    source: object


class Point(NamedTuple):
    """Markup that holds no letters to translate: a picture, a comment, a piece of code."""

    source: object
    shows: bool = True
    """Whether it is seen, so that the white space around it matters."""
    separates: bool = False
    """Whether it is white space itself, such as a tab."""
    joined: bool = False
    """Whether it is part of the word right before it, such as a raised number."""
    ends: End = "none"
    """What ends there, and the sentence with it; at a line break it goes on where the text does in lower case."""


def text_of(pieces: Iterable["Piece"]) -> str:
    """The letters of these pieces."""
    return "".join(piece.text for piece in pieces if isinstance(piece, Text))


def raised(source: object, text: str) -> Point:
    """A raised or lowered number, 10⁶, CO₂ or that of a footnote: a model would read it as part of another number."""
    return Point(source, separates=text[-1:].isspace(), joined=not text[:1].isspace())


def is_number(text: str) -> bool:
    """Whether a raised or lowered text is one that `raised` takes; one of nothing is too."""
    return not text.isspace() and not has_letters(text)


def is_sign(text: str) -> bool:
    """Whether all that a mark holds is no word, but a tick, an arrow, an icon, or a number in square brackets: a
    translation may have no word for it, and another one must not take its place."""
    shown = text.strip()
    if len(text) > MOST_OF_A_SIGN or has_letters(unicodedata.normalize("NFKC", shown)):
        return False  # of ㎏ and ㈱, too
    signs = [character for character in shown if _is_drawn(character)]
    others = [character for character in shown if unicodedata.category(character) not in _BESIDE_SIGNS]
    return (bool(signs) and signs == others) or _BRACKETED.fullmatch(shown) is not None


def _is_drawn(character: str) -> bool:
    """Of arrows, shapes, dingbats, emoji and fonts of icons; not ©, °, +, ≤, or a letter of Braille."""
    kind = unicodedata.category(character)
    return (
        character >= "←"
        and not "\u2800" <= character < "\u2900"
        and (kind in ("So", "Co") or (kind == "Sm" and "ARROW" in unicodedata.name(character, "")))
    )


def sign(source: object, text: str) -> Point:
    """What `is_sign`; a number in brackets, as of a note, belongs to the word before it."""
    return raised(source, text) if text.strip().startswith("[") else Point(source)


Piece: TypeAlias = Text | Open | Close | Point
Placed: TypeAlias = list[Text | Markup]
"""A translated segment: letters, and markup between them in the order in which it is to be written."""


@dataclass(frozen=True)
class Mark:
    """Markup of a part of a segment's text."""

    start: int
    end: int
    """Equal to `start` where it holds no letters."""
    opens: object
    closes: object | None = None
    """None of a point."""
    within: tuple["Mark", ...] = ()
    shows: bool = False
    """Whether a point is seen: see `Point`."""
    separates: bool = False
    """Likewise."""
    joined: bool = False
    """Likewise; of an element, whether it holds such points alone."""
    space_before: bool = False
    space_after: bool = False


@dataclass(frozen=True)
class Segment:
    """A text without outer white space, and its marks in order, each with those that stand in it."""

    text: str
    marks: tuple[Mark, ...] = ()
    ends: tuple[int, ...] = ()
    """Places beyond which no sentence goes on, such as that of a tab, in order."""


class Document(Protocol):
    """Something with segments in it."""

    @property
    def segments(self) -> Sequence[Segment]:
        """What is to be translated, in order; none of them blank."""

    def assemble(self, placed: Sequence[Placed]) -> bytes:
        """The document with these translations of its segments."""


class TextDocument(ABC):
    """A document that is text."""

    segments: Sequence[Segment]
    """What is to be translated, in order."""

    @abstractmethod
    def text(self, placed: Sequence[Placed]) -> str:
        """The document with these translations."""

    def assemble(self, placed: Sequence[Placed]) -> bytes:
        """The same in UTF-8."""
        return self.text(placed).encode()


class _Half:
    """A mark that is open."""

    def __init__(self, start: int, source: object) -> None:
        self.start, self.source = start, source
        self.within: list[Mark] = []


class _Ended:
    """Where a line or a column has ended since the last letters."""

    def __init__(self) -> None:
        self._place: int | None = None
        self._is_line = True  # and no more than that

    def at(self, place: int, end: End) -> None:
        """A point there."""
        if end != "none":
            self._place = place if self._place is None else self._place
            self._is_line = self._is_line and end == "line"

    def before(self, letters: str) -> list[int]:
        """The place, if letters come next with which no sentence goes on."""
        if self._place is None or letters.isspace():
            return []
        goes_on = self._is_line and letters.lstrip()[0].islower()
        place, self._place, self._is_line = self._place, None, True
        return [] if goes_on else [place]


def segment(pieces: Iterable[Piece], *, collapse: bool) -> tuple[str, Segment, str]:
    """The segment of some pieces, of which every `Open` has its `Close`, between its outer white space.

    `collapse`: white space is as in HTML, where one space is like many. A space on both sides of markup is one, and
    words on both sides of something that shows are two.
    """
    text = ""
    halves = [_Half(0, None)]
    points: list[Mark] = []  # since the last letters
    shown = False  # whether one of them is seen
    ends: list[int] = []
    ended = _Ended()
    pieces = list(pieces)
    outer = [any(isinstance(piece, Text) for piece in edge) for edge in (pieces[:1], pieces[-1:])]

    for piece, space_after in zip(pieces, _spaces_after(pieces), strict=True):
        match piece:
            case Text(letters):
                if not letters:
                    continue
                ends += ended.before(letters)
                text += " " * _parted(text[-1:], points, letters[0])
                points, shown = [], False
                letters = _SPACES.sub(" ", letters) if collapse else letters
                text += letters[1:] if text[-1:].isspace() and letters[0] == " " else letters
            case Open(source):
                halves.append(_Half(len(text), source))
            case Close(source):
                half = halves.pop()
                joined = half.start == len(text) and bool(half.within) and all(mark.joined for mark in half.within)
                mark = Mark(half.start, len(text), half.source, source, tuple(half.within), joined=joined)
                halves[-1].within.append(mark)
            case Point(source, shows, separates, joined, end):
                place, space = len(text), text[-1:].isspace()
                ended.at(place, end)
                joined = joined and bool(text) and not space
                points.append(
                    Mark(place, place, source, None, (), shows, separates, joined, space and not shown, space_after)
                )
                shown = shown or shows
                halves[-1].within.append(points[-1])
    assert len(halves) == 1
    core = text.strip()
    lead = len(text) - len(text.lstrip()) if core else 0
    marks = tuple(_moved(mark, lead, len(core)) for mark in halves[0].within)
    before, after = text[:lead], text[lead + len(core) :]
    begins, closes = outer
    inner = tuple(place - lead for place in ends if lead < place < lead + len(core))
    return before if begins else "", Segment(core, marks, inner), after if closes else ""


def _spaces_after(pieces: Sequence[Piece]) -> list[bool]:
    """Of each piece, whether the letters after it begin with white space."""
    found, after = [], ""
    for piece in reversed(pieces):
        found.append(after.isspace())
        if isinstance(piece, Text):
            after = piece.text[:1] or after
    return found[::-1]


def _parted(before: str, points: Sequence[Mark], after: str) -> bool:
    """Whether a space is to stand between two letters with some points between them, so that they are not one word."""
    if any(point.separates for point in points):
        return bool(before) and not before.isspace() and not after.isspace()
    return any(point.shows and not point.joined for point in points) and before.isalnum() and after.isalnum()


def _moved(mark: Mark, lead: int, length: int) -> Mark:
    """A mark of a text whose first `lead` characters, and all after `length` more, are left out."""
    start, end = (min(max(0, place - lead), length) for place in (mark.start, mark.end))
    within = tuple(_moved(inner, lead, length) for inner in mark.within)
    return replace(mark, start=start, end=end, within=within)
