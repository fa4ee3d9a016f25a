"""Sentence pairs as token ids, memory-mapped, so that a corpus larger than memory can be trained on.

`repose.data.prepare` tokenises pairs into a folder of columns "src" and "tgt" (`repose.data.columns`), which is read
here. A stored source is [START … END], a stored target likewise; a truncated sentence has lost its end.
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
    """What became of the pairs that were prepared."""

    read: int
    kept: int
    dropped: dict[str, int]
    """Pairs left out, by reason; read = kept + the sum of these."""
    truncated: dict[str, int]
    """Kept sentences that were cut, by reason."""
    src_tokens: int
    """Stored source tokens, START and END counted."""
    tgt_tokens: int
    """Labels (END counted, START not): the number that batches and losses are measured in."""
    src_unknown: int
    """Stored source tokens that are [UNK]."""
    tgt_unknown: int

    def describe(self) -> str:
        """One line of text."""
        parts = [f"{counted(self.kept, 'pair')} of {self.src_tokens:,} source and {self.tgt_tokens:,} target tokens"]
        parts += [f"{number:,} dropped ({reason})" for reason, number in self.dropped.items()]
        parts += [f"{number:,} cut ({reason})" for reason, number in self.truncated.items()]
        if self.src_unknown or self.tgt_unknown:
            parts.append(f"{self.src_unknown:,} source and {self.tgt_unknown:,} target tokens unknown")
        return ", ".join(parts)


class Batch(NamedTuple):
    """Padded token ids of B pairs, 0 = [PAD] on the right."""

    src: NDArray[np.int64]
    """(B, S): [START … END]."""
    tgt: NDArray[np.int64]
    """(B, T): decoder input, [START …]."""
    labels: NDArray[np.int64]
    """(B, T): what the decoder has to say, […  END]; 0 exactly where `tgt` is 0."""


@dataclass(frozen=True)
class PairDataset(Prepared):
    """The pairs of a prepared folder, by index. Nothing but their lengths is held in memory."""

    tags: tuple[int, ...] = ()
    """The ids of the source vocabulary that are tags, where somebody has said so (`repose.data.tags`)."""
    most: tuple[int, int] | None = None
    """Source tokens and labels that no pair has more of, in any epoch; None: as many as the longest here have."""

    @cached_property
    def counts(self) -> PreparedCounts:
        """What became of the pairs that were prepared. Raises DataError where the folder does not say it."""
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
        """Tokens that a source has at most."""
        return int(self.src_lengths.max(initial=0)) if self.most is None else self.most[0]

    @cached_property
    def longest_tgt(self) -> int:
        """Labels that a target has at most."""
        return int(self.tgt_lengths.max(initial=0)) if self.most is None else self.most[1]

    def batch(self, indices: NDArray[np.integer[Any]]) -> Batch:
        """The pairs at `indices` (B,), each in [0, len), in this order; B may be 0, the arrays then are (0, 0)."""
        return Batch(self.columns.padded("src", indices), *self.columns.shifted("tgt", indices))
