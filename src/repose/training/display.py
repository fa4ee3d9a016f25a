"""Show a training's progress on stderr: a progress bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

from repose.saved_run.records import Record
from repose.system.errors import ConfigError, unknown
from repose.system.terminal import Say, duration

ProgressKind = Literal["auto", "live", "lines", "none"]


@dataclass(frozen=True)
class Progress:
    """How far a training is, and the time that it may still take."""

    update: int = 0
    """Optimizer steps taken."""
    total: int | None = None
    """Total number of optimizer steps, if known."""
    is_estimate: bool = False
    """True if a time limit ends the training, after about as many steps at its speed so far."""
    epoch: int = 1
    """Epoch of the last update, from 1."""
    seconds_left: float | None = None
    """Seconds until a limit ends the training, at its speed so far; None if unknown."""
    may_end_earlier: bool = False
    """True if early stopping may end it sooner."""

    @property
    def time_left(self) -> str:
        """Return text such as "12 min left"; "" if unknown."""
        if self.seconds_left is None or self.update == self.total:
            return ""
        return ("at most " if self.may_end_earlier else "") + f"{duration(self.seconds_left)} left"

    @property
    def of_total(self) -> str:
        """Return text such as " of 1,360", or " of about 1,360"; "" if unknown."""
        return "" if self.total is None else f" of {'about ' * self.is_estimate}{self.total:,}"


class Display:
    """Base class of displays, which shows nothing."""

    def advance(self, progress: Progress) -> None:
        """Show that an update is done. Called after each one, so it must be cheap."""

    def record(self, record: Record, text: str) -> None:
        """Show figures, given as a record and as a line of text."""

    def note(self, text: str) -> None:
        """Show a line that must be seen."""

    def close(self) -> None:
        """End the display."""


class Lines(Display):
    """Plain lines for logs: every epoch and validation, and the progress at most every half minute."""

    SECONDS = 30.0

    def __init__(self, say: Say) -> None:
        self._say = say
        self._shown = time.monotonic()

    def advance(self, progress: Progress) -> None:
        if time.monotonic() - self._shown >= self.SECONDS:
            left = progress.time_left and f", {progress.time_left}"
            self.note(f"epoch {progress.epoch}, update {progress.update:,}{progress.of_total}{left}")

    def record(self, record: Record, text: str) -> None:
        if record["kind"] != "train" or time.monotonic() - self._shown >= self.SECONDS:
            self.note(text)

    def note(self, text: str) -> None:
        self._shown = time.monotonic()
        self._say(text)


class Live(Display):
    """A progress bar, drawn by rich at most twice a second so that it does not slow the training."""

    SECONDS = 0.5

    def __init__(self) -> None:
        from rich import progress as bars
        from rich.console import Console

        columns = (
            bars.TextColumn("epoch {task.fields[epoch]}"),
            bars.BarColumn(bar_width=24),
            bars.MofNCompleteColumn(),
            bars.TextColumn("{task.fields[figures]}"),
            bars.TextColumn("{task.fields[left]}"),
        )
        self._progress = bars.Progress(*columns, console=Console(stderr=True, emoji=False), auto_refresh=False)
        self._task = self._progress.add_task("training", total=None, epoch=1, figures="", left="")
        self._shown = 0.0
        self._progress.start()

    def advance(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._shown >= self.SECONDS:
            self._shown = now
            self._progress.update(
                self._task,
                completed=progress.update,
                total=progress.total,
                refresh=True,
                epoch=progress.epoch,
                left=progress.time_left,
            )

    def record(self, record: Record, text: str) -> None:
        """Show training figures beside the bar, others above it."""
        if record["kind"] == "train":
            figures = f"loss {record['loss']:.3f}  {record['wall']['tokens_per_second']:,.0f} tokens/s"
            self._progress.update(self._task, figures=figures, refresh=True)
        else:
            self.note(text)

    def note(self, text: str) -> None:
        self._progress.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        self._progress.stop()


def check_progress(kind: ProgressKind) -> None:
    """Raise ConfigError for an unknown way to show progress."""
    if kind not in get_args(ProgressKind):
        raise ConfigError(unknown("progress", kind, get_args(ProgressKind)))


def make_display(kind: ProgressKind, say: Say) -> Display:
    """Return the display. `auto`: a progress bar if stderr is a terminal, else lines, which are passed to `say`."""
    if kind == "none":
        return Display()
    return Live() if _is_live(kind) else Lines(say)


def _is_live(kind: ProgressKind) -> bool:
    return kind == "live" or (kind == "auto" and sys.stderr.isatty())


@contextmanager
def shown(what: str, kind: ProgressKind, say: Say) -> Iterator[Callable[[float], None]]:
    """Yield a function that shows how far some other work than training is, given the share that is done, from 0 to 1:
    in a bar, which goes when the block ends, or in lines, as `make_display` decides."""
    from rich import progress as bars
    from rich.console import Console

    live = _is_live(kind)
    columns = (bars.TextColumn(what), bars.BarColumn(bar_width=24), bars.TextColumn("{task.description}"))
    console = Console(stderr=True, emoji=False)
    bar = bars.Progress(*columns, console=console, auto_refresh=False, transient=True, disable=not live)
    task = bar.add_task("", total=1.0)
    began = told = time.monotonic()
    pause = Live.SECONDS if live else Lines.SECONDS

    def show(share: float) -> None:
        nonlocal told
        now = time.monotonic()
        if kind == "none" or share == 1.0 or now - told < pause:
            return
        told = now
        done = f"{100 * share:.0f} % done, about {duration((now - began) * (1 - share) / share)} left"
        if live:
            bar.update(task, completed=share, description=done, refresh=True)
        else:
            say(f"{what}: {done}")

    with bar:
        yield show
