"""Examples made of integer columns, such as token ids, in a folder that can be memory-mapped.

    <column>.ids        the numbers of all examples, one after the other
    <column>.offsets    int64, examples + 1: where each example begins, and the end
    meta.json           format_version, type of each column, num_examples, digest, and what the writer has to say (info)

All numbers are little-endian. A folder under its final name is complete: it is written under another name and renamed.
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
    """SHA-256 of what of the data can move numbers; it is part of a run's id."""
    info: Mapping[str, Any]
    """What the writer said."""
    num_examples: int
    values: Mapping[str, NDArray[np.integer[Any]]]
    """Each column of all examples, one after the other; memory-mapped."""
    offsets: Mapping[str, NDArray[np.int64]]
    """Where each example begins in a column's `values`, and the end, (N + 1,); memory-mapped."""

    @classmethod
    def open(cls, folder: Path) -> "Columns":
        """Open a folder written by `writing_columns`; raises DataError when it is missing or damaged."""
        meta = read_meta(folder)
        values, offsets = {}, {}
        for name, dtype in meta["columns"].items():
            values[name] = _map(folder / f"{name}.ids", dtype)
            offsets[name] = starts = _map(folder / f"{name}.offsets", "<i8")
            if len(starts) != meta["num_examples"] + 1 or starts[0] != 0 or starts[-1] != len(values[name]):
                raise damaged(folder, f"{name}.offsets does not fit {name}.ids")
        return cls(folder, meta["digest"], meta["info"], meta["num_examples"], values, offsets)

    def lengths(self, column: str) -> NDArray[np.int32]:
        """Numbers in that column of each example, (N,)."""
        starts = self.offsets[column]
        return np.subtract(starts[1:], starts[:-1], dtype=np.int32, casting="unsafe")

    def padded(self, column: str, indices: NDArray[np.integer[Any]], fill: int = 0) -> NDArray[np.int64]:
        """These examples' numbers in a column, (B, longest), filled up with `fill` on the right."""
        starts = self.offsets[column][indices]
        lengths = self.offsets[column][indices + 1] - starts
        steps = np.arange(lengths.max(initial=0))
        real = steps < lengths[:, None]
        padded = np.full(real.shape, fill, dtype=np.int64)
        padded[real] = self.values[column][(starts[:, None] + steps)[real]]
        return padded

    def shifted(self, column: str, indices: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What a decoder reads, all tokens but the last, and has to say, all but the first: (B, longest - 1) each, and
        0 from the same place on."""
        stored = self.padded(column, indices)
        labels = stored[:, 1:].copy()
        return np.where(labels == 0, 0, stored[:, :-1]), labels

    def flat(self, column: str, indices: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """These examples' numbers in a column, one example after the other."""
        starts, ends = self.offsets[column][indices], self.offsets[column][indices + 1]
        pieces = [self.values[column][a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        return np.concatenate(pieces).astype(np.int64) if pieces else np.zeros(0, dtype=np.int64)


class NothingError(DataError):
    """A corpus from which no example is left."""


@dataclass(frozen=True)
class Prepared:
    """Examples of one kind; a kind says what its columns are."""

    columns: Columns

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Raises DataError when the folder is missing, unfinished or damaged."""
        return cls(Columns.open(folder))

    def __len__(self) -> int:
        """Number of examples."""
        return self.columns.num_examples


class ColumnsWriter:
    """Fills a folder in constant memory: `append` any number of times to each column, then `finish`."""

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
        """Examples appended so far."""
        return min(self._numbers.values())

    def append(self, column: str, values: NDArray[np.integer[Any]], lengths: NDArray[np.integer[Any]]) -> None:
        """Some examples' numbers in a column, one after the other, of the column's type; `lengths` (N,) cut them."""
        assert values.dtype == self._types[column]
        file, offsets = self._files[column]
        file.write(values.tobytes())
        offsets.write((self._ends[column] + np.cumsum(lengths)).astype("<i8").tobytes())
        self._ends[column] += len(values)
        self._numbers[column] += len(lengths)

    def offsets(self, column: str) -> bytes:
        """The content of a column's offsets so far."""
        file = self._files[column][1]
        file.flush()
        return (self._folder / f"{column}.offsets").read_bytes()

    def finish(self, digest: str, info: Mapping[str, Any]) -> None:
        """All columns are complete."""
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
    """A writer, whose folder takes the place of `folder` when the block ends without an error.

    `types` are the columns' names with numpy's names of their types ("<i4"). Raises DataError where `folder` holds
    something other than columns, WriteError where it cannot be written.
    """
    is_ours = folder.is_dir() and all(e.name == META_FILE or e.suffix in _SUFFIXES for e in folder.iterdir())
    if folder.exists() and not is_ours:
        raise DataError(f"{folder} exists and is not a prepared dataset: name another folder")
    with replacing_folder(folder) as temporary, ExitStack() as files:
        yield ColumnsWriter(temporary, types, files)


def write_columns(
    folder: Path, columns: Sequence[str], examples: Iterable[Sequence[Sequence[int]]], info: Mapping[str, Any]
) -> None:
    """Write examples, each one list of numbers per column, as int32.

    `info` is read after the last example, so that it may count them. Raises NothingError where there is none, DataError
    where `folder` holds something else, WriteError where it cannot be written.
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
    """The meta.json of a folder of columns; raises DataError for any other."""
    path = folder / META_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{folder} is not a prepared dataset (no readable {META_FILE}): prepare it again") from error
    try:
        meta = json.loads(text)
        version = meta["format_version"]
        if version != FORMAT_VERSION:
            raise DataError(f"{folder} has format {version}, this version reads {FORMAT_VERSION}: prepare it again")
        dtypes = [np.dtype(name) for name in meta["columns"].values()]
        understood = meta["num_examples"] > 0 and all(dtype.kind in "iu" for dtype in dtypes)
        if not (understood and isinstance(meta["digest"], str) and isinstance(meta["info"], dict)):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise damaged(folder, f"its {META_FILE} cannot be understood") from error
    return dict(meta)


def id_type(vocab_size: int) -> str:
    """The type of stored token ids: uint16, or uint32 above 65,536 ids."""
    return "<u2" if vocab_size <= 1 << 16 else "<u4"


def _map(path: Path, dtype: str) -> NDArray[Any]:
    try:
        # A plain array over the map: np.memmap itself costs microseconds at each indexing.
        return np.asarray(np.memmap(path, dtype=dtype, mode="r"))
    except (OSError, ValueError) as error:
        raise damaged(path.parent, f"{path.name}: {error}") from error


def damaged(folder: Path, what: str) -> DataError:
    """The error for a folder whose content is not what was written."""
    return DataError(f"the prepared dataset {folder} is damaged ({what}): delete that folder and prepare it again")
