"""Job arrays, such as SLURM's: each of N jobs takes its part of the work without asking the others."""

from collections.abc import Sequence
from typing import TypeVar

from repose.system.errors import ConfigError

T = TypeVar("T")


def every_nth(items: Sequence[T], shard: str | None) -> Sequence[T]:
    """Return the items of shard "I/N": every N-th item, starting with the I-th (counted from 0). None means all items.

    Raises ConfigError for any other form.
    """
    if shard is None:
        return items
    index, slash, number = shard.partition("/")
    whole = bool(slash) and all(piece.isascii() and piece.isdecimal() for piece in (index, number))
    if not whole or not int(index) < int(number):
        raise ConfigError(f"--shard should be I/N with I from 0 to N - 1, not {shard!r}")
    return items[int(index) :: int(number)]
