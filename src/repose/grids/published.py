"""The papers' printed numbers as typed data: tables, mean learning curves and single numbers.

The numbers are in `published.toml`, each with its place in the paper, its unit, and `protocol` tags that say how it was
made. Experiments here are compared with them, but no test asserts them.
"""

import tomllib
from functools import cache
from importlib import resources
from typing import Annotated, TypeVar

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

PrintedCell = int | float | str
_CLOSED = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True, config=_CLOSED)
class Paper:
    """A paper, and the texts of it that the numbers were read from."""

    id: str
    title: str
    authors: str
    year: int
    identifier: str
    texts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, config=_CLOSED)
class PrintedSystem:
    """A model that has printed numbers; `preset` is this project's architecture for it, "" if there is none."""

    id: str
    label: str
    preset: str


@dataclass(frozen=True, kw_only=True, config=_CLOSED)
class PrintedColumn:
    """Name and unit of a table's column."""

    name: str
    unit: str


@dataclass(frozen=True, kw_only=True, config=_CLOSED)
class PrintedEntry:
    """Something that a paper prints: `where`, in which of its texts, and how it was made."""

    id: str
    paper: str
    where: str
    sources: tuple[str, ...]
    protocol: tuple[str, ...]
    note: str


@dataclass(frozen=True, kw_only=True, config=_CLOSED)
class PrintedTable(PrintedEntry):
    """A printed table. The first column names the rows."""

    columns: tuple[PrintedColumn, ...]
    rows: tuple[tuple[PrintedCell, ...], ...]


@dataclass(frozen=True, kw_only=True, config=_CLOSED)
class Curve(PrintedEntry):
    """A printed mean per epoch, from epoch 1 on, with the number of trials behind each mean."""

    system: str
    metric: str
    unit: str
    values: tuple[float, ...]
    trials: tuple[Annotated[int, Field(ge=1)], ...]


@dataclass(frozen=True, kw_only=True, config=_CLOSED)
class Scalar(PrintedEntry):
    """A single printed number, with its standard deviation if one is printed."""

    system: str
    metric: str
    unit: str
    value: int | float
    deviation: float | None = None


_One = TypeVar("_One", Paper, PrintedSystem, PrintedTable, Curve, Scalar)


@dataclass(frozen=True, kw_only=True, config=_CLOSED)
class Published:
    """Everything in `published.toml`; `protocols` explains each protocol tag in a sentence."""

    protocols: dict[str, str]
    papers: tuple[Paper, ...]
    systems: tuple[PrintedSystem, ...]
    tables: tuple[PrintedTable, ...]
    curves: tuple[Curve, ...]
    scalars: tuple[Scalar, ...]

    @property
    def entries(self) -> dict[str, PrintedEntry]:
        """All tables, curves and single numbers, by id."""
        return {entry.id: entry for entry in (*self.tables, *self.curves, *self.scalars)}

    def find(self, kind: type[_One], name: str) -> _One:
        """Return the item of that kind with an id, such as "reinforced/table-1"."""
        everything = (*self.papers, *self.systems, *self.entries.values())
        return next(one for one in everything if isinstance(one, kind) and one.id == name)


def parse(text: str) -> Published:
    """Published numbers from TOML text. Raises ValueError for a missing or unknown entry."""
    return Published(**tomllib.loads(text))


@cache
def load() -> Published:
    """Return the numbers that come with the package; read only once."""
    return parse(resources.files(__package__).joinpath("published.toml").read_text(encoding="utf-8"))
