"""Whether a text, or what is said to be its translation, is in a language that its model was made for."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from importlib.util import find_spec
from itertools import islice
from typing import Any, Self

from repose.data.language import UNKNOWN, other_language
from repose.data.scripts import has_letters, is_translated, unseen_script
from repose.data.tags import direction

FEWEST_LETTERS = 40
"""A shorter text's language is not told from its letters."""
LEAST_PROBABILITY = 0.95
_MOST_CHARACTERS, _MOST_PAIRS = 4000, 500


class Unlike(Enum):
    """The respect in which a text differs from what its model reads."""

    SCRIPT = "script"
    LANGUAGE = "language"


@dataclass(frozen=True)
class InputWarning:
    """A text that a model was not made for."""

    unlike: Unlike
    found: str
    """Script such as "Cyrillic", or language code such as "de"."""
    expected: tuple[str, ...]
    is_target: bool = False
    """Whether it is a text in the place of translations."""

    def to_json(self) -> dict[str, Any]:
        """The warning as a JSON object."""
        content = {"unlike": self.unlike.value, "found": self.found, "expected": list(self.expected)}
        return {**content, "is_target": True} if self.is_target else content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The warning that `to_json` gave."""
        return cls(
            Unlike(content["unlike"]), content["found"], tuple(content["expected"]), content.get("is_target", False)
        )

    @property
    def sentence(self) -> str:
        """The warning as a sentence for people."""
        if self.is_target:
            writes = f"the targets seem to be in {self.found!r}, but this model writes {self.expected[0]!r}"
            return f"{writes}: their scores say nothing"
        if self.unlike is Unlike.SCRIPT:
            return f"the text is in {self.found} script, which this model's training hardly saw: expect nonsense"
        return f"the text seems to be in {self.found!r}, but this model reads {self.expected[0]!r}: expect nonsense"


def warning_for(config: Mapping[str, Any], texts: Iterable[str], to: str | None = None) -> InputWarning | None:
    """What is wrong with the texts for the model of a config.json, where that is told the tag `to`, if any."""
    scripts = config.get("src_scripts")
    language, _ = direction(config, to)
    return input_warning(texts, list(map(str, scripts)) if isinstance(scripts, list) else [], language)


def warnings_for_pairs(
    config: Mapping[str, Any], pairs: Iterable[tuple[str, str]], to: str | None = None
) -> list[InputWarning]:
    """What is wrong with either side of some pairs, likewise; of targets the language alone is looked at."""
    some = list(islice(pairs, _MOST_PAIRS))
    targets = input_warning((tgt for _, tgt in some), (), direction(config, to)[1])
    warnings = [warning_for(config, (src for src, _ in some), to), targets and replace(targets, is_target=True)]
    return [warning for warning in warnings if warning is not None]


def input_warning(texts: Iterable[str], scripts: Collection[str], language: str) -> InputWarning | None:
    """What is wrong with the texts for a model trained on these scripts (none: not known) and this language ("und":
    not known), taken together. The first text long enough to tell a language from takes seconds; where py3langid is not
    installed, none is told."""
    text = ""
    for each in filter(is_translated, texts):
        text += each + "\n"
        if len(text) >= _MOST_CHARACTERS:
            break
    text = text[:_MOST_CHARACTERS]
    if not has_letters(text):
        return None
    if scripts and (script := unseen_script(text, scripts)) is not None:
        return InputWarning(Unlike.SCRIPT, script, tuple(scripts))
    if language == UNKNOWN or sum(map(str.isalpha, text)) < FEWEST_LETTERS or find_spec("py3langid") is None:
        return None
    try:
        found = other_language(text, language, LEAST_PROBABILITY)
    except OSError:  # py3langid unpacks itself where temporary files lie: a full disk is no reason not to translate
        return None
    return None if found is None else InputWarning(Unlike.LANGUAGE, found, (language,))
