"""A cell of a grid: its status, and its training in a process of its own.

The process is a session leader, so that Ctrl-C reaches only the grid, which then asks each cell to save and end. A cell
whose grid has died asks itself. `python -m repose.grids.cells FOLDER` is that process: it reads its job as a line of
JSON from stdin. Its exit codes are those of the command line (0 done, 1 failed, 2 configuration, 3 stopped and
resumable), `BUSY` if another process is at work in the folder, and `PASSING` if it could not write or lost a worker.
The last line on stderr says why it failed.
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
from repose.system.helper import OWN_SESSION
from repose.system.locks import lock_holder, locked_or_busy
from repose.system.signals import killed_by

LOG, LOCK = "cell.log", "cell.lock"
"""Names of files in a cell's run directory: its process's stderr, and the file that its process locks."""
BUSY, PASSING = 4, 5
"""Exit codes of a cell's process: another process is at work in the run directory; or it failed for an outside reason
that may pass, such as a full disk or a killed worker."""
POLL = 1.0
"""Seconds between a cell's checks of its lock and of the process that started it."""

_BY_SIGNAL = os.name != "nt"
"""True if SIGTERM asks a cell to save and end. On Windows, SIGTERM would end it at once. There, the end of its stdin
asks instead, which also comes when its grid has died."""
_WAIT_SECONDS = 0.1
_ORPHAN_SECONDS = 600.0
"""Seconds for a cell whose grid has died to finish an update, a checkpoint and scores."""
_OUTER_LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_STEP_NUM_TASKS")


class CellStatus(StrEnum):
    """Status of a cell."""

    WAITING = "waiting"
    RUNNING = "running"
    ELSEWHERE = "running elsewhere"
    """Another grid's process is at work on it, here or on another machine."""
    STOPPED = "stopped"
    """Interrupted; the same command resumes it."""
    FAILED = "failed"
    DONE = "done"


class Lost(StrEnum):
    """How an attempt at a cell was lost on a cluster; the values are phrases of `reason`."""

    MACHINE = "its machine was lost"
    MEMORY = "its machine ran out of memory"
    WORKER = "its Ray worker was lost"


@dataclass(frozen=True, kw_only=True)
class CellState:
    """A cell's status with its details, which `reason` turns into a sentence."""

    status: CellStatus = CellStatus.WAITING
    message: str = ""
    """Sentence of the error that ended it; or the process elsewhere that is at work on it."""
    exit_code: int | None = None
    """Exit code of a process that failed without a message; -9 if it was killed by signal 9."""
    host: str = ""
    """Machine of the cluster that it runs on, or last ran on."""
    lost: Lost | None = None
    """How the attempt on `host` was lost."""
    passing: bool = False
    """True if it failed for a reason that another attempt may not meet: a signal, or a full disk."""
    attempt: int = 1
    """Number of the current attempt in this call, counted from 1."""


def holder_of(folder: Path) -> str | None:
    """Return which process is at work on the run in a directory, as a cell or in its training; None if none is.

    Raises OSError if a lock file exists but cannot be opened.
    """
    from repose.saved_run.folder import RunFolder

    holders = map(lock_holder, (folder / LOCK, RunFolder(folder).lock_file))
    return next((holder for holder in holders if holder is not None), None)


def reason(state: CellState) -> str:
    """Return the reason for a cell's status, as a sentence; empty if the status says everything."""
    where = f" ({state.host})" if state.host else ""  # unknown if the attempt was lost before it reported its machine
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
    """A cell to run, in plain values that can be sent to another machine."""

    name: str
    folder: Path
    """Its run directory."""
    experiment: str
    """The experiment as JSON, from `repose.config.file.to_json`."""
    cores: int = 1
    """CPU cores, one thread each."""
    gpus: float = 0.0
    """GPUs, or the share of one, that a scheduler sets aside for it."""
    device: str = "auto"
    until_epoch: int | None = None
    """Train only until the validation of this epoch, without scoring; None: train to the end, and score."""
    affinity: tuple[int, ...] = ()
    """Cores of this machine to keep it on, if the system can; empty: any `cores` of those that it may use."""


Tell = Callable[[str, CellState], None]
"""Function to call, from any thread, with a cell's name and its new state."""


class RunCells(Protocol):
    """A function that runs cells on this machine, or on a cluster."""

    def __call__(self, jobs: Sequence[CellJob], tell: Tell, *, stop: threading.Event, kill: threading.Event) -> None:
        """Run the jobs, roughly in order. Returns when all have ended, or when `stop` is set and the running ones have
        saved; `kill` ends them at once. `tell` is called when a cell begins and when it ends, but not for cells that
        never began."""


# The side of the grid


def run_cell(job: CellJob, *, stop: threading.Event, kill: threading.Event | None = None) -> CellState:
    """Run one cell to its end in a process of its own. `stop` asks it to save and end, `kill` ends it at once.

    Never raises for errors in the cell.
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
    with contextlib.suppress(OSError):  # if it has died already, its exit code and last line say why
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
    """Return the environment of a cell's process: one thread per core, and no variables of an outer launcher."""
    kept = {name: value for name, value in os.environ.items() if name not in _OUTER_LAUNCHER}
    threads = {"OMP_NUM_THREADS": str(cores), "OMP_WAIT_POLICY": "passive", "TOKENIZERS_PARALLELISM": "false"}
    return kept | threads | {"PYTHONIOENCODING": "utf-8"}  # the encoding in which its output is read


def _wait(process: "subprocess.Popen[bytes]", stop: threading.Event, kill: threading.Event | None) -> int:
    """Wait for the process and return its exit code; pass on the requests to stop and to end at once."""
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
    """Return the last non-empty line, in which a failed process says why it failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("repose: ") if lines else ""


# The side of the cell


def main() -> int:
    """Run the cell whose job comes on stdin, and return the exit code."""
    folder, order = Path(sys.argv[1]), json.loads(sys.stdin.readline())
    threading.Thread(target=_save_when_alone, args=(order["parent"],), daemon=True).start()
    pinned = keep_on(order["affinity"], order["cores"])
    try:
        from repose.saved_run.folder import RunFolder

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
        # The table gets one sentence. The traceback, for developers, stays above it in the log.
        import traceback

        traceback.print_exc()
        return _say(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, 1)


def _run(folder: Path, order: dict[str, Any], workers: int | None) -> int:
    from repose.config.file import from_json
    from repose.runs.run import run
    from repose.saved_run.records import RunStatus

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
    """When the process that started this one has died, ask this process to save and end; if it does not, end it."""
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
    """Keep this process on these cores, before torch counts them. Return whether that was possible.

    If it was, the training chooses its own workers, as on a machine of that size: as many as it began with, or no more
    than its batches can use.
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
    """Hold the cell's lock from preparation to scores; the training's own lock covers only the training.

    A machine that sleeps, or loses contact with its storage, may lose the lock without notice. Therefore the holder
    checks every `POLL` seconds whose name is in the file, and ends at once if it is another's. A process that finds a
    lock file that was not removed waits long enough for its former holder to check. Raises BusyError if another process
    holds the lock.
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
    """Return the process whose name is in the lock file; "" if there is none, or if the system does not let a locked
    file be read."""
    try:
        return lock.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _end_when_taken_over(lock: Path, mine: str) -> None:
    """End this process when another takes over its lock, so that it does not overwrite the other's checkpoint."""
    while _name_in(lock) in ("", mine):
        time.sleep(POLL)
    _say(f"process {_name_in(lock).strip()} has taken over {lock.parent}", BUSY)
    os._exit(BUSY)


def _forget_half_written(folder: Path) -> None:
    """Remove scores that are not JSON, because a process died while writing them. They are computed again."""
    for path in folder.glob("scores.*.json"):
        try:
            json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            path.unlink()


if __name__ == "__main__":
    sys.exit(main())
