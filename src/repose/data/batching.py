"""Which sentence pairs form which batch: a pure function of (seed, epoch).

The batches made here are *global*: they do not depend on the number of workers or on gradient accumulation. `share`
then divides one global batch among ranks and accumulation parts. Memory does not grow with the corpus. The order of an
epoch is a keyed pseudo-random permutation, computed as needed, and the `tokens` policy sorts sentences by length inside
windows of `WINDOW` pairs. Only 64-bit integer arithmetic and BLAKE2 are used, and no random generator whose stream
could change with a library's version.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from repose.system.hashing import splitmix64

IntArray = NDArray[np.integer[Any]]

WINDOW = 1 << 16
"""Number of pairs that the `tokens` policy sorts by length together."""
COUNTED_EPOCHS = 50
"""Most epochs of a mixture whose batches are counted before training. Counting takes up to a second per epoch."""

_ROUNDS = 8
_SMALL = 1 << 10  # below this size, sort by hash: it is faster, and a Feistel network on few bits does not look random


class Permutation:
    """A pseudo-random bijection of [0, size) in constant memory.

    Up to `_SMALL` elements are sorted by a keyed hash. Larger sizes use a Feistel network of `_ROUNDS` rounds over the
    smallest sufficient number of bits. Its halves take turns and differ by at most one bit. A value outside [0, size)
    is permuted again until it falls inside: cycle walking (Black and Rogaway 2002, "Ciphers with arbitrary finite
    domains"). At most half of the values lie outside, so the average value is permuted fewer than two times.
    """

    def __init__(self, size: int, key: str) -> None:
        """`size` ≥ 0 is the number of elements; each `key` gives an independent permutation."""
        assert size >= 0
        self.size = size
        bits = (size - 1).bit_length()
        self._low_bits, self._high_bits = bits // 2, bits - bits // 2
        digest = hashlib.blake2b(key.encode(), digest_size=8 * _ROUNDS).digest()
        self._keys = np.frombuffer(digest, dtype="<u8").astype(np.uint64)
        self._sorted: NDArray[np.int64] | None = None
        if size <= _SMALL:
            hashes = splitmix64(splitmix64(np.arange(size, dtype=np.uint64) + self._keys[0]) ^ self._keys[1])
            self._sorted = np.argsort(hashes, kind="stable").astype(np.int64)

    def __call__(self, positions: IntArray) -> NDArray[np.int64]:
        """Return the elements, int64 (N,), at the given positions, (N,) in [0, size)."""
        if self._sorted is not None:
            return self._sorted[positions]
        x = self._network(positions.astype(np.uint64))
        outside = np.flatnonzero(x >= self.size)
        while outside.size:
            x[outside] = self._network(x[outside])
            outside = outside[x[outside] >= self.size]
        return x.astype(np.int64)

    def _network(self, x: NDArray[np.uint64]) -> NDArray[np.uint64]:
        low_bits = np.uint64(self._low_bits)
        low_mask = np.uint64((1 << self._low_bits) - 1)
        high_mask = np.uint64((1 << self._high_bits) - 1)
        low, high = x & low_mask, x >> low_bits
        for round_, key in enumerate(self._keys):
            # Use the top bits of the mixed word: the lowest bits are the weakest.
            if round_ % 2 == 0:
                high = high ^ ((splitmix64(low + key) >> np.uint64(20)) & high_mask)
            else:
                low = low ^ ((splitmix64(high + key) >> np.uint64(20)) & low_mask)
        return (high << low_bits) | low


class Batches:
    """The global batches of each epoch, as arrays of pair indices (int64).

    Policies:

    - `sentences`: `batch_size` pairs drawn at random without replacement. The last, smaller batch is kept, as in the
      papers' `shuffle().batch(64)`, but the whole corpus is shuffled and not a buffer of 20,000.
    - `tokens`: pairs of similar length together. The shuffled corpus is cut into windows of `WINDOW` pairs. Each window
      is sorted by target length, then source length (ties stay shuffled). It is cut greedily into batches of at most
      `batch_size` target tokens, and its batches are shuffled. A pair longer than the budget is a batch of its own.

    Every pair occurs exactly once in an epoch, unless a `mixture` says otherwise.
    """

    def __init__(
        self,
        src_lengths: IntArray,
        tgt_lengths: IntArray,
        policy: Literal["sentences", "tokens"],
        batch_size: int,
        seed: int,
        *,
        mixture: Callable[[int], NDArray[np.int64]] | None = None,
    ) -> None:
        """`src_lengths` and `tgt_lengths`, (N,), are the lengths of a `PairDataset`.

        `batch_size` ≥ 1 counts sentences or target tokens, depending on the policy. `mixture` returns the pairs of an
        epoch, given its number (`repose.data.mixture`).
        """
        assert policy in ("sentences", "tokens")
        assert batch_size >= 1
        self.policy = policy
        self.batch_size = batch_size
        self.seed = seed
        self._src_lengths = src_lengths
        self._tgt_lengths = tgt_lengths
        self._mixture = mixture

    def epoch(self, epoch: int, start: int = 0) -> Iterator[NDArray[np.int64]]:
        """Yield the batches of one epoch in order, from number `start` on.

        Skipping the earlier ones costs almost nothing.
        """
        assert start >= 0
        return self._sentences(epoch, start) if self.policy == "sentences" else self._tokens(epoch, start)

    def num_batches(self, epoch: int) -> int:
        """Count the batches of an epoch; with `tokens`, this takes one pass over the lengths."""
        size = self._num_pairs(epoch)
        if self.policy == "sentences":
            return -(-size // self.batch_size)
        return sum(len(self._window(epoch, first)[1]) - 1 for first in range(0, size, WINDOW))

    def num_updates(self, epochs: int) -> int:
        """Count the batches of the first `epochs` epochs.

        With a mixture and `tokens`, each epoch holds other pairs, so each one is counted, up to `COUNTED_EPOCHS`; their
        mean stands for the later ones. Otherwise the first epoch stands for all. With `tokens` and more pairs than a
        window, later epochs may have slightly more or fewer batches, by about one in a thousand.
        """
        if self._mixture is None or self.policy == "sentences":
            return epochs * self.num_batches(0)
        counted = min(epochs, COUNTED_EPOCHS)
        number = sum(map(self.num_batches, range(counted)))
        return number if counted == epochs else round(number * epochs / counted)

    def _num_pairs(self, epoch: int) -> int:
        return len(self._tgt_lengths) if self._mixture is None else len(self._mixture(epoch))

    def _pairs(self, epoch: int, first: int, end: int) -> NDArray[np.int64]:
        """Return the epoch's pairs from position `first` to before `end`."""
        order = Permutation(self._num_pairs(epoch), self._key(epoch, "pairs"))(np.arange(first, end))
        return order if self._mixture is None else self._mixture(epoch)[order]

    def _key(self, epoch: int, stream: str) -> str:
        return f"repose batches 1/{self.seed}/{epoch}/{stream}"

    def _sentences(self, epoch: int, start: int) -> Iterator[NDArray[np.int64]]:
        size = self._num_pairs(epoch)
        for first in range(start * self.batch_size, size, self.batch_size):
            yield self._pairs(epoch, first, min(first + self.batch_size, size))

    def _tokens(self, epoch: int, start: int) -> Iterator[NDArray[np.int64]]:
        for first in range(0, self._num_pairs(epoch), WINDOW):
            indices, cuts = self._window(epoch, first)
            number = len(cuts) - 1
            if start >= number:
                start -= number
                continue
            for batch in Permutation(number, self._key(epoch, f"window {first}"))(np.arange(start, number)):
                yield indices[cuts[batch] : cuts[batch + 1]]
            start = 0

    def _window(self, epoch: int, first: int) -> tuple[NDArray[np.int64], list[int]]:
        """Return one window's pairs sorted by length, and where to cut them (K + 1 cuts for K batches)."""
        indices = self._pairs(epoch, first, min(first + WINDOW, self._num_pairs(epoch)))
        lengths = np.asarray(self._tgt_lengths[indices], dtype=np.int64)
        by_length = np.lexsort((self._src_lengths[indices], lengths))
        ends = np.cumsum(lengths[by_length])
        cuts = [0]
        while cuts[-1] < len(ends):
            used = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
            fitting = int(np.searchsorted(ends, used + self.batch_size, side="right"))
            cuts.append(max(fitting, cuts[-1] + 1))
        return indices[by_length], cuts


def share(
    indices: NDArray[np.int64],
    lengths: IntArray,
    *,
    rank: int,
    world_size: int,
    micro_batch: int,
    num_micro_batches: int,
) -> NDArray[np.int64]:
    """Select the part of a global batch that this rank computes in this micro-batch.

    `lengths` (B,) are the lengths in tokens of the pairs `indices` (B,), for instance `dataset.tgt_lengths[indices]`.
    The batch is sorted by descending length and dealt out in a snake (1 2 3 3 2 1 …) over `world_size` ×
    `num_micro_batches` shares, so that they carry nearly the same number of tokens. The shares of a batch are disjoint
    and together make up the batch. A share may be empty if the batch is smaller than the number of shares.
    """
    assert indices.shape == lengths.shape, "lengths are those of the batch's own pairs, not of the whole dataset"
    assert 0 <= rank < world_size
    assert 0 <= micro_batch < num_micro_batches
    num_shares = world_size * num_micro_batches
    if num_shares == 1:
        return indices
    by_length = np.argsort(-lengths.astype(np.int64), kind="stable")
    turn, place = np.divmod(np.arange(len(indices)), num_shares)
    dealt_to = np.where(turn % 2 == 0, place, num_shares - 1 - place)
    mine: NDArray[np.intp] = by_length[dealt_to == micro_batch * world_size + rank]
    mine.sort()
    shared: NDArray[np.int64] = indices[mine]
    return shared
