"""Handling of the stop signals: SIGINT, SIGTERM, SIGHUP and SIGUSR1 (a cluster's warning).

Python allows signal handlers in the main thread only; in other threads, nothing is handled.
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
"""Used instead of a signal's name when a program asks its own training to stop."""


class Interrupted(BaseException):
    """A stop signal that ends the work at once; `name` is the signal's name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Make the stop signals raise Interrupted inside the block, so that work is cleaned up as after Ctrl-C."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(signal.Signals(number).name)

    with handled_by(interrupt):
        yield


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Make the first stop signal raise Interrupted inside the block; a second one ends the process at once, as usual.

    Ctrl-C is left to Python.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        for other in _BUT_CTRL_C:
            if signal.getsignal(other) is end:
                signal.signal(other, signal.SIG_DFL)
        raise Interrupted(signal.Signals(number).name)

    with handled_by(end, _BUT_CTRL_C):
        yield


@contextlib.contextmanager
def stopping(stop: threading.Event, now: Callable[[], None]) -> Iterator[None]:
    """Make the first stop signal set `stop` inside the block; a later SIGINT, as from a second Ctrl-C, calls `now`."""

    def ask(number: int, _frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            now()
        stop.set()

    with handled_by(ask):
        yield


@contextlib.contextmanager
def handled_by(handler: Handler, numbers: Sequence[signal.Signals] = _SIGNALS) -> Iterator[None]:
    """Make all stop signals, or those in `numbers`, call `handler` inside the block.

    SIGHUP stays ignored if it was ignored before, as under nohup. A program that embeds Python keeps handlers of its
    own, since they could not be put back.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: old for number in numbers if (old := signal.getsignal(number)) is not None}
        if hasattr(signal, "SIGHUP") and before.get(signal.SIGHUP) == signal.SIG_IGN:
            del before[signal.SIGHUP]
        for number in before:
            signal.signal(number, handler)
    try:
        if before and hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)  # in a process started inside `holding_back_signals`
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextlib.contextmanager
def holding_back_signals() -> Iterator[None]:
    """Hold back stop signals from processes started inside the block until they enter `handled_by`.

    Otherwise a signal could kill a process while it still imports modules.
    """
    before = None
    if hasattr(signal, "pthread_sigmask"):
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()  # its start, with the first process, would unblock SIGINT and SIGTERM again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        if before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class StopSignals(contextlib.ExitStack):
    """A context that records the first stop signal, which then does not end the process.

    A second SIGINT is not held back: pressing Ctrl-C twice means now. The event `stop` is a request without a signal,
    which any thread can make.
    """

    def __init__(self, stop: threading.Event | None = None) -> None:
        super().__init__()
        self._first: str | None = None
        self._stop = stop

    @property
    def received(self) -> str | None:
        """Name of the first signal received, or "stop" if only the event is set; None if neither."""
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
    """Ignore the stop signals except SIGTERM: they often reach a whole process group, and the parent handles them."""
    for number in _SIGNALS:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)


def killed_by(number: int) -> str:
    """Say how a process ended that was killed by this signal. A system that runs out of memory sends SIGKILL."""
    return f"killed by signal {number}" + " (out of memory?)" * (number == getattr(signal, "SIGKILL", 9))
