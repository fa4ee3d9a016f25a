"""Which language a text is in: py3langid's naive Bayes over bytes (Lui and Baldwin 2012), offline."""

from functools import cache
from typing import Any


def identify(text: str) -> tuple[str, float]:
    """Language code such as "en", and how probable it is, from 0 to 1. The first call takes seconds."""
    language, probability = _identifier().classify(text)
    return language, probability


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
