"""Text of any length through a model that reads sentences: split, translated, and put together again.

A text is split into sentences (https://github.com/wikimedia/sentencex), and a sentence that is longer than nearly all
that the model was trained on at clauses, or between words. The white space between the parts is the text's own.
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
_CLAUSE = re.compile(r"(?<=[;:,،؛、，；：])\s*|(?<!\s)\s++(?=[–—(])|(?<=[–—)])\s+")
_WORD = re.compile(r"\s+")


class Part(NamedTuple):
    """A sentence, or as much of it as the model reads."""

    before: str
    """White space."""
    text: str
    """Empty where a text is blank."""
    after: str
    """White space."""

    @property
    def is_translated(self) -> bool:
        """Whether it does not stay as it is."""
        return is_translated(self.text)


@dataclass(frozen=True)
class Parts:
    """A text as the model reads it."""

    parts: tuple[Part, ...]
    too_long: bool
    """Whether a sentence was split."""

    @classmethod
    def together(cls, texts: "Iterable[Parts]") -> "Parts":
        """Those of several texts, as of one."""
        texts = list(texts)
        return cls(tuple(chain.from_iterable(one.parts for one in texts)), any(one.too_long for one in texts))

    @property
    def sentences(self) -> list[str]:
        """What is to be translated of it, in order."""
        return [part.text for part in self.parts if part.is_translated]

    def filled(self, translated: Iterable[T]) -> list[T | None]:
        """What was made of each part: None of one that stays as it is, else what comes next in `translated`.

        `translated` has one item for each of `sentences`; an iterator may go on with those of other texts.
        """
        remaining = iter(translated)
        return [next(remaining) if part.is_translated else None for part in self.parts]


def parts_of(text: str, language: str, fits: Callable[[str], bool]) -> Parts:
    """Split a text, and its sentences until each part fits; of one that has no place to split it, the whole. Nothing is
    lost."""
    parts, too_long = [], False
    for sentence in _sentences(text, language) if text.strip() else [text]:
        stays = ADDRESS.fullmatch(sentence.strip()) or fits(sentence)
        pieces = [sentence] if stays else list(_pieces(sentence, fits))
        too_long = too_long or len(pieces) > 1
        for piece in pieces:
            parts.append(_stripped(piece))
    return Parts(tuple(parts), too_long)


def _stripped(text: str) -> Part:
    core = text.strip()
    begin = len(text) - len(text.lstrip()) if core else len(text)
    return Part(text[:begin], core, text[begin + len(core) :])


def _sentences(text: str, language: str) -> Iterator[str]:
    """By sentencex, which is shown a plain space for any other: it counts each as one byte, and dies of the others."""
    start = 0
    for block in _blocks(_OTHER_SPACE.sub(" ", text)):
        for sentence in _whole(sentencex.segment(language, block)):
            end = start + len(sentence)
            yield text[start:end]
            start = end
    assert start == len(text)


def _whole(sentences: Iterable[str]) -> Iterator[str]:
    """Sentences, of which sentencex ends some within a name or an address: "J.R.R.", "www.Example.Com"."""
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
    """Whether a sentence can end between two texts without white space: after "。" or "।", before "猫"."""
    return not before[-1:].isascii() or any(map(is_wide, after[:1]))


def _blocks(text: str) -> Iterator[str]:
    """What is split at once: sentencex takes time in proportion to the square of some texts."""
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
    """A sentence in halves, and halves of halves, until each fits."""
    if fits(text) or (place := _place_to_split(text)) is None:
        yield text
    else:
        yield from _pieces(text[:place], fits)
        yield from _pieces(text[place:], fits)


def _place_to_split(text: str) -> int | None:
    """The end of a clause nearest to the middle, not at the edges; else of a word, or between two wide characters."""
    middle, least = len(text) / 2, max(1, len(text) // 5)
    for pattern, edge in ((_CLAUSE, least), (_WORD, 1)):
        places = [found.end() for found in pattern.finditer(text) if edge <= found.end() <= len(text) - edge]
        if places:
            return min(places, key=lambda place: abs(place - middle))
    inside = [place for place in range(1, len(text)) if is_wide(text[place - 1]) and is_wide(text[place])]
    return min(inside, key=lambda place: abs(place - middle)) if inside else None


def is_wide(character: str) -> bool:
    """Whether a character is of a script that writes no spaces between sentences: Chinese, Japanese; not Korean."""
    if unicodedata.category(character) == "Cn":  # newer than Python's tables, which call it wide
        return False
    return unicodedata.east_asian_width(character) in "WF" and not "\uac00" <= character <= "\ud7a3"


def translate_texts(translator: "Translator", texts: Sequence[str], **how: Any) -> "list[tuple[Translation, Parts]]":
    """Each text's translation, with what it was split into; `how` as for `Translator.translate`.

    Of a text in several parts: the text put together, the sum of the scores, no hypotheses and no attention. A sentence
    that is longer than those of the training, with no place to split it, is cut: it takes long, and becomes nonsense.
    What has no letters stays as it is; the score of a text of which nothing was translated is nan. Where several
    hypotheses are asked for nothing is split, left or cut, but at the model's max_length.
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
    """The translation of a part, of which so much was read."""
    if not read.strip():
        return replace(translation, text=part.text, score=nan)
    return translation if len(read) == len(part.text) else replace(translation, truncated=True)


def language_of(translator: "Translator", to: str | None = None) -> str:
    """The language of the source, as the splitter calls it; `to` is the tag that the model is told, if any."""
    language, _ = direction(translator.config, to)
    if language == UNKNOWN and to in (None, translator.tag):  # of several, that of its own corpus
        language = str(translator.config.get("src_lang", UNKNOWN))
    return "xx" if language == UNKNOWN else base_code(language)  # sentencex's name for any other


def pieces_together(translations: Sequence[str], parts: Sequence[Part]) -> list[Part]:
    """The translations of a text's parts with the white space of those; one after another they are the translation.

    Where a script that writes no spaces was between sentences, one that does gets them.
    """
    together: list[Part] = []
    last = source = ""
    for text, part in zip(translations, parts, strict=True):
        said = has_letters(source + part.text)  # what has none stays as it is
        glued = said and last and text and not last.isspace() and not part.before
        glued = glued and _parts_without_space(source, part.text)
        before = " " * bool(glued and not is_wide(last)) + part.before
        together.append(Part(before, text.strip(), part.after))
        last = ("".join(together[-1]) or last)[-1:]
        source = part.text
    return together


def put_together(translations: Sequence[str], parts: Sequence[Part]) -> str:
    """The translations of parts, with the white space of the parts."""
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
