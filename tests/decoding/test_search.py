"""The search against scripted probability tables, plain loops, and enumeration of every possible output.

Vocabulary of the tables: 0 [PAD], 1 [UNK], 2 [START], 3 [END], 4 a, 5 b (and so on).
"""

import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from repose.decoding.best import best_token, best_tokens, in_order_on_device
from repose.decoding.options import SearchOptions
from repose.decoding.search import Ints, TokenHypothesis, beam_search, greedy
from repose.system.errors import ConfigError, ReposeError
from repose.system.token_ids import END, PAD, START

A, B = 4, 5
INF = math.inf
Prefix = tuple[int, ...]
Table = Callable[[int, Prefix], list[float]]
"""(sentence, tokens so far) -> log-probabilities of the next token."""


class Script:
    """A step function and its state: each row is a sentence and the tokens it was fed."""

    def __init__(self, table: Table, num_sentences: int, first_sentence: int = 0) -> None:
        self.table = table
        self.rows: list[tuple[int, Prefix]] = [(first_sentence + i, ()) for i in range(num_sentences)]
        self.row_counts: list[int] = []

    def select(self, rows: Ints) -> None:
        self.rows = [self.rows[row] for row in rows.tolist()]

    def __call__(self, tokens: Ints, state: "Script") -> NDArray[np.float64]:
        assert state is self
        assert tokens.dtype == np.int64
        assert tokens.shape == (len(self.rows),)
        self.rows = [(i, (*fed, token)) for (i, fed), token in zip(self.rows, tokens.tolist(), strict=True)]
        assert all(fed[0] == START for _, fed in self.rows)
        self.row_counts.append(len(self.rows))
        return np.array([self.table(i, fed[1:]) for i, fed in self.rows])


def scripted(probabilities: dict[Prefix, dict[int, float]]) -> Table:
    """A table of vocabulary 6 from the probabilities that are not zero."""

    def table(_: int, prefix: Prefix) -> list[float]:
        row = probabilities[prefix]
        return [math.log(row[token]) if token in row else -INF for token in range(6)]

    return table


def random_table(seed: int, vocabulary: int, sharpness: float = 1.5, coarse: bool = False) -> Table:
    """A distribution of its own for each sentence and prefix; `coarse` ones have many equal log-probabilities."""

    def table(sentence: int, prefix: Prefix) -> list[float]:
        rng = random.Random(f"{seed} {sentence} {prefix}")
        logits = torch.tensor([rng.gauss(0, sharpness) for _ in range(vocabulary)])
        if coarse:
            return (-logits.abs().round()).tolist()
        return logits.log_softmax(0).tolist()

    return table


def run_beam(
    table: Table, limits: Sequence[int], options: SearchOptions, *, first_sentence: int = 0
) -> list[list[TokenHypothesis]]:
    script = Script(table, len(limits), first_sentence)
    return beam_search(script, script, limits, options)


def run_greedy(table: Table, limits: Sequence[int]) -> list[TokenHypothesis]:
    script = Script(table, len(limits))
    return greedy(script, script, limits, SearchOptions(1))


def forced_score(table: Table, sentence: int, hypothesis: TokenHypothesis) -> float:
    output = (*hypothesis.tokens, END) if hypothesis.finished else hypothesis.tokens
    return sum(table(sentence, output[:i])[token] for i, token in enumerate(output))


def greedy_loop(table: Table, sentence: int, limit: int) -> tuple[Prefix, bool]:
    written: Prefix = ()
    while len(written) < limit:
        row = table(sentence, written)
        token = max((t for t in range(len(row)) if t not in (PAD, START)), key=lambda t: row[t])
        if token == END:
            return written, True
        written = (*written, token)
    return written, False


def beam_loop(table: Table, sentence: int, limit: int, beam_size: int, alpha: float) -> list[tuple[float, Prefix]]:
    """Beam search without any early stop: (normalised, tokens) of every finished hypothesis, best first."""
    live: list[tuple[float, Prefix]] = [(0.0, ())]
    finished = []
    for length in range(1, limit + 1):
        candidates = []
        for score, prefix in live:
            row = table(sentence, prefix)
            candidates += [
                (score + row[token], (*prefix, token)) for token in range(len(row)) if token not in (PAD, START)
            ]
        candidates.sort(key=lambda c: -c[0])
        penalty = ((5 + length) / 6) ** alpha
        finished += [(score / penalty, y[:-1]) for score, y in candidates[:beam_size] if y[-1] == END]
        live = [c for c in candidates if c[1][-1] != END][:beam_size]
    return sorted(finished, key=lambda f: -f[0])


def all_outputs(table: Table, limit: int, vocabulary: int, alpha: float) -> list[tuple[float, Prefix]]:
    """(normalised, tokens) of every output that ends within the limit, best first."""
    outputs = []
    words = [token for token in range(vocabulary) if token not in (PAD, START, END)]
    for length in range(limit):
        for y in itertools.product(words, repeat=length):
            score = sum(table(0, y[:i])[token] for i, token in enumerate((*y, END)))
            outputs.append((score / ((6 + length) / 6) ** alpha, y))
    return sorted(outputs, reverse=True)


# p(b END) = 0.4 × 0.9 = 0.36 is the best output, p(a b END) = 0.6 × 0.5 × 1 = 0.3 is greedy's, p(a END) = 0.24.
GARDEN_PATH = scripted(
    {
        (): {A: 0.6, B: 0.4},
        (A,): {END: 0.4, A: 0.1, B: 0.5},
        (B,): {END: 0.9, A: 0.1},
        (A, A): {END: 1.0},
        (A, B): {END: 1.0},
        (B, A): {END: 1.0},
    }
)


def test_greedy_follows_the_best_token() -> None:
    (found,) = run_greedy(GARDEN_PATH, [4])
    assert found.tokens == (A, B)
    assert found.finished
    assert found.score == pytest.approx(math.log(0.3), abs=1e-6)
    assert found.normalised == pytest.approx(math.log(0.3) / (8 / 6) ** 0.6, abs=1e-6)


@pytest.mark.parametrize(
    ("alpha", "tokens", "score", "normalised"),
    [
        (0.0, (B,), math.log(0.36), math.log(0.36)),
        # ln 0.36 / (7/6)^1.5 = -0.811 against ln 0.3 / (8/6)^1.5 = -0.782: the longer one wins
        (1.5, (A, B), math.log(0.3), math.log(0.3) / (8 / 6) ** 1.5),
    ],
)
def test_length_penalty_flips_the_winner(alpha: float, tokens: Prefix, score: float, normalised: float) -> None:
    [[found]] = run_beam(GARDEN_PATH, [4], SearchOptions(2, length_penalty=alpha))
    assert (found.tokens, found.finished) == (tokens, True)
    assert found.score == pytest.approx(score, abs=1e-6)
    assert found.normalised == pytest.approx(normalised, abs=1e-6)


def test_a_beam_of_one_has_the_length_penalty_that_is_asked_for() -> None:
    [[found]] = run_beam(GARDEN_PATH, [4], SearchOptions(1, length_penalty=1.5))
    assert found.tokens == (A, B)
    assert found.normalised == pytest.approx(math.log(0.3) / (8 / 6) ** 1.5, abs=1e-6)


@pytest.mark.parametrize(
    ("alpha", "num_hypotheses", "row_counts"),
    [
        (0.0, 1, [1, 2]),  # after "b END" (0.36), "a b" (0.3) cannot win any more
        (1.5, 1, [1, 2, 1]),  # "a b" may: ln 0.3 / (9/6)^1.5 = -0.66 > -0.81; "a a" may not: ln 0.06 / (9/6)^1.5
        (0.0, 2, [1, 2, 2]),  # one is finished, two are asked for
    ],
)
def test_only_hypotheses_that_can_win_are_rows(alpha: float, num_hypotheses: int, row_counts: list[int]) -> None:
    script = Script(GARDEN_PATH, 1)
    beam_search(script, script, [4], SearchOptions(2, length_penalty=alpha, num_hypotheses=num_hypotheses))
    assert script.row_counts == row_counts


def test_n_best_list() -> None:
    [found] = run_beam(GARDEN_PATH, [4], SearchOptions(4, length_penalty=0.0, num_hypotheses=4))
    assert [h.tokens for h in found] == [(B,), (A, B), (A,), (A, A)]
    assert [math.exp(h.score) for h in found] == pytest.approx([0.36, 0.3, 0.24, 0.06], abs=1e-6)


def test_end_outside_the_beam_does_not_finish() -> None:
    table = scripted({(): {A: 0.5, B: 0.3, END: 0.2}, (A,): {A: 1.0}, (B,): {B: 1.0}})
    [[narrow]] = run_beam(table, [2], SearchOptions(2))
    assert (narrow.tokens, narrow.finished) == ((A, A), False)
    assert narrow.score == pytest.approx(math.log(0.5), abs=1e-6)
    assert narrow.normalised == pytest.approx(math.log(0.5) / (7 / 6) ** 0.6, abs=1e-6)
    [[wide]] = run_beam(table, [2], SearchOptions(3))
    assert (wide.tokens, wide.finished) == ((), True)


def test_an_end_takes_no_place_of_one_that_lives_on() -> None:
    """Of one row, END and as many tokens as the beam is wide are candidates: here the last of them wins."""
    table = scripted({(): {END: 0.4, A: 0.35, B: 0.25}, (A,): {A: 1.0}, (A, A): {A: 1.0}, (B,): {END: 1.0}})
    [found] = run_beam(table, [3], SearchOptions(2, length_penalty=5.0))
    assert [h.tokens for h in found] == [(B,)]


def test_unfinished_hypotheses_only_where_none_is_finished() -> None:
    table = scripted({(): {A: 0.9, B: 0.1}, (A,): {A: 1.0}, (B,): {END: 1.0}, (A, A): {A: 1.0}})
    [found] = run_beam(table, [3], SearchOptions(2, num_hypotheses=2))
    assert [(h.tokens, h.finished) for h in found] == [((B,), True)]
    [found] = run_beam(table, [1], SearchOptions(2, num_hypotheses=2))
    assert [(h.tokens, h.finished) for h in found] == [((A,), False), ((B,), False)]


def test_maximum_length_counts_end() -> None:
    table = scripted({(): {A: 1.0}, (A,): {END: 0.75, B: 0.25}})
    for limit, expected in ((1, ((A,), False, 0.0)), (2, ((A,), True, math.log(0.75)))):
        for found in (run_greedy(table, [limit])[0], run_beam(table, [limit], SearchOptions(3))[0][0]):
            assert (found.tokens, found.finished) == expected[:2]
            assert found.score == pytest.approx(expected[2], abs=1e-6)


def test_pad_and_start_are_never_chosen_and_scores_stay_the_models() -> None:
    table = scripted({(): {PAD: 0.4, START: 0.3, 1: 0.2, A: 0.1}, (1,): {PAD: 0.9, END: 0.1}, (A,): {END: 1.0}})
    assert run_greedy(table, [3])[0].tokens == (1,)
    [found] = run_beam(table, [3], SearchOptions(2, length_penalty=0.0, num_hypotheses=2))
    assert [h.tokens for h in found] == [(A,), (1,)]
    assert [math.exp(h.score) for h in found] == pytest.approx([0.1, 0.02], abs=1e-6)


def test_dead_end_returns_what_was_written() -> None:
    dead = scripted({(): {A: 0.7, B: 0.3}, (A,): {PAD: 1.0}, (B,): {START: 1.0}})
    [[first, second]] = run_beam(dead, [5], SearchOptions(3, num_hypotheses=3))
    assert (first.tokens, first.finished, second.tokens) == ((A,), False, (B,))
    assert first.score == pytest.approx(math.log(0.7), abs=1e-6)
    assert first.normalised == pytest.approx(math.log(0.7), abs=1e-6)  # penalty of one token: (6/6)^0.6
    (found,) = run_greedy(dead, [5])
    assert (found.tokens, found.finished, found.score) == (first.tokens, False, first.score)
    nothing = scripted({(): {}})
    assert run_greedy(nothing, [5]) == [TokenHypothesis((), 0.0, False, 0.0)]
    assert run_beam(nothing, [5, 5], SearchOptions(2)) == [[TokenHypothesis((), 0.0, False, 0.0)]] * 2


def test_dead_ends_beside_other_sentences() -> None:
    def table(sentence: int, prefix: Prefix) -> list[float]:
        going = sentence == 1 or len(prefix) < sentence
        return [-0.5 if going and token == A + sentence else -INF for token in range(8)]

    found = run_beam(table, [9, 5, 9, 9], SearchOptions(2))
    assert [(h.tokens, h.score, h.finished) for [h] in found] == [
        ((), 0.0, False),
        ((5, 5, 5, 5, 5), -2.5, False),
        ((6, 6), -1.0, False),
        ((7, 7, 7), -1.5, False),
    ]
    assert [h.normalised for [h] in found] == [h.score / SearchOptions(2).penalty(len(h.tokens)) for [h] in found]


def test_one_dead_end_leaves_the_other_hypotheses_alone() -> None:
    table = scripted({(): {A: 0.7, B: 0.3}, (A,): {PAD: 1.0}, (B,): {END: 1.0}})
    [found] = run_beam(table, [5], SearchOptions(2, num_hypotheses=2))
    assert [(h.tokens, h.finished) for h in found] == [((B,), True)]


def test_finished_sentences_leave_the_batch() -> None:
    def table(sentence: int, prefix: Prefix) -> list[float]:
        chosen = END if len(prefix) == sentence else A
        return [0.0 if token == chosen else -INF for token in range(6)]

    script = Script(table, 4)
    found = greedy(script, script, [9, 9, 9, 3], SearchOptions(1))
    assert [h.tokens for h in found] == [(), (A,), (A, A), (A, A, A)]
    assert [h.finished for h in found] == [True, True, True, False]
    assert script.row_counts == [4, 3, 2]
    script = Script(table, 4)
    assert [h.tokens for [h] in beam_search(script, script, [9, 9, 9, 3], SearchOptions(2))] == [
        (),
        (A,),
        (A, A),
        (A, A, A),
    ]
    assert script.row_counts == [4, 3, 2]


def test_a_state_whose_rows_stay_is_left_alone() -> None:
    table, moved = scripted({(): {A: 1.0}, (A,): {B: 1.0}, (A, B): {END: 1.0}}), list[Ints]()
    for beam_size in (1, 2):
        script = Script(table, 1)
        script.select = moved.append  # type: ignore[method-assign]
        [[found]] = beam_search(script, script, [4], SearchOptions(beam_size))
        assert found.tokens == (A, B)
        assert not moved


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize(("vocabulary", "limit"), [(4, 5), (5, 1), (5, 5), (6, 4)])
def test_wide_beam_finds_the_n_best_of_all_outputs(vocabulary: int, limit: int, alpha: float) -> None:
    for seed in range(8):
        table = random_table(seed, vocabulary)
        expected = all_outputs(table, limit, vocabulary, alpha)[:7]
        [found] = run_beam(table, [limit], SearchOptions(120, length_penalty=alpha, num_hypotheses=7))
        assert [h.tokens for h in found] == [y for _, y in expected]
        assert [h.normalised for h in found] == pytest.approx([key for key, _ in expected], rel=1e-12)


@settings(max_examples=80)
@given(
    seed=st.integers(0, 10**6),
    vocabulary=st.integers(4, 9),
    limits=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    beam_size=st.integers(2, 5),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 3.0]),
    coarse=st.booleans(),
    data=st.data(),
)
def test_early_stop_changes_nothing(
    seed: int, vocabulary: int, limits: list[int], beam_size: int, alpha: float, coarse: bool, data: st.DataObject
) -> None:
    """Against a plain loop that searches on to the maximum length; also forced decoding, batch 1 and batch n."""
    num_hypotheses = data.draw(st.integers(1, beam_size))
    table = random_table(seed, vocabulary, coarse=coarse)
    options = SearchOptions(beam_size, alpha, num_hypotheses)
    found = run_beam(table, limits, options)
    for i, limit in enumerate(limits):
        expected = beam_loop(table, i, limit, beam_size, alpha)[:num_hypotheses]
        if expected:
            assert [(h.normalised, h.tokens) for h in found[i]] == [
                (pytest.approx(key, rel=1e-12), y) for key, y in expected
            ]
        assert found[i]
        for h in found[i]:
            assert h.finished == bool(expected)
            assert h.score == pytest.approx(forced_score(table, i, h), rel=1e-12)
            assert h.normalised == pytest.approx(h.score / ((5 + len(h.tokens) + h.finished) / 6) ** alpha, rel=1e-12)
        assert run_beam(table, [limit], options, first_sentence=i) == [found[i]]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    vocabulary=st.integers(4, 9),
    limits=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    coarse=st.booleans(),
)
def test_greedy_is_the_plain_loop_and_beam_one(seed: int, vocabulary: int, limits: list[int], coarse: bool) -> None:
    table = random_table(seed, vocabulary, coarse=coarse)
    found = run_greedy(table, limits)
    assert [(h.tokens, h.finished) for h in found] == [greedy_loop(table, i, n) for i, n in enumerate(limits)]
    assert [h.score for h in found] == pytest.approx(
        [forced_score(table, i, h) for i, h in enumerate(found)], rel=1e-12
    )
    assert run_beam(table, limits, SearchOptions(1)) == [[h] for h in found]


@pytest.mark.parametrize("kind", ["array", "tensor", "on a device"])
@pytest.mark.parametrize("vocabulary", [4, 7, 150, 3003])
@pytest.mark.parametrize("levels", [1, 6, 100_000])
def test_best_tokens_are_those_of_a_stable_sort(vocabulary: int, levels: int, kind: str) -> None:
    """`levels` 1: all equal; 6: ties everywhere; 100,000: few ties."""
    generator = torch.Generator().manual_seed(vocabulary + levels)
    for width in (1, 4, 9):
        drawn = -torch.randint(levels, (17, vocabulary), generator=generator) / levels
        drawn[5, 3:] = -INF
        allowed = drawn.double().numpy()
        allowed[:, [PAD, START]] = -INF
        ranked = np.argsort(-allowed, axis=1, kind="stable")[:, :width]
        wanted = np.take_along_axis(allowed, ranked, 1)
        if kind == "on a device":
            values, tokens = in_order_on_device(drawn, width)
            possible = wanted > -INF
            assert (values == wanted).all()
            assert (tokens[possible] == ranked[possible]).all()
            continue
        before = drawn.clone()
        log_probs = drawn.numpy() if kind == "array" else drawn
        values, tokens = best_tokens(log_probs, width)
        one, which = best_token(log_probs)
        assert torch.equal(drawn, before), "they are as they were"
        assert (np.diff(tokens, axis=1) > 0).all() or levels == 1 or (values == -INF).any()
        order = np.argsort(-values, axis=1, kind="stable")
        found = np.take_along_axis(values, order, 1)
        possible = found > -INF
        assert (found == wanted).all()
        assert (np.take_along_axis(tokens, order, 1)[possible] == ranked[possible]).all()
        assert (one == wanted[:, 0]).all()
        assert (which == ranked[:, 0])[one > -INF].all()


@pytest.mark.parametrize("seed", range(20))
def test_an_array_and_a_tensor_are_searched_alike(seed: int) -> None:
    table = random_table(seed, 150, coarse=seed % 2 == 0)
    for beam_size in (1, 4):
        found = []
        for convert in (np.array, torch.tensor):
            script = Script(table, 3)

            def step(*given: Any, script: Script = script, convert: Any = convert) -> Any:
                return convert(script(*given))

            options = SearchOptions(beam_size, num_hypotheses=beam_size, no_repeat_ngram_size=seed % 3)
            found.append(beam_search(step, script, [5, 3, 7], options))
        assert found[0] == found[1]


def test_ties_go_to_the_earlier_beam_then_the_lower_token() -> None:
    def table(_: int, __: Prefix) -> list[float]:
        return [-8.0 if token == END else -1.0 for token in range(900)]

    [found] = run_beam(table, [2], SearchOptions(3, num_hypotheses=3))
    assert [h.tokens for h in found] == [(1, 1), (1, 4), (1, 5)]
    assert run_greedy(table, [3])[0].tokens == (1, 1, 1)


def test_tensors_of_log_probabilities_are_not_changed() -> None:
    rows = torch.full((1, 6), -1.8)

    class Nothing:
        def select(self, rows: Ints) -> None: ...

    greedy(lambda tokens, _: rows.expand(len(tokens), -1), Nothing(), [3], SearchOptions(1))
    beam_search(lambda tokens, _: rows.expand(len(tokens), -1), Nothing(), [3], SearchOptions(2))
    assert torch.equal(rows, torch.full((1, 6), -1.8))


def test_no_sentences() -> None:
    script = Script(GARDEN_PATH, 0)
    assert greedy(script, script, [], SearchOptions(1)) == []
    assert beam_search(script, script, [], SearchOptions(2)) == []
    assert script.row_counts == []


def test_nan_is_refused() -> None:
    def table(_: int, __: Prefix) -> list[float]:
        return [math.nan] * 6

    with pytest.raises(ReposeError, match="NaN"):
        run_greedy(table, [3])
    with pytest.raises(ReposeError, match="NaN"):
        run_beam(table, [3], SearchOptions(2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 0}, "beam_size is 0"),
        ({"beam_size": 1001}, r"must be from 1 \(greedy search\) to 1,000"),
        ({"beam_size": 2.0}, r"beam_size is 2\.0, but must be a whole number"),
        ({"beam_size": 2, "num_hypotheses": 3}, r"num_hypotheses is 3.*beam_size \(2\)"),
        ({"beam_size": 2, "num_hypotheses": 0}, "num_hypotheses is 0"),
        ({"beam_size": 2, "length_penalty": -0.5}, r"alpha is -0\.5"),
        ({"beam_size": 1, "length_penalty": math.nan}, "alpha is nan"),
        ({"beam_size": 1, "no_repeat_ngram_size": -1}, "no_repeat_ngram_size of decoding cannot be -1"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SearchOptions(**options)


def test_options_are_python_s_numbers() -> None:
    options = SearchOptions(np.int64(3), 1, np.int32(2), np.int64(0))  # type: ignore[arg-type]
    assert options == SearchOptions(3, 1.0, 2)
    assert [type(each) for each in dataclasses.astuple(options)] == [int, float, int, int]


def test_length_penalty() -> None:
    assert SearchOptions(1, 0.6).penalty(1) == 1.0
    assert SearchOptions(1, 0.5).penalty(7) == pytest.approx(math.sqrt(2))
    assert SearchOptions(1, 0.0).penalty(30) == 1.0


class Markov:
    """A state on a device: a random (V, V) table's rows are looked up with a sum over the fed tokens."""

    def __init__(self, num_sentences: int, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(0)
        self.table = torch.randn(997, 2000, generator=generator).mul(3).log_softmax(1).to(device)
        self.sums = torch.arange(num_sentences, device=device) * 31

    def select(self, rows: Ints) -> None:
        self.sums = self.sums[torch.from_numpy(rows).to(self.sums.device)]

    def step(self, tokens: Ints, _: "Markov") -> torch.Tensor:
        self.sums = self.sums * 7 + torch.from_numpy(tokens).to(self.sums.device)
        return self.table[self.sums % 997]


@pytest.mark.gpu
@pytest.mark.parametrize("beam_size", [1, 4])
def test_cuda_finds_what_the_cpu_finds(beam_size: int) -> None:
    found = []
    for device in (torch.device("cpu"), torch.device("cuda")):
        state = Markov(50, device)
        limits = [i % 13 + 1 for i in range(50)]
        found.append(beam_search(state.step, state, limits, SearchOptions(beam_size, num_hypotheses=beam_size)))
    assert found[0] == found[1]


@pytest.mark.parametrize("limits", [[12, 5], [5, 12]])  # rows move where the first sentence ends first
@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_n_tokens_in_a_row_are_said_twice(beam_size: int, n: int, limits: list[int]) -> None:
    generator = random.Random(n)

    def table(sentence: int, _said: Prefix) -> list[float]:
        # It would say one token for ever; END gets likely once other tokens are taken.
        words = [0.6, 0.2 + 0.01 * generator.random(), 0.1]
        weights = [0.0, 0.01, 0.0, 0.02, *(words if sentence == 0 else words[::-1])]
        return [math.log(w) if w else -INF for w in weights]

    def search(no_repeat: int) -> list[tuple[int, ...]]:
        script = Script(table, 2)
        found = beam_search(
            script, script, limits, SearchOptions(beam_size, num_hypotheses=1, no_repeat_ngram_size=no_repeat)
        )
        return [hypotheses[0].tokens for hypotheses in found]

    def repeats(tokens: tuple[int, ...]) -> bool:
        runs = [tokens[i : i + n] for i in range(len(tokens) - n + 1)]
        return len(runs) > len(set(runs))

    assert repeats(search(0)[0]) or beam_size > 1
    assert not any(map(repeats, search(n)))


def test_what_may_be_said_twice_leaves_the_search_as_it_was() -> None:
    table = scripted({(): {A: 1.0}, (A,): {B: 1.0}, (A, B): {END: 1.0}})
    for no_repeat in (0, 2, 3):
        script = Script(table, 1)
        (found,) = greedy(script, script, [6], SearchOptions(1, no_repeat_ngram_size=no_repeat))
        assert found.tokens == (A, B)
