"""A sentence pair, and its two sides."""

from typing import Literal

Pair = tuple[str, str]
"""Source and target."""
Side = Literal["src", "tgt"]
SIDES: tuple[Side, Side] = ("src", "tgt")
