"""The input of a training, the interface of a task, and the outcome."""

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
from repose.saved_run.records import DataRecord, EndReason, RunStatus
from repose.training.loss import TokenSums


class Examples(Protocol):
    """The examples of a prepared set, by index: sentence pairs, blocks of text, or trees."""

    @property
    def tgt_lengths(self) -> NDArray[np.integer[Any]]:
        """(N,): target tokens of each example, or whatever else the loss sums over, such as words."""

    @property
    def src_lengths(self) -> NDArray[np.integer[Any]]:
        """(N,): source tokens of each example."""

    def __len__(self) -> int:
        """Number of examples."""


class TrainingTask(ABC):
    """What the training loop needs of a task. Stateless, and picklable by its class.

    The task defines models, examples and micro-batches; the loop only passes them on.
    """

    @abstractmethod
    def open(self, folder: Path) -> Examples:
        """Open the examples of a prepared folder. Raises DataError."""

    @abstractmethod
    def micro_batch(self, examples: Any, indices: NDArray[np.int64], device: torch.device) -> Any:
        """Return the tensors of one forward pass over these examples; with gradient accumulation, a share of a global
        batch."""

    allows_cuda_graphs = False
    """True if forward and backward passes may be recorded as CUDA graphs. The task then has a `bucketed_micro_batch`,
    and `training_loss` depends only on its tensors and their shapes. A subclass that overrides `micro_batch` or
    `training_loss` must set this to False or override `bucketed_micro_batch` as well."""

    def bucketed_micro_batch(self, examples: Any, indices: NDArray[np.int64], device: torch.device) -> Any:
        """Return a micro-batch for `training_loss`, padded so that there are only few shapes (`feed.round_up_size`), as
        a named tuple of tensors and Nones (`replays`)."""
        raise NotImplementedError

    @abstractmethod
    def build(self, job: "TrainingJob") -> nn.Module:
        """Return the initial model: a new one, or that of `init_from`. Raises CheckpointError and ConfigError."""

    def sampler(self, examples: Any, job: "TrainingJob") -> Callable[[int], Examples]:  # noqa: ARG002
        """Return a function from an epoch's number to the examples as that epoch reads them. Raises ConfigError."""
        return lambda _: examples

    def mixture(self, examples: Any, job: "TrainingJob") -> Callable[[int], NDArray[np.int64]] | None:  # noqa: ARG002
        """Return a function from an epoch's number to the indices that it reads; None if every epoch reads each example
        once."""
        return None

    @abstractmethod
    def training_loss(self, model: Any, batch: Any, config: TrainingConfig) -> TokenSums:
        """Return the loss, with its gradient, and the figures reported with it, each summed over the micro-batch's
        tokens (or words). The learner divides them by the tokens of the global batch."""

    @abstractmethod
    def token_losses(self, model: Any, batch: Any) -> tuple[Tensor, Tensor]:
        """For validation, return each token's (or word's) loss in nats, without smoothing, and whether it is predicted
        correctly, in order."""

    def with_wrong_sources(self, batch: Any) -> Any:  # noqa: ARG002
        """Return the batch with each source replaced by another example's; None if examples have no sources."""
        return None

    @abstractmethod
    def write(self, folder: Path, model: Any, job: "TrainingJob", extra: Mapping[str, object]) -> None:
        """Write the model directory, with `extra` in its config.json."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """One training: task, architecture, recipe, prepared data, and run id. Picklable."""

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
    """Digest of everything that can change results (`repose.config.run_id.run_id`); checkpoints of other runs are
    refused."""
    data: DataRecord
    """Sizes of the prepared data, for the records."""
    position_table: tuple[tuple[float, ...], ...] | None = None
    """Rows of the small table that `positions = policy` starts from."""
    synthetic_tag: str | None = None
    """The tag of machine-written sources."""
    card: str = ""
    """Text of the model card."""
    model_extra: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """Further fields of the model directory's config.json."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a training ended."""

    status: RunStatus
    """DONE, or STOPPED, so that the same command resumes it."""
    reason: EndReason
    update: int
    """Optimizer steps taken."""
    metrics: Mapping[str, float]
    """The last validation's figures (`tf_loss`, `tf_loss_keras`, `tf_accuracy`, ...); empty before the first."""
