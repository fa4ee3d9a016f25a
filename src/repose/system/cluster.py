"""Ray clusters (extra `cluster`), for the process that hands out work: importing Ray and connecting to a cluster."""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

from repose.system.errors import ConfigError, of_extra

CONNECT_SECONDS = 10.0
"""Seconds within which the head node must accept a connection."""


def import_ray() -> Any:
    """Import and return the module `ray`. Raises ConfigError if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray sends usage statistics unless told not to
    with of_extra("cluster", "Ray is not installed"):
        import ray
    return ray


@contextlib.contextmanager
def connected(ray: Any, address: str | None) -> Iterator[None]:
    """Connect this process as a driver of the cluster inside the block.

    Raises ConfigError if no cluster is found, or if its versions do not match.
    """
    if ray.is_initialized():
        yield
        return
    before, address = signal.getsignal(signal.SIGTERM), address or os.environ.get("RAY_ADDRESS")
    try:
        _check_listening(address)
        ray.init(address=address or "auto", log_to_driver=False, logging_level="ERROR")
    except OSError as error:
        where = f"at {address}" if address else "here"
        raise ConfigError(
            f"no Ray cluster answers {where}: start one with `ray start --head`, or give the address of its head"
        ) from error
    except (RuntimeError, ValueError, ray.exceptions.RayError) as error:  # version mismatch, malformed address
        raise ConfigError(f"the Ray cluster cannot be joined: {' '.join(str(error).split())}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray's own handler would end the grid before its cells have saved
    try:
        yield
    finally:
        ray.shutdown()


def _check_listening(address: str | None) -> None:
    """Raise OSError if nobody listens at "HOST:PORT", because Ray would keep trying for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isascii() and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
