"""Rewards of position tables, and the tables that a learned one is compared with.

There are two rewards: the paper's, and one whose optimum distinguishes positions. The baselines are random tables, the
sinusoid, and plain gradient ascent.
"""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

if TYPE_CHECKING:
    from torch import Tensor

NUM_RANDOM_TABLES = 2000
ASCENT_STEPS = 2000
ASCENT_LEARNING_RATE = 0.03

Reward = Callable[[Float[np.ndarray, "... n d"]], Any]
"""A score of tables: a number for one table, an array of numbers for several."""


def pairs(num_positions: int) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """Return all pairs of positions i < j, and their distances j - i."""
    first, second = np.triu_indices(num_positions, 1)
    return first, second, second - first


def literal(table: Float[np.ndarray, "... n d"]) -> Any:
    """The paper's reward: sum over i < j of (p_i . p_j) / |i - j| (arXiv 2310.10930 eq. (7), summed over every pair).

    Each column contributes x^T W x with W >= 0. Over numbers in [-1, 1], this is greatest if every column is all 1 or
    all -1. So the best table gives every position the same encoding (`best_literal`; docs/decisions/013).
    """
    first, second, distance = pairs(table.shape[-2])
    products = (table @ np.swapaxes(table, -1, -2))[..., first, second]
    return (products / distance).sum(axis=-1)


def best_literal(num_positions: int, width: int) -> float:
    """Return the greatest value of `literal` over numbers in [-1, 1]: the value of a table of ones."""
    return float(width * (1.0 / pairs(num_positions)[2]).sum())


def sound(table: Float[np.ndarray, "... n d"]) -> Any:
    """The default reward: - mean over i < j of (cos(p_i, p_j) - cos(pi |i - j| / (n - 1)))^2, at most 0.

    It rewards what the paper describes in words: encodings are similar for near positions and different for far ones.
    The target cosines are those of n points on half a circle. Any table of two columns or more can reach 0: p_i =
    (cos(pi i / (n - 1)), sin(pi i / (n - 1)), 0, ...). Only directions count, not lengths. The cosine with a row of
    zeros is undefined; here it is 0.

    Differs from the paper: its eq. (7) is `literal`.
    """
    num_positions = table.shape[-2]
    first, second, distance = pairs(num_positions)
    length = np.linalg.norm(table, axis=-1, keepdims=True)
    direction = np.divide(table, length, out=np.zeros_like(table, dtype=np.float64), where=length > 0)
    cosine = (direction @ np.swapaxes(direction, -1, -2))[..., first, second]
    return -((cosine - np.cos(np.pi * distance / (num_positions - 1))) ** 2).mean(axis=-1)


REWARDS: Mapping[str, Reward] = {"sound": sound, "literal": literal}
"""The rewards, by the names that the command line and the table's file use."""


def random_rewards(shape: tuple[int, int], reward: str) -> tuple[float, float]:
    """Return mean and standard deviation of the reward over tables uniform in [-1, 1], where episodes start."""
    tables = np.random.default_rng(0).uniform(-1.0, 1.0, (NUM_RANDOM_TABLES, *shape))
    values = REWARDS[reward](tables)
    return float(values.mean()), float(values.std())


def sinusoid(num_positions: int, width: int) -> Float[np.ndarray, "n d"]:
    """Return the encoding of Vaswani et al. 3.5 in this size. Rewards do not depend on the order of its columns."""
    from repose.model.positions import sinusoids

    return sinusoids("interleaved", num_positions, width).double().numpy()


def oracle(shape: tuple[int, int], reward: str, seed: int = 0) -> Float[np.ndarray, "n d"]:
    """Return the table at which gradient ascent on the reward ends: Adam on x with table = tanh(x).

    It uses the reward's gradient, which the agent does not know, so its score is an upper bound for the agent.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    x = torch.empty(shape, dtype=torch.float64).uniform_(-1.0, 1.0, generator=generator).requires_grad_()
    adam = torch.optim.Adam([x], lr=ASCENT_LEARNING_RATE)
    for _ in range(ASCENT_STEPS):
        adam.zero_grad()
        (-differentiable(x.tanh(), reward)).backward()
        adam.step()
    return x.detach().tanh().numpy()


def differentiable(table: "Float[Tensor, 'n d']", reward: str) -> "Float[Tensor, '']":
    """Compute `literal` or `sound` in torch, with gradients."""
    import torch

    first, second, distance = map(torch.from_numpy, pairs(table.shape[0]))
    distance = distance.to(table.dtype)
    match reward:
        case "literal":
            return ((table @ table.T)[first, second] / distance).sum()
        case "sound":
            direction = torch.nn.functional.normalize(table, dim=1)
            wanted = torch.cos(math.pi * distance / (table.shape[0] - 1))
            return -((direction @ direction.T)[first, second] - wanted).square().mean()
        case _:
            raise AssertionError(f"{reward} is not a reward")
