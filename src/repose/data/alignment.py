"""Whether two aligned files slip against each other somewhere, from lengths and numbers alone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_LINES = 3
"""Slips of up to so many lines are looked for."""
FEWEST_PAIRS = 30
"""A shorter stretch is not told from chance."""
_SCALE, _MOST = 0.3, 4.0
"""The log of a ratio of lengths is measured in units of the first; a pair's misfit is at most so many of them."""
_SAME_NUMBERS, _OTHER_NUMBERS = 3.0, -1.0
"""What a pair gains with the same numbers on both sides, and with other numbers or numbers on one side alone."""
_LEAST_GAIN, _LEAST_DEVIATIONS = 25.0, 6.0
"""A stretch must gain at least so much, and so many standard deviations of what chance gives it: aligned corpora then
show no slip (results/corpus-check.json)."""

Lengths = NDArray[np.int32]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Slip:
    """A stretch of pairs that fit better when the targets are moved."""

    start: int
    """Place of the first pair, from 0."""
    end: int
    """Place after the last pair."""
    lines: int
    """The targets stand so many lines too late; negative: too early."""


def find_slip(lengths: tuple[Lengths, Lengths], numbers: tuple[Numbers, Numbers]) -> Slip | None:
    """The stretch of pairs that gains most from moving its targets by up to three lines; None where none gains enough.

    `lengths`: (N,) characters of the sources and of the targets. `numbers`: (N,) a hash of the numbers that stand in
    each, 0 where there are none. A pair fits the better the nearer its ratio of lengths is to the usual one, the signal
    by which Gale and Church (1993) align, and if both sides hold the same numbers.
    """
    src, tgt = (np.log(side + 5.0) for side in lengths)
    best, most = None, _LEAST_GAIN
    for lines in (sign * size for size in range(1, MOST_LINES + 1) for sign in (1, -1)):
        ahead, behind = max(0, lines), max(0, -lines)
        here = slice(behind, len(src) - ahead)
        if here.stop - here.start < FEWEST_PAIRS:
            break
        moved = slice(here.start + lines, here.stop + lines)
        misfit = tgt - float(np.median(tgt - src))
        as_moved = _fit(misfit[moved] - src[here], numbers[0][here], numbers[1][moved])
        gains = as_moved - _fit(misfit[here] - src[here], numbers[0][here], numbers[1][here])
        start, end, gain = _best_stretch(gains)
        if end - start < FEWEST_PAIRS or gain <= most:
            continue
        if gain >= _LEAST_DEVIATIONS * float(gains[start:end].std()) * (end - start) ** 0.5:
            best, most = Slip(start + here.start, end + here.start, lines), gain
    return best


def _fit(misfit: NDArray[np.float64], ours: Numbers, theirs: Numbers) -> NDArray[np.float64]:
    """How well each source fits its target: 0 for the usual ratio of lengths, without numbers."""
    by_numbers = np.where(ours == theirs, _SAME_NUMBERS, _OTHER_NUMBERS)
    without = (ours == 0) & (theirs == 0)
    return np.where(without, 0.0, by_numbers) - np.minimum(np.abs(misfit) / _SCALE, _MOST)


def _best_stretch(gains: NDArray[np.float64]) -> tuple[int, int, float]:
    """Start, end and sum of the stretch with the largest sum (Bentley 1984), from sums since the beginning."""
    sums = np.concatenate([[0.0], np.cumsum(gains)])
    lowest = np.minimum.accumulate(sums)
    end = int(np.argmax(sums - lowest))
    start = int(np.argmin(sums[: end + 1]))
    return start, end, float(sums[end] - sums[start])
