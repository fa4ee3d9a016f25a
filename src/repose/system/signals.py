"""SIGTERM, SIGINT and SIGUSR1 as requests to stop after the present update."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGUSR1") if hasattr(signal, name))


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
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == "SIGINT":
            raise KeyboardInterrupt
        if self.received is None:
            self.received = signal.Signals(number).name
