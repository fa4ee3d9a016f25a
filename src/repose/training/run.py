"""Training as one call: lock the run directory, begin or resume, start the workers, and train."""

import contextlib
import dataclasses
from pathlib import Path

import numpy as np
import torch

from repose.runs.records import RunStatus
from repose.system.signals import StopSignals
from repose.system.tuning import tuned
from repose.training import checkpoint, distributed
from repose.training.distributed import World
from repose.training.job import Outcome, TrainingJob
from repose.training.journal import Journal
from repose.training.keeper import Keeper
from repose.training.learner import Learner
from repose.training.lock import locked
from repose.training.loop import Evaluate, Trainer
from repose.training.progress import ProgressKind, make_display
from repose.training.state import State


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Options:
    """What one call is asked, and the training is not: it moves no number."""

    job: TrainingJob
    run_dir: Path
    stop_after: int | None
    progress: ProgressKind
    tensorboard: bool


def train(
    job: TrainingJob,
    run_dir: Path,
    *,
    device: str = "auto",
    workers: int | None = None,
    stop_after: int | None = None,
    progress: ProgressKind = "auto",
    tensorboard: bool = False,
    evaluate: Evaluate | None = None,
) -> Outcome:
    """Train in a run directory until the recipe's limits are reached, going on from its checkpoint if it has one.

    `device`: auto, cpu, cuda (all GPUs) or cuda:1 (that one). `workers`: processes that share each batch out (default:
    those that the run began with; else one per GPU, or per CPU core). `stop_after`: stop after this many updates of
    this call. Under torchrun or SLURM every process calls this alike. A finished run's outcome is returned at once.

    Raises BusyError if another process trains here, CheckpointError, ConfigError, DataError, DeviceError, and
    ReposeError if the training diverges or a worker is lost. The last checkpoint is then as it was.
    """
    chosen = distributed.choose_device(device)
    outer = distributed.outer_launcher()
    options = _Options(job=job, run_dir=run_dir, stop_after=stop_after, progress=progress, tensorboard=tensorboard)
    (run_dir / "state").mkdir(parents=True, exist_ok=True)
    with StopSignals() as signals:
        if outer is not None:
            with distributed.joined(outer, chosen) as world, locked(run_dir, world):
                state = _read_state(options)
                note = _workers_changed(state, world.size)
                state.workers, state.threads = world.size, torch.get_num_threads()
                return _work(world, state, options, signals, evaluate, note)
        with locked(run_dir, World(0, 1, chosen)):
            state = _read_state(options)
            if state.done is not None:
                return Outcome(RunStatus.DONE, state.done, state.update, state.validation)
            note = _choose_workers(job, state, chosen, workers)
            with distributed.started(state.workers, chosen, state.threads, _follow, (state, options)) as world:
                return _work(world, state, options, signals, evaluate, note)


def _follow(world: World, state: State, options: _Options) -> None:
    """What a started worker does."""
    with StopSignals() as signals:
        _work(world, state, options, signals, None, None)


def _read_state(options: _Options) -> State:
    """The state of the run directory's checkpoint, or of the beginning."""
    last, run_id = options.run_dir / "state" / "last.safetensors", options.job.run_id
    return checkpoint.read_state(last, run_id) if last.exists() else State(run_id, workers=0, threads=0)


def _choose_workers(job: TrainingJob, state: State, device: torch.device, requested: int | None) -> str | None:
    """Enter workers and threads into the state; what is to be said about it."""
    lengths, batch = job.task.open(job.train_data).tgt_lengths, job.training.batch_size
    tokens = batch if job.training.batching == "tokens" else round(batch * float(np.mean(lengths)))
    number = distributed.choose_workers(
        device, requested=requested, recorded=state.workers or None, tokens_per_batch=tokens
    )
    note = _workers_changed(state, number)
    if number != state.workers:
        state.workers, state.threads = number, distributed.threads_for(number)
    return note


def _workers_changed(state: State, number: int) -> str | None:
    """What a run has to say that goes on with another number of workers than it had."""
    if state.workers in (0, number):
        return None
    workers = _count(number, "worker")
    return f"going on with {workers} instead of {state.workers}: figures may differ by rounding from here on"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _work(
    world: World, state: State, options: _Options, signals: StopSignals, evaluate: Evaluate | None, note: str | None
) -> Outcome:
    """Train as one worker; the first one reports, too."""
    if state.done is not None:
        return Outcome(RunStatus.DONE, state.done, state.update, state.validation)
    job, folder = options.job, options.run_dir / "state"
    with tuned(), contextlib.ExitStack() as stack:
        learner = Learner(job.task, job.task.build(job), job.training, world)
        if (folder / "last.safetensors").exists():
            checkpoint.load(folder / "last.safetensors", learner.tensors())
            learner.set_steps(state.update)
        reports = None
        if world.rank == 0:
            checkpoint.prune(folder, [update for update, _ in state.kept])
            display = make_display(options.progress)
            journal = Journal(options.run_dir, state.metrics_bytes, display, tensorboard=options.tensorboard)
            stack.enter_context(journal)
            if not state.metrics_bytes:
                journal.write(job.data.to_json())
            threads = f" of {_count(state.threads, 'thread')}" if world.device.type == "cpu" else ""
            where = f"{_count(world.size, 'worker')}{threads} on {world.device.type}"
            verb = "resuming" if state.update else "starting"
            journal.note(f"{verb} run {job.run_id} at update {state.update}, {where}")
            if note is not None:
                journal.note(note)
            reports = (journal, Keeper(job, options.run_dir, learner, state, journal))
        trainer = Trainer(
            job, learner, state, signals, reports=reports, stop_after=options.stop_after, evaluate=evaluate
        )
        return trainer.run()
