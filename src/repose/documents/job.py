"""Translate a document: take sentences out of it, and put it together from their translations.

Translating in between is up to the caller:

    job = Job(document, Reader.of(translator))
    translations = ...  # of job.sentences, each with attention where job.with_attention says so
    data = job.finish(translations)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from repose.data.tokenizer import Tokenizer, check_unicode
from repose.decoding.lengths import Lengths, lengths_of
from repose.decoding.parts import Part, Parts, language_of, parts_of, pieces_together
from repose.documents.alignment import Unit, for_placement, proportional_units, units_of, whole
from repose.documents.placement import place
from repose.documents.plain import PlainDocument
from repose.documents.segment import Document, Placed, Segment, Text
from repose.system.errors import ConfigError, DataError

if TYPE_CHECKING:
    from repose.decoding.translator import Translation, Translator


_AT_ONCE = 1024
"""Sentences that are translated at once with all their attention in memory."""


@dataclass(frozen=True)
class Reader:
    """How to split texts for a model, and how to align its tokens."""

    language: str
    """Source language, by the sentence splitter's code; "xx" for a language that the splitter does not know."""
    lengths: Lengths
    """Up to what length a sentence is translated as a whole."""
    tgt_tokenizer: Tokenizer

    @classmethod
    def of(cls, translator: "Translator", to: str | None = None) -> "Reader":
        """Return the reader for a translator. `to`: the target language requested by a tag, if any."""
        return cls(language_of(translator, to), lengths_of(translator, to), translator.tgt_tokenizer)

    def parts(self, segment: Segment) -> Parts:
        """Split a segment into parts. No sentence extends over one of the segment's `ends`."""
        edges = pairwise([0, *segment.ends, len(segment.text)])
        texts = (segment.text[start:end] for start, end in edges)
        return Parts.together(parts_of(text, self.language, self.lengths.stays_whole) for text in texts)


class Job:
    """A document that is being translated."""

    def __init__(self, document: Document, reader: Reader) -> None:
        self._document, self.reader = document, reader
        self._parts = [reader.parts(segment) for segment in document.segments]
        self.too_long = sum(parts.too_long for parts in self._parts)
        """Segments with a sentence that is translated in parts."""
        self.sentences: list[str] = []
        """Sentences to translate. Parts without letters, such as numbers, are not among them and stay as they are."""
        self.with_attention: list[bool] = []
        """For each sentence, whether attention is needed to place markup."""
        for segment, parts in zip(document.segments, self._parts, strict=True):
            wanted = parts.sentences
            self.sentences += wanted
            self.with_attention += [bool(segment.marks)] * len(wanted)

    def finish(self, translations: Sequence["Translation"]) -> bytes:
        """Return the document with these translations of `sentences`, in order.

        Raises DataError if their number is wrong.
        """
        if (given := len(translations)) != (number := len(self.sentences)):
            raise DataError(
                f"the numbers of sentences and translations differ ({number} and {given}): give one translation per "
                "sentence"
            )
        remaining = map(_on_one_line, translations)
        segments = zip(self._document.segments, self._parts, strict=True)
        placed = [self._of_segment(segment, parts.parts, parts.filled(remaining)) for segment, parts in segments]
        return self._document.assemble(placed)

    def _of_segment(
        self, segment: Segment, parts: Sequence[Part], translations: Sequence["Translation | None"]
    ) -> Placed:
        """Return a segment with the translations of its parts; None for a part that stays as it is."""
        each = list(zip(parts, translations, strict=True))
        texts = [part.text if made is None else made.text for part, made in each]
        together = pieces_together(texts, parts)
        if not segment.marks:
            return [Text("".join("".join(part) for part in together))]
        units: list[list[Unit]] = []
        for part, made in each:
            if made is None:
                units.append(proportional_units(part.text, part.text))
            else:
                lead = len(made.text) - len(made.text.lstrip())
                reader = self.reader
                found = units_of(part.text, made, reader.lengths.tokenizer, reader.tgt_tokenizer)
                units.append([unit.moved(-lead, 0) for unit in found])
        return place(segment, whole(parts, together, units))


def _on_one_line(translation: "Translation") -> "Translation":
    """Replace line breaks in a translation by spaces, so that no paragraph and no cue ends there."""
    if len(translation.text.splitlines()) < 2:
        return translation
    return replace(translation, text="".join(" " if c.splitlines() == [""] else c for c in translation.text))


def translate_text(
    translator: "Translator",
    text: str,
    *,
    beam_size: int | None = None,
    length_penalty: float | None = None,
    no_repeat_ngram_size: int | None = None,
    to: str | None = None,
) -> str:
    """Translate a text of any length, line by line and sentence by sentence.

    Line breaks, white space, and parts without letters stay as they are. The options are those of
    `Translator.translate`. Raises ConfigError if `text` is not a string, and the errors of `translate`.
    """
    if not isinstance(text, str):
        raise ConfigError(f"translate_text takes a text, not {text!r:.60}: Translator.translate takes lists")
    if not hasattr(translator, "src_tokenizer"):
        raise ConfigError(f"translate_text takes a translator, not {translator!r:.60}: give it repose.load(folder)")
    check_unicode([text])
    job = Job(PlainDocument(text), Reader.of(translator, to))
    translated, _ = translate_document(
        translator,
        job,
        beam_size=beam_size,
        length_penalty=length_penalty,
        no_repeat_ngram_size=no_repeat_ngram_size,
        to=to,
    )
    return translated.decode()


def translate_document(translator: "Translator", job: Job, **how: Any) -> tuple[bytes, int]:
    """Translate a job's document. Return it with the number of sentences that were cut.

    A sentence is cut if it is longer than the model reads and there is no place to split it. `how`: options of
    `Translator.translate`, for one hypothesis.
    """
    found: dict[int, Translation] = {}
    for attention in (False, True):
        places = [place for place, wanted in enumerate(job.with_attention) if wanted == attention]
        for start in range(0, len(places), _AT_ONCE):
            some = places[start : start + _AT_ONCE]
            read = [job.reader.lengths.beginning(job.sentences[place]) for place in some]
            made = translator.translate(read, attention=attention, **how)
            for place_, text, translation in zip(some, read, made, strict=True):
                is_cut = translation.truncated or text != job.sentences[place_]
                found[place_] = replace(for_placement(translation), truncated=is_cut)
    translations = [found[place_] for place_ in range(len(job.sentences))]
    return job.finish(translations), sum(translation.truncated for translation in translations)
