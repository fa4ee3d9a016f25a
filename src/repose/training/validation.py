"""Teacher-forced figures of a validation set: each token predicted from the reference's earlier ones, dropout off."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from repose.training.distributed import World
from repose.training.job import Examples, TrainingTask

TOKENS_AT_A_TIME = 4096
"""Most positions of a batch, padding included, on the longer side: bounds the memory."""


@torch.no_grad()
def validate(
    model: nn.Module, task: TrainingTask, examples: Examples, *, keras_batch: int, world: World
) -> dict[str, float]:
    """`tf_loss` (nats per target token, or word), `tf_loss_keras` and `tf_accuracy` over the whole set, in fp32.

    Workers take batches in turn. Every worker returns the same figures, and their number does not change a bit of
    them. `tf_loss_keras` is what Keras reports for batches of `keras_batch` sentences in the set's order: their mean
    losses, weighted by their sentences.
    """
    was_training = model.training
    model.eval()
    sums = torch.zeros(2, len(examples), dtype=torch.float64, device=world.device)
    tokens_of = np.asarray(examples.tgt_lengths, dtype=np.int64)
    for number, indices in enumerate(_by_length(examples)):
        if number % world.size != world.rank:
            continue
        nll, correct = task.losses(model, task.part(examples, indices, world.device))
        lengths = torch.from_numpy(tokens_of[indices]).to(world.device)
        sentences = torch.from_numpy(indices).to(world.device).repeat_interleave(lengths)
        sums.index_add_(1, sentences, torch.stack([nll, correct.to(nll.dtype)]).double())
    model.train(was_training)
    nll_of, correct_of = world.add(sums).cpu().numpy()
    starts = np.arange(0, len(examples), keras_batch)
    batch_means = np.add.reduceat(nll_of, starts) / np.add.reduceat(tokens_of, starts)
    batch_sizes = np.diff(np.append(starts, len(examples)))
    return {
        "tf_loss": float(nll_of.sum() / tokens_of.sum()),
        "tf_loss_keras": float((batch_means * batch_sizes).sum() / len(examples)),
        "tf_accuracy": float(correct_of.sum() / tokens_of.sum()),
    }


def _by_length(examples: Examples) -> Iterator[NDArray[np.int64]]:
    """Batches of examples of similar length, `TOKENS_AT_A_TIME` positions at most, longest first: a set too large for
    the memory fails at once."""
    src, tgt = np.asarray(examples.src_lengths), np.asarray(examples.tgt_lengths)
    longer = np.maximum(src, tgt)
    order = np.lexsort((tgt, longer))[::-1]
    start = 0
    while start < len(order):
        size = max(1, TOKENS_AT_A_TIME // int(longer[order[start]]))
        yield order[start : start + size].astype(np.int64)
        start += size
