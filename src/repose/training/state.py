"""A training's state besides its tensors: how far it is, its figures so far, and what its model is made of."""

import dataclasses
import json

from pydantic import TypeAdapter

from repose.config.experiment import Keep
from repose.saved_run.records import EndReason
from repose.training.schedule import Plateau


@dataclasses.dataclass
class Sums:
    """Running sums of the training loss, in nats, with dropout, while the weights change."""

    loss: float = 0.0
    nll: float = 0.0
    correct: float = 0.0
    tokens: int = 0
    weighted_loss: float = 0.0
    """Sum over batches of sentences times the batch's mean loss."""
    weighted_nll: float = 0.0
    sentences: int = 0

    def add(self, loss: float, nll: float, correct: float, weighted_loss: float, weighted_nll: float) -> None:
        """Add the workers' sums (`Learner.sums`)."""
        self.loss += loss
        self.nll += nll
        self.correct += correct
        self.weighted_loss += weighted_loss
        self.weighted_nll += weighted_nll

    def means(self) -> dict[str, float]:
        """Return `loss`, `nll` and `tf_accuracy` per token, and `*_keras`: means of batches, weighted by sentences.

        Keras reports the latter, in which tokens in batches of short sentences count more.
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
    """A training's state besides its tensors: plain numbers that survive JSON unchanged."""

    run_id: str
    workers: int
    """Number of processes that share each batch; it decides the dropout masks."""
    threads: int
    """Threads per worker, on a CPU."""
    all_workers: tuple[int, ...] = ()
    """All numbers of workers that the training has had, in order."""
    device: str = ""
    """The workers' device, cpu or cuda; "" before they are started."""
    update: int = 0
    """Optimizer steps taken."""
    epoch: int = 0
    """Complete passes over the training pairs."""
    batch: int = 0
    """Batches of the current pass that are done."""
    tokens: int = 0
    """Target tokens trained on."""
    seconds: float = 0.0
    """Wall-clock seconds, summed over resumes."""
    epoch_sums: Sums = dataclasses.field(default_factory=Sums)
    window_sums: Sums = dataclasses.field(default_factory=Sums)
    """Sums since the last training record in metrics.jsonl."""
    validated: int = 0
    """Update of the last validation."""
    translated: int = 0
    """Epoch of the last validation that included translations."""
    validation: dict[str, float] = dataclasses.field(default_factory=dict)
    """Figures of the last validation; after the training, those of the model."""
    of_model: dict[str, float] = dataclasses.field(default_factory=dict)
    """Figures of the validation whose weights are the model; empty if the model is an average of several."""
    plateau: Plateau = dataclasses.field(default_factory=Plateau)
    """State of the plateau schedule."""
    patience: Plateau = dataclasses.field(default_factory=Plateau)
    """State of early stopping."""
    snapshots: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    """Validations whose weights make up the model: (update, cost as in `Plateau`)."""
    metrics_bytes: int = 0
    """Length of metrics.jsonl at the checkpoint; later bytes are discarded on resuming."""
    metrics_crc32: int = 0
    """CRC-32 of these bytes."""
    done: EndReason | None = None
    """Why the training has ended; None while it goes on."""

    def share_out(self, workers: int, threads: int) -> None:
        """Continue with this many workers and threads per worker."""
        if self.update == 0:
            self.all_workers = (workers,)
        elif workers != self.workers:
            self.all_workers += (workers,)
        self.workers, self.threads = workers, threads

    @property
    def snapshot_updates(self) -> list[int]:
        return [update for update, _ in self.snapshots]

    def add_snapshot(self, cost: float, *, keep: Keep, number: int) -> bool:
        """Add the validation of the current weights, and keep the `number` that make up the model: the last ones, or
        those with the lowest costs (ties go to the earlier). Returns whether the current one is kept."""
        self.snapshots.append((self.update, cost))
        if keep == "best":
            self.snapshots.sort(key=lambda snapshot: snapshot[1])
            del self.snapshots[number:]
        else:
            del self.snapshots[:-number]
        return (self.update, cost) in self.snapshots

    def to_json(self) -> str:
        """Return one line of JSON; floats keep every bit."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "State":
        """Parse the result of `to_json`. Raises ValueError, TypeError or KeyError for anything else."""
        return _STATE.validate_python(json.loads(text))


_STATE = TypeAdapter(State)
