"""Helper processes: starting them, and ending them together with the process that started them.

A helper is a plain interpreter that does not run its parent's script or notebook again, so these need no main guard.
Messages pass through its standard input and output.
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
"""Options for a process that should not receive Ctrl-C from the terminal, since its parent handles it. Windows uses
process groups instead."""


def helper_command(module: str) -> list[str]:
    """Return the command line of a helper that runs `main` of a module, with this process's import path."""
    code = f"import sys; sys.path[:] = sys.argv[2:]; from {module} import main; main()"
    return [sys.executable, "-c", code, str(os.getpid()), *sys.path]


def start_helper(module: str, **variables: str) -> "subprocess.Popen[bytes]":
    """Start a helper with pipes and with these variables added to its environment.

    Raises OSError if the system cannot start another process.
    """
    return subprocess.Popen(
        helper_command(module),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **variables},
        **OWN_SESSION,
    )


def close_pipes(helper: "subprocess.Popen[bytes]") -> None:
    """Close this process's ends of a helper's pipes, even if the last output could not be written."""
    for pipe in (helper.stdin, helper.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def how_it_ended(code: int) -> str:
    """Say how a process with this exit code ended, as the end of a sentence about it."""
    return f"was {killed_by(-code)}" if code < 0 else f"ended with exit code {code}"


def open_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Set up a helper, as its first action; return the stream of incoming messages and the stream for answers.

    From now on, anything that a library prints goes to stderr, signals are left to the parent, and the helper ends when
    its parent does.
    """
    ignore_in_helper_process()
    end_with_parent(int(sys.argv[1]))
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with contextlib.suppress(OSError):  # stderr may be missing
        os.dup2(2, 1)
    return source, sink


def worker_error(error: Exception) -> ReposeError:
    """Turn an exception in a translation helper into its answer: a one-sentence error, or the `ReposeError` itself."""
    if isinstance(error, ReposeError):
        return error
    if (message := user_message(error)) is not None:
        return ReposeError(message.sentence)
    first = (str(error).strip() or "no reason given").splitlines()[0]
    return ReposeError(f"a translation worker failed: {type(error).__name__}: {first}")


_TRIES = 5


def end_with_parent(parent: int, *, remove: Path | None = None) -> None:
    """Make this process end when its parent has ended, because a killed parent cannot tell its helpers.

    The folder of temporary files `remove`, if given, is deleted first. Does nothing on Windows, where the parent of a
    virtual environment's Python is a launcher; helpers there end when their standard input closes.
    """
    if os.name == "nt":
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        if remove is not None:
            for _ in range(_TRIES):  # the main thread may still write into it
                shutil.rmtree(remove, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
