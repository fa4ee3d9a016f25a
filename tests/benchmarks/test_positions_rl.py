"""The figures behind results/positions/scores.json."""

import numpy as np
import pytest

import positions_rl
from repose.positions_rl.rewards import literal


@pytest.mark.parametrize(("shape", "means", "sampled"), [((8, 16), 37.41, 18.99), ((16, 8), 45.59, 28.92)])
def test_sinusoids_scaled_down(shape: tuple[int, int], means: float, sampled: float) -> None:
    found = positions_rl.contestants(shape, {}, 0)
    assert literal(found["sinusoid, means of 32 x 32"][0]) == pytest.approx(means, abs=0.005)
    assert literal(found["sinusoid, every 32nd"][0]) == pytest.approx(sampled, abs=0.005)


def test_rank_correlation_shares_the_ranks_of_equal_values() -> None:
    assert positions_rl.rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([9.0, 4.0, 1.0])) == pytest.approx(-1)
    assert positions_rl.rank_correlation(np.array([1.0, 1.0, 2.0]), np.array([5.0, 5.0, 7.0])) == pytest.approx(1)
    assert positions_rl.rank_correlation(np.ones(3), np.arange(3.0)) == 0


def test_figures_of_positions_on_half_a_circle() -> None:
    angles = np.linspace(0, np.pi, 5)
    found = positions_rl.shape_figures(np.stack([np.cos(angles), np.sin(angles)], axis=1))
    assert found["cosine_of_neighbours"] == pytest.approx(np.cos(np.pi / 4))
    assert found["rank_correlation_of_cosine_and_distance"] == pytest.approx(-1)
    assert found["mean_step"] == pytest.approx(2 * np.sin(np.pi / 8))
    assert found["nearest_two_rows"] == pytest.approx(2 * np.sin(np.pi / 8))
