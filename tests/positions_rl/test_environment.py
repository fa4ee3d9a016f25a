"""The environment has the interface that reinforcement learning libraries expect."""

import warnings

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")
stable_baselines3 = pytest.importorskip("stable_baselines3")

from repose.positions_rl.environment import TableEnvironment  # noqa: E402
from repose.positions_rl.rewards import REWARDS  # noqa: E402

BOTH = pytest.mark.parametrize("shape", [(8, 16), (16, 8)])


@BOTH
@pytest.mark.parametrize("reward", REWARDS)
def test_gymnasium_has_nothing_to_say(shape: tuple[int, int], reward: str) -> None:
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(TableEnvironment(*shape, reward), skip_render_check=True)  # nothing is drawn


@BOTH
@pytest.mark.parametrize("reward", REWARDS)
def test_stable_baselines_has_nothing_to_say(shape: tuple[int, int], reward: str) -> None:
    from stable_baselines3.common.env_checker import check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(TableEnvironment(*shape, reward), warn=True)


def test_a_step_assigns_the_table_and_ends_the_episode() -> None:
    environment = TableEnvironment(4, 3, "sound")
    action = environment.action_space.sample()
    _, _ = environment.reset(seed=5)
    state, reward, terminated, truncated, _ = environment.step(action)
    np.testing.assert_array_equal(state, action)
    assert reward == pytest.approx(REWARDS["sound"](action.reshape(4, 3).astype(np.float64)), abs=1e-12)
    assert terminated
    assert not truncated


def test_episodes_begin_at_tables_over_the_whole_box() -> None:
    environment = TableEnvironment(8, 16, "literal")
    first, _ = environment.reset(seed=1)
    again, _ = environment.reset(seed=1)
    np.testing.assert_array_equal(first, again)
    other, _ = environment.reset()
    assert not np.array_equal(first, other)
    assert first.min() < -0.9
    assert first.max() > 0.9
