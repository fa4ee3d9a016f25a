"""The interface through which decoding computes a model's log-probabilities. Like the search, it needs no torch.

An engine reads a batch of sources once (`start`), then one more token of each row at a time (`step`), for any kind of
search; `State.select` reorders the rows. The engine `torch` computes with the model itself, on any device. The engine
`onnx` computes with graphs that were exported from it, through ONNX Runtime, on a CPU.
"""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from repose.decoding.best import as_array, refuse_nan
from repose.decoding.options import SearchOptions
from repose.decoding.search import Ints, State, TokenHypothesis
from repose.system.token_ids import PAD

EngineName: TypeAlias = Literal["torch", "onnx"]
EngineChoice: TypeAlias = Literal[EngineName, "auto"]
Precision: TypeAlias = Literal["fp32", "int8"]


class Forced(NamedTuple):
    """The probabilities that a model gives to one target (a forced decode)."""

    log_probs: NDArray[np.float32]
    """Log-probability in nats of each token after START, given the tokens before it: (T,)."""
    predictions: tuple[int, ...]
    """The most probable token at each of these places."""
    truncated: bool = False
    """True if the source was cut at the model's longest length."""

    @property
    def total(self) -> float:
        """Log-probability of the whole target in nats, summed in double precision."""
        return float(self.log_probs.astype(np.float64).sum())


class Engine(ABC):
    """A model, and the code that computes with it."""

    name: EngineName
    precision: Precision
    """Precision of the products with weights."""
    max_length: int
    """Longest sequence in tokens, START and END included."""
    looks_ahead: bool
    """True if a target position sees later ones; such a model cannot translate."""
    device_type: str
    """Type of the device that it computes on: cpu, cuda."""
    can_share: bool
    """True if other processes can build it from `message`."""

    @abstractmethod
    def start(self, sources: Sequence[Sequence[int]]) -> State:
        """Begin to decode: return the state with one row per source (ids from START to END)."""

    @abstractmethod
    def step(self, tokens: Ints, state: Any) -> Any:
        """Read one token of each row; return the next token's log-probabilities (R, V) in nats (array or tensor)."""

    def search(
        self,
        source: Sequence[int],  # noqa: ARG002
        limit: int,  # noqa: ARG002
        options: SearchOptions,  # noqa: ARG002
    ) -> list[TokenHypothesis] | None:
        """Return what `search.beam_search` finds for one sentence, computed in a single call; None if this engine goes
        step by step."""
        return None

    def force(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Forced]:
        """Return the probabilities of one batch of targets, each ids from START to END; here, token by token."""
        ids, state, rows = padded(targets), self.start(sources), np.arange(len(targets))
        chosen, best = [], []
        for place in range(ids.shape[1] - 1):
            log_probs = as_array(self.step(ids[:, place], state))
            chosen.append(log_probs[rows, ids[:, place + 1]])
            best.append(log_probs.argmax(1))
        by_row, best_by_row = np.stack(chosen, 1), np.stack(best, 1)
        lengths = [len(target) - 1 for target in targets]
        for i, length in enumerate(lengths):
            refuse_nan(by_row[i, :length])
        return [Forced(by_row[i, :n], tuple(best_by_row[i, :n].tolist())) for i, n in enumerate(lengths)]

    @abstractmethod
    def attention(self, source: Sequence[int], tokens: Sequence[int]) -> NDArray[np.float32]:
        """Return cross-attention while reading these target tokens (from START): (layers, heads, tokens, source
        tokens)."""

    @abstractmethod
    def message(self) -> bytes:
        """Return a message from which `built` makes the engine in another process: a function and its argument."""

    def fingerprint(self) -> Hashable:
        """Return a value that changes when the weights do. The weights of graphs never change."""
        return None

    def refresh(self) -> None:  # noqa: B027 - an engine of graphs has nothing to do here
        """Recompute what was derived from the weights, if anything."""

    def undisturbed(self) -> AbstractContextManager[None]:
        """Within the block, compute as fast as possible in one thread."""
        return nullcontext()


def built(message: bytes) -> Engine:
    """Make the engine of a `message`. Only for messages of this program's own processes, as it executes them."""
    build, content = pickle.loads(message)
    engine: Engine = build(content)
    return engine


def padded(rows: Sequence[Sequence[int]]) -> Ints:
    """Return ids as an array (B, longest), padded with PAD on the right."""
    ids = np.full((len(rows), max(map(len, rows))), PAD)
    for row, values in zip(ids, rows, strict=True):
        row[: len(values)] = values
    return ids
