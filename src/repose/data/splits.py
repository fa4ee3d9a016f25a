"""Hold validation and test pairs out of a corpus, so that none of their sentences is trained on."""

import hashlib
import unicodedata
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from repose.data.pairs import Pair
from repose.system.errors import DataError
from repose.system.hashing import splitmix64
from repose.system.terminal import counted


@dataclass(frozen=True)
class Splits:
    """A corpus in three parts that share no source sentence and no target sentence."""

    train: Iterator[Pair]
    """Training pairs in the order of the corpus, which is read while they are iterated over."""
    valid: list[Pair]
    test: list[Pair]
    num_train: int
    duplicates: int
    """Repetitions of held-out pairs; they are left out of every split."""


def hold_out(
    pairs: Iterable[Pair], *, num_valid: int, num_test: int, seed: int, apart_from: Iterable[Pair] = ()
) -> Splits:
    """Hold `num_valid` and `num_test` pairs out of `pairs`, drawn by a hash of (seed, text).

    A pair can be held out only if its source occurs with no other target, its target with no other source, and neither
    of them in `apart_from`, a set that exists already. Repetitions of a held-out pair are left out of training.
    Sentences count as the same if they differ only in case and spacing. Which pairs are drawn depends on the set of
    pairs and not on their order, and the validation pairs do not depend on `num_test`. Splitting keeps sixteen bytes
    per pair in memory, and briefly a small multiple of that. `pairs` is read twice, and once more for `train`. Raises
    `DataError` if too few pairs can be held out or none would be left to train on.
    """
    src, tgt = _hashes(pairs)
    both = splitmix64(splitmix64(src) + tgt)
    distinct = np.unique(both, return_index=True)[1]
    eligible = distinct[~_shared(src[distinct]) & ~_shared(tgt[distinct])]
    for sentences, there in zip((src, tgt), _hashes(apart_from), strict=True):
        eligible = eligible[~np.isin(sentences[eligible], there)]
    wanted = num_valid + num_test
    _check_enough(len(src), len(distinct), len(eligible), wanted)
    key = np.uint64(same_sentence(f"repose splits 1/{seed}"))
    drawn = eligible[np.argsort(splitmix64(both[eligible] ^ key), kind="stable")[:wanted]]
    left_out = set(np.flatnonzero(np.isin(both, both[drawn])).tolist())
    if len(left_out) == len(src):
        raise DataError(
            f"holding out {wanted:,} of {len(distinct):,} different sentence pairs leaves none to train on: "
            "hold out fewer, or name validation and test files"
        )
    positions = set(drawn.tolist())
    held_out = {position: pair for position, pair in enumerate(pairs) if position in positions}
    if len(held_out) < wanted:
        raise DataError("the corpus changed while it was split: start again")
    valid, test = (sorted(part.tolist()) for part in (drawn[:num_valid], drawn[num_valid:]))
    return Splits(
        train=(pair for position, pair in enumerate(pairs) if position not in left_out),
        valid=[held_out[position] for position in valid],
        test=[held_out[position] for position in test],
        num_train=len(src) - len(left_out),
        duplicates=len(left_out) - wanted,
    )


def _check_enough(num_pairs: int, num_distinct: int, num_eligible: int, wanted: int) -> None:
    if num_pairs == 0:
        raise DataError("there are no sentence pairs to split: check the corpus files")
    if wanted and num_pairs == 1:
        raise DataError("there is only one sentence pair, so none can be held out: name validation and test files")
    if wanted and num_distinct == 1:
        raise DataError(
            f"all {num_pairs:,} sentence pairs are the same, so none can be held out: name validation and test files"
        )
    if num_eligible < wanted:
        fewer = "hold out fewer (corpus.held_out_valid, corpus.held_out_test), or " * (num_eligible > 0)
        raise DataError(
            f"{counted(wanted, 'pair')} cannot be held out of {num_pairs:,}, since only "
            f"{counted(num_eligible, 'different pair')} {'shares' if num_eligible == 1 else 'share'} neither source "
            f"nor target with another or with the files of the other set: {fewer}name validation and test files"
        )


def _hashes(pairs: Iterable[Pair]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return 64-bit hashes of all sources and all targets. A collision only makes two sentences count as the same."""
    src_hashes, tgt_hashes = array("Q"), array("Q")
    for src, tgt in pairs:
        src_hashes.append(same_sentence(src))
        tgt_hashes.append(same_sentence(tgt))
    return np.frombuffer(src_hashes, dtype=np.uint64), np.frombuffer(tgt_hashes, dtype=np.uint64)


def same_sentence(sentence: str) -> int:
    """Return a 64-bit hash of a sentence that ignores case, spacing, and whether accents are separate characters."""
    same = unicodedata.normalize("NFC", " ".join(sentence.casefold().split()))
    return int.from_bytes(hashlib.blake2b(same.encode(), digest_size=8).digest(), "little")


def _shared(values: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Mark the values that occur more than once."""
    _, number, counts = np.unique(values, return_inverse=True, return_counts=True)
    return counts[number] > 1
