"""Draw translations at random from the model, token by token; back-translation learns most from these (Edunov et al.
2018, arXiv 1808.09381).

A token is drawn with the probability that the model gives it, sharpened or flattened by a temperature. The draw of a
token is a pure function of (seed, number of the sentence, number of the token): it does not depend on which sentences
are translated together, nor on the number of processes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from repose.decoding.best import as_array, refuse_nan
from repose.decoding.options import SearchOptions
from repose.decoding.search import Floats, Ints, S, Step, TokenHypothesis, token_by_token
from repose.system.errors import ConfigError
from repose.system.hashing import splitmix64, unit_interval
from repose.system.numbers import is_real, is_whole
from repose.system.token_ids import PAD, START


class Sampling(NamedTuple):
    """Options of drawing translations."""

    temperature: float = 1.0
    """Temperature T: tokens are drawn by p^(1/T) (1: the model's probabilities; towards 0: greedy)."""
    seed: int = 0
    first: int = 0
    """Number of the first sentence, if sentences come in several calls."""


def checked(sampling: Any, num_sentences: int = 1) -> Sampling:
    """Check the sampling of `num_sentences` sentences, and return it with Python numbers. Raises ConfigError if it is
    not a Sampling, and if its temperature, seed or first sentence is out of range."""
    if not isinstance(sampling, Sampling):
        raise ConfigError(f"sampling is {sampling!r}: give a repose.Sampling, or leave it out")
    temperature, seed, first = sampling
    if not (is_real(temperature) and 0.01 <= temperature <= 100):
        raise ConfigError(f"the temperature of sampling is {temperature!r}: take one from 0.01 to 100")
    for what, number, beyond in (("seed", seed, 1), ("first sentence", first, max(1, num_sentences))):
        if not (is_whole(number) and 0 <= int(number) <= 2**64 - beyond):
            raise ConfigError(f"the {what} of sampling is {number!r}: take a whole number from 0 to 2^64 - {beyond}")
    return Sampling(float(temperature), int(seed), int(first))


def sample(
    step: Step[S],
    state: S,
    max_lengths: Sequence[int],
    options: SearchOptions,
    *,
    sampling: Sampling,
    numbers: Sequence[int],
) -> list[TokenHypothesis]:
    """Draw one hypothesis per sentence; its score is the model's own. `numbers`: the number of each sentence among all.

    Other arguments as for `repose.decoding.search.greedy`.
    """
    keys = splitmix64(splitmix64(np.asarray(numbers, dtype=np.uint64)) ^ np.uint64(sampling.seed))

    def choose(log_probs: Any, sentences: Ints, length: int) -> tuple[Floats, Ints]:
        hashes = splitmix64(splitmix64(keys[sentences] + np.uint64(length)))
        return drawn(log_probs, unit_interval(hashes), sampling.temperature)

    return token_by_token(step, state, max_lengths, options, choose)


def drawn(log_probs: Any, uniform: Floats, temperature: float) -> tuple[Floats, Ints]:
    """Draw a token for each row: the one at which the sum of p^(1/T), renormalised, passes a number in [0, 1). PAD and
    START are never drawn.

    (R, V), an array or a tensor, (R,) -> log-probabilities and ids (R,).
    """
    values = as_array(log_probs).astype(np.float64)
    refuse_nan(values)
    values[:, [PAD, START]] = -np.inf
    largest = np.nan_to_num(values.max(1, keepdims=True), neginf=0.0)
    sums = np.exp((values - largest) / temperature).cumsum(1)
    wanted = uniform * sums[:, -1]
    tokens = np.array([np.searchsorted(row, w, side="right") for row, w in zip(sums, wanted, strict=True)])
    tokens = tokens.clip(max=values.shape[1] - 1).astype(np.int64)
    return values[np.arange(len(tokens)), tokens], tokens
