"""Find translations that repeat the same words: weak models often produce them, and no score shows them."""

import re
import sys
import unicodedata
from functools import cache

LONGEST = 20
"""Words of the longest phrase that is checked for repetition."""
LONG, TIMES, TIMES_IF_LONG = 3, 3, 2
"""A phrase of fewer than `LONG` words must occur three times in a row to count, a longer one twice."""
_UNPARTED = "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
"""Matches a character of scripts that do not put spaces between words."""


@cache
def _word() -> re.Pattern[str]:
    """Return a pattern for a word, a bracket, or a character of scripts without spaces between words.

    Other punctuation is ignored. Vowel signs and accents that are separate characters belong to their word, although
    `\\w` does not match them.
    """
    marks = "".join(re.escape(chr(c)) for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c))[0] == "M")
    word = rf"[^\W_](?:[^\W_]|[{marks}\u200c\u200d])*"
    return re.compile(rf"{_UNPARTED}|{word}(?:['’]{word})*|[()\[\]]")


def loops(text: str) -> bool:
    """Return whether one or two words occur three times in a row, or a phrase of three to twenty words twice in a row.

    Case is ignored. Human translations do this occasionally, too (results/corpus-check.json), so compare with the
    reference.
    """
    words = _word().findall(text.casefold())
    return len(set(words)) < len(words) and any(_repeats(words, length) for length in range(1, LONGEST + 1))


def _repeats(words: list[str], length: int) -> bool:
    """Return whether a phrase of this length is repeated often enough in a row.

    That is so if enough consecutive words equal the words `length` places before.
    """
    needed = length * ((TIMES if length < LONG else TIMES_IF_LONG) - 1)
    run = 0
    for before, word in zip(words, words[length:], strict=False):
        run = run + 1 if before == word else 0
        if run == needed:
            return True
    return False
