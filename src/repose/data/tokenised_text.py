"""Text that a tokenizer of the Moses kind has taken apart: how it is recognised, and how it is put together again."""

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from repose.data.language import UNKNOWN

ENTITY = re.compile(r"&(?:[a-zA-Z]{2,8}|#\d{2,6}|#x[0-9a-fA-F]{2,6});")
"""An HTML entity, such as &apos;, which Moses's tokenizer writes and 13a takes apart again."""
_PARTED = re.compile(r" [.,](?= |$)|\( \w|(?<=\w) (?:n't|'(?:s|re|ve|ll|m|d))\b| [。、，！？]| @-@ |@@ ", re.IGNORECASE)


def looks_tokenised(text: str) -> bool:
    """Whether a space parts a word from its punctuation or its ending: "( Laughter )", "it 's", "end ."."""
    return _PARTED.search(text) is not None


@dataclass(frozen=True)
class TextForm:
    """How much of a text is in another form than people write."""

    lines: int
    tokenised: int
    """Lines that look tokenised."""
    entities: int
    """Lines with HTML entities."""

    @property
    def inflates_bleu(self) -> bool:
        """Whether BLEU of it says more than of the text that people would write: a twentieth of the lines look
        tokenised, or one in 200 has entities."""
        return 20 * self.tokenised >= self.lines > 0 or 200 * self.entities >= self.lines > 0


def form_of(lines: Sequence[str]) -> TextForm:
    """Counts over the lines of a text."""
    return TextForm(
        len(lines), sum(map(looks_tokenised, lines)), sum(ENTITY.search(line) is not None for line in lines)
    )


def detokeniser(language: str) -> Callable[[str], str]:
    """What unescapes entities and puts words and punctuation together again, by Moses's rules as sacremoses has them.

    `language`: a code such as "en", whose rules ("it 's") hold for "und", too. Text that is not tokenised stays as it
    is, nearly always.
    """
    from sacremoses import MosesDetokenizer

    moses = MosesDetokenizer("en" if language == UNKNOWN else language)

    def put_together(text: str) -> str:
        plain = ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
        joined: str = moses.detokenize(plain.split())
        return joined

    return put_together
