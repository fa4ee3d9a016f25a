"""Translations that say the same words again and again, which beginners' models do, and which no score tells."""

import re
import sys
import unicodedata
from functools import cache

LONGEST = 20
"""Words of the longest phrase that is looked for."""
LONG, TIMES, TIMES_IF_LONG = 3, 3, 2
"""A phrase of fewer than `LONG` words must stand three times in a row, a longer one twice."""
_UNPARTED = "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
"""A character of scripts that do not part words."""


@cache
def _word() -> re.Pattern[str]:
    """A word, a bracket, or a character of scripts that do not part words; other punctuation does not count.

    Vowel signs and accents that are characters of their own belong to their word, which `\\w` leaves out.
    """
    marks = "".join(re.escape(chr(c)) for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c))[0] == "M")
    word = rf"[^\W_](?:[^\W_]|[{marks}\u200c\u200d])*"
    return re.compile(rf"{_UNPARTED}|{word}(?:['’]{word})*|[()\[\]]")


def loops(text: str) -> bool:
    """Whether one or two words stand there three times in a row, or a phrase of three to twenty words twice.

    Case is no difference. People do so, too, now and then (results/corpus-check.json): compare with the reference.
    """
    words = _word().findall(text.casefold())
    return len(set(words)) < len(words) and any(_repeats(words, length) for length in range(1, LONGEST + 1))


def _repeats(words: list[str], length: int) -> bool:
    """Whether a phrase of this length is repeated: that many words in a row are those `length` places before."""
    needed = length * ((TIMES if length < LONG else TIMES_IF_LONG) - 1)
    run = 0
    for before, word in zip(words, words[length:], strict=False):
        run = run + 1 if before == word else 0
        if run == needed:
            return True
    return False
