"""`python -m repose.grids.cell_process FOLDER`: the process of one cell, see `repose.grids.cells`.

The job comes as JSON on stdin. Exit codes are the command line's (0 done, 1 failed, 2 configuration, 3 stopped and
resumable), and `cells.BUSY` where another process is at work in the folder; the last line on stderr says why.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from repose.grids.cells import BUSY
from repose.system.errors import BusyError, ConfigError, ReposeError

_ORPHAN_SECONDS = 600.0
"""For an update, a checkpoint and scores: what a cell still does whose grid has died."""


def main() -> int:
    """Runs the cell; its exit code."""
    folder, order = Path(sys.argv[1]), json.load(sys.stdin)
    threading.Thread(target=_save_when_alone, args=(order["parent"],), daemon=True).start()
    pinned = keep_on(order["affinity"], order["cores"])
    try:
        with _only_one(folder):
            _forget_half_written(folder)
            return _run(folder, order, workers=None if pinned else order["cores"])
    except BusyError as error:
        return _say(error, BUSY)
    except ReposeError as error:
        return _say(error, 2 if isinstance(error, ConfigError) else 1)
    except (OSError, MemoryError) as error:
        return _say(str(error) or "out of memory", 1)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        # One sentence in the table; what only a developer can use stays in the log above it.
        import traceback

        traceback.print_exc()
        return _say(f"{type(error).__name__}: {error}" if str(error) else f"{type(error).__name__}", 1)


def _run(folder: Path, order: dict[str, str], workers: int | None) -> int:
    from repose.config.file import from_json
    from repose.runs.run import run

    result = run(
        from_json(order["experiment"], "the cell's experiment"),
        folder,
        device=order["device"],
        workers=workers,
        progress="none",
        say=lambda sentence: print(sentence, file=sys.stderr, flush=True),
    )
    return 0 if result.outcome.status == "done" else 3


def _say(sentence: object, code: int) -> int:
    print(f"repose: {' '.join(str(sentence).split())}", file=sys.stderr, flush=True)
    return code


def _save_when_alone(parent: int) -> None:
    """Asks this process to save and end when the one that started it has died, and ends it when it does not."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_ORPHAN_SECONDS)
    os._exit(1)


def keep_on(affinity: Sequence[int], cores: int) -> bool:
    """Keeps this process on these cores, before torch counts them; whether that was possible.

    Where it was, the training itself chooses its workers, as it does on a machine of that size: those that it began
    with, or no more than its batches can use.
    """
    if not hasattr(os, "sched_setaffinity"):
        return False
    allowed = sorted(os.sched_getaffinity(0))
    chosen = set(affinity) & set(allowed) or (set(allowed) if len(allowed) <= cores else set())
    if chosen:
        os.sched_setaffinity(0, chosen)
    return bool(chosen)


@contextlib.contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Holds the cell's lock from preparation to scores; a training's own covers its training alone.

    Raises BusyError if another process holds it. On Windows nothing is locked.
    """
    with (folder / "cell.lock").open("a+") as file:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise BusyError(f"process {file.read().strip() or 'unknown'} is at work in {folder}") from None
        file.truncate(0)
        file.write(f"{os.uname().nodename}:{os.getpid()}\n" if hasattr(os, "uname") else f"{os.getpid()}\n")
        file.flush()
        yield


def _forget_half_written(folder: Path) -> None:
    """Removes scores that are no JSON: a process died as it wrote them, and they are computed again."""
    for path in folder.glob("scores.*.json"):
        try:
            json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            path.unlink()


if __name__ == "__main__":
    sys.exit(main())
