"""Scripts that text is written in, named after the Unicode names of its letters: Latin, Cyrillic, Han, Arabic."""

import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable
from functools import cache

_NO_SCRIPT = ("", "MODIFIER", "FEMININE", "MASCULINE", "MICRO", "FULLWIDTH", "HALFWIDTH", "SUPERSCRIPT")
_ONE_SCRIPT = dict.fromkeys(("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "BOPOMOFO", "IDEOGRAPHIC"), "Han")
ADDRESS = re.compile(r"(?:https?://|www\.)[!-~]+|[\w.+-]+@[\w-]+\.[\w.-]+", re.IGNORECASE)
"""A web or e-mail address."""
LEAST_SHARE = 0.001
"""Least share of a text's letters that a script needs to count as one of the text's, so that a foreign name does not
add one."""


def has_letters(text: str) -> bool:
    """Return whether a text contains a letter."""
    return any(map(str.isalpha, text))


def is_translated(text: str) -> bool:
    """Return whether a text contains anything to translate.

    Text without letters, such as a number, and a lone address have nothing to translate.
    """
    return has_letters(text) and not ADDRESS.fullmatch(text.strip())


@cache
def script_of(letter: str) -> str | None:
    """Return the script of a character; None if it is not a letter of one script. Chinese and Japanese are "Han"."""
    if not letter.isalpha():
        return None
    first = unicodedata.name(letter, "").split(" ")[0]
    return None if first in _NO_SCRIPT else _ONE_SCRIPT.get(first, first.capitalize())


def scripts_in(lines: Iterable[str]) -> list[str]:
    """Return the scripts of a text, sorted by name, without those below `LEAST_SHARE` of the letters."""
    characters: Counter[str] = Counter()
    for line in lines:
        characters.update(line)
    letters: Counter[str] = Counter()
    for character, number in characters.items():
        if (script := script_of(character)) is not None:
            letters[script] += number
    return sorted(script for script, number in letters.items() if number >= LEAST_SHARE * letters.total())


def unseen_script(line: str, seen: Container[str]) -> str | None:
    """Return the script of most letters of a line if it is not among those seen, else None."""
    if all(script is None or script in seen for script in map(script_of, set(line))):
        return None
    letters = Counter(script for character in line if (script := script_of(character)) is not None)
    return next((script for script, _ in letters.most_common(1) if script not in seen), None)
