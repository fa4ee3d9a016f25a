"""Place the markup of a segment in its translation, around the words that came from the marked words.

A mark covers the words that came from its text. It also covers the words between them, so that it stays in one piece.
But if words of another mark are between them, it covers only the run with most of its words. So marks may change their
order, but no mark is lost and none crosses another. Markup that is part of a word, such as a raised number, moves with
the word.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeAlias

from repose.documents.alignment import Translated, Unit, words_of
from repose.documents.segment import Close, Mark, Open, Placed, Point, Segment, Text

MOST_WORK = 1 << 15
"""Maximum of words times marks in a segment. Above it, marks are placed in proportion to their positions."""


def place(segment: Segment, translated: Translated) -> Placed:
    """Return the translation with the segment's marks."""
    units = list(_cut(segment, translated))
    out = _Writer(translated.text, units)
    _Placement(units, segment.text, out).write(segment.marks, (0, len(segment.text)), (0, len(units)))
    return out.placed


def _cut(segment: Segment, translated: Translated) -> Iterator[Unit]:
    """Yield the words. A word spelled as in the source is cut wherever a mark starts or ends inside it there."""
    edges = sorted({edge for mark in _all(segment.marks) for edge in (mark.start, mark.end)})
    words = list(words_of(segment.text))
    starts = [start for start, _ in words]
    for unit in translated.units:
        start, end = words[max(0, bisect_right(starts, unit.came_from) - 1)]
        cuts = edges[bisect_right(edges, start) : bisect_left(edges, end)]
        read, written = segment.text[start:end], translated.text[unit.start : unit.end]
        if not cuts or len(read) != len(written) or read.lower() != written.lower():
            yield unit
            continue
        for first, after in pairwise([start, *cuts, end]):
            yield Unit(unit.start + first - start, unit.start + after - start, first, unit.attention)


def _all(marks: Sequence[Mark]) -> Iterator[Mark]:
    for mark in marks:
        yield mark
        yield from _all(mark.within)


_Range: TypeAlias = tuple[int, int]


class _Writer:
    """Writes words and markup. White space goes after closing and before opening markup, and around visible points as
    in the source."""

    def __init__(self, text: str, units: Sequence[Unit]) -> None:
        self._text, self._units = text, units
        self.placed: Placed = []
        self._space = ""

    def word(self, number: int) -> None:
        self._flush()
        start, end = self._units[number][:2]
        following = self._units[number + 1].start if number + 1 < len(self._units) else len(self._text)
        self.placed.append(Text(self._text[start:end]))
        self._space = self._text[end:following]

    def opening(self, mark: Mark) -> None:
        if not mark.joined:
            self._flush()
        self.placed.append(Open(mark.opens))

    def closing(self, mark: Mark) -> None:
        self.placed.append(Close(mark.closes))

    def point(self, mark: Mark) -> None:
        space = self._space or " "
        if mark.shows and mark.space_before and self.placed:
            self._space = space
            self._flush()
        self.placed.append(Point(mark.opens))
        if mark.shows and mark.space_after:
            self._space = space
        elif mark.separates:
            self._space = ""

    def _flush(self) -> None:
        if self._space:
            self.placed.append(Text(self._space))
        self._space = ""


@dataclass
class _Placement:
    """Writes words and marks in their order."""

    units: Sequence[Unit]
    source: str
    out: _Writer

    def write(self, marks: Sequence[Mark], covers: _Range, words: _Range) -> None:
        """Write the words in the range `words`, with the marks placed among them.

        `covers`: the range of source characters that these words represent.
        """
        low, high = words
        ranges = self._ranges(marks, covers, low, high)
        points = [place for place in range(len(marks)) if place not in ranges]
        boundaries = self._boundaries([marks[i] for i in points], list(ranges.values()), low, high)
        at = dict(zip(points, boundaries, strict=True))
        starts = {start: place for place, (start, end) in ranges.items()}
        word, waiting = low, deque(sorted(points, key=lambda i: (at[i], i)))
        while word < high or waiting:
            if waiting and at[waiting[0]] <= word:
                self._mark(marks[waiting.popleft()], (word, word))
            elif word in starts:
                taken = ranges[starts[word]]
                self._mark(marks[starts[word]], taken)
                word = taken[1]
            else:
                self.out.word(word)
                word += 1

    def _mark(self, mark: Mark, words: _Range) -> None:
        if mark.closes is None:
            self.out.point(mark)
        else:
            self.out.opening(mark)
            self.write(mark.within, (mark.start, mark.end), words)
            self.out.closing(mark)

    def _ranges(self, marks: Sequence[Mark], covers: _Range, low: int, high: int) -> dict[int, _Range]:
        """Return the range of words of each mark that has words, by the mark's index."""
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
        for place in holding:  # a mark that no word came from takes the word that attended most to it
            if place in ranges:
                continue
            edges = {word: other for other, (a, b) in ranges.items() if b - a > 1 for word in (a, b - 1)}
            fits = [  # if no word is free: another mark's first or last of several; ties keep the marks' order
                (_weight(self.units[word], marks[place]), word if place > edges.get(word, place) else -word, word)
                for word in free or edges
            ]
            weight, _, best = max(fits, default=(0.0, 0, low))
            if weight <= 0:
                continue
            if best in edges:
                start, end = ranges[edges[best]]
                ranges[edges[best]] = (start + (best == start), end - (best != start))
            ranges[place] = (best, best + 1)
            free = [word for word in free if word != best]
        return ranges

    def _boundaries(self, points: Sequence[Mark], taken: Sequence[_Range], low: int, high: int) -> list[int]:
        """Return, for each point, the word before which to place it.

        It is the boundary across which the fewest words change sides. Points keep their order. A point that is part of
        a word is placed after the word.
        """
        inside = {word for start, end in taken for word in range(start + 1, end)}
        free = [word for word in range(low, high + 1) if word not in inside]
        boundaries: list[int] = []
        latest = low
        for point in points:
            crowded = len(points) * (high - low) > MOST_WORK
            after = self._after_its_word(point, free, low) if point.joined and not crowded else None
            if after is not None:
                boundaries.append(after)
                continue
            if crowded:
                wanted = low + round((high - low) * point.start / max(1, len(self.source)))
                boundary = free[min(bisect_left(free, wanted), len(free) - 1)]
            else:
                late = [unit.came_from >= point.start for unit in self.units[low:high]]
                crossed = list(accumulate((1 if is_late else -1 for is_late in late), initial=late.count(False)))
                boundary = min(free, key=lambda word: crossed[word - low])
            latest = max(boundary, latest)
            boundaries.append(latest)
        return boundaries

    def _after_its_word(self, point: Mark, free: Sequence[int], low: int) -> int | None:
        """Return the `free` boundary after the word that came from the letters right before a point.

        Of several such words, the one from the last letters counts. None if there is no such word.
        """
        start = self.source.rfind(" ", 0, point.start) + 1
        came = [(self.units[word - 1].came_from, word) for word in free if word > low]
        return max((pair for pair in came if start <= pair[0] < point.start), default=(0, None))[1]


def _longest_runs(owners: Sequence[int | None]) -> dict[int, _Range]:
    """Return each owner's longest run: the range with most of its words and no word of another owner in between."""
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
    return 0.0 if unit.attention is None else unit.attention.within(mark.start, mark.end)
