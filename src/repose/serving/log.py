"""What the server writes about itself: a JSON object per line on stderr, without texts, keys and addresses."""

import contextlib
import datetime
import json
import logging
import traceback
from typing import TextIO

_ROUTINE = frozenset({"worker_ready", "ready", "request", "draining", "ended"})
"""Events that happen whenever it runs and is asked."""


class Log:
    """Writes events to a stream; None: nowhere. On a terminal, whoever tries a model out sees what goes wrong alone."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._left_out = _ROUTINE if stream is not None and stream.isatty() else frozenset[str]()

    def __call__(self, event: str, **facts: object) -> None:
        """One line; none where it cannot be written, as on a full disk: what it is about goes on."""
        if self._stream is None or event in self._left_out:
            return
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        with contextlib.suppress(OSError, ValueError):  # the latter of a stream that is closed
            self._stream.write(json.dumps({"time": time, "event": event, **facts}) + "\n")  # at once: others write, too
            self._stream.flush()


class HttpEvents(logging.Handler):
    """What the libraries that read requests say, as events."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        about = {} if error is None else {"kind": type(error).__name__, "where": where(error)}
        self._log("http", text=record.getMessage().strip(), **about)


def where(error: BaseException) -> list[str]:
    """The places that an error came through. Its sentence may hold a text, and is left out."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames[-8:]]
