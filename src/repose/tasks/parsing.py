"""Dependency parsing as a task: trees, the encoder with a biaffine head, cross-entropy of heads and labels."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from repose.data.tokenizer import Tokenizer
from repose.data.treebank import Treebank
from repose.model.parser import Parser, build_parser
from repose.saved_model import task_directory as task_model_dir
from repose.tasks.base import initial_task_model, position_table
from repose.training.feed import to_device
from repose.training.job import TrainingJob
from repose.training.loss import TokenSums


class TreePart(NamedTuple):
    """Sentences as tensors; columns of words begin with ROOT's."""

    src: Tensor
    """(B, S) subwords."""
    first: Tensor
    """(B, W) column of `src` of each word's first subword, -1 for padding."""
    heads: Tensor
    """(B, W) column of each word's head."""
    labels: Tensor
    """(B, W) number of each word's label."""


class WordLosses(NamedTuple):
    """Of each word of a part, in row-major order, (N,)."""

    nll: Tensor
    """-log p(head) - log p(label | head), in nats."""
    correct: Tensor
    """Whether the most probable head and, at the right head, the most probable label are right. No tree is sought."""


def word_losses(model: Parser, part: TreePart) -> WordLosses:
    """Cross-entropy of each word's head over all words and ROOT, and of its label given that head (Dozat and Manning
    2017, 3.3: the losses are summed)."""
    words = model.words(part.src, part.first)
    arcs, labels = model.arcs(words), words.packing.pad(model.labels(words, part.heads.clamp(min=0)))
    is_word = part.first > 0  # ROOT's is 0
    arcs, labels, heads, names = arcs[is_word], labels[is_word], part.heads[is_word], part.labels[is_word]
    nll = F.cross_entropy(arcs, heads, reduction="none") + F.cross_entropy(labels, names, reduction="none")
    return WordLosses(nll, (arcs.argmax(1) == heads) & (labels.argmax(1) == names) & (names > 0))


class Parsing:
    """`Task` of dependency trees (`repose.data.treebank`). Losses are per word."""

    def open(self, folder: Path) -> Treebank:
        """Prepared trees."""
        return Treebank.open(folder)

    def part(self, examples: Treebank, indices: NDArray[np.int64], device: torch.device) -> TreePart:
        """Subwords, words and arcs."""
        return TreePart(*to_device(examples.batch(indices), device))

    def build(self, job: TrainingJob) -> Parser:
        """A new model, or that of `init_from`."""
        if job.training.init_from is not None:
            return initial_task_model(job, Parser)
        return build_parser(
            job.architecture,
            vocab_size=Tokenizer.load(job.src_tokenizer).vocab_size,
            num_labels=len(self.open(job.train_data).labels),
            seed=job.training.seed,
            position_table=position_table(job),
        )

    def sums(self, model: Parser, part: TreePart, *, label_smoothing: float) -> TokenSums:
        """Cross-entropy of heads and labels."""
        assert label_smoothing == 0.0, "Experiment refuses it"
        losses = word_losses(model, part)
        loss = losses.nll.sum(dtype=torch.float64)
        return TokenSums(loss, loss.detach(), losses.correct.sum().double())

    def losses(self, model: Parser, part: TreePart) -> tuple[Tensor, Tensor]:
        """`word_losses`."""
        return word_losses(model, part)

    def write(self, folder: Path, model: Parser, job: TrainingJob, extra: Mapping[str, object]) -> None:
        """Weights, tokenizer and the labels' names."""
        sizes = {"vocab_size": model.vocab_size, "labels": self.open(job.train_data).labels}
        tokenizer = Tokenizer.load(job.src_tokenizer).json
        task_model_dir.save(folder, model, tokenizer, task="parsing", sizes=sizes, card=job.card, extra=extra)
