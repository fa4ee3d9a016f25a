"""Helper processes: how they are started, and how they end with the process that started them.

A helper is a plain interpreter, which does not run its parent's script or notebook again, so that those need no main
guard. Messages go through its standard input and output.
"""

import contextlib
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import BinaryIO

from repose.system.errors import ReposeError, told
from repose.system.signals import ignore_in_helper_process


def helper_command(module: str) -> list[str]:
    """What starts a helper that runs `main` of this module, with this process's path of imports."""
    code = f"import sys; sys.path[:] = sys.argv[2:]; from {module} import main; main()"
    return [sys.executable, "-c", code, str(os.getpid()), *sys.path]


def pipes() -> tuple[BinaryIO, BinaryIO]:
    """Within a helper, first of all: where messages come from, and where answers go.

    Whatever a library prints goes to stderr from now on, signals are the parent's, and the helper ends with it.
    """
    ignore_in_helper_process()
    end_with(int(sys.argv[1]))
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with contextlib.suppress(OSError):  # there may be no stderr
        os.dup2(2, 1)
    return source, sink


def worker_error(error: Exception) -> ReposeError:
    """What a helper that translates answers where it met an error: one sentence, and of a `ReposeError` itself."""
    if isinstance(error, ReposeError):
        return error
    if (sentence := told(error)) is not None:
        return ReposeError(sentence[0])
    first = (str(error).strip() or "no reason given").splitlines()[0]
    return ReposeError(f"a translation worker failed: {type(error).__name__}: {first}")


def end_with(parent: int, *, remove: Path | None = None) -> None:
    """From now on this process ends when that parent has ended: one that was killed cannot tell its helpers. It then
    removes a folder of temporary files, where it has one.

    Not on Windows, where the parent of an environment's Python is a launcher: helpers end with their standard input.
    """
    if os.name == "nt":
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        if remove is not None:
            shutil.rmtree(remove, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
