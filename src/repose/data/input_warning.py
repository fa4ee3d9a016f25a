"""Warnings about text, or supposed translations, in a language or script that a model was not trained on."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from importlib.util import find_spec
from itertools import islice
from typing import Any, Self

from repose.data.language import UNKNOWN, name_with_code, other_language
from repose.data.scripts import has_letters, is_translated, unseen_script
from repose.data.tags import direction

FEWEST_LETTERS = 40
"""Fewest letters from which the language of a text is identified."""
LEAST_PROBABILITY = 0.95
_MOST_CHARACTERS, _MOST_PAIRS = 4000, 500


class Unlike(Enum):
    """How a text differs from what the model reads."""

    SCRIPT = "script"
    LANGUAGE = "language"


@dataclass(frozen=True)
class InputWarning:
    """A warning about text that a model was not trained for."""

    unlike: Unlike
    found: str
    """A script such as "Cyrillic", or a language code such as "de"."""
    expected: tuple[str, ...]
    is_target: bool = False
    """True if the text was given as translations."""

    def to_json(self) -> dict[str, Any]:
        """Return the warning as a JSON object."""
        content = {"unlike": self.unlike.value, "found": self.found, "expected": list(self.expected)}
        return {**content, "is_target": True} if self.is_target else content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return the warning that `to_json` wrote."""
        return cls(
            Unlike(content["unlike"]), content["found"], tuple(content["expected"]), content.get("is_target", False)
        )

    @property
    def sentence(self) -> str:
        """The warning as a sentence for users."""
        if self.unlike is Unlike.SCRIPT:
            return f"the text is in {self.found} script, which this model's training hardly saw: expect nonsense"
        found, expected = name_with_code(self.found), name_with_code(self.expected[0])
        if self.is_target:
            return f"the targets seem to be in {found}, but this model writes {expected}: their scores say nothing"
        return f"the text seems to be in {found}, but this model reads {expected}: expect nonsense"


def line_warning(number: int, script: str) -> str:
    """Return the warning about a line, from 1, in a script that training hardly saw, where others may be in one that
    it saw."""
    return f"line {number:,} is in {script} script, which this model's training hardly saw: expect nonsense"


def warning_for(config: Mapping[str, Any], texts: Iterable[str], to: str | None = None) -> InputWarning | None:
    """Check source texts against a model's config.json. `to` is the tag that the model is given, if any."""
    scripts = config.get("src_scripts")
    language, _ = direction(config, to)
    return input_warning(texts, list(map(str, scripts)) if isinstance(scripts, list) else [], language)


def warnings_for_pairs(
    config: Mapping[str, Any], pairs: Iterable[tuple[str, str]], to: str | None = None
) -> list[InputWarning]:
    """Check both sides of some pairs against a model's config.json; targets are checked for their language only.

    `to` is the tag that the model is given, if any.
    """
    some = list(islice(pairs, _MOST_PAIRS))
    targets = input_warning((tgt for _, tgt in some), (), direction(config, to)[1])
    warnings = [warning_for(config, (src for src, _ in some), to), targets and replace(targets, is_target=True)]
    return [warning for warning in warnings if warning is not None]


def input_warning(texts: Iterable[str], scripts: Collection[str], language: str) -> InputWarning | None:
    """Check texts, taken together, against the scripts and the language that a model was trained on.

    Unknown scripts are an empty collection, an unknown language is "und". The first text that is long enough to
    identify its language takes seconds. Without py3langid, languages are not checked.
    """
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
    except OSError:  # py3langid unpacks itself into the temporary folder: a full disk must not stop a translation
        return None
    return None if found is None else InputWarning(Unlike.LANGUAGE, found, (language,))
