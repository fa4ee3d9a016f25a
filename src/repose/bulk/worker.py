"""A process that works on shards for another process: its start, the messages, and its main function.

The parent sends the place of the job, its identity, and the number of a shard. The worker sends the counts of each
window, then how the shard ended, or its error. SIGTERM stops it after the current window.
"""

import contextlib
import pickle
import signal
import threading
from typing import Any

from repose.bulk.line_work import work_of
from repose.bulk.models import loaded
from repose.bulk.plan import read_plan
from repose.bulk.shards import Ended, OnWindow, run_shard
from repose.bulk.storage import Store
from repose.system.errors import DataError, ReposeError
from repose.system.helper import close_pipes, how_it_ended, open_pipes, start_helper, worker_error


class WorkerProcess:
    """A process that works on shards. `run` and `end` are for one thread, `ask_to_stop` and `kill` for any thread."""

    def __init__(self, where: str, identity: str) -> None:
        """Raises ReposeError if the system starts no more processes."""
        try:
            self._process = start_helper(__name__, OMP_NUM_THREADS="1")
        except OSError as error:
            raise ReposeError(f"a process could not be started ({error.strerror}): give fewer --workers") from error
        self._job = where, identity
        self._stopped = False

    def run(self, shard: int, on_window: OnWindow) -> Ended:
        """Have the process work on a shard. Raises EOFError if it dies, and its error as a ReposeError."""
        self._send((*self._job, shard))
        while True:
            answer = self._receive()
            if isinstance(answer, Exception):
                raise answer
            if isinstance(answer, Ended):
                self._stopped = answer is Ended.STOPPED
                return answer
            on_window(*answer)

    def _send(self, message: object) -> None:
        assert self._process.stdin is not None
        try:
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()
        except OSError as error:
            raise EOFError from error

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        try:
            return pickle.load(self._process.stdout)
        except pickle.UnpicklingError as error:  # it died while writing
            raise EOFError from error

    def failure(self) -> ReposeError:
        """Return an error that says how the process died."""
        code = -signal.SIGTERM if self._stopped else self._process.wait()
        return ReposeError(f"a process that worked on a shard {how_it_ended(code)}: run it again, with fewer --workers")

    def ask_to_stop(self) -> None:
        """Ask the process to stop after the current window."""
        with contextlib.suppress(OSError):
            self._process.terminate()

    def kill(self) -> None:
        """Kill the process at once; a waiting `run` then raises EOFError."""
        with contextlib.suppress(OSError):
            self._process.kill()

    def end(self) -> None:
        """End the process and close its pipes."""
        self.kill()
        self._process.wait()
        close_pipes(self._process)


def main() -> None:
    """Main function of a worker: answers messages until its input ends, and ends with its parent."""
    stop = threading.Event()
    source, sink = open_pipes()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def answer(content: object) -> None:
        pickle.dump(content, sink)
        sink.flush()

    job: LoadedJob | None = None
    with contextlib.suppress(EOFError, BrokenPipeError):
        while not stop.is_set():
            where, identity, shard = pickle.load(source)
            try:
                job = job or LoadedJob(where, identity)
                answer(job.run(shard, lambda *counts: answer(counts), stop.is_set))
            except BrokenPipeError:
                raise
            except Exception as error:
                answer(worker_error(error))


class LoadedJob:
    """A job with its models, loaded in a process that works on its shards."""

    def __init__(self, where: str, identity: str) -> None:
        """Raises DataError if there is no job, or another one; and what loading the models raises."""
        self.store = Store.at(where)
        self.plan = read_plan(self.store)
        if self.plan.identity != identity:
            raise DataError(f"{where} holds another job by now: choose another --out")
        self.work = work_of(self.plan.job, [loaded(model) for model in self.plan.job.models])

    def run(self, shard: int, on_window: OnWindow, stop: Any) -> Ended:
        """Work on a shard as `run_shard` does."""
        return run_shard(self.store, self.plan, self.plan.shards[shard], self.work, on_window=on_window, stop=stop)
