"""How often an epoch reads the pairs of each of several corpora: a pure function of (seed, epoch)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repose.data.batching import Permutation


def temperature_shares(sizes: Sequence[int], temperature: float) -> list[int]:
    """Return the number of pairs of each corpus in an epoch, proportional to size^(1/T).

    The epoch has as many pairs as all corpora together. T = 1 reads every pair once; the higher T, the more similar the
    corpora's shares (Arivazhagan et al. 2019, arXiv 1907.05019, section 4.2, where T = 5 is used). Each corpus has at
    least one pair.
    """
    assert temperature >= 1
    largest = max(sizes)
    weights = [(size / largest) ** (1 / temperature) for size in sizes]
    return [round(sum(sizes) * weight / sum(weights)) for weight in weights]


class Mixture:
    """The pairs that each epoch reads, corpus by corpus.

    The pairs of a corpus come in random order again and again, and each epoch takes the next ones. Over the epochs, the
    pairs of a corpus are read equally often, up to a difference of one.
    """

    def __init__(self, groups: NDArray[np.integer[Any]], numbers: Mapping[int, int], seed: int) -> None:
        """`groups` (N,): the corpus of each pair; `numbers`: how many pairs of each corpus an epoch reads."""
        self._numbers, self._seed = dict(numbers), seed
        self._members = {group: np.flatnonzero(groups == group) for group in self._numbers}
        self._latest: tuple[int, NDArray[np.int64]] | None = None

    def __call__(self, epoch: int) -> NDArray[np.int64]:
        """Return the indices of the epoch's pairs, sorted by corpus; an index may occur several times."""
        if self._latest is None or self._latest[0] != epoch:
            self._latest = (epoch, np.concatenate([self._draw(group, epoch) for group in self._numbers]))
        return self._latest[1]

    def _draw(self, group: int, epoch: int) -> NDArray[np.int64]:
        members, number = self._members[group], self._numbers[group]
        passes, places = np.divmod(np.arange(epoch * number, (epoch + 1) * number), len(members))
        drawn = np.empty(number, dtype=np.int64)
        for each in np.unique(passes).tolist():
            order = Permutation(len(members), f"repose mixture 1/{self._seed}/{group}/{each}")
            drawn[passes == each] = members[order(places[passes == each])]
        return drawn
