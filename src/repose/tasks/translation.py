"""Translation as a task: sentence pairs, the encoder-decoder, cross-entropy of the target tokens."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from repose.data.dataset import PairDataset
from repose.data.tokenizer import Tokenizer
from repose.model.transformer import Transformer, build
from repose.saved_model import directory as model_dir
from repose.system.errors import CheckpointError
from repose.tasks.base import position_table
from repose.training.feed import Part, make_part
from repose.training.job import TrainingJob
from repose.training.loss import TokenSums, cross_entropy, token_losses


class Translation:
    """`Task` of sentence pairs. Losses are per target token."""

    def open(self, folder: Path) -> PairDataset:
        """Prepared pairs."""
        return PairDataset.open(folder)

    def part(self, examples: PairDataset, indices: NDArray[np.int64], device: torch.device) -> Part:
        """Source, decoder input and labels."""
        return make_part(examples, indices, device)

    def build(self, job: TrainingJob) -> Transformer:
        """A new model, or that of `init_from`."""
        src, tgt = Tokenizer.load(job.src_tokenizer), Tokenizer.load(job.tgt_tokenizer)
        start = job.training.init_from
        if start is None:
            return build(
                job.architecture,
                src_vocab_size=src.vocab_size,
                tgt_vocab_size=tgt.vocab_size,
                seed=job.training.seed,
                position_table=position_table(job),
            )
        loaded = model_dir.load(Path(start))
        if loaded.model.architecture != job.architecture:
            raise CheckpointError(
                f"training.init_from = {start!r} has another architecture than the one to train: "
                "give the training that model's architecture, or leave init_from out"
            )
        if (loaded.src_tokenizer.digest, loaded.tgt_tokenizer.digest) != (src.digest, tgt.digest):
            raise CheckpointError(
                f"training.init_from = {start!r} was trained with other tokenizers: set tokenizer.src_file and "
                "tokenizer.tgt_file to those in its folder, or leave init_from out"
            )
        return loaded.model

    def sums(self, model: Transformer, part: Part, *, label_smoothing: float) -> TokenSums:
        """Cross-entropy of the labels."""
        hidden, output = model.hidden(part.src, part.tgt), model.output
        return cross_entropy(hidden, output.weight, output.bias, part.labels, label_smoothing=label_smoothing)

    def losses(self, model: Transformer, part: Part) -> tuple[Tensor, Tensor]:
        """Of every target token, given the reference's earlier ones."""
        return token_losses(model.hidden(part.src, part.tgt), model.output.weight, model.output.bias, part.labels)

    def write(self, folder: Path, model: Transformer, job: TrainingJob, extra: Mapping[str, object]) -> None:
        """Weights and both tokenizers."""
        src, tgt = Tokenizer.load(job.src_tokenizer).json, Tokenizer.load(job.tgt_tokenizer).json
        model_dir.save(folder, model, src, tgt, card=job.card, extra=extra)
