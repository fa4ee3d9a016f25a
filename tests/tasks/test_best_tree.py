"""The best tree against an enumeration of all trees."""

import itertools
import sys

import numpy as np
import pytest

from repose.data.treebank import is_tree
from repose.system.errors import ConfigError
from repose.tasks.parsing import best_tree


def total(scores: np.ndarray, heads: list[int] | tuple[int, ...]) -> float:
    return float(sum(scores[word, head] for word, head in enumerate(heads, 1)))


def random_scores(n: int, seed: int) -> np.ndarray:
    scores = np.random.default_rng(seed).normal(size=(n + 1, n + 1)) * 3
    if seed % 3 == 0:
        scores[:, 0] += 6  # every word would be the root
    if seed % 3 == 1:
        scores[:, 0] -= 6  # none would
    return scores


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_no_tree_is_better(n: int) -> None:
    """By trying every assignment of heads that is a tree with one root; ROOT liked, disliked and neither."""
    every = [heads for heads in itertools.product(range(n + 1), repeat=n) if is_tree(heads)]
    assert len(every) == n ** (n - 1)  # Cayley: n^(n-2) trees, n roots
    for seed in range(30):
        scores = random_scores(n, seed)
        found = best_tree(scores)
        assert is_tree(found)
        assert total(scores, found) == pytest.approx(max(total(scores, heads) for heads in every), abs=1e-9)


def test_longer_sentences_are_trees_that_no_single_change_betters() -> None:
    for seed in range(3):
        scores = random_scores(20, seed)
        found = best_tree(scores)
        assert is_tree(found)
        for word, head in itertools.product(range(20), range(21)):
            changed = [*found[:word], head, *found[word + 1 :]]
            assert not is_tree(changed) or total(scores, changed) <= total(scores, found) + 1e-9


def test_ties_and_barred_arcs_give_a_tree() -> None:
    assert is_tree(best_tree(np.zeros((6, 6))))
    scores = np.zeros((4, 4), dtype=np.float32)
    np.fill_diagonal(scores, -np.inf)
    assert is_tree(best_tree(scores))


def test_the_library_is_asked_for_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    chain = np.zeros((4, 4))
    for word, head in ((1, 0), (2, 1), (3, 2)):
        chain[word, head] = 1
    assert best_tree(chain) == [0, 1, 2]
    with pytest.raises(ConfigError, match=r"pip install 'repose-nmt\[parsing\]'"):
        best_tree(np.zeros((4, 4)))
