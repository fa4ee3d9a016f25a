"""Checkpoints to resume a training from. A complete one is always on disk, whenever the process is killed.

    state/last.safetensors              parameters, buffers and both of Adam's moments, with `State` in the header
    state/weights-00001234.safetensors  parameters and buffers alone, of validations that the model is averaged from

Both carry checksums of their content. Reading them executes nothing (no pickle).
"""

import contextlib
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from repose.config.run_id import id_of_numbers
from repose.saved_run.folder import RunFolder
from repose.system.errors import CheckpointError, WriteError
from repose.system.files import remove_half_written, replacing_file
from repose.training.clock import Clock
from repose.training.job import TrainingJob
from repose.training.journal import Journal
from repose.training.learner import Learner
from repose.training.state import State

FORMAT = "repose training state 2"


def save(path: Path, tensors: Mapping[str, Tensor], state: State) -> None:
    """Write a checkpoint and flush it to disk before it replaces the previous one.

    Raises WriteError if the disk is full or not writable; the previous checkpoint then stays.
    """
    contents = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text, checksum = state.to_json(), 0
    for name in sorted(contents):
        checksum = _add_to_checksum(checksum, name, contents[name])
    checksums = {"state_crc32": f"{_checksum_of(text):08x}", "tensors_crc32": f"{checksum:08x}"}
    metadata = {"format": FORMAT, "state": text, **checksums}
    try:
        with replacing_file(path, durable=True) as temporary:
            save_file(contents, temporary, metadata)
    except (WriteError, SafetensorError) as error:
        why = error if isinstance(error, WriteError) else f"{path} cannot be written: free disk space"
        raise WriteError(f"{why}; the same command then goes on from the last whole checkpoint") from error


def _checksum_of(text: str) -> int:
    return zlib.crc32(text.encode())


def _add_to_checksum(value: int, name: str, tensor: Tensor) -> int:
    """Update a CRC-32 with a tensor's name and content. It detects damage, as a cryptographic digest would, but takes
    only a fraction of the time that writing does."""
    value = zlib.crc32(name.encode(), value)
    return zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, value)


def read_state(path: Path, run_id: str) -> State:
    """Read a checkpoint's state without its tensors; if there is no checkpoint, return the initial state.

    Raises CheckpointError if it is damaged or belongs to another run.
    """
    if not path.exists():
        return State(run_id, workers=0, threads=0)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        if metadata.get("format") != FORMAT:
            raise CheckpointError(f"{path} is not a checkpoint of this version: train in a new run directory")
        text = metadata["state"]
        if int(metadata["state_crc32"], 16) != _checksum_of(text):
            raise _damaged(path)
        state = State.from_json(text)
    except CheckpointError:
        raise
    except (OSError, SafetensorError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise _damaged(path) from error
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
            metadata, names, checksum = file.metadata() or {}, sorted(file.keys()), 0
            for name, target in tensors.items():
                if name not in names or tuple(file.get_slice(name).get_shape()) != tuple(target.shape):
                    raise CheckpointError(
                        f"{path} belongs to another architecture, its tensor {name!r} is missing or of another shape: "
                        "train in a new run directory"
                    )
            for name in names:
                tensor = file.get_tensor(name)
                checksum = _add_to_checksum(checksum, name, tensor)
                if name in tensors:
                    with torch.no_grad():
                        tensors[name].copy_(tensor)
        if int(metadata["tensors_crc32"], 16) != checksum:
            raise _damaged(path)
    except CheckpointError:
        raise
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise _damaged(path) from error


def _damaged(path: Path) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint {path} is damaged: restore it, or remove the folder {path.parent} (an unfinished "
        "training then starts again, and a finished one does not need it)"
    )


def snapshot(run: RunFolder, update: int) -> Path:
    """Return the path of a validation's weights."""
    return run.state / f"weights-{update:08d}.safetensors"


def _load_average(paths: Sequence[Path], tensors: Mapping[str, Tensor]) -> None:
    """Copy the mean of several snapshots into these tensors; summed in double precision."""
    sums = {name: torch.zeros_like(tensor, dtype=torch.float64, device="cpu") for name, tensor in tensors.items()}
    one = {name: torch.empty_like(tensor, device="cpu") for name, tensor in tensors.items()}
    for path in paths:
        load(path, one)
        for name, tensor in one.items():
            sums[name] += tensor
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(sums[name] / len(paths))


def prune(run: RunFolder, updates: Iterable[int]) -> None:
    """Remove all snapshots but those of these validations, and leftovers of interrupted saves."""
    wanted = {snapshot(run, update) for update in updates}
    for path in run.state.glob("weights-*.safetensors"):
        if path not in wanted:
            path.unlink(missing_ok=True)
    remove_half_written(run.state)


class CheckpointWriter:
    """Writes checkpoints, the snapshots for averaging, and the model directory; only on the first worker."""

    def __init__(
        self, job: TrainingJob, run: RunFolder, learner: Learner, state: State, clock: Clock, journal: Journal
    ) -> None:
        self._job, self._run, self._learner, self._state, self._clock = job, run, learner, state, clock
        self.journal = journal
        self._saved = time.monotonic()
        # True if the model may differ from the current weights, so that earlier weights must be kept.
        self._needs_snapshots = job.training.keep == "best" or job.training.average_checkpoints > 1

    @property
    def is_due(self) -> bool:
        """True if it is time for the next checkpoint."""
        return time.monotonic() - self._saved > 60 * self._job.training.save_every_minutes

    def save(self) -> None:
        """Write a checkpoint, then remove snapshots that it no longer lists."""
        state = self._state
        state.seconds = self._clock.seconds
        state.metrics_bytes, state.metrics_crc32 = self.journal.sync()
        save(self._run.checkpoint, self._learner.tensors(), state)
        prune(self._run, state.snapshot_updates)
        self._saved = time.monotonic()

    def save_snapshot(self) -> None:
        """Save the current weights as a snapshot, unless they are the model themselves."""
        if self._needs_snapshots:
            save(snapshot(self._run, self._state.update), self._learner.model_tensors(), self._state)

    @contextlib.contextmanager
    def weights_of_model(self) -> Iterator[None]:
        """Within this context, the learner has the model's weights: the current ones, or the mean of the snapshots."""
        if not self._needs_snapshots:
            yield
            return
        tensors = self._learner.model_tensors()
        present = {name: tensor.clone() for name, tensor in tensors.items()}
        try:
            _load_average([snapshot(self._run, update) for update in self._state.snapshot_updates], tensors)
            yield
        finally:
            with torch.no_grad():
                for name, tensor in present.items():
                    tensors[name].copy_(tensor)

    def write_model(self, *, is_measured: bool = True) -> None:
        """Write model/, with the state's figures if they were measured with its weights."""
        job, state = self._job, self._state
        found: dict[str, Any] = {"updates": state.snapshot_updates}
        if is_measured:
            found["validation"] = state.validation
        extra = {**job.model_extra, "run_id": id_of_numbers(job.run_id, state.all_workers), **found}
        with self.weights_of_model():
            self._learner.task.write(self._run.model, self._learner.model, job, extra)
