"""Search batches in several processes: this one, and workers that are started once there is enough to do.

A search is many small operations, which threads do not speed up; a single-threaded process per core does. A worker
takes about two seconds to start. This process searches meanwhile, and never waits for a worker that has no batch.
"""

import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import accumulate
from typing import TypeAlias, TypeVar

from repose.decoding.engine import Engine
from repose.decoding.worker import Batch, Results, Worker

WORTH_SECONDS = 4.0
"""Workers are started when searching in this process has taken or would take this long: twice their start-up time."""

T = TypeVar("T")
OnProgress: TypeAlias = Callable[[float], None]
"""Is called with the share of the work that is done, from 0 to 1."""


def telling(parts: Sequence[T], sizes: Sequence[int], on_progress: OnProgress) -> Iterator[T]:
    """Yield the parts of some work, of these sizes, and call `on_progress` after each."""
    total = sum(sizes)
    for part, done in zip(parts, accumulate(sizes), strict=True):
        yield part
        on_progress(done / total)


class Pool:
    """Searches batches in at most `processes` processes, this one included.

    Workers are started when they are worth it, and kept for later calls. They end with `close`, with this object, and
    with this process, even if it is killed. The results are the same as with one process.
    """

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self._fingerprint: Hashable = None  # of the weights that workers have
        self._seconds = 0.0  # spent searching here so far, in calls that workers can share
        self._crew = _Crew(self)

    def __reduce__(self) -> tuple[type["Pool"], tuple[int]]:
        return Pool, (self.processes,)  # a copy starts its own workers

    def search(
        self, engine: Engine, batches: Sequence[Batch], on_progress: OnProgress = lambda _: None
    ) -> list[Results]:
        """Search all batches, and return their results. The first batches are started first: put the largest there.

        `on_progress` is called after each batch that this process has searched. Raises what a search raises, and
        ReposeError if a worker dies.
        """
        self.renew(engine)
        with engine.undisturbed():
            if len(batches) > 1 and self._can_share(engine):
                return self._share(engine, batches, on_progress)
            sizes = [batch.num_tokens for batch in batches]
            return [batch.search(engine) for batch in telling(batches, sizes, on_progress)]

    def start(self, engine: Engine) -> None:
        """Start all workers now and wait until they are ready, for measurements. Raises ReposeError if one dies."""
        if self._can_share(engine):
            self.renew(engine)
            crew = self._crew
            with crew.opened(_Call([])) as call:
                crew.start(self.processes - 1, engine, call)
                crew.wait(call, lambda: all(worker.ready for worker in crew.workers))

    def close(self) -> None:
        """End the workers. A search in progress continues without them; a later one may start new ones."""
        self._crew.close()

    def forget(self) -> None:
        """End the workers, because their weights are out of date."""
        self._fingerprint = None
        self._crew.close()

    def renew(self, engine: Engine) -> None:
        """Drop what was derived from other weights, workers that have died, and workers of another process."""
        if not self._crew.is_of_this_process():
            self._crew = _Crew(self)
        if (fingerprint := engine.fingerprint()) != self._fingerprint:
            self.forget()
            engine.refresh()
            self._fingerprint = fingerprint
        self._crew.tidy()

    def _can_share(self, engine: Engine) -> bool:
        """Return whether workers can be used. A frozen application would start itself as a worker."""
        return self.processes > 1 and engine.can_share and not hasattr(sys, "frozen")

    def _share(self, engine: Engine, batches: Sequence[Batch], on_progress: OnProgress) -> list[Results]:
        crew, total = self._crew, sum(batch.num_tokens for batch in batches)
        seconds, num_tokens = 0.0, 0  # searched here in this call
        with crew.opened(_Call(batches)) as call:
            while (index := crew.take(call)) is not None:
                before = time.monotonic()
                call.results[index] = batches[index].search(engine)
                took = time.monotonic() - before
                self._seconds += took
                seconds, num_tokens = seconds + took, num_tokens + batches[index].num_tokens
                if self._seconds + seconds * call.num_tokens_left / num_tokens > WORTH_SECONDS:
                    crew.start(min(self.processes - 1, len(call.left)), engine, call)
                on_progress(1 - call.num_tokens_left / total)
        return [call.results[index] for index in range(len(batches))]


class _Call:
    """The batches of one search, which this process and the workers take."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.batches = batches
        self.left = list(reversed(range(len(batches))))
        """Indices of batches that nobody has taken, the next one last."""
        self.num_tokens_left = sum(batch.num_tokens for batch in batches)
        self.alone = False
        """True if the workers were ended during this call, which then starts no new ones."""
        self.results: dict[int, Results] = {}
        self.error: Exception | None = None
        """The first error in a worker."""

    def take(self) -> int | None:
        """Return the index of the next batch; None if there is none or something has failed."""
        if self.error is not None or not self.left:
            return None
        index = self.left.pop()
        self.num_tokens_left -= self.batches[index].num_tokens
        return index

    def give_back(self, index: int) -> None:
        """Put a batch back, for another process to take."""
        self.left.append(index)
        self.num_tokens_left += self.batches[index].num_tokens


class _Crew:
    """Workers with the same weights. Each has a thread in this process, which gives it batches of the open calls."""

    def __init__(self, pool: Pool) -> None:
        """The workers end with `pool`."""
        self.workers: list[Worker] = []
        self._calls: list[_Call] = []
        self._changed = threading.Condition()
        self._process = os.getpid()
        self._message: bytes | None = None  # the engine's message, which each worker receives
        weakref.finalize(pool, self.close)

    def is_of_this_process(self) -> bool:
        """Return whether this process made the workers, rather than a process that it was forked from."""
        return self._process == os.getpid()

    def tidy(self) -> None:
        """Remove workers that have died while idle."""
        with self._changed:
            self.workers[:] = [worker for worker in self.workers if worker.is_alive()]
            self._changed.notify_all()

    def start(self, number: int, engine: Engine, call: _Call) -> None:
        """Start workers for a call until there are `number`, without waiting for them; none after a `close`."""
        with self._changed:
            while len(self.workers) < number and not call.alone:
                self._message = self._message or engine.message()
                worker = Worker()
                self.workers.append(worker)
                given = (worker, self._message)
                threading.Thread(target=self._serve, args=given, daemon=True, name="repose-worker").start()

    @contextlib.contextmanager
    def opened(self, call: _Call) -> Iterator[_Call]:
        """Within the block, workers take batches of the call."""
        with self._changed:
            self._calls.append(call)
            self._changed.notify_all()
        try:
            yield call
        finally:
            with self._changed:
                self._calls.remove(call)

    def take(self, call: _Call) -> int | None:
        """Return the index of a batch that nobody has taken; None once all have results. Raises a worker's error."""
        with self._changed:
            self.wait(call, lambda: bool(call.left) or len(call.results) == len(call.batches))
            return call.take()

    def wait(self, call: _Call, done: Callable[[], bool]) -> None:
        """Wait until `done()`. Raises the error of a worker."""
        with self._changed:
            self._changed.wait_for(lambda: call.error is not None or done())
            if call.error is not None:
                raise call.error

    def close(self) -> None:
        """End all workers; calls continue without them. Workers inherited by a fork belong to the other process."""
        if self.is_of_this_process():
            with self._changed:
                for call in self._calls:
                    call.alone = True
                ended, self.workers[:] = list(self.workers), []
                self._message = None
                self._changed.notify_all()
            for worker in ended:
                worker.end()

    def _serve(self, worker: Worker, engine: bytes) -> None:
        """Run the thread of a worker. Its errors are raised in the calls that wait."""
        call, index = None, -1
        try:
            worker.prepare(engine)
            with self._changed:
                self._changed.notify_all()
            while (task := self._next(worker)) is not None:
                call, index = task
                answer = worker.ask(call.batches[index])
                with self._changed:
                    if isinstance(answer, Exception):
                        call.error = call.error or answer
                    else:
                        call.results[index] = answer
                    self._changed.notify_all()
        except Exception as error:
            failure = worker.failure(error)
            with self._changed:
                if worker in self.workers:
                    for each in self._calls:
                        each.error = each.error or failure
                elif call is not None and call.alone:  # ended by `close`
                    call.give_back(index)
                elif call is not None:
                    call.error = call.error or failure
        finally:
            with self._changed:
                with contextlib.suppress(ValueError):
                    self.workers.remove(worker)
                self._changed.notify_all()
            worker.end()
            worker.close_pipes()

    def _next(self, worker: Worker) -> tuple[_Call, int] | None:
        """Wait for a batch of any call, and return it; None if the worker is to end."""
        with self._changed:
            while worker in self.workers:
                for call in self._calls:
                    if (index := call.take()) is not None:
                        return call, index
                self._changed.wait()
        return None
