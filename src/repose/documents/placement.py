"""Markup of a segment put into its translation, where the words that it stood around have gone.

A mark covers the words that came from its text. What is between them it covers too, so that it stays in one piece,
unless another mark's words are between them: then it covers where most of its words are. Marks may thus change their
order; none is lost, and none crosses another.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from repose.documents.alignment import Translated, Unit
from repose.documents.segment import Mark, Markup, Placed, Segment, Text

MOST_WORK = 1 << 15
"""Words times marks of a segment; above, marks are put where they stood in proportion."""


def place(segment: Segment, translated: Translated) -> Placed:
    """The translation with the segment's marks and outer white space."""
    if not segment.marks:
        return [Text(segment.before + translated.text + segment.after)]
    steps = _Steps(translated.units, len(segment.text)).of(segment.marks, (0, len(segment.text)))
    return _written(segment, translated, steps)


class _Word(NamedTuple):
    place: int
    """In the units."""


class _Edge(NamedTuple):
    source: object
    opens: bool


_Step: TypeAlias = _Word | _Edge | Mark
_Range: TypeAlias = tuple[int, int]


@dataclass
class _Steps:
    """What is written, one after the other."""

    units: Sequence[Unit]
    length: int
    """Of the source."""

    def of(self, marks: Sequence[Mark], covers: _Range, words: _Range | None = None) -> Iterator[_Step]:
        """Those of the words from the first to before the second of `words`, with the marks that stand in them.

        `covers`: the characters of the source that they are to be from.
        """
        low, high = (0, len(self.units)) if words is None else words
        ranges = self._ranges(marks, covers, low, high)
        points = [place for place in range(len(marks)) if place not in ranges]
        boundaries = self._boundaries([marks[i] for i in points], list(ranges.values()), low, high)
        at = dict(zip(points, boundaries, strict=True))
        starts = {start: place for place, (start, end) in ranges.items()}
        word, waiting = low, sorted(points, key=lambda i: (at[i], i))
        while word < high or waiting:
            if waiting and at[waiting[0]] <= word:
                yield from self._mark(marks[waiting.pop(0)], (word, word))
            elif word in starts:
                taken = ranges[starts[word]]
                yield from self._mark(marks[starts[word]], taken)
                word = taken[1]
            else:
                yield _Word(word)
                word += 1

    def _mark(self, mark: Mark, words: _Range) -> Iterator[_Step]:
        if mark.closes is None:
            yield mark
            return
        yield _Edge(mark.opens, True)
        yield from self.of(mark.within, (mark.start, mark.end), words)
        yield _Edge(mark.closes, False)

    def _ranges(self, marks: Sequence[Mark], covers: _Range, low: int, high: int) -> dict[int, _Range]:
        """The words of each mark that has some, by its place among the marks."""
        holding = [place for place, mark in enumerate(marks) if mark.end > mark.start]
        if not holding or low == high:
            return {}
        only = marks[holding[0]]
        if len(holding) == 1 and (only.start, only.end) == covers:
            return {holding[0]: (low, high)}
        if len(holding) * (high - low) > MOST_WORK:
            return {}
        starts = [marks[place].start for place in holding]
        owners: list[int | None] = []
        for unit in self.units[low:high]:
            place = holding[max(0, bisect_right(starts, unit.came_from) - 1)]
            owners.append(place if marks[place].start <= unit.came_from < marks[place].end else None)
        ranges = {}
        for place, (start, end) in _longest_runs(owners).items():
            ranges[place] = (low + start, low + end)
        covered = {word for start, end in ranges.values() for word in range(start, end)}
        free = [word for word in range(low, high) if word not in covered]
        for place in holding:  # those that no word came from take the word that looked most at them
            if place not in ranges and free:
                best = max(free, key=lambda word: _weight(self.units[word], marks[place]))
                if _weight(self.units[best], marks[place]) > 0:
                    ranges[place] = (best, best + 1)
                    free.remove(best)
        return ranges

    def _boundaries(self, points: Sequence[Mark], taken: Sequence[_Range], low: int, high: int) -> list[int]:
        """Before which word each of some points stands, in their order: that which crosses the fewest words."""
        inside = {word for start, end in taken for word in range(start + 1, end)}
        free = [word for word in range(low, high + 1) if word not in inside]
        boundaries: list[int] = []
        for point in points:
            if len(points) * (high - low) > MOST_WORK:
                wanted = low + round((high - low) * point.start / max(1, self.length))
                boundary = free[min(bisect_left(free, wanted), len(free) - 1)]
            else:
                late = [unit.came_from >= point.start for unit in self.units[low:high]]
                crossed = list(accumulate((1 if is_late else -1 for is_late in late), initial=late.count(False)))
                boundary = min(free, key=lambda word: crossed[word - low])
            boundaries.append(max(boundary, boundaries[-1]) if boundaries else boundary)
        return boundaries


def _longest_runs(owners: Sequence[int | None]) -> dict[int, _Range]:
    """Of each owner, from the first to after the last of most words with no other's between them."""
    runs: dict[int, tuple[int, _Range]] = {}
    last, number, start = None, 0, 0
    for word, owner in enumerate(owners):
        if owner is None:
            continue
        if owner != last:
            last, number, start = owner, 0, word
        number += 1
        if number > runs.get(owner, (0, (0, 0)))[0]:
            runs[owner] = number, (start, word + 1)
    return {owner: run for owner, (_, run) in runs.items()}


def _weight(unit: Unit, mark: Mark) -> float:
    return 0.0 if unit.looks is None else unit.looks.within(mark.start, mark.end)


def _written(segment: Segment, translated: Translated, steps: Iterator[_Step]) -> Placed:
    out = _Writer()
    starts = [unit.start for unit in translated.units] + [len(translated.text)]
    for step in steps:
        match step:
            case _Word(number):
                unit = translated.units[number]
                out.word(translated.text[unit.start : unit.end], translated.text[unit.end : starts[number + 1]])
            case _Edge(source, opens):
                out.edge(source, opens=opens)
            case Mark():
                out.point(step)
    return [Text(segment.before), *out.placed, Text(segment.after)]


class _Writer:
    """Puts white space after what closes and before what opens; around what shows, as it stood there."""

    def __init__(self) -> None:
        self.placed: Placed = []
        self._space = ""

    def word(self, text: str, space: str) -> None:
        self._flush()
        self.placed.append(Text(text))
        self._space = space

    def edge(self, source: object, *, opens: bool) -> None:
        if opens:
            self._flush()
        self.placed.append(Markup(source, opens))

    def point(self, mark: Mark) -> None:
        space = self._space or " "
        if mark.shows and mark.space_before and self.placed:
            self._space = space
            self._flush()
        self.placed.append(Markup(mark.opens))
        if mark.shows and mark.space_after:
            self._space = space
        elif mark.separates:
            self._space = ""

    def _flush(self) -> None:
        if self._space:
            self.placed.append(Text(self._space))
        self._space = ""
