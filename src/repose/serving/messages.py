"""What the front process and its workers say to each other. Loads no torch."""

import pickle
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from repose.system.errors import ReposeError

LENGTH = struct.Struct("!Q")
"""Before each message: its bytes."""
DIGITS = 4
"""After the point, of log-probabilities and weights of attention that clients are shown."""


def packed(message: object) -> bytes:
    """A message with its length before it."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


class ModelToLoad(NamedTuple):
    """A worker's first message is a list of these."""

    loader: str
    """`module:function` that makes a translator of the path and these settings."""
    path: str
    settings: dict[str, Any]
    stamp: str = ""
    """`catalogue.stamp_of` the path where other files than these are refused."""


class ModelChangedError(ReposeError):
    """The files of a model are no longer those that the server knows."""


@dataclass(frozen=True)
class How:
    """What sentences must have in common to be translated together."""

    model: int
    """Place in the list of models."""
    tag: str | None = None
    beam_size: int | None = None
    num_hypotheses: int = 1
    explain: bool = False
    """Whether tokens, their probabilities and attention are wanted, too."""
    whole: bool = False
    """Whether the translator's own `Translation` is wanted, for `repose.documents`."""
    attention: bool = False
    """Whether attention is wanted in the `Translation`."""


class Batch(NamedTuple):
    """Sentences for a worker."""

    how: How
    sentences: Sequence[str]


class Explained(NamedTuple):
    """Where a translation comes from."""

    src_tokens: list[str]
    """The tokens as people can read them, [START] and [END] included."""
    tgt_tokens: list[str]
    """Likewise; without [START], [END] last if it was reached."""
    log_probs: list[float]
    """In nats, of each target token."""
    attention: list[list[list[list[float]]]]
    """Cross-attention: layers, heads, target tokens, source tokens."""
    src_spans: list[tuple[int, int]]
    """The characters of the sentence that each source token stands for; none for [START], a tag, [END]."""
    tgt_spans: list[tuple[int, int]]
    """Likewise, of the translation."""


class Answer(NamedTuple):
    """The translation of a sentence."""

    texts: tuple[str, ...]
    """The hypotheses, best first; one empty text for a blank sentence."""
    score: float = 0.0
    """Log-probability of the first, in nats."""
    num_tokens: int = 0
    """Target tokens of the first, END included."""
    num_src_tokens: int = 0
    """Source tokens as the model read them, START and END included."""
    truncated: bool = False
    explained: Explained | None = None
    scores: tuple[float, ...] = ()
    """The log-probability of each of the texts, in nats."""
    whole: Any = None
    """The `Translation`, where it was asked for."""
