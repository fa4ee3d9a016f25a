"""Sentence pairs, their two sides, and counts of what became of a corpus's pairs."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from repose.system.terminal import counted

Pair = tuple[str, str]
"""Source and target."""
Side = Literal["src", "tgt"]
SIDES: tuple[Side, Side] = ("src", "tgt")
MAX_CHARACTERS = 20_000
"""Longer sentences are dropped: they are damaged, and would slow down everything that follows."""
MAX_BYTES = 4 * MAX_CHARACTERS
"""A character has up to four bytes in UTF-8."""
CARRIAGE_RETURNS = "carriage return removed from a line end"
TOO_LONG = f"longer than {MAX_CHARACTERS:,} characters"
Row: TypeAlias = Pair | str
"""A pair, or the reason why a row is not one."""


@dataclass
class Counts:
    """Counts of the kept and dropped pairs of a corpus, filled in while it is read."""

    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Pairs left out, by reason."""
    notes: Counter[str] = field(default_factory=Counter)
    """Notable things, with their counts, for which no pair was left out."""
    header_lines: int = field(default=0, compare=False)
    """Lines before the first pair: 1 if a table names its columns."""
    columns: Pair | None = field(default=None, compare=False)
    """Source and target column of a table, by name if its first line has names, else by number from 1; for records,
    their field names."""
    languages: Pair | None = field(default=None, compare=False)
    """Source and target language of a TMX file, as it writes them."""

    @property
    def read(self) -> int:
        """Number of all pairs seen."""
        return self.kept + self.dropped.total()

    def describe(self) -> str:
        """Describe the counts in one line of text."""
        parts = [f"{self.kept:,} of {counted(self.read, 'pair')} read"]
        parts += [f"{number:,} dropped ({reason})" for reason, number in self.dropped.items()]
        parts += [f"{number:,} × {what}" for what, number in self.notes.items() if what != CARRIAGE_RETURNS]
        parts += ["Windows line endings (harmless)"] * (CARRIAGE_RETURNS in self.notes)
        parts += [] if self.languages is None else [" → ".join(self.languages)]
        return ", ".join(parts)
