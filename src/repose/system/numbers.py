"""Which values that a caller gives are numbers: Python's and numpy's are, truth values are not."""

from numbers import Integral, Real
from typing import Any

from repose.system.errors import ConfigError


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number by its type."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_real(value: Any) -> bool:
    """Whether a value is a number that `float` takes; it may be nan."""
    return isinstance(value, Real) and not isinstance(value, bool)


def checked_seed(seed: Any) -> int:
    """A number that torch's generators take. Raises ConfigError for any other."""
    if not is_whole(seed) or not 0 <= seed < 2**64:
        raise ConfigError(f"seed = {seed!r}: give a whole number from 0 to 2^64 - 1")
    return int(seed)
