"""Examples made of integer columns, such as token ids, in a folder that can be memory-mapped.

    <column>.values     int32: the numbers of all examples, one after the other
    <column>.offsets    int64, examples + 1: where each example begins, and the end
    meta.json           columns, number of examples, digest, and what the writer has to say; written last

All numbers are little-endian. For pairs of sentences, and any number of them, see `repose.data.dataset`.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repose.system.errors import DataError

FORMAT_VERSION = 1
META_FILE = "meta.json"


@dataclass(frozen=True)
class Columns:
    """The examples of a folder, by index. Nothing but what is asked for is read from the disk."""

    folder: Path
    digest: str
    """SHA-256 of all columns and of `info`: what of the data can move numbers."""
    info: Mapping[str, Any]
    """What the writer said."""
    num_examples: int
    _values: Mapping[str, NDArray[np.int32]]
    _offsets: Mapping[str, NDArray[np.int64]]

    @classmethod
    def open(cls, folder: Path) -> "Columns":
        """Open a folder written by `write_columns`; raises DataError when it is missing, unfinished or damaged."""
        meta = read_meta(folder)
        values = {name: _map(folder / f"{name}.values", "<i4") for name in meta["columns"]}
        offsets = {name: _map(folder / f"{name}.offsets", "<i8") for name in meta["columns"]}
        for name, starts in offsets.items():
            if len(starts) != meta["num_examples"] + 1 or starts[-1] != len(values[name]):
                raise DataError(f"the prepared dataset {folder} is damaged ({name}): delete and prepare it again")
        return cls(folder, meta["digest"], meta["info"], meta["num_examples"], values, offsets)

    def lengths(self, column: str) -> NDArray[np.int64]:
        """Numbers in that column of each example, (N,)."""
        return np.diff(self._offsets[column])

    def padded(self, column: str, indices: NDArray[np.integer[Any]], fill: int = 0) -> NDArray[np.int64]:
        """That column of these examples, (B, longest), filled up on the right."""
        starts = self._offsets[column][indices]
        lengths = self._offsets[column][indices + 1] - starts
        steps = np.arange(lengths.max(initial=0))
        real = steps < lengths[:, None]
        padded = np.full(real.shape, fill, dtype=np.int64)
        padded[real] = self._values[column][(starts[:, None] + steps)[real]]
        return padded

    def flat(self, column: str, indices: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """That column of these examples, one after the other."""
        starts, ends = self._offsets[column][indices], self._offsets[column][indices + 1]
        pieces = [self._values[column][a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        return np.concatenate(pieces).astype(np.int64) if pieces else np.zeros(0, dtype=np.int64)


def write_columns(
    folder: Path,
    columns: Sequence[str],
    examples: Iterable[Sequence[Sequence[int]]],
    info: Mapping[str, Any],
) -> None:
    """Write examples, each one list of numbers per column, in constant memory but for the offsets.

    `info` is read after the last example, so that it may count them. Raises DataError where there is none, or where
    the folder cannot be written.
    """
    ends: list[list[int]] = [[0] for _ in columns]
    digest = hashlib.sha256()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / META_FILE).unlink(missing_ok=True)
        with ExitStack() as stack:
            files = [stack.enter_context((folder / f"{name}.values").open("wb")) for name in columns]
            for example in examples:
                for file, end, numbers in zip(files, ends, example, strict=True):
                    data = np.asarray(numbers, dtype="<i4").tobytes()
                    end.append(end[-1] + len(numbers))
                    file.write(data)
                    digest.update(data)
        if len(ends[0]) == 1:
            raise DataError(f"there is nothing to learn from in the text of {folder.name}: check the corpus files")
        for name, end in zip(columns, ends, strict=True):
            data = np.array(end, dtype="<i8").tobytes()
            digest.update(data)
            (folder / f"{name}.offsets").write_bytes(data)
        digest.update(json.dumps([list(columns), dict(info)], sort_keys=True).encode())
        meta = {
            "format_version": FORMAT_VERSION,
            "columns": list(columns),
            "num_examples": len(ends[0]) - 1,
            "digest": digest.hexdigest(),
            "info": dict(info),
        }
        (folder / META_FILE).write_text(json.dumps(meta, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise DataError(
            f"cannot prepare {folder} ({error.strerror or error}): make room for it or name another folder"
        ) from error


def read_meta(folder: Path) -> dict[str, Any]:
    """The meta.json of a finished folder; raises DataError for any other."""
    try:
        meta = json.loads((folder / META_FILE).read_text(encoding="utf-8"))
        if meta["format_version"] == FORMAT_VERSION and {"columns", "num_examples", "digest", "info"} <= meta.keys():
            return dict(meta)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"{folder} is not a prepared dataset (no readable {META_FILE}): prepare it again") from error
    raise DataError(f"{folder} has another format than this version reads: prepare it again")


def is_columns(folder: Path) -> bool:
    """Whether `write_columns` has filled that folder."""
    return bool(list(folder.glob("*.values"))) and (folder / META_FILE).exists()


def _map(path: Path, dtype: str) -> NDArray[Any]:
    try:
        return np.asarray(np.memmap(path, dtype=dtype, mode="r"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path} ({error}): delete its folder and prepare it again") from error
