"""Whether a text is in a language that its model was made for."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum

from repose.data.language import identify, is_in, known_languages
from repose.data.scripts import unseen_script
from repose.documents.segment import has_letters

FEWEST_LETTERS = 40
"""A shorter text's language is not told from its letters."""
LEAST_PROBABILITY = 0.95
_MOST_CHARACTERS = 4000


class Unlike(Enum):
    """In what a text differs from what its model reads."""

    SCRIPT = "script"
    LANGUAGE = "language"


@dataclass(frozen=True)
class InputWarning:
    """A text that a model was not made for."""

    unlike: Unlike
    found: str
    """Script such as "Cyrillic", or language code such as "de"."""
    expected: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """For people."""
        if self.unlike is Unlike.SCRIPT:
            return f"the text is in {self.found} script, which this model's training never saw: expect nonsense"
        return f"the text seems to be in {self.found!r}, but this model reads {self.expected[0]!r}: expect nonsense"


def input_warning(texts: Iterable[str], scripts: Collection[str], language: str) -> InputWarning | None:
    """What is wrong with the texts for a model trained on these scripts (none: not known) and this language ("und":
    not known), taken together. The first text long enough to tell a language from takes seconds."""
    text = ""
    for each in texts:
        text += each + "\n"
        if len(text) >= _MOST_CHARACTERS:
            break
    text = text[:_MOST_CHARACTERS]
    if not has_letters(text):
        return None
    if scripts and (script := unseen_script(text, scripts)) is not None:
        return InputWarning(Unlike.SCRIPT, script, tuple(scripts))
    if language == "und" or sum(map(str.isalpha, text)) < FEWEST_LETTERS:
        return None
    base = language.split("-")[0].split("_")[0].lower()
    if is_in(text, base):
        return None
    found, probability = identify(text)
    # A language that it does not know it would always take for another.
    if found == base or probability < LEAST_PROBABILITY or base not in known_languages():
        return None
    return InputWarning(Unlike.LANGUAGE, found, (language,))
