"""Read sentence pairs from records: JSONL and Parquet, whose fields may be nested."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from repose.data.language import UNKNOWN, code_of, names_language, short_code
from repose.data.lines import LineReader
from repose.data.pairs import Counts, Pair, Row
from repose.data.tables import FIELDS, NAME_BOTH, no_field, note_lines
from repose.system.errors import DataError

_RECORD_BYTES = 1 << 22
_ROWS_PER_BATCH = 4096


def sides_by_language(names: Iterable[str], fields: Pair, languages: Pair) -> Pair:
    """Return the names of the source and target fields among the `names` of a record's fields.

    These are `fields`, unless `fields` are the defaults and the record has neither. Then they are the fields named
    after the languages, such as "translation.pt" and "translation.en". If one language is unknown, its field is the
    only one beside the other language's. If that is not clear, they are `fields`.
    """
    if fields != FIELDS or any(name in names for name in FIELDS):
        return fields
    sides = [pair for of in _by_record(names) if (pair := _pair_of(of, languages))]
    return sides[0] if len(sides) == 1 else fields


def _by_record(names: Iterable[str]) -> list[dict[str, str]]:
    """Group field names by their record, outer or nested. Maps each name to a possible language code."""
    found: dict[str, dict[str, str]] = {}
    for name in names:
        record, _, last = name.rpartition(".")
        found.setdefault(record, {})[name] = code_of(last)
    return [*found.values()]


def _pair_of(of: Mapping[str, str], languages: Pair) -> Pair | None:
    """Return the names of source and target among the fields of one record; None if unclear."""

    def called(language: str) -> list[str]:
        exact = [name for name, code in of.items() if _plain(code) == _plain(language)]
        codes = {name: code for name, code in of.items() if names_language(code)}
        return exact or [name for name, code in codes.items() if short_code(code) == short_code(language)]

    match [called(language) for language in languages if language != UNKNOWN]:
        case [[src], [tgt]] if src != tgt:
            return src, tgt
        case [[known]] if len(of) == 2:
            (other,) = of.keys() - {known}
            is_pair = names_language(of[other])
            return ((known, other) if languages[1] == UNKNOWN else (other, known)) if is_pair else None
        case _:
            return None


def _plain(code: str) -> str:
    return code.lower().replace("_", "-")


def jsonl_pairs(path: Path, fields: Pair, languages: Pair, counts: Counts) -> Iterator[Row]:
    """Yield the pairs of a file with one JSON object per line. The first object with both sides decides their names.

    Raises DataError, at the end if no line is an object with both sides.
    """
    reader = LineReader(path, _RECORD_BYTES)
    is_first, wrong = True, ""  # what is wrong with the first line, until a record says what the sides are called
    faults: dict[str, int] = {}
    for line in reader:
        place = f"{path}, line {reader.num_lines}"
        if line is None:
            yield f"record longer than {_RECORD_BYTES:,} bytes"
        elif not line.strip():
            yield "blank line"
        elif isinstance(record := _object(line), str):
            src, tgt = map(json.dumps, fields)
            wrong = wrong or f"{place}: {record}: each line must be like {{{src}: …, {tgt}: …}}"
            yield f"{record}, first on line {faults.setdefault(record, reader.num_lines):,} of {path.name}"
        else:
            sides = sides_by_language(flat(record), fields, languages) if is_first else fields
            if is_first and None in record.values() and not set(sides) <= flat(record).keys():
                wrong = wrong or f"{place}: {no_field(sides[0], list(record), _naming(record))}"
                yield "", ""  # the sides may be in what is null
                continue
            counts.columns = fields = sides
            yield _sides_of(record, fields, place, is_first)
            is_first = False
    if is_first and wrong:
        raise DataError(wrong)
    note_lines(reader, counts)


def _object(text: str) -> dict[str, Any] | str:
    """The object that a line holds, or else what it is."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return "not JSON"
    return record if isinstance(record, dict) else "not a JSON object"


def _sides_of(record: Mapping[str, Any], fields: Pair, place: str, is_first: bool) -> Row:
    """Return a record's two sides. Raises DataError, whose advice differs for the first record and later ones."""
    alone = "" if is_first else ", unlike in the records before: mend or delete this one"
    nothing = {name: None for name in fields if record.get(name.partition(".")[0], "") is None}  # in a null record
    record = record if all(name in record for name in fields) else nothing | flat(record)
    sides = []
    for name in fields:
        if name not in record:
            raise DataError(f"{place}: {no_field(name, list(record), alone or _naming(record))}")
        value = "" if record[name] is None else record[name]
        if not isinstance(value, str):
            shown = json.dumps(value)[:40]
            raise DataError(f"{place}: the field {name!r} holds no text but {shown}{alone or ': name a text field'}")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"{place}: the field {name!r} holds half a surrogate pair: repair its encoding") from error
        sides.append(value)
    return sides[0], sides[1]


def flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten a record: fields of nested records get names with a dot, such as "translation.pt"."""
    inner = {
        f"{outer}.{name}": value for outer, of in record.items() if isinstance(of, dict) for name, value in of.items()
    }
    return inner | {name: value for name, value in record.items() if not isinstance(value, dict)}


def flat_schema(schema: Any) -> Any:
    """Flatten the structs of an Arrow schema, with the same names as `flat`."""
    return schema.empty_table().flatten().schema


def values_of(batch: Any, name: str) -> list[Any]:
    """Return a field's values in an Arrow batch; None where the field, or the record around it, is null."""
    import pyarrow as pa

    values: list[Any] = pa.Table.from_batches([batch]).flatten().column(name).to_pylist()
    return values


def _naming(names: Iterable[str]) -> str:
    """Return advice on a missing field: name the two fields named after languages, if there are any."""
    called = [[name for name, code in of.items() if names_language(code)] for of in _by_record(names)]
    match [sides for sides in called if len(sides) > 1]:
        case [[src, tgt]]:
            return f": {NAME_BOTH}, such as {src} and {tgt}"
        case _:
            return ""  # the default advice


def parquet_pairs(path: Path, fields: Pair, languages: Pair, counts: Counts) -> Iterator[Row]:
    """Yield the pairs of two text columns of a Parquet file. Raises DataError."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            schema = flat_schema(file.schema_arrow)
            counts.columns = fields = sides_by_language(schema.names, fields, languages)
            for name in fields:
                if name not in schema.names:
                    raise DataError(f"{path}: {no_field(name, schema.names, _naming(schema.names))}")
                if schema.names.count(name) > 1:
                    raise DataError(f"{path} has several columns with the name {name!r}: rename all but one")
                if not is_text(kind := schema.field(name).type):
                    raise DataError(f"{path}: the field {name!r} holds no text but {kind}: name a text field")
            for batch in file.iter_batches(batch_size=_ROWS_PER_BATCH, columns=list(fields)):
                columns = (values_of(batch, name) for name in fields)
                for src, tgt in zip(*columns, strict=True):
                    yield src or "", tgt or ""
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is damaged or no Parquet file ({first_line(error)}): get it again") from error


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is text."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, shortened; or its type if it has none."""
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
