"""Learning rates as pure functions of the update's index, and the little state of the plateau schedule.

The index s of an update starts at 0, as Keras' `iterations` does in the papers' code: a schedule that rises from zero
makes its first update with learning rate 0.
"""

import dataclasses
import math
from typing import assert_never

from repose.config.experiment import ScheduleKind, TrainingConfig


@dataclasses.dataclass(frozen=True)
class Plateau:
    """What the validations so far say: for the plateau schedule and for early stopping."""

    best: float | None = None
    """Lowest cost: validation loss in nats per token, or -chrF where that judges (`TrainingConfig.best_by`)."""
    waiting: int = 0
    """Validations since then, or since the last drop."""
    drops: int = 0
    """How often the patience ran out."""

    def after(self, cost: float, *, patience: int, threshold: float = 0.0) -> "Plateau":
        """The state after a validation with this cost.

        `patience` validations in a row without a cost below (1 - threshold) · best count as a drop, and the wait
        begins anew. (torch's `ReduceLROnPlateau` waits one validation more, and its threshold is 1e-4 unless told.)
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
    - `linear`: peak · min(s / warmup, (end - s) / (end - warmup)): zero at the end. Where the clock ends a training
      before its last update does, the end comes earlier and with it a warm-up that is a share of all updates; one of a
      number of updates takes half of the training at most;
    - `constant`: peak · min(s / warmup, 1);
    - `plateau`: as `constant`, times factor^drops.

    Without warm-up the first two fall from s = 1 on, and update 0 has the rate of update 1.
    """

    kind: ScheduleKind
    learning_rate: float
    """The factor of `noam`, the peak of the others."""
    warmup: int
    """Updates over which the rate rises."""
    width: int
    """m of eq. 15; `noam` only."""
    plateau_factor: float
    total: int | None = None
    """Updates of the whole training; `linear` only. Without it, where the clock alone ends the training, the warm-up
    keeps its length, and the rate falls only if that is over before the end."""
    warmup_is_share: bool = False
    """Whether `warmup` was asked for as a share of `total`."""

    def __call__(self, update: int, drops: int = 0, *, end: float = math.inf) -> float:
        """The learning rate of update s = 0, 1, …; `drops` as counted by `Plateau`, `end`: the updates after which the
        training is expected to end, if that is before `total`."""
        rise = min(1.0, update / self.warmup) if self.warmup else 1.0
        fall = math.sqrt(max(self.warmup, 1) / max(update, self.warmup, 1))
        match self.kind:
            case "noam":
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
        """Updates over which the rate rises, where the training is expected to end after so many."""
        if self.kind != "linear" or self.total is None:
            return float(self.warmup)
        last = min(end, self.total)
        return self.warmup * last / self.total if self.warmup_is_share else min(self.warmup, last / 2)

    def _linear(self, update: int, end: float) -> float:
        last, warmup = end if self.total is None else min(end, self.total), self.warmup_until(end)
        rise = update / warmup if warmup else 1.0
        if math.isinf(last):  # nothing is known before the first updates have taken their time
            return min(1.0, rise)
        return max(0.0, min(1.0, rise, (last - update) / max(last - warmup, 1.0)))


def make_schedule(config: TrainingConfig, *, d_token: int, total_updates: int | None) -> Schedule:
    """The schedule of a training; `warmup_share` is a share of `total_updates`."""
    warmup = config.warmup_updates
    if config.warmup_share is not None:
        assert total_updates is not None, "TrainingConfig refuses a share of the unknown"
        warmup = round(config.warmup_share * total_updates)
    width = config.schedule_width or d_token
    shared = config.warmup_share is not None
    return Schedule(config.schedule, config.learning_rate, warmup, width, config.plateau_factor, total_updates, shared)
