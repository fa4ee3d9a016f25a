"""Sentence pairs, counts of what became of a corpus's pairs, and the two text files of a prepared split."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from repose.system.errors import DataError
from repose.system.files import replacing_file
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


class TextPairs:
    """Iterate over the pairs of a split in a text folder; each iteration reads the files again."""

    def __init__(self, folder: Path, split: str) -> None:
        self.paths = [folder / f"{split}.{side}" for side in SIDES]

    def __iter__(self) -> Iterator[Pair]:
        # With another `newline`, a carriage return inside a sentence would end it.
        try:
            with ExitStack() as stack:
                src, tgt = (stack.enter_context(path.open(encoding="utf-8", newline="\n")) for path in self.paths)
                for a, b in zip(src, tgt, strict=True):
                    yield a.removesuffix("\n"), b.removesuffix("\n")
        except (OSError, ValueError) as error:
            folder = self.paths[0].parent
            raise DataError(f"the texts of {folder} are damaged: delete that folder, and prepare it again") from error


def write_pairs(folder: Path, split: str, pairs: Iterable[Pair]) -> None:
    """Write `<split>.src` and `<split>.tgt`. Sentences must not contain line feeds. Raises WriteError."""
    with ExitStack() as stack:
        paths = [stack.enter_context(replacing_file(path)) for path in TextPairs(folder, split).paths]
        src, tgt = (stack.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in paths)
        for a, b in pairs:
            src.write(a + "\n")
            tgt.write(b + "\n")
