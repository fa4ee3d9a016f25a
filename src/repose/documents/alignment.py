"""Which source letters each word of a translation came from, by the model's cross-attention.

The weights are the mean over the heads of the last layer. The word "came from" the token that all its tokens together
gave most weight to; START, END and tags are not among those.
"""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from repose.decoding.parts import Part, is_wide

if TYPE_CHECKING:
    from repose.data.tokenizer import Tokenizer
    from repose.decoding.translator import Translation

Span = tuple[int, int]
"""Characters: the first, and the one after the last."""

_INSIDE_WORDS = "-'’.·"
"""Between two letters they are part of the word."""


class SourceAttention(NamedTuple):
    """What attention a word gave to a sentence."""

    starts: NDArray[np.int64]
    """(S,) where each source token begins; before everything, what stands nowhere."""
    shares: NDArray[np.float32]
    """(S,) attention."""
    shift: int = 0
    """Where the sentence begins in the source."""

    def within(self, start: int, end: int) -> float:
        """The attention to some characters of the source."""
        chosen = (self.starts >= max(0, start - self.shift)) & (self.starts < end - self.shift)
        return float(self.shares[chosen].sum())


class Unit(NamedTuple):
    """A word of a translation, a punctuation mark, or a character of a script without spaces."""

    start: int
    end: int
    came_from: int
    """A character of the source."""
    attention: SourceAttention | None = None
    """None where there is no attention."""

    def moved(self, target: int, source: int) -> "Unit":
        """The unit, moved so many characters on in the target and in the source."""
        attention = self.attention and self.attention._replace(shift=self.attention.shift + source)
        return Unit(self.start + target, self.end + target, self.came_from + source, attention)


@dataclass(frozen=True)
class Spans:
    """Where a model's tokens stand in texts."""

    of_source: Callable[[str], list[Span]]
    """Gives the spans of the tokens that a source is read as, START and END included: `Tokenizer.spans`."""
    of_target: Callable[[Sequence[str]], list[Span]]
    """Gives the spans that tokens of a translation have in its text."""

    @classmethod
    def of(cls, src: "Tokenizer", tgt: "Tokenizer") -> "Spans":
        """The spans that a model's tokenizers give."""
        return cls(src.spans, lambda tokens: tgt.decoded_spans(tgt.ids(tokens)))


def for_placement(translation: "Translation") -> "Translation":
    """A translation with no more of its attention than markup is placed by, the mean of the last layer's heads: a
    document has many, which are kept until it is done."""
    attention = translation.attention
    return translation if attention is None else replace(translation, attention=attention[-1:].mean(1, keepdims=True))


def units_of(source: str, translation: "Translation", spans: Spans) -> list[Unit]:
    """The words of the translation of a sentence, in order; proportionally where there is no attention."""
    text = translation.text
    if translation.attention is None or not translation.hypotheses:
        return proportional_units(source, text)
    where = token_spans(source, len(translation.src_tokens), spans)
    starts = np.array([start if end > start else -1 for start, end in where])
    rows = translation.attention[-1].mean(0) * (starts >= 0)
    written = spans.of_target(translation.hypotheses[0].tokens)
    units, first = [], 0
    for begin, end in words_of(text):
        while first < len(written) and written[first][1] <= begin:
            first += 1
        last = first
        while last < len(written) and written[last][0] < end:
            last += 1
        attention = SourceAttention(starts, rows[first:last].sum(0))
        units.append(Unit(begin, end, max(0, int(starts[attention.shares.argmax()])), attention))
    return units


def token_spans(source: str, number: int, spans: Spans) -> list[Span]:
    """Where each of the `number` tokens stands that a model read a source as; (0, 0) for tags, START and END."""
    found = spans.of_source(source)
    tags = max(0, number - len(found))
    read = [found[0], *[(0, 0)] * tags, *found[1:]][:number]  # a long source was cut before END
    return [*read[:-1], (0, 0)]


def proportional_units(source: str, text: str) -> list[Unit]:
    """The words of a text as if it were written evenly over its source; of the same text, word by word."""
    scale = len(source) / max(1, len(text))
    return [Unit(start, end, int(start * scale)) for start, end in words_of(text)]


def words_of(text: str) -> Iterator[Span]:
    """Words, each punctuation mark, and each character of a script without spaces."""
    kinds = [_kind(text, place) for place in range(len(text))]
    start = 0
    for kind, same in groupby(kinds):
        end = start + len(list(same))
        if kind == "word":
            yield start, end
        elif kind == "alone":
            yield from ((place, place + 1) for place in range(start, end))
        start = end


def _kind(text: str, place: int) -> str:
    character = text[place]
    if character.isspace():
        return "space"
    if unicodedata.category(character)[0] in "PS":
        between = text[place - 1 : place].isalnum() and text[place + 1 : place + 2].isalnum()
        return "word" if between and character in _INSIDE_WORDS else "alone"
    return "alone" if is_wide(character) else "word"


@dataclass(frozen=True)
class Translated:
    """A text and the words in it."""

    text: str
    units: tuple[Unit, ...] = ()


def whole(parts: Sequence[Part], together: Sequence[Part], units: Sequence[Sequence[Unit]]) -> Translated:
    """A text of several parts. `together`: `pieces_together` of the translations; `units`: of each part's."""
    text, source, all_units = "", 0, []
    for part, made, some in zip(parts, together, units, strict=True):
        source += len(part.before)
        text += made.before
        all_units += [unit.moved(len(text), source) for unit in some]
        text += made.text + made.after
        source += len(part.text) + len(part.after)
    return Translated(text, tuple(all_units))
