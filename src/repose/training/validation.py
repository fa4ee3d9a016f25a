"""Teacher-forced figures on a validation set: predict each token from the reference's earlier tokens, without
dropout."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from repose.training.distributed import World
from repose.training.job import Examples, TrainingTask

TOKENS_AT_A_TIME = 4096
"""Maximum positions per batch on its longer side, including padding; this bounds the memory."""
MISMATCHED = 300
"""About how many examples are also evaluated with another example's source."""


@dataclass(frozen=True)
class PerExample:
    """Per-example sums that a set's figures are computed from, in the set's order."""

    nll: NDArray[np.float64]
    """(N,): negative log-likelihood in nats."""
    correct: NDArray[np.float64]
    """(N,): number of correct tokens, or words."""
    tokens: NDArray[np.int64]
    """(N,): number of tokens, or words."""
    other_nll: NDArray[np.float64]
    """(N,): negative log-likelihood, in nats, with another example's source; for `mismatched` examples only."""
    mismatched: NDArray[np.bool_]

    def figures(self, keras_batch: int) -> dict[str, float]:
        """Return `tf_loss` (nats per target token, or word), `tf_loss_keras` and `tf_accuracy` over the whole set.

        `tf_loss_keras` is what Keras reports for batches of `keras_batch` sentences in the set's order: the batches'
        mean losses, weighted by their sentences. For examples with sources, `source_gain` is the loss (nats per target
        token) with the source of another example of similar length minus the loss with the true source, over about
        `MISMATCHED` examples. Near 0, the model ignores its source.
        """
        number = len(self.tokens)
        starts = np.arange(0, number, keras_batch)
        batch_means = np.add.reduceat(self.nll, starts) / np.add.reduceat(self.tokens, starts)
        batch_sizes = np.diff(np.append(starts, number))
        figures = {
            "tf_loss": float(self.nll.sum() / self.tokens.sum()),
            "tf_loss_keras": float((batch_means * batch_sizes).sum() / number),
            "tf_accuracy": float(self.correct.sum() / self.tokens.sum()),
        }
        if self.other_nll.any():
            gain = self.other_nll[self.mismatched].sum() - self.nll[self.mismatched].sum()
            figures["source_gain"] = float(gain / self.tokens[self.mismatched].sum())
        return figures


@torch.no_grad()
def validate(model: nn.Module, task: TrainingTask, examples: Examples, *, world: World) -> PerExample:
    """Compute the sums of each example of a set, without dropout, in fp32.

    Workers take batches in turn. All return the same result; on a CPU it does not depend on their number.
    """
    was_training = model.training
    model.eval()
    place = torch.device("cpu") if world.device.type == "mps" else world.device  # mps has no double precision
    sums = torch.zeros(3, len(examples), dtype=torch.float64, device=place)
    tokens_of = np.asarray(examples.tgt_lengths, dtype=np.int64)
    batches = list(_by_length(examples))
    every = max(1, len(examples) // MISMATCHED)
    seen, mismatched = 0, np.zeros(len(examples), dtype=bool)
    for number, indices in enumerate(batches):
        # Spread over all lengths: take a batch whenever too few of the examples seen so far were taken.
        is_mismatched = len(indices) > 1 and mismatched.sum() * every <= seen
        seen += len(indices)
        mismatched[indices] = is_mismatched
        if number % world.size != world.rank:
            continue
        batch = task.micro_batch(examples, indices, world.device)
        nll, correct = task.token_losses(model, batch)
        other = task.with_wrong_sources(batch) if is_mismatched else None
        other_nll = torch.zeros_like(nll) if other is None else task.token_losses(model, other)[0]
        lengths = torch.from_numpy(tokens_of[indices]).to(place)
        sentences = torch.from_numpy(indices).to(place).repeat_interleave(lengths)
        sums.index_add_(1, sentences, torch.stack([nll, correct.to(nll.dtype), other_nll]).to(place).double())
    model.train(was_training)
    nll_of, correct_of, other_nll_of = world.add(sums).cpu().numpy()
    return PerExample(nll_of, correct_of, tokens_of, other_nll_of, mismatched)


def _by_length(examples: Examples) -> Iterator[NDArray[np.int64]]:
    """Yield batches of examples of similar length, with at most `TOKENS_AT_A_TIME` positions. The longest come first,
    so that a set too large for the memory fails at once."""
    src, tgt = np.asarray(examples.src_lengths), np.asarray(examples.tgt_lengths)
    longer = np.maximum(src, tgt)
    order = np.lexsort((tgt, longer))[::-1]
    start = 0
    while start < len(order):
        size = max(1, TOKENS_AT_A_TIME // int(longer[order[start]]))
        yield order[start : start + size].astype(np.int64)
        start += size
