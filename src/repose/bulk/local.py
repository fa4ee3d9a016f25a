"""Work on the shards of a job on this machine: one process per core, each with its own model, one shard at a time.

A process that dies, or that somebody else stops, is replaced, and its shard is started again. A shard that another
runner works on is skipped, and checked again at the end.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

from repose.bulk.line_work import Work
from repose.bulk.plan import Plan, Shard
from repose.bulk.shards import Ended, run_shard
from repose.bulk.storage import Store
from repose.bulk.worker import WorkerProcess

TRIES = 3
"""Number of times that a shard is started if its processes die."""


class Tally:
    """Progress of this runner. Any thread may count."""

    def __init__(self, on_progress: "OnProgress") -> None:
        self.lines = self.tokens = 0
        self.shards = 0
        """Number of finished shards, whoever worked on them."""
        self._on_progress = on_progress
        self._began, self._lock = time.monotonic(), threading.Lock()

    def count(self, lines: int = 0, tokens: int = 0, *, shards: int = 0) -> None:
        """Add what was done, and report the progress."""
        with self._lock:
            self.lines += lines
            self.tokens += tokens
            self.shards += shards
            self._on_progress(self)

    @property
    def rate(self) -> float:
        """Lines per second."""
        return self.lines / max(time.monotonic() - self._began, 1e-3)


OnProgress = Callable[[Tally], None]
"""Called with the progress so far, whenever there is more."""


def run_here(
    store: Store, plan: Plan, shards: Sequence[Shard], work: Work, *, on_progress: OnProgress, stop: threading.Event
) -> bool:
    """Work on shards in this process until all are done. Return whether all are done; False if `stop` was set first.

    Raises what `run_shard` raises.
    """
    tally, waiting = Tally(on_progress), deque(shards)
    while waiting and not stop.is_set():
        shard = waiting.popleft()
        ended = run_shard(store, plan, shard, work, on_window=tally.count, stop=stop.is_set)
        if ended is Ended.DONE:
            tally.count(shards=1)
        elif ended is Ended.BUSY:
            waiting.append(shard)
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
        self._job = store.where, plan.identity
        self._waiting, self._total = deque(shards), len(shards)
        self._tally, self._deaths = Tally(on_progress), Counter[int]()
        self._end = threading.Event()
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
        for process in list(self._processes):
            process.kill() if kill else process.ask_to_stop()

    def serve(self) -> None:
        """Run one thread: have a process work on one shard after another, until none waits. Raises the errors of
        processes."""
        process: WorkerProcess | None = None
        try:
            while not self.ends and (shard := self._next()) is not None:
                process = process or self._started()
                try:
                    ended = process.run(shard.number, self._tally.count)
                    if ended is Ended.STOPPED and not self.ends:  # by a SIGTERM that was not ours
                        raise EOFError
                except EOFError:
                    died, process = process, None
                    self._drop(died)
                    self._deaths[shard.number] += 1
                    if self._deaths[shard.number] == TRIES and not self.ends:
                        raise died.failure() from None
                    self._waiting.appendleft(shard)
                    continue
                if ended is Ended.DONE:
                    self._tally.count(shards=1)
                elif ended is Ended.BUSY:
                    self._waiting.append(shard)
        finally:
            if process is not None:
                self._drop(process)

    def _next(self) -> Shard | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def _started(self) -> WorkerProcess:
        process = WorkerProcess(*self._job)
        self._processes.append(process)
        if self.ends:  # `end` may not have seen it
            process.kill()
        return process

    def _drop(self, process: WorkerProcess) -> None:
        self._processes.remove(process)
        process.end()
