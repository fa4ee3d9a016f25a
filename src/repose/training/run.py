"""Training as one call: lock the run directory, begin or resume, start the workers, and train."""

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from repose.saved_run.folder import TRAIN_ANEW, RunFolder
from repose.saved_run.records import RunStatus
from repose.system.device import own_dtype, tuned
from repose.system.errors import BusyError, ConfigError, ReposeError
from repose.system.files import remove_half_written, writing
from repose.system.locks import lock_holder, locked_or_busy
from repose.system.numbers import is_whole
from repose.system.signals import StopSignals
from repose.system.terminal import Say, counted, say
from repose.training import checkpoint, distributed
from repose.training.checkpoint import CheckpointWriter
from repose.training.clock import Clock
from repose.training.display import ProgressKind, make_display
from repose.training.distributed import World
from repose.training.job import Outcome, TrainingJob
from repose.training.journal import Journal, logging_failures, read_whole
from repose.training.learner import Learner
from repose.training.loop import Evaluate, Samples, Trainer
from repose.training.state import State


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Options:
    """Options of one call that do not affect results."""

    job: TrainingJob
    run: RunFolder
    stop_after: int | None
    until_epoch: int | None
    progress: ProgressKind
    tensorboard: bool


def train(
    job: TrainingJob,
    run_dir: Path,
    *,
    device: str = "auto",
    workers: int | None = None,
    stop_after: int | None = None,
    until_epoch: int | None = None,
    progress: ProgressKind = "auto",
    tensorboard: bool = False,
    evaluate: Evaluate | None = None,
    samples: Samples | None = None,
    signals: StopSignals | None = None,
    say: Say = say,
) -> Outcome:
    """Train in a run directory until the recipe's limits are reached; resume from its checkpoint if there is one.

    `device`: auto, cpu, cuda (all GPUs) or cuda:1 (that GPU). `workers`: processes that share each batch (default: as
    many as the run began with, else one per GPU or CPU core). `stop_after`: stop after this many updates of this call.
    `until_epoch`: stop after that epoch, counted from the beginning, and after its validation if one is due. `signals`:
    where to note a received signal. `samples`: sentences to show at validations, unless `progress` is none. `say`:
    receives the lines of `progress`. Under torchrun or SLURM, every process makes the same call. For a finished run,
    the outcome is returned at once.

    Raises BusyError if another process trains in this directory, or another thread of this process anywhere;
    CheckpointError, ConfigError, DataError, DeviceError; and ReposeError if the training diverges or a worker is lost.
    The last checkpoint then stays as it was.
    """
    check_stop_after(stop_after)
    chosen = distributed.choose_device(device)
    outer = distributed.outer_launcher()
    run = RunFolder(run_dir)
    samples = None if progress == "none" else samples
    options = _Options(
        job=job, run=run, stop_after=stop_after, until_epoch=until_epoch, progress=progress, tensorboard=tensorboard
    )
    with writing(run.state):
        run.state.mkdir(parents=True, exist_ok=True)
    with _alone_in_process(), signals or StopSignals() as signals:
        if outer is not None:
            if workers not in (None, outer.size):
                raise ConfigError(
                    f"workers is {workers}, but a launcher has started {outer.size} of them (WORLD_SIZE or SLURM's "
                    "variables in the environment say so): leave workers out, or unset those"
                )
            with distributed.joined(outer, chosen) as world, _locked(run, world):
                if isinstance(state := _where_it_stands(run, job), Outcome):
                    return state
                note = _workers_changed(state, world.size)
                state.share_out(world.size, torch.get_num_threads())
                state.device = chosen.type
                if world.rank > 0:  # as started workers, which are not given them
                    evaluate = samples = None
                return _train_as_worker(world, state, options, signals, note, evaluate, samples, say)
        with _locked(run, World(0, 1, chosen)):
            if isinstance(state := _where_it_stands(run, job), Outcome):
                return state
            note = _choose_workers(job, state, chosen, workers)
            with distributed.started(state.workers, chosen, state.threads, _follow, (state, options)) as world:
                return _train_as_worker(world, state, options, signals, note, evaluate, samples, say)


_TRAINING = threading.Lock()


@contextlib.contextmanager
def _alone_in_process() -> Iterator[None]:
    """Allow one training per process, because threads share torch's random state. Raises BusyError if another one
    runs."""
    if not _TRAINING.acquire(blocking=False):
        raise BusyError("another thread of this process is training: wait for it, or train in another process")
    try:
        yield
    finally:
        _TRAINING.release()


def _where_it_stands(run: RunFolder, job: TrainingJob) -> Outcome | State:
    """Return how a run ended, or the state to resume from."""
    if (finished := _finished(run)) is not None:
        return finished
    state = checkpoint.read_state(run.checkpoint, job.run_id)
    return state if state.done is None else _done(run, state)


def _done(run: RunFolder, state: State) -> Outcome:
    """Return how a run ended whose state says that it has. Files that it no longer needs are removed, because it may
    have been killed before it could do so. Raises CheckpointError if its records are damaged, which nothing else would
    notice."""
    assert state.done is not None
    read_whole(run, state.metrics_bytes, state.metrics_crc32)
    checkpoint.prune(run, state.snapshot_updates)
    return Outcome(RunStatus.DONE, state.done, state.update, state.validation)


def _finished(run: RunFolder) -> Outcome | None:
    """Return how a run ended whose state was removed since (`repose cache`)."""
    if run.checkpoint.exists() or not run.metrics_file.exists():
        return None
    records = run.records(may_be_empty=True, remedy=TRAIN_ANEW)
    if records.end is None or records.status is not RunStatus.DONE:
        return None
    last = next(iter(reversed(records.of_kind("model") or records.of_kind("valid"))), {})
    figures = {name: value for name, value in last.items() if isinstance(value, float)}
    return Outcome(RunStatus.DONE, records.end.reason, records.end.update, run.figures_of_model() or figures)


def check_stop_after(stop_after: int | None) -> None:
    """Raise ConfigError for a number of updates that a training cannot stop after."""
    if stop_after is not None and not (is_whole(stop_after) and stop_after >= 1):
        raise ConfigError(f"stop_after = {stop_after!r}, but a training can stop after 1 update at the earliest")


def _follow(world: World, state: State, options: _Options) -> None:
    with StopSignals() as signals:
        _train_as_worker(world, state, options, signals, None)


@contextlib.contextmanager
def _locked(run: RunFolder, world: World) -> Iterator[None]:
    """Hold the run directory's lock, on the first worker for all. Raises BusyError, on all workers, if it is taken.

    Any other error that ends the training is written to train.log.
    """
    with contextlib.ExitStack() as stack:
        error = None
        if world.rank == 0:
            try:
                stack.enter_context(locked_or_busy(run.lock_file, _other_trains_in(run)))
            except ReposeError as busy:
                error = busy
        world.share_error(error)
        if world.rank == 0:
            stack.enter_context(logging_failures(run))
            for place in (run.path, run.model, run.hypotheses_folder):
                remove_half_written(place)
        yield


def check_free(run: RunFolder) -> None:
    """Raise BusyError if another process is training in a run directory, to say so before work that takes long."""
    with contextlib.suppress(OSError):  # `_locked` says why it cannot be opened
        if (holder := lock_holder(run.lock_file)) is not None:
            raise BusyError(f"{holder} {_other_trains_in(run)}")


def _other_trains_in(run: RunFolder) -> str:
    return f"is training in {run.path}: wait for it, stop it, or take another run directory"


def _choose_workers(job: TrainingJob, state: State, device: torch.device, requested: int | None) -> str | None:
    """Write the number of workers and threads to the state; return a message about it, if any."""
    lengths, batch = job.task.open(job.train_data).tgt_lengths, job.training.batch_size
    tokens = batch if job.training.batching == "tokens" else round(batch * float(np.mean(lengths)))
    moved = state.device not in ("", device.type)  # a worker was a GPU and is now a core, or vice versa
    recorded = None if moved else state.workers or None
    number = distributed.choose_workers(device, requested=requested, recorded=recorded, tokens_per_batch=tokens)
    note = _workers_changed(state, number)
    if moved or number != state.workers:
        state.share_out(number, distributed.threads_for(number))
    state.device = device.type
    return note


def _workers_changed(state: State, number: int) -> str | None:
    """Return the message for a run that continues with another number of workers."""
    if state.workers in (0, number):
        return None
    workers = counted(number, "worker")
    return f"going on with {workers} instead of {state.workers}: dropout masks differ from here on"


@contextlib.contextmanager
def _own_state(world: World) -> Iterator[None]:
    """Within this context, torch has the settings that training needs, whatever the caller has set."""
    with own_dtype(), torch.inference_mode(False), torch.enable_grad(), _without_autocast(world.device.type):
        yield


@contextlib.contextmanager
def _without_autocast(kind: str) -> Iterator[None]:
    """Within this context, the caller's autocast is off, and so are its cached copies of weights. A nested autocast
    context would not do: the training's own copies would then outlast an update."""
    enabled, cached = torch.is_autocast_enabled(kind), torch.is_autocast_cache_enabled()
    if not enabled:
        yield
        return
    torch.set_autocast_enabled(kind, False)
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_enabled(kind, enabled)
        torch.set_autocast_cache_enabled(cached)


def _train_as_worker(
    world: World,
    state: State,
    options: _Options,
    signals: StopSignals,
    note: str | None,
    evaluate: Evaluate | None = None,
    samples: Samples | None = None,
    say: Say = say,
) -> Outcome:
    """Train as one worker; the first worker also reports."""
    job, run = options.job, options.run
    gpus = [world.device] if world.device.type == "cuda" else []
    with tuned(), _own_state(world), torch.random.fork_rng(gpus), contextlib.ExitStack() as stack:
        learner = Learner(job.task, job.task.build(job), job.training, world)
        if run.checkpoint.exists():
            checkpoint.load(run.checkpoint, learner.tensors())
            learner.set_steps(state.update)
        clock = Clock(state.seconds, update=state.update, max_hours=job.training.max_hours)
        writer = None
        if world.rank == 0:
            checkpoint.prune(run, state.snapshot_updates)
            display = make_display(options.progress, say)
            stack.callback(display.close)
            written = state.metrics_bytes, state.metrics_crc32
            journal = Journal(run, job.data, display, written, tensorboard=options.tensorboard)
            stack.enter_context(journal)
            threads = f" of {counted(state.threads, 'thread')}" if world.device.type == "cpu" else ""
            where = f"{counted(world.size, 'worker')}{threads} on {world.device.type}"
            verb = "resuming" if state.update else "starting"
            journal.note(f"{verb} run {job.run_id} at update {state.update}, {where}")
            if note is not None:
                journal.note(note)
            writer = CheckpointWriter(job, run, learner, state, clock, journal)
        return Trainer(
            job,
            learner,
            state,
            signals,
            clock,
            writer=writer,
            stop_after=options.stop_after,
            until_epoch=options.until_epoch,
            evaluate=evaluate,
            samples=samples,
        ).run()
