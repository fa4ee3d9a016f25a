"""Rewards of a table: the printed equation in loops, and the maximum of each reward."""

import itertools
import math

import numpy as np
import pytest
import torch

from repose.positions_rl import rewards
from repose.positions_rl.rewards import REWARDS, best_literal, literal, sound

SHAPES = [(8, 16), (16, 8), (2, 2), (5, 3)]


def random_tables(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).uniform(-1, 1, shape)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def half_circle(num_positions: int, width: int) -> np.ndarray:
    angles = np.pi * np.arange(num_positions) / (num_positions - 1)
    table = np.zeros((num_positions, width))
    table[:, 0], table[:, 1] = np.cos(angles), np.sin(angles)
    return table


@pytest.mark.parametrize("shape", SHAPES)
def test_literal_is_equation_7_in_loops(shape: tuple[int, int]) -> None:
    table = random_tables(*shape)
    total = 0.0
    for i in range(shape[0]):
        for j in range(i + 1, shape[0]):
            total += sum(table[i, k] * table[j, k] for k in range(shape[1])) / (j - i)
    assert literal(table) == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_sound_in_loops(shape: tuple[int, int]) -> None:
    table, n = random_tables(*shape), shape[0]
    errors = [
        (cosine(table[i], table[j]) - math.cos(math.pi * (j - i) / (n - 1))) ** 2
        for i in range(n)
        for j in range(i + 1, n)
    ]
    assert sound(table) == pytest.approx(-sum(errors) / len(errors), abs=1e-12)


@pytest.mark.parametrize("name", REWARDS)
def test_many_tables_at_once(name: str) -> None:
    tables = random_tables(3, 4, 5, 6)
    values = REWARDS[name](tables)
    assert values.shape == (3, 4)
    assert values[2, 1] == pytest.approx(REWARDS[name](tables[2, 1]), abs=1e-12)


@pytest.mark.parametrize("name", REWARDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_gradient_oracle_climbs_the_same_reward(name: str, shape: tuple[int, int]) -> None:
    table = random_tables(*shape)
    climbed = rewards.differentiable(torch.from_numpy(table), name).item()
    assert climbed == pytest.approx(REWARDS[name](table), abs=1e-10)


@pytest.mark.parametrize("n", [8, 16])
def test_the_literal_reward_is_greatest_where_all_positions_are_equal(n: int) -> None:
    """It splits into columns, and a column x is worth x^T W x with W >= 0 and no diagonal: linear in each number. So a
    maximum over [-1, 1] is a vertex that no single flip improves. Of the 2^n only the two constant ones are such.
    """
    weights = np.array([[0.0 if i == j else 1 / abs(i - j) for j in range(n)] for i in range(n)])
    vertices = np.array(list(itertools.product([-1.0, 1.0], repeat=n)))
    pull = vertices * (vertices @ weights)  # < 0: flipping this number improves the column
    maxima = vertices[(pull >= 0).all(axis=1)]
    assert sorted(map(tuple, maxima)) == [(-1.0,) * n, (1.0,) * n]
    assert literal(vertices[:, :, None]).max() == pytest.approx(best_literal(n, 1), abs=1e-12)


def test_the_best_literal_tables_of_the_paper_sizes() -> None:
    assert best_literal(8, 16) == pytest.approx(219.89, abs=0.005)
    assert best_literal(16, 8) == pytest.approx(304.73, abs=0.005)
    signs = np.where(random_tables(8) > 0, 1.0, -1.0)
    assert literal(np.tile(signs, (16, 1))) == pytest.approx(best_literal(16, 8), abs=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_sound_reward_reaches_0_with_positions_that_differ(shape: tuple[int, int]) -> None:
    table = half_circle(*shape)
    assert sound(table) == pytest.approx(0.0, abs=1e-12)
    assert np.linalg.norm(table[:, None] - table[None], axis=-1)[np.triu_indices(shape[0], 1)].min() > 0.1
    assert sound(table * 0.3) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("shape", "score"), [((16, 8), -0.85), ((8, 16), -1.04)])
def test_equal_positions_are_worth_little_to_the_sound_reward(shape: tuple[int, int], score: float) -> None:
    assert sound(np.ones(shape)) == pytest.approx(score, abs=0.005)


def test_the_cosine_with_a_row_of_zeros_is_0() -> None:
    table = half_circle(3, 2)  # wanted cosines: 0 between neighbours, -1 between the ends
    table[2] = 0.0
    assert sound(table) == pytest.approx(-1 / 3, abs=1e-12)
    assert sound(np.zeros((3, 2))) == pytest.approx(-1 / 3, abs=1e-12)


@pytest.mark.parametrize("shape", [(8, 16), (16, 8)])
def test_gradient_ascent_solves_the_sound_reward(shape: tuple[int, int]) -> None:
    table = rewards.oracle(shape, "sound")
    assert sound(table) > -0.02
    assert table.std(axis=0).max() > 0.5


def test_gradient_ascent_on_the_literal_reward_makes_positions_equal() -> None:
    table = rewards.oracle((8, 4), "literal")
    assert literal(table) == pytest.approx(best_literal(8, 4), rel=1e-3)
    assert table.std(axis=0).max() < 0.01


@pytest.mark.parametrize(
    ("shape", "name", "score"),
    [((16, 8), "literal", 112.29), ((8, 16), "literal", 92.97), ((16, 8), "sound", -0.50), ((8, 16), "sound", -0.69)],
)
def test_the_sinusoid(shape: tuple[int, int], name: str, score: float) -> None:
    assert REWARDS[name](rewards.sinusoid(*shape)) == pytest.approx(score, abs=0.005)
