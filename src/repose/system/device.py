"""Where a model runs: the devices of this machine, by name, its cores, and what is asked of its C library."""

import ctypes
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from repose.system.errors import ConfigError, DeviceError, unknown
from repose.system.limits import granted_bytes, granted_cores
from repose.system.numbers import is_whole

if TYPE_CHECKING:
    import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_LARGEST_MMAP_THRESHOLD = 32 << 20  # what glibc takes at most on 64-bit systems
_lock, _this_thread = threading.Lock(), threading.local()
_before: list[int] = []
"""For each thread within `one_thread`, how many it goes back to."""
_dtypes: list["torch.dtype"] = []
"""For each thread within `own_dtype`, the type that it goes back to."""


def device_name(device: object) -> str:
    """The name of a device that is given by its name or as torch's object; the one CPU is "cpu", and "auto" is cuda
    where there is one. Raises ConfigError for anything else."""
    torch = sys.modules.get("torch")  # whoever has such an object has loaded it
    if torch is not None and isinstance(device, torch.device):
        device = str(device)
    if not isinstance(device, str):
        raise ConfigError(f"device is {device!r}, but must be the name of one, such as 'cpu' or 'cuda'")
    if device == "auto":
        return _best_device()
    return "cpu" if device == "cpu:0" else device


def _best_device() -> str:
    try:
        import torch
    except ModuleNotFoundError:  # only graphs can be computed here, on the CPU
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def find_device(name: str, kinds: Sequence[str] = ("cpu", "cuda", "mps")) -> "torch.device":
    """The device of that name, of one of these kinds: cpu, cuda, cuda:1, mps. Raises DeviceError where this machine has
    none."""
    import torch

    check_device_name(name, kinds)
    kind, colon, index = name.partition(":")
    counts = {"cpu": 1, "cuda": num_gpus(), "mps": int(torch.backends.mps.is_available())}
    if int(index or 0) >= counts[kind]:
        raise DeviceError(f"device {name!r} is not available, this machine has {_devices(counts[kind])}: use cpu")
    return torch.device(kind, int(index)) if colon else torch.device(kind)


def check_device_name(name: str, kinds: Sequence[str]) -> None:
    """Raises DeviceError for what is no name of a device of these kinds; whether this machine has it is not asked."""
    kind, colon, index = name.partition(":")
    if kind == "gpu":
        of_mac = ", that of a Mac mps" if "mps" in kinds else ""
        raise DeviceError(f"there is no device {name!r}: an NVIDIA or AMD GPU is cuda{of_mac}")
    if kind not in kinds or (colon and (kind == "auto" or not (index.isascii() and index.isdecimal()))):
        raise DeviceError(unknown("device", name, kinds))


def num_gpus() -> int:
    """GPUs that torch can use: with a driver that is too old for it, it counts those that it cannot use as well."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def multiplies_in_bf16() -> bool:
    """Whether the processor has operations of its own for matrix products in bf16, as far as torch can tell: elsewhere
    they are made of those of fp32, and are no faster."""
    import torch

    if not hasattr(torch.cpu, "get_capabilities"):  # an earlier torch
        return False
    found = torch.cpu.get_capabilities()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))


def _devices(number: int) -> str:
    return {0: "none", 1: "only one"}.get(number, f"only {number}")


def available_cores() -> int:
    """Cores that this process may use: those that it may run on, and no more than its container grants."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, granted_cores() or cores)


def limit_threads() -> None:
    """In a container that grants less than all cores, has libraries that are loaded later, and processes that are
    started, use no more threads than `available_cores`, unless somebody has said how many."""
    if granted_cores() is not None:
        for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):  # torch; tokenizers
            os.environ.setdefault(name, str(available_cores()))


def memory_bytes() -> int | None:
    """The memory of this machine, or what its container grants of it; None where that cannot be known."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return granted_bytes()
    return min(memory, granted_bytes() or memory)


def usual_workers(device: str) -> int:
    """Processes that translate on that device, unless somebody says how many."""
    return available_cores() if device == "cpu" else 1


def check_workers(number: int) -> None:
    """Raises ConfigError for a number of processes or threads that this machine cannot be meant to run."""
    if not is_whole(number):
        raise ConfigError(f"workers = {number!r}, but it should be a whole number")
    most = max(64, 4 * available_cores())
    if not 1 <= number <= most:
        raise ConfigError(f"workers = {number}, but it should be from 1 to {most} on this machine")


@contextmanager
def own_defaults() -> Iterator[None]:
    """Within, torch makes fp32 tensors on the CPU unless told otherwise, whatever defaults a program has set. Several
    threads may be within at once; the default type is that of all, and comes back with the last."""
    import torch

    with own_dtype(), torch.device("cpu"):
        yield


@contextmanager
def own_dtype() -> Iterator[None]:
    """Within, torch's default type is fp32, as in `own_defaults`, which sets a default device as well and so slows each
    call of torch's down."""
    import torch

    with _lock:
        _dtypes.append(_dtypes[0] if _dtypes else torch.get_default_dtype())
        torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        with _lock:
            before = _dtypes.pop()
            if not _dtypes:
                torch.set_default_dtype(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Within, torch's CPU work uses one thread. Several threads may be within at once.

    A decoding step is many small operations; at each, several threads wait for one another by spinning, and as soon as
    anything else runs on the machine they wait for threads that are not running (`results/decoding-threads.json`).
    """
    import torch

    if getattr(_this_thread, "is_within", False):
        with num_threads(1):
            yield
        return
    # A thread has a number of its own from when it is first asked: the one set last, 1 while another is within.
    with _lock:
        own = torch.get_num_threads()
        before = _before[0] if _before else own
        _before.append(before)
        torch.set_num_threads(1)
    _this_thread.is_within = True
    try:
        yield
    finally:
        _this_thread.is_within = False
        with _lock:
            _before.pop()
            torch.set_num_threads(before)


@contextmanager
def num_threads(number: int) -> Iterator[None]:
    """Within, torch's CPU work uses so many threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_freed_memory() -> None:
    """Have the C library keep memory that is freed from now on."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


@contextmanager
def tuned() -> Iterator[None]:
    """Keep freed memory from now on, and flush denormal numbers to zero in this thread while entered.

    Every step frees and takes again the same large tensors; glibc would give their pages back to the system and get
    them anew, zeroed, each time. Adam's moments of tokens that are not seen fall without end,
    and many processors are much slower on numbers below 1e-38.
    """
    import torch

    keep_freed_memory()
    denormal = torch.tensor(1e-40, dtype=torch.float32, device="cpu")
    before = not denormal.mul(1.0).item()  # entered within another, as translating is within training
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
