"""BLEU by the length of the source (as in Bahdanau et al. 2015, Fig. 2, but for parts of the test set).

Vaswani et al. (2017, section 3.5) chose sinusoids because these "may allow the model to extrapolate to sequence lengths
longer than the ones encountered during training"; a part with only such sentences shows whether a model does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from repose.evaluation.sentence_statistics import Counts, SentenceStatistics
from repose.system.errors import DataError

EDGES = (10, 20, 30, 40, 50)
"""Longest sentence of each part, in words or tokens; the last part is of all longer ones."""
SMALL = 50
"""Fewer sentences than this say little: BLEU is then mostly a matter of which they are."""
_NEAR = 5


@dataclass(frozen=True)
class Bucket:
    """The sentences of a test set whose sources are of certain lengths."""

    shortest: int
    longest: int | None
    """Both are inside; None: no limit."""
    sentences: NDArray[np.intp]
    """Their places in the test set, from 0."""

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.sentences)

    @property
    def label(self) -> str:
        """The lengths as a label, such as "11–20" or "51+"."""
        return f"{self.shortest}+" if self.longest is None else f"{self.shortest}–{self.longest}"

    @property
    def small(self) -> bool:
        """Whether it has fewer than 50 sentences."""
        return len(self) < SMALL


def by_length(lengths: Counts, edges: Sequence[int] = EDGES) -> tuple[Bucket, ...]:
    """The parts of a test set by the (N,) lengths of its sources: up to the first of the `edges`, and so on.

    Each sentence is in exactly one part; parts without any are left out. Sources without words are in the first.
    """
    place = np.searchsorted(np.asarray(edges), lengths)  # edge[i - 1] < length <= edge[i]
    lows, highs = [1, *(edge + 1 for edge in edges)], [*edges, None]
    buckets = (Bucket(lows[i], highs[i], np.flatnonzero(place == i)) for i in range(len(lows)))
    return tuple(bucket for bucket in buckets if len(bucket))


def edges_with(limits: Sequence[int]) -> tuple[int, ...]:
    """`EDGES` with each of the `limits`, such as the longest source of a training, in place of those near it.

    So a part lies wholly on one side of a limit.
    """
    others = (edge for edge in EDGES if all(abs(edge - limit) >= _NEAR for limit in limits))
    return tuple(sorted({*others, *limits}))


def scores_by_length(statistics: SentenceStatistics, buckets: Sequence[Bucket]) -> tuple[float, ...]:
    """BLEU of each part, in percent.

    That of few or short sentences leans on its smoothing; compare systems within a part, not parts with each other: the
    sentences are other ones. Raises DataError where a bucket is of another test set.
    """
    if any(bucket.sentences.max() >= len(statistics) for bucket in buckets):
        raise DataError(
            f"the lengths are of more sentences than the {len(statistics)} that were translated: "
            "take both from one test set"
        )
    return tuple(statistics.score("bleu", bucket.sentences) for bucket in buckets)
