"""A sentence pair, its two sides, and what becomes of the pairs of a corpus."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from repose.system.terminal import counted

Pair = tuple[str, str]
"""Source and target."""
Side = Literal["src", "tgt"]
SIDES: tuple[Side, Side] = ("src", "tgt")
MAX_CHARACTERS = 20_000
"""Longer sentences are dropped: they are damage, and would hold up everything after."""
MAX_BYTES = 4 * MAX_CHARACTERS
"""A character has up to four bytes in UTF-8."""
CARRIAGE_RETURNS = "carriage return removed from a line end"
TOO_LONG = f"longer than {MAX_CHARACTERS:,} characters"
Row: TypeAlias = Pair | str
"""A pair, or the reason why there is none."""


@dataclass
class Counts:
    """What became of the pairs of a corpus; filled while it is read."""

    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Pairs left out, by reason."""
    notes: Counter[str] = field(default_factory=Counter)
    """How often something was seen that is worth knowing, though nothing was left out for it."""
    header_lines: int = field(default=0, compare=False)
    """Lines before the first pair: 1 where a table names its columns."""
    columns: Pair | None = field(default=None, compare=False)
    """Source and target, of a table: their names in its first line, or else their numbers, from 1; of records, what
    they are called."""
    languages: Pair | None = field(default=None, compare=False)
    """Source and target, of a TMX file, as it writes them."""

    @property
    def read(self) -> int:
        """All pairs seen."""
        return self.kept + self.dropped.total()

    def describe(self) -> str:
        """One line of text."""
        parts = [f"{self.kept:,} of {counted(self.read, 'pair')} read"]
        parts += [f"{number:,} dropped ({reason})" for reason, number in self.dropped.items()]
        parts += [f"{number:,} × {what}" for what, number in self.notes.items() if what != CARRIAGE_RETURNS]
        parts += ["Windows line endings (harmless)"] * (CARRIAGE_RETURNS in self.notes)
        parts += [] if self.languages is None else [" → ".join(self.languages)]
        return ", ".join(parts)
