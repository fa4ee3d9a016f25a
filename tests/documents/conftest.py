"""A translator for documents: it says every word in capitals, or the words in another order, and attends to each."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from repose.decoding.lengths import Lengths
from repose.decoding.translator import Hypothesis, Translation
from repose.documents.alignment import words_of
from repose.documents.job import Job, Reader
from repose.documents.segment import Document

sys.path.insert(0, str(Path(__file__).parent))  # archives

Order = Callable[[int], Sequence[int]]
"""Of the words of a sentence by their places, from how many there are."""


def target_spans(tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Of tokens that may begin with white space."""
    ends = list(accumulate(map(len, tokens)))
    return [(end - len(token.lstrip()), end) for token, end in zip(tokens, ends, strict=True)]


def source_spans(text: str) -> list[tuple[int, int]]:
    """START, the words and signs, END."""
    return [(0, 0), *words_of(text), (len(text), len(text))]


SOURCE: Any = SimpleNamespace(encode=list, most_tokens=len, spans=source_spans)
TARGET: Any = SimpleNamespace(ids=lambda tokens: tokens, decoded_spans=target_spans)
READER = Reader("en", Lengths(SOURCE, usual=200, longest=200), TARGET)


def shouted(sentence: str, attention: bool, order: Order = range) -> Translation:
    """A sentence in capitals, in an order."""
    words = list(words_of(sentence))
    read = [sentence[start:end] for start, end in words]
    places = list(order(len(read)))
    if places == list(range(len(read))):  # with the sentence's own white space
        starts = [0, *(end for _, end in words)]
        tokens = tuple(sentence[start:end].upper() for start, (_, end) in zip(starts, words, strict=False))
    else:
        tokens = tuple(" " * (number > 0) + read[place].upper() for number, place in enumerate(places))
    weights = np.full((2, 2, len(read) + 1, len(read) + 2), 0.01, np.float32)
    for row, place in enumerate(places):
        weights[-1, :, row, place + 1] = 0.9
    text = "".join(tokens)
    return Translation(
        text,
        -1.0,
        (Hypothesis(text, tokens, -1.0, -1.0, True),),
        ("[START]", *read, "[END]"),
        False,
        weights if attention else None,
    )


Shout = Callable[..., str]


@pytest.fixture(scope="session")
def shout() -> Shout:
    """A document, shouted, its words in `order` within each sentence."""

    def shout(document: Document, order: Order = range, reader: Reader = READER) -> str:
        job = Job(document, reader)
        made = [shouted(s, a, order) for s, a in zip(job.sentences, job.with_attention, strict=True)]
        return job.finish(made).decode()

    return shout


@pytest.fixture(scope="session")
def shouted_bytes() -> Callable[..., bytes]:
    """The same of a document in an archive."""

    def shout(document: Document, order: Order = range) -> bytes:
        job = Job(document, READER)
        return job.finish([shouted(s, a, order) for s, a in zip(job.sentences, job.with_attention, strict=True)])

    return shout


@pytest.fixture(scope="session")
def read_sentences() -> Callable[[Document], list[str]]:
    """What is translated of a document."""
    return lambda document: Job(document, READER).sentences


@pytest.fixture
def run_python() -> Callable[[str], str]:
    """What a program prints."""
    return lambda code: subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
