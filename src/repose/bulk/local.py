"""Work on the shards of a job on this machine: one process per core, each with its own model, one shard at a time.

A process that dies, or that somebody else stops, is replaced, and its shard is started again. A shard that another
runner works on is skipped, and checked again at the end.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from repose.bulk.line_work import Work
from repose.bulk.plan import Plan, Shard
from repose.bulk.shards import Ended, run_shard
from repose.bulk.storage import Store
from repose.bulk.worker import WorkerProcess
from repose.system.errors import ReposeError

TRIES = 3
"""Number of times that a shard is started if its processes die."""
LOOK = 0.5
"""Seconds between checks of the shards that others work on."""


@dataclass
class Tally:
    """Progress of this runner."""

    lines: int = 0
    tokens: int = 0
    shards: int = 0
    """Number of finished shards, whoever worked on them."""
    began: float = field(default_factory=time.monotonic)

    @property
    def rate(self) -> float:
        """Lines per second."""
        return self.lines / max(time.monotonic() - self.began, 1e-3)


OnProgress = Callable[[Tally], None]
"""Called with the progress so far, whenever there is more."""


@dataclass
class Queue:
    """Shards to work on; those that other runners work on come back later."""

    waiting: list[Shard]
    elsewhere: list[Shard] = field(default_factory=list)
    tries: dict[int, int] = field(default_factory=dict)

    def next(self) -> Shard | None:
        """Return the next shard to start; None if there is none now."""
        if not self.waiting:
            self.waiting, self.elsewhere = self.elsewhere, []
        return self.waiting.pop(0) if self.waiting else None

    def lose(self, shard: Shard, error: ReposeError, *, again: bool = True) -> None:
        """Record that a shard's process died, and queue the shard `again`. Raises the error after `TRIES` times."""
        self.tries[shard.number] = self.tries.get(shard.number, 0) + 1
        if self.tries[shard.number] >= TRIES:
            raise error
        if again:
            self.waiting.insert(0, shard)


def run_here(
    store: Store, plan: Plan, shards: Sequence[Shard], work: Work, *, on_progress: OnProgress, stop: threading.Event
) -> bool:
    """Work on shards in this process until all are done. Return whether all are done; False if `stop` was set first.

    Raises what `run_shard` raises.
    """
    tally, shards_left = Tally(), Queue(list(shards))

    def count_window(lines: int, tokens: int) -> None:
        tally.lines += lines
        tally.tokens += tokens
        on_progress(tally)

    while not stop.is_set() and (shard := shards_left.next()) is not None:
        match run_shard(store, plan, shard, work, on_window=count_window, stop=stop.is_set):
            case Ended.DONE:
                tally.shards += 1
                on_progress(tally)
            case Ended.BUSY:
                shards_left.elsewhere.append(shard)
                if not shards_left.waiting:
                    stop.wait(LOOK)
            case _:
                return False
    return tally.shards == len(shards)


def run_in_processes(
    store: Store, plan: Plan, shards: Sequence[Shard], workers: int, *, on_progress: OnProgress, stop: threading.Event
) -> bool:
    """Do as `run_here` does, in `workers` processes. Also raises ReposeError if processes die again and again."""
    runner = _Runner(store, plan, shards, on_progress)
    with ThreadPoolExecutor(workers, "repose-bulk") as threads:
        try:
            serving = {threads.submit(runner.serve) for _ in range(workers)}
            while serving:
                ended, serving = wait(serving, 0.1, FIRST_COMPLETED)
                for thread in ended:
                    thread.result()  # raises the thread's error
                if stop.is_set() and not runner.ends:
                    runner.end(kill=False)
        finally:
            runner.end(kill=True)
    return runner.is_done


class _Runner:
    """Hands shards to processes; a thread in this process talks to each of them."""

    def __init__(self, store: Store, plan: Plan, shards: Sequence[Shard], on_progress: OnProgress) -> None:
        self._where, self._identity, self._on_progress = store.where, plan.identity, on_progress
        self._queue, self._total = Queue(list(shards)), len(shards)
        self._tally = Tally()
        self._lock, self._end = threading.Lock(), threading.Event()
        self._processes: list[WorkerProcess] = []

    @property
    def is_done(self) -> bool:
        """True if all shards are done."""
        return self._tally.shards == self._total

    @property
    def ends(self) -> bool:
        """True if the runner was told to end."""
        return self._end.is_set()

    def end(self, *, kill: bool) -> None:
        """End all processes, at once or after the current window."""
        self._end.set()
        with self._lock:
            for process in self._processes:
                process.kill() if kill else process.ask_to_stop()

    def serve(self) -> None:
        """Run one thread: hand out one shard after another. Raises the errors of processes."""
        process: WorkerProcess | None = None
        try:
            while not self.ends and not self.is_done:
                if (shard := self._take()) is None:
                    self._end.wait(LOOK)
                    continue
                process = process or self._started()
                try:
                    ended = process.run(shard.number, self._count_window)
                    if ended is Ended.STOPPED and not self.ends:  # by a SIGTERM that was not ours
                        raise EOFError
                    self._enter(shard, ended)
                except EOFError:
                    died, process = process, None
                    self._drop(died)
                    if not self.ends:
                        with self._lock:
                            self._queue.lose(shard, died.failure())
        finally:
            if process is not None:
                self._drop(process)

    def _take(self) -> Shard | None:
        with self._lock:
            return self._queue.next()

    def _enter(self, shard: Shard, ended: Ended) -> None:
        with self._lock:
            if ended is Ended.DONE:
                self._tally.shards += 1
                self._on_progress(self._tally)
            elif ended is Ended.BUSY:
                self._queue.elsewhere.append(shard)
        if ended is Ended.BUSY:
            self._end.wait(LOOK)

    def _count_window(self, lines: int, tokens: int) -> None:
        with self._lock:
            self._tally.lines += lines
            self._tally.tokens += tokens
            self._on_progress(self._tally)

    def _started(self) -> WorkerProcess:
        process = WorkerProcess(self._where, self._identity)
        with self._lock:
            self._processes.append(process)
        if self.ends:
            process.kill()
        return process

    def _drop(self, process: WorkerProcess) -> None:
        with self._lock:
            if process in self._processes:
                self._processes.remove(process)
        process.end()
