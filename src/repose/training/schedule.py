"""Learning rates as pure functions of the update's index, and the state of the plateau schedule.

The index s of an update starts at 0, like Keras' `iterations` in the papers' code, so a schedule that rises from zero
gives the first update a learning rate of 0.
"""

import dataclasses
import math
from typing import assert_never

from repose.config.experiment import ScheduleKind, TrainingConfig


@dataclasses.dataclass(frozen=True)
class Plateau:
    """The state of the plateau schedule, or of early stopping, after the validations so far."""

    best: float | None = None
    """Lowest cost: validation loss in nats per token, or -chrF (`TrainingConfig.best_by`)."""
    waiting: int = 0
    """Validations since the lowest cost, or since the last drop."""
    drops: int = 0
    """How often patience ran out."""

    def after(self, cost: float, *, patience: int, threshold: float = 0.0) -> "Plateau":
        """Return the state after a validation with this cost.

        After `patience` validations in a row without a cost below (1 - threshold) · best, a drop is counted and the
        wait restarts. (torch's `ReduceLROnPlateau` waits one validation longer; its default threshold is 1e-4.)
        """
        if self.best is None or cost < self.best * (1.0 - threshold):
            return dataclasses.replace(self, best=cost, waiting=0)
        if self.waiting + 1 < patience:
            return dataclasses.replace(self, waiting=self.waiting + 1)
        return dataclasses.replace(self, waiting=0, drops=self.drops + 1)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The learning rate of each update.

    - `noam`: factor · width^-0.5 · min(s^-0.5, s · warmup^-1.5) (Vaswani et al. 2017, section 5.3; arXiv 2410.04731,
      eq. 15), the peak factor · (width · warmup)^-0.5 at s = warmup;
    - `inverse_sqrt`: peak · min(s / warmup, (warmup / s)^0.5);
    - `linear`: peak · min(s / warmup, (end - s) / (end - warmup)): zero at the end. If a time limit ends the
      training before its last update, the end comes earlier, and so does a warm-up that is a share of all updates; a
      warm-up given in updates takes at most half of the training;
    - `constant`: peak · min(s / warmup, 1);
    - `plateau`: as `constant`, times factor^drops.

    Without warm-up, the first two fall from s = 1 on, and update 0 has the rate of update 1.
    """

    kind: ScheduleKind
    learning_rate: float
    """Factor of `noam`, or peak of the other schedules."""
    warmup: int
    """Number of updates over which the rate rises."""
    width: int
    """m of eq. 15; for `noam` only."""
    plateau_factor: float
    total: int | None = None
    """Updates of the whole training; for `linear` only. None if only a time limit ends the training: the warm-up then
    keeps its length, and the rate falls only if the warm-up ends before the training does."""
    warmup_is_share: bool = False
    """True if `warmup` was given as a share of `total`."""

    def __call__(self, update: int, drops: int = 0, *, end: float = math.inf) -> float:
        """Return the learning rate of update s = 0, 1, … `drops`: as counted by `Plateau`. `end`: the update at which
        the training is expected to end, if before `total`."""
        rise = min(1.0, update / self.warmup) if self.warmup else 1.0
        fall = math.sqrt(max(self.warmup, 1) / max(update, self.warmup, 1))
        match self.kind:
            case "noam":  # rise · fall / sqrt(warmup) = min(s^-0.5, s · warmup^-1.5)
                return self.learning_rate * rise * fall / math.sqrt(self.width * max(self.warmup, 1))
            case "inverse_sqrt":
                return self.learning_rate * rise * fall
            case "linear":
                return self.learning_rate * self._linear(update, end)
            case "constant":
                return self.learning_rate * rise
            case "plateau":
                return self.learning_rate * rise * math.pow(self.plateau_factor, drops)
            case _:
                assert_never(self.kind)

    def warmup_until(self, end: float) -> float:
        """Return the length of the warm-up in a training that is expected to end after `end` updates."""
        if self.kind != "linear" or self.total is None:
            return float(self.warmup)
        last = min(end, self.total)
        return self.warmup * last / self.total if self.warmup_is_share else min(self.warmup, last / 2)

    def _linear(self, update: int, end: float) -> float:
        last, warmup = end if self.total is None else min(end, self.total), self.warmup_until(end)
        rise = update / warmup if warmup else 1.0
        if math.isinf(last):  # the end is unknown until the first updates have been timed
            return min(1.0, rise)
        return max(0.0, min(1.0, rise, (last - update) / max(last - warmup, 1.0)))


def make_schedule(config: TrainingConfig, *, d_token: int, total_updates: int | None) -> Schedule:
    """Return the schedule of a training; `warmup_share` is a share of `total_updates`."""
    warmup = config.warmup_updates
    if config.warmup_share is not None:
        assert total_updates is not None, "TrainingConfig refuses a share of the unknown"
        warmup = round(config.warmup_share * total_updates)
    width = config.schedule_width or d_token
    shared = config.warmup_share is not None
    return Schedule(config.schedule, config.learning_rate, warmup, width, config.plateau_factor, total_updates, shared)
