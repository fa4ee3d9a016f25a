"""Score how well the two sentences of a pair translate each other: dual conditional cross-entropy, and simple checks.

Junczys-Dowmunt 2018 (arXiv 1809.00197), equations 1 to 3: with H_A and H_B the cross-entropies, in nats per token, of
target given source and of source given target, a pair's score is exp(-(|H_A - H_B| + (H_A + H_B) / 2)), from 0 to 1.

Differs from the paper: with only one model, the score is exp(-H_A). Checks replace the language model of the domain and
the probability of the language; a pair that fails a check has score 0.
"""

import math
from collections.abc import Sequence
from enum import StrEnum

from repose.bulk.inputs import Failure, Record
from repose.bulk.parts import Result
from repose.bulk.plan import Job
from repose.data.language import other_language
from repose.data.scripts import unseen_script
from repose.data.tags import direction
from repose.decoding.lengths import lengths_of
from repose.decoding.parts import is_wide
from repose.decoding.translator import Translator

UNEQUAL, UNEQUAL_CHARACTERS = 3.0, 30
"""Lengths are unequal if one side is this many times as long as the other, and has at least this many characters; those
of Chinese and Japanese count double, since they say more."""
COPIED_WORDS, COPIED_SHARE = 4, 0.8
"""A target is a copy if it has at least this many words, and this share of them occurs in the source. Names alone are
fewer words."""
CERTAIN, CERTAIN_CHARACTERS = 0.99, 25
"""A text is in another language if this is at least so probable, and the text has at least this many characters: the
language of shorter texts is uncertain."""


class PairProblem(StrEnum):
    """Why a pair is rejected, besides `Failure`."""

    COPIED = "copied"
    UNEQUAL = "unequal lengths"
    SCRIPT = "another script"
    LANGUAGE = "another language"


def adequacy(forward: float, backward: float | None) -> float:
    """Return the score of a pair, from its cross-entropies (module docstring); 0 if one is infinite."""
    if backward is None:
        return math.exp(-forward)
    if math.inf in (forward, backward):  # if both are infinite, their difference is NaN
        return 0.0
    return math.exp(-(abs(forward - backward) + (forward + backward) / 2))


class PairScorer:
    """Scores pairs with models and checks. One line each: score, both cross-entropies, reason for rejection."""

    def __init__(self, job: Job, models: Sequence[Translator]) -> None:
        self._checks, self._models = job.checks, models
        config = models[0].config
        self._tags = job.tags or (None,) * len(models)
        self._languages = direction(config, self._tags[0])
        self._scripts = [set(map(str, model.config.get("src_scripts") or ())) for model in models]
        self._lengths = [lengths_of(model, tag) for model, tag in zip(models, self._tags, strict=True)]

    def __call__(self, records: Sequence[Record], _number: int) -> list[Result]:
        reasons: list[str | None] = [self._problem(record) for record in records]
        places = [place for place, reason in enumerate(reasons) if reason is None]
        pairs = [(records[place].texts[0], records[place].texts[1]) for place in places]
        entropies = [_cross_entropies(self._models[0], pairs, self._tags[0])]
        if len(self._models) > 1:
            reverse = [(tgt, src) for src, tgt in pairs]
            entropies.append(_cross_entropies(self._models[1], reverse, self._tags[1]))
        found = dict(zip(places, zip(*entropies, strict=True), strict=True))
        return [self._result(reason, found.get(place)) for place, reason in enumerate(reasons)]

    def _result(self, reason: str | None, found: "tuple[tuple[float, int], ...] | None") -> Result:
        if found is None:
            return Result([f"0\tnan\tnan\t{reason}"], failure=reason)
        values = [value for value, _ in found]
        backward = values[1] if len(values) > 1 else None
        shown = math.nan if backward is None else backward
        line = f"{adequacy(values[0], backward):.6g}\t{values[0]:.4f}\t{shown:.4f}\t"
        return Result([line], tokens=sum(tokens for _, tokens in found))

    def _problem(self, record: Record) -> str | None:
        """Return why a pair cannot be scored; None if it can."""
        if record.failure is not None:
            return str(record.failure)
        if self._checks and (found := self._check(*record.texts)) is not None:
            return str(found)
        sides = zip(self._models, self._lengths, record.texts, record.texts[::-1], strict=False)
        for model, lengths, source, target in sides:
            if not lengths.fits(source) or len(model.tgt_tokenizer.encode(target)) > model.max_length + 1:
                return str(Failure.TOO_LONG)
        return None

    def _check(self, src: str, tgt: str) -> PairProblem | None:
        if _is_copy(src, tgt):
            return PairProblem.COPIED
        lengths = _width(src), _width(tgt)
        if max(lengths) >= UNEQUAL_CHARACTERS:
            ratio = (lengths[0] + 5) / (lengths[1] + 5)
            if not 1 / UNEQUAL <= ratio <= UNEQUAL:
                return PairProblem.UNEQUAL
        for text, seen in zip((src, tgt), self._scripts, strict=False):
            if seen and unseen_script(text, seen) is not None:
                return PairProblem.SCRIPT
        for text, code in zip((src, tgt), self._languages, strict=True):
            if len(text) >= CERTAIN_CHARACTERS and other_language(text, code, CERTAIN) is not None:
                return PairProblem.LANGUAGE
        return None


def _width(text: str) -> int:
    return len(text) + sum(is_wide(letter) for letter in text if letter >= "\u1100")  # none below is wide


def _is_copy(src: str, tgt: str) -> bool:
    if src.strip().casefold() == tgt.strip().casefold():
        return True
    words = tgt.casefold().split()
    there = set(src.casefold().split())
    return len(words) >= COPIED_WORDS and sum(word in there for word in words) >= COPIED_SHARE * len(words)


def _cross_entropies(
    translator: Translator, pairs: Sequence[tuple[str, str]], to: str | None
) -> list[tuple[float, int]]:
    """Return the cross-entropy of each target given its source, in nats per token, END included; and its length."""
    if not pairs:
        return []
    targets = [translator.tgt_tokenizer.encode(target) for _, target in pairs]
    with translator.engine.undisturbed():
        forced = translator.force([source for source, _ in pairs], targets, to=to)
    return [(-one.total / len(one.log_probs), len(one.log_probs)) for one in forced]
