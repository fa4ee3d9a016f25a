"""Workers: processes that share each batch, one per GPU or core, started here or by an outer launcher."""

import contextlib
import os
import pickle
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.multiprocessing.spawn import ProcessContext, ProcessException, start_processes

from repose.system.device import available_cores, check_workers, device_name, find_device, num_threads
from repose.system.errors import (
    OUT_OF_MEMORY,
    ConfigError,
    DeviceError,
    LostWorkerError,
    ReposeError,
    is_out_of_memory,
)
from repose.system.signals import holding_back_signals, interruptible, killed_by

TIMEOUT = timedelta(hours=2)
"""How long a worker waits for the others; one worker may take long to translate a validation set."""
COMING = 600.0
"""Seconds within which a launcher's processes must meet; each reads the corpus first."""
_GRACE = 30.0  # seconds that this process has to notice a dead worker by itself
_LIBUV = os.name != "nt"  # torch for Windows is built without libuv
MIN_TOKENS_PER_WORKER = 256
"""With fewer target tokens per batch and worker than this, another worker costs more to exchange gradients with than
it gains."""


@dataclass(frozen=True)
class World:
    """This process among a training's workers."""

    rank: int
    size: int
    device: torch.device
    local: bool = True
    """True if all workers are on this machine, started by the first one."""

    def add(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all workers, in place; also acts as a barrier."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def of_first(self, value: float) -> float:
        """Return the first worker's value on every worker."""
        mine = value if self.rank == 0 else 0.0
        return self.add(torch.tensor(mine, dtype=torch.float64, device=self.device)).item()

    def barrier(self) -> None:
        """Wait for all workers."""
        self.of_first(0.0)  # torch's own barrier would have to guess which worker has which GPU

    def share_error(self, error: Exception | None) -> None:
        """Raise the first worker's error on every worker, so that none waits for the others."""
        if self.size > 1:
            sentences: list[tuple[type, str] | None] = [None if error is None else (type(error), str(error))]
            dist.broadcast_object_list(sentences)
            if error is None and sentences[0] is not None:
                kind, sentence = sentences[0]
                raise kind(sentence)
        if error is not None:
            raise error


@dataclass(frozen=True)
class Outer:
    """This process's place in a job of torchrun or SLURM's srun."""

    rank: int
    size: int
    local_rank: int
    address: str
    port: int


def outer_launcher() -> Outer | None:
    """Read this process's place from the environment variables of torchrun or of a SLURM job step, if there are any.

    A SLURM batch script is a job step, too, but was not started by srun, so it is no worker. Raises ConfigError for
    missing or non-numeric variables.
    """
    try:
        return _placed(os.environ)
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"the environment says that a launcher started this process, but not where ({error}): set RANK, "
            "WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or unset these and SLURM_STEP_NUM_TASKS"
        ) from error


def _placed(e: Mapping[str, str]) -> Outer | None:
    if {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= e.keys():
        rank = int(e["RANK"])
        local_rank = int(e.get("LOCAL_RANK", rank))
        return Outer(rank, int(e["WORLD_SIZE"]), local_rank, e["MASTER_ADDR"], int(e["MASTER_PORT"]))
    if int(e.get("SLURM_STEP_NUM_TASKS", 1)) > 1:
        # The first node of a list: "n7", "n7,n9" or "n[07-09,12]".
        address = e.get("MASTER_ADDR") or re.sub(r"^([^[,]+)(?:\[(\w+))?.*$", r"\1\2", e["SLURM_STEP_NODELIST"])
        port = int(e.get("MASTER_PORT") or 20_000 + int(e["SLURM_JOB_ID"]) % 20_000)
        size = int(e["SLURM_STEP_NUM_TASKS"])
        return Outer(int(e["SLURM_PROCID"]), size, int(e["SLURM_LOCALID"]), address, port)
    return None


def choose_device(name: str) -> torch.device:
    """Return the device; `auto` is CUDA if available, else the CPU. Raises DeviceError if this machine lacks the
    device."""
    name = device_name(name)
    if name.partition(":")[0] == "mps":  # mps lacks double precision, in which losses are summed
        raise DeviceError("training does not run on mps: use cpu or cuda")
    return find_device(name, kinds=("cpu", "cuda"))


def choose_workers(device: torch.device, *, requested: int | None, recorded: int | None, tokens_per_batch: int) -> int:
    """Return the number of workers: as requested, or as the run had so far, or else one per GPU or CPU core, as long as
    each has enough to do. With `cuda:1` it is one. Raises ConfigError for an impossible number."""
    check_workers(1 if requested is None else requested)
    requested = None if requested is None else int(requested)  # a checkpoint cannot store numpy's numbers
    if device.type == "cpu":
        useful = max(1, min(available_cores(), tokens_per_batch // MIN_TOKENS_PER_WORKER))
        return requested or recorded or useful
    available = torch.cuda.device_count() if device.index is None else 1
    if requested is not None and requested > available:
        raise ConfigError(
            f"workers = {requested}, but device {device} means {available} of them: give at most {available}"
        )
    return requested or min(recorded or available, available)


def threads_for(workers: int) -> int:
    """Return the number of threads per worker on a CPU: cores divided by workers, at most what this process may use."""
    return max(1, min(torch.get_num_threads(), available_cores() // workers))


@contextlib.contextmanager
def _on(device: torch.device, local_rank: int) -> Iterator[torch.device]:
    """Select the worker's device. Within this context it is torch's current device, to which streams and graphs
    belong."""
    if device.type != "cuda":
        yield device
        return
    if device.index is None:
        available = torch.cuda.device_count()
        if local_rank >= available > 1:  # a launcher may show each process only its own GPU
            raise ConfigError(
                f"process {local_rank + 1} of this machine has no GPU, of which there are {available}: start at most "
                f"{available} processes"
            )
        device = torch.device("cuda", local_rank % available)
    with torch.cuda.device(device):
        yield device


def _join(device: torch.device, rank: int, size: int, **place: Any) -> None:
    backend, excepthook = "nccl" if device.type == "cuda" else "gloo", sys.excepthook
    dist.init_process_group(backend, rank=rank, world_size=size, timeout=TIMEOUT, **place)
    sys.excepthook = excepthook  # torch's own hook would prefix the caller's later errors with "[rank0]:"


@contextlib.contextmanager
def joined(outer: Outer, device: torch.device) -> Iterator[World]:
    """Join an outer launcher's job as a worker."""
    if outer.size > 1 and device.index is not None:
        raise ConfigError(f"--device {device} is one GPU, but {outer.size} processes train: name --device cuda for all")
    with _on(device, outer.local_rank) as device:
        if outer.size == 1:
            yield World(0, 1, device)
            return
        if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun has a store, and ends all processes if one fails
            _join(device, outer.rank, outer.size, init_method="env://")
        else:
            with interruptible():
                store = _meet(outer)
            _join(device, outer.rank, outer.size, store=store)
        try:
            yield World(outer.rank, outer.size, device, local=False)
            dist.destroy_process_group()
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            why = f"a worker was lost or failed ({str(error).strip().splitlines()[0]})"
            raise ReposeError(f"{why}: run the same command again, training then resumes") from error
        finally:
            _leave_what_failed(device)


def _meet(outer: Outer) -> TCPStore:
    """Wait until all of the launcher's processes have joined a store, and return it. torch itself would wait for hours,
    and ignore signals meanwhile. Raises LostWorkerError if a process does not join."""
    deadline, place = time.monotonic() + COMING, f"{outer.address}:{outer.port}"
    names, pause = [f"here {rank}" for rank in range(outer.size)], timedelta(seconds=3)
    how: dict[str, Any] = {
        "is_master": outer.rank == 0,
        "wait_for_workers": False,
        "timeout": pause,
        "use_libuv": _LIBUV,
    }
    while True:
        try:
            store = TCPStore(outer.address, outer.port, outer.size, **how)
            break
        except RuntimeError as error:
            if outer.rank == 0:
                why = str(error).strip().splitlines()[0]
                raise ConfigError(f"the first process cannot listen at {place} ({why}): set MASTER_PORT") from error
            if time.monotonic() > deadline:
                raise LostWorkerError(f"the first process is not at {place}: check its output") from error
    try:
        store.set(names[outer.rank], "")
        while not store.check(names):
            if time.monotonic() > deadline:
                gone = ", ".join(str(rank) for rank, name in enumerate(names) if not store.check([name]))
                raise LostWorkerError(
                    f"some of the {outer.size} processes have not joined ({gone}): check their output"
                )
            time.sleep(0.05)
    except RuntimeError as error:
        raise LostWorkerError(f"the first process, at {place}, has ended: check its output") from error
    store.set_timeout(TIMEOUT)
    return store


@contextlib.contextmanager
def started(
    size: int, device: torch.device, threads: int, follow: Callable[..., None], arguments: tuple[Any, ...]
) -> Iterator[World]:
    """Make this process the first of `size` workers; start the others, which call `follow(world, *arguments)`.

    They end with this context, however it ends, and with this process, even if it is killed. Raises ReposeError if a
    worker dies. On GPUs, where this process might not notice that for hours, it instead exits with the message.
    """
    if size == 1:
        with num_threads(threads), _on(device, 0) as device:
            yield World(0, 1, device)
        return
    has_another_group = dist.is_initialized()  # the caller's process group, besides which there can be no other
    store = TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False, timeout=TIMEOUT, use_libuv=_LIBUV)
    place = (World(0, size, device), threads, store.port, follow, arguments)
    with holding_back_signals(), _without_script(place):
        context: ProcessContext = start_processes(_main, place, size - 1, join=False, daemon=True)
    try:
        while not store.check([f"ready {rank}" for rank in range(1, size)]):
            context.join(timeout=0.05)  # raises if a worker has died
        with _on(device, 0) as own:
            _join(own, 0, size, store=store)
            over = threading.Event()
            if _waits_for_the_dead(own):
                threading.Thread(target=_end_with_workers, args=(context, store, over), daemon=True).start()
            try:
                with num_threads(threads):
                    yield World(0, size, own)
            finally:
                over.set()
            dist.destroy_process_group()
    except ProcessException as error:
        raise _death(context, store) from error
    except RuntimeError as error:
        if _has_lost_a_worker(context):
            raise _death(context, store) from error
        raise
    finally:
        for process in context.processes:
            process.kill()
            process.join()
        for file in context.error_files:  # torch leaves the errors of dead workers in the folder for temporary files
            Path(file).unlink(missing_ok=True)
        if not has_another_group:
            _leave_what_failed(device)


@contextlib.contextmanager
def _without_script(arguments: object) -> Iterator[None]:
    """Within this context, started processes do not import the program's main script again, so that it needs no main
    guard; unless they need something that it defines."""
    script = sys.modules["__main__"]
    if b"__main__" in pickle.dumps(arguments):
        yield
        return
    names = ("__spec__", "__file__")
    before = {name: getattr(script, name) for name in names if hasattr(script, name)}
    script.__spec__ = None
    vars(script).pop("__file__", None)
    try:
        yield
    finally:
        vars(script).update(before)


def _main(index: int, first: World, threads: int, port: int, follow: Callable[..., None], arguments: Any) -> None:
    """Main function of a started worker with rank index + 1."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    rank, size = index + 1, first.size
    store = TCPStore("127.0.0.1", port, size, is_master=False, timeout=TIMEOUT, use_libuv=_LIBUV)
    try:
        with _on(first.device, rank) as device:
            store.set(f"ready {rank}", "")
            _join(device, rank, size, store=store)
            follow(World(rank, size, device), *arguments)
    except Exception as error:
        what = str(error) if isinstance(error, ReposeError) else f"{type(error).__name__}: {error}"
        what = OUT_OF_MEMORY if is_out_of_memory(error) else what
        store.set(f"failure {rank}", " ".join(what.split()))
        raise
    dist.destroy_process_group()


def _end_with_parent() -> None:
    """Exit when the parent process has ended, because a killed parent cannot tell its workers. Runs in a thread."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _waits_for_the_dead(device: torch.device) -> bool:
    """Return whether an exchange keeps waiting for a dead worker, as NCCL does; with gloo, the connection breaks."""
    return device.type == "cuda"


def _leave_what_failed(device: torch.device) -> None:
    """Leave the process group after an error, when the others have not left it. NCCL may then wait for workers that
    have ended, so limit that time."""
    if not dist.is_initialized():
        return
    if not _waits_for_the_dead(device):
        dist.destroy_process_group()
        return
    leaving = threading.Thread(target=dist.destroy_process_group, daemon=True)
    leaving.start()
    leaving.join(_GRACE)


def _end_with_workers(context: ProcessContext, store: TCPStore, over: threading.Event) -> None:
    """Exit when a worker has died, unless the context ends in time. Runs in a thread; an exception would not help,
    because this process waits for its GPU."""
    while not over.wait(1.0):
        if any(process.exitcode for process in context.processes):  # a worker has failed
            if over.wait(_GRACE):
                return
            print(f"repose: {_death(context, store)}", file=sys.stderr, flush=True)
            for process in context.processes:
                process.kill()
            os._exit(1)


def _has_lost_a_worker(context: ProcessContext) -> bool:
    """Return whether a worker has died. Waits for its exit code, which comes later than the broken connection."""
    deadline = time.monotonic() + 3.0
    try:
        while time.monotonic() < deadline:
            context.join(timeout=0.1)
    except ProcessException:
        return True
    return False


def _death(context: ProcessContext, store: TCPStore) -> ReposeError:
    """Return the error that describes a worker's death."""
    for process in context.processes:
        if process.exitcode is not None and process.exitcode < 0:
            return LostWorkerError(
                f"a worker was {killed_by(-process.exitcode)}: run the same command again, training then resumes"
            )
    failures = (f"failure {rank}" for rank in range(1, len(context.processes) + 1))
    told = next((store.get(key).decode() for key in failures if store.check([key])), "it has ended")
    return ReposeError(f"a worker failed: {told}")
