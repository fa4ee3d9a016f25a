"""Worker process of the server: loads the models, then answers batches until its input ends.

It is a plain interpreter, started by `repose.serving.workers`, and talks to its parent only. In both directions, a
message is its length followed by a pickle.
"""

import contextlib
import importlib
import pickle
from pathlib import Path
from typing import Any, BinaryIO

from repose.documents.alignment import Spans, for_placement, token_spans
from repose.serving.catalogue import stamp_of
from repose.serving.messages import DIGITS, LENGTH, Answer, Batch, Explained, ModelChangedError, ModelToLoad, packed
from repose.system.helper import open_pipes, worker_error
from repose.system.token_ids import START


def main() -> None:
    """Load the models, then answer batches. Ends when the parent does."""
    source, sink = open_pipes()
    with contextlib.suppress(EOFError, BrokenPipeError):
        translators: list[Any] = []
        while True:
            message = _read(source)
            try:
                if isinstance(message, Batch):
                    answer: Any = answers(translators[message.how.model], message)
                else:
                    translators = [_load(model) for model in message]
                    answer = [translator.engine.name for translator in translators]
            except Exception as error:
                answer = worker_error(error)
            sink.write(packed(answer))
            sink.flush()


def answers(translator: Any, batch: Batch) -> list[Answer]:
    """Translate a batch and return one answer per sentence, in order. Raises the translator's errors."""
    how = batch.how
    translations = translator.translate(
        list(batch.sentences),
        beam_size=how.beam_size,
        num_hypotheses=how.num_hypotheses,
        attention=how.explain or how.attention,
        to=how.tag,
    )
    return [_answer(translator, sentence, t, how) for sentence, t in zip(batch.sentences, translations, strict=True)]


def _answer(translator: Any, sentence: str, translation: Any, how: Any) -> Answer:
    best = translation.hypotheses[0] if translation.hypotheses else None
    return Answer(
        texts=tuple(hypothesis.text for hypothesis in translation.hypotheses) or (translation.text,),
        score=translation.score,
        num_tokens=0 if best is None else len(best.tokens) + best.finished,
        num_src_tokens=len(translation.src_tokens),
        truncated=translation.truncated,
        explained=_explained(translator, sentence, translation, how.tag) if how.explain and best is not None else None,
        scores=tuple(hypothesis.score for hypothesis in translation.hypotheses),
        whole=for_placement(translation) if how.whole else None,
    )


def _explained(translator: Any, sentence: str, translation: Any, tag: str | None) -> Explained:
    src, tgt, best = translator.src_tokenizer, translator.tgt_tokenizer, translation.hypotheses[0]
    tokens = [*best.tokens, *(["[END]"] if best.finished else [])]
    src_ids, ids = src.ids(translation.src_tokens), tgt.ids(tokens)
    (forced,) = translator.force([sentence], [[START, *ids]], to=tag)
    attention = translation.attention[:, :, : len(tokens)]
    spans = tgt.decoded_spans(tgt.ids(best.tokens))
    return Explained(
        src_tokens=src.labels(src_ids),
        tgt_tokens=tgt.labels(ids),
        log_probs=[round(value, DIGITS) for value in forced.log_probs.tolist()],
        attention=[
            [[[round(x, DIGITS) for x in row] for row in head] for head in layer] for layer in attention.tolist()
        ],
        src_spans=token_spans(sentence, len(src_ids), Spans.of(src, tgt)),
        tgt_spans=[*spans, *[(spans[-1][1],) * 2 if spans else (0, 0)] * best.finished],
    )


def _load(model: ModelToLoad) -> Any:
    module, _, name = model.loader.partition(":")
    _refuse_changed(model)
    translator = getattr(importlib.import_module(module), name)(model.path, **model.settings)
    _refuse_changed(model)
    return translator


def _refuse_changed(model: ModelToLoad) -> None:
    if model.stamp and stamp_of(Path(model.path)) != model.stamp:
        raise ModelChangedError(f"the files of {model.path} have changed since the server read them")


def _read(source: BinaryIO) -> Any:
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    return pickle.loads(source.read(LENGTH.unpack(head)[0]))
