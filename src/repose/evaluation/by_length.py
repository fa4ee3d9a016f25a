"""BLEU by source length (as in Bahdanau et al. 2015, Fig. 2, but for disjoint parts of the test set).

Vaswani et al. (2017, section 3.5) chose sinusoids because these "may allow the model to extrapolate to sequence lengths
longer than the ones encountered during training". A part that holds only such sentences shows whether a model does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from repose.evaluation.sentence_statistics import Counts, SentenceStatistics
from repose.system.errors import DataError

EDGES = (10, 20, 30, 40, 50)
"""Longest sentence of each part, in words or tokens; one more part holds all longer sentences."""
SMALL = 50
"""Fewer sentences than this say little: BLEU then mostly depends on which sentences they are."""
_NEAR = 5


@dataclass(frozen=True)
class Bucket:
    """The sentences of a test set whose source lengths are in one range."""

    shortest: int
    longest: int | None
    """Both ends are included; None: no limit."""
    sentences: NDArray[np.intp]
    """Indices of the sentences in the test set, from 0."""

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.sentences)

    @property
    def label(self) -> str:
        """The range of lengths as a label, such as "11–20" or "51+"."""
        return f"{self.shortest}+" if self.longest is None else f"{self.shortest}–{self.longest}"

    @property
    def small(self) -> bool:
        """Whether the part has fewer than 50 sentences."""
        return len(self) < SMALL


def by_length(lengths: Counts, edges: Sequence[int] = EDGES) -> tuple[Bucket, ...]:
    """Divide a test set into parts by the lengths of its sources, (N,).

    Each of the `edges` is the longest length of a part; one more part holds all longer sources. Each sentence is in
    exactly one part; empty parts are left out. Sources without words are in the first part.
    """
    place = np.searchsorted(np.asarray(edges), lengths)  # edge[i - 1] < length <= edge[i]
    lows, highs = [1, *(edge + 1 for edge in edges)], [*edges, None]
    buckets = (Bucket(lows[i], highs[i], np.flatnonzero(place == i)) for i in range(len(lows)))
    return tuple(bucket for bucket in buckets if len(bucket))


def edges_with(limits: Sequence[int]) -> tuple[int, ...]:
    """Return `EDGES` with the `limits` added, such as the longest training source, and edges near a limit removed.

    Each part then lies wholly on one side of every limit.
    """
    others = (edge for edge in EDGES if all(abs(edge - limit) >= _NEAR for limit in limits))
    return tuple(sorted({*others, *limits}))


def scores_by_length(statistics: SentenceStatistics, buckets: Sequence[Bucket]) -> tuple[float, ...]:
    """Return the BLEU of each part, in percent.

    BLEU of few or short sentences depends heavily on its smoothing. Compare systems within a part, but not parts with
    each other, because they hold different sentences. Raises DataError if a part belongs to another test set.
    """
    if any(bucket.sentences.max() >= len(statistics) for bucket in buckets):
        raise DataError(
            f"the lengths are of more sentences than the {len(statistics)} that were translated: "
            "take both from one test set"
        )
    return tuple(statistics.score("bleu", bucket.sentences) for bucket in buckets)
