"""Find where two aligned files slip out of alignment, from lengths and numbers alone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_LINES = 3
"""Most lines by which a slip may move the targets."""
FEWEST_PAIRS = 30
"""Fewest pairs in a stretch; shorter ones cannot be distinguished from chance."""
_SCALE, _MOST = 0.3, 4.0
"""The unit in which log length ratios are measured, and the largest misfit of a pair in that unit."""
_SAME_NUMBERS, _OTHER_NUMBERS = 3.0, -1.0
"""What a pair gains if both sides hold the same numbers, and if the numbers differ or only one side has any."""
_LEAST_GAIN, _LEAST_DEVIATIONS = 25.0, 6.0
"""Least total gain of a stretch, and its least gain in standard deviations of what chance gives. With these values,
aligned corpora show no slip (results/corpus-check.json)."""

Lengths = NDArray[np.int32]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Slip:
    """A stretch of pairs that fit better if the targets are moved."""

    start: int
    """Index of the first pair, from 0."""
    end: int
    """Index after the last pair."""
    lines: int
    """Number of lines by which the targets come too late; negative if they come too early."""


def find_slip(lengths: tuple[Lengths, Lengths], numbers: tuple[Numbers, Numbers]) -> Slip | None:
    """Find the stretch of pairs that gains most if its targets move by up to three lines.

    Returns None if no gain is large enough. `lengths`: (N,) characters of each source, and of each target. `numbers`:
    (N,) a hash of the numbers in each sentence, 0 if it has none. A pair fits better if its length ratio is near the
    usual one, which is the signal that Gale and Church (1993) align by, and if both sides hold the same numbers.
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
    """Score how well each source fits its target. A pair without numbers and with the usual length ratio scores 0."""
    by_numbers = np.where(ours == theirs, _SAME_NUMBERS, _OTHER_NUMBERS)
    without = (ours == 0) & (theirs == 0)
    return np.where(without, 0.0, by_numbers) - np.minimum(np.abs(misfit) / _SCALE, _MOST)


def _best_stretch(gains: NDArray[np.float64]) -> tuple[int, int, float]:
    """Return start, end and sum of the stretch with the largest sum (Bentley 1984), computed from cumulative sums."""
    sums = np.concatenate([[0.0], np.cumsum(gains)])
    lowest = np.minimum.accumulate(sums)
    end = int(np.argmax(sums - lowest))
    start = int(np.argmin(sums[: end + 1]))
    return start, end, float(sums[end] - sums[start])
