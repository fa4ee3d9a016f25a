"""Translate documents with markup: `repose.documents` reads and writes them, the dispatcher translates sentences."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

from repose.data.language import base_code
from repose.decoding.translator import Translation
from repose.documents.encodings import Encoded
from repose.documents.formats import FORMATS, read_document
from repose.documents.html import HtmlDocument
from repose.documents.job import Job, Reader
from repose.documents.segment import Document
from repose.serving.catalogue import Direction
from repose.serving.dispatcher import Dispatcher
from repose.serving.messages import How
from repose.serving.refusals import RequestError
from repose.serving.texts import TranslatedText, in_turn, warnings_of
from repose.system.errors import ReposeError

T = TypeVar("T")
_THREADS = ThreadPoolExecutor(8, "documents")
"""Threads for documents only. Some documents take long, and a running thread cannot be stopped, so other work must not
share these threads."""
_UNFINISHED: set[Future[Any]] = set()
_LOOKED_AT = 10_000  # characters of a document used to detect its language


def at_work() -> bool:
    """Whether a thread is still reading or writing a document. It cannot be stopped."""
    return bool(_UNFINISHED)


def media_type(suffix: str, document: Document) -> str:
    """Return the media type of a document's file, with the encoding of a text format."""
    kind = FORMATS[suffix].media_type
    charset = document.charset if isinstance(document, Encoded) and kind.startswith("text/") else ""
    return f"{kind}; charset={charset}" if charset else kind


async def read_html(texts: Sequence[str]) -> list[tuple[HtmlDocument, str]]:
    """Read HTML texts. Return each with its `letters_of`."""

    def read(text: str) -> tuple[HtmlDocument, str]:
        page = HtmlDocument(text)
        return page, letters_of(page)

    return [await _in_thread(read, text) for text in texts]  # separate calls can be cancelled in between


async def translate_html(
    dispatcher: Dispatcher, direction: Direction, pages: Sequence[HtmlDocument], beam_size: int | None
) -> list[TranslatedText]:
    """Translate HTML texts. All tags are kept, and placed by attention."""

    def finished(job: Job, answers: Sequence[Translation]) -> TranslatedText:
        text = job.finish(answers).decode()
        return TranslatedText(text, warnings=tuple(_warnings(direction, job, answers)))

    jobs, answers = await _translate(dispatcher, direction, pages, beam_size)
    return [await _in_thread(finished, *each) for each in zip(jobs, answers, strict=True)]


async def read(content: bytes, suffix: str) -> Document:
    """Read a file with a known suffix. Raises RequestError if it is damaged or does not have the suffix's format."""
    return await _to_the_end(read_document, content, suffix)


def letters_of(document: Document) -> str:
    """Return the beginning of the text to translate, without markup, for language detection."""
    return "\n".join(segment.text for segment in islice(document.segments, _LOOKED_AT))[:_LOOKED_AT]


async def translate_file(
    dispatcher: Dispatcher, direction: Direction, document: Document, beam_size: int | None
) -> tuple[bytes, list[str]]:
    """Translate a document. Return its file and warnings.

    Raises RequestError if the file would be far larger than the document.
    """
    (job,), (answers,) = await _translate(dispatcher, direction, [document], beam_size)

    def finished() -> tuple[bytes, list[str]]:
        return job.finish(answers), _warnings(direction, job, answers)

    return await _to_the_end(finished)


def _warnings(direction: Direction, job: Job, answers: Sequence[Translation]) -> list[str]:
    text = "\n".join(job.sentences)
    return warnings_of(direction, text, answers, too_long=job.too_long > 0, by_line=False)


def _submit(function: Callable[..., T], *arguments: Any) -> Future[T]:
    submitted = _THREADS.submit(function, *arguments)
    _UNFINISHED.add(submitted)
    submitted.add_done_callback(_UNFINISHED.discard)
    return submitted


async def _in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Run a function in a thread and return its result. If cancelled before it has started, it takes no thread.

    Raises RequestError if something is wrong with a document.
    """
    try:
        return await asyncio.wrap_future(_submit(function, *arguments))
    except ReposeError as error:
        raise RequestError(400, f"Invalid request: {error}") from error


async def _to_the_end(function: Callable[..., T], *arguments: Any) -> T:
    """Do the same as `_in_thread`, but wait for the function's end if cancelled.

    Thus a new archive is only read after the memory of a cancelled one is free.
    """
    submitted = _submit(function, *arguments)
    thread = asyncio.wrap_future(submitted)
    try:
        return await asyncio.shield(thread)
    except ReposeError as error:
        raise RequestError(400, f"Invalid request: {error}") from error
    finally:
        submitted.cancel()  # has no effect once it has started
        await asyncio.wait([thread])


async def _translate(
    dispatcher: Dispatcher,
    direction: Direction,
    documents: Sequence[Document],
    beam_size: int | None,
) -> tuple[list[Job], list[list[Translation]]]:
    """Translate the sentences of documents: first those without markup, then those that need attention to place markup.

    All documents are one request, so that the queue does not refuse later documents because of earlier ones.
    """
    model = direction.model
    reader = Reader(base_code(direction.source), model.lengths, model.tgt_tokenizer)
    jobs = [await _in_thread(Job, document, reader) for document in documents]
    all_sentences = [sentence for job in jobs for sentence in job.sentences]
    with_attention = [wanted for job in jobs for wanted in job.with_attention]
    answers: dict[int, Translation] = {}
    for attention in (False, True):
        how = How(direction.place, direction.tag, beam_size, attention=attention)
        places = [place for place, wanted in enumerate(with_attention) if wanted == attention]
        sentences = [all_sentences[place] for place in places]
        answers |= zip(places, await in_turn(dispatcher, model, how, sentences, _in_thread), strict=True)
    remaining = (answers[place] for place in range(len(all_sentences)))
    return jobs, [list(islice(remaining, len(job.sentences))) for job in jobs]
