"""A process that works on shards for another one: its start, the messages, and its main function.

Parent to worker, lines of JSON: where the job lies and its identity, then numbers of shards. Worker to parent: counts
of each window, then how the shard ended; or the sentence of an error. SIGTERM stops it after the window under way.
"""

import contextlib
import json
import signal
import threading
from typing import Any

from repose.bulk.line_work import work_of
from repose.bulk.plan import read_plan
from repose.bulk.shards import Ended, OnWindow, run_shard
from repose.bulk.storage import Store
from repose.system.errors import ConfigError, DataError, ReposeError, UserMessage, user_message
from repose.system.helper import close_pipes, how_it_ended, open_pipes, start_helper


class WorkerProcess:
    """A process that works on shards. `run` and `end` are for one thread, `ask_to_stop` and `kill` for any."""

    def __init__(self, where: str, identity: str) -> None:
        """Raises ReposeError where the system starts no more processes."""
        try:
            self._process = start_helper(__name__, OMP_NUM_THREADS="1")
        except OSError as error:
            raise ReposeError(f"a process could not be started ({error.strerror}): give fewer --workers") from error
        self._first = {"where": where, "identity": identity}
        self._stopped = False

    def run(self, shard: int, on_window: OnWindow) -> Ended:
        """Have it work on a shard. Raises EOFError where it dies, and what it met as a ReposeError."""
        first, self._first = self._first, {}
        for message in ([first] if first else []) + [shard]:
            self._send(message)
        while True:
            answer = self._receive()
            if "window" in answer:
                on_window(*answer["window"])
            elif "ended" in answer:
                ended = Ended(answer["ended"])
                self._stopped = ended is Ended.STOPPED
                return ended
            else:
                kind = ConfigError if answer["code"] == 2 else ReposeError
                raise kind(answer["error"])

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise EOFError from error

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return dict(json.loads(line))

    def failure(self) -> ReposeError:
        """The error that says how it died."""
        code = -signal.SIGTERM if self._stopped else self._process.wait()
        return ReposeError(f"a process that worked on a shard {how_it_ended(code)}: run it again, with fewer --workers")

    def ask_to_stop(self) -> None:
        """Ask it to stop after the window under way."""
        with contextlib.suppress(OSError):
            self._process.terminate()

    def kill(self) -> None:
        """Kill it at once; a waiting `run` then raises EOFError."""
        with contextlib.suppress(OSError):
            self._process.kill()

    def end(self) -> None:
        """End the process and close its pipes."""
        self.kill()
        self._process.wait()
        close_pipes(self._process)


def main() -> None:
    """The main function of a worker: answers until its input ends, and ends with its parent."""
    stop = threading.Event()
    source, sink = open_pipes()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def answer(content: dict[str, Any]) -> None:
        sink.write(json.dumps(content).encode() + b"\n")
        sink.flush()

    with contextlib.suppress(BrokenPipeError):
        try:
            job = LoadedJob(**json.loads(source.readline() or b"{}"))
            while (line := source.readline()) and not stop.is_set():
                ended = job.run(int(line), lambda lines, tokens: answer({"window": [lines, tokens]}), stop.is_set)
                answer({"ended": ended})
        except BrokenPipeError:
            raise
        except Exception as error:
            unforeseen = UserMessage(f"a process failed: {type(error).__name__}: {error}", 1)
            message = user_message(error) or unforeseen
            answer({"error": message.sentence, "code": message.exit_code})


class LoadedJob:
    """A job with its models, loaded in a process that works on its shards."""

    def __init__(self, where: str, identity: str) -> None:
        """Raises DataError where the job is not there, or another one; and what loading the model raises."""
        self.store = Store.at(where)
        self.plan = read_plan(self.store)
        if self.plan.identity != identity:
            raise DataError(f"{where} holds another job by now: choose another --out")
        self.work = work_of(self.plan.job)

    def run(self, shard: int, on_window: OnWindow, stop: Any) -> Ended:
        """Work on a shard as `run_shard` does."""
        return run_shard(self.store, self.plan, self.plan.shards[shard], self.work, on_window=on_window, stop=stop)
