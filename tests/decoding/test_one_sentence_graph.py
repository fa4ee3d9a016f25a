"""A search that runs inside one graph finds the same hypotheses as `search` step by step."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from repose.decoding.one_sentence_graph import Candidates, beam_hypotheses, greedy_hypothesis
from repose.decoding.options import SearchOptions
from repose.decoding.search import Ints, beam_search, greedy
from repose.system.token_ids import END, PAD, START

INF = math.inf
Prefix = tuple[int, ...]
VOCABULARY = 7


class Table:
    """A step function and its state: log-probabilities for each prefix, many of them equal, some rows without any."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rows: list[Prefix] = [()]

    def at(self, prefix: Prefix) -> list[float]:
        rng = random.Random(f"{self.seed} {prefix}")
        possible = rng.random() > 0.15
        return [-0.5 * rng.randrange(6) if possible and rng.random() > 0.3 else -INF for _ in range(VOCABULARY)]

    def select(self, rows: Ints) -> None:
        self.rows = [self.rows[row] for row in rows.tolist()]

    def __call__(self, tokens: Ints, _: "Table") -> NDArray[np.float64]:
        self.rows = [(*prefix, token) for prefix, token in zip(self.rows, tokens.tolist(), strict=True)]
        return np.array([self.at(prefix[1:]) for prefix in self.rows])


def candidates(table: Table, limit: int, options: SearchOptions) -> list[Candidates]:
    """What a beam's graph gives: the rules of `repose.decoding.search`, hypothesis by hypothesis."""
    rows: list[tuple[float, Prefix]] = [(0.0, ())]
    size, num_hypotheses = options.beam_size, options.num_hypotheses
    steps, best, last = [], [-INF] * num_hypotheses, options.penalty(limit)
    for length in range(1, limit + 1):
        found = []
        for place, (score, prefix) in enumerate(rows):
            values = [-INF if token in (PAD, START) else value for token, value in enumerate(table.at(prefix))]
            order = sorted(range(VOCABULARY), key=lambda token: -values[token])[: size + 1]
            found += [(score + values[token], place, token) for token in order]
        found = sorted(found, key=lambda x: -x[0])[: 2 * size]
        found += [(-INF, 0, END)] * (2 * size - len(found))
        steps.append(Candidates(*map(list, zip(*found, strict=True))))
        ended = [score / options.penalty(length) for score, _, token in found[:size] if token == END]
        best = sorted([*best, *ended], reverse=True)[:num_hypotheses]
        live = [x for x in found if x[2] != END and x[0] > -INF][:size]
        rows = [(score, (*rows[row][1], token)) for score, row, token in live if score / last > best[-1]]
        if not rows:
            break
    return steps


@settings(max_examples=150, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    limit=st.integers(1, 6),
    size=st.integers(2, 4),
    num_hypotheses=st.integers(1, 4),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
)
def test_of_a_beam(seed: int, limit: int, size: int, num_hypotheses: int, alpha: float) -> None:
    options = SearchOptions(size, alpha, min(size, num_hypotheses))
    table = Table(seed)
    (expected,) = beam_search(table, table, [limit], options)
    assert beam_hypotheses(candidates(Table(seed), limit, options), limit, options) == expected


@pytest.mark.parametrize("chosen", [[5, END], [END], [5, 6, 7], [5, None], [None]])
def test_of_a_greedy_search(chosen: list[int | None]) -> None:
    """None: a token that has no probability above zero."""
    values = [-0.3, -0.1, -0.6]

    class Chosen(Table):
        def at(self, prefix: Prefix) -> list[float]:
            token = chosen[len(prefix)]
            return [values[len(prefix)] if each == token else -INF for each in range(VOCABULARY + 1)]

    table = Chosen(0)
    (expected,) = greedy(table, table, [len(chosen)], SearchOptions(1))
    given = [-INF if token is None else value for token, value in zip(chosen, values, strict=False)]
    assert greedy_hypothesis([1 if token is None else token for token in chosen], given, SearchOptions(1)) == expected
