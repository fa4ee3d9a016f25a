"""Language codes as clients write them, English names of languages, and language detection."""

from collections.abc import Sequence
from typing import NamedTuple

from repose.data.language import base_code, known_languages, language_name, rank
from repose.data.scripts import has_letters

_CANONICAL = {"pb": "pt-br", "zh": "zh-hans", "zt": "zh-hant"}
_SHOWN = {"pt-br": "pt-BR", "zh-hans": "zh-Hans", "zh-hant": "zh-Hant"}
_NAMES = {"pt-br": "Portuguese (Brazil)", "zh-hans": "Chinese", "zh-hant": "Chinese (traditional)"}


def canonical(code: str) -> str:
    """Return the internal spelling of a code: lower case, with LibreTranslate's aliases resolved."""
    lower = code.lower()
    return _CANONICAL.get(lower, lower)


def shown(code: str) -> str:
    """Return the spelling of a canonical code that answers use."""
    return _SHOWN.get(code, code)


def name_of(code: str) -> str:
    """Return the English name of a canonical code; the code itself if the name is unknown."""
    return _NAMES.get(code) or language_name(code)


class Detected(NamedTuple):
    """A language that a text may be in."""

    confidence: float
    """In percent, from 0 to 100."""
    language: str
    """Canonical code."""

    def to_json(self) -> dict[str, object]:
        return {"confidence": self.confidence, "language": shown(self.language)}


_LOOKED_AT = 10_000  # characters
NOTHING = Detected(0.0, "en")
"""Result for a text without letters."""


def detect(text: str, served: Sequence[str]) -> list[Detected]:
    """Return up to three of the served languages that a text may be in, the most probable first.

    The list is empty for a text without letters. If only one language is served, the answer is that language. Otherwise
    languages that the identifier (py3langid) does not know are never named.
    """
    text = text[:_LOOKED_AT]
    if not has_letters(text):
        return []
    if len(served) == 1:
        return [Detected(100.0, served[0])]
    among = {base_code(code): code for code in reversed(served)}
    known = [code for code in among if code in known_languages()]
    if not known:
        return []
    ranked = rank(text, known)[:3]
    return [Detected(round(100.0 * probability, 1), among[code]) for code, probability in ranked]
