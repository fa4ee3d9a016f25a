"""Write the part of a shard: lines, JSON objects, or rows."""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from repose.bulk.inputs import Record, Window
from repose.bulk.plan import Job


@dataclass(frozen=True)
class Result:
    """The result of one line."""

    lines: Sequence[str]
    """Lines to write, if the output is text."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields to add to those of the input, if the output is JSONL or Parquet."""
    failure: str | None = None
    tokens: int = 0
    """Number of tokens that the model read."""
    too_long: bool = False
    """True if a sentence was translated in parts."""


WritePart: TypeAlias = Callable[[Window, Sequence[Result]], int]
"""Writes the results of a window; returns the number of lines, records or rows written."""


@contextlib.contextmanager
def part_writer(path: Path, job: Job) -> Iterator[WritePart]:
    """Within the block, yield a function that writes a part in the job's format. Raises OSError."""
    if job.suffix == ".parquet":
        with _row_writer(path, job) as write:
            yield write
    else:
        with path.open("wb") as file:
            yield partial(_write_lines, file, job)


def _write_lines(file: BinaryIO, job: Job, window: Window, results: Sequence[Result]) -> int:
    lines: list[str] = []
    for record, result in zip(window.records, results, strict=True):
        if result.failure is None or job.failed == "keep":
            lines += [_record_line(record, result)] if job.suffix == ".jsonl" else result.lines
    file.write("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
    return len(lines)


def _record_line(record: Record, result: Result) -> str:
    """Return the record as it was written, with its new fields; the reason of a failure only if it failed. A line that
    is no record, or that has an added field, becomes the field "line" of a new record."""
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


@contextlib.contextmanager
def _row_writer(path: Path, job: Job) -> Iterator[WritePart]:
    """Yield a function that writes rows. The first window, which has the input's columns, opens the file."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    with contextlib.ExitStack() as stack:
        writer: Any = None

        def write(window: Window, results: Sequence[Result]) -> int:
            nonlocal writer
            table = pa.Table.from_batches([window.batch])
            for name, kind in _columns(job):
                table = table.append_column(name, pa.array([result.fields[name] for result in results], kind))
            if job.failed == "drop":
                table = table.filter(pa.array([result.failure is None for result in results]))
            if writer is None:
                writer = stack.enter_context(ParquetWriter(path, table.schema))
            writer.write_table(table)
            return len(table)

        yield write


def _columns(job: Job) -> list[tuple[str, Any]]:
    import pyarrow as pa

    hypotheses = pa.list_(pa.struct([("text", pa.string()), ("score", pa.float64())]))
    kinds = {"score": pa.float64(), "hypotheses": hypotheses}
    return [(name, kinds.get(name, pa.string())) for name in job.added]
