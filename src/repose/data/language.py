"""Which language a text is in: py3langid's naive Bayes over bytes (Lui and Baldwin 2012), offline."""

from collections.abc import Sequence
from functools import cache
from typing import Any


def identify(text: str) -> tuple[str, float]:
    """Language code such as "en", and how probable it is, from 0 to 1. The first call takes seconds."""
    language, probability = _identifier().classify(text)
    return language, probability


def rank(text: str, languages: Sequence[str]) -> list[tuple[str, float]]:
    """Of these languages, all known, each with its probability if the text is in one of them; the best first."""
    found = [(language, probability) for language, probability in _identifier().rank(text) if language in languages]
    total = sum(probability for _, probability in found) or 1.0
    return [(language, probability / total) for language, probability in found]


@cache
def known_languages() -> frozenset[str]:
    """Codes of the languages that can be identified."""
    return frozenset(_identifier().labels)


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
