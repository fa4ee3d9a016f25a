"""Batches searched by several processes: this one, and workers that are started once there is much to do.

A search is many small operations, which threads do not speed up; a process of one thread for each core does. A worker
takes about two seconds to start; this process searches meanwhile, and never waits for one that has taken no batch.
"""

import contextlib
import os
import pickle
import sys
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence

from repose.decoding.engine import Engine
from repose.decoding.worker import Batch, Results, Worker
from repose.system.errors import ReposeError

WORTH_SECONDS = 4.0
"""Workers are started when searching here has taken or would take so long: twice what they need to start."""


class Pool:
    """Searches batches in at most `processes` processes, this one included.

    Workers are started when they are worth it and kept for later calls; they end with `close`, with this object, and
    with this process, even if it is killed. The results are those of one process.
    """

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self._fingerprint: Hashable = None  # of the weights that workers have
        self._seconds = 0.0  # spent on searching here so far, in calls that workers can share
        self._crew = _Crew(self)

    def __reduce__(self) -> tuple[type["Pool"], tuple[int]]:
        return Pool, (self.processes,)  # a copy starts workers of its own

    def search(self, engine: Engine, batches: Sequence[Batch]) -> list[Results]:
        """The results of each batch. The first ones are begun first: put the largest there.

        Raises what a search raises, and ReposeError where a worker dies.
        """
        self.renew(engine)
        with engine.undisturbed():
            if len(batches) > 1 and self._can_share(engine):
                return self._share(engine, batches)
            return [batch.search(engine) for batch in batches]

    def start(self, engine: Engine) -> None:
        """Start all workers now and wait until they are ready, for measurements. Raises ReposeError where one dies."""
        if self._can_share(engine):
            self.renew(engine)
            crew = self._crew
            with crew.opened(_Call([])) as call:
                crew.start(self.processes - 1, engine, call)
                crew.wait(call, lambda: all(worker.ready for worker in crew.workers))

    def close(self) -> None:
        """End the workers. A search that is going on ends without them, a later one may start others."""
        self._crew.close()

    def forget(self) -> None:
        """End the workers: their weights are no longer the right ones."""
        self._fingerprint = None
        self._crew.close()

    def renew(self, engine: Engine) -> None:
        """Part with what derives from other weights, with workers that have died, and with those of another process."""
        if not self._crew.is_of_this_process():
            self._crew = _Crew(self)
        if (fingerprint := engine.fingerprint()) != self._fingerprint:
            self.forget()
            engine.refresh()
            self._fingerprint = fingerprint
        self._crew.tidy()

    def _can_share(self, engine: Engine) -> bool:
        """A frozen application would start itself as a worker."""
        return self.processes > 1 and engine.can_share and not hasattr(sys, "frozen")

    def _share(self, engine: Engine, batches: Sequence[Batch]) -> list[Results]:
        crew = self._crew
        seconds, num_tokens = 0.0, 0  # of what this call has searched here
        with crew.opened(_Call(batches)) as call:
            while (index := crew.take(call)) is not None:
                before = time.monotonic()
                call.results[index] = batches[index].search(engine)
                took = time.monotonic() - before
                self._seconds += took
                seconds, num_tokens = seconds + took, num_tokens + batches[index].num_tokens
                if self._seconds + seconds * call.num_tokens_left / num_tokens > WORTH_SECONDS:
                    crew.start(min(self.processes - 1, len(call.left)), engine, call)
        return [call.results[index] for index in range(len(batches))]


class _Call:
    """The batches of one search, taken by whoever is free."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.batches = batches
        self.left = list(reversed(range(len(batches))))
        """Indices of batches that nobody has, the next one last."""
        self.num_tokens_left = sum(batch.num_tokens for batch in batches)
        self.alone = False
        """Whether the workers were ended meanwhile: it starts none again."""
        self.results: dict[int, Results] = {}
        self.error: Exception | None = None
        """The first that a worker has met."""

    def take(self) -> int | None:
        """The index of the next batch, if there is one and nothing has failed."""
        if self.error is not None or not self.left:
            return None
        index = self.left.pop()
        self.num_tokens_left -= self.batches[index].num_tokens
        return index

    def give_back(self, index: int) -> None:
        """Let somebody else take a batch."""
        self.left.append(index)
        self.num_tokens_left += self.batches[index].num_tokens


class _Crew:
    """Workers with the same weights, each with a thread of this process that gives it batches of the open calls."""

    def __init__(self, pool: Pool) -> None:
        """They end with `pool`."""
        self.workers: list[Worker] = []
        self._calls: list[_Call] = []
        self._changed = threading.Condition()
        self._process = os.getpid()
        self._message: bytes | None = None  # the engine, as it is given to each
        weakref.finalize(pool, self.close)

    def is_of_this_process(self) -> bool:
        """Whether this process has made it, not one that this is a fork of."""
        return self._process == os.getpid()

    def tidy(self) -> None:
        """Part with workers that have died idle."""
        with self._changed:
            self.workers[:] = [worker for worker in self.workers if worker.is_alive()]
            self._changed.notify_all()

    def start(self, number: int, engine: Engine, call: _Call) -> None:
        """Have at least so many workers for a call, without waiting for them; none after a `close`."""
        with self._changed:
            while len(self.workers) < number and not call.alone:
                self._message = self._message or _pickled(engine)
                worker = Worker()
                self.workers.append(worker)
                given = (worker, self._message)
                threading.Thread(target=self._serve, args=given, daemon=True, name="repose-worker").start()

    @contextlib.contextmanager
    def opened(self, call: _Call) -> Iterator[_Call]:
        """Within, workers take batches of the call."""
        with self._changed:
            self._calls.append(call)
            self._changed.notify_all()
        try:
            yield call
        finally:
            with self._changed:
                self._calls.remove(call)

    def take(self, call: _Call) -> int | None:
        """The index of a batch that nobody has; None when all have results. Raises what a worker has met."""
        with self._changed:
            self.wait(call, lambda: bool(call.left) or len(call.results) == len(call.batches))
            return call.take()

    def wait(self, call: _Call, done: Callable[[], bool]) -> None:
        """Until `done()`. Raises what a worker has met."""
        with self._changed:
            self._changed.wait_for(lambda: call.error is not None or done())
            if call.error is not None:
                raise call.error

    def close(self) -> None:
        """End all workers: calls go on without. Those that came with a fork are not this process's."""
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
        """A worker's thread. Whatever it meets is raised in those who wait."""
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
        """A batch of any call, waiting for one; None where the worker is to end."""
        with self._changed:
            while worker in self.workers:
                for call in self._calls:
                    if (index := call.take()) is not None:
                        return call, index
                self._changed.wait()
        return None


def _pickled(engine: Engine) -> bytes:
    """Pickle an engine for a worker. Raises ReposeError for a model with something that cannot be, such as a hook."""
    try:
        return pickle.dumps(engine)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ReposeError(
            f"other processes cannot have a copy of this model ({error}): translate with workers = 1"
        ) from error
