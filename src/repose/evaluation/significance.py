"""Test whether one system is better than another, or could be worse on other sentences or with other seeds.

There are two questions, each with its own tests (docs/significance.md):

- Other sentences: `resample` and `compare`, the paired bootstrap over test sentences (Koehn 2004), for systems that
  were trained with several seeds; `approximate_randomization` (Riezler and Maxwell 2005) for one seed each.
- Other seeds: `welch`, over the seeds' scores on the whole test set.

`holm` corrects for the number of comparisons.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from repose.evaluation.ratio import RatioStatistics
from repose.evaluation.sentence_statistics import Metric, SentenceStatistics, scores_of
from repose.system.errors import ConfigError, DataError
from repose.system.terminal import counted

NUM_RESAMPLES, LEAST_RESAMPLES = 20_000, 100
NUM_TRIALS = 10_000
"""Trials of approximate randomization, as many as sacreBLEU uses."""
SEED = 12345
"""sacreBLEU's own seed, so that both draw the same resamples."""
LEVEL = 0.05
_BLOCK = 4_000_000  # most indices of resamples held in memory at a time
_ROUNDING = 1e-9  # points of a score within which two scores or differences count as equal
_PLACES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
"""Points and weights of Gauss-Legendre quadrature between -1 and 1."""


@dataclass(frozen=True)
class Resampled:
    """A system's score on the test set and on resamples of its sentences, each averaged over its seeds."""

    value: float
    """The score on the test set itself, in the score's own unit."""
    values: NDArray[np.float64]
    """(R,): the score on each resample."""
    sample: int
    """Number of sentences (or documents) of the test set. Only systems with equal numbers can be compared."""


def resample(
    seeds: Sequence[SentenceStatistics], metric: Metric = "bleu", *, num_resamples: int = NUM_RESAMPLES
) -> Resampled:
    """Score one system, trained with one or more `seeds`, on resamples of the test set's N sentences.

    A resample draws N sentences with replacement. Each seed's corpus score on these sentences is computed, and then the
    mean over seeds. Systems on the same test set get the same resamples, which are those of sacreBLEU's `--paired-bs`.
    Raises DataError if the seeds' translations have different numbers of sentences, ConfigError for fewer than 100
    resamples.
    """
    parts = [one.of(metric).astype(np.float64) for one in seeds]
    values = _resampled(parts, [partial(_scores_of, metric)] * len(parts), num_resamples)
    return Resampled(statistics.fmean(one.score(metric) for one in seeds), values, len(seeds[0]))


def resample_ratio(seeds: Sequence[RatioStatistics], *, num_resamples: int = NUM_RESAMPLES) -> Resampled:
    """Resample a figure that is a ratio of sums over N sentences or documents, as `resample` does.

    Raises as it does.
    """
    parts = [one.columns for one in seeds]
    values = _resampled(parts, [one.scores_of for one in seeds], num_resamples)
    return Resampled(statistics.fmean(one.value for one in seeds), values, len(seeds[0]))


def _scores_of(metric: Metric, sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores for sums of counts that were added as floating-point numbers, which is exact below 2^53."""
    return scores_of(metric, np.rint(sums).astype(np.int64))


def _resampled(
    parts: Sequence[NDArray[np.float64]],
    scores: Sequence[Callable[[NDArray[np.float64]], NDArray[np.float64]]],
    num_resamples: int,
) -> NDArray[np.float64]:
    """Return the mean score over seeds for each resample, (R,).

    Each seed is scored by the sums of its numbers, (N, K).
    """
    if num_resamples < LEAST_RESAMPLES:
        raise ConfigError(f"{num_resamples} resamples give no 95 % interval: ask for {LEAST_RESAMPLES} or more")
    sizes = {len(one) for one in parts}
    if len(sizes) != 1:
        raise DataError(
            f"the seeds of a system have {' and '.join(map(str, sorted(sizes))) or 'no'} sentences that were scored: "
            "compare scores of one test set"
        )
    (number,) = sizes
    columns = np.concatenate(parts, axis=1)
    sums = np.concatenate([times @ columns for times in _drawn(number, num_resamples)])
    by_seed = np.split(sums, np.cumsum([one.shape[1] for one in parts])[:-1], axis=1)
    return np.asarray(np.mean([score(one) for score, one in zip(scores, by_seed, strict=True)], axis=0))


def _drawn(num_sentences: int, num_resamples: int) -> Iterator[NDArray[np.float64]]:
    """Yield blocks (r, N): how often each resample contains each sentence."""
    generator = np.random.default_rng(SEED)
    rows = max(1, _BLOCK // num_sentences)
    for first in range(0, num_resamples, rows):
        size = min(rows, num_resamples - first)
        indices = generator.choice(num_sentences, size=(size, num_sentences), replace=True)
        places = (indices + num_sentences * np.arange(size)[:, None]).ravel()
        yield np.bincount(places, minlength=size * num_sentences).reshape(size, num_sentences).astype(np.float64)


@dataclass(frozen=True)
class Difference:
    """How much higher one system scores than another, in points of the score."""

    value: float
    low: float
    """Lower limit of the 95 % interval."""
    high: float
    p: float
    """Two-sided p value, for the hypothesis of no difference; at most 0.05 exactly if the interval excludes 0."""


def compare(system: Resampled, other: Resampled) -> Difference:
    """Compare two systems by the paired bootstrap: the difference `system` - `other`, with its interval and p value.

    With R resamples, of which c+ have no lower and c- no higher score for `system`: p = 2 (1 + min(c+, c-)) / (R + 1),
    at most 1. This is twice the share that Koehn (2004) counts in a one-sided test. The test set itself counts as one
    more resample, so p is never 0. The limits of the interval are the values at places 0.025 (R + 1) from both ends
    (Davison and Hinkley 1997, section 5.2).

    Differs from sacreBLEU's `--paired-bs`: docs/decisions/020-significance.md. Raises DataError if the resamples are
    not the same.
    """
    if system.sample != other.sample or len(system.values) != len(other.values):
        raise DataError(
            f"one system was resampled {len(system.values)} times from {system.sample} sentences, the other "
            f"{len(other.values)} times from {other.sample}: compare the same resamples of one test set"
        )
    differences = np.sort(system.values - other.values)
    differences[np.abs(differences) < _ROUNDING] = 0.0  # equal up to the order in which seeds were added
    number = len(differences)
    one_side = min(np.count_nonzero(differences <= 0), np.count_nonzero(differences >= 0))
    place = math.floor(LEVEL / 2 * (number + 1)) - 1
    return Difference(
        value=system.value - other.value,
        low=float(differences[place]),
        high=float(differences[number - 1 - place]),
        p=min(1.0, 2 * (1 + int(one_side)) / (number + 1)),
    )


@dataclass(frozen=True)
class Randomized:
    """The result of approximate randomization."""

    difference: float
    p: float
    """Two-sided p value, for the hypothesis of no difference."""


def approximate_randomization(
    system: SentenceStatistics, other: SentenceStatistics, metric: Metric = "bleu", *, num_trials: int = NUM_TRIALS
) -> Randomized:
    """Test two systems of one seed each by randomly exchanging their translations (Riezler and Maxwell 2005).

    In each trial, the two translations of each sentence are exchanged at random. p = (1 + c) / (num_trials + 1), where
    c counts the trials with a difference at least as large as that of the systems. sacreBLEU's `--paired-ar` counts
    only larger differences: for two copies of one translation, its p is nearly 0, and here it is 1. Raises DataError if
    the statistics are not for one test set.
    """
    if len(system) != len(other):
        raise DataError(
            f"one system translated {counted(len(system), 'sentence')}, the other {len(other)}: compare them on one "
            "test set"
        )
    difference = system.score(metric) - other.score(metric)
    first, second = (one.of(metric).astype(np.float64) for one in (system, other))
    generator = np.random.default_rng(SEED)
    rows = max(1, _BLOCK // len(system))
    as_large = 0
    for start in range(0, num_trials, rows):
        swapped = generator.integers(2, size=(min(rows, num_trials - start), len(system)), dtype=bool)
        sides = (~swapped @ first + swapped @ second, swapped @ first + ~swapped @ second)
        one, two = (_scores_of(metric, side) for side in sides)
        as_large += int(np.count_nonzero(np.abs(one - two) >= abs(difference) - _ROUNDING))
    return Randomized(difference, (1 + as_large) / (num_trials + 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p values for their number; return them in the same order (Holm 1979, step-down).

    If those at or below 0.05 are called different, at most 5 % of families contain any pair that is wrongly called so,
    however the tests depend on each other: p_(i) becomes the largest of (m - j + 1) p_(j) over j <= i, at most 1.
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


@dataclass(frozen=True)
class SeedInterval:
    """Welch's interval of a difference of means over seeds."""

    value: float
    low: float
    high: float
    degrees: float
    """Degrees of freedom (Welch and Satterthwaite)."""
    p: float
    """Two-sided p value for the hypothesis of no difference, rounded to twelve decimals. It is below 0.05, up to
    rounding, if the interval excludes 0."""


def welch(system: Sequence[float], other: Sequence[float]) -> SeedInterval | None:
    """Return the 95 % interval of mean(system) - mean(other), for scores of several seeds on one test set (Welch 1947).

    The seeds of both systems are treated as independent draws. Returns None if either system has fewer than two seeds,
    if a score is not finite, or if all seeds of each system have the same score.
    """
    if min(len(system), len(other)) < 2 or not all(map(math.isfinite, (*system, *other))):
        return None
    shares = [statistics.variance(values) / len(values) for values in (system, other)]
    error = math.sqrt(sum(shares))
    if error < _ROUNDING:
        return None
    counts = (len(system), len(other))
    degrees = sum(shares) ** 2 / sum(share**2 / (n - 1) for share, n in zip(shares, counts, strict=True))
    value = statistics.fmean(system) - statistics.fmean(other)
    margin = student_quantile(1 - LEVEL, degrees) * error
    # For a difference of two numbers near 1, further digits would differ between processors.
    p = round(max(0.0, 1 - student_inside(abs(value) / error, degrees)), 12)
    return SeedInterval(value, value - margin, value + margin, degrees, p)


def student_inside(t: float, degrees: float) -> float:
    """Return P(|T| <= t) of Student's distribution, for t >= 0 and `degrees` >= 1.

    With t = sqrt(degrees) tan(angle), it is a constant times the integral of cos(angle)^(degrees - 1) from 0.
    """
    end = math.atan(t / math.sqrt(degrees))
    integral = end / 2 * float(_WEIGHTS @ np.cos(end / 2 * (_PLACES + 1)) ** (degrees - 1))
    return 2 / math.sqrt(math.pi) * math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) * integral


def student_quantile(share: float, degrees: float) -> float:
    """Return the t for which P(|T| <= t) is `share`, which must be below 1."""
    low, high = 0.0, 1.0
    while student_inside(high, degrees) < share:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if student_inside(middle, degrees) < share else (low, middle)
    return (low + high) / 2
