"""Documents with markup: split and put together by `repose.documents`, translated by the engine in between."""

import asyncio
from collections.abc import Sequence
from typing import Any

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

    async def translated(text: str) -> TranslatedText:
        document = await asyncio.to_thread(HtmlDocument, text)
        job, translations = await _translate(engine, model, direction, document, beam_size)
        done = await asyncio.to_thread(lambda: document.text(job.placed(translations)))
        warnings = await asyncio.to_thread(warnings_of_input, model, direction.source, "\n".join(job.sentences))
        return TranslatedText(done, warnings=tuple(warnings))

    return await asyncio.gather(*map(translated, texts))


async def translate_file(
    engine: Translates, model: ServedModel, direction: Direction, content: bytes, suffix: str, beam_size: int | None
) -> bytes:
    """A file of a known suffix. Raises RequestError for one that is damaged or not what it says."""
    try:
        document = await asyncio.to_thread(read_document, content, suffix)
    except ReposeError as error:
        raise RequestError(400, f"Invalid request: {error}") from error
    job, translations = await _translate(engine, model, direction, document, beam_size)
    return await asyncio.to_thread(job.finish, translations)


async def _translate(
    engine: Translates, model: ServedModel, direction: Direction, document: Document, beam_size: int | None
) -> tuple[Job, list[Any]]:
    """The sentences of a document: those without markup, then those with attention to place it by."""
    reader = Reader(for_libraries(direction.source), model.fits, model.spans)
    job = await asyncio.to_thread(Job, document, reader)
    translations: list[Any] = [None] * len(job.sentences)
    for attention in (False, True):
        how = How(direction.model, direction.tag, beam_size, whole=True, attention=attention)
        places = [place for place, wanted in enumerate(job.with_attention) if wanted == attention]
        sentences = [job.sentences[place] for place in places]
        num_tokens = await asyncio.to_thread(lambda: list(map(model.size, sentences)))  # noqa: B023
        for place, answer in zip(places, await in_turn(engine, model, how, sentences, num_tokens), strict=True):
            translations[place] = answer.whole
    return job, translations
