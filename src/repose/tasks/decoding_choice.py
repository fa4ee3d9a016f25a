"""How a model is best searched: beam, length penalty and repeats, chosen on the validation set, never on a test set."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from repose.config.experiment import LENGTH_PENALTY, DecodingConfig
from repose.decoding.translator import Translator
from repose.evaluation.metrics import bleu

LENGTH_PENALTIES = (0.2, 0.6, 1.0, 1.5)
"""Those that are tried. Models of little data end too early, and want high ones."""
NO_REPEAT = 5
"""Tokens in a row that are then never said twice. Models of little data say the same again and again."""
GAIN = 0.2
"""BLEU that this must gain, the mean of greedy search and the best beam: a sentence that is translated alone takes
longer with it."""
FEWEST = 50
"""Validation sentences below which a fine-tuning searches as the model that it began with."""
SENTENCES = 500
"""Of the validation set, from the first on."""


@dataclass(frozen=True)
class DecodingTrial:
    """One way to search, and what it is worth."""

    beam_size: int
    length_penalty: float
    bleu: float
    """Of the validation sentences, in percent."""
    no_repeat_ngram_size: int = 0


@dataclass(frozen=True)
class DecodingChoice:
    """What was tried, and what to do."""

    trials: tuple[DecodingTrial, ...]
    """Greedy search first, and what may repeat itself before what may not."""

    @classmethod
    def from_json(cls, trials: Iterable[Mapping[str, Any]]) -> "DecodingChoice":
        """The choice that `to_json` gave."""
        return cls(tuple(DecodingTrial(**trial) for trial in trials))

    @property
    def no_repeat_ngram_size(self) -> int:
        """That of the first trial, or another that was tried, where it gains `GAIN`."""
        usual = self.trials[0].no_repeat_ngram_size
        bleu = {(t.beam_size, t.length_penalty): t.bleu for t in self.trials if t.no_repeat_ngram_size == usual}
        others = [trial for trial in self.trials if trial.no_repeat_ngram_size != usual]
        gains = [trial.bleu - bleu[trial.beam_size, trial.length_penalty] for trial in others]
        return others[0].no_repeat_ngram_size if others and fmean(gains) >= GAIN else usual

    @property
    def best(self) -> DecodingTrial:
        """That of the highest BLEU with this `no_repeat_ngram_size`; of equals the earlier, so that a beam is taken
        where it is better than greedy search and only there."""
        size = self.no_repeat_ngram_size
        return max((t for t in self.trials if t.no_repeat_ngram_size == size), key=lambda trial: trial.bleu)

    @property
    def settings(self) -> dict[str, Any]:
        """Beam, length penalty and repeats; where greedy search is best, the penalty is the best one of the beam. Where
        nothing tells penalties apart, since no beam was tried or none gives any BLEU, it is the usual one."""
        beams = [trial for trial in self.trials if trial.beam_size > 1 and trial.bleu > 0]
        penalty = max(beams, key=lambda trial: trial.bleu).length_penalty if beams else LENGTH_PENALTY
        return {
            "beam_size": self.best.beam_size,
            "length_penalty": penalty,
            "no_repeat_ngram_size": self.no_repeat_ngram_size,
        }

    def to_json(self) -> list[dict[str, Any]]:
        """The trials."""
        return [asdict(trial) for trial in self.trials]


def choose_decoding(
    translator: Translator, sources: Sequence[str], references: Sequence[str], asked: DecodingConfig
) -> DecodingChoice:
    """Try greedy search, and the beam with each of `LENGTH_PENALTIES`, on the first `SENTENCES` pairs; then, unless
    `asked` forbids repeats already, greedy search and the best beam with `NO_REPEAT`. What the translator usually does
    makes no difference: it may be what an earlier choice left."""
    usual, lowercase = asked.no_repeat_ngram_size, translator.tgt_tokenizer.lowercase

    def tried(beam: int, penalty: float, no_repeat: int) -> DecodingTrial:
        how: dict[str, Any] = {"beam_size": beam, "length_penalty": penalty, "no_repeat_ngram_size": no_repeat}
        texts = [t.text for t in translator.translate(sources[:SENTENCES], **how)]
        return DecodingTrial(**how, bleu=bleu(texts, references[:SENTENCES], lowercase=lowercase).value)

    greedy = tried(1, 0.0, usual)
    beams = [tried(asked.beam_size, penalty, usual) for penalty in LENGTH_PENALTIES if asked.beam_size > 1]
    trials = [greedy, *beams]
    if not usual:
        bests = [greedy, max(beams, key=lambda trial: trial.bleu)] if beams else [greedy]
        trials += [tried(trial.beam_size, trial.length_penalty, NO_REPEAT) for trial in bests]
    return DecodingChoice(tuple(trials))
