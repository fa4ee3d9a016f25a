"""Checkpoints: one safetensors file each, replaced in one step, so that a kill at any moment leaves a whole one.

    state/last.safetensors            parameters, buffers and both of Adam's moments, with `State` as JSON in the header
    state/weights-00001234.safetensors  parameters and buffers alone, of validations that the model is averaged from

Reading executes nothing (no pickle).
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from repose.system.errors import CheckpointError
from repose.training.state import State

FORMAT = "repose training state 1"


def save(path: Path, tensors: Mapping[str, Tensor], state: State) -> None:
    """Write a checkpoint and have it on disk before it takes the place of the one before.

    Raises CheckpointError where the disk is full or not writable; the checkpoint before then stays.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        contents = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(contents, temporary, {"format": FORMAT, "state": state.to_json()})
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        why = error.strerror if isinstance(error, OSError) else error
        raise CheckpointError(
            f"the checkpoint {path} cannot be written ({why}): free disk space and run the same command again, "
            "training then goes on from the last whole checkpoint"
        ) from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_state(path: Path, run_id: str) -> State:
    """A checkpoint's state without its tensors. Raises CheckpointError if it is damaged or of another run."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        if metadata.get("format") != FORMAT:
            raise CheckpointError(f"{path} is no checkpoint of this version: train in a new run directory")
        state = State.from_json(metadata["state"])
    except (OSError, SafetensorError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, error) from error
    except CheckpointError:
        raise
    except ValueError as error:
        raise _damaged(path, error) from error
    if state.run_id != run_id:
        raise CheckpointError(
            f"{path} belongs to run {state.run_id}, not to {run_id}, whose data or settings differ: "
            "train in a new run directory"
        )
    return state


def load(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Copy a checkpoint's tensors into these. Raises CheckpointError if it is damaged or has other tensors."""
    try:
        with safe_open(path, framework="pt") as file:
            found = set(file.keys())
            for name, target in tensors.items():
                if name not in found or tuple(file.get_slice(name).get_shape()) != tuple(target.shape):
                    raise CheckpointError(
                        f"{path} belongs to another architecture, its tensor {name!r} is missing or of another shape: "
                        "train in a new run directory"
                    )
                with torch.no_grad():
                    target.copy_(file.get_tensor(name))
    except (OSError, SafetensorError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"the checkpoint {path} is damaged ({error}): remove it to train from the beginning")


def snapshot(folder: Path, update: int) -> Path:
    """Where the weights of a validation are kept."""
    return folder / f"weights-{update:08d}.safetensors"


def load_average(paths: Iterable[Path], tensors: Mapping[str, Tensor]) -> None:
    """Copy the mean of several snapshots' tensors into these; sums are in double precision."""
    files = list(paths)
    sums = {name: torch.zeros_like(tensor, dtype=torch.float64, device="cpu") for name, tensor in tensors.items()}
    one = {name: torch.empty_like(tensor, device="cpu") for name, tensor in tensors.items()}
    for path in files:
        load(path, one)
        for name, tensor in one.items():
            sums[name] += tensor
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(sums[name] / len(files))


def prune(folder: Path, updates: Iterable[int]) -> None:
    """Remove the snapshots of other validations than these, and what an interrupted save left."""
    wanted = {snapshot(folder, update) for update in updates}
    for path in [*folder.glob("weights-*.safetensors"), *folder.glob("*.tmp")]:
        if path not in wanted:
            path.unlink(missing_ok=True)
