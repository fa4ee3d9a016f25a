"""Statistics of a set of sentence pairs, gathered in one pass: tallies, and a few numbers for each row."""

import re
import unicodedata
from array import array
from collections import Counter
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from repose.data.findings import Kind
from repose.data.pairs import SIDES, Row, Side
from repose.data.scripts import script_of
from repose.data.tokenised_text import ENTITY, looks_tokenised

LONG_WORDS, LONG_CHARACTERS = 100, 600
"""A side with more words or characters than this is longer than a sentence."""
NO_SCRIPT = -1
_MOST_FIRST_WORDS = 10_000
_COPIED_WORDS, _COPIED_LETTERS, _COPIED_SHARE = 3, 4, 0.6
"""A target is copied if it has at least this many distinct words of this many letters, and at least this share of them
occurs in the source."""
_SAMPLE, _SAMPLE_CHARACTERS, _SAMPLE_BYTES = 300, (20, 300), 60
"""Long lines sampled from each side: at least this many if there are enough. A long line has at least the first number
of characters and at least this many bytes; it is cut after the second number of characters."""
_JOINED_CHARACTERS = 200
"""Shorter lines are joined until they have this many characters, and then sampled, too."""

_TWO_SCRIPTS = 0.75
"""Least share of pairs in the same two scripts, in either direction, from which on the rarer direction is wrong."""
_SPREADSHEET = 0.1
"""Share of the quoted lines by which a spreadsheet is recognised. A spreadsheet quotes every cell that contains a
quote, and doubles the quote: at most this many other lines contain quotes, or at least this many quoted lines contain
doubled ones."""

_TAG = re.compile(r"(?:<[^<> ]{1,20}>|__\w{1,20}__|>>\w{1,20}<<|\[\w{1,10}\])(?= |$)")
_MARKUP = re.compile(r"</?[A-Za-z][\w-]*(?: [^<>]{0,200})?/?>")
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ue000-\uf8ff\ufeff\ufff9-\uffff]"
    "|Ã[\u0080-\u00bf]|â€|Â[\u0080-\u00bf]"  # UTF-8 that was decoded as Latin-1 or Windows-1252
)
_MARK_IN_WORD = re.compile(r"(?<!\S)[^\W\d_]+\?([^\W\d_])")
"""Only words that begin with letters: addresses contain question marks, too."""
_NUMBER = re.compile(r"\d+")
_LINE_NUMBER = re.compile(r" *\(?([0-9]{1,9})[.):\s]+")
"""The numbers that the command in `repose.data.advice` removes."""
_BETWEEN_ALTERNATIVES = re.compile(r"(?<![\d ]) [/|] (?![\d ])")
"""Does not match "9 / 11", which tokenisers write."""
_BRACKET = re.compile(r"[(\[（［]")
_IN_BRACKETS_AT_END = re.compile(r"\w\W*?([(\[（［][^(\[（［]{1,60}[)\]）］])[^\w(\[（［]*$")
_WORD_CHARACTER = re.compile(r"[^\W_]")
_LATIN = re.compile("[A-Za-z]")
_T = TypeVar("_T", bound=np.generic)


@dataclass
class Tally:
    """The rows in which something occurs, with what was seen in the first one."""

    rows: "array[int]" = field(default_factory=lambda: array("i"))
    """From 0."""
    detail: str = ""
    """What was seen in the first row."""

    def add(self, row: int, detail: str = "") -> None:
        """Add a row; remember the detail of the first."""
        if not self.rows:
            self.detail = detail
        self.rows.append(row)

    @property
    def count(self) -> int:
        """Number of occurrences."""
        return len(self.rows)


class _Sample:
    """An evenly spread sample of texts, each with its row."""

    def __init__(self) -> None:
        self.texts: list[tuple[int, str]] = []
        self._every, self._given = 1, 0

    def add(self, row: int, text: str) -> None:
        """Add every n-th text, and double n whenever the sample has reached twice its size."""
        if self._given % self._every == 0:
            self.texts.append((row, text))
            if len(self.texts) == 2 * _SAMPLE:
                self.texts, self._every = self.texts[::2], 2 * self._every
        self._given += 1


class SideStatistics:
    """The sentences of one side, as numbers. Rows that are not pairs are included, as zeros."""

    def __init__(self) -> None:
        self._keys, self._lengths, self._numbers, self._scripts = array("q"), array("i"), array("q"), array("h")
        self.first_words: dict[str, Tally] = {}
        self.prefix: str | None = None
        """The characters with which all sentences begin."""
        self.numbered = Tally()
        """Lines that begin with a larger number than the line before."""
        self.long, self.joined = _Sample(), _Sample()
        """Samples of long lines, and of short lines joined together, each with the row of its first line."""
        self._short: list[tuple[int, str]] = []
        self.quoted = Tally()
        """Lines quoted as a spreadsheet quotes them; people do this, too, now and then."""
        self._doubled = self._otherwise_quoted = 0
        self._line_number = -1

    def add(self, row: int, text: str) -> list[str]:
        """Add a sentence; return its words in lower case."""
        words = text.casefold().split()
        if (first := words[0]) in self.first_words or len(self.first_words) < _MOST_FIRST_WORDS:
            self.first_words.setdefault(first, Tally()).add(row, text.split(maxsplit=1)[0])
        if self.prefix is None or not text.startswith(self.prefix):
            self.prefix = text if self.prefix is None else _common(self.prefix, text)
        if found := _LINE_NUMBER.match(text):
            if int(found[1]) > self._line_number:
                self.numbered.add(row, found[0].strip())
            self._line_number = int(found[1])
        numbers = _NUMBER.findall(text)
        self._append(
            hash(" ".join(words)), len(text), hash(tuple(sorted(numbers))) if numbers else 0, _main_script(text)
        )
        shortest, longest = _SAMPLE_CHARACTERS
        if len(text) >= shortest and len(text.encode()) >= _SAMPLE_BYTES:
            self.long.add(row, text[:longest])
        else:
            self._short.append((row, text))
            if sum(len(short) for _, short in self._short) >= _JOINED_CHARACTERS:
                self.joined.add(self._short[0][0], " ".join(short for _, short in self._short))
                self._short.clear()
        return words

    def add_quotes(self, row: int, text: str) -> None:
        """Record how a sentence with quotation marks is quoted."""
        inside = text[1:-1]
        if len(text) > 1 and text[0] == text[-1] == '"' and ('""' in inside or '"' not in inside):
            self.quoted.add(row)
            self._doubled += '""' in inside
        else:
            self._otherwise_quoted += 1

    @property
    def is_of_spreadsheet(self) -> bool:
        """Return whether a spreadsheet quoted these lines."""
        some = _SPREADSHEET * self.quoted.count
        return self.quoted.count > 0 and (self._otherwise_quoted <= some or self._doubled >= some)

    def skip(self) -> None:
        """Add a row that is not a pair."""
        self._append(0, 0, 0, NO_SCRIPT)

    def _append(self, key: int, length: int, numbers: int, script: int) -> None:
        self._keys.append(key)
        self._lengths.append(length)
        self._numbers.append(numbers)
        self._scripts.append(script)

    @property
    def keys(self) -> NDArray[np.int64]:
        """(N,): a hash of each sentence without case and spacing. It differs between processes."""
        return np.frombuffer(self._keys, np.int64)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """(N,): characters of each sentence."""
        return np.frombuffer(self._lengths, np.int32)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """(N,): a hash of the numbers in each sentence; 0 if it has none."""
        return np.frombuffer(self._numbers, np.int64)

    @property
    def scripts(self) -> NDArray[np.int16]:
        """(N,): the script of most of a sentence's distinct letters, as a number for `script_name`, or `NO_SCRIPT`."""
        return np.frombuffer(self._scripts, np.int16)


class CorpusStatistics:
    """The statistics of one set."""

    def __init__(self) -> None:
        self.pairs = 0
        self.rows = 0
        """All rows, including those that are not pairs."""
        self.tallies: dict[tuple[Kind, str, str], Tally] = {}
        """Tallies by kind, side, and the reason why a row is not a pair."""
        self.first: tuple[str, str] | None = None
        """The first pair."""
        self.first_row = 0
        """The row of the first pair; others may be before it, such as a blank one."""
        self.sides = {side: SideStatistics() for side in SIDES}

    def add(self, row: Row) -> None:
        """Add a pair, or the reason why the row is not a pair."""
        if isinstance(row, str):
            self._tally(Kind.UNUSABLE, "", row).add(self.rows, row)
            for side in SIDES:
                self.sides[side].skip()
        else:
            self.pairs += 1
            if self.first is None:
                self.first, self.first_row = row, self.rows
            self._pair(self.rows, *row)
        self.rows += 1

    @cached_property
    def is_reversed(self) -> NDArray[np.bool_]:
        """(N,): pairs in the same two scripts as most pairs, but in the other direction. Read it after the last row."""
        src, tgt = (self.sides[side].scripts for side in SIDES)
        known = (src != NO_SCRIPT) & (tgt != NO_SCRIPT)
        counts = Counter(zip(src[known].tolist(), tgt[known].tolist(), strict=True))
        (one, other), most = next(iter(counts.most_common(1)), ((NO_SCRIPT, NO_SCRIPT), 0))
        if one == other or most + counts[other, one] < _TWO_SCRIPTS * counts.total():
            return np.zeros(len(src), dtype=bool)
        return (src == other) & (tgt == one)

    def turned(self, src: NDArray[_T], tgt: NDArray[_T]) -> tuple[NDArray[_T], NDArray[_T]]:
        """Return numbers of both sides, (N,), with the sides of reversed pairs exchanged."""
        return np.where(self.is_reversed, tgt, src), np.where(self.is_reversed, src, tgt)

    def sample(self, side: Side) -> list[tuple[int, str]]:
        """Return rows and texts of some long lines of a side, from pairs that are not reversed."""
        return [(row, text) for row, text in self.sides[side].long.texts if not self.is_reversed[row]]

    def _tally(self, kind: Kind, side: str = "", reason: str = "") -> Tally:
        return self.tallies.setdefault((kind, side, reason), Tally())

    def _pair(self, row: int, src: str, tgt: str) -> None:
        src_words, tgt_words = self._line(row, "src", src), self._line(row, "tgt", tgt)
        if src_words == tgt_words:
            self._tally(Kind.IDENTICAL).add(row)
        elif _is_copied(src_words, tgt_words):
            self._tally(Kind.COPIED).add(row)
        self._beside(row, "src", src, tgt)
        self._beside(row, "tgt", tgt, src)
        if max(len(src_words), len(tgt_words)) > LONG_WORDS or max(len(src), len(tgt)) > LONG_CHARACTERS:
            self._tally(Kind.LONG).add(row)
        if not (_WORD_CHARACTER.search(src) and _WORD_CHARACTER.search(tgt)):
            self._tally(Kind.WORDLESS).add(row)

    def _beside(self, row: int, side: Side, text: str, other: str) -> None:
        """Tally what a sentence has and its translation lacks."""
        if _BETWEEN_ALTERNATIVES.search(text) and "/" not in other and "|" not in other:
            self._tally(Kind.ALTERNATIVES, side).add(row)
        if _BRACKET.search(text) and not _BRACKET.search(other) and (found := _IN_BRACKETS_AT_END.search(text)):
            self._tally(Kind.EXPLAINED, side).add(row, found[1])

    def _line(self, row: int, side: Side, text: str) -> list[str]:
        if "&" in text and (entity := ENTITY.search(text)):
            self._tally(Kind.ENTITIES, side).add(row, entity[0])
        if "<" in text and (tag := _MARKUP.search(text)):
            self._tally(Kind.MARKUP, side).add(row, tag[0].split()[0].rstrip(">") + ">")
        if '"' in text:
            self.sides[side].add_quotes(row, text)
        if looks_tokenised(text):
            self._tally(Kind.TOKENISED, side).add(row)
        if _CONTROL.search(text):
            self._tally(Kind.CONTROL, side).add(row)
        if "?" in text and any(mark[1].islower() for mark in _MARK_IN_WORD.finditer(text)):
            self._tally(Kind.LOST, side).add(row)
        if not text.isascii() and len(unicodedata.normalize("NFC", text)) < len(text):  # others have no composed form
            self._tally(Kind.DECOMPOSED, side).add(row)
        if tag := _TAG.match(text):
            self._tally(Kind.PREFIX, side).add(row, tag[0])
        return self.sides[side].add(row, text)


def _common(one: str, other: str) -> str:
    """Return the characters with which both texts begin."""
    same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:same]


def _is_copied(src_words: list[str], tgt_words: list[str]) -> bool:
    long = {word for word in tgt_words if len(word) >= _COPIED_LETTERS}
    return len(long) >= _COPIED_WORDS and len(long.intersection(src_words)) >= _COPIED_SHARE * len(long)


_SCRIPTS: list[str] = []
"""Names of the scripts that this process has seen."""


def script_name(number: int) -> str:
    """Return the name of a script, given its number in `SideStatistics.scripts`."""
    return _SCRIPTS[number]


@cache
def _script(character: str) -> int:
    name = script_of(character)
    if name is None:
        return NO_SCRIPT
    if name not in _SCRIPTS:
        _SCRIPTS.append(name)
    return _SCRIPTS.index(name)


def _main_script(text: str) -> int:
    """Return the script of most distinct letters. A tie goes to the first name, so that all processes agree."""
    if text.isascii():
        return _script("a") if _LATIN.search(text) else NO_SCRIPT
    counts: dict[int, int] = {}
    for character in set(text):
        if (script := _script(character)) != NO_SCRIPT:
            counts[script] = counts.get(script, 0) + 1
    return min(counts, key=lambda script: (-counts[script], script_name(script)), default=NO_SCRIPT)
