"""Check the columns of Parquet files before any work; find one schema for the merged parts.

All inputs of a job must have the same columns, so that their parts can be merged. The order of columns may differ, a
column may be all null in some files, and texts may be Arrow's `string` in one file and `large_string` in another.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from repose.bulk.storage import open_input
from repose.data.records import first_line, flat_schema, is_text
from repose.data.tables import present
from repose.system.errors import DataError, of_extra

OPTIONS = {1: ("--field",), 2: ("--src-field", "--tgt-field")}
"""Command-line options that name the fields of a job, by number of fields."""


def taken(name: str, field: str, added: Sequence[str]) -> DataError:
    """Describe in one sentence that an input already has a field that the output adds; the first added field is
    `--into`."""
    remedy = "choose another --into, or rename theirs" if field == added[0] else "rename it in the input"
    return DataError(f"{name} has a field {field!r} already, which the output adds: {remedy}")


@contextlib.contextmanager
def parquet(name: str) -> Iterator[Any]:
    """Open a Parquet file. Raises ConfigError without the extra, DataError if the file is damaged."""
    with of_extra("parquet", "Parquet files need pyarrow"):
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile
    with open_input(name) as file:
        try:
            opened = ParquetFile(file)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{name} is damaged or no Parquet file ({first_line(error)}): get it again") from error
        yield opened


def check_columns(names: Sequence[str], fields: Sequence[str], added: Sequence[str]) -> None:
    """Read the schemas of a job's files. Raises DataError if a file lacks a text column of each field's name, has two
    columns with one name, a column that the output adds, or other columns than the first file."""
    first = None
    for name in names:
        with parquet(name) as file:
            schema = file.schema_arrow
        flat = flat_schema(schema)
        if twice := [column for column, number in Counter(flat.names).items() if number > 1]:
            raise DataError(f"{name} has two columns {twice[0]!r}: rename one")
        for field, option in zip(fields, OPTIONS[len(fields)], strict=True):
            if field not in flat.names:
                raise DataError(f"{name} has no column {field!r} (present: {present(flat.names)}): give {option}")
            if not is_text(kind := flat.field(field).type):
                raise DataError(f"the column {field!r} of {name} holds no text but {kind}: give another {option}")
        if names_taken := [column for column in added if column in schema.names]:
            raise taken(name, names_taken[0], added)
        first = schema if first is None else first
        if (difference := _difference(first, schema)) is not None:
            raise DataError(
                f"{names[0]} and {name} cannot be merged, since {difference}: give them the same columns, or translate "
                "them in two jobs"
            )


def _difference(first: Any, other: Any) -> str | None:
    """Describe a difference between the columns of two files that prevents merging them; None if there is none."""
    import pyarrow as pa

    for name in [*first.names, *other.names]:
        if name not in first.names or name not in other.names:
            return f"only one has a column {name!r}"
        kinds = first.field(name).type, other.field(name).type
        strings = all(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in kinds)
        if kinds[0] != kinds[1] and not strings and not any(map(pa.types.is_null, kinds)):
            return f"their columns {name!r} hold {kinds[0]} and {kinds[1]}"
    return None


def schema_of_all(places: Sequence[str]) -> Any:
    """Return the schema of the merged file, with columns in the order of the first file."""
    import pyarrow as pa

    schemas = []
    for place in places:
        with parquet(place) as file:
            schemas.append(file.schema_arrow)
    if all(schema.equals(schemas[0]) for schema in schemas):
        return schemas[0]
    return pa.unify_schemas(schemas, promote_options="permissive")
