"""Sampled translations: the model's own distribution, and the same samples for any batching of sentences."""

import math
from typing import Any

import numpy as np
import pytest

from repose.decoding.options import SearchOptions
from repose.decoding.sampling import Sampling, checked, drawn, sample
from repose.decoding.search import Floats, Ints
from repose.system.errors import ConfigError

END = 3
P = [0.0, 0.1, 0.1, 0.2, 0.4, 0.2]  # PAD, UNK, START, END, two words


def log_probs(probabilities: list[float], num_rows: int) -> Floats:
    with np.errstate(divide="ignore"):
        return np.tile(np.log(probabilities), (num_rows, 1))


class Rows:
    """A state that counts nothing."""

    def select(self, rows: Ints) -> None:
        pass


def step(tokens: Ints, _: Rows) -> Floats:
    return log_probs(P, len(tokens))


def draw(numbers: list[int], **sampling: float) -> list[tuple[int, ...]]:
    limits = [8] * len(numbers)
    how = Sampling(**sampling)  # type: ignore[arg-type]
    return [h.tokens for h in sample(step, Rows(), limits, SearchOptions(1), sampling=how, numbers=numbers)]


def test_tokens_are_drawn_as_often_as_the_model_says() -> None:
    uniform = (np.arange(9000) + 0.5) / 9000
    _, tokens = drawn(log_probs(P, 9000), uniform, 1.0)
    counts = np.bincount(tokens, minlength=6).tolist()
    assert counts == pytest.approx([0, 1000, 0, 2000, 4000, 2000], abs=2)  # without PAD and START
    _, tokens = drawn(log_probs(P, 9000), uniform, 0.5)
    weights = [0, 1, 0, 4, 16, 4]
    assert np.bincount(tokens, minlength=6).tolist() == pytest.approx([9000 * w / 25 for w in weights], abs=2)


def test_a_score_is_the_model_s_own() -> None:
    (hypothesis,) = sample(step, Rows(), [8], SearchOptions(1), sampling=Sampling(2.0, 1), numbers=[5])
    expected = sum(math.log(P[token]) for token in (*hypothesis.tokens, *([END] if hypothesis.finished else [])))
    assert hypothesis.score == pytest.approx(expected, abs=1e-5)


def test_a_draw_depends_on_seed_and_number_alone() -> None:
    together = draw(list(range(40)), seed=3)
    assert together == [draw([number], seed=3)[0] for number in range(40)]
    assert draw([7, 3], seed=3) == [together[7], together[3]]
    assert draw(list(range(40)), seed=4) != together
    assert len(set(together)) > 10


def test_a_low_temperature_is_greedy_and_impossible_tokens_are_never_drawn() -> None:
    assert draw(list(range(5)), temperature=0.01) == [(4,) * 8] * 5
    nothing = np.full((1, 6), -math.inf)
    assert drawn(nothing, np.array([0.5]), 1.0)[0].item() == -math.inf
    almost_one = np.array([1 - 2.0**-53])
    sure = log_probs([0.0, 0.0, 0.0, 1.0, 0.0, 0.0], 1)
    assert drawn(sure, almost_one, 1.0)[1].item() == END


def test_what_comes_before_all_that_is_possible_is_not_drawn_either() -> None:
    """By a draw of 0, or of the very bound between two tokens."""
    halves = log_probs([0.5, 0.0, 0.0, 0.0, 0.25, 0.25], 2)
    assert drawn(halves, np.array([0.0, 0.5]), 1.0)[1].tolist() == [4, 5]


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, True, "a", None])
def test_temperatures_that_there_are_not(temperature: Any) -> None:
    with pytest.raises(ConfigError, match="temperature of sampling is"):
        checked(Sampling(temperature))


@pytest.mark.parametrize("sampling", [Sampling(1.0, -1), Sampling(1.0, True), Sampling(1.0, 0, 2**64 - 1)])
def test_settings_out_of_range(sampling: Sampling) -> None:
    with pytest.raises(ConfigError, match="of sampling is"):
        checked(sampling, 2)
