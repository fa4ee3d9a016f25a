"""SIGINT, SIGTERM, SIGHUP and SIGUSR1 (a cluster's warning) as requests to stop.

Outside the main thread Python allows no handlers; there, nothing is handled.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1") if hasattr(signal, name))
_BUT_CTRL_C = tuple(number for number in _SIGNALS if number != signal.SIGINT)
Handler = Callable[[int, FrameType | None], None]
ASKED = "stop"
"""What stands for a signal's name where a program asks its own training to stop."""


class Interrupted(BaseException):
    """One of these signals came where work ends at once; `name` says which."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Within, these signals raise Interrupted, so that what is half done is cleaned up as after Ctrl-C."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(signal.Signals(number).name)

    with handled_by(interrupt):
        yield


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Within, the first of these signals but Ctrl-C, which Python knows, raises Interrupted; a further one ends the
    process at once, as without this."""

    def end(number: int, _frame: FrameType | None) -> None:
        for other in _BUT_CTRL_C:
            if signal.getsignal(other) is end:
                signal.signal(other, signal.SIG_DFL)
        raise Interrupted(signal.Signals(number).name)

    with handled_by(end, _BUT_CTRL_C):
        yield


@contextlib.contextmanager
def stopping(stop: threading.Event, now: Callable[[], None]) -> Iterator[None]:
    """Within, the first of these signals sets `stop`; a further SIGINT, as of Ctrl-C pressed twice, calls `now`."""

    def ask(number: int, _frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            now()
        stop.set()

    with handled_by(ask):
        yield


@contextlib.contextmanager
def handled_by(handler: Handler, numbers: Sequence[signal.Signals] = _SIGNALS) -> Iterator[None]:
    """Within, these signals, or some of them, call `handler`. A hangup that is ignored, as under nohup, stays so."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in numbers}
        if hasattr(signal, "SIGHUP") and before.get(signal.SIGHUP) == signal.SIG_IGN:
            del before[signal.SIGHUP]
        for number in before:
            signal.signal(number, handler)
    try:
        if before and hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)  # in a process begun in `holding_back_signals`
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextlib.contextmanager
def holding_back_signals() -> Iterator[None]:
    """Processes started within get these signals when they enter `handled_by`: none dies of one while it imports."""
    before = None
    if hasattr(signal, "pthread_sigmask"):
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()  # whose start, with the first process, lets SIGINT and SIGTERM through again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        if before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class StopSignals(contextlib.ExitStack):
    """While entered, remembers the first of these signals instead of dying of it.

    A second SIGINT is not held back: whoever presses Ctrl-C twice means now. `stop` is a request without a signal,
    which any thread can make.
    """

    def __init__(self, stop: threading.Event | None = None) -> None:
        super().__init__()
        self._first: str | None = None
        self._stop = stop

    @property
    def received(self) -> str | None:
        """Name of the first signal that came, or "stop" where only the event asks; None where nothing does."""
        is_asked = self._stop is not None and self._stop.is_set()
        return self._first or (ASKED if is_asked else None)

    def __enter__(self) -> "StopSignals":
        self.enter_context(handled_by(self._handle))
        return self

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and self._first == "SIGINT":
            raise KeyboardInterrupt
        if self._first is None:
            self._first = signal.Signals(number).name


def ignore_in_helper_process() -> None:
    """Leave these signals, which often reach all processes of a group, to the process that started this one."""
    for number in _SIGNALS:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)


def killed_by(number: int) -> str:
    """How a process ended that this signal ended. A system that runs out of memory sends SIGKILL."""
    return f"killed by signal {number}" + " (out of memory?)" * (number == getattr(signal, "SIGKILL", 9))
