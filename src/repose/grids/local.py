"""Cells on this machine: several at once, each with a share of its cores."""

import contextlib
import math
import os
import queue
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from repose.grids.cells import CellJob, CellState, CellStatus, Tell, run_cell
from repose.system.device import available_cores, check_device_name, find_device, num_gpus
from repose.system.errors import ConfigError, DeviceError, WriteError
from repose.system.files import trying_lock

RunCell = Callable[..., CellState]
_DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Share:
    """What each of the cells that run at the same time has of this machine."""

    jobs: int
    """Cells at once."""
    cores: int
    """Cores of each, one thread or worker per core."""
    devices: int = 0
    """GPUs that go round among them."""

    def device(self, place: int, asked: str) -> str:
        """Where the cell in a place computes: on its GPU, or where none go round, on the device that is asked for."""
        return f"cuda:{place % self.devices}" if self.devices else asked


def check_request(
    *, jobs: int | None, cores: int | None, device: str, here: bool, gpus: float = 0.0, unit: str = "cell"
) -> None:
    """Refuse what no cell could run with, before a corpus is prepared. `here`: cells run on this machine. `unit`: what
    the command calls them, in its options.

    Raises ConfigError, and DeviceError for a device that this machine does not have.
    """
    for name, value in (("--jobs", jobs), (f"--cores-per-{unit}", cores)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} = {value}, but a {unit} needs at least one: give 1 or more")
    if not 0 <= gpus < math.inf or (gpus > 1 and gpus % 1):
        raise ConfigError(f"--gpus-per-cell = {gpus}: give a whole number of GPUs, or a share of one such as 0.5")
    if here and gpus > 1:
        raise ConfigError(
            f"--gpus-per-cell = {gpus:g}, but a cell of this machine has one GPU, or a share of it: give 1 or less, or "
            "--on ray"
        )
    if here and gpus and ":" in device:
        raise ConfigError(
            f"--gpus-per-cell shares all GPUs, but --device {device} is one of them: leave one of them out"
        )
    available = available_cores()
    if here and cores is not None and cores > available:
        raise ConfigError(f"--cores-per-{unit} = {cores}, but there are {available} here: give {available} or less")
    try:
        check_device_name(device, _DEVICES)
    except DeviceError as error:
        raise ConfigError(f"--device: {error}") from error
    if here and device.startswith("cuda"):
        find_device(device)


def share(num_cells: int, *, jobs: int | None, cores: int | None, devices: int, gpus: float = 0.0) -> Share:
    """What to give each cell where `jobs` and `cores` per cell are asked for, or not.

    On a CPU as many cells at once as there are cores (or cells, if there are fewer), since several small trainings
    side by side are faster than one on all cores. Where there are `devices` (GPUs), one cell on each, or as many as
    `gpus` per cell allow.
    """
    available = available_cores()
    at_once = int(devices / (gpus or 1.0)) if devices else available // (cores or 1)
    jobs = max(1, min(at_once if jobs is None else jobs, num_cells))
    return Share(jobs, cores or max(1, available // jobs), devices)


@contextlib.contextmanager
def claimed_cores(jobs: int, cores: int) -> Iterator[list[tuple[int, ...]]]:
    """The cores of each of `jobs` cells at once, disjoint as far as they go round; no cores where cells cannot be kept
    on some, or where a container grants a share of all cores, which others use as well.

    Cores that another grid or search of this user has claimed on this machine are taken last. The others are claimed
    until the context ends, or this process does.
    """
    if not hasattr(os, "sched_getaffinity"):
        yield [()] * jobs
        return
    allowed = sorted(os.sched_getaffinity(0))
    if available_cores() < len(allowed):
        yield [()] * jobs
        return
    claimed: list[int] = []
    with contextlib.ExitStack() as claims:
        for core in allowed:
            if len(claimed) < jobs * cores and claims.enter_context(_claim(core)):
                claimed.append(core)
        order = claimed + [core for core in allowed if core not in claimed]
        each = min(cores, len(order))
        yield [tuple(order[(slot * each + i) % len(order)] for i in range(each)) for slot in range(jobs)]


def in_places(share: Share, work: Callable[[int, tuple[int, ...]], None]) -> None:
    """Call `work` with the number of each place and the cores that it has to itself, all at once, until all are done;
    signals are handled meanwhile."""
    with claimed_cores(share.jobs, share.cores) as places:
        threads = [threading.Thread(target=work, args=place, daemon=True) for place in enumerate(places)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(timeout=0.2)  # in pieces, or no signal would be handled


@contextlib.contextmanager
def _claim(core: int) -> Iterator[bool]:
    """Whether this process has a core to itself, as far as grids and searches of this user go."""
    folder = Path(tempfile.gettempdir()) / f"repose-cores-{os.getuid()}"
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            mine = (found := folder.lstat()).st_uid == os.getuid() and stat.S_ISDIR(found.st_mode)
            alone = not mine or stack.enter_context(trying_lock(folder / f"{core}.lock"))
        except (OSError, WriteError):
            alone = True  # nobody can claim anything here
        yield alone


def num_devices(device: str) -> int:
    """GPUs that cells can have of their own: those of this machine for auto and cuda; none for a device by number."""
    return num_gpus() if device in ("auto", "cuda") else 0


@dataclass(frozen=True)
class LocalBackend:
    """Runs cells as processes of this machine."""

    share: Share
    kill: threading.Event = field(default_factory=threading.Event)
    """Set to end running cells at once."""
    run_cell: RunCell = run_cell

    def run(self, jobs: Sequence[CellJob], tell: Tell, stop: threading.Event) -> None:
        waiting: queue.SimpleQueue[CellJob] = queue.SimpleQueue()
        for job in jobs:
            waiting.put(job)

        def work(slot: int, cores: tuple[int, ...]) -> None:
            while not (stop.is_set() or self.kill.is_set()):
                try:
                    job = waiting.get_nowait()
                except queue.Empty:
                    return
                tell(job.name, CellState(status=CellStatus.RUNNING))
                device = self.share.device(slot, job.device)
                here = replace(job, cores=self.share.cores, affinity=cores, device=device)
                tell(job.name, self.run_cell(here, stop=stop, kill=self.kill))

        in_places(self.share, work)
