"""Where a model runs: this machine's devices, cores and memory, and settings of torch and the C library."""

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

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from malloc.h
_LARGEST_MMAP_THRESHOLD = 32 << 20  # the most that glibc accepts on 64-bit systems
_lock, _this_thread = threading.Lock(), threading.local()
_before: list[int] = []
"""For each thread inside `one_thread`, the number of threads to restore."""
_dtypes: list["torch.dtype"] = []
"""For each thread inside `own_dtype`, the type to restore."""


def device_name(device: object) -> str:
    """Return the name of a device given as a name or a torch device.

    "auto" is cuda if there is one, else cpu, and the only CPU is called "cpu". Raises ConfigError for anything else.
    """
    torch = sys.modules.get("torch")  # a caller with a torch device has loaded torch
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
    except ModuleNotFoundError:  # without torch, only exported graphs can run, on the CPU
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def find_device(name: str, kinds: Sequence[str] = ("cpu", "cuda", "mps")) -> "torch.device":
    """Return the device with a name such as cpu, cuda, cuda:1 or mps, which must be of one of the `kinds`.

    Raises DeviceError if this machine does not have it.
    """
    import torch

    check_device_name(name, kinds)
    kind, colon, index = name.partition(":")
    counts = {"cpu": 1, "cuda": num_gpus(), "mps": int(torch.backends.mps.is_available())}
    if int(index or 0) >= counts[kind]:
        raise DeviceError(f"device {name!r} is not available, this machine has {_devices(counts[kind])}: use cpu")
    return torch.device(kind, int(index)) if colon else torch.device(kind)


def check_device_name(name: str, kinds: Sequence[str]) -> None:
    """Raise DeviceError unless `name` is a device of one of these kinds; whether this machine has it is not checked."""
    kind, colon, index = name.partition(":")
    if kind == "gpu":
        of_mac = ", that of a Mac mps" if "mps" in kinds else ""
        raise DeviceError(f"there is no device {name!r}: an NVIDIA or AMD GPU is cuda{of_mac}")
    if kind not in kinds or (colon and (kind == "auto" or not (index.isascii() and index.isdecimal()))):
        raise DeviceError(unknown("device", name, kinds))


def num_gpus() -> int:
    """Return the number of GPUs that torch can use.

    torch itself also counts GPUs that it cannot use because their driver is too old.
    """
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def multiplies_in_bf16() -> bool:
    """Return whether torch reports that the processor has its own operations for matrix products in bf16.

    Elsewhere, such products are made of fp32 operations and are no faster.
    """
    import torch

    if not hasattr(torch.cpu, "get_capabilities"):  # an older torch
        return False
    found = torch.cpu.get_capabilities()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))


def _devices(number: int) -> str:
    return {0: "none", 1: "only one"}.get(number, f"only {number}")


def available_cores() -> int:
    """Return the number of cores that this process may use: those it may run on, limited by its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, granted_cores() or cores)


def limit_threads() -> None:
    """Limit the threads of libraries loaded and processes started later to `available_cores`.

    This applies only in a container that grants less than all cores, and only if nobody has set the number of threads.
    """
    if granted_cores() is not None:
        for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):  # used by torch; by tokenizers
            os.environ.setdefault(name, str(available_cores()))


def memory_bytes() -> int | None:
    """Return this machine's memory in bytes, or what its container grants of it; None if that is unknown."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return granted_bytes()
    return min(memory, granted_bytes() or memory)


def usual_workers(device: str) -> int:
    """Return the default number of processes that translate on a device."""
    return available_cores() if device == "cpu" else 1


def check_workers(number: int) -> None:
    """Raise ConfigError for an unreasonable number of processes or threads on this machine."""
    if not is_whole(number):
        raise ConfigError(f"workers = {number!r}, but it should be a whole number")
    most = max(64, 4 * available_cores())
    if not 1 <= number <= most:
        raise ConfigError(f"workers = {number}, but it should be from 1 to {most} on this machine")


@contextmanager
def own_defaults() -> Iterator[None]:
    """Make torch create fp32 tensors on the CPU by default inside the block, whatever defaults the program has set.

    Several threads may be inside at once. The default type applies to all threads; it is restored when the last one
    leaves.
    """
    import torch

    with own_dtype(), torch.device("cpu"):
        yield


@contextmanager
def own_dtype() -> Iterator[None]:
    """Make fp32 torch's default type inside the block.

    Unlike `own_defaults`, it sets no default device, which would slow down every torch call.
    """
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
    """Limit torch's CPU work to one thread inside the block. Several threads may be inside at once.

    A decoding step is many small operations. At each of them, several threads wait for one another by spinning, and as
    soon as anything else runs on the machine, they wait for threads that are not running
    (`results/decoding-threads.json`).
    """
    import torch

    if getattr(_this_thread, "is_within", False):
        with num_threads(1):
            yield
        return
    # Each thread has its own number from when it first asks: the number set last, 1 while another thread is inside.
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
    """Limit torch's CPU work to this number of threads inside the block."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_freed_memory() -> None:
    """Make the C library keep memory that is freed from now on."""
    with suppress(AttributeError, OSError, TypeError):  # not glibc
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


@contextmanager
def tuned() -> Iterator[None]:
    """Keep freed memory from now on, and flush denormal numbers to zero in this thread inside the block.

    Every step frees and allocates the same large tensors; glibc would return their pages to the system and get them
    back, zeroed, each time. Adam's moments of tokens that do not occur shrink without end, and many processors are much
    slower on numbers below 1e-38.
    """
    import torch

    keep_freed_memory()
    denormal = torch.tensor(1e-40, dtype=torch.float32, device="cpu")
    before = not denormal.mul(1.0).item()  # already set if blocks are nested, as when a training translates
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
