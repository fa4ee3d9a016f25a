"""Language modelling as a task: blocks of a text, a decoder without an encoder, cross-entropy of every next token."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from repose.data.text_blocks import TextBlocks
from repose.data.tokenizer import Tokenizer
from repose.model.language_model import LanguageModel, build_language_model
from repose.saved_model import task_directory as task_model_dir
from repose.tasks.base import initial_task_model, position_table
from repose.training.feed import to_device
from repose.training.job import TrainingJob
from repose.training.loss import TokenSums, cross_entropy, token_losses


class BlockPart(NamedTuple):
    """Blocks as tensors."""

    ids: Tensor
    """(B, T) input."""
    labels: Tensor
    """(N,) the token after each real token of `ids`, in row-major order."""


class LanguageModelling:
    """`Task` of a text in blocks (`repose.data.text_blocks`). Losses are per token, END included."""

    def open(self, folder: Path) -> TextBlocks:
        """A prepared text."""
        return TextBlocks.open(folder)

    def part(self, examples: TextBlocks, indices: NDArray[np.int64], device: torch.device) -> BlockPart:
        """Input and labels."""
        return BlockPart(*to_device(examples.batch(indices), device))

    def build(self, job: TrainingJob) -> LanguageModel:
        """A new model, or that of `init_from`."""
        if job.training.init_from is not None:
            return initial_task_model(job, LanguageModel)
        return build_language_model(
            job.architecture,
            vocab_size=Tokenizer.load(job.tgt_tokenizer).vocab_size,
            seed=job.training.seed,
            position_table=position_table(job),
        )

    def sums(self, model: LanguageModel, part: BlockPart, *, label_smoothing: float) -> TokenSums:
        """Cross-entropy of the labels."""
        output = model.output
        return cross_entropy(
            model.hidden(part.ids), output.weight, output.bias, part.labels, label_smoothing=label_smoothing
        )

    def losses(self, model: LanguageModel, part: BlockPart) -> tuple[Tensor, Tensor]:
        """Of every token, given the text's own earlier ones in its block."""
        return token_losses(model.hidden(part.ids), model.output.weight, model.output.bias, part.labels)

    def write(self, folder: Path, model: LanguageModel, job: TrainingJob, extra: Mapping[str, object]) -> None:
        """Weights and tokenizer."""
        tokenizer, sizes = Tokenizer.load(job.tgt_tokenizer).json, {"vocab_size": model.vocab_size}
        task_model_dir.save(
            folder, model, tokenizer, task="language_modelling", sizes=sizes, card=job.card, extra=extra
        )
