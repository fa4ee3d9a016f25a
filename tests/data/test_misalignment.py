"""Finding where two files are misaligned, by lengths and by numbers."""

import numpy as np
import pytest

from repose.data.misalignment import FEWEST_PAIRS, Slip, find_slip

RNG = np.random.default_rng(5)
NONE = np.zeros(600, np.int64)


def lengths(spread: float) -> tuple[np.ndarray, np.ndarray]:
    """600 sources of 10 to 160 characters, and targets a fifth longer, more or less."""
    src = RNG.integers(10, 160, 600)
    return src.astype(np.int32), np.rint(src * 1.2 * np.exp(spread * RNG.standard_normal(600))).astype(np.int32)


@pytest.mark.parametrize("lines", [-3, -2, -1, 1, 2, 3])
@pytest.mark.parametrize("start", [0, 150, 400])
def test_a_slip_is_found_where_it_begins(lines: int, start: int) -> None:
    src, tgt = lengths(0.2)
    moved = np.concatenate([tgt[:start], np.roll(tgt[start:], lines)])
    found = find_slip((src, moved), (NONE, NONE))
    assert found is not None
    assert found.lines == lines
    assert abs(found.start - start) <= 6
    assert found.end > 590


def test_a_slip_that_ends() -> None:
    src, tgt = lengths(0.2)
    tgt[200:300] = np.roll(tgt[200:300], 1)
    found = find_slip((src, tgt), (NONE, NONE))
    assert found is not None
    assert (found.lines, abs(found.start - 200) <= 6, abs(found.end - 299) <= 6) == (1, True, True)


def test_numbers_tell_where_lengths_do_not() -> None:
    src = np.full(600, 30, np.int32)
    numbers = np.where(np.arange(600) % 3 == 0, np.arange(600) + 1, 0)
    assert find_slip((src, src), (numbers, np.roll(numbers, -1))) == Slip(1, 600, -1)
    assert find_slip((src, src), (numbers, numbers)) is None


@pytest.mark.parametrize("spread", [0.0, 0.3, 1.0])
def test_what_is_aligned_does_not_slip(spread: float) -> None:
    assert find_slip(lengths(spread), (NONE, NONE)) is None


def test_unrelated_or_few_lines_do_not_slip() -> None:
    src, tgt = lengths(0.2)
    assert find_slip((src, RNG.permutation(tgt)), (NONE, NONE)) is None
    few = FEWEST_PAIRS
    assert find_slip((src[:few], np.roll(tgt[:few], 1)), (NONE[:few], NONE[:few])) is None
    empty = np.zeros(0, np.int32)
    assert find_slip((empty, empty), (NONE[:0], NONE[:0])) is None
