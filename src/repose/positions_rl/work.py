"""The work folder of an unfinished learning: networks and replay memory at the last checkpoint."""

import json
import pickle
import zipfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from repose.system.errors import CheckpointError, ConfigError
from repose.system.files import locked_or_busy, write_json

if TYPE_CHECKING:
    from stable_baselines3 import SAC
    from stable_baselines3.common.vec_env import VecEnv

_STATE, _LOCK = "state.json", "lock"


class WorkFolder:
    """One process at a time works in it. `state.json` names the files of the last checkpoint.

    The files are stable-baselines3's own (a zip, and pickles): a folder from a stranger should not be resumed.
    Entering raises BusyError where another process is in it, ConfigError where it belongs to other settings or holds
    something else.
    """

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._folder = folder
        self._settings = settings
        self._lock = ExitStack()

    def __enter__(self) -> "WorkFolder":
        if self._folder.exists() and not (self._folder / _LOCK).exists() and any(self._folder.iterdir()):
            raise ConfigError(f"{self._folder} holds something else: name another folder with --work")
        doing = f"is learning in {self._folder}: wait for it, or stop it"
        self._lock.enter_context(locked_or_busy(self._folder / _LOCK, doing))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.close()

    def resume(self, environments: "VecEnv") -> "SAC | None":
        """SAC as the last checkpoint left it, None where there is none.

        Raises ConfigError where the folder belongs to other settings, CheckpointError where it is damaged.
        """
        from stable_baselines3 import SAC

        if not (self._folder / _STATE).exists():
            return None
        try:
            state = json.loads((self._folder / _STATE).read_text(encoding="utf-8"))
            networks, replay, settings = state["networks"], state["replay"], state["settings"]
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{self._folder} is damaged: remove it and begin again") from error
        if settings != self._settings:
            raise ConfigError(
                f"{self._folder} holds an unfinished run with other settings: remove it, or name another with --work"
            )
        try:
            sac = SAC.load(self._folder / networks, env=environments, device="cpu")
            sac.load_replay_buffer(self._folder / replay)
        except (OSError, ValueError, KeyError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
            raise CheckpointError(f"{self._folder} is damaged: remove it and begin again") from error
        return sac

    def save(self, sac: "SAC") -> None:
        """Keep this step; the one before it goes once this one is complete."""
        networks, replay = f"step-{sac.num_timesteps}.zip", f"step-{sac.num_timesteps}.pkl"
        sac.save(self._folder / networks)
        sac.save_replay_buffer(self._folder / replay)
        write_json(self._folder / _STATE, {"networks": networks, "replay": replay, "settings": self._settings})
        for old in self._folder.glob("step-*"):
            if old.name not in (networks, replay):
                old.unlink()

    def remove(self) -> None:
        """Take away what was put here, and the folder if nothing else is in it."""
        for file in (*self._folder.glob("step-*"), *self._folder.glob(f"*{_STATE}*"), self._folder / _LOCK):
            file.unlink()
        if not any(self._folder.iterdir()):
            self._folder.rmdir()
