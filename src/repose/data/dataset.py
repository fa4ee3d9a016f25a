"""Sentence pairs as token ids, memory-mapped, so that a corpus larger than memory can be trained on.

`repose.data.prepare` tokenises pairs into a folder with the columns "src" and "tgt" (`repose.data.columns`), which is
read here. Stored sources and targets are [START … END]; a truncated sentence lacks its end.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from repose.data.columns import Prepared, damaged
from repose.system.terminal import counted


@dataclass(frozen=True)
class PreparedCounts:
    """Counts of the pairs that were prepared, kept, dropped and truncated."""

    read: int
    kept: int
    dropped: dict[str, int]
    """Pairs left out, by reason; `read` is `kept` plus the sum of these."""
    truncated: dict[str, int]
    """Kept sentences that were truncated, by reason."""
    src_tokens: int
    """Stored source tokens, START and END counted."""
    tgt_tokens: int
    """Labels (END counted, START not): the unit of batch sizes and losses."""
    src_unknown: int
    """Stored source tokens that are [UNK]."""
    tgt_unknown: int

    def describe(self) -> str:
        """Describe the counts in one line of text."""
        parts = [f"{counted(self.kept, 'pair')} of {self.src_tokens:,} source and {self.tgt_tokens:,} target tokens"]
        parts += [f"{number:,} dropped ({reason})" for reason, number in self.dropped.items()]
        parts += [f"{number:,} cut ({reason})" for reason, number in self.truncated.items()]
        if self.src_unknown or self.tgt_unknown:
            parts.append(f"{self.src_unknown:,} source and {self.tgt_unknown:,} target tokens unknown")
        return ", ".join(parts)


class Batch(NamedTuple):
    """Token ids of B pairs, padded on the right with 0 = [PAD]."""

    src: NDArray[np.int64]
    """(B, S): [START … END]."""
    tgt: NDArray[np.int64]
    """(B, T): decoder input, [START …]."""
    labels: NDArray[np.int64]
    """(B, T): what the decoder should predict, [… END]; 0 exactly where `tgt` is 0."""


@dataclass(frozen=True)
class PairDataset(Prepared):
    """The pairs of a prepared folder, by index. Only their lengths are held in memory."""

    tags: tuple[int, ...] = ()
    """Ids of the source vocabulary that are tags (`repose.data.tags`); empty unless the caller sets them."""
    most: tuple[int, int] | None = None
    """Most source tokens and labels of a pair in any epoch; None: as many as the longest stored ones."""

    @cached_property
    def counts(self) -> PreparedCounts:
        """Counts of the pairs that were prepared. Raises DataError if the folder does not record them."""
        try:
            return PreparedCounts(**self.columns.info["counts"])
        except (TypeError, KeyError) as error:
            raise damaged(self.columns.folder, "its meta.json cannot be understood") from error

    @cached_property
    def src_lengths(self) -> NDArray[np.int32]:
        """(N,): source tokens of each pair, START and END counted."""
        return self.columns.lengths("src")

    @cached_property
    def tgt_lengths(self) -> NDArray[np.int32]:
        """(N,): labels (= decoder positions) of each pair, END counted."""
        return self.columns.lengths("tgt") - 1

    @cached_property
    def longest_src(self) -> int:
        """Most tokens of a source."""
        return int(self.src_lengths.max(initial=0)) if self.most is None else self.most[0]

    @cached_property
    def longest_tgt(self) -> int:
        """Most labels of a target."""
        return int(self.tgt_lengths.max(initial=0)) if self.most is None else self.most[1]

    def batch(self, indices: NDArray[np.integer[Any]]) -> Batch:
        """Return the pairs at `indices` (B,), each in [0, len), in this order. With B = 0, the arrays are (0, 0)."""
        return Batch(self.columns.padded("src", indices), *self.columns.shifted("tgt", indices))
