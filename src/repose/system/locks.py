"""Locks between processes. They belong to the operating system (flock), so they end with their process."""

import contextlib
import errno
import os
import socket
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from repose.system.errors import BusyError, WriteError

if TYPE_CHECKING:
    from filelock import BaseFileLock

_MOMENT = 0.05
"""Seconds for which a process may hold a lock just to check whether it is held."""
_TRIES = 5
"""Attempts to lock a file that keeps disappearing before it counts as impossible to create."""
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


@contextlib.contextmanager
def locked(path: Path, *, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock file `path` inside the block, waiting as long as necessary.

    `on_wait` is called once before waiting. The file is created if it is missing, and stays. On a file system without
    locks (some network file systems), the block runs at once, so what is written under this lock must be complete even
    then. Raises WriteError if the file cannot be created.
    """
    with contextlib.ExitStack() as stack:
        if not stack.enter_context(trying_lock(path)):
            on_wait()
            stack.enter_context(trying_lock(path, wait=True))
        yield


@contextlib.contextmanager
def locked_or_busy(path: Path, holder_does: str) -> Iterator[None]:
    """Hold the lock file `path` inside the block, or raise BusyError at once if another process holds it.

    `holder_does` continues a sentence that begins with the other process: "is training in runs/x: wait for it". The
    file is created if it is missing, and removed at the end. Raises WriteError if it cannot be created or if the file
    system has no locks.
    """
    try:
        lock = _acquired(path)
    except OSError as error:
        raise _cannot_lock(path, error) from error
    if lock is None:
        raise BusyError(f"{_holder(path)} {holder_does}")
    try:
        _sign(path)
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            if path.read_text(encoding="utf-8") == _signature():  # no other process recreated it after a move
                path.unlink()  # while still held: a waiting process finds it gone and creates its own
        lock.release()


@contextlib.contextmanager
def trying_lock(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Try to hold the lock file `path` inside the block; yield whether it is held. `wait`: wait for another holder.

    On a file system without locks, it counts as held (see `locked`). Raises WriteError if the file cannot be created.
    """
    with contextlib.ExitStack() as stack:
        held = True
        try:
            lock = _acquired(path, wait=wait)
            held = lock is not None
            if lock is not None:
                stack.callback(lock.release)
                _sign(path)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise _cannot_lock(path, error) from error
        yield held


def remove_held(path: Path) -> None:
    """Remove a lock file that this process holds, if it exists; a waiting process creates its own.

    Windows refuses this; there, the file goes when the lock is released.
    """
    with contextlib.suppress(PermissionError):
        path.unlink(missing_ok=True)


def share_lock(path: Path, owner: object) -> None:
    """Share the lock file `path` with other holders until `owner` is garbage-collected or this process ends.

    Meanwhile no process can hold the lock exclusively, and an exclusive holder is waited for. The file is created if it
    is missing, and stays. If it cannot be shared (on Windows, without locks, if the file cannot be created), this does
    nothing.
    """
    with contextlib.suppress(ImportError, OSError):
        import fcntl  # filelock's shared locks need a database

        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
        weakref.finalize(owner, os.close, descriptor).atexit = False  # other threads may still be working
        fcntl.flock(descriptor, fcntl.LOCK_SH)


def making_lock(place: Path) -> Path:
    """Return the lock file that a process holds while it creates or removes a folder."""
    return place.with_name(f".{place.name}.lock")


def using_lock(place: Path) -> Path:
    """Return the lock file that is shared by all processes that use a folder of the cache."""
    return place.with_name(f".{place.name}.used")


def lock_holder(path: Path) -> str | None:
    """Return who holds the lock file `path`, such as "process 123 on node7"; None if nobody does.

    Raises OSError if the file exists but cannot be opened.
    """
    if not path.exists():
        return None
    lock = _acquired(path)
    if lock is None:
        return _holder(path)
    lock.release()
    return None


def _acquired(path: Path, *, wait: bool = False) -> "BaseFileLock | None":
    """Acquire and return the lock; None if another process holds it. Raises OSError if the file cannot be locked."""
    from filelock import FileLock, Timeout  # takes 50 ms, which most commands need not spend

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    for _ in range(_TRIES):
        try:
            if wait:
                lock.acquire()
            else:
                lock.acquire(timeout=_MOMENT, poll_interval=_MOMENT / 5)
            return lock
        except Timeout:
            if path.exists():
                return None
    # Others may remove the file again and again, but in a folder such as /proc it never exists.
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def _sign(path: Path) -> None:
    """Write into the held lock file who holds it. If that fails (on Windows), others cannot see who it is."""
    with contextlib.suppress(OSError):
        path.write_text(_signature(), encoding="utf-8")


def _signature() -> str:
    return f"{os.getpid()} on {socket.gethostname()}\n"


def _holder(path: Path) -> str:
    try:
        words = path.read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        words = []
    return f"process {' '.join(words)}" if words else "another process"


def _cannot_lock(path: Path, error: OSError) -> WriteError:
    if (file := next((place for place in path.parents if place.is_file()), None)) is not None:
        return WriteError(f"{file} is a file: name a folder")
    return WriteError(
        f"{path} cannot be locked ({error.strerror or error}): choose a folder that can be written to, on a file "
        "system that has locks"
    )
