"""The papers' tables in their own column layout, ours beside theirs, marked where the protocol differs.

Which entries of `experiments/published.toml` are shown is said by the grid ([grid.report] published); where it says
nothing, those that something of ours fits.
"""

from collections.abc import Callable, Mapping, Sequence

from repose.grids.published import Curve, Published, Scalar, load
from repose.grids.published import Table as PublishedTable
from repose.report import enhanced_tables, reinforced_tables
from repose.report.beside import Beside, Entry, plain_table, scalars_table
from repose.report.content import Table
from repose.report.runs import RunSet
from repose.system.errors import unknown

Layout = Callable[[Beside, PublishedTable], Table | None]
LAYOUTS: Mapping[str, Layout] = {
    "reinforced/table-1": reinforced_tables.table_1,
    "enhanced/table-1": enhanced_tables.table_1,
    "enhanced/table-2": enhanced_tables.table_2,
    "enhanced/comparisons": enhanced_tables.comparisons,
}
"""How each table is set; others are shown as printed."""
WEIGHT = "enhanced/best_residual_weight"
UNASKED = ("reinforced/table-1", "enhanced/table-1", "enhanced/table-2")


def published_tables(runs: RunSet, published: Published | None = None) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """The tables, and a sentence for each entry that was asked for and does not exist."""
    published = load() if published is None else published
    runs = runs.of_task("translation")
    if not runs.runs:
        return (), ()
    asked = Beside(runs=runs, published=published, asked=True)
    if not runs.published:
        return tuple(_unasked(Beside(runs=runs, published=published, asked=False))), ()
    listed: list[Entry] = [*published.tables, *published.curves, *published.scalars]
    entries = {entry.id: entry for entry in listed}
    problems = [
        f"published: {unknown('entry', name, list(entries))}." for name in runs.published if name not in entries
    ]
    found = [entries[name] for name in runs.published if name in entries]
    return tuple(_asked(asked, found)), tuple(problems)


def _asked(beside: Beside, entries: Sequence[Entry]) -> list[Table]:
    """What the grid names: tables one by one, curves and single numbers of a paper together."""
    tables: list[Table | None] = []
    for entry in entries:
        if isinstance(entry, PublishedTable):
            tables.append(LAYOUTS.get(entry.id, plain_table)(beside, entry))
        elif entry.id == WEIGHT:
            assert isinstance(entry, Scalar)
            tables.append(enhanced_tables.weights_table(beside, entry))
    curves = [entry for entry in entries if isinstance(entry, Curve)]
    tables += reinforced_tables.curves_tables(beside, curves) if curves else []
    scalars = [entry for entry in entries if isinstance(entry, Scalar) and entry.id != WEIGHT]
    for paper in dict.fromkeys(entry.paper for entry in scalars):
        tables.append(_numbers(beside, [entry for entry in scalars if entry.paper == paper]))
    return [table for table in tables if table is not None]


def _unasked(beside: Beside) -> list[Table]:
    """What has something of ours beside it."""
    tables = [LAYOUTS[name](beside, beside.published.table(name)) for name in UNASKED]
    if beside.group("baseline") and beside.groups(*reinforced_tables.PROPOSED):
        tables += reinforced_tables.curves_tables(beside, beside.published.curves)
        names = ("parameters", "seconds_per_epoch")
        scalars = [s for s in beside.published.scalars if s.paper == "reinforced" and s.metric in names]
        tables.append(_numbers(beside, scalars))
    tables.append(enhanced_tables.weights_table(beside, beside.published.scalar(WEIGHT)))
    return [table for table in tables if table is not None]


def _numbers(beside: Beside, entries: Sequence[Scalar]) -> Table:
    here = reinforced_tables.scalars_here(beside, entries) if entries[0].paper == "reinforced" else {}
    return scalars_table(beside, entries, here)
