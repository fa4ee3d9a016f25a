"""Work on one shard: read it, process it window by window, and write its part whole or not at all.

A shard is done if and only if its manifest exists and is true: it belongs to this job, and has the size and SHA-256 of
the part. The part is in place before its manifest. Names, bytes and order follow from the plan, so working on a shard
twice writes the same bytes again. A lock is held meanwhile to save work; correctness does not depend on it.
"""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from repose.bulk.columns import schema_of_all
from repose.bulk.inputs import UNPACKING, changed, digest
from repose.bulk.line_work import Work
from repose.bulk.parts import part_writer
from repose.bulk.plan import Plan, Shard
from repose.bulk.storage import Store, blocks, open_input
from repose.system.errors import BusyError, DataError
from repose.system.terminal import counted

BUSY_PAUSE = 0.2
"""Seconds for which `run_shard` waits before it says that a shard is busy, so that one may ask again at once."""
OnWindow = Callable[[int, int], None]
"""Called after each window with its numbers of lines and tokens."""


@dataclass(frozen=True)
class Manifest:
    """The record of a finished shard."""

    identity: str
    """The identity of the job."""
    shard: int
    lines: int
    """Number of lines that were read."""
    written: int
    """Number of lines, records or rows in the part."""
    tokens: int
    """Number of tokens that the model read."""
    failed: dict[str, int]
    """Number of lines that failed, by reason."""
    too_long: int
    """Number of lines with a sentence that was translated in parts."""
    seconds: float
    finished: float
    """Time when the shard was finished, in seconds since 1970."""
    bytes: int
    """Size of the part in bytes."""
    sha256: str
    """SHA-256 digest of the part."""

    @classmethod
    def read(cls, store: Store, plan: Plan, shard: Shard) -> Self | None:
        """Return the manifest of a shard; None if there is none, or if it is damaged or of another job."""
        data = store.read(plan.manifest(shard))
        try:
            found = cls(**json.loads(data)) if data is not None else None
        except (ValueError, TypeError):
            return None
        return found if found is not None and (found.identity, found.shard) == (plan.identity, shard.number) else None


class Ended(StrEnum):
    """How work on a shard ended."""

    DONE = "done"
    BUSY = "busy"
    """Another process works on the shard: try it again after the others."""
    STOPPED = "stopped"


def done(store: Store, plan: Plan, shard: Shard) -> Manifest | None:
    """Return the manifest of a shard if it is there and true, which reads the part."""
    found = Manifest.read(store, plan, shard)
    if found is None or store.size(plan.part(shard)) != found.bytes:
        return None
    return found if digest(store.place(plan.part(shard)))[1] == found.sha256 else None


def run_shard(
    store: Store,
    plan: Plan,
    shard: Shard,
    work: Work,
    *,
    on_window: OnWindow = lambda _lines, _tokens: None,
    stop: Callable[[], bool] = lambda: False,
) -> Ended:
    """Work on a shard, unless it is done or another process works on it. If `stop()` is true after a window, the work
    on the shard is discarded. Raises DataError, WriteError, and what `work` raises."""
    lock = f"locks/{shard.stem}"
    with store.claimed(lock) as mine:
        if not mine:
            time.sleep(BUSY_PAUSE)
            return Ended.BUSY
        if done(store, plan, shard) is None:
            store.remove_half_written(plan.part(shard))
            store.remove_half_written(plan.manifest(shard))
            try:
                manifest = _write(store, plan, shard, work, on_window, stop)
            except _StoppedError:
                return Ended.STOPPED
            store.write(plan.manifest(shard), (json.dumps(asdict(manifest)) + "\n").encode())
        store.remove(lock)
        return Ended.DONE


class _StoppedError(Exception):
    """Leaves the block that writes a part."""


def _write(
    store: Store, plan: Plan, shard: Shard, work: Work, on_window: OnWindow, stop: Callable[[], bool]
) -> Manifest:
    began, lines, written, tokens, too_long = time.monotonic(), 0, 0, 0, 0
    failed: Counter[str] = Counter()
    with store.replacing(plan.part(shard)) as temporary:
        with part_writer(temporary, plan.job) as write:
            for window in plan.windows(store, shard):
                results = work(window.records, shard.line + lines)
                written += write(window, results)
                lines += len(results)
                read = sum(result.tokens for result in results)
                tokens += read
                too_long += sum(result.too_long for result in results)
                failed.update(result.failure for result in results if result.failure is not None)
                on_window(len(results), read)
                if stop() and lines < shard.lines:
                    raise _StoppedError
        if lines != shard.lines:
            raise changed(plan.inputs[shard.input].files[0])
        size, sha256 = digest(str(temporary))
    took = round(time.monotonic() - began, 3)
    counts = (shard.number, lines, written, tokens, dict(failed), too_long)
    return Manifest(plan.identity, *counts, took, round(time.time(), 3), size, sha256)


def merge(store: Store, plan: Plan) -> str:
    """Merge the parts in order, whole or not at all; return the name of the merged file.

    Raises DataError if a part is missing or differs from its manifest, BusyError if another process is merging, and
    WriteError.
    """
    name = plan.job.merged
    manifests = []
    for shard in plan.shards:
        manifest = Manifest.read(store, plan, shard)
        if manifest is None:
            raise DataError(f"shard {shard.number} of {store.where} is not done: run the job's command again")
        if store.size(plan.part(shard)) is None:
            raise DataError(f"{store.place(plan.part(shard))} is missing: run the job's command again")
        manifests.append(manifest)
    if (lines := sum(manifest.lines for manifest in manifests)) != plan.lines:
        raise DataError(
            f"the parts in {store.where} are of {counted(lines, 'line')}, not of {plan.lines:,}: run it again"
        )
    with store.claimed(".merge.lock") as mine:
        if not mine:
            raise BusyError(f"another process merges the parts in {store.where}: wait for it")
        store.remove_half_written(name)
        _merge(store, plan, manifests)
    return name


def remove_unpacked(store: Store) -> None:
    """Remove the unpacked inputs, once this runner no longer needs them; another runner unpacks them again."""
    if not store.names("unpacked"):
        return
    with store.locked(UNPACKING):
        for leftover in store.names("unpacked"):
            store.remove(f"unpacked/{leftover}")
        store.remove(UNPACKING)


def _merge(store: Store, plan: Plan, manifests: list[Manifest]) -> None:
    with store.replacing(plan.job.merged) as temporary:
        if plan.job.suffix == ".parquet":
            _merge_rows(store, plan, manifests, temporary)
        else:
            _merge_bytes(store, plan, manifests, temporary)


def _merge_bytes(store: Store, plan: Plan, manifests: list[Manifest], into: Path) -> None:
    with into.open("wb") as file:
        for shard, manifest in zip(plan.shards, manifests, strict=True):
            sha256 = hashlib.sha256()
            with open_input(store.place(plan.part(shard))) as part:
                for block in blocks(part):
                    sha256.update(block)
                    file.write(block)
            if sha256.hexdigest() != manifest.sha256:
                raise _untrue(store, plan, shard)


def _merge_rows(store: Store, plan: Plan, manifests: list[Manifest], into: Path) -> None:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile, ParquetWriter

    for shard, manifest in zip(plan.shards, manifests, strict=True):
        if digest(store.place(plan.part(shard)))[1] != manifest.sha256:
            raise _untrue(store, plan, shard)
    first = {shard.input: store.place(plan.part(shard)) for shard in reversed(plan.shards)}  # each input's first part
    schema, rows = schema_of_all([first[number] for number in sorted(first)]), 0
    with ParquetWriter(into, schema) as writer:
        for shard in plan.shards:
            with open_input(store.place(plan.part(shard))) as part:
                for batch in ParquetFile(part).iter_batches():
                    table = pa.Table.from_batches([batch])
                    writer.write_table(table.select(schema.names).cast(schema))
                    rows += len(batch)
    if rows != sum(manifest.written for manifest in manifests):
        raise DataError(f"the parts in {store.where} do not have the rows that they should: run it again")


def _untrue(store: Store, plan: Plan, shard: Shard) -> DataError:
    return DataError(f"{store.place(plan.part(shard))} is not what its manifest says: run the job's command again")
