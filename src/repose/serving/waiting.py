"""Requests that wait for their answers: each until its deadline, and no longer than its client does.

One clock looks at all deadlines, since a timer and a task for each request cost as much as the rest of it.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

_PRECISION = 0.02
"""Seconds by which a deadline may be missed."""


class GoneError(Exception):
    """The client has closed its connection."""


class Waiting:
    """A task that waits, while the context lasts; it ends with TimeoutError, or with `GoneError`."""

    __slots__ = ("_cancelling", "_deadlines", "_error", "_task", "until")

    def __init__(self, deadlines: "Deadlines", seconds: float) -> None:
        self._deadlines = deadlines
        self.until = asyncio.get_running_loop().time() + seconds
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._deadlines.add(self)
        return self

    def end(self, error: Exception) -> None:
        """Wait no longer."""
        if self._error is None:
            self._error = error
            self._task.cancel()

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        self._deadlines.discard(self)
        if self._error is not None:
            uncancelled = self._task.uncancel() <= self._cancelling
            if uncancelled and isinstance(error, asyncio.CancelledError):
                raise self._error from None


@contextlib.contextmanager
def watched(connection: Any, waiting: Waiting) -> Iterator[None]:
    """Within the block, the end of a request's connection (`repose.serving.protocol`) ends the waiting. None stands for
    a request without a network, as in tests."""
    if connection is None:
        yield
        return
    connection.waiting = waiting
    if connection.transport.is_closing():
        waiting.end(GoneError())
    try:
        yield
    finally:
        connection.waiting = None


class Deadlines:
    """All that wait."""

    def __init__(self) -> None:
        self._waiting: set[Waiting] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        """That the clock runs in."""

    def within(self, seconds: float) -> Waiting:
        """A context that ends after so many seconds at the latest, with TimeoutError."""
        return Waiting(self, seconds)

    def add(self, one: Waiting) -> None:
        self._waiting.add(one)
        if self._loop is not (loop := asyncio.get_running_loop()):
            self._loop = loop
            loop.call_later(_PRECISION, self._look)

    def discard(self, one: Waiting) -> None:
        self._waiting.discard(one)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for one in [one for one in self._waiting if one.until <= now]:
            one.end(TimeoutError())
        if self._waiting:
            loop.call_later(_PRECISION, self._look)
        else:
            self._loop = None
