"""Batches are made in advance, and may be padded."""

import threading
from functools import partial

import numpy as np
import pytest

from repose.training.feed import ahead, bucketed_targets


def test_what_is_made_ahead_keeps_its_order() -> None:
    first, made = threading.Event(), []

    def make(number: int) -> int:
        made.append((number, threading.current_thread() is threading.main_thread()))
        if number == 2:
            first.set()
        return number

    found = ahead((partial(make, number) for number in range(7)), lambda: None)
    assert next(found) == 0
    assert first.wait(60)  # two further ones, though nobody has asked
    assert [0, *found] == list(range(7))
    assert made == [(number, False) for number in range(7)]


def test_an_error_comes_when_its_batch_is_asked_for() -> None:
    def broken() -> int:
        raise ValueError("no such row")

    found = ahead([lambda: 1, broken, lambda: 2], lambda: None)
    assert next(found) == 1
    with pytest.raises(ValueError, match="no such row"):
        next(found)


def test_nothing_is_made_of_nothing() -> None:
    assert list(ahead([], lambda: None)) == []


def test_padding_is_no_longer_than_the_longest_target() -> None:
    """A model may have no positions after it."""
    tgt, _, places = bucketed_targets(np.ones((3, 9), np.int64), np.ones(27, np.int64), longest=10)
    assert tgt.shape == (3, 10)
    assert places[:27].tolist() == [10 * row + column for row in range(3) for column in range(9)]
