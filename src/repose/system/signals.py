"""SIGINT, SIGTERM, SIGHUP and SIGUSR1 (a cluster's warning) as requests to stop."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1") if hasattr(signal, name))
Handler = Callable[[int, FrameType | None], None]


class Interrupted(BaseException):
    """One of these signals came where work ends at once; `name` says which."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Within, these signals raise Interrupted, so that what is half done is cleaned up as after Ctrl-C.

    Outside the main thread Python allows no handlers; there it does nothing.
    """

    def interrupt(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(signal.Signals(number).name)

    with handled_by(interrupt):
        yield


@contextlib.contextmanager
def handled_by(handler: Handler) -> Iterator[None]:
    """Within, these signals call `handler`; outside the main thread Python allows none, and nothing changes."""
    before = _handled_by(handler)
    try:
        yield
    finally:
        _restore(before)


class StopSignals:
    """While entered, remembers the first of these signals instead of dying of it.

    A second SIGINT is not held back: whoever presses Ctrl-C twice means now. Outside the main thread Python allows no
    handlers; there it does nothing.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        """Name of the first signal that came."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        self._before = _handled_by(self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _restore(self._before)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == "SIGINT":
            raise KeyboardInterrupt
        if self.received is None:
            self.received = signal.Signals(number).name


def ignore_in_helper_process() -> None:
    """Leave these signals, which often reach all processes of a group, to the process that started this one."""
    for number in _SIGNALS:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)


def _handled_by(handler: Handler) -> dict[int, Any]:
    """The handlers that there were before. A hangup that is ignored, as under nohup, stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    if hasattr(signal, "SIGHUP") and before[signal.SIGHUP] == signal.SIG_IGN:
        del before[signal.SIGHUP]
    for number in before:
        signal.signal(number, handler)
    return before


def _restore(before: dict[int, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)
