"""Translations drawn at random from the model, token by token: what back-translation learns most from (Edunov et al.
2018, arXiv 1808.09381).

A token is drawn with the probability that the model gives it, sharpened or flattened by a temperature. The draw of a
token is a pure function of (seed, number of the sentence, number of the token): it does not depend on which sentences
are translated together, nor on the number of processes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from repose.data.batching import mix
from repose.decoding.search import PAD, START, Hypothesis, S, Step, refuse_nan, token_by_token
from repose.system.errors import ConfigError


class Sampling(NamedTuple):
    """How translations are drawn."""

    temperature: float = 1.0
    """T: tokens are drawn by p^(1/T) (1: as the model says; towards 0: greedily)."""
    seed: int = 0
    first: int = 0
    """Number of the first sentence, where sentences come in several calls."""


def check(sampling: Sampling) -> None:
    """Raises ConfigError for a temperature or a seed that there is not."""
    if not 0.01 <= sampling.temperature <= 100:
        raise ConfigError(f"the temperature of sampling is {sampling.temperature:g}: take one from 0.01 to 100")
    if not 0 <= sampling.seed < 2**64:
        raise ConfigError(f"the seed of sampling is {sampling.seed}: take a whole number from 0 to 2^64 - 1")


@torch.no_grad()
def sample(
    step: Step[S],
    state: S,
    max_lengths: Tensor,
    *,
    sampling: Sampling,
    numbers: Sequence[int],
    alpha: float = 0.6,
    no_repeat: int = 0,
) -> list[Hypothesis]:
    """One drawn hypothesis per sentence; its score is the model's own. `numbers`: that of each sentence among all.

    The rest as for `repose.decoding.search.greedy`.
    """
    keys = mix(mix(np.asarray(numbers, dtype=np.uint64)) ^ np.uint64(sampling.seed))

    def choose(log_probs: Tensor, sentences: Tensor, length: int) -> tuple[Tensor, Tensor]:
        hashed = mix(mix(keys[sentences.numpy()] + np.uint64(length)))
        uniform = torch.from_numpy((hashed >> np.uint64(11)).astype(np.float64) * 2.0**-53)
        return drawn(log_probs, uniform, sampling.temperature)

    return token_by_token(step, state, max_lengths, choose, alpha=alpha, no_repeat=no_repeat)


def drawn(log_probs: Tensor, uniform: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The token of each row at which the sum of p^(1/T), renormalised, passes a number in [0, 1); never PAD or START.

    (R, V), (R,) -> log-probabilities float64 and ids (R,), on the CPU.
    """
    values = log_probs.detach().cpu().double()
    refuse_nan(values)
    values[:, [PAD, START]] = -torch.inf
    largest = values.amax(1, keepdim=True).nan_to_num(neginf=0.0)
    sums = ((values - largest) / temperature).exp().cumsum(1)
    wanted = uniform[:, None] * sums[:, -1:]
    tokens = torch.searchsorted(sums, wanted, right=True).clamp(max=values.shape[1] - 1)
    return values.gather(1, tokens)[:, 0], tokens[:, 0]
