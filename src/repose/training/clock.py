"""The time of a training: how much it has taken, and how much it may still take."""

import math
import time


class Clock:
    """Wall-clock time of a training, summed over resumes, and its speed."""

    def __init__(self, seconds: float, *, update: int, max_hours: float | None) -> None:
        """`seconds` and `update`: how far the training is. `max_hours`: its time limit."""
        self._started = time.monotonic() - seconds
        self._limit = math.inf if max_hours is None else 3600 * max_hours
        self._first: tuple[int, float] | None = (0, 0.0) if update else None
        """The update, and its time in seconds, from which the speed is measured: after a new training's first update,
        which takes longer than others."""

    @property
    def seconds(self) -> float:
        """Seconds that the training has taken."""
        return time.monotonic() - self._started

    @property
    def seconds_left(self) -> float:
        """Seconds until the time limit; infinite without one."""
        return max(0.0, self._limit - self.seconds)

    def pace(self, update: int) -> float | None:
        """Return the updates per second up to this update, which has just been made; None if unknown."""
        seconds = self.seconds
        if self._first is None and update:
            self._first = (update, seconds)
        if self._first is None or update <= self._first[0] or seconds <= self._first[1]:
            return None  # a coarse clock may show the same time after an update
        return (update - self._first[0]) / (seconds - self._first[1])

    def updates_left(self, update: int) -> float:
        """Estimate the updates until the time limit ends the training; infinite without one, or if unknown."""
        pace = self.pace(update)
        return math.inf if pace is None else self.seconds_left * pace
