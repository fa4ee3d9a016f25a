"""Which values that a caller gives are numbers: Python's and numpy's are, truth values are not."""

from numbers import Integral, Real
from typing import Any


def is_whole(value: Any) -> bool:
    """Whether it is a whole number by its type."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_real(value: Any) -> bool:
    """Whether it is a number that `float` takes; it may be nan."""
    return isinstance(value, Real) and not isinstance(value, bool)
