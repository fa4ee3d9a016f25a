"""Translate texts of requests: split them into sentences for the model, and join the translations."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from repose.data.input_warning import input_warning, line_warning
from repose.data.language import base_code, name_with_code
from repose.data.scripts import is_translated, unseen_script
from repose.decoding.parts import Part, Parts, parts_of, put_together
from repose.decoding.translator import Translation
from repose.documents.segment import LINE
from repose.serving.catalogue import Direction, ServedModel
from repose.serving.dispatcher import Dispatcher
from repose.serving.languages import canonical
from repose.serving.messages import How

T = TypeVar("T")
InThread: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Calls a function in a thread."""
_ONE_SENTENCE = re.compile(r"[A-Za-z\u00c0-\u024f](?:[A-Za-z\u00c0-\u024f ,'-]*[A-Za-z\u00c0-\u024f])?[.!?]?")
"""Texts that no splitter would split: most of what the page sends while somebody is typing."""
_INLINE = 2_000
"""Characters up to which texts are split at once. Longer ones are split in a thread, so that other requests need not
wait."""
_SENTENCES_AT_ONCE = 256
"""Sentences of a request that are in the queue at once, so that other requests get their turn."""
_LEAST_BEAM = 4


@dataclass(frozen=True)
class TranslatedText:
    """The result of translating a text."""

    text: str
    alternatives: tuple[str, ...] = ()
    """Alternative translations, without duplicates, empty texts, and `text` itself."""
    warnings: tuple[str, ...] = ()
    """Warnings, in sentences, about input that the model was not made for."""


def split(direction: Direction, text: str) -> Parts:
    """Split a text into sentences, and sentences longer than nearly all training sentences into clauses.

    No sentence extends over a line end. No character is lost.
    """
    stays_whole = direction.model.lengths.stays_whole
    if _ONE_SENTENCE.fullmatch(text) and stays_whole(text):
        return Parts((Part("", text, ""),), False)
    lines = [parts_of(line, base_code(direction.source), stays_whole) for line in LINE.findall(text) if line]
    return Parts.together(lines)


def how_to(direction: Direction, beam_size: int | None, alternatives: int) -> How:
    """Return options that find this many alternatives. The beam is never narrower than without alternatives."""
    if alternatives:
        beam_size = max(_LEAST_BEAM, alternatives + 1, beam_size or direction.model.beam_size)
    return How(direction.place, direction.tag, beam_size, alternatives + 1)


async def translate_texts(
    dispatcher: Dispatcher,
    direction: Direction,
    texts: Sequence[str],
    *,
    beam_size: int | None = None,
    alternatives: int = 0,
) -> list[TranslatedText]:
    """Translate each text. Raises the errors of `Dispatcher.translate`."""
    size = sum(map(len, texts))
    whole = await _done(size, lambda: [split(direction, text) for text in texts])
    how = how_to(direction, beam_size, alternatives)
    sentences = [sentence for one in whole for sentence in one.sentences]
    answers = iter(await in_turn(dispatcher, direction.model, how, sentences))
    return await _done(
        size,
        lambda: [
            _translated(direction, text, one, [next(answers) for _ in one.sentences], alternatives)
            for text, one in zip(texts, whole, strict=True)
        ],
    )


async def in_turn(
    dispatcher: Dispatcher,
    model: ServedModel,
    how: How,
    sentences: Sequence[str],
    in_thread: InThread = asyncio.to_thread,
) -> list[Translation]:
    """Translate any number of sentences, with a limited number of them in the queue at once.

    A sentence that is still longer than the longest one in training is cut: decoding it would take long and give
    nonsense. Tokens of many sentences are counted `in_thread`.
    """
    if not sentences:
        return []
    answers: list[Translation] = []
    lengths = model.lengths
    num_tokens = await _done(sum(map(len, sentences)), lambda: list(map(model.size, sentences)), in_thread)
    read_tokens = [min(number, lengths.longest) for number in num_tokens]
    with dispatcher.promised(sum(read_tokens)) as translated:
        for start in range(0, len(sentences), _SENTENCES_AT_ONCE):
            some = slice(start, start + _SENTENCES_AT_ONCE)
            is_cut = [number > lengths.longest for number in num_tokens[some]]
            read = [lengths.beginning(text) if cut else text for text, cut in zip(sentences[some], is_cut, strict=True)]
            answered = await dispatcher.translate(how, read, read_tokens[some], num_cut=sum(is_cut))
            translated(sum(read_tokens[some]))
            answers += [
                replace(answer, truncated=True) if cut else answer for answer, cut in zip(answered, is_cut, strict=True)
            ]
    return answers


async def _done(size: int, work: Callable[[], T], in_thread: InThread = asyncio.to_thread) -> T:
    """Run `work` on this many characters, in a thread if there are many, and return its result."""
    return work() if size <= _INLINE else await in_thread(work)


def _translated(
    direction: Direction, text: str, whole: Parts, answers: Sequence[Translation], alternatives: int
) -> TranslatedText:
    best = joined(whole, answers, 0)
    warnings = warnings_of(direction, text, answers, too_long=whole.too_long)
    return TranslatedText(best, tuple(further(whole, answers, alternatives)), tuple(warnings))


def warnings_of_unchanged(text: str, language: str) -> list[str]:
    """Return warnings about a text that was returned as it is, since it was taken for the target language `language`.

    There is a warning if the text seems to be in another language, which no model here reads.
    """
    warning = input_warning([text], (), base_code(canonical(language)))
    return (
        [] if warning is None else [f"the text seems to be in {name_with_code(warning.found)}, and was not translated"]
    )


def warnings_of(
    direction: Direction, text: str, answers: Sequence[Translation], *, too_long: bool, by_line: bool = True
) -> list[str]:
    """Return warnings about input in another script or language than the model's, or with overlong sentences.

    `by_line`: whether to look for a line in another script, too, if the text as a whole is in one that the model reads.
    """
    scripts = direction.model.scripts
    warning = input_warning([text], scripts, base_code(direction.source))
    warnings = [] if warning is None else [warning.sentence]
    if by_line and scripts and warning is None:
        lines = enumerate(text.split("\n"), 1)
        unseen = ((number, unseen_script(line, scripts)) for number, line in lines if is_translated(line))
        warnings = [line_warning(number, script) for number, script in unseen if script is not None][:1]
    if any(answer.truncated for answer in answers):
        warnings.append("a sentence is longer than the model reads and was cut")
    elif too_long:
        warnings.append(
            "a sentence is longer than almost all that the model was trained on and was translated in parts"
        )
    return warnings


def further(whole: Parts, answers: Sequence[Translation], number: int) -> dict[str, int]:
    """Return the translations of the `number` ranks after the best, with their ranks.

    Duplicates, empty texts and copies of the best translation are left out.
    """
    found: dict[str, int] = {}
    for rank in range(1, number + 1):
        found.setdefault(joined(whole, answers, rank), rank)
    best = joined(whole, answers, 0)
    return {text: rank for text, rank in found.items() if text.strip() and text != best}


def joined(whole: Parts, answers: Sequence[Translation], rank: int) -> str:
    """Join the sentences' translations of a rank. A sentence with fewer translations contributes its best."""
    return put_together(texts_of(whole, answers, rank), whole.parts)


def texts_of(whole: Parts, answers: Sequence[Translation], rank: int) -> list[str]:
    """Return the texts that `joined` joins, one for each part."""
    return [
        part.text if answer is None else answer.hypotheses[rank].text if rank < len(answer.hypotheses) else answer.text
        for part, answer in zip(whole.parts, whole.filled(answers), strict=True)
    ]
