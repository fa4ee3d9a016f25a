"""The counts behind BLEU and chrF of a corpus, sentence by sentence: they are summed, and the sums are scored.

Both scores are functions of sums over sentences. So a part of a test set, or a resample of it, is scored from these
counts without reading the text again. Counting and scoring are sacreBLEU's own (Post 2018); the score of all sentences
equals that of `repose.evaluation.metrics` to the last bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from repose.evaluation.metrics import bleu_metric, check_counts
from repose.system.errors import DataError
from repose.system.files import replacing_file

Metric: TypeAlias = Literal["bleu", "chrf"]
Counts: TypeAlias = NDArray[np.int64]
WIDTH: dict[Metric, int] = {"bleu": 10, "chrf": 18}
FORMAT = 1
_CHRF = CHRF()
_FEW = 99  # up to this many rows are scored by sacreBLEU, so that a test set has the digits of its scores.*.json


@dataclass(frozen=True)
class SentenceStatistics:
    """The counts of one system's N translations of a test set."""

    bleu: Counts
    """(N, 10): tokens of the translation and of the reference, common n-grams (n = 1..4), the translation's n-grams."""
    chrf: Counts
    """(N, 18): for n = 1..6, character n-grams of the translation, of the reference, and in common."""

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.bleu)

    def of(self, metric: Metric) -> Counts:
        """Return the counts of one metric."""
        return self.bleu if metric == "bleu" else self.chrf

    def score(self, metric: Metric = "bleu", sentences: NDArray[Any] | None = None) -> float:
        """Return the score in percent of the whole test set, or of the `sentences` selected by indices or a mask."""
        counts = self.of(metric) if sentences is None else self.of(metric)[sentences]
        return float(scores_of(metric, counts.sum(axis=0, keepdims=True))[0])

    def sentence_chrf(self) -> NDArray[np.float64]:
        """Return each sentence's own chrF in percent, (N,)."""
        return scores_of("chrf", self.of("chrf"))


class References:
    """The references of a test set, cut into n-grams once for all systems.

    `lowercase` and `tokenize` are as for `repose.evaluation.metrics.bleu`; raises ConfigError for an unusable
    tokenizer, and DataError if there is no reference.
    """

    def __init__(self, references: Sequence[str], *, lowercase: bool = False, tokenize: str = "13a") -> None:
        if not references:
            raise DataError("there is nothing to score: 0 references; give at least one line")
        self._len = len(references)
        self._metrics = (
            bleu_metric(tokenize, lowercase=lowercase, references=references),
            CHRF(lowercase=lowercase, references=[list(references)]),
        )

    def statistics(self, hypotheses: Sequence[str]) -> SentenceStatistics:
        """Return the counts of one translation for each reference. Raises DataError if the numbers of lines differ."""
        check_counts(len(hypotheses), self._len)
        # sacreBLEU's own significance tests call this method; it has no public name.
        return SentenceStatistics(
            *(np.asarray(metric._extract_corpus_statistics(hypotheses, None), np.int64) for metric in self._metrics)
        )


def scores_of(metric: Metric, sums: Counts) -> NDArray[np.float64]:
    """Return scores in percent, (R,), for sums of counts, (R, 10) or (R, 18).

    sacreBLEU scores a small number of rows, and rows that contain a zero, for which it has special rules. The other
    rows are scored all at once, which gives the same up to rounding.
    """
    is_plain = (sums > 0).all(axis=1) & (len(sums) > _FEW)
    at_once, one = (_bleus, _bleu) if metric == "bleu" else (_chrfs, _CHRF._compute_f_score)
    scores = np.empty(len(sums), np.float64)
    scores[is_plain] = at_once(sums[is_plain].astype(np.float64))
    scores[~is_plain] = [one(row) for row in sums[~is_plain].tolist()]
    return scores


def _bleus(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    length, reference = sums[:, 0], sums[:, 1]
    precisions = 100 * sums[:, 2:6] / sums[:, 6:]
    return np.exp(np.minimum(0.0, 1 - reference / length)) * np.exp(np.log(precisions).mean(axis=1))


def _chrfs(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    ours, theirs, common = sums[:, 0::3], sums[:, 1::3], sums[:, 2::3]
    precision, recall, factor = (common / ours).mean(axis=1), (common / theirs).mean(axis=1), _CHRF.beta**2
    return 100 * (1 + factor) * precision * recall / (factor * precision + recall)


def _bleu(sums: list[int]) -> float:
    score = BLEU.compute_bleu(correct=sums[2:6], total=sums[6:], sys_len=sums[0], ref_len=sums[1], smooth_method="exp")
    return float(score.score)


@dataclass(frozen=True)
class SourceLengths:
    """Lengths of the N sources of a test set."""

    words: Counts
    """(N,): words, separated by spaces."""
    tokens: Counts
    """(N,): tokens of the run's own tokenizer, START and END counted, as in `training.max_src_tokens`."""
    longest_trained: int
    """Tokens of the longest training source."""


@dataclass(frozen=True)
class StoredStatistics:
    """The content of `statistics.<split>.npz`, which is stored next to scores.<split>.json.

    From these numbers, significance tests and tables by length can be recomputed without the texts and translations.
    The file contains no text.
    """

    decodings: dict[str, SentenceStatistics]
    """The counts of each decoding by its name, such as "greedy" and "beam4"."""
    lengths: SourceLengths


def write_stored(path: Path, stored: StoredStatistics) -> None:
    """Write the numbers, compressed; equal numbers give equal bytes. Raises WriteError."""
    arrays = {
        "format": np.array(FORMAT),
        "src_words": stored.lengths.words,
        "src_tokens": stored.lengths.tokens,
        "longest_trained": np.array(stored.lengths.longest_trained),
    }
    for name, counts in stored.decodings.items():
        arrays |= {f"{name}.bleu": counts.bleu.T, f"{name}.chrf": _steps(counts.chrf)}  # columns are similar
    small: dict[str, Any] = {name: _small(array) for name, array in arrays.items()}  # as in ratio.py
    with replacing_file(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **small)


def _steps(chrf: Counts) -> Counts:
    """Return differences of n-gram counts and (n - 1)-gram counts, (3, 6, N).

    Most of them are -1, so they compress to a third of the size.
    """
    return np.diff(chrf.reshape(-1, 6, 3).transpose(2, 1, 0), axis=1, prepend=0)


def _summed(steps: Counts) -> Counts:
    return np.ascontiguousarray(steps.cumsum(axis=1).transpose(2, 1, 0).reshape(-1, WIDTH["chrf"]))


def _small(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return the integers in the smallest type that holds them all."""
    ends = (int(numbers.min(initial=0)), int(numbers.max(initial=0)))
    return numbers.astype(np.result_type(*map(np.min_scalar_type, ends)))


def read_stored(path: Path) -> StoredStatistics:
    """Read what `write_stored` wrote. Raises DataError if the file is missing or damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:  # np.load(path) would leave it open
            arrays = {name: archive[name].astype(np.int64) for name in archive.files}
        if (version := int(arrays["format"])) != FORMAT:
            raise DataError(f"{path} has format {version}, this version reads {FORMAT}: make it again from its run")
        names = sorted(name.removesuffix(".bleu") for name in arrays if name.endswith(".bleu"))
        lengths = SourceLengths(arrays["src_words"], arrays["src_tokens"], int(arrays["longest_trained"]))
        decodings = {
            name: SentenceStatistics(arrays[f"{name}.bleu"].T, _summed(arrays[f"{name}.chrf"])) for name in names
        }
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"there is no {path}: make it from a run directory that has its translations") from error
    except Exception as error:  # a damaged archive raises various exceptions, including zlib's and numpy's own
        raise DataError(f"{path} is damaged: make it again from its run") from error
    shapes = {metric: (len(lengths.words), width) for metric, width in WIDTH.items()}
    right = all(counts.of(metric).shape == shapes[metric] for counts in decodings.values() for metric in WIDTH)
    if not right or lengths.words.shape != lengths.tokens.shape:
        raise DataError(f"{path} is damaged (its counts do not fit each other): make it again from its run")
    return StoredStatistics(decodings, lengths)
