"""How far a training is, on stderr: a live line on a terminal, a plain line now and then elsewhere, or nothing."""

import sys
import time
from collections.abc import Mapping
from typing import Any, Literal, Protocol

ProgressKind = Literal["auto", "live", "lines", "none"]


class Display(Protocol):
    """What shows a training to whoever waits for it."""

    def advance(self, update: int, total: int | None) -> None:
        """An update is done; called after each one, so it must cost next to nothing."""

    def record(self, record: Mapping[str, Any], text: str) -> None:
        """Figures, and the same as a line of text."""

    def note(self, text: str) -> None:
        """A line that must be seen."""

    def close(self) -> None:
        """The training is over."""


def make_display(kind: ProgressKind) -> Display:
    """`auto`: live where stderr is a terminal, else lines."""
    if kind == "none":
        return Silence()
    if kind == "live" or (kind == "auto" and sys.stderr.isatty()):
        return Live()
    return Lines()


class Silence:
    """Shows nothing."""

    def advance(self, update: int, total: int | None) -> None:
        """Nothing."""

    def record(self, record: Mapping[str, Any], text: str) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Lines:
    """Plain lines for logs: every epoch and validation, and training figures at most every half minute."""

    SECONDS = 30.0

    def __init__(self) -> None:
        self._shown = time.monotonic()

    def advance(self, update: int, total: int | None) -> None:
        """Nothing: a log needs no animation."""

    def record(self, record: Mapping[str, Any], text: str) -> None:
        """Prints it, if it is due."""
        now = time.monotonic()
        if record["kind"] != "train" or now - self._shown >= self.SECONDS:
            self._shown = now
            print(text, file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Prints it."""
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing."""


class Live:
    """One line that moves, drawn by rich twice a second at most, so that it takes no time from the training."""

    SECONDS = 0.5

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=Console(stderr=True), auto_refresh=False, speed_estimate_period=120)
        self._task = self._progress.add_task("training", total=None, epoch=1, figures="")
        self._shown: float | None = None
        self._progress.start()

    def advance(self, update: int, total: int | None) -> None:
        """Moves the bar, now and then."""
        now = time.monotonic()
        if self._shown is None:
            self._progress.reset(self._task, completed=update, total=total)  # a resumed run: no part of the speed
            self._shown = now
        elif now - self._shown >= self.SECONDS:
            self._shown = now
            self._progress.update(self._task, completed=update, total=total, refresh=True)

    def record(self, record: Mapping[str, Any], text: str) -> None:
        """Training figures stand beside the bar; others scroll away above it."""
        if record["kind"] == "train":
            figures = f"loss {record['loss']:.3f}  {record['wall']['tokens_per_second']:,.0f} tokens/s"
            self._progress.update(self._task, epoch=record["epoch"], figures=figures, refresh=True)
        else:
            self.note(text)

    def note(self, text: str) -> None:
        """Prints it above the bar."""
        self._progress.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        """Leaves the last state standing."""
        self._progress.stop()
