"""Batches: every pair once per epoch, a pure function of (seed, epoch), within the budget, shared fairly."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repose.data import batching
from repose.data.batching import Batches, Permutation, share

POLICIES = ("sentences", "tokens")


def lengths_like_text(size: int, seed: int = 0) -> np.ndarray:
    return (1 + np.random.default_rng(seed).gamma(2.5, 5.0, size)).astype(np.int32)


def batches_of(lengths: np.ndarray, policy: str, batch_size: int, seed: int) -> Batches:
    """Of pairs whose sides are equally long."""
    return Batches(lengths, lengths, policy, batch_size, seed)


def listed(batches: Batches, epoch: int, start: int = 0) -> list[list[int]]:
    return [batch.tolist() for batch in batches.epoch(epoch, start)]


# --- the permutation


@given(size=st.integers(0, 5000), key=st.text(max_size=8))
@settings(max_examples=60)
def test_permutation_is_a_bijection(size, key):
    assert np.array_equal(np.sort(Permutation(size, key)(np.arange(size))), np.arange(size))


@pytest.mark.parametrize("size", [1023, 1024, 1025, 2048, 2049, 65535, 65536, 65537, 200_003])
def test_permutation_is_a_bijection_around_powers_of_two(size):
    seen = np.zeros(size, dtype=bool)
    seen[Permutation(size, "key")(np.arange(size))] = True
    assert seen.all()


def test_permutation_of_a_domain_larger_than_memory_gives_distinct_elements():
    size = 10**13
    elements = Permutation(size, "key")(np.arange(size - 5000, size))
    assert len(np.unique(elements)) == 5000
    assert elements.min() >= 0
    assert elements.max() < size
    assert abs(elements.mean() / size - 0.5) < 0.02  # standard error 0.004


def deviations(counts: np.ndarray, expected: np.ndarray) -> float:
    """Chi-square, in standard deviations from its mean (a little below 0 where margins are fixed)."""
    chi_square = ((counts - expected) ** 2 / expected).sum()
    return float((chi_square - (counts.size - 1)) / math.sqrt(2 * (counts.size - 1)))


def count(one: np.ndarray, other: np.ndarray, groups: int) -> np.ndarray:
    return np.bincount((one * groups + other).ravel(), minlength=groups**2).reshape(groups, groups)


@pytest.mark.parametrize("size", [3, 100, 1024, 1025, 1500, 2048])
def test_permutation_looks_random(size):
    """Over 1,000 keys, all within 4.5 standard deviations; more than 50 elements are grouped."""
    groups = min(size, 50)
    drawn = np.stack([Permutation(size, f"{number}")(np.arange(size)) for number in range(1000)])
    cell = drawn * groups // size
    place = np.arange(size) * groups // size
    expected = np.outer(np.bincount(place), np.bincount(place)) * 1000 / size
    assert abs(deviations(count(np.broadcast_to(place, cell.shape), cell, groups), expected)) < 4.5
    neighbours = count(drawn[:, :-1] % groups, drawn[:, 1:] % groups, groups)
    residues = np.bincount(np.arange(size) % groups)
    possible = np.outer(residues, residues) - np.diag(residues)  # an element is not its own neighbour
    if size > 3:
        assert abs(deviations(neighbours[possible > 0], (possible * 1000 / size)[possible > 0])) < 4.5
    distances = np.bincount(((drawn[:, 1:] - drawn[:, :-1]) % size).ravel(), minlength=size)[1:]
    assert abs(deviations(distances, np.full(size - 1, distances.mean()))) < 4.5
    same_from_key_to_key = (drawn[1:] == drawn[:-1]).sum(axis=1).mean()  # mean and variance 1
    assert abs(same_from_key_to_key - 1) < 4.5 / math.sqrt(999)


def test_all_orders_of_four_elements_are_equally_likely():
    orders = Counter(tuple(Permutation(4, f"{number}")(np.arange(4)).tolist()) for number in range(6000))
    assert set(orders) == set(itertools.permutations(range(4)))
    assert abs(deviations(np.array(list(orders.values())), np.full(24, 250))) < 4.5


def test_the_order_is_the_same_on_every_machine():
    """A change of these numbers makes resumed runs see other batches: it belongs under "Numerics" in the changelog."""
    assert Permutation(10_000, "key")(np.arange(6)).tolist() == [377, 937, 8945, 5962, 7752, 3057]
    assert listed(batches_of(np.arange(1, 11), "tokens", 16, seed=5), epoch=2) == [
        [9],
        [8],
        [5, 6],
        [7],
        [0, 1, 2, 3, 4],
    ]


# --- epochs


@given(
    size=st.integers(1, 400),
    policy=st.sampled_from(POLICIES),
    batch_size=st.integers(1, 120),
    seed=st.integers(-(2**70), 2**70),
    epoch=st.integers(0, 10**6),
    window=st.sampled_from([1, 7, 64, 1 << 16]),
)
@settings(max_examples=150)
def test_each_pair_exactly_once_an_epoch(size, policy, batch_size, seed, epoch, window):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "WINDOW", window)
        lengths = lengths_like_text(size)
        batches = batches_of(lengths, policy, batch_size, seed)
        found = listed(batches, epoch)
        assert sorted(itertools.chain.from_iterable(found)) == list(range(size))
        assert all(found)
        assert len(found) == batches.num_batches(epoch)
        for start in {0, 1, len(found) // 2, len(found) - 1, len(found), len(found) + 3}:
            assert listed(batches, epoch, start) == found[start:]


@pytest.mark.parametrize("policy", POLICIES)
def test_epochs_and_seeds_differ_and_repeat(policy):
    lengths = lengths_like_text(300)
    runs = {
        (seed, epoch): listed(batches_of(lengths, policy, 40, seed), epoch) for seed in (0, 1, 2) for epoch in (0, 1, 2)
    }
    for one, other in itertools.combinations(runs.values(), 2):
        assert one != other
        assert {frozenset(batch) for batch in one} != {frozenset(batch) for batch in other}
    assert runs[1, 2] == listed(batches_of(lengths, policy, 40, 1), 2)


def test_sentences_are_cut_into_equal_batches_and_the_last_is_kept():
    sizes = [len(batch) for batch in listed(batches_of(lengths_like_text(130), "sentences", 64, 0), 0)]
    assert sizes == [64, 64, 2]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=300), st.integers(1, 100))
@settings(max_examples=100)
def test_token_batches_keep_the_budget(lengths, budget):
    lengths = np.array(lengths)
    for batch in listed(batches_of(lengths, "tokens", budget, 0), 0):
        assert lengths[batch].sum() <= budget or len(batch) == 1


def test_a_token_batch_may_have_just_its_budget():
    assert [len(batch) for batch in listed(batches_of(np.full(6, 4), "tokens", 8, 0), 0)] == [2, 2, 2]


def test_token_batches_are_full_and_of_like_length():
    lengths = lengths_like_text(20_000)
    src_lengths = lengths + np.random.default_rng(1).integers(0, 8, lengths.size)
    batches = listed(Batches(src_lengths, lengths, "tokens", 1000, 0), 0)
    tokens = [int(lengths[batch].sum()) for batch in batches]
    assert np.median(tokens) > 980
    assert sum(len(batch) * int(lengths[batch].max()) for batch in batches) < 1.03 * lengths.sum()
    assert sum(len(batch) * int(src_lengths[batch].max()) for batch in batches) < 1.1 * src_lengths.sum()
    longest = [int(lengths[batch].max()) for batch in batches]
    assert abs(np.corrcoef(longest[:-1], longest[1:])[0, 1]) < 0.2  # the batches are shuffled: short and long mix


def test_pairs_of_like_length_meet_others_in_the_next_epoch():
    batches = batches_of(np.full(1000, 10), "tokens", 100, 0)
    first, second = (listed(batches, epoch) for epoch in (0, 1))
    common = [len(set(one) & set(other)) for one in first for other in second]
    assert max(common) <= 5  # of 10; 0.1 expected


def test_a_pair_longer_than_the_budget_is_a_batch_of_its_own():
    lengths = np.array([3, 500, 4, 900, 2])
    found = sorted(sorted(batch) for batch in listed(batches_of(lengths, "tokens", 10, 0), 0))
    assert found == [[0, 2, 4], [1], [3]]


def test_only_one_window_of_pairs_is_held_at_a_time(monkeypatch):
    class Lengths:
        """Lengths that note how many are asked for at once."""

        largest = 0

        def __len__(self) -> int:
            return 50_000

        def __getitem__(self, indices: np.ndarray) -> np.ndarray:
            Lengths.largest = max(Lengths.largest, len(indices))
            return 1 + indices % 7

    monkeypatch.setattr(batching, "WINDOW", 1024)
    found = np.concatenate(list(batches_of(Lengths(), "tokens", 100, 0).epoch(0)))
    assert len(np.unique(found)) == 50_000
    assert Lengths.largest == 1024


# --- sharing out


def all_shares(indices, lengths, world_size, num_micro_batches):
    return [
        share(indices, lengths, rank=rank, world_size=world_size, micro_batch=part, num_micro_batches=num_micro_batches)
        for rank in range(world_size)
        for part in range(num_micro_batches)
    ]


@given(st.lists(st.integers(1, 90), max_size=80), st.integers(1, 5), st.integers(1, 4), st.randoms())
@settings(max_examples=150)
def test_shares_are_disjoint_complete_and_balanced(lengths, world_size, num_micro_batches, random):
    indices = np.array(random.sample(range(1000), len(lengths)), dtype=np.int64)
    lengths = np.array(lengths, dtype=np.int32)
    shares = all_shares(indices, lengths, world_size, num_micro_batches)
    assert sorted(itertools.chain.from_iterable(part.tolist() for part in shares)) == sorted(indices.tolist())
    length_of = dict(zip(indices.tolist(), lengths.tolist(), strict=True))
    tokens = [sum(length_of[index] for index in part.tolist()) for part in shares]
    assert max(tokens) - min(tokens) <= max(lengths, default=0)  # a snake's loads differ by at most one item
    sizes = [len(part) for part in shares]
    assert max(sizes) - min(sizes) <= 1
    again = all_shares(indices, lengths, world_size, num_micro_batches)
    assert all(np.array_equal(one, other) for one, other in zip(shares, again, strict=True))


def test_the_batch_is_dealt_out_in_a_snake():
    lengths = np.arange(1, 65)  # dealt out in plain rounds the first share would carry 48 tokens more than the last
    shares = all_shares(np.arange(64), lengths, 2, 2)
    assert [int(lengths[part].sum()) for part in shares] == [520] * 4


def test_the_only_share_is_the_batch_as_it_is():
    indices = np.array([5, 1, 9])
    assert share(indices, np.array([1, 2, 3]), rank=0, world_size=1, micro_batch=0, num_micro_batches=1).tolist() == [
        5,
        1,
        9,
    ]


def test_lengths_of_the_whole_dataset_are_not_taken_for_the_batch_s():
    with pytest.raises(AssertionError, match="batch's own pairs"):
        share(np.array([0, 1]), np.arange(10), rank=0, world_size=2, micro_batch=0, num_micro_batches=1)
