"""Documents with markup: split and put together by `repose.documents`, translated by the engine in between."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeVar

from repose.documents.formats import FORMATS, read_document
from repose.documents.html import HtmlDocument
from repose.documents.job import Job, Reader
from repose.documents.segment import Document
from repose.serving.catalogue import Direction, ServedModel
from repose.serving.languages import for_libraries
from repose.serving.messages import How
from repose.serving.refusals import RequestError
from repose.serving.texts import TranslatedText, Translates, in_turn, warnings_of_input
from repose.system.errors import ReposeError

T = TypeVar("T")
_LOOKED_AT = 10_000  # letters of a document that its language is found out by
MEDIA_TYPES = {
    ".txt": "text/plain; charset=utf-8",
    ".html": "text/html",
    ".htm": "text/html",
    ".srt": "application/x-subrip",
    ".vtt": "text/vtt",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".odt": "application/vnd.oasis.opendocument.text",
}
"""Of each of the formats."""
assert MEDIA_TYPES.keys() == FORMATS.keys()


async def translate_html(
    engine: Translates, model: ServedModel, direction: Direction, texts: Sequence[str], beam_size: int | None
) -> list[TranslatedText]:
    """Each of the texts, all of its tags kept, in their places by attention."""

    pages = await asyncio.to_thread(lambda: list(map(HtmlDocument, texts)))
    jobs, translations = await _translate(engine, model, direction, pages, beam_size)

    def finished() -> list[TranslatedText]:
        return [
            TranslatedText(
                page.text(job.placed(done)),
                warnings=tuple(warnings_of_input(model, direction.source, "\n".join(job.sentences))),
            )
            for page, job, done in zip(pages, jobs, translations, strict=True)
        ]

    return await asyncio.to_thread(finished)


async def read(content: bytes, suffix: str) -> Document:
    """A file of a known suffix. Raises RequestError for one that is damaged or not what it says."""
    try:
        return await _to_the_end(read_document, content, suffix)
    except ReposeError as error:
        raise RequestError(400, f"Invalid request: {error}") from error


def letters_of(document: Document) -> str:
    """The beginning of what is to be translated, without markup, by which a language can be found out."""
    letters: list[str] = []
    number = 0
    for segment in document.segments:
        letters.append(segment.text)
        number += 1 + len(segment.text)
        if number > _LOOKED_AT:
            break
    return "\n".join(letters)[:_LOOKED_AT]


def letters_of_html(texts: Sequence[str]) -> list[str]:
    """Of each of the texts."""
    return [letters_of(HtmlDocument(text)) for text in texts]


async def translate_file(
    engine: Translates, model: ServedModel, direction: Direction, document: Document, beam_size: int | None
) -> bytes:
    """The file of a document."""
    (job,), (translations,) = await _translate(engine, model, direction, [document], beam_size)
    return await _to_the_end(job.finish, translations)


async def _to_the_end(function: Callable[..., T], *arguments: Any) -> T:
    """In a thread, which nothing can stop: whoever is cancelled waits for its end first, so that a place among the
    archives that are at work is free when its memory is."""
    thread = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(thread)
    finally:
        await asyncio.wait([thread])


async def _translate(
    engine: Translates,
    model: ServedModel,
    direction: Direction,
    documents: Sequence[Document],
    beam_size: int | None,
) -> tuple[list[Job], list[list[Any]]]:
    """The sentences of documents: those without markup, then those with attention to place it by. All of them are one
    request, so that the queue does not refuse the later ones for the earlier ones."""
    reader = Reader(for_libraries(direction.source), model.fits, model.spans)
    jobs = await asyncio.to_thread(lambda: [Job(document, reader) for document in documents])
    all_sentences = [sentence for job in jobs for sentence in job.sentences]
    with_attention = [wanted for job in jobs for wanted in job.with_attention]
    translations: list[Any] = [None] * len(all_sentences)
    for attention in (False, True):
        how = How(direction.model, direction.tag, beam_size, whole=True, attention=attention)
        places = [place for place, wanted in enumerate(with_attention) if wanted == attention]
        sentences = [all_sentences[place] for place in places]
        num_tokens = await asyncio.to_thread(lambda: list(map(model.size, sentences)))  # noqa: B023
        for place, answer in zip(places, await in_turn(engine, model, how, sentences, num_tokens), strict=True):
            translations[place] = answer.whole
    remaining = iter(translations)
    return jobs, [list(islice(remaining, len(job.sentences))) for job in jobs]
