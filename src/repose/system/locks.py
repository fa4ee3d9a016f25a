"""A lock between processes that dies with its holder."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive advisory lock on the file `path`, waiting for it as long as need be.

    The file is made where it is missing and stays. On Windows nothing is locked. Raises `OSError` where the file
    cannot be made.
    """
    with path.open("a") as file:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
