"""Read sentence pairs from tables: TSV and CSV, whose first line may name the columns."""

import csv
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from repose.data.language import UNKNOWN, code_of, names_language, short_code
from repose.data.lines import LineReader
from repose.data.pairs import CARRIAGE_RETURNS, MAX_BYTES, TOO_LONG, Counts, Pair, Row
from repose.system.errors import DataError
from repose.system.terminal import counted

BY_FIELDS = "--src-field and --tgt-field, or with corpus.src_field and corpus.tgt_field among settings"
BY_LANGUAGES = "--src-lang and --tgt-lang, or with corpus.src_lang and corpus.tgt_lang among settings"
"""What names the sides on the command line; and in Python, whose settings have the names that they have in files."""
NAME_BOTH = f"name both sides, with {BY_FIELDS}"

_DELIMITERS = {"\t": "tab", ";": "semicolon", ",": "comma"}  # in case of a tie, the one that is rarer in prose wins
_FIRST_ROWS = 100
"""Rows from which the delimiter of a CSV file is guessed."""

_RETURN = "\ufdd0"
"""Stands for a carriage return, at which csv would end a row. Unicode reserves this character for such internal use."""
csv.field_size_limit(max(csv.field_size_limit(), 2 * MAX_BYTES))

FIELDS = ("src", "tgt")
"""Names of source and target where nothing else is specified."""
TWO_COLUMNS = (0, 1, 2)
"""Columns of source and target and the number of columns, for a table whose first line does not name them."""


def table_columns(
    first: Sequence[str], fields: Sequence[str], path: Path | str, languages: Pair = (UNKNOWN, UNKNOWN)
) -> tuple[tuple[int, int, int], bool]:
    """Find the columns of source and target and the number of columns, and whether the first line holds names.

    Columns are named by the two fields. If nothing else is specified, they may also be named by two languages or by
    words for source and target. Columns named by the source and target language, `languages`, may come in either order.
    Fields that are numbers count the columns from 1. Raises DataError if the line lacks one of the fields, or if there
    are more than two columns without names.
    """
    (src, tgt), names = map(plain_name, fields), [plain_name(name) for name in first]
    if src in names and tgt in names:
        if twice := [name for name in (src, tgt) if names.count(name) > 1]:
            raise DataError(f"{path}, line 1: several columns are called {twice[0]!r}: rename all but one")
        return (names.index(src), names.index(tgt), len(names)), True
    if all(re.fullmatch("[0-9]{1,9}", field) for field in fields):
        at = [int(field) - 1 for field in fields]
        if -1 in at or max(at) >= len(first) or at[0] == at[1]:
            raise DataError(f"{path}, line 1: {counted(len(first), 'column')}, of which {src} and {tgt} should be two")
        is_header = names_columns((first[at[0]], first[at[1]])) or any({*pair} <= {*names} for pair in _SIDES)
        return (at[0], at[1], len(first)), is_header
    are_names = len(first) == 2 and names_columns((first[0], first[1]))
    if are_names and tuple(fields) == FIELDS:
        swapped = (names[1], names[0]) in _SIDES or _are_reversed(names, languages)
        return (1, 0, 2) if swapped else TWO_COLUMNS, True
    absent = _absent(fields, first)
    if absent != [*fields] or are_names or (len(first) == 2 and tuple(fields) != FIELDS):
        wrong = next((field for field in absent if field not in FIELDS), absent[0])
        raise DataError(f"{path}, line 1: {no_field(wrong, first)}, or by the numbers of their columns")
    if len(first) > 2:
        first_two = [str(place) for place, cell in enumerate(first, 1) if any(map(str.isalpha, cell))][:2]
        src, tgt = first_two if len(first_two) == 2 else ("1", "2")
        cells = ", ".join(f"{place}: {cell.strip()[:20]!r}" for place, cell in enumerate(first[:9], 1))
        raise DataError(
            f"{path}, line 1: {len(first)} columns instead of 2 ({cells}): {NAME_BOTH}: by the numbers of their "
            f"columns, such as --src-field {src} --tgt-field {tgt}, or by what this line calls them"
        )
    return TWO_COLUMNS, False


_SIDES = (
    *(("source", "target"), ("src", "tgt"), ("source_text", "target_text"), ("source", "translation")),
    *(("text", "translation"), ("sentence", "translation"), ("source_sentence", "target_sentence")),
    *(("original", other) for other in ("translation", "übersetzung", "traduction", "traducción", "tradução")),
    *(
        ("quelle", "ziel"),
        ("ausgangstext", "zieltext"),
        ("source", "cible"),
        ("origen", "destino"),
        ("origem", "destino"),
    ),
)
"""Other names of two columns, with the source's first; a file may have them in either order."""


def _are_reversed(names: Sequence[str], languages: Pair) -> bool:
    """Return whether two columns are named by target and source language, in this order, as far as these are known."""
    src, tgt = (short_code(code_of(name)) for name in names)
    known = [(short_code(of), code) for of, code in zip(languages, (tgt, src), strict=True) if of != UNKNOWN]
    return src != tgt and bool(known) and all(one == other for one, other in known)


def names_columns(pair: Pair) -> bool:
    """Return whether a pair is two languages, or words for the two sides, as in a line that names columns."""
    src, tgt = map(plain_name, pair)
    are_sides = (src, tgt) in _SIDES or (tgt, src) in _SIDES
    return src != tgt and ((names_language(src) and names_language(tgt)) or are_sides)


def _absent(fields: Sequence[str], columns: Sequence[str]) -> list[str]:
    return [field for field in fields if plain_name(field) not in map(plain_name, columns)]


def plain_name(name: str) -> str:
    """Return a column's name in lower case, without the quotation marks and spaces that spreadsheets add."""
    return name.strip().strip('"').strip().casefold()


def tsv_pairs(path: Path, fields: Pair, languages: Pair, counts: Counts) -> Iterator[Row]:
    """Yield the pairs of lines whose columns are separated by tabs, without quoting. Raises DataError."""
    reader = LineReader(path, 2 * MAX_BYTES + 1)
    records = (None if line is None else line.split("\t") if line else [] for line in reader)
    yield from _pairs(records, "\t", fields, languages, path, counts)
    note_lines(reader, counts)


def csv_pairs(path: Path, fields: Pair, languages: Pair, counts: Counts) -> Iterator[Row]:
    """Yield the pairs of a spreadsheet's rows, whose quoted cells may contain anything. Raises DataError."""
    stated = _stated_delimiter(path)
    delimiter, width = _delimiter(path, fields, [stated] if stated else list(_DELIMITERS))
    reader = LineReader(path, 2 * MAX_BYTES + 1)
    records = _records(reader, delimiter, spaced=_is_spaced(path, delimiter))
    if stated:
        next(records)
        counts.header_lines = 1
    yield from _pairs(records, delimiter, fields, languages, path, counts, width)
    note_lines(reader, counts)


def _pairs(
    records: Iterable[list[str] | None],
    delimiter: str,
    fields: Pair,
    languages: Pair,
    path: Path,
    counts: Counts,
    usual: int | None = None,
) -> Iterator[Row]:
    """Yield a pair, or the reason why there is none, for each record.

    `usual` is the number of cells in most rows of a CSV file, since spreadsheets add empty cells at the end of rows.
    """
    places = "line" if usual is None else "row"
    src, tgt, width = TWO_COLUMNS
    first: dict[str, int] = {}
    begins = counts.header_lines + 1
    for number, columns in enumerate(records, begins):
        if columns is None:
            yield TOO_LONG
            continue
        if number == begins:
            cells = columns if usual is None else columns[: max(len(_filled(columns)), usual)]
            (src, tgt, width), is_header = table_columns(cells, fields, path, languages)
            counts.columns = (columns[src], columns[tgt]) if is_header else (str(src + 1), str(tgt + 1))
            if is_header:
                counts.header_lines += 1
                continue
        own = columns if usual is None or any(map(str.strip, columns[width:])) else columns[:width]
        if len(own) == width:
            yield own[src], own[tgt]
        elif not any(columns):
            yield f"blank {places}"
        else:
            than = f"{'more' if len(columns) > width else 'fewer'} than {width} columns"
            fault = f"no {_DELIMITERS.get(delimiter, repr(delimiter))}" if len(columns) == 1 else than
            yield f"{fault}, first on {places} {first.setdefault(fault, number):,}"


def _filled(columns: Sequence[str]) -> Sequence[str]:
    """Return the columns without empty cells at the end."""
    return columns[: max((number for number, cell in enumerate(columns, 1) if cell.strip()), default=0)]


def _records(reader: LineReader, delimiter: str, *, strict: bool = True, spaced: bool) -> Iterator[list[str]]:
    """Yield the records of a CSV file. `spaced`: a space may stand between the delimiter and a quotation mark."""
    held = 0  # characters of the current record so far

    def lines() -> Iterator[str]:
        nonlocal held
        for line in reader:
            held += len(line or "")
            if line is None or held > 2 * MAX_BYTES:
                raise csv.Error("the row that begins there is longer than any pair of sentences")
            yield line.replace("\r", _RETURN) + "\n"

    records = csv.reader(lines(), delimiter=delimiter, strict=strict, skipinitialspace=spaced)
    while True:
        begins, held = reader.num_lines + 1, 0
        try:
            record = next(records, None)
        except csv.Error as error:
            raise DataError(
                f"{reader.path}, line {begins:,}: this is not CSV ({error}): check whether a quotation mark is missing "
                'in the row that begins there; inside a quoted cell, " is written twice'
            ) from error
        if record is None:
            return
        yield [cell.replace(_RETURN, "\r") for cell in record]


def _stated_delimiter(path: Path) -> str:
    """Return the delimiter from Excel's first line "sep=;", or "" if there is no such line."""
    line = next(iter(LineReader(path, MAX_BYTES)), None)
    found = None if line is None else re.fullmatch(r'sep=([^"\r])', line, re.IGNORECASE)
    return found[1] if found else ""


def _delimiter(path: Path, fields: tuple[str, str], known: Sequence[str]) -> tuple[str, int]:
    """Find the delimiter of a CSV file and its usual number of cells per row.

    It is the delimiter with which the first line names both columns, or else the one that gives most of the first rows
    equally many cells. Raises DataError if there is none.
    """

    def fit(delimiter: str) -> tuple[bool, int, int, int]:
        rows = [_filled(row) for row in _first_rows(path, delimiter, spaced=_is_spaced(path, delimiter))]
        widths = Counter(len(row) for row in rows if row)
        width, alike = max(((w, n) for w, n in widths.items() if w > 1), key=lambda one: one[1], default=(2, 0))
        return bool(rows) and not _absent(fields, rows[0]), alike, widths.total(), width

    fits = {delimiter: fit(delimiter) for delimiter in known}
    best = max(fits, key=lambda delimiter: fits[delimiter][:2])
    named, alike, number, width = fits[best]
    if not named and 2 * alike < number:
        raise DataError(
            f"{path} is not a table: its first lines do not have equally many cells between tabs, semicolons or "
            "commas: see what separates the cells, and save it again"
        )
    return best, width


def _first_rows(path: Path, delimiter: str, *, spaced: bool = False) -> list[list[str]]:
    rows: list[list[str]] = []
    with suppress(DataError):  # reading the file will raise it
        records = _records(LineReader(path, 2 * MAX_BYTES + 1), delimiter, strict=False, spaced=spaced)
        rows.extend(islice(records, _FIRST_ROWS))
    return rows


def _is_spaced(path: Path, delimiter: str) -> bool:
    """Return whether the table has spaces between delimiters and quotation marks.

    That is so if most of the first rows have such a space and end with a quotation mark, and all of them can be read
    that way.
    """
    rows = [row for row in _first_rows(path, delimiter) if any(map(str.strip, row))]
    spaced = sum(row[-1].rstrip().endswith('"') and any(cell.startswith(' "') for cell in row[1:]) for row in rows)
    if 2 * spaced <= len(rows):
        return False
    try:
        deque(islice(_records(LineReader(path, 2 * MAX_BYTES + 1), delimiter, spaced=True), _FIRST_ROWS), maxlen=0)
    except DataError:
        return False
    return True


def note_lines(reader: LineReader, counts: Counts) -> None:
    """Count what was removed from the lines of a file after reading it."""
    marks, returns = "byte-order mark removed from a file", CARRIAGE_RETURNS
    counts.notes += Counter({marks: int(reader.had_bom), returns: reader.num_carriage_returns})  # no zeros


def present(names: Iterable[str]) -> str:
    """List the first of the names that are present, for a message."""
    return ", ".join(repr(name[:40]) for name in islice(names, 20)) or "none"


def no_field(name: str, known: Sequence[str], what_to_do: str = "") -> str:
    """Say that a side's field is not among the known ones, and what to do about it."""
    return f"there is no field {name!r} (present: {present(known)}){what_to_do or f': {NAME_BOTH}'}"
