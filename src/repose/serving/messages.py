"""Messages between the front process and its workers. Loads no torch."""

import pickle
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from repose.decoding.translator import Translation
from repose.documents.alignment import Span
from repose.system.errors import ReposeError

LENGTH = struct.Struct("!Q")
"""Header of each message: its length in bytes."""
DIGITS = 4
"""Decimal places of the log-probabilities and attention weights that clients get."""


def packed(message: object) -> bytes:
    """Serialize a message, with its length in front."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


class ModelToLoad(NamedTuple):
    """A model for a worker to load. The first message to a worker is a list of these."""

    loader: str
    """Function that returns a translator, as `module:function`. It is called with the path and the settings."""
    path: str
    settings: dict[str, Any]
    stamp: str = ""
    """If not empty, files whose `catalogue.stamp_of` differs are refused."""


class ModelChangedError(ReposeError):
    """Raised if the files of a model have changed since the server read them."""


@dataclass(frozen=True)
class How:
    """Options of a translation. Sentences of a batch have the same options."""

    model: int
    """Index in the list of models."""
    tag: str | None = None
    beam_size: int | None = None
    num_hypotheses: int = 1
    attention: bool = False
    """Whether translations contain the attention that placing markup needs."""
    explain: bool = False
    """Whether translations are `Explained`."""


class Batch(NamedTuple):
    """Sentences for a worker to translate together."""

    how: How
    sentences: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Explained(Translation):
    """A translation with readable tokens, their probabilities, and attention without the row after the last token."""

    src_labels: list[str]
    """Readable source tokens, with [START] and [END]."""
    tgt_labels: list[str]
    """Readable target tokens, without [START]. The last one is [END] if it was reached."""
    log_probs: list[float]
    """Log-probability of each target token, in nats."""
    src_spans: list[Span]
    """Characters of the sentence that each source token stands for; an empty range for [START], a tag and [END]."""
    tgt_spans: list[Span]
    """Characters of the translation that each target token stands for; an empty range for [END]."""
