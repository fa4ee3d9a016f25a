"""Cells on other machines: what the process that started them does, whatever hands them out.

It submits every cell at once, since a cluster that grows looks at what waits; submits again, up to `retries` times, a
cell whose machine was lost; and passes on what happens. It and the cells share a file system, and on it a session:

    OUT/<grid>/.session-<id>/order      what all cells are told: go on, or stop
    OUT/<grid>/.session-<id>/<attempt>  one file per attempt that has begun: on which machine

A file is all that passes, so that nothing is lost with a machine but what ran there.
"""

import contextlib
import json
import secrets
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from repose.grids.cells import CellJob, CellResult, Tell
from repose.system.errors import ConfigError

POLL = 1.0
"""Seconds between looks at what happens."""
LOOK_AT_MACHINES = 5.0
"""Seconds between looks at which machines there are."""
PATIENCE = 30.0
"""Seconds for which cells may wait for a machine that is large enough before something is said."""


class LostError(Exception):
    """An attempt whose machine or process is gone; the message says which, if it is known."""


class NeverBegunError(Exception):
    """An attempt that was taken back before it began."""


@dataclass(frozen=True)
class Machine:
    """A machine of the cluster, with all that it has, free or not."""

    id: str
    host: str
    cores: float
    gpus: float

    def can_hold(self, job: CellJob) -> bool:
        """Whether it could run that cell if it ran nothing else."""
        return self.cores >= job.cores and self.gpus >= job.gpus


class Cluster(Protocol):
    """What hands cells out to machines."""

    def submit(self, job: CellJob, attempt: str) -> Any:
        """A ticket for the cell, which begins when there is room."""

    def ended(self, tickets: Sequence[Any], seconds: float) -> Sequence[Any]:
        """Those that have ended, waiting for the first of them for so long."""

    def result(self, ticket: Any) -> CellResult:
        """Of a ticket that has ended. Raises LostError and NeverBegunError."""

    def take_back(self, ticket: Any) -> None:
        """End it if it has not begun."""

    def machines(self) -> Sequence[Machine]:
        """Those that are there now."""


@dataclass(frozen=True)
class Session:
    """What the starting process and the cells share."""

    folder: Path
    home: Path
    """REPOSE_HOME of all of them: it holds the prepared data, whose tokenizers are trained once."""
    token: str

    @classmethod
    @contextlib.contextmanager
    def opened(cls, folder: Path, home: Path) -> "Iterator[Session]":
        """A new one, for a `with` block. Raises ConfigError where a folder cannot be written."""
        token = secrets.token_hex(4)
        session = cls(folder.absolute() / f".session-{token}", home.absolute(), token)
        try:
            session.folder.mkdir(parents=True)
            session.home.mkdir(parents=True, exist_ok=True)
            session._order.write_text("go on\n", encoding="utf-8")
            session._mark.touch()
        except OSError as error:
            raise ConfigError(
                f"{error.filename} cannot be written ({error.strerror}): choose another --out or REPOSE_HOME"
            ) from error
        try:
            yield session
        finally:
            with contextlib.suppress(OSError):
                session._mark.unlink(missing_ok=True)
            shutil.rmtree(session.folder, ignore_errors=True)

    @property
    def _order(self) -> Path:
        return self.folder / "order"

    @property
    def _mark(self) -> Path:
        return self.home / f".session-{self.token}"

    def unseen(self) -> str:
        """What of it this machine does not see: one sentence, or nothing."""
        if not self._order.exists():
            return f"does not see {self.folder.parent}: choose an --out on storage that all machines share"
        if not self._mark.exists():
            return (
                f"does not see {self.home}, where the prepared data lies: set REPOSE_HOME to a folder that all "
                "machines share"
            )
        return ""

    def ask_to_stop(self) -> None:
        """Have all cells save and end. The file is there already, so that no cache says otherwise for long."""
        self._order.write_text("stop\n", encoding="utf-8")

    def asks_to_stop(self) -> bool:
        """Whether cells are to save and end: asked, or nobody is left to ask. Raises OSError for storage that fails."""
        try:
            return self._order.read_text(encoding="utf-8").startswith("stop")
        except FileNotFoundError:
            return True

    def begin(self, attempt: str, machine: Machine) -> None:
        """Tell that an attempt has begun there."""
        content = {"id": machine.id, "host": machine.host}
        unfinished = self.folder / f".{attempt}"
        unfinished.write_text(json.dumps(content), encoding="utf-8")
        unfinished.replace(self.folder / attempt)

    def begun(self, attempts: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
        """Id and host of the machine of each of these attempts that has begun."""
        found = {}
        for path in self.folder.iterdir():
            if path.name in attempts:
                content = json.loads(path.read_text(encoding="utf-8"))
                found[path.name] = (content["id"], content["host"])
        return found


@dataclass
class _Attempt:
    job: CellJob
    number: int
    ticket: Any
    machine: str | None = None
    """Its id, once it has begun."""
    host: str = ""
    missed: bool = False
    """Whether its machine was missing at the last look."""

    @property
    def name(self) -> str:
        return f"{self.job.name}.{self.number}"


@dataclass
class Supervisor:
    """Sees the cells of one grid through."""

    cluster: Cluster
    session: Session
    tell: Tell
    stop: threading.Event
    kill: threading.Event
    retries: int
    results: dict[str, CellResult] = field(default_factory=dict)
    attempts: dict[str, _Attempt] = field(default_factory=dict)
    """Those that have not ended, by name."""
    _told_to_stop: bool = False
    _looked: float = -LOOK_AT_MACHINES
    _too_large_since: dict[str, float] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)

    def run(self, jobs: Sequence[CellJob]) -> dict[str, CellResult]:
        """Results of all cells that have begun, once all have ended; as `repose.grids.cells.Backend.run`.

        `kill` returns at once, and leaves the rest to the cluster, which ends what nobody waits for.
        """
        for job in jobs:
            self._submit(job, 1)
        while self.attempts and not self.kill.is_set():
            by_ticket = {attempt.ticket: attempt for attempt in self.attempts.values()}
            ended = self.cluster.ended([attempt.ticket for attempt in self.attempts.values()], POLL)
            self._see_who_began()
            for ticket in ended:
                self._end(by_ticket[ticket])
            if self.stop.is_set() and not self._told_to_stop:
                self._stop_all()
            if time.monotonic() - self._looked >= LOOK_AT_MACHINES:
                self._looked = time.monotonic()
                self._look_at_machines(self.cluster.machines())
        for attempt in [attempt for attempt in self.attempts.values() if attempt.machine is not None]:
            self._settle(attempt, CellResult(status="stopped", reason="not waited for", seconds=0.0))
        return self.results

    def _submit(self, job: CellJob, number: int) -> None:
        attempt = _Attempt(job, number, None)
        attempt.ticket = self.cluster.submit(job, attempt.name)
        self.attempts[attempt.name] = attempt

    def _see_who_began(self) -> None:
        waiting = {name: attempt for name, attempt in self.attempts.items() if attempt.machine is None}
        with contextlib.suppress(OSError):  # seen at the next look
            for name, (machine, host) in (self.session.begun(waiting) if waiting else {}).items():
                attempt = waiting[name]
                attempt.machine, attempt.host = machine, host
                self.tell(attempt.job.name, "running", f"on {host}")

    def _end(self, attempt: _Attempt) -> None:
        try:
            result = self.cluster.result(attempt.ticket)
        except NeverBegunError:
            if attempt.machine is None:
                del self.attempts[attempt.name]
            else:  # it had just begun when it was taken back
                self._settle(attempt, CellResult(status="stopped", reason="asked to stop", seconds=0.0))
        except LostError as error:
            self._lose(attempt, str(error))
        else:
            self._settle(attempt, result)

    def _settle(self, attempt: _Attempt, result: CellResult) -> None:
        del self.attempts[attempt.name]
        self.results[attempt.job.name] = result
        self.tell(attempt.job.name, result.status, result.reason)

    def _lose(self, attempt: _Attempt, why: str) -> None:
        """Begin again elsewhere, from the cell's last checkpoint. Should this attempt still be at work, unseen, it
        ends when the next one claims the folder (`repose.grids.claim`)."""
        why = f"{why} ({attempt.host})" if attempt.host else why
        if self.stop.is_set():
            self._settle(attempt, CellResult(status="stopped", reason=f"{why} while it was stopping", seconds=0.0))
        elif attempt.number > self.retries:
            times = "once" if attempt.number == 1 else f"{attempt.number} times"
            reason = f"lost {times}, at last because {why}: the same command resumes it"
            self._settle(attempt, CellResult(status="failed", reason=reason, seconds=0.0))
        else:
            del self.attempts[attempt.name]
            self._submit(attempt.job, attempt.number + 1)
            self.tell(attempt.job.name, "waiting", f"{why}: begins again, {attempt.number} of {self.retries} retries")

    def _stop_all(self) -> None:
        try:
            self.session.ask_to_stop()
        except OSError:  # asked again at the next turn
            return
        self._told_to_stop = True
        for attempt in self.attempts.values():
            if attempt.machine is None:
                self.cluster.take_back(attempt.ticket)

    def _look_at_machines(self, machines: Sequence[Machine]) -> None:
        """Notice machines that are gone, though nothing has said so of their cells; and cells that fit nowhere."""
        present = {machine.id for machine in machines}
        for attempt in list(self.attempts.values()):
            if attempt.machine is not None:
                gone = attempt.machine not in present
                if gone and attempt.missed:
                    self._lose(attempt, "its machine was lost")
                attempt.missed = gone
            elif any(machine.can_hold(attempt.job) for machine in machines):
                self._too_large_since.pop(attempt.job.name, None)
            else:
                self._say_too_large(attempt.job)

    def _say_too_large(self, job: CellJob) -> None:
        since = self._too_large_since.setdefault(job.name, time.monotonic())
        if time.monotonic() - since >= PATIENCE and job.name not in self._said:
            self._said.add(job.name)
            needed = f"{job.cores} cores" if job.cores > 1 else "1 core"
            needed += f" and {job.gpus:g} GPU{'' if job.gpus <= 1 else 's'}" if job.gpus else ""
            self.tell(
                job.name, "waiting", f"the cluster has no machine with {needed}: add one, or ask for less per cell"
            )
