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
from repose.serving.texts import TranslatedText, Translates, warnings_of_input
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
_SENTENCES_AT_ONCE = 256
"""So that the queue has room for others."""

assert MEDIA_TYPES.keys() == FORMATS.keys()


async def translate_html(
    engine: Translates, model: ServedModel, direction: Direction, texts: Sequence[str], beam_size: int | None
) -> list[TranslatedText]:
    """Each of the texts, all of its tags kept, in their places by attention."""

    async def translated(text: str) -> TranslatedText:
        document = HtmlDocument(text)
        job, translations = await _translate(engine, model, direction, document, beam_size)
        done = await asyncio.to_thread(lambda: document.text(job.placed(translations)))
        warnings = warnings_of_input(model, direction.source, "\n".join(job.sentences))
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
    """The sentences of a document, some at a time."""
    reader = Reader(for_libraries(direction.source), model.fits, model.spans)
    job = await asyncio.to_thread(Job, document, reader)
    translations: list[Any] = [None] * len(job.sentences)
    for attention in (False, True):
        how = How(direction.model, direction.tag, beam_size, whole=True, attention=attention)
        places = [place for place, wanted in enumerate(job.with_attention) if wanted == attention]
        for start in range(0, len(places), _SENTENCES_AT_ONCE):
            some = places[start : start + _SENTENCES_AT_ONCE]
            sentences = [job.sentences[place] for place in some]
            answers = await engine.translate(how, sentences, [model.num_tokens(sentence) for sentence in sentences])
            for place, answer in zip(some, answers, strict=True):
                translations[place] = answer.whole
    return job, translations
