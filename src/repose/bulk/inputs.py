"""Inputs of a job. They are read once for their digest and the places where they are divided, then window by window.

Text, TSV and JSONL are divided at byte offsets after line feeds, Parquet at rows. Compressed files (.gz, .xz) cannot be
read from the middle, so they are first unpacked into the job's folder, as UTF-8; and so is UTF-16 with its mark.
"""

import contextlib
import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from repose.bulk.columns import OPTIONS, parquet, taken
from repose.bulk.storage import Store, blocks, open_input, reads_of_range, stamp
from repose.data.lines import PACKED, encoding_by_mark, unpackable
from repose.data.readers import kind_of, unpacked
from repose.data.records import first_line, flat, values_of
from repose.data.tables import TWO_COLUMNS, present, table_columns
from repose.decoding.stream import MAX_LINE_BYTES, WINDOW, DecodedLine, decoded, in_utf_8, lines_of, without_mark
from repose.system.errors import ConfigError, DataError
from repose.system.terminal import counted

MAX_RECORD_BYTES = 1 << 24
"""Maximum size of a JSONL line in bytes; the content of a longer line is ignored."""
_LOOKED_AT = 100
"""Number of first records that are checked for the fields."""
_HALF_PAIR = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which JSON can spell but no encoding can write."""
UNPACKING = "locks/unpacked"
"""Lock file for unpacking, and for removing what was unpacked."""
Files: TypeAlias = tuple[str, ...]
"""Names of files that are read side by side: one, or the two sides of a parallel corpus."""
Cut = tuple[int, tuple[tuple[int, int], ...]]
"""The number of lines of a shard, and its range in each file."""


class Failure(StrEnum):
    """Why a line has no reliable translation."""

    BLANK = "blank"
    TOO_LONG = "too long"
    """Longer than the model can read without a place to split it, or than `MAX_LINE_BYTES`: only the beginning was
    read."""
    INVALID = "invalid UTF-8"
    NO_TEXT = "no text"
    """The line is no record, or has no text in the field."""
    TAKEN = "field taken"
    """The record has a field that the output adds."""


@dataclass(frozen=True)
class ScannedInput:
    """An input that was read through once."""

    files: Files
    read: tuple[str, ...]
    """What shards read: the file itself, or the name of its unpacked copy in the job's folder."""
    sizes: tuple[int, ...]
    """Sizes of the files in bytes."""
    sha256: tuple[str, ...]
    """SHA-256 digests of the files."""
    stamps: tuple[str, ...]
    """Sizes and times of the files (`storage.stamp`)."""
    lines: int
    columns: tuple[int, ...] = TWO_COLUMNS
    """For TSV: the columns of source and target, and the number of columns."""

    def identified(self) -> dict[str, Any]:
        """Return what counts for the job's identity."""
        return {"sizes": list(self.sizes), "sha256": list(self.sha256)}

    def is_as_before(self) -> bool:
        """Return whether the files have the same sizes and times as before."""
        return all(stamp(name) == mark for name, mark in zip(self.files, self.stamps, strict=True))

    def opened(self, store: Store, number: int) -> BinaryIO:
        """Open one of the files, to read ranges of it. It is unpacked again if the unpacked copy was removed, as a
        runner does once it has finished the job. Raises DataError if the file has changed, WriteError without room."""
        name, read = self.files[number], self.read[number]
        if stamp(name) != self.stamps[number]:
            raise changed(name)
        if read == name:
            return open_input(name)
        with store.locked(UNPACKING):
            if store.size(read) is None:
                _unpack(store, name, read)
            return open_input(store.place(read))


def changed(name: str) -> DataError:
    """Describe in one sentence that a file has changed since the plan was made."""
    return DataError(f"{name} has changed since the job was started: put it back, or start again with another --out")


def format_of(files: Sequence[str]) -> str:
    """Return the kind of the files (`kind_of`), by their names. Raises ConfigError if the kinds differ."""
    found = {kind_of(PurePosixPath(name)) for name in files}
    if len(found) > 1:
        raise ConfigError(f"the inputs are of several kinds ({', '.join(sorted(found))}): give --format, or one kind")
    return found.pop()


def scan(
    store: Store, files: Files, format: str, fields: Sequence[str], shard_lines: int, added: Sequence[str] = ()
) -> tuple[ScannedInput, list[Cut]]:
    """Read an input once, and find its shards. `added`: fields that the output adds. Raises DataError for files that
    cannot be read, and for two sides of different lengths."""
    facts, cuts, counts = [], [], []
    columns = TWO_COLUMNS
    for name in files:
        mark = stamp(name)
        read = place = name
        if format == "parquet":
            size, sha256 = digest(name)
            ranges, lines = _rows(name, shard_lines)
        else:
            if is_unpacked := _must_be_unpacked(name):
                size, sha256 = digest(name)
                read = f"unpacked/{sha256[:16]}{unpacked(PurePosixPath(name)).suffix}"
                place = store.place(read)
                _unpack(store, name, read)
            header = False
            _check_encoding(place, name)
            if format == "jsonl":
                _check_fields(place, name, fields, added)
            elif format == "tsv":
                columns, header = _columns(place, name, fields)
            found = _lines(place, shard_lines, header)
            size, sha256 = (size, sha256) if is_unpacked else found[:2]
            ranges, lines = found[2:]
        if stamp(name) != mark:
            raise DataError(f"{name} changed while it was read: wait until it is written")
        facts.append((read, size, sha256, mark))
        cuts.append(ranges)
        counts.append(lines)
    if len(set(counts)) > 1:
        raise DataError(
            f"{files[0]} has {counted(counts[0], 'line')} and {files[1]} has {counts[1]:,}: line n of one must "
            "be the translation of line n of the other"
        )
    reads, sizes, digests, marks = zip(*facts, strict=True)
    total = counts[0]
    shards = [(min(shard_lines, total - n * shard_lines), ranges) for n, ranges in enumerate(zip(*cuts, strict=True))]
    return ScannedInput(files, reads, sizes, digests, marks, total, columns), shards


def digest(name: str) -> tuple[int, str]:
    """Return the size in bytes and the SHA-256 of a file."""
    sha256, size = hashlib.sha256(), 0
    with open_input(name) as file:
        for block in blocks(file):
            sha256.update(block)
            size += len(block)
    return size, sha256.hexdigest()


def _lines(name: str, shard_lines: int, header: bool) -> tuple[int, str, list[tuple[int, int]], int]:
    """Return the size in bytes and the SHA-256 of a file of lines, the byte ranges of its shards, and its number of
    lines after the header."""
    sha256, size, lines, last = hashlib.sha256(), 0, -int(header), b"\n"
    starts = [] if header else [0]
    with open_input(name) as file:
        for block in blocks(file):
            sha256.update(block)
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 0x0A)
            first = shard_lines - 1 - lines % shard_lines
            starts += (size + 1 + ends[first::shard_lines]).tolist()
            lines += len(ends)
            size += len(block)
            last = block[-1:]
    lines += last != b"\n"
    if starts and starts[-1] == size:
        starts.pop()
    return size, sha256.hexdigest(), list(itertools.pairwise([*starts, size])), lines


def _check_encoding(place: str, name: str) -> None:
    """Raises DataError for UTF-16 without a mark, UTF-32 and documents."""
    with open_input(place) as file:
        try:
            next(without_mark(iter([file.read(64)])), None)
        except DataError as error:
            raise DataError(f"{name}: {error}") from error


def _check_fields(place: str, name: str, fields: Sequence[str], added: Sequence[str]) -> None:
    """Raises DataError if none of the first records has a field, because then its name must be wrong; and if a record
    has a field that the output adds."""
    with open_input(place) as file:
        records = [
            _of_json(fields, (), [line]).fields
            for line in islice(without_mark(lines_of(file.read, MAX_RECORD_BYTES)), _LOOKED_AT)
        ]
    known = sorted({field for record in records if record is not None for field in (*record, *flat(record))})
    for field, option in zip(fields, OPTIONS[len(fields)], strict=True):
        if known and field not in known:
            raise DataError(f"no record of {name} has a field {field!r} (present: {present(known)}): give {option}")
    if names_taken := [field for field in added if field in known]:
        raise taken(name, names_taken[0], added)


def _columns(place: str, name: str, fields: Sequence[str]) -> tuple[tuple[int, int, int], bool]:
    """Return `ScannedInput.columns` of a TSV file, and whether its first line is a header.

    Raises DataError for given fields that the header lacks, and what `table_columns` raises.
    """
    with open_input(place) as file:
        lines = without_mark(lines_of(file.read, MAX_LINE_BYTES))
        first = [decoded(line).text.split("\t") for line in islice(lines, _LOOKED_AT)] or [[]]
    columns, is_header = table_columns(first[0], fields, name)
    if not is_header and first != [[]] and not any(len(line) == columns[2] for line in first):
        raise DataError(
            f"{name} has {counted(len(first[0]), 'column')} instead of two: give lines of a source, a tab and a target"
        )
    return columns, is_header


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _must_be_unpacked(name: str) -> bool:
    """Return whether shards cannot read the file itself, since it is compressed or in UTF-16."""
    with open_input(name) as file:
        return _suffix(name) in PACKED or encoding_by_mark(file.read(4)) is not None


def _unpack(store: Store, name: str, into: str) -> None:
    """Unpack a file into the job's folder. Raises DataError if it is damaged, WriteError if there is no room."""
    with store.replacing(into) as temporary, temporary.open("wb") as file:
        for block in _unpacked(name):
            file.write(block)


def _unpacked(name: str) -> Iterator[bytes]:
    """Yield the blocks of a file, unpacked and in UTF-8. An OSError here becomes a DataError, so that it does not pass
    for a failure to write."""
    try:
        with unpackable(name), open_input(name) as packed:
            unpack = PACKED.get(_suffix(name))
            yield from in_utf_8(blocks(packed if unpack is None else unpack(packed)))
    except OSError as error:
        raise DataError(f"{name} cannot be read ({error.strerror or error}): check the disk or the network") from error


def _rows(name: str, shard_lines: int) -> tuple[list[tuple[int, int]], int]:
    """Return the row ranges of a Parquet file's shards, and its number of rows."""
    with parquet(name) as file:
        rows = file.metadata.num_rows
    return [(start, min(start + shard_lines, rows)) for start in range(0, rows, shard_lines)], rows


@dataclass(frozen=True)
class Record:
    """One line to be processed."""

    texts: tuple[str, ...]
    """The text, or source and target."""
    failure: Failure | None = None
    fields: Mapping[str, Any] | None = None
    """For JSONL: the whole record; None if the line is no record, or has a field that the output adds."""
    written: str = ""
    """For JSONL: the line as it is in the file; "" if it is too long."""


@dataclass(frozen=True)
class Window:
    """Lines that are processed together."""

    records: Sequence[Record]
    batch: Any = None
    """For Parquet: the rows, with all columns."""


def windows(
    store: Store,
    one: ScannedInput,
    ranges: Sequence[tuple[int, int]],
    format: str,
    fields: Sequence[str],
    added: Sequence[str],
) -> Iterator[Window]:
    """Yield the lines of a shard in windows of at most `WINDOW`. `added`: fields that the output adds. Raises DataError
    if a file has changed or is damaged."""
    if format == "parquet":
        yield from _parquet_windows(one, ranges[0], fields)
        return
    with contextlib.ExitStack() as stack:
        sides = []
        for number, (start, end) in enumerate(ranges):
            file = stack.enter_context(one.opened(store, number))
            most = {"jsonl": MAX_RECORD_BYTES, "tsv": one.columns[2] * MAX_LINE_BYTES}.get(format, MAX_LINE_BYTES)
            most = min(most, MAX_RECORD_BYTES)
            lines = lines_of(reads_of_range(file, start, end), most)
            sides.append(lines if start else without_mark(lines))
        makers: dict[str, Callable[[Sequence[bytes]], Record]] = {
            "text": _of_lines,
            "jsonl": partial(_of_json, fields, added),
            "tsv": partial(_of_tsv, one.columns),
        }
        records: list[Record] = []
        for side_by_side in zip(*sides, strict=True):
            records.append(makers[format](side_by_side))
            if len(records) == WINDOW:
                yield Window(records)
                records = []
        if records:
            yield Window(records)


def _of_lines(lines: Sequence[bytes]) -> Record:
    return _record([decoded(line) for line in lines])


def _of_tsv(places: Sequence[int], lines: Sequence[bytes]) -> Record:
    src, tgt, width = places
    columns = lines[0].split(b"\t")
    if len(columns) != width:
        return Record(("", ""), Failure.NO_TEXT)
    return _record([decoded(columns[src]), decoded(columns[tgt])])


def _of_json(fields: Sequence[str], added: Sequence[str], lines: Sequence[bytes]) -> Record:
    nothing = ("",) * len(fields)
    if len(lines[0]) > MAX_RECORD_BYTES:
        return Record(nothing, Failure.TOO_LONG)
    try:
        record = json.loads(line := lines[0].decode().strip())
    except UnicodeDecodeError:
        return Record(nothing, Failure.INVALID, written=lines[0].decode(errors="replace").strip())
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        return Record(nothing, Failure.NO_TEXT, written=line)
    if any(field in record for field in added):
        return Record(nothing, Failure.TAKEN, written=line)
    found_in = record if all(field in record for field in fields) else flat(record)
    texts = [found_in.get(field) for field in fields]
    if not all(isinstance(text, str) for text in texts):
        return Record(nothing, Failure.NO_TEXT, record, line)
    spelled = [_HALF_PAIR.sub("\ufffd", text) for text in map(str, texts)]
    found = _record([decoded(text.encode()) for text in spelled])
    return Record(found.texts, Failure.INVALID if spelled != texts else found.failure, record, line)


def _record(lines: Sequence[DecodedLine]) -> Record:
    failure = None
    if any(line.invalid for line in lines):
        failure = Failure.INVALID
    elif any(line.cut for line in lines):
        failure = Failure.TOO_LONG
    elif any(not line.text.strip() for line in lines):
        failure = Failure.BLANK
    return Record(tuple(line.text for line in lines), failure)


def _parquet_windows(one: ScannedInput, rows: tuple[int, int], fields: Sequence[str]) -> Iterator[Window]:
    import pyarrow as pa

    name = one.files[0]
    if stamp(name) != one.stamps[0]:
        raise changed(name)
    start, end = rows
    with parquet(name) as file:
        first, before = 0, 0
        groups: list[int] = []
        for number in range(file.num_row_groups):
            count = file.metadata.row_group(number).num_rows
            if before < end and before + count > start:
                first = first if groups else before
                groups.append(number)
            before += count
        try:
            for batch in file.iter_batches(batch_size=WINDOW, row_groups=groups, use_threads=False):
                part = batch.slice(max(0, start - first), max(0, min(end - first, len(batch)) - max(0, start - first)))
                first += len(batch)
                if len(part):
                    columns = [values_of(part, field) for field in fields]
                    yield Window([_of_row(texts) for texts in zip(*columns, strict=True)], part)
                if first >= end:
                    return  # the rest of the row group is another shard's
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(f"{name} is damaged ({first_line(error)}): get it again") from error


def _of_row(texts: Sequence[str | None]) -> Record:
    if any(text is None for text in texts):
        return Record(("",) * len(texts), Failure.NO_TEXT)
    return _record([decoded(str(text).encode()) for text in texts])
