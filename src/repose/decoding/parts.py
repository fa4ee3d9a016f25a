"""Translate a text of any length with a model that reads sentences: split it, translate, and join the translations.

A text is split into sentences (https://github.com/wikimedia/sentencex). A sentence that is longer than nearly all
sentences in the model's training is split at clauses, or between words. The white space between the parts is kept.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import isnan, nan
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import sentencex

from repose.data.language import UNKNOWN, base_code
from repose.data.scripts import ADDRESS, has_letters, is_translated
from repose.data.tags import direction
from repose.decoding.lengths import lengths_of

if TYPE_CHECKING:
    from repose.decoding.translator import Translation, Translator

T = TypeVar("T")
_MOST_CHARACTERS = 20_000
_OTHER_SPACE = re.compile(r"[^\S\x00-\x7f]")
_CLAUSE = re.compile(r"(?<=[;:,])(?![!-~])\s*|(?<=[،؛、，；：])\s*|(?<!\s)\s++(?=[–—(])|(?<=[–—)])\s+")
_WORD = re.compile(r"\s+")
_MARK = re.compile(r"(?<=[;:,])")


class Part(NamedTuple):
    """A sentence, or a part of it that the model can read."""

    before: str
    """White space before the text."""
    text: str
    """Empty if the text is blank."""
    after: str
    """White space after the text."""

    @property
    def is_translated(self) -> bool:
        """True if the part is translated; otherwise it is copied."""
        return is_translated(self.text)


@dataclass(frozen=True)
class Parts:
    """A text, split into the parts that the model reads."""

    parts: tuple[Part, ...]
    too_long: bool
    """True if a sentence was split."""

    @classmethod
    def together(cls, texts: "Iterable[Parts]") -> "Parts":
        """Join the parts of several texts into those of one."""
        texts = list(texts)
        return cls(tuple(chain.from_iterable(one.parts for one in texts)), any(one.too_long for one in texts))

    @property
    def sentences(self) -> list[str]:
        """Texts of the parts to translate, in order."""
        return [part.text for part in self.parts if part.is_translated]

    def filled(self, translated: Iterable[T]) -> list[T | None]:
        """Return one item per part: None for a part that is copied, otherwise the next item of `translated`.

        `translated` has one item for each of `sentences`; an iterator may continue with the items of other texts.
        """
        remaining = iter(translated)
        return [next(remaining) if part.is_translated else None for part in self.parts]


def parts_of(text: str, language: str, fits: Callable[[str], bool]) -> Parts:
    """Split a text into sentences, and these until each part fits. A sentence without a place to split stays whole. The
    parts together are the whole text."""
    parts, too_long = [], False
    for sentence in _sentences(text, language) if text.strip() else [text]:
        pieces = list(_pieces(sentence, fits))
        too_long = too_long or len(pieces) > 1
        for piece in pieces:
            parts.append(_stripped(piece))
    return Parts(tuple(parts), too_long)


def _stripped(text: str) -> Part:
    core = text.strip()
    begin = len(text) - len(text.lstrip()) if core else len(text)
    return Part(text[:begin], core, text[begin + len(core) :])


def _sentences(text: str, language: str) -> Iterator[str]:
    """Yield the sentences that sentencex finds. It is given a plain space for each non-ASCII one: it counts any space
    as one byte, and crashes if that is wrong."""
    start = 0
    for block in _blocks(_OTHER_SPACE.sub(" ", text)):
        for sentence in _whole(sentencex.segment(language, block)):
            end = start + len(sentence)
            yield text[start:end]
            start = end
    assert start == len(text)


def _whole(sentences: Iterable[str]) -> Iterator[str]:
    """Join what sentencex splits within a name or an address: "J.R.R.", "www.Example.Com"."""
    begun = ""
    for sentence in sentences:
        if begun and not begun[-1].isspace() and not _parts_without_space(begun, sentence):
            begun += sentence
            continue
        if begun:
            yield begun
        begun = sentence
    yield begun


def _parts_without_space(before: str, after: str) -> bool:
    """Return whether a sentence can end between two texts without white space: after "。" or "।", before "猫"."""
    return not before[-1:].isascii() or any(map(is_wide, after[:1]))


def _blocks(text: str) -> Iterator[str]:
    """Yield blocks to segment separately: the time of sentencex is quadratic in the length of some texts."""
    start = 0
    while len(text) - start > _MOST_CHARACTERS:
        most = start + _MOST_CHARACTERS
        end = text.rfind(". ", start, most) + 2
        end = end if end > start + 1 else max(text.rfind(" ", start, most) + 1, 0)
        end = end if end > start else most
        end = found.end() if (found := _WORD.match(text, end)) else end
        yield text[start:end]
        start = end
    yield text[start:]


def _pieces(text: str, fits: Callable[[str], bool]) -> Iterator[str]:
    """Halve a sentence, and its halves, until each part fits or is an address."""
    if fits(text) or ADDRESS.fullmatch(text.strip()) or (place := _place_to_split(text)) is None:
        yield text
    else:
        yield from _pieces(text[:place], fits)
        yield from _pieces(text[place:], fits)


def _place_to_split(text: str) -> int | None:
    """Return the end of the clause nearest to the middle, not at the edges; else that of a word, or a place between two
    wide characters; at last, one inside a word or number ("1,000") after a mark."""
    middle, least = len(text) / 2, max(1, len(text) // 5)
    for pattern, edge in ((_CLAUSE, least), (_WORD, 1)):
        places = [found.end() for found in pattern.finditer(text) if edge <= found.end() <= len(text) - edge]
        if places:
            return min(places, key=lambda place: abs(place - middle))
    inside = [place for place in range(1, len(text)) if is_wide(text[place - 1]) and is_wide(text[place])]
    inside = inside or [found.end() for found in _MARK.finditer(text) if found.end() < len(text)]
    return min(inside, key=lambda place: abs(place - middle)) if inside else None


def is_wide(character: str) -> bool:
    """Return whether a character's script writes no spaces between sentences: Chinese, Japanese; not Korean."""
    if unicodedata.category(character) == "Cn":  # newer than Python's tables, which call it wide
        return False
    return unicodedata.east_asian_width(character) in "WF" and not "\uac00" <= character <= "\ud7a3"


def translate_texts(translator: "Translator", texts: Sequence[str], **how: Any) -> "list[tuple[Translation, Parts]]":
    """Return each text's translation, and the parts that it was split into; `how` as for `Translator.translate`.

    A text in several parts has the joined text, the sum of the scores, no hypotheses and no attention. A sentence that
    is longer than those in training, without a place to split it, is cut: its translation would take long and be
    nonsense. A part without letters is copied; the score of a text of which nothing was translated is nan. If several
    hypotheses are asked for, texts are not split and nothing is copied; a text is cut only at the model's max_length.
    """
    to = how.get("to")
    language, lengths = language_of(translator, to), lengths_of(translator, to)
    if how.get("num_hypotheses", 1) > 1:
        whole = [Parts((Part("", text, ""),), False) for text in texts]
        sentences = list(texts)
    else:
        whole = [parts_of(text, language, lengths.stays_whole) for text in texts]
        sentences = [
            lengths.beginning(part.text) if part.is_translated else "" for parts in whole for part in parts.parts
        ]
    every = zip(
        translator.translate(sentences, **how), sentences, chain.from_iterable(one.parts for one in whole), strict=True
    )
    translations = (_of_part(translation, read, part) for translation, read, part in every)
    return [(_joined([next(translations) for _ in parts.parts], parts.parts), parts) for parts in whole]


def _of_part(translation: "Translation", read: str, part: Part) -> "Translation":
    """Return the translation of a part, of which the model read `read`."""
    if not read.strip():
        return replace(translation, text=part.text, score=nan)
    return translation if len(read) == len(part.text) else replace(translation, truncated=True)


def language_of(translator: "Translator", to: str | None = None) -> str:
    """Return the source language as the splitter calls it; `to` is the tag given to the model, if any."""
    language, _ = direction(translator.config, to)
    if language == UNKNOWN and to in (None, translator.tag):  # of several languages, that of its own corpus
        language = str(translator.config.get("src_lang", UNKNOWN))
    return "xx" if language == UNKNOWN else base_code(language)  # sentencex's name for any other language


def pieces_together(translations: Sequence[str], parts: Sequence[Part]) -> list[Part]:
    """Return the translations of a text's parts with the parts' white space; concatenated, they are the translation.

    If the source's script writes no spaces between sentences and the target's does, spaces are added.
    """
    together: list[Part] = []
    last = source = ""
    for text, part in zip(translations, parts, strict=True):
        said = has_letters(source + part.text)  # a part without letters is copied
        glued = said and last and text and not last.isspace() and not part.before
        glued = glued and _parts_without_space(source, part.text)
        before = " " * bool(glued and not is_wide(last)) + part.before
        together.append(Part(before, text.strip(), part.after))
        last = ("".join(together[-1]) or last)[-1:]
        source = part.text
    return together


def put_together(translations: Sequence[str], parts: Sequence[Part]) -> str:
    """Join the translations of parts, with the white space of the parts."""
    return "".join(chain.from_iterable(pieces_together(translations, parts)))


def _joined(translations: "Sequence[Translation]", parts: Sequence[Part]) -> "Translation":
    text = put_together([translation.text for translation in translations], parts)
    if len(parts) == 1:
        return replace(translations[0], text=text)
    return replace(
        translations[0],
        text=text,
        score=sum(scores) if (scores := [t.score for t in translations if not isnan(t.score)]) else nan,
        hypotheses=(),
        attention=None,
        src_tokens=tuple(chain.from_iterable(translation.src_tokens for translation in translations)),
        truncated=any(translation.truncated for translation in translations),
    )
