"""What a training is given, and how it ended."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from repose.config.experiment import DecodingConfig, TrainingConfig
from repose.model.architecture import Architecture
from repose.runs.records import DataRecord, EndReason, RunStatus
from repose.training.loss import TokenSums


class Examples(Protocol):
    """The examples of a prepared set by index: sentence pairs, blocks of a text, or trees."""

    @property
    def tgt_lengths(self) -> NDArray[np.integer[Any]]:
        """(N,): target tokens of each example, or what else the loss is a sum over, such as words."""

    @property
    def src_lengths(self) -> NDArray[np.integer[Any]]:
        """(N,): tokens that are read of each."""

    def __len__(self) -> int:
        """Number of examples."""


class TrainingTask(ABC):
    """What is learnt, as far as the training loop needs to know. Stateless, and picklable by its class.

    Models, examples and micro-batches are the task's own: the loop passes them on and looks into none of them.
    """

    @abstractmethod
    def open(self, folder: Path) -> Examples:
        """The examples of a prepared folder. Raises DataError."""

    @abstractmethod
    def micro_batch(self, examples: Any, indices: NDArray[np.int64], device: torch.device) -> Any:
        """These examples as the tensors of one forward pass: with gradient accumulation, a share of a global batch."""

    allows_cuda_graphs = False
    """Whether forward and backward passes may be recorded as CUDA graphs and replayed: the task then has a
    `bucketed_micro_batch`, and `training_loss` depends on its tensors and shapes alone. A subclass with another
    `micro_batch` or `training_loss` sets this to False, or has another `bucketed_micro_batch` too."""

    def bucketed_micro_batch(self, examples: Any, indices: NDArray[np.int64], device: torch.device) -> Any:
        """The same for `training_loss`, padded so that the tensors of all micro-batches come in few shapes
        (`feed.round_up_size`); a named tuple of tensors and Nones (`replays`)."""
        raise NotImplementedError

    @abstractmethod
    def build(self, job: "TrainingJob") -> nn.Module:
        """The model to begin with: a new one, or that of `init_from`. Raises CheckpointError and ConfigError."""

    def sampler(self, examples: Any, job: "TrainingJob") -> Callable[[int], Examples]:  # noqa: ARG002
        """The examples as each epoch reads them, by its number. Raises ConfigError."""
        return lambda _: examples

    def mixture(self, examples: Any, job: "TrainingJob") -> Callable[[int], NDArray[np.int64]] | None:  # noqa: ARG002
        """The examples that each epoch reads, by its number, as indices; None where it is each of them once."""
        return None

    @abstractmethod
    def training_loss(self, model: Any, batch: Any, config: TrainingConfig) -> TokenSums:
        """What is minimised, with its gradient, and the figures that are reported beside it: each the sum over the
        micro-batch's tokens (or words), which the learner divides by those of the global batch."""

    @abstractmethod
    def token_losses(self, model: Any, batch: Any) -> tuple[Tensor, Tensor]:
        """For validation, of each token (or word), in order: its loss in nats without smoothing, and whether it is
        predicted right."""

    def with_wrong_sources(self, batch: Any) -> Any:  # noqa: ARG002
        """The batch with each example's source exchanged for another's; None where examples have no source."""
        return None

    @abstractmethod
    def write(self, folder: Path, model: Any, job: "TrainingJob", extra: Mapping[str, object]) -> None:
        """Write the model directory, with `extra` in its config.json."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """One training: task, architecture and recipe, the prepared data, and the name its numbers go by. Picklable."""

    task: TrainingTask
    architecture: Architecture
    training: TrainingConfig
    decoding: DecodingConfig
    train_data: Path
    """Folder of the prepared training pairs (`repose.data.dataset`)."""
    valid_data: Path
    """Folder of the prepared validation pairs."""
    src_tokenizer: Path
    tgt_tokenizer: Path
    run_id: str
    """Digest of what can move the numbers (`repose.config.run_id.run_id`); a checkpoint of another run is refused."""
    data: DataRecord
    """What the prepared data holds, for the records."""
    position_table: tuple[tuple[float, ...], ...] | None = None
    """Rows of the small table that `positions = policy` begins with."""
    synthetic_tag: str | None = None
    """What marks the sources that a model wrote."""
    card: str = ""
    """Text of the model card."""
    model_extra: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """What else the model directory's config.json shall say."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a training ended."""

    status: RunStatus
    """DONE, or STOPPED: the same command resumes it."""
    reason: EndReason
    update: int
    """Optimizer steps taken."""
    metrics: Mapping[str, float]
    """The last validation's figures (`tf_loss`, `tf_loss_keras`, `tf_accuracy`, ...); empty before the first."""
