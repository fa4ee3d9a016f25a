"""Segments: paragraphs or titles that are translated as a whole, with their markup.

A segment does not depend on the format: a mark carries the source that its format writes. Offsets are in characters.
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
"""Maximum number of characters in a sign (`is_sign`), and of pieces in an element that can be one."""
_BRACKETED = re.compile(r"\[\d+\]")
_BESIDE_SIGNS = frozenset(["Mn", "Cf", "Zs", "Cc", "Sk"])
"""Unicode categories of characters that combine emoji, and of white space."""
_SPACES = re.compile(r"[ \t\n\r\f]+")
MOST_NODES = 300_000
"""Maximum number of elements and pieces of text in a document; a long book has fewer. Each takes some 400 bytes and
ten microseconds."""
MOST_DEPTH = 64
"""Maximum nesting depth of marks. Deeper tags are treated as tags without a partner."""


def too_many_nodes() -> DataError:
    """Return the error for a document with more than `MOST_NODES` nodes."""
    return DataError(f"the document has more than {MOST_NODES:,} elements and texts: split it")


def paired(tags: Iterable[tuple[int, str, bool]]) -> dict[int, int]:
    """Return the place of each start tag's end tag, and the reverse, for tags that nest properly.

    `tags`: place, name, and whether it is a start tag, for each tag in order.
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
    """Text, in a segment or its translation."""

    text: str


class Open(NamedTuple):
    """The beginning of a mark that contains text."""

    source: object


class Close(NamedTuple):
    """The end of the mark that was opened last."""

    source: object


class Point(NamedTuple):
    """Markup without text to translate: a picture, a comment, a piece of code."""

    source: object
    shows: bool = True
    """Whether it is visible, so that white space around it matters."""
    separates: bool = False
    """Whether it acts as white space itself, such as a tab."""
    joined: bool = False
    """Whether it is part of the word right before it, such as a raised number."""
    ends: End = "none"
    """What ends at the point, and with it the sentence. After a line break, a sentence goes on if the text continues in
    lower case."""


def text_of(pieces: Iterable["Piece"]) -> str:
    """Return the text of these pieces."""
    return "".join(piece.text for piece in pieces if isinstance(piece, Text))


def raised(source: object, text: str) -> Point:
    """Return the point for a raised or lowered number, as in 10⁶, CO₂ or of a footnote.

    As text, a model would read it as part of another number.
    """
    return Point(source, separates=text[-1:].isspace(), joined=not text[:1].isspace())


def is_number(text: str) -> bool:
    """Return whether raised or lowered text is a number for `raised`: it has no letters. Empty text counts, too."""
    return not text.isspace() and not has_letters(text)


def is_sign(text: str) -> bool:
    """Return whether a mark's text is no word, but a tick, an arrow, an icon, or a number in square brackets.

    A translation may lack a word for it, and another word must not take its place.
    """
    shown = text.strip()
    if len(text) > MOST_OF_A_SIGN or has_letters(unicodedata.normalize("NFKC", shown)):
        return False  # letters in ㎏ and ㈱ count, too
    signs = [character for character in shown if _is_drawn(character)]
    others = [character for character in shown if unicodedata.category(character) not in _BESIDE_SIGNS]
    return (bool(signs) and signs == others) or _BRACKETED.fullmatch(shown) is not None


def _is_drawn(character: str) -> bool:
    """Return whether a character is an arrow, shape, dingbat, emoji or icon; not ©, °, +, ≤ or a letter of Braille."""
    kind = unicodedata.category(character)
    return (
        character >= "←"
        and not "\u2800" <= character < "\u2900"
        and (kind in ("So", "Co") or (kind == "Sm" and "ARROW" in unicodedata.name(character, "")))
    )


def sign(source: object, text: str) -> Point:
    """Return the point for a text that `is_sign`. A number in brackets, as of a note, belongs to the word before it."""
    return raised(source, text) if text.strip().startswith("[") else Point(source)


Piece: TypeAlias = Text | Open | Close | Point
Placed: TypeAlias = list[Piece]
"""A translated segment: text and markup, in the order in which they are written."""


@dataclass(frozen=True)
class Mark:
    """Markup of a range of a segment's text, or at a point."""

    start: int
    end: int
    """Equal to `start` if it contains no text."""
    opens: object
    closes: object | None = None
    """None for a point."""
    within: tuple["Mark", ...] = ()
    shows: bool = False
    """As in `Point`: whether a point is visible."""
    separates: bool = False
    """As in `Point`: whether a point acts as white space."""
    joined: bool = False
    """As in `Point`: whether a point is part of a word. For an element: whether it contains only such points."""
    space_before: bool = False
    space_after: bool = False


@dataclass(frozen=True)
class Segment:
    """A text without outer white space, and its marks in order. Each mark contains the marks inside it."""

    text: str
    marks: tuple[Mark, ...] = ()
    ends: tuple[int, ...] = ()
    """Positions over which no sentence extends, such as that of a tab, in order."""


class Document(Protocol):
    """A document with segments."""

    @property
    def segments(self) -> Sequence[Segment]:
        """Segments to translate, in order; none is blank."""

    def assemble(self, placed: Sequence[Placed]) -> bytes:
        """Return the document with these translations of its segments, as bytes."""


class TextDocument(ABC):
    """A document that is a text: segments, and the text between them, which stays."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        """Segments to translate, in order."""
        self._parts: list[str | int] = []  # texts that stay, and indices of segments

    def _add(self, before: str, made: Segment, after: str) -> None:
        """Add a segment, between texts that stay."""
        self._parts += [before, len(self.segments), after]
        self.segments.append(made)

    @abstractmethod
    def _written(self, number: int, placed: Placed) -> str:
        """Return the translated segment with this index as text."""

    def text(self, placed: Sequence[Placed]) -> str:
        """Return the document with these translations."""
        parts = self._parts
        return "".join(part if isinstance(part, str) else self._written(part, placed[part]) for part in parts)

    def assemble(self, placed: Sequence[Placed]) -> bytes:
        """Return the document with these translations, in UTF-8."""
        return self.text(placed).encode()


class _Half:
    """A mark whose end has not been read yet."""

    def __init__(self, start: int, source: object) -> None:
        self.start, self.source = start, source
        self.within: list[Mark] = []


class _Ended:
    """Tracks whether and where a line or a column has ended since the last text."""

    def __init__(self) -> None:
        self._place: int | None = None
        self._is_line = True  # a line and no column has ended

    def at(self, place: int, end: End) -> None:
        """Take note of a point with this `ends` at a place."""
        if end != "none":
            self._place = place if self._place is None else self._place
            self._is_line = self._is_line and end == "line"

    def before(self, letters: str) -> list[int]:
        """Return the place of the end if the sentence does not go on with these letters; otherwise nothing."""
        if self._place is None or letters.isspace():
            return []
        goes_on = self._is_line and letters.lstrip()[0].islower()
        place, self._place, self._is_line = self._place, None, True
        return [] if goes_on else [place]


def segment(pieces: Iterable[Piece], *, collapse: bool) -> tuple[str, Segment, str]:
    """Make a segment of pieces, in which every `Open` has its `Close`. Return it between its outer white space.

    Spaces on both sides of markup become one space. Words on both sides of a visible point stay two words.
    `collapse`: whether several white space characters become one space, as in HTML.
    """
    text = ""
    halves = [_Half(0, None)]
    points: list[Mark] = []  # since the last text
    shown = False  # whether one of them is visible
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
    """Return, for each piece, whether the text after it begins with white space."""
    found, after = [], ""
    for piece in reversed(pieces):
        found.append(after.isspace())
        if isinstance(piece, Text):
            after = piece.text[:1] or after
    return found[::-1]


def _parted(before: str, points: Sequence[Mark], after: str) -> bool:
    """Return whether to insert a space between two characters with points between them, to keep words apart."""
    if any(point.separates for point in points):
        return bool(before) and not before.isspace() and not after.isspace()
    return any(point.shows and not point.joined for point in points) and before.isalnum() and after.isalnum()


def _moved(mark: Mark, lead: int, length: int) -> Mark:
    """Adjust a mark to a text that lost its first `lead` characters and all after the next `length`."""
    start, end = (min(max(0, place - lead), length) for place in (mark.start, mark.end))
    within = tuple(_moved(inner, lead, length) for inner in mark.within)
    return replace(mark, start=start, end=end, within=within)
