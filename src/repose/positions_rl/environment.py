"""The environment in which an agent learns a table of positions: it assigns all numbers, and gets one reward."""

from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from repose.positions_rl.rewards import REWARDS


class TableEnvironment(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """A gymnasium environment whose state is a small table of positions (arXiv 2310.10930, 3.3).

    An action is "the assignment of scores between -1 to +1 to each element of" the table.

        observation   the present table, row after row; at first uniform in [-1, 1]
        action        the next table
        reward        the reward of the next table, times `scale`
        episode       one step. Any assignment reaches every table from every other one, so that a longer episode would
                      only repeat the question

    Differs from the paper, which states no initial table, episode length or discount.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  (gymnasium's own form)

    def __init__(self, num_positions: int = 8, width: int = 16, reward: str = "sound", scale: float = 1.0) -> None:
        self.shape = (num_positions, width)
        self._reward, self._scale = REWARDS[reward], scale
        box = gymnasium.spaces.Box(-1.0, 1.0, (num_positions * width,), np.float32)
        self.observation_space = self.action_space = box

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " n_d"], dict[str, Any]]:
        """Return a random table."""
        super().reset(seed=seed, options=options)
        table = self.np_random.uniform(-1.0, 1.0, self.shape[0] * self.shape[1])
        return table.astype(np.float32), {}

    def step(
        self, action: Float[np.ndarray, " n_d"]
    ) -> tuple[Float[np.ndarray, " n_d"], float, bool, bool, dict[str, Any]]:
        """Return the assigned table and its reward, and end the episode."""
        table = np.clip(action, -1.0, 1.0).astype(np.float32)
        reward = float(self._reward(table.reshape(self.shape).astype(np.float64)))
        return table, reward * self._scale, True, False, {}
