"""A cell of a grid: one training in a process of its own, and how a backend runs many of them.

The process is a leader of its own, so that Ctrl-C reaches the grid alone, which then asks each cell to save. It asks
itself to save when the grid has died (`repose.grids.cell_process`).
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, Protocol

Status = Literal["done", "stopped", "failed"]
LOG = "cell.log"
"""What a cell's process says on stderr, in its run directory."""
BUSY = 4
"""Exit code of a cell's process that found another one at work in the run directory."""
ELSEWHERE = "running elsewhere"
"""How the reason of a cell begins that another process is at work on."""

_POLL_SECONDS = 0.1
_OUTER_LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_STEP_NUM_TASKS")


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
    affinity: tuple[int, ...] = ()
    """The cores of this machine it is kept on, where the system can do that; empty: any `cores` of those it may use."""


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """How a cell's process ended."""

    status: Status
    """`stopped`: to be resumed, or another process is at work on it (the reason then begins with `ELSEWHERE`)."""
    reason: str
    """Empty where it is done; a sentence where it failed."""
    seconds: float
    """Wall-clock time of the process."""


Tell = Callable[[str, str, str], None]
"""(cell's name, "running" or a `Status`, reason): what happens to a cell, from any thread."""


class Backend(Protocol):
    """Where cells run."""

    def run(self, jobs: Sequence[CellJob], tell: Tell, stop: threading.Event) -> dict[str, CellResult]:
        """Run the jobs, in about this order; returns when all have ended, or `stop` is set and the running ones have
        saved. Cells that were not begun have no result."""


def run_cell(job: CellJob, *, stop: threading.Event, kill: threading.Event | None = None) -> CellResult:
    """Run one cell to its end in a process of its own. `stop` asks it to save, `kill` ends it at once.

    Never raises for what happens in the cell.
    """
    began = time.monotonic()
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        with (job.folder / LOG).open("ab") as log:
            start = log.tell()
            code = _wait(_start(job, log), stop, kill)
        text = _text(job.folder / LOG, start)
    except OSError as error:
        reason = f"{job.folder} cannot be written ({error.strerror}): free disk space or choose another --out"
        return CellResult(status="failed", reason=reason, seconds=time.monotonic() - began)
    seconds = time.monotonic() - began
    if code == 0:
        return CellResult(status="done", reason="", seconds=seconds)
    if code == BUSY:
        return CellResult(status="stopped", reason=f"{ELSEWHERE}: {last_line(text)}", seconds=seconds)
    asked = stop.is_set() or (kill is not None and kill.is_set())
    if code == 3 or (code < 0 and asked):
        return CellResult(status="stopped", reason="asked to stop", seconds=seconds)
    if code < 0:
        reason = f"its process was killed by signal {-code} (out of memory?): the same command resumes it"
        return CellResult(status="failed", reason=reason, seconds=seconds)
    return CellResult(status="failed", reason=last_line(text) or f"exit code {code}", seconds=seconds)


def _start(job: CellJob, log: IO[bytes]) -> "subprocess.Popen[bytes]":
    """The process; it reads the job from stdin."""
    process = subprocess.Popen(
        [sys.executable, "-m", "repose.grids.cell_process", str(job.folder)],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env=environment(os.environ, cores=job.cores),
        start_new_session=True,
    )
    assert process.stdin is not None, "stdin is a pipe"
    order = {
        "experiment": job.experiment,
        "cores": job.cores,
        "device": job.device,
        "affinity": list(job.affinity),
        "parent": os.getpid(),
    }
    try:
        with process.stdin as stdin:
            stdin.write(json.dumps(order).encode())
    except BrokenPipeError:  # it has died already: its exit code and last line say of what
        pass
    return process


def environment(present: Mapping[str, str], *, cores: int) -> dict[str, str]:
    """The environment of a cell's process: so many threads, and no place among an outer launcher's workers."""
    kept = {name: value for name, value in present.items() if name not in _OUTER_LAUNCHER}
    return kept | {"OMP_NUM_THREADS": str(cores), "OMP_WAIT_POLICY": "passive", "TOKENIZERS_PARALLELISM": "false"}


def _wait(process: "subprocess.Popen[bytes]", stop: threading.Event, kill: threading.Event | None) -> int:
    """Its exit code; the requests to stop and to die are handed on, each once."""
    asked = False
    while True:
        if kill is not None and kill.is_set():
            process.kill()  # its workers end with it
        elif stop.is_set() and not asked:
            process.terminate()
            asked = True
        try:
            return process.wait(timeout=_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            pass


def _text(log: Path, start: int) -> str:
    with log.open("rb") as file:
        file.seek(start)
        return file.read().decode("utf-8", errors="replace")


def last_line(text: str) -> str:
    """The last line that says something: what a failed process ended with."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("repose: ") if lines else ""
