"""How a model is best searched: beam and length penalty, chosen on the validation set, never on a test set."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from repose.config.experiment import LENGTH_PENALTY
from repose.decoding.translator import Translator
from repose.evaluation.metrics import bleu

LENGTH_PENALTIES = (0.2, 0.6, 1.0, 1.5)
"""Those that are tried. Models of little data end too early, and want high ones."""
FEWEST = 50
"""Validation sentences below which a fine-tuning searches as the model that it began with."""
SENTENCES = 500
"""Of the validation set, from the first on."""


@dataclass(frozen=True)
class Trial:
    """One way to search, and what it is worth."""

    beam_size: int
    length_penalty: float
    bleu: float
    """Of the validation sentences, in percent."""


@dataclass(frozen=True)
class Choice:
    """What was tried, and what to do."""

    trials: tuple[Trial, ...]
    """Greedy search first."""

    @property
    def best(self) -> Trial:
        """That of the highest BLEU; of equals the earlier, so that a beam is taken where it is better than greedy
        search and only there."""
        return max(self.trials, key=lambda trial: trial.bleu)

    @property
    def settings(self) -> dict[str, Any]:
        """Beam and length penalty; where greedy search is best, the penalty is the best one of the beam. Where nothing
        tells penalties apart, since no beam was tried or none gives any BLEU, it is the usual one."""
        beams = [trial for trial in self.trials[1:] if trial.bleu > 0]
        penalty = max(beams, key=lambda trial: trial.bleu).length_penalty if beams else LENGTH_PENALTY
        return {"beam_size": self.best.beam_size, "length_penalty": penalty}

    def to_json(self) -> list[dict[str, Any]]:
        """The trials."""
        return [asdict(trial) for trial in self.trials]


def choose(translator: Translator, sources: Sequence[str], references: Sequence[str], beam_size: int) -> Choice:
    """Try greedy search, and the beam with each of `LENGTH_PENALTIES`, on the first `SENTENCES` pairs."""
    ways = [(1, 0.0), *((beam_size, penalty) for penalty in LENGTH_PENALTIES if beam_size > 1)]
    trials = []
    for beam, penalty in ways:
        translations = translator.translate(sources[:SENTENCES], beam_size=beam, length_penalty=penalty)
        lowercase = translator.tgt_tokenizer.lowercase
        score = bleu([t.text for t in translations], references[:SENTENCES], lowercase=lowercase)
        trials.append(Trial(beam, penalty, score.value))
    return Choice(tuple(trials))
