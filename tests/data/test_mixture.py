"""Corpora mixed in proportions: counts, and each epoch is a pure function of its number."""

import numpy as np
import pytest

from repose.data import batching
from repose.data.batching import Batches
from repose.data.mixture import Mixture, temperature_shares


def test_shares_are_sizes_to_the_power_of_one_over_t() -> None:
    assert temperature_shares([900, 100], 1) == [900, 100]
    assert temperature_shares([900, 100], 2) == [750, 250]  # 30 : 10
    high = temperature_shares([900, 100], 100)
    assert high == pytest.approx([500, 500], rel=0.05)
    assert sum(high) == 1000


@pytest.mark.parametrize("temperature", [1, 1.001, 2, 100])
def test_every_corpus_has_its_pairs_in_an_epoch(temperature: float) -> None:
    small, least, large = temperature_shares([3, 1, 1_000_000], temperature)
    assert small >= 3
    assert least >= 1
    assert temperature > 1 or (small, least, large) == (3, 1, 1_000_000)


def test_over_the_epochs_all_pairs_of_a_corpus_are_read_equally_often() -> None:
    groups = np.array([0] * 10 + [7] * 4)
    mixture = Mixture(groups, {0: 4, 7: 10}, seed=3)
    read = np.zeros(14, dtype=int)
    for epoch in range(10):
        drawn = mixture(epoch)
        assert (groups[drawn] == 0).sum() == 4
        assert (groups[drawn] == 7).sum() == 10
        np.add.at(read, drawn, 1)
    assert set(read[:10]) == {4}
    assert set(read[10:]) == {25}


def test_an_epoch_is_a_function_of_seed_and_number() -> None:
    groups = np.array([0] * 3000 + [4] * 2000)
    first, again = (Mixture(groups, {0: 1000, 4: 3000}, seed=1) for _ in range(2))
    expected = first(5)
    for epoch in (0, 5):
        drawn = again(epoch)
    assert np.array_equal(drawn, expected)
    assert not np.array_equal(first(6), expected)
    assert not np.array_equal(Mixture(groups, {0: 1000, 4: 3000}, seed=2)(5), expected)


@pytest.mark.parametrize("policy", ["tokens", "sentences"])
def test_batches_of_a_mixture_are_its_pairs(policy: str) -> None:
    lengths = np.arange(1, 51)
    mixture = Mixture(np.repeat([0, 4], [40, 10]), {0: 15, 4: 25}, seed=0)
    batches = Batches(lengths, lengths, policy, 60 if policy == "tokens" else 7, 9, mixture=mixture)  # type: ignore[arg-type]
    for epoch in (0, 1):
        found = list(batches.epoch(epoch))
        assert sorted(np.concatenate(found)) == sorted(mixture(epoch))
        assert len(found) == batches.num_batches(epoch)
        later = list(batches.epoch(epoch, 2))
        assert all(np.array_equal(a, b) for a, b in zip(found[2:], later, strict=True))
        if policy == "tokens":
            assert all(lengths[batch].sum() <= 60 or len(batch) == 1 for batch in found)


def test_the_updates_of_a_training_are_those_of_its_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which have other pairs each, and so other numbers of batches."""
    lengths = np.random.default_rng(0).integers(1, 50, 50)
    groups, numbers = np.repeat([0, 4], [40, 10]), {0: 15, 4: 25}
    batches = Batches(lengths, lengths, "tokens", 60, 9, mixture=Mixture(groups, numbers, seed=0))
    counted = [len(list(batches.epoch(epoch))) for epoch in range(10)]
    assert batches.num_updates(10) == sum(counted)
    assert len(set(counted)) > 1
    monkeypatch.setattr(batching, "COUNTED_EPOCHS", 4)
    assert batches.num_updates(4) == sum(counted[:4])
    assert batches.num_updates(1_000_000) == 250_000 * sum(counted[:4])  # not each of them counted
    for plain in (Batches(lengths, lengths, "tokens", 60, 9), Batches(lengths, lengths, "sentences", 7, 9)):
        assert plain.num_updates(3) == sum(len(list(plain.epoch(epoch))) for epoch in range(3))
