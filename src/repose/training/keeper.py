"""What a training leaves in its run directory besides words: the checkpoint, the weights it may need, and model/."""

import time
from pathlib import Path

import torch

from repose.training import checkpoint
from repose.training.job import TrainingJob
from repose.training.journal import Journal
from repose.training.learner import Learner
from repose.training.state import State


def choose_kept(state: State, loss: float, *, keep: str, number: int) -> bool:
    """Enter the validation of the present weights, and leave the `number` that the model is made of: the last ones,
    or those of the lowest losses (of equal ones the earlier). Returns whether this one is among them."""
    state.kept.append((state.update, loss))
    if keep == "best":
        state.kept.sort(key=lambda kept: kept[1])
        del state.kept[number:]
    else:
        del state.kept[:-number]
    return (state.update, loss) in state.kept


class Keeper:
    """Writes checkpoints and the model directory; the first worker has one."""

    def __init__(self, job: TrainingJob, run_dir: Path, learner: Learner, state: State, journal: Journal) -> None:
        self._job, self._learner, self._state, self._journal = job, learner, state, journal
        self._folder, self._model_dir = run_dir / "state", run_dir / "model"
        self._started = time.monotonic() - state.seconds
        self._saved = time.monotonic()
        # Whether the model can be other than the present weights, so that earlier ones must be kept.
        self._snapshots = job.training.keep == "best" or job.training.average_checkpoints > 1

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
        state.metrics_bytes = self._journal.sync()
        checkpoint.save(self._folder / "last.safetensors", self._learner.tensors(), state)
        checkpoint.prune(self._folder, [update for update, _ in state.kept])
        self._saved = time.monotonic()

    def keep_weights(self) -> None:
        """Keep the present weights for the model, where they are not the model themselves."""
        if self._snapshots:
            path = checkpoint.snapshot(self._folder, self._state.update)
            checkpoint.save(path, self._learner.model_tensors(), self._state)

    def write_model(self) -> None:
        """Write model/: the present weights, or the mean of the kept ones."""
        job, learner, kept = self._job, self._learner, [update for update, _ in self._state.kept]
        tensors = learner.model_tensors()
        averages = self._snapshots and bool(kept)
        present = {name: tensor.clone() for name, tensor in tensors.items()} if averages else {}
        if averages:
            checkpoint.load_average([checkpoint.snapshot(self._folder, update) for update in kept], tensors)
        extra = {
            **job.model_extra,
            "run_id": job.run_id,
            "updates": kept or [self._state.update],
            "validation": self._state.validation,
        }
        try:
            learner.task.write(self._model_dir, learner.model, job, extra)
        finally:
            with torch.no_grad():
                for name, tensor in present.items():
                    tensors[name].copy_(tensor)
