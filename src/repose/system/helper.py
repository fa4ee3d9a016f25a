"""Helper processes: how they are started, and how they end with the process that started them.

A helper is a plain interpreter, which does not run its parent's script or notebook again, so that those need no main
guard. Messages go through its standard input and output.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from repose.system.errors import ReposeError, user_message
from repose.system.signals import ignore_in_helper_process, killed_by

OWN_SESSION: Mapping[str, Any] = MappingProxyType(
    {"start_new_session": True, "creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
)
"""Options of a process that Ctrl-C in a terminal is not for, but for its parent. Windows has groups instead."""


def helper_command(module: str) -> list[str]:
    """The command line of a helper that runs `main` of this module, with this process's path of imports."""
    code = f"import sys; sys.path[:] = sys.argv[2:]; from {module} import main; main()"
    return [sys.executable, "-c", code, str(os.getpid()), *sys.path]


def start_helper(module: str, **variables: str) -> "subprocess.Popen[bytes]":
    """Start a helper with pipes to it and these variables in its environment. Raises OSError where the system starts no
    more processes."""
    return subprocess.Popen(
        helper_command(module),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **variables},
        **OWN_SESSION,
    )


def close_pipes(helper: "subprocess.Popen[bytes]") -> None:
    """Close this process's ends of a helper's pipes, even where something could not be written any more."""
    for pipe in (helper.stdin, helper.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def how_it_ended(code: int) -> str:
    """How a process with this exit code ended, as the end of a sentence about it."""
    return f"was {killed_by(-code)}" if code < 0 else f"ended with exit code {code}"


def open_pipes() -> tuple[BinaryIO, BinaryIO]:
    """A helper calls this first of all: the stream that messages come from, and the one that answers go to.

    Whatever a library prints goes to stderr from now on, signals are the parent's, and the helper ends with it.
    """
    ignore_in_helper_process()
    end_with_parent(int(sys.argv[1]))
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with contextlib.suppress(OSError):  # there may be no stderr
        os.dup2(2, 1)
    return source, sink


def worker_error(error: Exception) -> ReposeError:
    """What a helper that translates answers where it met an error: one sentence, and of a `ReposeError` itself."""
    if isinstance(error, ReposeError):
        return error
    if (message := user_message(error)) is not None:
        return ReposeError(message.sentence)
    first = (str(error).strip() or "no reason given").splitlines()[0]
    return ReposeError(f"a translation worker failed: {type(error).__name__}: {first}")


_TRIES = 5


def end_with_parent(parent: int, *, remove: Path | None = None) -> None:
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
            for _ in range(_TRIES):  # the main thread may be writing into it
                shutil.rmtree(remove, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
