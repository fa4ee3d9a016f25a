"""A grid on a Ray cluster (extra `cluster`): each cell is a Ray task with its CPU cores and its share of GPUs.

Ray hands tasks out and says when a machine is lost; `repose.grids.remote_cells` begins the cells again that ran
there, and `repose.grids.claim` keeps a machine that is merely cut off from writing on. The run directories and
REPOSE_HOME must lie on storage that all machines see under the same path; `docs/cluster.md` says how to set this up.
"""

import contextlib
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from repose._version import __version__
from repose.data.corpora import cache_home
from repose.grids.cells import ELSEWHERE, CellJob, CellResult, Tell, run_cell
from repose.grids.claim import LEASE, POLL, Claim, take
from repose.grids.remote_cells import LostError, Machine, NeverBegunError, Session, Supervisor
from repose.system.errors import BusyError, ConfigError

KNOCK = 10.0
"""Seconds in which the head must take a connection."""
ANSWER = 60.0
"""Seconds in which a machine must say what it sees."""
LOCK_LINGERS = 150.0
"""Seconds for which the lock of a machine that died may stand: an NFS server keeps it for a lease of its own (90 s)."""


@dataclass(frozen=True, kw_only=True)
class RayBackend:
    """Runs cells as tasks of a Ray cluster; a `repose.grids.cells.Backend`."""

    address: str | None = None
    """Of the head, "HOST:6379"; None: RAY_ADDRESS, or the cluster that this machine belongs to."""
    retries: int = 3
    """How often a cell begins again after its machine was lost."""
    lease: float = LEASE
    """Seconds for which a machine that is cut off goes on before it ends its cells."""
    kill: threading.Event = field(default_factory=threading.Event)
    """Set: do not wait for cells to save; they are asked to when Ray ends their tasks."""

    def run(self, jobs: Sequence[CellJob], tell: Tell, stop: threading.Event) -> dict[str, CellResult]:
        """Run the jobs; returns when all have ended, or `stop` is set and the running ones have saved.

        Raises ConfigError where Ray, a cluster or the shared storage is missing.
        """
        if not jobs:
            return {}
        jobs = [replace(job, folder=job.folder.absolute()) for job in jobs]
        ray = _import_ray()
        folder = Path(os.path.commonpath([job.folder.parent for job in jobs]))
        with _connected(ray, self.address), Session.opened(folder, cache_home()) as session:
            cluster = _RayCluster(ray, session, self.lease)
            cluster.check([machine for machine in cluster.machines() if machine.can_hold(jobs[0])])
            return Supervisor(cluster, session, tell, stop, self.kill, self.retries).run(jobs)


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reports home unless told not to
    try:
        import ray
    except ImportError as error:
        raise ConfigError("Ray is not installed: pip install 'repose-nmt[cluster]'") from error
    return ray


@contextlib.contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """This process as a driver of the cluster. Raises ConfigError where there is none, or one that does not match."""
    if ray.is_initialized():
        yield
        return
    before, address = signal.getsignal(signal.SIGTERM), address or os.environ.get("RAY_ADDRESS")
    try:
        _knock(address)
        ray.init(address=address or "auto", log_to_driver=False, logging_level="ERROR")
    except OSError as error:
        where = f"at {address}" if address else "here"
        raise ConfigError(
            f"no Ray cluster answers {where}: start one with `ray start --head`, or give the address of its head"
        ) from error
    except (RuntimeError, ValueError, ray.exceptions.RayError) as error:  # other versions, a malformed address
        raise ConfigError(f"the Ray cluster cannot be joined: {' '.join(str(error).split())}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray's own would end the grid before its cells have saved
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str | None) -> None:
    """Raises OSError where nobody listens at "HOST:PORT": Ray would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isascii() and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=KNOCK).close()


class _RayCluster:
    """A Ray cluster as a `repose.grids.remote_cells.Cluster`."""

    def __init__(self, ray: Any, session: Session, lease: float) -> None:
        self._ray, self._session, self._lease = ray, session, lease
        self._task = ray.remote(_cell_task)

    def submit(self, job: CellJob, attempt: str) -> Any:
        # Ray's own retries would not know of the attempt before, nor tell.
        task = self._task.options(num_cpus=job.cores, num_gpus=job.gpus, max_retries=0, name=attempt)
        return task.remote(job, attempt, self._session, self._lease, str(Path.cwd()))

    def ended(self, tickets: Sequence[Any], seconds: float) -> Sequence[Any]:
        first, _ = self._ray.wait(list(tickets), num_returns=1, timeout=seconds)
        if not first:
            return []
        return list(self._ray.wait(list(tickets), num_returns=len(tickets), timeout=0)[0])

    def result(self, ticket: Any) -> CellResult:
        errors = self._ray.exceptions
        try:
            return self._ray.get(ticket)
        except errors.TaskCancelledError as error:
            raise NeverBegunError from error
        except errors.OutOfMemoryError as error:
            raise LostError("its machine had no memory left") from error
        except errors.NodeDiedError as error:
            raise LostError("its machine was lost") from error
        except LostError as error:  # raised in the task; Ray's error is then one of this kind, too
            raise LostError(str(getattr(error, "cause", error))) from error
        except (errors.RayTaskError, errors.RuntimeEnvSetupError, errors.TaskUnschedulableError) as error:
            return CellResult(status="failed", reason=_last_line(error), seconds=0.0)
        except errors.RayError as error:
            raise LostError("its Ray worker was lost") from error

    def take_back(self, ticket: Any) -> None:
        self._ray.cancel(ticket, force=False)

    def machines(self) -> list[Machine]:
        found = (node for node in self._ray.nodes() if node["Alive"])
        return [
            Machine(
                node["NodeID"],
                node["NodeManagerHostname"],
                node["Resources"].get("CPU", 0.0),
                node["Resources"].get("GPU", 0.0),
            )
            for node in found
        ]

    def check(self, machines: Sequence[Machine]) -> None:
        """Raises ConfigError where one of these has another repose, or does not see the shared storage."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        task = self._ray.remote(_check_task)
        asked = {}
        for machine in machines:
            there = NodeAffinitySchedulingStrategy(node_id=machine.id, soft=False)
            options = task.options(num_cpus=0, max_retries=0, scheduling_strategy=there)
            asked[options.remote(self._session, __version__)] = machine
        answered, _ = self._ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER) if asked else ([], [])
        for ticket in answered:
            try:
                trouble = self._ray.get(ticket)
            except self._ray.exceptions.RayTaskError as error:
                trouble = f"cannot run repose {__version__} ({_last_line(error)}): install it there"
            except self._ray.exceptions.RayError:
                continue  # it is lost already, or does not answer: a cell that comes there will say so
            if trouble:
                raise ConfigError(f"machine {asked[ticket].host} {trouble}")


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _check_task(session: Session, version: str) -> str:
    """On a machine of the cluster: what is wrong with it, if anything."""
    if version != __version__:
        return f"has repose {__version__}, this one {version}: install the same on both"
    return session.unseen()


def _cell_task(job: CellJob, attempt: str, session: Session, lease: float, folder: str) -> CellResult:
    """On a machine of the cluster: one attempt at a cell, in `folder` if there is one here."""
    import ray

    began, host = time.monotonic(), socket.gethostname()
    if trouble := session.unseen():
        return CellResult(status="failed", reason=f"machine {host} {trouble}", seconds=0.0)
    if session.asks_to_stop():
        return CellResult(status="stopped", reason="asked to stop", seconds=0.0)
    session.begin(attempt, Machine(ray.get_runtime_context().get_node_id(), host, 0.0, 0.0))
    os.environ["REPOSE_HOME"] = str(session.home)
    with contextlib.suppress(OSError):
        os.chdir(folder)  # the experiment may name files from there
    try:
        with _claimed(job.folder, session, lease) as claim:
            return _patiently(_on_this_machine(job), claim, session)
    except BusyError as error:
        result = CellResult(status="stopped", reason=f"{ELSEWHERE}: {error}", seconds=0.0)
    except _StopError:
        result = CellResult(status="stopped", reason="asked to stop", seconds=0.0)
    except OSError as error:
        reason = f"{job.folder} cannot be written on {host} ({error.strerror}): see to its storage"
        result = CellResult(status="failed", reason=reason, seconds=0.0)
    return replace(result, seconds=time.monotonic() - began)


class _StopError(Exception):
    """The session asks to stop."""


@contextlib.contextmanager
def _claimed(folder: Path, session: Session, lease: float) -> Iterator[Claim]:
    """The claim on a cell's folder, as long as it takes to get and to use."""

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        if session.asks_to_stop():
            raise _StopError

    claim = take(folder, lease=lease, wait=sleep)
    try:
        yield claim
    finally:
        with contextlib.suppress(OSError):
            claim.release()


def _on_this_machine(job: CellJob) -> CellJob:
    """The job as its process is to see it: Ray hides the GPUs that are not its own, but none where it has none."""
    if not job.gpus:
        return replace(job, device="cpu") if job.device == "auto" else job
    return replace(job, cores=math.ceil(job.gpus))  # a worker per GPU


def _patiently(job: CellJob, claim: Claim, session: Session) -> CellResult:
    """Run the cell; after an attempt that was lost, wait for the lock that it may have left."""
    deadline = time.monotonic() + LOCK_LINGERS
    while True:
        result = _guarded(job, claim, session)
        lingers = claim.attempt > 1 and result.reason.startswith(ELSEWHERE) and claim.is_held()
        if not lingers or session.asks_to_stop() or time.monotonic() > deadline:
            return result
        time.sleep(POLL)


def _guarded(job: CellJob, claim: Claim, session: Session) -> CellResult:
    """Run the cell while the claim is held. Raises LostError where the storage does not answer for `claim.lease`."""
    stop, kill, over = threading.Event(), threading.Event(), threading.Event()
    looked = time.monotonic()

    def watch() -> None:  # in a thread of its own, since a look at storage that is gone does not return
        while not over.wait(POLL):
            if time.monotonic() - looked > claim.lease:
                kill.set()

    threading.Thread(target=watch, daemon=True).start()
    taken = False
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_cell, job, stop=stop, kill=kill)
        while not running.done():
            try:
                wait([running], timeout=POLL)
                with contextlib.suppress(OSError):
                    now = time.monotonic()
                    taken = taken or not claim.is_held()
                    looked = now
                    if taken:
                        kill.set()
                    elif session.asks_to_stop():
                        stop.set()
            except KeyboardInterrupt:  # how Ray takes back a task that has just begun
                stop.set()
        over.set()
    if taken:
        reason = f"{ELSEWHERE}: a later attempt has claimed {job.folder}"
        return replace(running.result(), status="stopped", reason=reason)
    if kill.is_set():
        raise LostError(f"the storage did not answer for {claim.lease:g} seconds")
    return running.result()
