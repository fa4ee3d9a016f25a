"""What a run directory says of itself."""

import json
import math
from pathlib import Path
from typing import Any

from repose.config.experiment import Experiment
from repose.config.file import from_json
from repose.saved_model import directory as model_dir
from repose.system.errors import CheckpointError


def read_run(folder: Path) -> tuple[Experiment, dict[str, Any]]:
    """The experiment and the whole config.json of a run directory. Raises CheckpointError where there is none."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        experiment = from_json(json.dumps(config["experiment"]), str(path))
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder} is no run directory: it has no config.json") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged or no run's: restore it, or choose another directory") from error
    return experiment, config


def read_task(folder: Path) -> str:
    """The task of a run or model directory's model. Raises CheckpointError."""
    return model_dir.task_of(model_dir.read_config(folder))


def num_parameters(folder: Path) -> int | None:
    """Numbers in the weights of a run directory's model, tied ones once, by the head of their file (the format is that
    of https://github.com/huggingface/safetensors); None where there is none that can be read."""
    try:
        with (folder / "model" / model_dir.WEIGHTS).open("rb") as file:
            head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        return sum(math.prod(tensor["shape"]) for name, tensor in head.items() if name != "__metadata__")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
