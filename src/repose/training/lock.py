"""The lock of a run directory: the operating system's, so that it dies with its process."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from repose.system.errors import BusyError
from repose.training.distributed import World


@contextlib.contextmanager
def locked(run_dir: Path, world: World) -> Iterator[None]:
    """Hold `state/lock` on the first worker, for all of them. Raises BusyError, on all of them, if it is taken.

    On Windows nothing is locked.
    """
    if world.rank > 0:
        world.share_error(None)
        yield
        return
    with (run_dir / "state" / "lock").open("a+") as file:
        busy = None
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "unknown"
                busy = BusyError(
                    f"process {holder} is training in {run_dir}: wait for it, stop it, or take another run directory"
                )
        world.share_error(busy)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
