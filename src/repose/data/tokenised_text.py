"""Recognise text that a Moses-style tokenizer has split, and detokenise it."""

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from repose.data.language import UNKNOWN

ENTITY = re.compile(r"&(?:[a-zA-Z]{2,8}|#\d{2,6}|#x[0-9a-fA-F]{2,6});")
"""An HTML entity, such as &apos;, which Moses's tokenizer writes and sacreBLEU's 13a splits up."""
_PARTED = re.compile(r" [.,](?= |$)|\( \w|(?<=\w) (?:n't|'(?:s|re|ve|ll|m|d))\b| [。、，！？]| @-@ |@@ ", re.IGNORECASE)


def looks_tokenised(text: str) -> bool:
    """Return whether a space separates a word from its punctuation or its ending: "( Laughter )", "it 's", "end ."."""
    return _PARTED.search(text) is not None


@dataclass(frozen=True)
class TextForm:
    """How many lines of a text are not in the form that people write."""

    lines: int
    tokenised: int
    """Lines that look tokenised."""
    entities: int
    """Lines with HTML entities."""

    @property
    def inflates_bleu(self) -> bool:
        """True if BLEU on this text would be higher than on normal text.

        That is so if a twentieth of the lines look tokenised, or one in 200 has entities.
        """
        return 20 * self.tokenised >= self.lines > 0 or 200 * self.entities >= self.lines > 0


def form_of(lines: Sequence[str]) -> TextForm:
    """Count the lines of a text that look tokenised or contain HTML entities."""
    return TextForm(
        len(lines), sum(map(looks_tokenised, lines)), sum(ENTITY.search(line) is not None for line in lines)
    )


def detokeniser(language: str) -> Callable[[str], str]:
    """Return a function that unescapes entities and detokenises a text by Moses's rules, as implemented by sacremoses.

    `language` is a code such as "en", whose rules ("it 's") also apply to "und". Text that is not tokenised nearly
    always stays unchanged.
    """
    from sacremoses import MosesDetokenizer

    moses = MosesDetokenizer("en" if language == UNKNOWN else language)

    def put_together(text: str) -> str:
        plain = ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
        joined: str = moses.detokenize(plain.split())
        return joined

    return put_together
