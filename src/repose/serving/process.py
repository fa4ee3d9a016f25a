"""Worker process of the server: loads the models, then answers batches until its input ends.

It is a plain interpreter, started by `repose.serving.workers`, and talks to its parent only. In both directions, a
message is its length followed by a pickle.
"""

import contextlib
import importlib
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from repose.decoding.translator import Translation
from repose.documents.alignment import for_placement, token_spans
from repose.serving.catalogue import stamp_of
from repose.serving.messages import DIGITS, LENGTH, Batch, Explained, ModelChangedError, ModelToLoad, packed
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


def answers(translator: Any, batch: Batch) -> list[Translation]:
    """Translate a batch and return one translation per sentence, in order. Raises the translator's errors."""
    how = batch.how
    translations = translator.translate(
        list(batch.sentences),
        beam_size=how.beam_size,
        num_hypotheses=how.num_hypotheses,
        attention=how.explain or how.attention,
        to=how.tag,
    )
    if not how.explain:
        return [for_placement(translation) for translation in translations]
    return [_explained(translator, *each, how.tag) for each in zip(batch.sentences, translations, strict=True)]


def _explained(translator: Any, sentence: str, translation: Translation, tag: str | None) -> Translation:
    if not translation.hypotheses:
        return translation
    src, tgt, best = translator.src_tokenizer, translator.tgt_tokenizer, translation.hypotheses[0]
    tokens = [*best.tokens, *(["[END]"] if best.finished else [])]
    src_ids, ids = src.ids(translation.src_tokens), tgt.ids(tokens)
    (forced,) = translator.force([sentence], [[START, *ids]], to=tag)
    spans = tgt.decoded_spans(tgt.ids(best.tokens))
    assert translation.attention is not None
    return Explained(
        **vars(replace(translation, attention=translation.attention[:, :, : len(tokens)])),
        src_labels=src.labels(src_ids),
        tgt_labels=tgt.labels(ids),
        log_probs=[round(value, DIGITS) for value in forced.log_probs.tolist()],
        src_spans=token_spans(sentence, len(src_ids), src),
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
