"""Sentence pairs as token ids, memory-mapped, so that a corpus larger than memory can be trained on.

`prepare` (in `prepare.py`) tokenises pairs into a folder; `PairDataset` reads such a folder (`prepared_folder.py`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from repose.data.prepare import PreparedReport, prepare
from repose.data.prepared_folder import SIDES, PreparedCounts, id_bytes, read_content_digest, read_meta
from repose.system.errors import DataError

__all__ = ["Batch", "PairDataset", "PreparedCounts", "PreparedReport", "prepare"]


class Batch(NamedTuple):
    """Padded token ids of B pairs, 0 = [PAD] on the right."""

    src: NDArray[np.int64]
    """(B, S): [START … END]."""
    tgt: NDArray[np.int64]
    """(B, T): decoder input, [START …]."""
    labels: NDArray[np.int64]
    """(B, T): what the decoder has to say, […  END]; 0 exactly where `tgt` is 0."""


@dataclass(frozen=True)
class _Sentences:
    """One side of a prepared folder."""

    ids: NDArray[np.unsignedinteger[Any]]
    offsets: NDArray[np.int64]

    def gather(self, indices: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """These sentences, (B, longest), right-padded with 0."""
        starts = self.offsets[indices]
        lengths = self.offsets[indices + 1] - starts
        steps = np.arange(lengths.max(initial=0))
        real = steps < lengths[:, None]
        padded = np.zeros(real.shape, dtype=np.int64)
        padded[real] = self.ids[(starts[:, None] + steps)[real]]
        return padded


@dataclass(frozen=True)
class PairDataset:
    """The pairs of a prepared folder, by index. Nothing but what is asked for is read from the disk."""

    folder: Path
    digest: str
    """SHA-256 of the content: what of the data can move numbers."""
    counts: PreparedCounts
    src_lengths: NDArray[np.int32]
    """(N,): source tokens of each pair, START and END counted; memory-mapped."""
    tgt_lengths: NDArray[np.int32]
    """(N,): labels (= decoder positions) of each pair, END counted; memory-mapped."""
    _src: _Sentences
    _tgt: _Sentences

    @classmethod
    def open(cls, folder: Path) -> "PairDataset":
        """Open a folder written by `prepare`; raises `DataError` when it is missing, unfinished or damaged."""
        meta = read_meta(folder)
        sentences = {}
        for side in SIDES:
            ids = _map(folder / f"{side}.ids", f"<u{id_bytes(meta.vocab_size(side))}")
            offsets = _map(folder / f"{side}.offsets", "<i8")
            if offsets[0] != 0 or offsets[-1] != len(ids):
                raise DataError(
                    f"the prepared dataset {folder} is damaged ({side}.offsets does not fit {side}.ids): "
                    "delete and prepare it again"
                )
            sentences[side] = _Sentences(ids, offsets)
        return cls(
            folder=folder,
            digest=meta.digest,
            counts=meta.counts,
            src_lengths=_map(folder / "src.lengths", "<i4"),
            tgt_lengths=_map(folder / "tgt.lengths", "<i4"),
            _src=sentences["src"],
            _tgt=sentences["tgt"],
        )

    def __len__(self) -> int:
        """Number of pairs."""
        return self.counts.kept

    def batch(self, indices: NDArray[np.integer[Any]]) -> Batch:
        """The pairs at `indices` (B,), each in [0, len), in this order; B may be 0, the arrays then are (0, 0)."""
        stored = self._tgt.gather(indices)
        tgt = stored[:, :-1].copy()
        tgt[stored[:, 1:] == 0] = 0  # the last real token is a label only
        return Batch(src=self._src.gather(indices), tgt=tgt, labels=stored[:, 1:].copy())

    def verify(self) -> None:
        """Read everything once and compare it with the digest; raises `DataError` when a byte has changed."""
        if read_content_digest(self.folder) != self.digest:
            raise DataError(f"the prepared dataset {self.folder} was changed since it was made: prepare it again")


def _map(path: Path, dtype: DTypeLike) -> NDArray[Any]:
    try:
        # A plain array over the map: np.memmap itself costs microseconds at each indexing.
        return np.asarray(np.memmap(path, dtype=dtype, mode="r"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path} ({error}): delete its folder and prepare it again") from error
