"""A cell of a grid: how it stands, and its training in a process of its own.

The process is a session leader, so that Ctrl-C reaches only the grid, which then asks each cell to save and end. A cell
whose grid has died asks itself. `python -m repose.grids.cells FOLDER` is that process: it reads its job as a line of
JSON from stdin. Its exit codes are the command line's (0 done, 1 failed, 2 configuration, 3 stopped and resumable),
`BUSY` where another process is at work in the folder, and `PASSING` where it could not write or lost a worker; the last
line on stderr says why it failed.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Protocol

from repose.system.errors import BusyError, LostWorkerError, WriteError, user_message
from repose.system.files import locked_or_busy
from repose.system.helper import OWN_SESSION
from repose.system.signals import killed_by

LOG, LOCK = "cell.log", "cell.lock"
"""What a cell's process says on stderr, and the file that it locks, in its run directory."""
BUSY, PASSING = 4, 5
"""Exit codes of a cell's process that found another one at work in the run directory, or that met something outside it
that may pass: a full disk, or a worker that was killed."""
POLL = 1.0
"""Seconds between a cell's looks at its lock and at the process that started it."""

_BY_SIGNAL = os.name != "nt"
"""Whether a cell is asked by SIGTERM to save and end. On Windows, where that would end it at once, the end of its stdin
asks, which comes when its grid has died, too."""
_WAIT_SECONDS = 0.1
_ORPHAN_SECONDS = 600.0
"""For an update, a checkpoint and scores: what a cell still does whose grid has died."""
_OUTER_LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_STEP_NUM_TASKS")


class CellStatus(StrEnum):
    """How far a cell is."""

    WAITING = "waiting"
    RUNNING = "running"
    ELSEWHERE = "running elsewhere"
    """Another grid's process, or another machine's, is at work on it."""
    STOPPED = "stopped"
    """Interrupted: the same command resumes it."""
    FAILED = "failed"
    DONE = "done"


class Loss(StrEnum):
    """What became of a machine that ran a cell; the values are phrases of `reason`."""

    MACHINE = "its machine was lost"
    MEMORY = "its machine ran out of memory"
    WORKER = "its Ray worker was lost"


@dataclass(frozen=True, kw_only=True)
class CellState:
    """How a cell stands, and why: what `reason` makes a sentence of."""

    status: CellStatus = CellStatus.WAITING
    message: str = ""
    """The sentence of the error that ended it; or the process that is at work on it elsewhere."""
    exit_code: int | None = None
    """The code of a process that failed without a message; -9 for one that was killed by signal 9."""
    host: str = ""
    """The machine of a cluster that it runs on, or ran on last."""
    lost: Loss | None = None
    """Why the attempt on `host` came to nothing."""
    passing: bool = False
    """Whether it failed of what another attempt may not meet: a signal, or a full disk."""
    attempt: int = 1
    """Counts how often it began in this call, from 1."""


def reason(state: CellState) -> str:
    """Why a cell stands as it does, as a sentence; empty where its status says it all."""
    where = f" ({state.host})" if state.host else ""  # not known of one that was lost before it said so
    match state:
        case CellState(status=CellStatus.WAITING, lost=lost) if lost is not None:
            return f"{lost}{where}: begins again, attempt {state.attempt}"
        case CellState(status=CellStatus.FAILED, lost=lost) if lost is not None:
            times = "once" if state.attempt == 1 else f"{state.attempt} times"
            return f"lost {times}, the last time because {lost}{where}: the same command resumes it"
        case CellState(status=CellStatus.FAILED, exit_code=code) if code is not None and code < 0:
            return f"its process was {killed_by(-code)}: the same command resumes it"
        case CellState(status=CellStatus.FAILED, exit_code=code) if code is not None:
            return f"its process ended with exit code {code} and no message"
        case CellState(status=CellStatus.RUNNING) if state.host:
            return f"on {state.host}"
    return state.message


@dataclass(frozen=True, kw_only=True)
class CellJob:
    """A cell to be run; plain values, so that it can be sent to another machine."""

    name: str
    folder: Path
    """Its run directory."""
    experiment: str
    """JSON of `repose.config.file.to_json`."""
    cores: int = 1
    """CPU cores, one thread each."""
    gpus: float = 0.0
    """Share of a GPU that a scheduler sets aside for it."""
    device: str = "auto"
    until_epoch: int | None = None
    """Train no further than to the validation of this epoch, and score nothing; None: to the end, with scores."""
    affinity: tuple[int, ...] = ()
    """The cores of this machine it is kept on, where the system can do that; empty: any `cores` of those it may use."""


Tell = Callable[[str, CellState], None]
"""(cell's name, how it stands now): called from any thread."""


class Backend(Protocol):
    """What runs cells: this machine, or a cluster."""

    @property
    def kill(self) -> threading.Event:
        """Ends at once what runs, where it is set."""

    def run(self, jobs: Sequence[CellJob], tell: Tell, stop: threading.Event) -> None:
        """Run the jobs, in about this order; returns when all have ended, or `stop` is set and the running ones have
        saved. That a cell began and how it ended is told; of one that did not begin nothing is."""


# The side of the grid


def run_cell(job: CellJob, *, stop: threading.Event, kill: threading.Event | None = None) -> CellState:
    """Run one cell to its end in a process of its own. `stop` asks it to save, `kill` ends it at once.

    Never raises for what happens in the cell.
    """
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        with (job.folder / LOG).open("a+b") as log:
            start = log.seek(0, os.SEEK_END)
            try:
                process = _start(job, log)
            except OSError as error:
                message = f"its process could not be started ({error.strerror}): give fewer --jobs"
                return CellState(status=CellStatus.FAILED, message=message, passing=True)
            code = _wait(process, stop, kill)
            log.seek(start)
            said = last_line(log.read().decode("utf-8", errors="replace"))
    except OSError as error:
        message = f"{job.folder} cannot be written ({error.strerror}): free disk space or choose another --out"
        return CellState(status=CellStatus.FAILED, message=message, passing=True)
    is_killed = kill is not None and kill.is_set()
    asked = stop.is_set() or is_killed
    if code == 0:
        return CellState(status=CellStatus.DONE)
    if code == BUSY:
        return CellState(status=CellStatus.ELSEWHERE, message=said)
    if code == 3 or (code < 0 and asked) or (is_killed and not _BY_SIGNAL):
        return CellState(status=CellStatus.STOPPED)
    if code < 0 or not said:
        return CellState(status=CellStatus.FAILED, exit_code=code, passing=code < 0)
    return CellState(status=CellStatus.FAILED, message=said, passing=code == PASSING)


def _start(job: CellJob, log: IO[bytes]) -> "subprocess.Popen[bytes]":
    command, env = [sys.executable, "-P", "-m", "repose.grids.cells", str(job.folder)], environment(cores=job.cores)
    streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": log, "stderr": log}
    process = subprocess.Popen(command, env=env, **OWN_SESSION, **streams)
    assert process.stdin is not None, "stdin is a pipe"
    order = {name: getattr(job, name) for name in ("experiment", "cores", "device", "affinity", "until_epoch")}
    order["parent"] = os.getpid()
    with contextlib.suppress(OSError):  # if it has died already, its exit code and last line say of what
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
    if _BY_SIGNAL:
        _end_stdin(process)
    return process


def _end_stdin(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None, "stdin is a pipe"
    with contextlib.suppress(OSError):
        process.stdin.close()


def environment(*, cores: int) -> dict[str, str]:
    """The environment of a cell's process: so many threads, and no place among an outer launcher's workers."""
    kept = {name: value for name, value in os.environ.items() if name not in _OUTER_LAUNCHER}
    threads = {"OMP_NUM_THREADS": str(cores), "OMP_WAIT_POLICY": "passive", "TOKENIZERS_PARALLELISM": "false"}
    return kept | threads | {"PYTHONIOENCODING": "utf-8"}  # in which what it says is read


def _wait(process: "subprocess.Popen[bytes]", stop: threading.Event, kill: threading.Event | None) -> int:
    """Its exit code; the requests to stop and to die are handed on."""
    asked = False
    while True:
        if kill is not None and kill.is_set():
            process.kill()  # its workers end with it
        elif stop.is_set() and not asked:
            process.terminate() if _BY_SIGNAL else _end_stdin(process)
            asked = True
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(timeout=_WAIT_SECONDS)
            _end_stdin(process)
            return code


def last_line(text: str) -> str:
    """The last line that says something: what a failed process ended with."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("repose: ") if lines else ""


# The side of the cell


def main() -> int:
    """Runs the cell whose job comes on stdin; its exit code."""
    folder, order = Path(sys.argv[1]), json.loads(sys.stdin.readline())
    threading.Thread(target=_save_when_alone, args=(order["parent"],), daemon=True).start()
    pinned = keep_on(order["affinity"], order["cores"])
    try:
        from repose.runs.folder import RunFolder

        with _held(folder):
            _forget_half_written(folder)
            is_alone = pinned or str(order["device"]).startswith("cuda")  # a training has a worker per GPU
            return _run(folder, order, workers=None if is_alone else RunFolder(folder).workers or order["cores"])
    except BusyError as error:
        return _say(error, BUSY)
    except (WriteError, LostWorkerError) as error:
        return _say(error, PASSING)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if (message := user_message(error)) is not None:
            return _say(message.sentence, message.exit_code)
        # One sentence in the table; what only a developer can use stays in the log above it.
        import traceback

        traceback.print_exc()
        return _say(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, 1)


def _run(folder: Path, order: dict[str, Any], workers: int | None) -> int:
    from repose.config.file import from_json
    from repose.runs.records import RunStatus
    from repose.runs.run import run

    result = run(
        from_json(order["experiment"], "the cell's experiment"),
        folder,
        device=order["device"],
        workers=workers,
        until_epoch=order.get("until_epoch"),
        progress="none",
        say=lambda sentence: print(sentence, file=sys.stderr, flush=True),
    )
    return 0 if result.outcome.status == RunStatus.DONE else 3


def _say(sentence: object, code: int) -> int:
    print(f"repose: {' '.join(str(sentence).split())}", file=sys.stderr, flush=True)
    return code


def _save_when_alone(parent: int) -> None:
    """Asks this process to save and end when the one that started it has died, and ends it when it does not."""
    if _BY_SIGNAL:
        while os.getppid() == parent:
            time.sleep(POLL)
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        sys.stdin.read()
        signal.raise_signal(signal.SIGTERM)  # os.kill would end it at once
    time.sleep(_ORPHAN_SECONDS)
    os._exit(1)


def keep_on(affinity: Sequence[int], cores: int) -> bool:
    """Keeps this process on these cores, before torch counts them; whether that was possible.

    Where it was, the training itself chooses its workers, as it does on a machine of that size: those that it began
    with, or no more than its batches can use.
    """
    if not hasattr(os, "sched_setaffinity"):
        return False
    allowed = sorted(os.sched_getaffinity(0))
    chosen = set(affinity) & set(allowed) or (set(allowed) if len(allowed) <= cores else set())
    if chosen:
        os.sched_setaffinity(0, chosen)
    return bool(chosen)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Holds the cell's lock from preparation to scores; a training's own covers its training alone.

    A machine that sleeps, or is cut off from its storage, may lose the lock without being told. So whoever holds it
    looks every `POLL` seconds whose name is in the file, and ends at once if it is another's; and whoever finds the
    file of one that did not remove it waits long enough for it to look. Raises BusyError if another process holds it.
    """
    path = folder / LOCK
    before = _name_in(path)
    with locked_or_busy(path, f"is at work in {folder}"):
        mine = _name_in(path)
        threading.Thread(target=_end_when_taken_over, args=(path, mine), daemon=True).start()
        if before:
            time.sleep(2 * POLL)
        yield


def _name_in(lock: Path) -> str:
    """Who has signed the file; "" where nobody has, or on a system that does not let a locked file be read."""
    try:
        return lock.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _end_when_taken_over(lock: Path, mine: str) -> None:
    """Ends this process when another has signed its lock: it must not save over the other's checkpoint."""
    while _name_in(lock) in ("", mine):
        time.sleep(POLL)
    _say(f"process {_name_in(lock).strip()} has taken over {lock.parent}", BUSY)
    os._exit(BUSY)


def _forget_half_written(folder: Path) -> None:
    """Removes scores that are no JSON: a process died as it wrote them, and they are computed again."""
    for path in folder.glob("scores.*.json"):
        try:
            json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            path.unlink()


if __name__ == "__main__":
    sys.exit(main())
