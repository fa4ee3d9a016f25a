"""Messages between the front process and its workers. Loads no torch."""

import pickle
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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
    explain: bool = False
    """Whether to return tokens, their probabilities and attention, too."""
    whole: bool = False
    """Whether to return the translator's own `Translation`, too, for `repose.documents`."""
    attention: bool = False
    """Whether the `Translation` should contain attention."""


class Batch(NamedTuple):
    """Sentences for a worker to translate together."""

    how: How
    sentences: Sequence[str]


class Explained(NamedTuple):
    """Tokens, probabilities and attention of a translation."""

    src_tokens: list[str]
    """Readable source tokens, with [START] and [END]."""
    tgt_tokens: list[str]
    """Readable target tokens, without [START]. The last one is [END] if it was reached."""
    log_probs: list[float]
    """Log-probability of each target token, in nats."""
    attention: list[list[list[list[float]]]]
    """Cross-attention: (layers, heads, target tokens, source tokens)."""
    src_spans: list[tuple[int, int]]
    """Characters of the sentence that each source token stands for; an empty range for [START], a tag and [END]."""
    tgt_spans: list[tuple[int, int]]
    """Characters of the translation that each target token stands for; an empty range for [END]."""


class Answer(NamedTuple):
    """The translation of a sentence."""

    texts: tuple[str, ...]
    """Texts of the hypotheses, the best first; one empty text for a blank sentence."""
    score: float = 0.0
    """Log-probability of the best hypothesis, in nats."""
    num_tokens: int = 0
    """Number of target tokens of the best hypothesis, with [END]."""
    num_src_tokens: int = 0
    """Number of source tokens that the model read, with [START] and [END]."""
    truncated: bool = False
    explained: Explained | None = None
    scores: tuple[float, ...] = ()
    """Log-probability of each hypothesis, in nats."""
    whole: Any = None
    """The `Translation`, if it was requested."""
