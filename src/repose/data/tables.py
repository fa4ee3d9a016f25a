"""Sentence pairs of tables: TSV and CSV, whose first line may name the columns."""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from repose.data.lines import LineReader
from repose.data.pairs import MAX_BYTES, TOO_LONG, Counts, Row
from repose.system.errors import DataError

NAME_BOTH = (
    "name both sides with --set corpus.src_field=... and corpus.tgt_field=..., or in `evaluate` and `score-corpus` "
    "with --src-field and --tgt-field"
)

_DELIMITERS = {"\t": "tab", ";": "semicolon", ",": "comma"}  # of two that fit alike, the one that prose has less
_FIRST_ROWS = 100
"""By which the delimiter of a CSV file is found."""

TWO_COLUMNS = (0, 1, 2)
"""`table_columns` where no first line names them."""


def table_columns(first: Sequence[str], fields: Sequence[str], path: Path | str) -> tuple[tuple[int, int, int], bool]:
    """Where source and target stand in a table, how many columns it has, and whether its first line names them.

    Raises DataError where that names one of the fields alone, or there are more than two columns without names."""
    (src, tgt), names = map(plain_name, fields), [plain_name(name) for name in first]
    if src in names and tgt in names:
        return (names.index(src), names.index(tgt), len(names)), True
    if (absent := _absent(fields, first)) != [*fields]:
        raise DataError(f"{path}, line 1: {no_field(absent[0], first)}")
    if len(first) > 2:
        raise DataError(
            f"{path}, line 1: {len(first)} columns instead of 2: cut out source and target, or begin "
            f"with a line that names the columns, {fields[0]!r} and {fields[1]!r} among them; where this line does so "
            f"by other names, {NAME_BOTH}"
        )
    return TWO_COLUMNS, False


def _absent(fields: Sequence[str], columns: Sequence[str]) -> list[str]:
    return [field for field in fields if plain_name(field) not in map(plain_name, columns)]


def plain_name(name: str) -> str:
    """A column's name without case, and without the quotation marks and spaces that spreadsheets leave around it."""
    return name.strip().strip('"').strip().casefold()


def tsv_pairs(path: Path, fields: tuple[str, str], counts: Counts) -> Iterator[Row]:
    """The pairs of lines whose columns are separated by tabs, without quoting. Raises DataError."""
    reader = LineReader(path, 2 * MAX_BYTES + 1)
    records = (None if line is None else line.split("\t") if line else [] for line in reader)
    return _pairs(records, "\t", fields, reader, counts)


def csv_pairs(path: Path, fields: tuple[str, str], counts: Counts) -> Iterator[Row]:
    """The pairs of a spreadsheet's records, in whose quoted cells anything may stand. Raises DataError."""
    reader = LineReader(path, 2 * MAX_BYTES + 1)
    delimiter = _delimiter(path, fields)
    return _pairs(_records(reader, delimiter), delimiter, fields, reader, counts)


def _pairs(
    records: Iterable[list[str] | None], delimiter: str, fields: tuple[str, str], reader: LineReader, counts: Counts
) -> Iterator[Row]:
    src, tgt, width = TWO_COLUMNS
    first: dict[str, int] = {}
    for number, columns in enumerate(records):
        if columns is None:
            yield TOO_LONG
            continue
        if number == 0:
            (src, tgt, width), is_header = table_columns(columns, fields, reader.path)
            if is_header:
                counts.header_lines = 1
                continue
        if len(columns) == width:
            yield columns[src], columns[tgt]
        elif not columns:
            yield "blank line"
        else:
            than = f"{'more' if len(columns) > width else 'fewer'} than {width} columns"
            fault = f"no {_DELIMITERS[delimiter]}" if len(columns) == 1 else than
            yield f"{fault}, first on line {first.setdefault(fault, reader.num_lines):,}"
    note_lines(reader, counts)


def _records(reader: LineReader, delimiter: str) -> Iterator[list[str]]:
    def lines() -> Iterator[str]:
        for line in reader:
            if line is None:
                raise csv.Error("the line is longer than any sentence")
            yield line + "\n"

    try:
        yield from csv.reader(lines(), delimiter=delimiter, strict=True)
    except csv.Error as error:
        raise DataError(
            f"{reader.path}, line {reader.num_lines:,}: this is no CSV ({error}): see whether a quotation mark is "
            'missing there or before; inside a quoted cell, " is written twice'
        ) from error


def _delimiter(path: Path, fields: tuple[str, str]) -> str:
    """By which the first line names both columns, or most of the first lines have two, or else several."""

    def fit(delimiter: str) -> tuple[bool, int, int]:
        try:
            rows = list(islice(_records(LineReader(path, 2 * MAX_BYTES + 1), delimiter), _FIRST_ROWS))
        except DataError:
            return False, -1, 0
        named = bool(rows) and not _absent(fields, rows[0])
        return named, sum(len(row) == 2 for row in rows), sum(len(row) > 1 for row in rows)

    return max(_DELIMITERS, key=fit)


def note_lines(reader: LineReader, counts: Counts) -> None:
    """Counts what was taken away of the lines of a file that was read."""
    marks, returns = "byte-order mark removed from a file", "carriage return removed from a line end"
    counts.notes += Counter({marks: int(reader.had_bom), returns: reader.num_carriage_returns})  # no zeros


def present(names: Iterable[str]) -> str:
    """The first names that there are, for a message."""
    return ", ".join(repr(name[:40]) for name in islice(names, 20)) or "none"


def no_field(name: str, known: Sequence[str], what_to_do: str = "") -> str:
    """What is wrong where a side's field is not among the known ones, and what to do about it."""
    return f"there is no field {name!r} (present: {present(known)}){what_to_do or f': {NAME_BOTH}'}"
