"""What resuming a training needs, on disk: always a whole checkpoint, whenever the process is killed.

    state/last.safetensors              parameters, buffers and both of Adam's moments, with `State` in the header
    state/weights-00001234.safetensors  parameters and buffers alone, of validations that the model is averaged from

Both carry checksums of their content. Reading them executes nothing (no pickle).
"""

import contextlib
import dataclasses
import json
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from repose.config.experiment import Keep
from repose.config.run_id import id_of_numbers
from repose.runs.folder import RunFolder
from repose.runs.records import EndReason
from repose.system.errors import CheckpointError, WriteError
from repose.system.files import remove_half_written, replacing_file
from repose.training.job import TrainingJob
from repose.training.journal import Journal
from repose.training.learner import Learner
from repose.training.schedule import Plateau

FORMAT = "repose training state 2"


@dataclasses.dataclass
class Sums:
    """Running sums of the training loss, in nats, with dropout on and the weights changing underneath."""

    loss: float = 0.0
    nll: float = 0.0
    correct: float = 0.0
    tokens: int = 0
    weighted_loss: float = 0.0
    """Σ over batches of (sentences · mean loss of the batch)."""
    weighted_nll: float = 0.0
    sentences: int = 0

    def add(self, loss: float, nll: float, correct: float, weighted_loss: float, weighted_nll: float) -> None:
        """Add workers' figures (`Learner.sums`)."""
        self.loss += loss
        self.nll += nll
        self.correct += correct
        self.weighted_loss += weighted_loss
        self.weighted_nll += weighted_nll

    def means(self) -> dict[str, float]:
        """`loss`, `nll`, `tf_accuracy` per token; `*_keras`: the batches' means, weighted by their sentences.

        Keras reports the latter; a token in a batch of short sentences then counts more.
        """
        return {
            "loss": self.loss / self.tokens,
            "loss_keras": self.weighted_loss / self.sentences,
            "nll": self.nll / self.tokens,
            "nll_keras": self.weighted_nll / self.sentences,
            "tf_accuracy": self.correct / self.tokens,
        }


@dataclasses.dataclass
class State:
    """Where a training stands, apart from its tensors: plain numbers that go through JSON and back unchanged."""

    run_id: str
    workers: int
    """Processes that share the batches out; another number draws other dropout masks."""
    threads: int
    """Threads of each worker, on a CPU."""
    all_workers: tuple[int, ...] = ()
    """Every number of workers that the training has had, in order."""
    device: str = ""
    """The kind of device that the workers are on, cpu or cuda; "" before there are any."""
    update: int = 0
    """Optimizer steps taken."""
    epoch: int = 0
    """Whole passes over the training pairs."""
    batch: int = 0
    """Batches of the next pass that are already used."""
    tokens: int = 0
    """Target tokens learnt from."""
    seconds: float = 0.0
    """Wall-clock time, summed over resumes."""
    epoch_sums: Sums = dataclasses.field(default_factory=Sums)
    window_sums: Sums = dataclasses.field(default_factory=Sums)
    """Since the last line of metrics.jsonl about training."""
    validated: int = 0
    """Updates at the last validation."""
    translated: int = 0
    """Whole epochs at the last validation that translated, too."""
    validation: dict[str, float] = dataclasses.field(default_factory=dict)
    """The last validation's figures; once the training is over, the model's."""
    of_model: dict[str, float] = dataclasses.field(default_factory=dict)
    """Those of the validation whose weights are the model; none while it is the mean of several."""
    plateau: Plateau = dataclasses.field(default_factory=Plateau)
    """For the learning rate."""
    patience: Plateau = dataclasses.field(default_factory=Plateau)
    """For stopping early."""
    snapshots: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    """Validations whose weights the model is made of: updates, and what `Plateau` calls a cost."""
    metrics_bytes: int = 0
    """Length of metrics.jsonl; what follows was written after the checkpoint."""
    metrics_crc32: int = 0
    """Checksum of those bytes."""
    done: EndReason | None = None
    """Why the training is over, once it is."""

    def share_out(self, workers: int, threads: int) -> None:
        """Go on with so many workers of so many threads each."""
        if self.update == 0:
            self.all_workers = (workers,)
        elif workers != self.workers:
            self.all_workers += (workers,)
        self.workers, self.threads = workers, threads

    @property
    def snapshot_updates(self) -> list[int]:
        return [update for update, _ in self.snapshots]

    def add_snapshot(self, cost: float, *, keep: Keep, number: int) -> bool:
        """Enter the validation of the present weights, and leave the `number` that the model is made of: the last
        ones, or those of the lowest costs (of equal ones the earlier). Returns whether this one is among them."""
        self.snapshots.append((self.update, cost))
        if keep == "best":
            self.snapshots.sort(key=lambda snapshot: snapshot[1])
            del self.snapshots[number:]
        else:
            del self.snapshots[:-number]
        return (self.update, cost) in self.snapshots

    def to_json(self) -> str:
        """One line; floats keep every bit."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "State":
        """The inverse of `to_json`. Raises ValueError, TypeError or KeyError for anything else."""
        return _STATE.validate_python(json.loads(text))


_STATE = TypeAdapter(State)


def save(path: Path, tensors: Mapping[str, Tensor], state: State) -> None:
    """Write a checkpoint and have it on disk before it takes the place of the one before.

    Raises WriteError where the disk is full or not writable; the checkpoint before then stays.
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
    """CRC-32 of names and content: it finds damage as a cryptographic digest would, in a fraction of the time that
    writing takes."""
    value = zlib.crc32(name.encode(), value)
    return zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, value)


def read_state(path: Path, run_id: str) -> State:
    """A checkpoint's state without its tensors, or that of the beginning where there is none.

    Raises CheckpointError if it is damaged or of another run.
    """
    if not path.exists():
        return State(run_id, workers=0, threads=0)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        if metadata.get("format") != FORMAT:
            raise CheckpointError(f"{path} is no checkpoint of this version: train in a new run directory")
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
        f"the checkpoint {path} is damaged: restore it, or remove the folder {path.parent} (a training that is not "
        "finished then begins anew, and a finished one does not need it)"
    )


def snapshot(run: RunFolder, update: int) -> Path:
    """File of the weights of a validation."""
    return run.state / f"weights-{update:08d}.safetensors"


def _load_average(paths: Iterable[Path], tensors: Mapping[str, Tensor]) -> None:
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


def prune(run: RunFolder, updates: Iterable[int]) -> None:
    """Remove the snapshots of other validations than these, and what an interrupted save left."""
    wanted = {snapshot(run, update) for update in updates}
    for path in run.state.glob("weights-*.safetensors"):
        if path not in wanted:
            path.unlink(missing_ok=True)
    remove_half_written(run.state)


class CheckpointWriter:
    """Writes checkpoints, the snapshots that the model needs, and the model directory; the first worker has one."""

    def __init__(self, job: TrainingJob, run: RunFolder, learner: Learner, state: State, journal: Journal) -> None:
        self._job, self._run, self._learner, self._state, self.journal = job, run, learner, state, journal
        self._started = time.monotonic() - state.seconds
        self._saved = time.monotonic()
        # Whether the model can be other than the present weights, so that earlier ones must be kept.
        self._needs_snapshots = job.training.keep == "best" or job.training.average_checkpoints > 1

    @property
    def seconds(self) -> float:
        """Wall-clock time of the training so far, summed over resumes."""
        return time.monotonic() - self._started

    @property
    def is_due(self) -> bool:
        """Whether the last checkpoint is old."""
        return time.monotonic() - self._saved > 60 * self._job.training.save_every_minutes

    def save(self) -> None:
        """Write the checkpoint, then drop the weights that it no longer names."""
        state = self._state
        state.seconds = self.seconds
        state.metrics_bytes, state.metrics_crc32 = self.journal.sync()
        save(self._run.checkpoint, self._learner.tensors(), state)
        prune(self._run, state.snapshot_updates)
        self._saved = time.monotonic()

    def save_snapshot(self) -> None:
        """Keep the present weights for the model, where they are not the model themselves."""
        if self._needs_snapshots:
            save(snapshot(self._run, self._state.update), self._learner.model_tensors(), self._state)

    @contextlib.contextmanager
    def weights_of_model(self) -> Iterator[None]:
        """Within, the learner has the weights that the model is made of: the present ones, or the mean of the
        snapshots."""
        updates, tensors = self._state.snapshot_updates, self._learner.model_tensors()
        averages = self._needs_snapshots and bool(updates)
        present = {name: tensor.clone() for name, tensor in tensors.items()} if averages else {}
        try:
            if averages:
                _load_average([snapshot(self._run, update) for update in updates], tensors)
            yield
        finally:
            with torch.no_grad():
                for name, tensor in present.items():
                    tensors[name].copy_(tensor)

    def write_model(self, *, is_measured: bool = True) -> None:
        """Write model/, with the figures of the state where these are of its weights."""
        job, state = self._job, self._state
        found: dict[str, Any] = {"updates": state.snapshot_updates or [state.update]}
        if is_measured:
            found["validation"] = state.validation
        extra = {**job.model_extra, "run_id": id_of_numbers(job.run_id, state.all_workers), **found}
        with self.weights_of_model():
            self._learner.task.write(self._run.model, self._learner.model, job, extra)
