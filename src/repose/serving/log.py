"""The server's log: a JSON object per line on stderr, without texts, API keys or addresses."""

import contextlib
import datetime
import json
import logging
import traceback
from typing import TextIO

_ROUTINE = frozenset({"worker_ready", "ready", "request", "draining", "ended"})
"""Events of normal operation."""


class Log:
    """Writes events to a stream, or nowhere if it is None. On a terminal, only events that indicate problems appear."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._left_out = _ROUTINE if stream is not None and stream.isatty() else frozenset[str]()

    def __call__(self, event: str, **facts: object) -> None:
        """Write an event as one line. If this fails, on a full disk say, nothing is raised: the server goes on."""
        if self._stream is None or event in self._left_out:
            return
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        with contextlib.suppress(OSError, ValueError):  # ValueError if the stream is closed
            self._stream.write(json.dumps({"time": time, "event": event, **facts}) + "\n")  # in one call: others write
            self._stream.flush()


class HttpEvents(logging.Handler):
    """Logs the warnings of the libraries that read requests as events."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        about = {} if error is None else {"kind": type(error).__name__, "where": where(error)}
        self._log("http", text=record.getMessage().strip(), **about)


def where(error: BaseException) -> list[str]:
    """Return the code locations that an error passed through, without its message, which may contain a text."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames[-8:]]
