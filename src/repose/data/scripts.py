"""Scripts that text is written in, by the names that Unicode gives its letters: Latin, Cyrillic, Han, Arabic."""

import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable
from functools import cache

_NO_SCRIPT = ("", "MODIFIER", "FEMININE", "MASCULINE", "MICRO", "FULLWIDTH", "HALFWIDTH", "SUPERSCRIPT")
_ONE_SCRIPT = dict.fromkeys(("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "BOPOMOFO", "IDEOGRAPHIC"), "Han")
ADDRESS = re.compile(r"(?:https?://|www\.)[!-~]+|[\w.+-]+@[\w-]+\.[\w.-]+", re.IGNORECASE)
"""An address on the web, or of e-mail."""
LEAST_SHARE = 0.001
"""The least share of a text's letters by which it is said to have a script; a foreign name makes none."""


def has_letters(text: str) -> bool:
    """Whether there is a letter in a text."""
    return any(map(str.isalpha, text))


def is_translated(text: str) -> bool:
    """Whether there is anything in a text for a model to translate: what has no letters, such as a number, and an
    address alone stay as they are."""
    return has_letters(text) and not ADDRESS.fullmatch(text.strip())


@cache
def script_of(letter: str) -> str | None:
    """The script of a character; None unless it is a letter of one script. Chinese and Japanese are "Han"."""
    if not letter.isalpha():
        return None
    first = unicodedata.name(letter, "").split(" ")[0]
    return None if first in _NO_SCRIPT else _ONE_SCRIPT.get(first, first.capitalize())


def scripts_in(lines: Iterable[str]) -> list[str]:
    """The scripts of a text, by name, those of fewer letters than `LEAST_SHARE` left out."""
    characters: Counter[str] = Counter()
    for line in lines:
        characters.update(line)
    letters: Counter[str] = Counter()
    for character, number in characters.items():
        if (script := script_of(character)) is not None:
            letters[script] += number
    return sorted(script for script, number in letters.items() if number >= LEAST_SHARE * letters.total())


def unseen_script(line: str, seen: Container[str]) -> str | None:
    """The script of most letters of a line, if it is not among those seen."""
    if all(script is None or script in seen for script in map(script_of, set(line))):
        return None
    letters = Counter(script for character in line if (script := script_of(character)) is not None)
    return next((script for script, _ in letters.most_common(1) if script not in seen), None)
