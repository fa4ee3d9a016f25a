"""Language codes as clients write them, their English names, and which of the served ones a text is in."""

from collections.abc import Sequence
from typing import NamedTuple

from repose.data.language import base_code, known_languages, language_name, rank
from repose.data.scripts import has_letters

_CANONICAL = {"pb": "pt-br", "zh": "zh-hans", "zt": "zh-hant"}
_SHOWN = {"pt-br": "pt-BR", "zh-hans": "zh-Hans", "zh-hant": "zh-Hant"}
_NAMES = {"pt-br": "Portuguese (Brazil)", "zh-hans": "Chinese", "zh-hant": "Chinese (traditional)"}


def canonical(code: str) -> str:
    """The one spelling of a code that is used inside: lower-cased, without the aliases of LibreTranslate."""
    lower = code.lower()
    return _CANONICAL.get(lower, lower)


def shown(code: str) -> str:
    """A canonical code as answers have it."""
    return _SHOWN.get(code, code)


def name_of(code: str) -> str:
    """English name of a canonical code; the code where there is none."""
    return _NAMES.get(code) or language_name(code)


class Detected(NamedTuple):
    """A language that a text may be in."""

    confidence: float
    """From 0 to 100."""
    language: str
    """Canonical."""

    def to_json(self) -> dict[str, object]:
        return {"confidence": self.confidence, "language": shown(self.language)}


_LOOKED_AT = 10_000  # characters
NOTHING = Detected(0.0, "en")
"""What is said of a text without letters."""


def detect(text: str, served: Sequence[str]) -> list[Detected]:
    """Which of the served languages a text is in, at most three, the most probable first; none for one without letters.

    Where only one is served there is nothing to choose. A language that the identifier does not know (py3langid) is
    named only if it is the only one.
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
