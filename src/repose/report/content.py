"""The parts of a report, independent of its format: tables, pictures, sentences and remarks."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from itertools import chain, count
from string import ascii_lowercase

from repose.data.language import UNKNOWN


def slug(text: str) -> str:
    """Turn text into a part of an id: lower-case letters of any script and digits, with hyphens between words."""
    return re.sub(r"[\W_]+", "-", text.lower()).strip("-")


def slugs(texts: Sequence[str]) -> dict[str, str]:
    """Return the slug of each text, with a number if an earlier text has the same slug."""
    found: dict[str, str] = {}
    for text in texts:
        found[text] = unused(slug(text), found.values())
    return found


def suffixes(corpora: Sequence[str]) -> dict[str, str]:
    """Return how the ids of each corpus's tables and pictures end: with its slug, or with nothing for a single one."""
    return {corpus: f"-{name}" * (len(corpora) > 1) for corpus, name in slugs(corpora).items()}


def unused(name: str, taken: Collection[str]) -> str:
    """Return the name, with a number if it is taken, such as "scores-2"."""
    numbered = (f"{name}-{number}" for number in count(2))
    return next(one for one in chain([name], numbered) if one not in taken)


def listed(names: Sequence[str]) -> str:
    """Return names as in a sentence: "a, b and c"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def some(names: Sequence[str]) -> str:
    """List the first three names, and say how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str
    """Text to show, such as "34.2 ± 0.3"."""
    value: float | None = None
    """The number behind the text at full precision, if there is one."""
    deviation: float | None = None
    """Standard deviation over seeds, with n - 1; None for a single run."""
    n: int | None = None
    """Number of runs behind the value."""
    notes: Sequence[str] = ()
    """Sentences about the cell."""
    best: bool = False
    """True if the value is the best of its column among those that may be compared."""


@dataclass(frozen=True)
class Column:
    """Name and unit of a column, and whether it holds numbers."""

    name: str
    unit: str = ""
    numeric: bool = True
    """True for numbers, which are aligned right."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with its caption and notes."""

    id: str
    """Name of its files, such as "scores"."""
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    """What the numbers measure, in which unit and over what."""
    remarks: Sequence[str] = ()
    """Sentences about the whole table."""
    p_values: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    """Corrected p of each test, by corpus, system, and the system it is tested against."""
    small_sets: frozenset[str] = frozenset()
    """Corpora whose test sets are too small to rely on the table's tests."""

    @cached_property
    def keys(self) -> dict[str, str]:
        """The key of each note: a to z, aa, bb, and so on; first the notes of cells, row by row, then the remarks."""
        notes = dict.fromkeys([*(note for row in self.rows for cell in row for note in cell.notes), *self.remarks])
        return {note: ascii_lowercase[i % 26] * (1 + i // 26) for i, note in enumerate(notes)}

    def keys_of(self, cell: Cell) -> list[str]:
        """Return the keys of a cell's notes, in order."""
        return [key for note, key in self.keys.items() if note in cell.notes]

    @cached_property
    def marked(self) -> frozenset[str]:
        """Keys that some cell has. The other notes are about the whole table and shown without a key."""
        return frozenset(key for row in self.rows for cell in row for key in self.keys_of(cell))


class Shows(Enum):
    """The subject of a picture."""

    CURVES = auto()
    """Figures by epoch or update."""
    COSTS = auto()
    SCORES_AND_SIZES = auto()
    """Scores against numbers of parameters."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A plot as SVG text in the colours of the page, with the numbers that it shows."""

    id: str
    title: str
    shows: Shows
    svg: str
    description: str
    """What readers who cannot see the picture need to know."""
    numbers: Table


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A test sentence with the translations of two systems."""

    number: int
    """Line of the test set, counted from 1."""
    src: str
    reference: str
    hypotheses: tuple[str, str]
    scores: tuple[float, float]
    """Sentence-level chrF of each hypothesis, 0 to 100."""


@dataclass(frozen=True, kw_only=True)
class SentenceComparison:
    """Sentences on which two systems differ most."""

    id: str
    systems: tuple[str, str]
    src_lang: str
    tgt_lang: str
    sentences: tuple[Sentence, ...]
    caption: str = ""

    @property
    def title(self) -> str:
        """The systems, and the languages if both are known."""
        languages = (self.src_lang, self.tgt_lang)
        return " and ".join(self.systems) + f", {' → '.join(languages)}" * (UNKNOWN not in languages)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and its contents, shown in the order of the fields."""

    title: str
    paragraphs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """Sentences that are shown prominently."""
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    comparisons: tuple[SentenceComparison, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """A whole report."""

    title: str
    subtitle: str
    """Which runs, from which days, with which versions."""
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]
    verdict: str = ""
    """The result, in a sentence for each corpus."""
    picture: Picture | None = None
    """The most informative picture; it is in no section."""
