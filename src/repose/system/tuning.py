"""What training and translating ask of the C library and of the processor, so that no user needs to set variables."""

import contextlib
import ctypes
from collections.abc import Iterator

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_LARGEST_MMAP_THRESHOLD = 32 << 20  # what glibc takes at most on 64-bit systems


@contextlib.contextmanager
def tuned() -> Iterator[None]:
    """Keep freed memory from now on, and flush denormal numbers to zero in this thread while entered.

    Every step frees and takes again the same large tensors; glibc would give their pages back to the system and get
    them anew, zeroed, each time. Adam's moments of tokens that are not seen fall without end,
    and many processors are much slower on numbers below 1e-38.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    denormal = torch.tensor(1e-40, dtype=torch.float32, device="cpu")
    before = not denormal.mul(1.0).item()  # entered within another, as translating is within training
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
