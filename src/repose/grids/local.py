"""Run cells on this machine: several at once, each with a share of its cores."""

import contextlib
import math
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from repose.grids.cells import CellJob, CellState, CellStatus, Tell, run_cell
from repose.system.device import available_cores, check_device_name, find_device, num_gpus
from repose.system.errors import ConfigError, DeviceError, WriteError
from repose.system.locks import trying_lock

T = TypeVar("T")
RunCell = Callable[..., CellState]
_DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Share:
    """The share of this machine that each cell gets, of those that run at the same time."""

    jobs: int
    """Number of cells that run at once."""
    cores: int
    """Cores of each cell, one thread or worker per core."""
    devices: int = 0
    """Number of GPUs to distribute among the cells; 0 if all use the device that was asked for."""

    def of_fewer(self, num_cells: int) -> "Share":
        """Return the share if so many cells are left to run. Each has as many cores as before: threads affect rounding,
        and what is left of a grid that was killed must end with the same bits."""
        return replace(self, jobs=max(1, min(self.jobs, num_cells)))

    def device(self, place: int, asked: str) -> str:
        """Return the device of the cell in a place: its GPU if GPUs are distributed, else the device asked for."""
        return f"cuda:{place % self.devices}" if self.devices else asked


def check_request(
    *, jobs: int | None, cores: int | None, device: str, here: bool, gpus: float = 0.0, unit: str = "cell"
) -> None:
    """Refuse options that no cell could run with, before a corpus is prepared. `here`: cells run on this machine.
    `unit`: the command's word for a cell, in its options.

    Raises ConfigError, and DeviceError for a device that this machine does not have.
    """
    for name, value in (("--jobs", jobs), (f"--cores-per-{unit}", cores)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} = {value}, but a {unit} needs at least one: give 1 or more")
    if not 0 <= gpus < math.inf or (gpus > 1 and gpus % 1):
        raise ConfigError(f"--gpus-per-cell = {gpus}: give a whole number of GPUs, or a share of one such as 0.5")
    if here and gpus > 1:
        raise ConfigError(
            f"--gpus-per-cell = {gpus:g}, but a cell on this machine has one GPU, or a share of it: give 1 or less, or "
            "--on ray"
        )
    if here and gpus and ":" in device:
        raise ConfigError(
            f"--gpus-per-cell shares all GPUs, but --device {device} is one of them: leave out one of the two options"
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
    """Return each cell's share; `jobs` and `cores` per cell are None if not asked for.

    `num_cells`: all cells that the call is about, those that are done among them (`Share.of_fewer`).

    On a CPU, as many cells run at once as there are cores (or cells, if fewer), since several small trainings side by
    side are faster than one on all cores. With `devices` (GPUs), one cell runs on each, or as many as `gpus` per cell
    allow.
    """
    available = available_cores()
    at_once = int(devices / (gpus or 1.0)) if devices else available // (cores or 1)
    jobs = max(1, min(at_once if jobs is None else jobs, num_cells))
    return Share(jobs, cores or max(1, available // jobs), devices)


@contextlib.contextmanager
def claimed_cores(jobs: int, cores: int) -> Iterator[list[tuple[int, ...]]]:
    """Yield the cores of each of `jobs` cells that run at once, disjoint if there are enough. There are none if the
    system cannot keep cells on cores, or if a container grants a share of all cores, which others use as well.

    Cores that another grid or search of this user has claimed on this machine are used last. The others are claimed
    until the context or this process ends.
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


def in_places(
    share: Share, items: Iterable[T], work: Callable[[T, int, tuple[int, ...]], None], stop: threading.Event
) -> None:
    """Call `work` with each item and with number and cores of a place that is free, in as many places at once as there
    are, and wait for all. Signals are handled meanwhile.

    No item (none is None) is begun after `stop` is set. An error sets it, too, and is raised when all places have
    ended; Ctrl-C, if nothing handles it, also sets it, but is raised at once.
    """
    remaining, taking, errors = iter(items), threading.Lock(), list[BaseException]()

    def take() -> T | None:
        with taking:
            return None if stop.is_set() else next(remaining, None)

    def fill(place: int, cores: tuple[int, ...]) -> None:
        try:
            while (item := take()) is not None:
                work(item, place, cores)
        except BaseException as error:
            errors.append(error)
            stop.set()

    with claimed_cores(share.jobs, share.cores) as places:
        threads = [threading.Thread(target=fill, args=place, daemon=True) for place in enumerate(places)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(timeout=0.2)  # with a timeout, or no signal would be handled
        except BaseException:
            stop.set()
            raise
    if errors:
        raise errors[0]


@contextlib.contextmanager
def _claim(core: int) -> Iterator[bool]:
    """Yield whether this process has a core to itself, among this user's grids and searches."""
    folder = Path(tempfile.gettempdir()) / f"repose-cores-{os.getuid()}"
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            mine = (found := folder.lstat()).st_uid == os.getuid() and stat.S_ISDIR(found.st_mode)
            alone = not mine or stack.enter_context(trying_lock(folder / f"{core}.lock"))
        except (OSError, WriteError):
            alone = True  # nobody can claim cores here
        yield alone


def num_devices(device: str) -> int:
    """Return how many GPUs to distribute among cells: all of this machine for auto and cuda, else none."""
    return num_gpus() if device in ("auto", "cuda") else 0


def run_here(
    jobs: Sequence[CellJob],
    tell: Tell,
    *,
    share: Share,
    stop: threading.Event,
    kill: threading.Event,
    run_cell: RunCell = run_cell,
) -> None:
    """Run cells as processes on this machine, as `repose.grids.cells.RunCells` says."""

    def work(job: CellJob, place: int, cores: tuple[int, ...]) -> None:
        tell(job.name, CellState(status=CellStatus.RUNNING))
        here = replace(job, cores=share.cores, affinity=cores, device=share.device(place, job.device))
        tell(job.name, run_cell(here, stop=stop, kill=kill))

    in_places(share, jobs, work, stop)
