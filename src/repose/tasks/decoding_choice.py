"""Choose how to decode with a model, on the validation set, never on a test set: beam, length penalty, repeats."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repose.config.experiment import LENGTH_PENALTY, DecodingConfig
from repose.decoding.pool import OnProgress
from repose.decoding.translator import Translator
from repose.evaluation.metrics import tokenizer_for
from repose.evaluation.sentence_statistics import References
from repose.evaluation.significance import resample

LENGTH_PENALTIES = (0.2, 0.6, 1.0, 1.5)
"""Length penalties to try. Models trained on little data stop too early, so high values help them."""
FIRST_PENALTY = 1.0
"""Used unless another value is significantly better: on validation sets of little data, no value is better on average
(docs/little-data-experiments.md)."""
RESAMPLES = 1000
NO_REPEAT = 5
"""Length of n-grams that may not be repeated, if that helps. Models trained on little data often repeat themselves."""
GAIN = 0.2
"""BLEU that forbidding repeats must gain, as the mean of greedy search and the best beam, because a sentence that is
translated alone takes longer with it."""
FEWEST = 50
"""With fewer validation sentences than this, a fine-tuned model takes its initial model's settings."""
SENTENCES = 500
"""Number of validation sentences to use, from the first on."""


@dataclass(frozen=True)
class DecodingTrial:
    """One way to decode, and its score."""

    beam_size: int
    length_penalty: float
    bleu: float
    """BLEU on the validation sentences, in percent."""
    no_repeat_ngram_size: int = 0
    deviation: float = 0.0
    """Standard deviation, over resampled sentences, of its lead over the beam with `FIRST_PENALTY`."""


@dataclass(frozen=True)
class DecodingChoice:
    """The ways to decode that were tried, and the choice."""

    trials: tuple[DecodingTrial, ...]
    """Greedy search first; trials that allow repeats before those that do not."""

    @classmethod
    def from_json(cls, trials: Iterable[Mapping[str, Any]]) -> "DecodingChoice":
        """Parse the result of `to_json`."""
        return cls(tuple(DecodingTrial(**trial) for trial in trials))

    @property
    def no_repeat_ngram_size(self) -> int:
        """The first trial's value, or the other value that was tried, if it gains at least `GAIN`."""
        usual = self.trials[0].no_repeat_ngram_size
        bleu = {(t.beam_size, t.length_penalty): t.bleu for t in self.trials if t.no_repeat_ngram_size == usual}
        others = [trial for trial in self.trials if trial.no_repeat_ngram_size != usual]
        gains = [trial.bleu - bleu[trial.beam_size, trial.length_penalty] for trial in others]
        return others[0].no_repeat_ngram_size if others and fmean(gains) >= GAIN else usual

    @property
    def best(self) -> DecodingTrial:
        """Greedy search, or the best beam if its BLEU is higher, with the chosen `no_repeat_ngram_size`."""
        size = self.no_repeat_ngram_size
        greedy = next(t for t in self.trials if t.beam_size == 1 and t.no_repeat_ngram_size == size)
        beam = best_beam(t for t in self.trials if t.no_repeat_ngram_size == size)
        return greedy if beam is None or greedy.bleu >= beam.bleu else beam

    @property
    def settings(self) -> dict[str, Any]:
        """The chosen beam, length penalty and repeats. If greedy search is best, the penalty is that of the best beam.
        If no beam was tried, or none has any BLEU, the penalty is the default."""
        beam = best_beam(t for t in self.trials if t.no_repeat_ngram_size == self.no_repeat_ngram_size)
        return {
            "beam_size": self.best.beam_size,
            "length_penalty": LENGTH_PENALTY if beam is None else beam.length_penalty,
            "no_repeat_ngram_size": self.no_repeat_ngram_size,
        }

    def to_json(self) -> list[dict[str, Any]]:
        """Return the trials as JSON values."""
        return [asdict(trial) for trial in self.trials]


def best_beam(trials: Iterable[DecodingTrial]) -> DecodingTrial | None:
    """Return the best beam with any BLEU: the one with `FIRST_PENALTY`, unless the highest BLEU leads it by more than
    one standard deviation of the lead (one-standard-error rule: Breiman et al. 1984, section 3.4.3). On a few hundred
    sentences, the highest of four figures is often highest by chance."""
    beams = [trial for trial in trials if trial.beam_size > 1 and trial.bleu > 0]
    if not beams:
        return None
    highest = max(beams, key=lambda trial: trial.bleu)
    first = next((trial for trial in beams if trial.length_penalty == FIRST_PENALTY), highest)
    return highest if highest.bleu - first.bleu > highest.deviation else first


def searches(asked: DecodingConfig) -> list[int]:
    """Return the beam size of each search that `choose_decoding` runs."""
    beams = [asked.beam_size] * len(LENGTH_PENALTIES) * (asked.beam_size > 1)
    again = [1, *beams[:1]] * (not asked.no_repeat_ngram_size)
    return [1, *beams, *again]


def choose_decoding(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    asked: DecodingConfig,
    on_progress: OnProgress = lambda _: None,
) -> DecodingChoice:
    """Try greedy search, and the beam with each of `LENGTH_PENALTIES`, on the first `SENTENCES` pairs; then, unless
    `asked` already forbids repeats, greedy search and the best beam with `NO_REPEAT`. The translator's own settings are
    ignored, because an earlier choice may have set them. `on_progress` gets the share that is done if a search takes
    time in proportion to its beam."""
    usual, some = asked.no_repeat_ngram_size, references[:SENTENCES]
    lowercase, tokenize = translator.tgt_tokenizer.lowercase, tokenizer_for(some)
    scored = References(some, lowercase=lowercase, tokenize=tokenize)
    resampled: dict[float, NDArray[np.float64]] = {}
    total, done = sum(searches(asked)), 0

    def tried(beam: int, penalty: float, no_repeat: int) -> DecodingTrial:
        nonlocal done
        how: dict[str, Any] = {"beam_size": beam, "length_penalty": penalty, "no_repeat_ngram_size": no_repeat}
        translations = translator.translate(
            sources[:SENTENCES], **how, on_progress=lambda share: on_progress((done + share * beam) / total)
        )
        done += beam
        found = scored.statistics([t.text for t in translations])
        if beam > 1 and no_repeat == usual:
            resampled[penalty] = resample([found], num_resamples=RESAMPLES).values
        return DecodingTrial(**how, bleu=found.score())

    greedy = tried(1, 0.0, usual)
    beams = [tried(asked.beam_size, penalty, usual) for penalty in LENGTH_PENALTIES if asked.beam_size > 1]
    leads = {penalty: values - resampled[FIRST_PENALTY] for penalty, values in resampled.items()}
    beams = [replace(trial, deviation=float(leads[trial.length_penalty].std())) for trial in beams]
    trials = [greedy, *beams]
    if not usual:
        again = [greedy, best_beam(beams) or beams[0]] if beams else [greedy]
        trials += [tried(trial.beam_size, trial.length_penalty, NO_REPEAT) for trial in again]
    return DecodingChoice(tuple(trials))
