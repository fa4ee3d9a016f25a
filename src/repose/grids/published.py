"""What the papers print, as typed data: tables, mean learning curves and single numbers.

The numbers are in `published.toml`, each with the place it stands at, its unit and `protocol` tags that say how it was
made; they are what the experiments here are set beside, never a target that a test asserts.
"""

import tomllib
from functools import cache
from importlib import resources
from typing import Annotated, TypeVar

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from repose.system.errors import ConfigError

PrintedCell = int | float | str
_CLOSED = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True, config=_CLOSED)
class Paper:
    """A paper and the texts of it that the numbers were read from."""

    id: str
    title: str
    authors: str
    year: int
    identifier: str
    texts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, config=_CLOSED)
class PrintedSystem:
    """A model that a number belongs to; `preset` is this project's architecture for it, "" where there is none."""

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
    """What a paper prints, `where` in it, in which of its texts, and how it was made."""

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

    def column(self, name: str) -> tuple[PrintedCell, ...]:
        """The cells of one column, in the order of the rows. Raises ConfigError where there is no such column."""
        names = [column.name for column in self.columns]
        if name not in names:
            raise ConfigError(f"table {self.id!r} has no column {name!r}: it has {', '.join(names)}")
        return tuple(row[names.index(name)] for row in self.rows)

    def cell(self, row: str, column: str) -> PrintedCell:
        """One cell. Raises ConfigError where there is no such row or column."""
        cells = dict(zip((str(row[0]) for row in self.rows), self.column(column), strict=True))
        if row not in cells:
            raise ConfigError(f"table {self.id!r} has no row {row!r}: it has {', '.join(cells)}")
        return cells[row]


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
    """A single printed number, with its standard deviation where one is printed."""

    system: str
    metric: str
    unit: str
    value: int | float
    deviation: float | None = None


_One = TypeVar("_One", Paper, PrintedSystem, PrintedTable, Curve, Scalar)


@dataclass(frozen=True, kw_only=True, config=_CLOSED)
class Published:
    """Everything in `published.toml`; `protocols` explains each protocol tag in a sentence.

    Its methods find what has an id, such as "reinforced/table-1", and raise ConfigError where there is none.
    """

    protocols: dict[str, str]
    papers: tuple[Paper, ...]
    systems: tuple[PrintedSystem, ...]
    tables: tuple[PrintedTable, ...]
    curves: tuple[Curve, ...]
    scalars: tuple[Scalar, ...]

    @property
    def entries(self) -> dict[str, PrintedEntry]:
        """What the papers print, by id."""
        return {entry.id: entry for entry in (*self.tables, *self.curves, *self.scalars)}

    def find(self, kind: type[_One], name: str) -> _One:
        """The entry of that kind and id. Raises ConfigError where there is none."""
        entries = (*self.papers, *self.systems, *self.entries.values())
        by_id = {entry.id: entry for entry in entries if isinstance(entry, kind)}
        if name not in by_id:
            raise ConfigError(
                f"no published {kind.__name__.removeprefix('Printed').lower()} {name!r}: there are {', '.join(by_id)}"
            )
        return by_id[name]


def parse(text: str) -> Published:
    """Published numbers from TOML text. Raises ValueError for a missing or unknown entry."""
    return Published(**tomllib.loads(text))


@cache
def load() -> Published:
    """The numbers shipped with the package; read once."""
    return parse(resources.files(__package__).joinpath("published.toml").read_text(encoding="utf-8"))
