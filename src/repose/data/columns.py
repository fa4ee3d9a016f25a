"""Examples made of integer columns, such as token ids, in a folder that can be memory-mapped.

    <column>.ids        the numbers of all examples, concatenated
    <column>.offsets    int64, number of examples + 1: where each example begins, and the end of the last
    meta.json           format_version, type of each column, num_examples, digest, and what the writer adds (info)

All numbers are little-endian. A folder under its final name is complete: it is written under a temporary name and then
renamed.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from repose.system.errors import DataError
from repose.system.files import replacing_folder, write_json

FORMAT_VERSION = 2
META_FILE = "meta.json"

_CHUNK = 1024  # examples written together
_SUFFIXES = (".ids", ".offsets", ".values", ".lengths")  # the last two: format 1


@dataclass(frozen=True)
class Columns:
    """The examples of a folder, by index. Only the examples that are used are read from the disk."""

    folder: Path
    digest: str
    """SHA-256 of everything in the data that can affect a training's numbers; part of a run's id."""
    info: Mapping[str, Any]
    """Additional information from the writer."""
    num_examples: int
    values: Mapping[str, NDArray[np.integer[Any]]]
    """The numbers of all examples, concatenated, for each column; memory-mapped."""
    offsets: Mapping[str, NDArray[np.int64]]
    """(N + 1,): where each example begins in a column's `values`, and the end of the last; memory-mapped."""

    @classmethod
    def open(cls, folder: Path) -> "Columns":
        """Open a folder written by `writing_columns`. Raises DataError if it is missing or damaged."""
        meta = read_meta(folder)
        values, offsets = {}, {}
        for name, dtype in meta["columns"].items():
            values[name] = _map(folder / f"{name}.ids", dtype)
            offsets[name] = starts = _map(folder / f"{name}.offsets", "<i8")
            if len(starts) != meta["num_examples"] + 1 or starts[0] != 0 or starts[-1] != len(values[name]):
                raise damaged(folder, f"{name}.offsets does not fit {name}.ids")
        return cls(folder, meta["digest"], meta["info"], meta["num_examples"], values, offsets)

    def lengths(self, column: str) -> NDArray[np.int32]:
        """Return how many numbers each example has in a column, (N,)."""
        starts = self.offsets[column]
        return np.subtract(starts[1:], starts[:-1], dtype=np.int32, casting="unsafe")

    def padded(self, column: str, indices: NDArray[np.integer[Any]], fill: int = 0) -> NDArray[np.int64]:
        """Return the numbers of the given examples in a column, (B, longest), padded on the right with `fill`."""
        starts = self.offsets[column][indices]
        lengths = self.offsets[column][indices + 1] - starts
        steps = np.arange(lengths.max(initial=0))
        real = steps < lengths[:, None]
        padded = np.full(real.shape, fill, dtype=np.int64)
        padded[real] = self.values[column][(starts[:, None] + steps)[real]]
        return padded

    def shifted(self, column: str, indices: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return decoder inputs (all tokens but the last) and labels (all but the first), each (B, longest - 1).

        Both are 0 from the same position on.
        """
        stored = self.padded(column, indices)
        labels = stored[:, 1:].copy()
        return np.where(labels == 0, 0, stored[:, :-1]), labels

    def flat(self, column: str, indices: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return the numbers of the given examples in a column, concatenated."""
        starts, ends = self.offsets[column][indices], self.offsets[column][indices + 1]
        pieces = [self.values[column][a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        return np.concatenate(pieces).astype(np.int64) if pieces else np.zeros(0, dtype=np.int64)


class NothingError(DataError):
    """A corpus without a single usable example."""


@dataclass(frozen=True)
class Prepared:
    """Examples of one kind; each subclass defines its columns."""

    columns: Columns

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a prepared folder. Raises DataError if it is missing, unfinished or damaged."""
        return cls(Columns.open(folder))

    def __len__(self) -> int:
        """Number of examples."""
        return self.columns.num_examples


class ColumnsWriter:
    """A writer that fills a folder in constant memory: `append` to each column any number of times, then `finish`."""

    def __init__(self, folder: Path, types: Mapping[str, str], files: ExitStack) -> None:
        self._folder = folder
        self._types = types
        self._files = {
            name: [files.enter_context((folder / f"{name}.{part}").open("wb")) for part in ("ids", "offsets")]
            for name in types
        }
        self._ends = dict.fromkeys(types, 0)
        self._numbers = dict.fromkeys(types, 0)
        for _, offsets in self._files.values():
            offsets.write(np.zeros(1, dtype="<i8").tobytes())

    @property
    def num_examples(self) -> int:
        """Number of examples appended so far."""
        return min(self._numbers.values())

    def append(self, column: str, values: NDArray[np.integer[Any]], lengths: NDArray[np.integer[Any]]) -> None:
        """Append examples to a column: their numbers, concatenated, in the column's type, and their `lengths` (N,)."""
        assert values.dtype == self._types[column]
        file, offsets = self._files[column]
        file.write(values.tobytes())
        offsets.write((self._ends[column] + np.cumsum(lengths)).astype("<i8").tobytes())
        self._ends[column] += len(values)
        self._numbers[column] += len(lengths)

    def offsets(self, column: str) -> bytes:
        """Return the content of a column's offsets file so far."""
        file = self._files[column][1]
        file.flush()
        return (self._folder / f"{column}.offsets").read_bytes()

    def finish(self, digest: str, info: Mapping[str, Any]) -> None:
        """Write meta.json, which completes the folder."""
        assert len(set(self._numbers.values())) == 1, "every example is in every column"
        meta = {
            "format_version": FORMAT_VERSION,
            "columns": dict(self._types),
            "num_examples": self.num_examples,
            "digest": digest,
            "info": dict(info),
        }
        write_json(self._folder / META_FILE, meta)


@contextlib.contextmanager
def writing_columns(folder: Path, types: Mapping[str, str]) -> Iterator[ColumnsWriter]:
    """Yield a writer whose folder replaces `folder` if the block ends without an error.

    `types` maps column names to numpy type names ("<i4"). Raises DataError if `folder` holds something other than
    columns, WriteError if it cannot be written.
    """
    is_ours = folder.is_dir() and all(e.name == META_FILE or e.suffix in _SUFFIXES for e in folder.iterdir())
    if folder.exists() and not is_ours:
        raise DataError(f"{folder} exists and is not a prepared dataset: name another folder")
    with replacing_folder(folder) as temporary, ExitStack() as files:
        yield ColumnsWriter(temporary, types, files)


def write_columns(
    folder: Path, columns: Sequence[str], examples: Iterable[Sequence[Sequence[int]]], info: Mapping[str, Any]
) -> None:
    """Write examples as int32 columns. Each example has one list of numbers per column.

    `info` is read after the last example, so it may count them. Raises NothingError if there is no example, DataError
    if `folder` holds something else, WriteError if it cannot be written.
    """
    digest = hashlib.sha256()
    remaining = iter(examples)
    with writing_columns(folder, dict.fromkeys(columns, "<i4")) as writer:
        while chunk := list(islice(remaining, _CHUNK)):
            for numbers in chain.from_iterable(chunk):
                digest.update(np.asarray(numbers, dtype="<i4").tobytes())
            for name, lists in zip(columns, zip(*chunk, strict=True), strict=True):
                lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
                values = np.fromiter(chain.from_iterable(lists), dtype="<i4", count=int(lengths.sum()))
                writer.append(name, values, lengths)
        if writer.num_examples == 0:
            raise NothingError(f"there is nothing to learn from in the text of {folder.name}: check the corpus files")
        for name in columns:
            digest.update(writer.offsets(name))
        digest.update(json.dumps([list(columns), dict(info)], sort_keys=True).encode())
        writer.finish(digest.hexdigest(), info)


def read_meta(folder: Path) -> dict[str, Any]:
    """Read the meta.json of a folder of columns. Raises DataError for any other folder."""
    path = folder / META_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{folder} is not a prepared dataset (no readable {META_FILE}): prepare it again") from error
    try:
        meta = json.loads(text)
        if (version := meta["format_version"]) != FORMAT_VERSION:
            raise DataError(f"{folder} has format {version}, this version reads {FORMAT_VERSION}: prepare it again")
        dtypes = [np.dtype(name) for name in meta["columns"].values()]
        understood = meta["num_examples"] > 0 and all(dtype.kind in "iu" for dtype in dtypes)
        if not (understood and isinstance(meta["digest"], str) and isinstance(meta["info"], dict)):
            raise ValueError
    except DataError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged(folder, f"its {META_FILE} cannot be understood") from error
    return dict(meta)


def id_type(vocab_size: int) -> str:
    """Return the type in which token ids are stored: uint16, or uint32 for more than 65,536 ids."""
    return "<u2" if vocab_size <= 1 << 16 else "<u4"


def _map(path: Path, dtype: str) -> NDArray[Any]:
    try:
        # A plain array over the map, because np.memmap itself costs microseconds at each indexing.
        return np.asarray(np.memmap(path, dtype=dtype, mode="r"))
    except (OSError, ValueError) as error:
        raise damaged(path.parent, f"{path.name}: {error}") from error


def damaged(folder: Path, what: str) -> DataError:
    """Return the error for a folder whose content is not what was written."""
    return DataError(f"the prepared dataset {folder} is damaged ({what}): delete that folder and prepare it again")
