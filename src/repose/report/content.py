"""What a report is made of, apart from how it is written: tables, pictures, sentences and remarks."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from itertools import chain, count
from string import ascii_lowercase


def slug(text: str) -> str:
    """Text as a part of an id: lower case, letters of any script and digits, hyphens between."""
    return re.sub(r"[\W_]+", "-", text.lower()).strip("-")


def slugs(texts: Sequence[str]) -> dict[str, str]:
    """The slug of each text, with a number where an earlier one has the same."""
    found: dict[str, str] = {}
    for text in texts:
        found[text] = unused(slug(text), found.values())
    return found


def unused(name: str, taken: Collection[str]) -> str:
    """The name, with a number where it is taken: "scores-2"."""
    numbered = (f"{name}-{number}" for number in count(2))
    return next(one for one in chain([name], numbered) if one not in taken)


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str
    """What is shown, such as "34.2 ± 0.3"."""
    value: float | None = None
    """The number behind it, at full precision, where there is one."""
    deviation: float | None = None
    """Standard deviation over seeds, with n - 1; None for a single run."""
    n: int | None = None
    """Runs behind the number."""
    notes: Sequence[str] = ()
    """Sentences about it."""
    best: bool = False
    """Whether the number is the best of its column among those that may be compared."""


@dataclass(frozen=True)
class Column:
    """Head of a column."""

    name: str
    unit: str = ""
    numeric: bool = True
    """Numbers are set flush right."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with its notes."""

    id: str
    """Name of its files, such as "scores"."""
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    """What is counted, in which unit, over what."""
    remarks: Sequence[str] = ()
    """Sentences about the whole table."""
    p_values: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    """The corrected p of a test, by corpus, system and what this is tested against."""
    small_sets: frozenset[str] = frozenset()
    """Corpora whose test sets are too small for what the table's tests say to be relied on."""

    @cached_property
    def keys(self) -> dict[str, str]:
        """The key of each note of a cell, row by row, then of each remark: a to z, aa, bb, ..."""
        notes = dict.fromkeys([*(note for row in self.rows for cell in row for note in cell.notes), *self.remarks])
        return {note: ascii_lowercase[i % 26] * (1 + i // 26) for i, note in enumerate(notes)}

    def keys_of(self, cell: Cell) -> list[str]:
        """The keys of a cell's notes, in their order."""
        return [key for note, key in self.keys.items() if note in cell.notes]

    @cached_property
    def marked(self) -> frozenset[str]:
        """Keys that some cell has; the other notes are of the whole table, and shown without a key."""
        return frozenset(key for row in self.rows for cell in row for key in self.keys_of(cell))


class Shows(Enum):
    """What a picture is about."""

    CURVES = auto()
    """Figures by epoch or update."""
    COSTS = auto()
    SCORES_AND_SIZES = auto()
    """Scores against numbers of parameters."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A plot as SVG text, whose colours are those of the page, and the numbers that are drawn."""

    id: str
    title: str
    shows: Shows
    svg: str
    description: str
    """What a reader who cannot see it needs to know."""
    numbers: Table


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A test sentence as two systems translate it."""

    number: int
    """Line of the test set, from 1."""
    src: str
    reference: str
    hypotheses: tuple[str, str]
    scores: tuple[float, float]
    """Sentence-level chrF, 0 to 100."""


@dataclass(frozen=True, kw_only=True)
class SentenceComparison:
    """Sentences where two systems differ most."""

    id: str
    systems: tuple[str, str]
    src_lang: str
    tgt_lang: str
    sentences: tuple[Sentence, ...]
    caption: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and what stands under it, in this order."""

    title: str
    paragraphs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """Shown so that nobody misses them."""
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    comparisons: tuple[SentenceComparison, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """A whole report."""

    title: str
    subtitle: str
    """Which runs, of when, with which versions."""
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]
    verdict: str = ""
    """What came out, in a sentence for each corpus."""
    picture: Picture | None = None
    """The one that shows most of it; it stands in no section."""
