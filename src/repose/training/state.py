"""Where a training stands, apart from its tensors: plain numbers that go through JSON and back unchanged."""

import dataclasses
import json
from typing import Any

from repose.runs.records import EndReason, old_reason
from repose.training.schedule import Plateau


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
    """What a checkpoint says besides its tensors."""

    run_id: str
    workers: int
    """Processes that share the batches out; another number gives other rounding."""
    threads: int
    """Threads of each worker, on a CPU."""
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
    validation: dict[str, float] = dataclasses.field(default_factory=dict)
    """The last validation's figures."""
    plateau: Plateau = dataclasses.field(default_factory=Plateau)
    """For the learning rate."""
    patience: Plateau = dataclasses.field(default_factory=Plateau)
    """For stopping early."""
    kept: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    """Snapshots that the model is averaged from: updates and validation loss."""
    metrics_bytes: int = 0
    """Length of metrics.jsonl; what follows was written after the checkpoint."""
    done: EndReason | None = None
    """Why the training is over, once it is."""

    def to_json(self) -> str:
        """One line; floats keep every bit."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "State":
        """The inverse of `to_json`. Raises ValueError, TypeError or KeyError for anything else."""
        fields: dict[str, Any] = json.loads(text)
        for name, kind in (("epoch_sums", Sums), ("window_sums", Sums), ("plateau", Plateau), ("patience", Plateau)):
            fields[name] = kind(**fields[name])
        if "status" in fields:  # of an earlier version
            status, reason = fields.pop("status"), fields.pop("reason")
            fields["done"] = old_reason(reason) if status == "done" else None
        elif fields["done"] is not None:
            fields["done"] = EndReason(fields["done"])
        fields["kept"] = [(update, loss) for update, loss in fields["kept"]]
        return cls(**fields)
