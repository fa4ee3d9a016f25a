"""Process the lines of a window: translate them, or score them as pairs."""

import math
from collections.abc import Sequence
from typing import Any, Protocol

from repose.bulk.inputs import Failure, Record
from repose.bulk.parts import Result
from repose.bulk.plan import Job
from repose.bulk.scoring import PairScorer
from repose.data.lines import on_one_line
from repose.decoding.parts import translate_texts
from repose.decoding.stream import printed
from repose.decoding.translator import Translator


class Work(Protocol):
    """Processes one window after another."""

    def __call__(self, records: Sequence[Record], number: int, /) -> list[Result]:
        """Return one result per line; `number` is that of the first line among all lines, from 0."""


class LineTranslator:
    """Translates lines as `repose translate` does."""

    def __init__(self, job: Job, translator: Translator) -> None:
        self._job, self._translator = job, translator
        self._how = dict(job.search or {})

    def __call__(self, records: Sequence[Record], number: int) -> list[Result]:
        job = self._job
        texts = [record.texts[0] for record in records]
        found = translate_texts(self._translator, texts, **self._how, num_hypotheses=job.num_hypotheses)
        results = []
        for place, (record, (translation, parts)) in enumerate(zip(records, found, strict=True)):
            failure = record.failure or (Failure.TOO_LONG if translation.truncated else None)
            lines = printed(translation, number + place, num_hypotheses=job.num_hypotheses, scores=job.scores)
            if job.pairs:
                lines = [on_one_line(record.texts[0].replace("\t", " ")) + "\t" + line for line in lines]
            text = None if failure in (Failure.NO_TEXT, Failure.TAKEN) else translation.text
            fields: dict[str, Any] = {job.into: text}
            if job.scores:
                fields["score"] = None if math.isnan(translation.score) else round(translation.score, 4)
            if job.num_hypotheses > 1:
                fields["hypotheses"] = [{"text": h.text, "score": round(h.score, 4)} for h in translation.hypotheses]
            fields["failed"] = None if failure is None else str(failure)
            tokens = len(translation.src_tokens)
            results.append(Result(lines, fields, fields["failed"], tokens, parts.too_long))
        return results


def work_of(job: Job, models: Sequence[Translator]) -> Work:
    """Return the work of a job, given its loaded models."""
    if job.work == "translate":
        return LineTranslator(job, models[0])
    return PairScorer(job, models)
