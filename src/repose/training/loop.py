"""The training loop: plain PyTorch, one optimizer step per global batch, with the same results for any way of
sharing."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from repose.data.batching import Batches
from repose.saved_run.records import EndReason, EndRecord, RunStatus, timestamp
from repose.system.errors import ReposeError
from repose.system.signals import StopSignals
from repose.training import advice
from repose.training.checkpoint import CheckpointWriter
from repose.training.clock import Clock
from repose.training.display import Progress
from repose.training.distributed import World
from repose.training.feed import Feed, GlobalBatch
from repose.training.job import Outcome, TrainingJob
from repose.training.learner import Learner
from repose.training.schedule import make_schedule
from repose.training.state import State, Sums
from repose.training.validation import validate

RECORD_EVERY = 50
"""Updates between training records in metrics.jsonl."""
_EARLY_EPOCHS = 5  # after these, a model should have begun to read its source
_CLOCK_KNOWN = 20  # after these, the number of updates within a time limit can be estimated
_KERAS_BATCH = 64  # sentences per batch for tf_loss_keras, if batches are not counted in sentences

Evaluate = Callable[[Any, TrainingJob], Mapping[str, float]]
"""Computes further validation figures, such as BLEU, by name. Called on the first worker only."""
Samples = Callable[[Any, TrainingJob], Sequence[Sequence[str]]]
"""Returns a few sample sentences: source, translation and reference. Called on the first worker only."""

_Found = TypeVar("_Found")


class DivergenceError(ReposeError):
    """The gradient, or the loss in training or validation, is not finite."""


class Trainer:
    """One worker of a training, from its current state to the end."""

    def __init__(
        self,
        job: TrainingJob,
        learner: Learner,
        state: State,
        signals: StopSignals,
        clock: Clock,
        *,
        writer: CheckpointWriter | None,
        stop_after: int | None,
        until_epoch: int | None,
        evaluate: Evaluate | None,
        samples: Samples | None,
    ) -> None:
        """`writer`, `evaluate` and `samples`: on the first worker only. `stop_after` counts from the current update,
        `until_epoch` from the beginning."""
        self.job, self.config, self.world = job, job.training, learner.world
        self.learner, self.state, self.signals, self.clock = learner, state, signals, clock
        self.writer, self.evaluate, self.samples = writer, evaluate, samples
        task = learner.task
        self.valid_data = task.open(job.valid_data)
        data, c = task.open(job.train_data), self.config
        mixture = task.mixture(data, job)
        batches = Batches(data.src_lengths, data.tgt_lengths, c.batching, c.batch_size, c.seed, mixture=mixture)
        self.feed = Feed(task, task.sampler(data, job), batches, world=self.world, num_micro_batches=c.accumulation)
        self.updates_an_epoch = batches.num_updates(1)
        limits = (c.updates, c.epochs and batches.num_updates(c.epochs))
        self.total = min((limit for limit in limits if limit is not None), default=None)
        self.schedule = make_schedule(c, d_token=job.architecture.d_token, total_updates=self.total)
        self.stop_at = None if stop_after is None else state.update + stop_after
        self.until_epoch = until_epoch
        # Reading a figure makes the CPU wait for the GPU, so on a GPU this is done only once for several updates.
        self.synchronise_every = 1 if self.world.device.type == "cpu" else 10
        self.end = math.inf
        """The update at which the time limit is expected to end the training."""
        self.pending = Sums()
        self.stop_requested: EndReason | None = None
        self.out_of_time = False
        self.window = (time.monotonic(), state.tokens)
        """The time, and the tokens trained on, from which the speed of the next record is measured."""

    def run(self) -> Outcome:
        """Train until a limit is reached or a stop is requested."""
        state = self.state
        self._note(self.config.warmup_warning(self.total))
        batches = self.feed.epoch(state.epoch, state.batch)
        self._synchronise()
        while True:
            limit, stop = self._limit(), self._stop()
            if stop is not None and limit is None:
                return self._stopped(stop)
            if state.validated < state.update and (limit is not None or self._validation_is_due()):
                self._validate()
            elif limit is not None:
                return self._done(limit)
            else:
                self._update(next(batches))
                if state.batch == 0:
                    batches = self.feed.epoch(state.epoch, 0)

    def _limit(self) -> EndReason | None:
        """Return which limit of the training is reached, if any. A time limit allows at least one update, so that there
        is something to record."""
        c, s = self.config, self.state
        if c.patience is not None and s.patience.drops:
            return EndReason.PATIENCE
        if c.updates is not None and s.update >= c.updates:
            return EndReason.UPDATES
        if c.epochs is not None and s.epoch >= c.epochs:
            return EndReason.EPOCHS
        return EndReason.HOURS if self.out_of_time and s.update else None

    def _stop(self) -> EndReason | None:
        """Return why the training should stop before its end, if it should; the same on all workers."""
        if self.stop_at is not None and self.state.update >= self.stop_at:
            return EndReason.STOP_AFTER
        if self.until_epoch is not None and self.state.epoch >= self.until_epoch:
            validates = self._validation_is_due() and self.state.validated < self.state.update
            return None if validates else EndReason.UNTIL_EPOCH
        return self.stop_requested

    def _validation_is_due(self) -> bool:
        every = self.config.validate_every_updates
        return self.state.batch == 0 if every is None else self.state.update % every == 0

    def _translation_is_due(self) -> bool:
        """Return whether enough epochs have ended since the last validation with translations; validations need not be
        at the ends of epochs."""
        every, state = self.config.bleu_every_epochs, self.state
        if self.config.best_by == "chrf":
            return True
        return every is not None and state.epoch // every > state.translated // every

    def _update(self, batch: GlobalBatch) -> None:
        """Take one optimizer step, and do what is due after it."""
        state = self.state
        rate = self.schedule(state.update, state.plateau.drops, end=self.end)
        self.learner.backward(batch, state.update)
        self.pending.tokens += batch.tokens
        self.pending.sentences += batch.sentences
        is_recorded = (state.update + 1) % RECORD_EVERY == 0
        synchronises = (state.update + 1) % self.synchronise_every == 0 or is_recorded or batch.last
        if synchronises:
            self._synchronise()  # before the step, so that a step along a non-finite gradient is never saved
        self.learner.step(rate)
        state.update += 1
        state.batch = 0 if batch.last else state.batch + 1
        state.epoch += batch.last
        state.tokens += batch.tokens
        if is_recorded:
            self._record("train", self._training_figures(state.window_sums, rate), speed=self._speed())
            state.window_sums = Sums()
        if batch.last:
            self._record("epoch", self._training_figures(state.epoch_sums, rate))
            state.epoch_sums = Sums()
        if state.update == _CLOCK_KNOWN:
            self._warn_of_time_limit()
        if self.writer is not None:
            self.writer.journal.advance(self._progress())
            if synchronises and self.writer.is_due:
                self.writer.save()

    def _synchronise(self) -> None:
        """Sum all workers' figures since the last call, and share signals and the time, in a single tensor because each
        exchange takes time.

        Raises DivergenceError if the loss or the gradient is not finite.
        """
        state, learner, clock = self.state, self.learner, self.clock
        is_late, left = False, 0.0
        if self.world.rank == 0:  # whose clock counts for all
            is_late, left = clock.seconds_left == 0, clock.updates_left(state.update)
        more = [self.signals.received is not None, is_late, left]
        told = torch.tensor(more, dtype=learner.sums.dtype, device=self.world.device)
        *figures, stops, late, updates_left = self.world.add(torch.cat([learner.sums, told])).tolist()
        learner.sums.zero_()
        self.end = state.update + updates_left
        loss = figures[0]
        if not (math.isfinite(loss) and math.isfinite(float(learner.norm))):
            raise self._diverged("gradient" if math.isfinite(loss) else "loss")
        for sums in (state.epoch_sums, state.window_sums):
            sums.add(*figures)
            sums.tokens += self.pending.tokens
            sums.sentences += self.pending.sentences
        self.pending = Sums()
        if stops:
            received = self.signals.received
            self.stop_requested = EndReason.OTHER_WORKER if received is None else EndReason(received)
        self.out_of_time = late > 0

    def _progress(self) -> Progress:
        """Return how far the training is, and how long it may still take at its speed so far."""
        update, left = self.state.update, self.clock.seconds_left
        if self.total is not None and (pace := self.clock.pace(update)) is not None:
            left = min(left, max(0, self.total - update) / pace)
        by_clock = math.isfinite(self.end) and (self.total is None or self.end < self.total)
        return Progress(
            update,
            total=max(update, round(self.end)) if by_clock else self.total,
            is_estimate=by_clock,
            epoch=self._epoch(),
            seconds_left=left if math.isfinite(left) else None,
            may_end_earlier=self.config.patience is not None,
        )

    def _warn_of_time_limit(self) -> None:
        """Warn if the time limit leaves too few updates for what is set."""
        c, total, end = self.config, self.total, self.end
        epochs, planned = (updates / self.updates_an_epoch for updates in (end, total or math.inf))
        in_warmup = advice.ends_in_warmup(c, total=total, end=end, warmup=self.schedule.warmup)
        self._note(in_warmup or advice.leaves_few_epochs(c, epochs=epochs, planned=planned))

    def _diverged(self, what: str) -> DivergenceError:
        state = self.state
        why = advice.divergence(what, self.config, update=state.update, has_model=bool(state.snapshots))
        return DivergenceError(why)

    def _ignored_source(self, ended: EndReason | None = None) -> str | None:
        """Return the warning if the last validation found that the model ignores its source."""
        state, in_warmup = self.state, self.state.update < self.schedule.warmup_until(self.end)
        gain = state.validation.get("source_gain")
        return advice.ignores_source(gain, self.job.architecture, self.config, in_warmup=in_warmup, ended=ended)

    def _note(self, sentence: str | None) -> None:
        """Write a message, if there is one, on the first worker."""
        if self.writer is not None and sentence is not None:
            self.writer.journal.note(sentence)

    def _record(self, kind: str, figures: Mapping[str, float], *, speed: float | None = None) -> None:
        """Write a record. Values that depend on time are kept apart, so that the rest of two files can be compared."""
        if self.writer is None:
            return
        wall = {"seconds": round(self.clock.seconds, 3)}
        if speed is not None:
            wall["tokens_per_second"] = round(speed, 1)
        place = {"kind": kind, "update": self.state.update, "epoch": self._epoch()}
        self.writer.journal.record({**place, **figures, "wall": wall})

    def _epoch(self) -> int:
        """Epoch of the last update, from 1."""
        return self.state.epoch + (self.state.batch > 0)

    def _training_figures(self, sums: Sums, rate: float) -> dict[str, float]:
        more = {"learning_rate": rate, "grad_norm": float(self.learner.norm), "tokens": self.state.tokens}
        return {**sums.means(), **more}

    def _speed(self) -> float:
        """Return the target tokens per second of training since the last call."""
        (then, tokens), self.window = self.window, (time.monotonic(), self.state.tokens)
        return (self.state.tokens - tokens) / (self.window[0] - then)

    def _validate(self) -> None:
        """Validate the current weights, and update which weights make up the model.

        Raises DivergenceError, before anything is changed, if the loss is not finite.
        """
        state, c = self.state, self.config
        self._synchronise_rest()
        began = time.monotonic()
        figures = self._figures(self.world)
        loss = figures["tf_loss"]
        if not math.isfinite(loss):
            raise self._diverged("validation loss")
        state.validated = state.update
        if self._translation_is_due():
            state.translated = state.epoch
            figures = {**figures, **self._translate()}
        # The cost that models are chosen by; lower is better.
        cost = loss if c.best_by == "loss" else -self.world.of_first(figures.get("chrf", 0.0))
        if c.patience is not None:
            state.patience = state.patience.after(cost, patience=c.patience)
        if c.schedule == "plateau" and state.update > self.schedule.warmup and self._epoch() > c.plateau_after_epochs:
            state.plateau = state.plateau.after(loss, patience=c.plateau_patience, threshold=c.plateau_threshold)
        is_of_model = state.add_snapshot(cost, keep=c.keep, number=c.average_checkpoints)
        if self.writer is not None:
            state.validation = figures
            self._record("valid", figures)
            self._show_samples()
            if state.epoch == _EARLY_EPOCHS and state.batch == 0:
                self._note(self._ignored_source())
            if is_of_model:
                state.of_model = figures if len(state.snapshots) == 1 else {}
                self.writer.save_snapshot()
                self.writer.write_model(is_measured=len(state.snapshots) == 1)
            self.writer.save()
        # To write the model, the first worker temporarily replaced the weights, which workers may share: wait for it.
        self.world.barrier()
        before, tokens = self.window
        self.window = (before + time.monotonic() - began, tokens)  # the speed is that of training alone

    def _figures(self, world: World) -> dict[str, float]:
        """Return the current weights' figures on the validation set."""
        c, learner = self.config, self.learner
        keras_batch = c.batch_size if c.batching == "sentences" else _KERAS_BATCH
        return validate(learner.model, learner.task, self.valid_data, world=world).figures(keras_batch)

    def _measure_average(self) -> None:
        """Validate the mean of several validations' weights, which has not been validated yet. With keep = "best", the
        single best weights become the model if they are better than the mean, as can happen after few epochs."""
        state, writer = self.state, self.writer
        if writer is None or len(state.snapshots) < 2:
            state.validation = state.of_model or state.validation
            return
        figures, cost = self._figures_of_model(writer)
        if self.config.keep == "best" and not cost <= state.snapshots[0][1]:  # also true for NaN
            del state.snapshots[1:]
            figures, _ = self._figures_of_model(writer)
            writer.journal.note("the best validation's weights beat the mean of several and are kept")
        state.validation = figures
        self._record("model", figures)
        writer.write_model()

    def _figures_of_model(self, writer: CheckpointWriter) -> tuple[dict[str, float], float]:
        """Return the model's figures on the validation set, and the cost that models are chosen by (lower is better).
        Runs on the first worker only, when the others are done."""
        with writer.weights_of_model():
            figures = self._figures(World(0, 1, self.world.device))
            if self.config.best_by == "loss":
                return figures, figures["tf_loss"]
            figures |= self._translate()
        return figures, -figures.get("chrf", 0.0)

    def _translate(self) -> Mapping[str, float]:
        """Return figures on translations of the validation set; only the first worker has them."""
        return {} if self.evaluate is None else self._in_evaluation(self.evaluate)

    def _show_samples(self) -> None:
        """Show sample translations."""
        if self.writer is not None and self.samples is not None and self.writer.journal.wants_samples:
            self.writer.journal.samples(self._in_evaluation(self.samples))

    def _in_evaluation(self, of: Callable[[Any, TrainingJob], _Found]) -> _Found:
        """Call a function with the model in evaluation mode."""
        self.learner.model.eval()
        with torch.no_grad():
            found = of(self.learner.model, self.job)
        self.learner.model.train()
        return found

    def _synchronise_rest(self) -> None:
        """Sum pending figures before a checkpoint; they would be lost, and might not be finite."""
        if self.pending.tokens:
            self._synchronise()

    def _stopped(self, reason: EndReason) -> Outcome:
        self._synchronise_rest()
        if self.writer is not None:
            self.writer.save()  # before the last record, so that a resumed run overwrites that record
        return self._ended(RunStatus.STOPPED, reason, ": the same command resumes the run")

    def _done(self, reason: EndReason) -> Outcome:
        self.state.done = reason
        self._measure_average()
        outcome = self._ended(RunStatus.DONE, reason)
        if self.writer is not None:
            self.writer.save()
        return outcome

    def _ended(self, status: RunStatus, reason: EndReason, more: str = "") -> Outcome:
        state = self.state
        if self.writer is not None:
            place = {"update": state.update, "epoch": self._epoch()}
            seconds, at = self.clock.seconds, timestamp()
            end = EndRecord(status=status, reason=reason, **place, seconds=seconds, at=at, total=self.total)
            self.writer.journal.end(end)
            if status is RunStatus.DONE:
                self._note(self._ignored_source(reason))
            self._note(f"{status} at update {state.update:,} ({reason.describe(self.config)}){more}")
        return Outcome(status, reason, state.update, state.validation)
