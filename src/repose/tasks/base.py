"""The seam between the training loop and what is learnt.

The loop (`loop`, `learner`, `feed`, `keeper`, `run`) knows examples, updates, losses and files. What an example is,
which model reads it, what it costs to be wrong and what is handed on is a `Task`: `translation`, `language_modelling`,
`parsing`. `repose.tasks.registry` is the one place that chooses.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from repose.data.tokenizer import Tokenizer
from repose.saved_model import task_directory as task_model_dir
from repose.system.errors import CheckpointError
from repose.tasks.examples import Examples
from repose.training.job import TrainingJob
from repose.training.loss import TokenSums

M = TypeVar("M", bound=nn.Module)


class Task(Protocol):
    """What a training asks of its task. Models, examples and parts are the task's own: nobody else looks into them."""

    def open(self, folder: Path) -> Examples:
        """The examples of a prepared folder. Raises DataError."""

    def part(self, examples: Any, indices: NDArray[np.int64], device: torch.device) -> Any:
        """These examples as the tensors of one forward pass."""

    def build(self, job: TrainingJob) -> nn.Module:
        """The model to begin with: a new one, or that of `init_from`. Raises CheckpointError and ConfigError."""

    def sums(self, model: Any, part: Any, *, label_smoothing: float) -> TokenSums:
        """What is minimised, summed over the part's tokens (or words), with its gradient."""

    def losses(self, model: Any, part: Any) -> tuple[Tensor, Tensor]:
        """Of each of them, in order: its loss in nats without smoothing, and whether it is predicted right."""

    def write(self, folder: Path, model: Any, job: TrainingJob, extra: Mapping[str, object]) -> None:
        """The model directory."""


def initial_task_model(job: TrainingJob, kind: type[M]) -> M:
    """The model of `init_from`, for tasks with one tokenizer. Raises CheckpointError where it does not fit the job."""
    start = str(job.training.init_from)
    loaded = task_model_dir.load(Path(start))
    same_tokenizer = loaded.tokenizer.digest == Tokenizer.load(job.src_tokenizer).digest
    if not isinstance(loaded.model, kind) or loaded.model.architecture != job.architecture or not same_tokenizer:
        raise CheckpointError(
            f"training.init_from = {start!r} is of another task, architecture or tokenizer than the one to train: "
            "give the training that model's, or leave init_from out"
        )
    return loaded.model


def position_table(job: TrainingJob) -> Tensor | None:
    """The small table that `positions = policy` begins with."""
    return None if job.position_table is None else torch.tensor(job.position_table)
