"""Check whether a caller's values are numbers: Python's and numpy's are, booleans are not."""

from numbers import Integral, Real
from typing import Any

from repose.system.errors import ConfigError


def is_whole(value: Any) -> bool:
    """Return whether a value is of an integer type."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_real(value: Any) -> bool:
    """Return whether a value is of a type that `float` accepts as a number; it may be nan."""
    return isinstance(value, Real) and not isinstance(value, bool)


def checked_seed(seed: Any) -> int:
    """Return a seed that torch's generators accept. Raises ConfigError for any other value."""
    if not is_whole(seed) or not 0 <= seed < 2**64:
        raise ConfigError(f"seed = {seed!r}: give a whole number from 0 to 2^64 - 1")
    return int(seed)
