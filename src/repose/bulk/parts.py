"""The part of a shard as it is written: lines, JSON objects, or rows."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from repose.bulk.inputs import Record, Window
from repose.bulk.line_work import Result
from repose.bulk.plan import Job


class PartWriter(Protocol):
    """A part under its temporary name."""

    def write(self, window: Window, results: Sequence[Result]) -> int:
        """How many lines, records or rows were written."""


@contextlib.contextmanager
def part_writer(path: Path, job: Job) -> Iterator[PartWriter]:
    """Writes a part of that job's kind. Raises OSError."""
    if job.suffix == ".parquet":
        with _ParquetWriter(path, job) as writer:
            yield writer
    else:
        with path.open("wb") as file:
            yield _LineWriter(file, job)


class _LineWriter:
    def __init__(self, file: BinaryIO, job: Job) -> None:
        self._file, self._job = file, job

    def write(self, window: Window, results: Sequence[Result]) -> int:
        lines: list[str] = []
        for record, result in zip(window.records, results, strict=True):
            if result.failure is None or self._job.failed == "keep":
                lines += [self._record_line(record, result)] if self._job.suffix == ".jsonl" else result.lines
        self._file.write("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
        return len(lines)

    def _record_line(self, record: Record, result: Result) -> str:
        """The record as it was written with its new fields; why it failed only where it did. A line that is no record,
        or one with a field that is added, is the field "line" of one."""
        new = {name: value for name, value in result.fields.items() if name != "failed" or value is not None}
        old = record.fields or {}
        if record.fields is None and record.written:
            new = {"line": record.written, **new}
        added = json.dumps(new, ensure_ascii=False)
        try:
            added.encode()
        except UnicodeEncodeError:  # half a surrogate pair
            added = json.dumps(new)
        return record.written.removesuffix("}").rstrip() + ", " + added[1:] if old else added


class _ParquetWriter:
    """Opened with the first window, which has the columns of the input."""

    def __init__(self, path: Path, job: Job) -> None:
        self._path, self._job = path, job
        self._writer: Any = None

    def __enter__(self) -> "_ParquetWriter":
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, window: Window, results: Sequence[Result]) -> int:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter

        table = pa.Table.from_batches([window.batch])
        for name, kind in _columns(self._job):
            table = table.append_column(name, pa.array([result.fields[name] for result in results], kind))
        if self._job.failed == "drop":
            table = table.filter(pa.array([result.failure is None for result in results]))
        if self._writer is None:
            self._writer = ParquetWriter(self._path, table.schema)
        self._writer.write_table(table)
        return len(table)


def _columns(job: Job) -> list[tuple[str, Any]]:
    import pyarrow as pa

    hypotheses = pa.list_(pa.struct([("text", pa.string()), ("score", pa.float64())]))
    kinds = {"score": pa.float64(), "hypotheses": hypotheses}
    return [(name, kinds.get(name, pa.string())) for name in job.added]
