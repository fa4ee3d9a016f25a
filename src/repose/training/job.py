"""What a training is given, and what it comes to."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from repose.config.experiment import DecodingConfig, TrainingConfig
from repose.model.architecture import Architecture
from repose.runs.records import DataRecord, EndReason, RunStatus


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """One training: architecture and recipe, the prepared data, and the name its numbers go by. Picklable."""

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
    card: str = ""
    """Text of the model card that is written beside the weights."""
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
