"""Align each word of a translation with source characters, by the model's cross-attention.

The weights are the mean over the heads of the last layer. A word "came from" the source token that got most weight from
all tokens of the word together. [START], [END] and tags do not count as source tokens.
"""

import unicodedata
from collections.abc import Iterator, Sequence
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
"""A range of characters: the first one, and the one after the last."""

_INSIDE_WORDS = "-'’.·"
"""Characters that are part of a word if they stand between two letters."""


class SourceAttention(NamedTuple):
    """The attention of a word to the tokens of a source sentence."""

    starts: NDArray[np.int64]
    """(S,) start of each source token in the sentence; -1 for tokens without characters."""
    shares: NDArray[np.float32]
    """(S,) attention weight of each source token, summed over the word's tokens."""
    shift: int = 0
    """Start of the sentence in the whole source."""

    def within(self, start: int, end: int) -> float:
        """Return the attention to the source characters from `start` to before `end`."""
        chosen = (self.starts >= max(0, start - self.shift)) & (self.starts < end - self.shift)
        return float(self.shares[chosen].sum())


class Unit(NamedTuple):
    """A word of a translation, a punctuation mark, or a character of a script without spaces."""

    start: int
    end: int
    came_from: int
    """Index of a source character."""
    attention: SourceAttention | None = None
    """None if the model's attention is not known."""

    def moved(self, target: int, source: int) -> "Unit":
        """Return the unit shifted by this many characters in the target and in the source."""
        attention = self.attention and self.attention._replace(shift=self.attention.shift + source)
        return Unit(self.start + target, self.end + target, self.came_from + source, attention)


def for_placement(translation: "Translation") -> "Translation":
    """Reduce a translation's attention to what placing markup needs: the mean over the last layer's heads.

    This saves memory, since all translations of a document are kept until it is finished.
    """
    attention = translation.attention
    return translation if attention is None else replace(translation, attention=attention[-1:].mean(1, keepdims=True))


def units_of(source: str, translation: "Translation", src: "Tokenizer", tgt: "Tokenizer") -> list[Unit]:
    """Return the words of a sentence's translation, in order. Without attention, they are aligned in proportion.

    `src`, `tgt`: the model's tokenizers.
    """
    text = translation.text
    if translation.attention is None or not translation.hypotheses:
        return proportional_units(source, text)
    where = token_spans(source, len(translation.src_tokens), src)
    starts = np.array([start if end > start else -1 for start, end in where])
    rows = translation.attention[-1].mean(0) * (starts >= 0)
    written = tgt.decoded_spans(tgt.ids(translation.hypotheses[0].tokens))
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


def token_spans(source: str, number: int, tokenizer: "Tokenizer") -> list[Span]:
    """Return the spans of the `number` tokens that a model read for a source; (0, 0) for tags, [START] and [END]."""
    found = tokenizer.spans(source)
    tags = max(0, number - len(found))
    read = [found[0], *[(0, 0)] * tags, *found[1:]][:number]  # a long source was cut before [END]
    return [*read[:-1], (0, 0)]


def proportional_units(source: str, text: str) -> list[Unit]:
    """Return the words of a text, aligned with its source in proportion. For equal texts, each word matches itself."""
    scale = len(source) / max(1, len(text))
    return [Unit(start, end, int(start * scale)) for start, end in words_of(text)]


def words_of(text: str) -> Iterator[Span]:
    """Yield the spans of words, of punctuation marks, and of each character of a script without spaces."""
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
    """A translated text and its words."""

    text: str
    units: tuple[Unit, ...] = ()


def whole(parts: Sequence[Part], together: Sequence[Part], units: Sequence[Sequence[Unit]]) -> Translated:
    """Join the translations of several parts. `together`: their `pieces_together`. `units`: the words of each part."""
    text, source, all_units = "", 0, []
    for part, made, some in zip(parts, together, units, strict=True):
        source += len(part.before)
        text += made.before
        all_units += [unit.moved(len(text), source) for unit in some]
        text += made.text + made.after
        source += len(part.text) + len(part.after)
    return Translated(text, tuple(all_units))
