"""The training loop: plain PyTorch, one optimizer step per global batch, the same numbers however it is shared out."""

import hashlib
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from repose import model_dir
from repose.data.batching import Batches
from repose.data.dataset import PairDataset
from repose.data.tokenizer import Tokenizer
from repose.errors import ReposeError
from repose.model.transformer import Transformer
from repose.training import checkpoint
from repose.training.distributed import World
from repose.training.exchange import AllReduce
from repose.training.feed import Feed, Update
from repose.training.flat import FlatParameters
from repose.training.job import Outcome, TrainingJob
from repose.training.journal import Journal
from repose.training.loss import cross_entropy
from repose.training.schedule import make_schedule
from repose.training.signals import StopSignals
from repose.training.state import State, Sums
from repose.training.validation import validate

RECORD_EVERY = 50
"""Updates between lines about the training in metrics.jsonl."""
Evaluate = Callable[[Transformer, TrainingJob], Mapping[str, float]]
"""Further figures of the validation set, such as BLEU, by names; called on the first worker alone."""


class DivergenceError(ReposeError):
    """The loss or the gradient is no longer a finite number."""


def dropout_seed(seed: int, update: int, part: int, rank: int) -> int:
    """The random seed of one forward pass: 63 bits of BLAKE2b of the four numbers.

    So nothing random needs to be saved: an update's masks depend on where it stands, not on what ran before it.
    """
    digest = hashlib.blake2b(f"repose dropout 1/{seed}/{update}/{part}/{rank}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class Trainer:
    """One worker of a training, from its checkpoint to its end."""

    def __init__(
        self,
        job: TrainingJob,
        run_dir: Path,
        world: World,
        model: Transformer,
        flat: FlatParameters,
        exchange: AllReduce,
        state: State,
        *,
        journal: Journal | None,
        stop_after: int | None,
        evaluate: Evaluate | None,
        signals: StopSignals,
    ) -> None:
        """`journal` and `evaluate` are the first worker's; `exchange` holds the state's weights and moments."""
        self.job, self.config, self.world, self.state = job, job.training, world, state
        self.run_dir, self.state_dir = run_dir, run_dir / "state"
        self.model, self.flat, self.exchange = model, flat, exchange
        self.journal, self.evaluate, self.signals = journal, evaluate, signals
        train_data, self.valid_data = PairDataset.open(job.train_data), PairDataset.open(job.valid_data)
        batches = Batches(
            train_data.tgt_lengths,
            self.config.batching,
            self.config.batch_size,
            self.config.seed,
            src_lengths=train_data.src_lengths,
        )
        self.feed = Feed(
            train_data,
            batches,
            rank=world.rank,
            world_size=world.size,
            num_parts=self.config.accumulation,
            device=world.device,
        )
        per_epoch = batches.num_batches(0)
        limits = [self.config.updates, self.config.epochs and self.config.epochs * per_epoch]
        self.total = min((limit for limit in limits if limit), default=None)
        self.schedule = make_schedule(self.config, d_token=job.architecture.d_token, batches_per_epoch=per_epoch)
        self.stop_at = None if stop_after is None else state.update + stop_after
        self.optimizer = self._adam()
        # Reading a figure off a GPU makes it wait: there, several updates share one look.
        self.look_every = 1 if world.device.type == "cpu" else 10
        self.stats = torch.zeros(7, dtype=torch.float64, device=world.device)
        self.norm = torch.zeros((), device=world.device)
        self.unread = Sums()
        self.stop_requested: str | None = None
        self.out_of_time = False
        self.started = time.monotonic() - state.seconds
        self.saved = time.monotonic()
        self.window = (time.monotonic(), state.tokens)

    def _adam(self) -> torch.optim.Optimizer:
        c, x = self.config, self.exchange
        weights = torch.nn.Parameter(x.weights[x.owned])
        weights.grad = x.gradient[x.owned]
        kind = torch.optim.Adam if c.weight_decay_kind == "l2" else torch.optim.AdamW
        optimizer = kind(
            [weights], betas=(c.adam_beta1, c.adam_beta2), eps=c.adam_eps, weight_decay=c.weight_decay, fused=True
        )
        step = torch.tensor(float(self.state.update), device=self.world.device)
        optimizer.state[weights] = {
            "step": step,
            "exp_avg": x.exp_avg[x.owned],
            "exp_avg_sq": x.exp_avg_sq[x.owned],
        }
        return optimizer

    def run(self) -> Outcome:
        """Train until a limit is reached or a stop is asked for."""
        state, config = self.state, self.config
        self._look()
        while True:
            updates = self.feed.epoch(state.epoch, state.batch)
            while True:
                ending = self._ending()
                if not ending and (stop := self._stop()):
                    return self._stopped(stop)
                every = config.validate_every_updates
                due = state.batch == 0 if every is None else state.update % every == 0
                if (ending or due) and state.validated < state.update:
                    self._validate(ending)
                    continue
                if ending:
                    return self._done(ending)
                self._update(next(updates))
                if state.batch == 0:
                    break

    def _ending(self) -> str | None:
        """Which limit of the training is reached."""
        c, s = self.config, self.state
        if c.patience is not None and s.patience.drops:
            return f"no better validation loss in {c.patience} validations"
        if c.updates is not None and s.update >= c.updates:
            return f"{c.updates} updates"
        if c.epochs is not None and s.epoch >= c.epochs:
            return f"{c.epochs} epochs"
        return f"{c.max_hours:g} hours" if self.out_of_time else None

    def _stop(self) -> str | None:
        """What asks for stopping before the end; all workers agree."""
        if self.stop_at is not None and self.state.update >= self.stop_at:
            return "stop after so many updates"
        return self.stop_requested

    def _update(self, update: Update) -> None:
        """One optimizer step, and what is due after it."""
        state = self.state
        rate = self.schedule(state.update, state.plateau.drops)
        self._gradient(update)
        self.exchange.sum()
        self.norm = self.exchange.norm()
        if self.config.clip_norm is not None:
            self.exchange.gradient[self.exchange.owned] *= (self.config.clip_norm / (self.norm + 1e-6)).clamp(max=1.0)
        looks = (state.update + 1) % self.look_every == 0 or update.last
        if looks and self.world.device.type == "cpu":
            self._look()  # before the weights change: they stay those of the last good update
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.exchange.publish()
        state.update += 1
        state.batch = 0 if update.last else state.batch + 1
        state.epoch += update.last
        state.tokens += update.tokens
        if looks and self.world.device.type != "cpu":
            self._look()
        if state.update % RECORD_EVERY == 0:
            self._record("train", state.window_sums, rate)
            state.window_sums = Sums()
        if update.last:
            self._record("epoch", state.epoch_sums, rate)
            state.epoch_sums = Sums()
        if self.journal is not None:
            self.journal.advance(state.update, self.total)
            if looks and time.monotonic() - self.saved > 60 * self.config.save_every_minutes:
                self._save()

    def _gradient(self, update: Update) -> None:
        """This worker's part of the gradient of the mean loss over the global batch."""
        kind, config = self.world.device.type, self.config
        self.exchange.local.zero_()
        for number, part in enumerate(update.parts):
            if part is None:
                continue
            torch.manual_seed(dropout_seed(config.seed, self.state.update, number, self.world.rank))
            with torch.autocast(kind, torch.bfloat16, enabled=config.precision == "bf16"):
                hidden = self.model.hidden(part.src, part.tgt)
                output = self.model.output
                sums = cross_entropy(
                    hidden, output.weight, output.bias, part.labels, label_smoothing=config.label_smoothing
                )
            (sums.loss / update.tokens).backward()
            loss, nll = sums.loss.detach(), sums.nll
            weight = update.sentences / update.tokens
            self.stats[:5] += torch.stack([loss, nll, sums.correct, loss * weight, nll * weight])
        self.unread.tokens += update.tokens
        self.unread.sentences += update.sentences

    def _look(self) -> None:
        """Add up the workers' figures since the last look, and learn of signals and of the clock."""
        hours = self.config.max_hours
        self.stats[5] = float(self.signals.received is not None)
        if self.world.rank == 0:
            self.state.seconds = time.monotonic() - self.started
            self.stats[6] = float(hours is not None and self.state.seconds >= 3600 * hours)
        loss, nll, correct, weighted_loss, weighted_nll, stop, late = self.world.add(self.stats).tolist()
        self.stats.zero_()
        if not (math.isfinite(loss) and math.isfinite(float(self.norm))):
            raise DivergenceError(self._divergence(loss))
        for sums in (self.state.epoch_sums, self.state.window_sums):
            sums.loss += loss
            sums.nll += nll
            sums.correct += correct
            sums.weighted_loss += weighted_loss
            sums.weighted_nll += weighted_nll
            sums.tokens += self.unread.tokens
            sums.sentences += self.unread.sentences
        self.unread = Sums()
        if stop:
            self.stop_requested = self.signals.received or "a signal to another worker"
        self.out_of_time = bool(late)

    def _divergence(self, loss: float) -> str:
        c = self.config
        what = "loss" if not math.isfinite(loss) else "gradient"
        clip = "set training.clip_norm, " if c.clip_norm is None else ""
        precision = ", or training.precision = 'fp32'" if c.precision == "bf16" else ""
        return (
            f"the {what} is no longer finite near update {self.state.update}: {clip}lower training.learning_rate "
            f"({c.learning_rate:g}) or raise training.warmup_updates ({c.warmup_updates}){precision}"
        )

    def _record(self, kind: str, sums: Sums, rate: float) -> None:
        if self.journal is None:
            return
        now, state = time.monotonic(), self.state
        wall = {"seconds": round(now - self.started, 3)}
        if kind == "train":
            before, tokens = self.window
            wall["tokens_per_second"] = round((state.tokens - tokens) / (now - before), 1)
            self.window = (now, state.tokens)
        figures = sums.means()
        head = {"kind": kind, "update": state.update, "epoch": self._epoch_of_last_update()}
        self.journal.record(
            {
                **head,
                **figures,
                "learning_rate": rate,
                "grad_norm": float(self.norm),
                "tokens": state.tokens,
                "wall": wall,
            }
        )

    def _epoch_of_last_update(self) -> int:
        return self.state.epoch + (self.state.batch > 0)

    def _validate(self, ending: str | None) -> None:
        """Measure the present weights, and update what the model is made of."""
        state, config = self.state, self.config
        began = time.monotonic()
        figures = validate(
            self.model,
            self.valid_data,
            keras_batch=config.batch_size if config.batching == "sentences" else 64,
            device=self.world.device,
            rank=self.world.rank,
            world_size=self.world.size,
            add=self.world.add,
        )
        loss = figures["tf_loss"]
        state.validated = state.update
        if config.patience is not None:
            state.patience = state.patience.after(loss, patience=config.patience)
        if config.schedule == "plateau" and state.update > self.schedule.warmup:
            state.plateau = state.plateau.after(loss, patience=config.plateau_patience)
        changed = self._keep(loss)
        if self.journal is not None:
            every = config.bleu_every_epochs
            if self.evaluate is not None and every and state.batch == 0 and state.epoch % every == 0:
                self.model.eval()
                with torch.no_grad():
                    figures |= self.evaluate(self.model, self.job)
                self.model.train()
            state.validation = figures
            wall = {"seconds": round(time.monotonic() - self.started, 3)}
            head = {"kind": "valid", "update": state.update, "epoch": self._epoch_of_last_update()}
            self.journal.record({**head, **figures, "wall": wall})
            if changed:
                self._write_model()
            self._save()
        before, tokens = self.window
        self.window = (before + time.monotonic() - began, tokens)

    def _keep(self, loss: float) -> bool:
        """Choose the validations that the model is made of; whether this one is among them."""
        state, config = self.state, self.config
        state.kept.append((state.update, loss))
        if config.keep == "best":
            state.kept.sort(key=lambda kept: kept[1])
            del state.kept[config.average_checkpoints :]
        else:
            del state.kept[: -config.average_checkpoints]
        kept = (state.update, loss) in state.kept
        if kept and self.world.rank == 0 and self._snapshots():
            checkpoint.save(checkpoint.snapshot(self.state_dir, state.update), self._model_tensors(), state)
        return kept

    def _snapshots(self) -> bool:
        """Whether the model can be other than the present weights."""
        return self.config.keep == "best" or self.config.average_checkpoints > 1

    def _write_model(self) -> None:
        """Write model/: the present weights, or the mean of the kept ones."""
        tensors = self._model_tensors()
        present = {name: tensor.clone() for name, tensor in tensors.items()} if self._snapshots() else {}
        if present:
            paths = [checkpoint.snapshot(self.state_dir, update) for update, _ in self.state.kept]
            checkpoint.load_average(paths, tensors)
        job = self.job
        src, tgt = Tokenizer.load(job.src_tokenizer), Tokenizer.load(job.tgt_tokenizer)
        extra = {"run_id": job.run_id, "update": self.state.update, "validation": self.state.validation}
        try:
            model_dir.save(
                self.run_dir / "model",
                self.model,
                src.json,
                tgt.json,
                card=job.card,
                extra={**job.model_extra, **extra},
            )
        finally:
            with torch.no_grad():
                for name, tensor in present.items():
                    tensors[name].copy_(tensor)

    def _model_tensors(self) -> dict[str, Tensor]:
        return model_tensors(self.model, self.flat.views(self.exchange.weights))

    def _save(self) -> None:
        """Write the checkpoint, then drop the snapshots that it no longer names. On the first worker."""
        assert self.journal is not None
        state = self.state
        state.seconds = time.monotonic() - self.started
        state.metrics_bytes = self.journal.sync()
        checkpoint.save(self.state_dir / "last.safetensors", all_tensors(self.model, self.flat, self.exchange), state)
        checkpoint.prune(self.state_dir, [update for update, _ in state.kept])
        self.saved = time.monotonic()

    def _stopped(self, reason: str) -> Outcome:
        if self.journal is not None:
            self._save()
            self.journal.note(f"stopped at update {self.state.update} ({reason}); the same command goes on from here")
        return Outcome("stopped", reason, self.state.update, self.state.validation)

    def _done(self, reason: str) -> Outcome:
        self.state.status, self.state.reason = "done", reason
        if self.journal is not None:
            if not self.state.kept:
                self._write_model()
            self._save()
            self.journal.note(f"done at update {self.state.update} ({reason})")
        return Outcome("done", reason, self.state.update, self.state.validation)


def model_tensors(model: Transformer, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters and kept buffers under the names of a checkpoint."""
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    buffers = {name: tensor for name, tensor in model.state_dict().items() if name not in names}
    return {f"model.{name}": tensor for name, tensor in {**parameters, **buffers}.items()}


def all_tensors(model: Transformer, flat: FlatParameters, exchange: AllReduce) -> dict[str, Tensor]:
    """Everything that a checkpoint holds: parameters, buffers, and Adam's moments by parameter."""
    tensors = model_tensors(model, flat.views(exchange.weights))
    moments: dict[str, Any] = {"exp_avg": exchange.exp_avg, "exp_avg_sq": exchange.exp_avg_sq}
    for moment, values in moments.items():
        tensors |= {f"adam.{moment}.{name}": tensor for name, tensor in flat.views(values).items()}
    return tensors
