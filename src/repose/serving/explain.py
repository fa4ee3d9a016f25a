"""Explain translations to people: tokens, probabilities and attention."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from repose.data.token_labels import CONTINUES
from repose.decoding.parts import Parts, put_together
from repose.decoding.translator import Translation
from repose.documents.alignment import Span
from repose.serving.catalogue import Direction
from repose.serving.dispatcher import Dispatcher
from repose.serving.messages import DIGITS, Explained
from repose.serving.texts import further, how_to, in_turn, joined, split, texts_of, warnings_of


async def explain(
    dispatcher: Dispatcher,
    direction: Direction,
    text: str,
    *,
    beam_size: int | None = None,
    alternatives: int = 0,
    heads: bool = True,
) -> dict[str, Any]:
    """Return the answer of /explain: the translation, alternatives with their scores, and for each sentence its source
    tokens, target tokens, probabilities and attention.

    `heads`: whether to include the attention of every layer and head besides the mean over the last layer's heads.
    """
    whole = split(direction, text)
    how = replace(how_to(direction, beam_size, alternatives), explain=True)
    answers = await in_turn(dispatcher, direction.model, how, whole.sentences)
    return {
        "translatedText": joined(whole, answers, 0),
        "sentences": _sentences(whole, answers, heads=heads),
        "alternatives": _alternatives(whole, answers, alternatives),
        "warnings": warnings_of(direction, text, answers, too_long=whole.too_long),
    }


def _alternatives(whole: Parts, answers: Sequence[Translation], number: int) -> list[dict[str, Any]]:
    """Return the alternatives without duplicates, each with the sum of its sentences' scores."""
    found = []
    for text, rank in further(whole, answers, number).items():
        made = [answer.hypotheses for answer in answers if answer.hypotheses]
        scores = [hypotheses[rank if rank < len(hypotheses) else 0].score for hypotheses in made]
        found.append({"text": text, "score": round(sum(scores), DIGITS)})
    return found


def _mean_of_last_layer(attention: Sequence[Sequence[Sequence[Sequence[float]]]]) -> list[list[float]]:
    """Average attention over the heads of the last layer.

    (layers, heads, target tokens, source tokens) becomes (target tokens, source tokens). Without layers, it is empty.
    """
    heads = attention[-1] if attention else []
    return [
        [round(sum(weights) / len(heads), DIGITS) for weights in zip(*rows, strict=True)]
        for rows in zip(*heads, strict=True)
    ]


def _sentences(whole: Parts, answers: Sequence[Translation], *, heads: bool) -> list[dict[str, Any]]:
    """Describe each sentence. Offsets count code points of the request's text and of the whole translation."""
    sentences, texts = [], texts_of(whole, answers, 0)
    src_at = 0
    for place, (part, answer) in enumerate(zip(whole.parts, whole.filled(answers), strict=True)):
        begin = src_at + len(part.before)
        src_at += sum(map(len, part))
        if answer is None:
            continue
        text = texts[place].strip()
        before = put_together([*texts[:place], text], [*whole.parts[:place], part._replace(after="")])
        tgt_begin = len(before) - len(text)
        source: list[dict[str, Any]] = []
        target: list[dict[str, Any]] = []
        attention: list[list[list[list[float]]]] = []
        if isinstance(answer, Explained) and answer.attention is not None:
            source = tokens(answer.src_labels, answer.src_spans, begin)
            target = tokens(answer.tgt_labels, _stripped(answer.tgt_spans, answer.text), tgt_begin)
            for token, log_prob in zip(target, answer.log_probs, strict=True):
                token["logProbability"] = log_prob
            attention = answer.attention.astype(np.float64).round(DIGITS).tolist()
        sentences.append(
            {
                "source": {"text": part.text, "start": begin, "tokens": source},
                "target": {"text": text, "start": tgt_begin, "tokens": target},
                "score": round(answer.score, DIGITS),
                "truncated": answer.truncated,
                "weights": _mean_of_last_layer(attention),
                **({"attention": attention} if heads else {}),
            }
        )
    return sentences


def _stripped(spans: Sequence[Span], text: str) -> list[Span]:
    """Convert token spans in a text to spans in the text without surrounding white space."""
    lead, size = len(text) - len(text.lstrip()), len(text.strip())
    return [(min(max(0, start - lead), size), min(max(0, end - lead), size)) for start, end in spans]


def tokens(labels: Sequence[str], spans: Sequence[Span], at: int) -> list[dict[str, Any]]:
    """Return each token with the characters that it stands for, from `start` to `end`, both shifted by `at`.

    The range is empty for a token without characters of its own, such as [END] or a byte of a longer character.
    """
    found, place = [], 0
    for label, (start, end) in zip(labels, spans, strict=True):
        start, place = max(place, start), max(place, end)
        text = label.removeprefix(CONTINUES)
        found.append({"text": text, "start": at + start, "end": at + place, "continues": text != label})
    return found
