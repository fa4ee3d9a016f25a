"""Run a grid on a Ray cluster (extra `cluster`): each cell is a Ray task with its CPU cores and its share of GPUs.

Ray distributes the tasks, tells where each begins, passes on the request to stop, and reports most lost machines. This
module adds what Ray does not do: Ray does not report a machine that has fallen silent, and it restarts tasks without
saying so (docs/decisions/022-ray.md). The cell's lock (`repose.grids.cells`) ensures that no two processes train in one
folder. The run directories and REPOSE_HOME must be on storage that all machines see under the same path;
docs/cluster.md says how to set this up.
"""

import contextlib
import math
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from repose._version import __version__
from repose.data.corpora import cache_home
from repose.grids.cells import CellJob, CellState, CellStatus, Lost, Tell, last_line, run_cell
from repose.system.cluster import connected, import_ray
from repose.system.errors import ConfigError
from repose.system.signals import handled_by
from repose.system.terminal import counted

POLL = 1.0
"""Seconds to wait for news from the cells, and between attempts to get a lock."""
LOOK_AT_MACHINES = 5.0
"""Seconds between checks of which machines are alive."""
ANSWER = 60.0
"""Seconds within which a machine must answer whether it sees the shared storage."""
LINGERS = 900.0
"""Seconds for which a lost cell may still hold its lock: it ends by itself within 600, and an NFS server keeps the lock
of a dead machine for 90."""


def run_on_ray(
    jobs: Sequence[CellJob],
    tell: Tell,
    *,
    address: str | None = None,
    retries: int = 3,
    stop: threading.Event,
    kill: threading.Event,
) -> None:
    """Run cells as tasks of a Ray cluster, as `repose.grids.cells.RunCells` says.

    `address`: of the head, "HOST:6379"; None: RAY_ADDRESS, or the cluster that this machine belongs to. `retries`: how
    often a cell begins again after its machine was lost. `kill` returns without waiting for cells to save; they are
    asked to save when Ray ends their tasks. Raises ConfigError if Ray, a cluster or the shared storage is missing.
    """
    if not jobs:
        return
    jobs = [replace(job, folder=job.folder.absolute()) for job in jobs]
    ray = import_ray()
    folder = Path(os.path.commonpath([job.folder.parent for job in jobs]))
    with connected(ray, address), _Shared.opened(folder, cache_home()) as shared:
        large_enough = [node for node in ray.nodes() if node["Alive"] and _can_hold(node["Resources"], jobs[0])]
        _check(ray, [_Machine(node["NodeID"], node["NodeManagerHostname"]) for node in large_enough], shared)
        if not large_enough:
            tell(jobs[0].name, CellState(message=_too_large(jobs[0])))
        _Driver(ray, shared, tell, stop, retries).run(jobs, kill)


@dataclass(frozen=True)
class _Machine:
    """A machine of the cluster."""

    id: str
    host: str


def _can_hold(resources: Mapping[str, float], job: CellJob) -> bool:
    """Return whether a machine with these resources, if they were all free, could run the cell."""
    return resources.get("CPU", 0.0) >= job.cores and resources.get("GPU", 0.0) >= job.gpus


def _too_large(job: CellJob) -> str:
    needed = counted(job.cores, "core")
    needed += f" and {job.gpus:g} GPU{'' if job.gpus <= 1 else 's'}" if job.gpus else ""
    return f"the cluster has no machine with {needed} yet: add one, or ask for less per cell"


@dataclass(frozen=True)
class _Shared:
    """What all machines must share: repose's version, and storage. Each must see a file in each of two folders."""

    folder: Path
    """The grid's folder."""
    home: Path
    """REPOSE_HOME of all machines. It holds the prepared data, whose tokenizers are trained once."""
    mark: str
    start: str
    """Folder in which the command was started; experiments may name files relative to it."""
    version: str = __version__
    """Version of repose where the command was started."""

    @classmethod
    @contextlib.contextmanager
    def opened(cls, folder: Path, home: Path) -> "Iterator[_Shared]":
        """Yield it with its files, for a `with` block. Raises ConfigError if a folder cannot be written."""
        shared = cls(folder.absolute(), home.absolute(), f".ray-{secrets.token_hex(4)}", str(Path.cwd()))
        marks = [place / shared.mark for place in (shared.folder, shared.home)]
        try:
            for mark in marks:
                mark.parent.mkdir(parents=True, exist_ok=True)
                mark.touch()
        except OSError as error:
            raise ConfigError(
                f"{error.filename} cannot be written ({error.strerror}): choose another --out or REPOSE_HOME"
            ) from error
        try:
            yield shared
        finally:
            for mark in marks:
                with contextlib.suppress(OSError):
                    mark.unlink(missing_ok=True)

    def trouble(self) -> str:
        """Return why no cell may run on this machine, because it has another repose or does not see the storage: the
        end of a sentence, or an empty text."""
        if self.version != __version__:
            return f"has repose {__version__}, this one {self.version}: install the same version on both"
        if not (self.folder / self.mark).exists():
            return f"does not see {self.folder}: choose an --out on storage that all machines share"
        if not (self.home / self.mark).exists():
            what = "where the prepared data is: set REPOSE_HOME to a folder that all machines share"
            return f"does not see {self.home}, {what}"
        return ""


def _check(ray: Any, machines: Sequence[_Machine], shared: _Shared) -> None:
    """Raise ConfigError if a machine has another repose, or does not see the shared storage."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task, asked = ray.remote(_check_task), {}
    for machine in machines:
        there = NodeAffinitySchedulingStrategy(node_id=machine.id, soft=False)
        options = task.options(num_cpus=0, max_retries=0, scheduling_strategy=there)
        asked[options.remote(shared)] = machine
    answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER) if asked else ([], [])
    for ticket in answered:
        try:
            trouble = ray.get(ticket)
        except ray.exceptions.RayTaskError as error:
            trouble = f"cannot run repose {__version__} ({_last_line(error)}): install it there"
        except ray.exceptions.RayError:
            continue  # the machine is lost already; a cell that runs there will report it
        if trouble:
            raise ConfigError(f"machine {asked[ticket].host} {trouble}")


def _check_task(shared: _Shared) -> str:
    """On a machine of the cluster, return what is wrong with it; empty if nothing is."""
    return shared.trouble()


def _last_line(error: Exception) -> str:
    return last_line(str(error)) or type(error).__name__


@dataclass(eq=False)
class _Attempt:
    """An attempt at a cell: a Ray task that has not ended."""

    job: CellJob
    number: int
    stream: Any
    """Ray's stream of results: the machine on which the task has begun, and then how the cell ended."""
    machine: _Machine | None = None
    missed: bool = False
    """True if its machine was missing at the last check."""


class _Driver:
    """The loop that follows the cells of one grid until all have ended."""

    def __init__(self, ray: Any, shared: _Shared, tell: Tell, stop: threading.Event, retries: int) -> None:
        self._ray, self._shared, self._tell, self._stop, self._retries = ray, shared, tell, stop, retries
        self._task = ray.remote(_cell_task)
        self._attempts: dict[Any, _Attempt] = {}  # by stream

    def run(self, jobs: Sequence[CellJob], kill: threading.Event) -> None:
        """Submit all jobs at once, because a cluster that can grow looks at waiting tasks, and follow them.

        `kill` returns at once and leaves the rest to Ray, which ends tasks that nobody waits for.
        """
        for job in jobs:
            self._submit(job, 1)
        asked, looked = False, time.monotonic()
        while self._attempts and not kill.is_set():
            if self._stop.is_set() and not asked:
                asked = True
                for stream in self._attempts:
                    self._ray.cancel(stream, force=False)  # a KeyboardInterrupt in the task, see `_run`
            ready, _ = self._ray.wait(list(self._attempts), num_returns=1, timeout=POLL)
            for stream in ready:
                self._see(self._attempts[stream])
            if time.monotonic() - looked >= LOOK_AT_MACHINES:
                looked = time.monotonic()
                self._look_for_silent_machines()
        for attempt in list(self._attempts.values()):
            self._end(attempt, CellState(status=CellStatus.STOPPED))

    def _submit(self, job: CellJob, number: int) -> None:
        resources = {"num_cpus": job.cores, "num_gpus": job.gpus}
        task = self._task.options(**resources, max_retries=0, num_returns="streaming", name=f"{job.name}.{number}")
        stream = task.remote(job, number, self._shared)
        self._attempts[stream] = _Attempt(job, number, stream)

    def _see(self, attempt: _Attempt) -> None:
        errors = self._ray.exceptions
        try:
            news = self._ray.get(next(attempt.stream))
        except (StopIteration, errors.TaskCancelledError):
            self._end(attempt, CellState(status=CellStatus.STOPPED))
        except (errors.RayTaskError, errors.RuntimeEnvSetupError, errors.TaskUnschedulableError) as error:
            self._end(attempt, CellState(status=CellStatus.FAILED, message=_last_line(error)))
        except errors.OutOfMemoryError:
            self._lose(attempt, Lost.MEMORY)
        except errors.NodeDiedError:
            self._lose(attempt, Lost.MACHINE)
        except errors.RayError:
            self._lose(attempt, Lost.WORKER)
        else:
            if isinstance(news, _Machine):
                attempt.machine = news
                state = CellState(status=CellStatus.RUNNING, host=news.host, attempt=attempt.number)
                self._tell(attempt.job.name, state)
            else:
                self._end(attempt, news)

    def _end(self, attempt: _Attempt, state: CellState) -> None:
        """Forget an attempt and tell how it ended. A cell that was cancelled before it began keeps its state."""
        del self._attempts[attempt.stream]
        if attempt.machine is not None or state.status != CellStatus.STOPPED:
            self._tell(attempt.job.name, state)

    def _lose(self, attempt: _Attempt, lost: Lost) -> None:
        """Begin again elsewhere, from the cell's last checkpoint, once the lost attempt has released its lock."""
        host = "" if attempt.machine is None else attempt.machine.host
        state = CellState(status=CellStatus.FAILED, lost=lost, host=host, attempt=attempt.number)
        if self._stop.is_set():
            self._end(attempt, replace(state, status=CellStatus.STOPPED))
        elif attempt.number > self._retries:
            self._end(attempt, state)
        else:
            del self._attempts[attempt.stream]
            self._submit(attempt.job, attempt.number + 1)
            self._tell(attempt.job.name, replace(state, status=CellStatus.WAITING, attempt=attempt.number + 1))

    def _look_for_silent_machines(self) -> None:
        """Find attempts whose machine is gone. Ray gives such machines up, but does not say so for their tasks. A
        machine must be missing at two checks in a row."""
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        for attempt in list(self._attempts.values()):
            gone = attempt.machine is not None and attempt.machine.id not in alive
            if gone and attempt.missed:
                self._lose(attempt, Lost.MACHINE)
            attempt.missed = gone


def _cell_task(job: CellJob, number: int, shared: _Shared) -> Iterator[_Machine | CellState]:
    """On a machine of the cluster, make one attempt at a cell. Yields the machine when it begins, then how it ended."""
    import ray

    host = socket.gethostname()
    if trouble := shared.trouble():  # a machine that joined late was not checked before
        yield CellState(status=CellStatus.FAILED, message=f"machine {host} {trouble}")
        return
    yield _Machine(ray.get_runtime_context().get_node_id(), host)
    os.environ["REPOSE_HOME"] = str(shared.home)
    with contextlib.suppress(OSError):
        os.chdir(shared.start)
    yield _run(_on_this_machine(job), number)


def _on_this_machine(job: CellJob) -> CellJob:
    """Return the job for the cell's process on this machine. Ray hides the GPUs of others from a task, but hides none
    from a task without GPUs."""
    if not job.gpus:
        return replace(job, device="cpu") if job.device == "auto" else job
    return replace(job, cores=math.ceil(job.gpus))  # a worker per GPU


def _run(job: CellJob, number: int) -> CellState:
    """Run the cell in a thread, because `ray.cancel` interrupts this one: a request to save and end."""
    stop, done, ended = threading.Event(), threading.Event(), list[CellState]()

    def work() -> None:
        try:
            ended.append(_patiently(job, number, stop))
        finally:
            done.set()

    with handled_by(lambda *_: stop.set(), (signal.SIGINT,)):  # wherever this thread is then
        try:
            threading.Thread(target=work, daemon=True).start()
            while not done.wait(POLL):  # Windows handles signals only between two waits
                pass
        finally:
            stop.set()
    return ended[0]


def _patiently(job: CellJob, number: int, stop: threading.Event) -> CellState:
    """Run the cell. After a lost attempt, wait for the lock that this may still hold."""
    deadline = time.monotonic() + LINGERS
    while True:
        state = run_cell(job, stop=stop)
        lingers = number > 1 and state.status == CellStatus.ELSEWHERE
        if not lingers or time.monotonic() > deadline or stop.wait(POLL):
            return state
