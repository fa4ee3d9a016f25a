"""An ensemble: several models with the same vocabularies. The search sees the mean of their probabilities."""

import pickle
from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repose.decoding.best import mean_of_probabilities
from repose.decoding.engine import Engine, built
from repose.decoding.search import Ints, State
from repose.system.errors import ConfigError


class EnsembleState:
    """Rows of a decoding (`search.State`): one state per model."""

    def __init__(self, states: Sequence[State]) -> None:
        self.states = states

    def select(self, rows: Ints) -> None:
        """See `search.State`."""
        for state in self.states:
            state.select(rows)


class Ensemble(Engine):
    """Several engines as one. A step takes as long as the steps of all of them together."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        """Raises ConfigError if a model looks ahead: it has no probability of the next token."""
        if any(engine.looks_ahead for engine in engines):
            raise ConfigError("a model that looks ahead cannot translate, nor can an ensemble with it: leave it out")
        self.engines = list(engines)
        first = self.engines[0]
        self.name, self.precision, self.device_type = first.name, first.precision, first.device_type
        self.max_length = min(engine.max_length for engine in engines)
        self.looks_ahead = False
        self.can_share = all(engine.can_share for engine in engines)

    def start(self, sources: Sequence[Sequence[int]]) -> EnsembleState:
        """See `Engine`."""
        return EnsembleState([engine.start(sources) for engine in self.engines])

    def step(self, tokens: Ints, state: EnsembleState) -> Any:
        """See `Engine`."""
        steps = zip(self.engines, state.states, strict=True)
        return mean_of_probabilities([engine.step(tokens, own) for engine, own in steps])

    def attention(
        self,
        source: Sequence[int],  # noqa: ARG002
        tokens: Sequence[int],  # noqa: ARG002
    ) -> NDArray[np.float32]:
        """Raises ConfigError."""
        raise ConfigError("the models of an ensemble have attention, the ensemble has none: load one of them alone")

    def message(self) -> bytes:
        """See `Engine`."""
        return pickle.dumps((Ensemble.of_message, [engine.message() for engine in self.engines]))

    @classmethod
    def of_message(cls, messages: Sequence[bytes]) -> "Ensemble":
        """The ensemble, for a process of its own."""
        return cls([built(message) for message in messages])

    def fingerprint(self) -> Hashable:
        """See `Engine`."""
        return tuple(engine.fingerprint() for engine in self.engines)

    def refresh(self) -> None:
        """See `Engine`."""
        for engine in self.engines:
            engine.refresh()

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """See `Engine`."""
        with ExitStack() as stack:
            for engine in self.engines:
                stack.enter_context(engine.undisturbed())
            yield
