"""What a learned table is measured against: random ones, the sinusoid, and plain gradient ascent."""

import math
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from repose.positions_rl.rewards import REWARDS, pairs

if TYPE_CHECKING:
    from torch import Tensor

NUM_RANDOM_TABLES = 2000
ASCENT_STEPS = 2000
ASCENT_LEARNING_RATE = 0.03


def random_rewards(shape: tuple[int, int], reward: str, seed: int = 0) -> tuple[float, float]:
    """Mean and standard deviation of the reward over tables uniform in [-1, 1], where an episode starts."""
    tables = np.random.default_rng(seed).uniform(-1.0, 1.0, (NUM_RANDOM_TABLES, *shape))
    values = REWARDS[reward](tables)
    return float(values.mean()), float(values.std())


def sinusoid(num_positions: int, width: int) -> Float[np.ndarray, "n d"]:
    """The encoding of Vaswani et al. 3.5 at that size; rewards do not see the order of its columns."""
    from repose.model.positions import sinusoids

    return sinusoids("interleaved", num_positions, width).double().numpy()


def oracle(shape: tuple[int, int], reward: str, seed: int = 0) -> Float[np.ndarray, "n d"]:
    """The table that gradient ascent on the reward itself ends at: Adam on x with table = tanh(x).

    It is told the reward's gradient, which the agent must learn from rewards: an upper mark for the agent.
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
    """`rewards.literal` or `rewards.sound`, in torch."""
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
            raise AssertionError(f"{reward} is no reward")
