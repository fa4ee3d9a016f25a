"""Learn a table of positions with Soft Actor-Critic (Haarnoja et al., 2018; stable-baselines3). Can be resumed.

A work folder keeps an unfinished run: networks and replay memory at the last checkpoint, whose files `state.json`
names. They are stable-baselines3's own (a zip, and pickles), so do not resume from a folder of unknown origin.
"""

import contextlib
import importlib.metadata
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from repose.positions_rl import rewards, table
from repose.positions_rl.rewards import REWARDS
from repose.positions_rl.table import PositionTable
from repose.system.device import one_thread
from repose.system.errors import CheckpointError, ConfigError, DataError, of_extra, unknown
from repose.system.files import write_json
from repose.system.locks import locked_or_busy
from repose.system.terminal import Say

if TYPE_CHECKING:
    from stable_baselines3 import SAC
    from stable_baselines3.common.vec_env import VecEnv

NUM_ENVIRONMENTS = 16
"""Number of environments that step together. The networks are updated once for each such step."""
CHECKPOINT_STEPS = 4000
"""Environment steps between checkpoints.

At each checkpoint, every generator is seeded from (seed, steps). So a resumed run equals an uninterrupted one, and no
random state is stored.
"""
LEARNING_RATE = 1e-3
BATCH_SIZE = 256
REPLAY_SIZE = 20_000
RANDOM_STEPS = 1000
ENTROPY_WEIGHT = 0.2
"""The first temperature of automatic tuning, in standard deviations of a random table's reward."""
TARGET_ENTROPY = -4.0
"""Target entropy in nats for each number of the table (SAC's default is -1). So low that the last tables have almost no
noise."""
_STATE, _LOCK = "state.json", "lock"
ACTOR, CRITIC = [64], [256]
"""Hidden widths of the actor and of the two critics. The actor is small, because the best action does not depend on the
state."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings that determine the result, on one machine with one set of versions."""

    reward: str = "sound"
    """A name in `rewards.REWARDS`."""
    shape: tuple[int, int] = (8, 16)
    """Number of positions, and of numbers for each."""
    steps: int = 80_000
    """Environment steps; each tries one table."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.reward not in REWARDS:
            raise ConfigError(unknown("reward", self.reward, list(REWARDS)))
        if min(self.shape) < 2:
            raise ConfigError("a table needs at least 2 positions and 2 numbers for each, such as --shape 8x16")
        if self.steps < 1 or not 0 <= self.seed < 1 << 32:
            raise ConfigError(f"--steps must be at least 1 and --seed from 0 to {(1 << 32) - 1}")

    def to_json(self) -> dict[str, Any]:
        """Return the settings as the table's file and the work folder store them."""
        return {**asdict(self), "shape": list(self.shape), "sac": sac_settings(self.shape)}


def sac_settings(shape: tuple[int, int]) -> dict[str, Any]:
    """Return SAC's settings. The paper states none. Episodes have one step, so that a discount has no effect."""
    return {
        "environments": NUM_ENVIRONMENTS,
        "updates_per_environment_step": 1 / NUM_ENVIRONMENTS,
        "learning_rate": LEARNING_RATE,
        "batch_size": BATCH_SIZE,
        "replay": REPLAY_SIZE,
        "random_steps": RANDOM_STEPS,
        "entropy_weight": f"tuned, from {ENTROPY_WEIGHT}",
        "target_entropy": TARGET_ENTROPY * shape[0] * shape[1],
        "actor": ACTOR,
        "critic": CRITIC,
        "critics": 2,
        "reward_divided_by": "standard deviation over random tables",
    }


def learn(settings: Settings, out: Path, work: Path, say: Say) -> PositionTable:
    """Learn a table, write it to `out` and return it.

    The table is the policy's deterministic action in the state of zeros, the mean of the initial state. The folder
    `work` keeps what is needed to resume, and is removed at the end; call this function again to resume. If `out`
    already holds the result of the same settings, it is returned. Seeds the global random generators of Python, numpy
    and torch.

    Raises ConfigError if `out` or `work` belong to other settings or the extra `rl` is missing, and BusyError if
    another process works in `work`.
    """
    if (found := _finished(settings, out)) is not None:
        say(f"already finished: {out} was learned with these settings")
        return found
    random, spread = rewards.random_rewards(settings.shape, settings.reward)
    sinusoid = float(REWARDS[settings.reward](rewards.sinusoid(*settings.shape)))
    with of_extra("rl", "learning positions needs stable-baselines3 and gymnasium"):
        import gymnasium  # noqa: F401
        import stable_baselines3  # noqa: F401
    with working_in(work), one_thread():
        environments = _environments(settings, 1 / spread)
        sac = _resumed(work, settings, environments)
        if sac is None:
            sac = _begin(settings, environments)
        else:
            say(f"resuming after step {sac.num_timesteps:,} of {settings.steps:,}")
        while sac.num_timesteps < settings.steps:
            _advance(sac, settings)
            _save(work, settings, sac)
            score = float(REWARDS[settings.reward](deterministic_action(sac, settings.shape)))
            step = min(sac.num_timesteps, settings.steps)
            say(f"step {step:,} of {settings.steps:,}: score {score:.4f} (sinusoid {sinusoid:.4f})")
        result = _result(settings, deterministic_action(sac, settings.shape), {"random": random, "sinusoid": sinusoid})
        table.write(out, result)
        _remove_checkpoints(work)
    return result


def deterministic_action(sac: "SAC", shape: tuple[int, int]) -> Float[np.ndarray, "n d"]:
    """Return the policy's deterministic action in the state of zeros."""
    action, _ = sac.predict(np.zeros(shape[0] * shape[1], dtype=np.float32), deterministic=True)
    return action.reshape(shape).astype(np.float64)


def _begin(settings: Settings, environments: "VecEnv") -> "SAC":
    """Create SAC, before its first step."""
    from stable_baselines3 import SAC

    steps: dict[str, Any] = {"train_freq": 1, "gradient_steps": 1, "learning_rate": LEARNING_RATE}
    sizes: dict[str, Any] = {"buffer_size": REPLAY_SIZE, "learning_starts": RANDOM_STEPS, "batch_size": BATCH_SIZE}
    entropy = {"ent_coef": f"auto_{ENTROPY_WEIGHT}", "target_entropy": TARGET_ENTROPY * math.prod(settings.shape)}
    options = {**steps, **sizes, **entropy, "policy_kwargs": {"net_arch": {"pi": ACTOR, "qf": CRITIC}}}
    return SAC("MlpPolicy", environments, seed=settings.seed, device="cpu", **options)


def _environments(settings: Settings, scale: float) -> "VecEnv":
    """Create the environments. `scale` multiplies rewards, because the entropy term is relative to their size."""
    from stable_baselines3.common.vec_env import DummyVecEnv

    from repose.positions_rl.environment import TableEnvironment

    return DummyVecEnv([lambda: TableEnvironment(*settings.shape, settings.reward, scale)] * NUM_ENVIRONMENTS)


def _advance(sac: "SAC", settings: Settings) -> None:
    """Continue to the next checkpoint. The result depends only on networks, replay memory, seed and step."""
    from stable_baselines3.common.logger import Logger

    begin = sac.num_timesteps
    sac.set_random_seed(int(np.random.SeedSequence([settings.seed, begin]).generate_state(1)[0] >> 1))
    environments = sac.get_env()
    assert environments is not None, "made with its environments"
    sac.set_env(environments)  # begins new episodes, with the seeds just set
    sac.set_logger(Logger(folder=None, output_formats=[]))  # the default one creates an empty temporary folder
    sac.learn(min(CHECKPOINT_STEPS, settings.steps - begin), reset_num_timesteps=False)


def _finished(settings: Settings, out: Path) -> PositionTable | None:
    """Return the result of these settings, or None if there is no file `out`.

    Raises ConfigError if the file holds anything else.
    """
    if not out.exists():
        return None
    try:
        found = table.read(out)
    except DataError as error:
        raise ConfigError(f"{out} exists already and is not a position table: name another file with --out") from error
    if found.provenance.get("settings") != settings.to_json():
        raise ConfigError(
            f"{out} exists already and was learned with other settings: remove it, or name another file with --out"
        )
    return found


def _result(settings: Settings, action: Float[np.ndarray, "n d"], scores: dict[str, float]) -> PositionTable:
    values, score = table.rounded(action), REWARDS[settings.reward]
    oracle = rewards.oracle(settings.shape, settings.reward, settings.seed)
    scores = {**scores, "policy": float(score(values)), "oracle": float(score(oracle))}
    scores = {name: round(value, table.DECIMALS) + 0.0 for name, value in scores.items()}  # -0.0 is 0.0
    shape = "x".join(map(str, settings.shape))
    arguments = f"--reward {settings.reward} --shape {shape} --steps {settings.steps} --seed {settings.seed}"
    packages = ("repose-nmt", "stable-baselines3", "gymnasium", "torch", "numpy")
    provenance = {
        "command": f"repose positions learn {arguments}",
        "source": "arXiv 2310.10930, section 3.3; Soft Actor-Critic (Haarnoja et al., 2018)",
        "settings": settings.to_json(),
        "versions": {package: importlib.metadata.version(package) for package in packages},
        "scores": scores,
    }
    return PositionTable(values=values, reward=settings.reward, score=scores["policy"], provenance=provenance)


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Hold the work folder inside the block, for one process at a time; delete it at the end if it is empty by then.

    Raises BusyError if another process works in it, and ConfigError if it holds something else.
    """
    ours = (_LOCK, _STATE)  # the lock alone, if a process was killed early
    if folder.exists() and not any((folder / name).exists() for name in ours) and any(folder.iterdir()):
        raise ConfigError(f"{folder} holds something else: name another folder with --work")
    folder.mkdir(parents=True, exist_ok=True)
    with locked_or_busy(folder / _LOCK, f"is learning in {folder}: wait for it, or stop it"):
        yield
    if not any(folder.iterdir()):
        folder.rmdir()


def _resumed(work: Path, settings: Settings, environments: "VecEnv") -> "SAC | None":
    """Return SAC as of the last checkpoint, or None if there is none.

    Raises ConfigError if the folder belongs to other settings, and CheckpointError if it is damaged.
    """
    from stable_baselines3 import SAC

    if not (work / _STATE).exists():
        return None
    try:
        state = json.loads((work / _STATE).read_text(encoding="utf-8"))
        networks, replay, recorded = state["networks"], state["replay"], state["settings"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{work} is damaged: remove it and start again") from error
    if recorded != settings.to_json():
        raise ConfigError(f"{work} holds an unfinished run with other settings: remove it, or name another with --work")
    try:
        sac = SAC.load(work / networks, env=environments, device="cpu")
        sac.load_replay_buffer(work / replay)
    except Exception as error:  # a damaged pickle can raise any of them
        raise CheckpointError(f"{work} is damaged: remove it and start again") from error
    return sac


def _save(work: Path, settings: Settings, sac: "SAC") -> None:
    """Save a checkpoint, then delete the one before."""
    networks, replay = f"step-{sac.num_timesteps}.zip", f"step-{sac.num_timesteps}.pkl"
    sac.save(work / networks)
    sac.save_replay_buffer(work / replay)
    write_json(work / _STATE, {"networks": networks, "replay": replay, "settings": settings.to_json()})
    for old in work.glob("step-*"):
        if old.name not in (networks, replay):
            old.unlink()


def _remove_checkpoints(work: Path) -> None:
    for file in (*work.glob("step-*"), *work.glob(f"*{_STATE}*")):
        file.unlink(missing_ok=True)
