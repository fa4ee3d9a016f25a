"""A worker process that searches batches for another process: the messages to it, its start, and its main function.

A worker is a plain interpreter. It does not run the parent's script or notebook again, so these need no main guard. The
parent sends the model, then batches. The worker sends a line once it has started, then an answer to each message.
"""

import contextlib
import pickle
import subprocess
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from repose.decoding.engine import Engine, built
from repose.decoding.options import SearchOptions
from repose.decoding.sampling import Sampling, sample
from repose.decoding.search import TokenHypothesis, beam_search
from repose.system.errors import ReposeError
from repose.system.helper import close_pipes, how_it_ended, open_pipes, start_helper, worker_error

Results: TypeAlias = list[list[TokenHypothesis]]
"""The hypotheses of each sentence of a batch, best first."""

_READY = b"a worker of repose\n"


class Batch(NamedTuple):
    """Sentences to search together, with the options."""

    sources: Sequence[Sequence[int]]
    """Ids from START to END of each sentence."""
    max_lengths: Sequence[int]
    """Maximum number of new tokens of each sentence, END included."""
    options: SearchOptions
    sampling: Sampling | None = None
    """If given, draw translations instead of searching."""
    indices: Sequence[int] = ()
    """The index of each sentence among those of the call, for `sampling`."""

    @property
    def num_tokens(self) -> int:
        """Number of source tokens including padding; the time of a search is roughly proportional to it."""
        return len(self.sources) * max(map(len, self.sources))

    def search(self, engine: Engine) -> Results:
        """Return what `beam_search` finds, or `sample` draws, for each sentence."""
        if self.sampling is not None:
            state = engine.start(self.sources)
            numbers = [self.sampling.first + index for index in self.indices]
            drawn = sample(engine.step, state, self.max_lengths, self.options, sampling=self.sampling, numbers=numbers)
            return [[hypothesis] for hypothesis in drawn]
        if len(self.sources) == 1 and not self.options.no_repeat_ngram_size:
            hypotheses = engine.search(self.sources[0], self.max_lengths[0], self.options)
            if hypotheses is not None:
                return [hypotheses]
        return beam_search(engine.step, engine.start(self.sources), self.max_lengths, self.options)


class Worker:
    """A running worker process. `prepare`, `ask` and `close_pipes` are for one thread, and may block it."""

    def __init__(self) -> None:
        """Raises ReposeError if the system starts no more processes."""
        try:
            self._process = start_helper(__name__)
        except OSError as error:
            raise ReposeError(
                f"a translation worker could not be started ({error.strerror}): translate with workers = 1"
            ) from error
        self.ready = False
        """True once the worker has loaded its model."""

    def prepare(self, engine: bytes) -> None:
        """Wait until the process has started, and send it the model (`Engine.message`).

        Raises what `ask` raises, and ReposeError.
        """
        assert self._process.stdout is not None
        while (line := self._process.stdout.readline()) != _READY:  # anything else was printed while Python started
            if not line:
                raise EOFError
        answer = self.ask(engine)
        if isinstance(answer, Exception):
            raise answer
        self.ready = True

    def ask(self, message: bytes | Batch) -> Any:
        """Send a message and return the answer: for a batch, `Results` or an exception. Raises EOFError, OSError or
        UnpicklingError if the worker dies."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump(message, self._process.stdin)
        self._process.stdin.flush()
        return pickle.load(self._process.stdout)

    def is_alive(self) -> bool:
        """Return whether the process is running."""
        return self._process.poll() is None

    def end(self) -> None:
        """Kill the process if it is still running; a waiting `prepare` or `ask` then raises."""
        self._process.kill()
        self._process.wait()

    def close_pipes(self) -> None:
        """Close the pipes."""
        close_pipes(self._process)

    def failure(self, error: Exception) -> ReposeError:
        """Describe in one sentence what `prepare` or `ask` raised."""
        if not isinstance(error, EOFError | OSError | pickle.UnpicklingError):
            return worker_error(error)
        with contextlib.suppress(subprocess.TimeoutExpired):  # the pipes close before the exit code is available
            self._process.wait(3.0)
        code = self._process.poll()
        how = "sent an answer that cannot be read" if code is None else how_it_ended(code)
        return ReposeError(f"a translation worker {how}: translate again, with fewer workers or with workers = 1")


def main() -> None:
    """Main function of a worker: answers messages until its input ends, and ends with its parent."""
    source, sink = open_pipes()
    with contextlib.suppress(EOFError, BrokenPipeError):
        sink.write(_READY)
        sink.flush()
        engine: Engine | None = None
        while True:
            message: bytes | Batch = pickle.load(source)
            answer: Results | Exception | None = None
            try:
                if isinstance(message, bytes):
                    engine = built(message)
                else:
                    assert engine is not None, "the model comes first"
                    answer = message.search(engine)
            except Exception as error:
                answer = worker_error(error)
            pickle.dump(answer, sink)
            sink.flush()
