"""Training as one call: lock the run directory, resume or begin, start the workers, and train."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from repose import model_dir
from repose.data.dataset import PairDataset
from repose.data.tokenizer import Tokenizer
from repose.errors import BusyError, CheckpointError, DataError
from repose.model.transformer import Transformer, build
from repose.training import checkpoint, distributed
from repose.training.distributed import World
from repose.training.exchange import AllReduce
from repose.training.flat import FlatParameters
from repose.training.job import Outcome, TrainingJob
from repose.training.journal import Journal
from repose.training.loop import Evaluate, Trainer, all_tensors
from repose.training.progress import ProgressKind, make_display
from repose.training.signals import StopSignals
from repose.training.state import State


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

    `workers`: processes that share each batch (default: those that the run began with; else one per GPU, or per CPU
    core). `stop_after`: stop after this many updates of this call. Under torchrun or SLURM every process calls this
    alike. A finished run's outcome is returned at once.

    Raises BusyError if another process trains here, CheckpointError, DataError, DeviceError, and ReposeError if the
    training diverges or a worker is lost; the last checkpoint is then as it was.
    """
    chosen = distributed.choose_device(device)
    outer = distributed.outer_launcher()
    (run_dir / "state").mkdir(parents=True, exist_ok=True)
    options = (job, run_dir, stop_after, progress, tensorboard)
    with StopSignals() as signals:
        if outer is not None:
            with distributed.joined(outer, chosen) as world, _locked(run_dir, world):
                state = _resume(job, run_dir)
                state.workers, state.threads = world.size, torch.get_num_threads()
                return _work(world, state, *options, evaluate, signals)
        with _locked(run_dir, World(0, 1, chosen)):
            state = _resume(job, run_dir)
            if state.status == "done":
                return Outcome("done", state.reason, state.update, state.validation)
            notes = _place(job, state, chosen, workers)
            arguments = (state, *options)
            with distributed.started(state.workers, chosen, state.threads, _follow, arguments) as world:
                return _work(world, state, *options, evaluate, signals, notes=notes)


def _follow(
    world: World,
    state: State,
    job: TrainingJob,
    run_dir: Path,
    stop_after: int | None,
    progress: ProgressKind,
    board: bool,
) -> None:
    """What a started worker does."""
    with StopSignals() as signals:
        _work(world, state, job, run_dir, stop_after, progress, board, None, signals)


@contextlib.contextmanager
def _locked(run_dir: Path, world: World) -> Iterator[None]:
    """Hold the run directory for the first worker. The lock is the system's: it dies with its process."""
    if world.rank > 0:
        world.share_error(None)
        yield
        return
    with (run_dir / "state" / "lock").open("a+") as file:
        busy: Exception | None = None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            busy = BusyError(
                f"process {holder} is training in {run_dir}: wait for it, stop it, or choose another run directory"
            )
        world.share_error(busy)
        yield


def _resume(job: TrainingJob, run_dir: Path) -> State:
    """The state of the run directory's checkpoint, or of the beginning."""
    last = run_dir / "state" / "last.safetensors"
    return checkpoint.read_state(last, job.run_id) if last.exists() else State(job.run_id, workers=0, threads=0)


def _place(job: TrainingJob, state: State, device: torch.device, requested: int | None) -> list[str]:
    """Decide on workers and threads, and say what is to be said about it."""
    recorded = state.workers
    if recorded and (requested is None or requested == recorded) and device.type == "cpu":
        return []
    lengths = PairDataset.open(job.train_data).tgt_lengths
    tokens = job.training.batch_size
    if job.training.batching == "sentences":
        tokens = round(tokens * float(np.mean(lengths))) if len(lengths) else 0
    state.workers = distributed.choose_workers(device, requested or recorded or None, tokens)
    state.threads = max(1, distributed.available_cores() // state.workers)
    if recorded and state.workers != recorded:
        return [f"going on with {state.workers} workers instead of {recorded}: figures may differ by rounding"]
    return []


def _work(
    world: World,
    state: State,
    job: TrainingJob,
    run_dir: Path,
    stop_after: int | None,
    progress: ProgressKind,
    tensorboard: bool,
    evaluate: Evaluate | None,
    signals: StopSignals,
    notes: list[str] | None = None,
) -> Outcome:
    """Train as one worker."""
    if state.status == "done":
        return Outcome("done", state.reason, state.update, state.validation)
    for what, folder in (("training", job.train_data), ("validation", job.valid_data)):
        if not len(PairDataset.open(folder)):
            raise DataError(
                f"the {what} data in {folder} has no pairs left: check what was dropped when it was prepared"
            )
    model = _initial_model(job)
    model.to(world.device).train()
    flat = FlatParameters(model)
    exchange = AllReduce(world, flat.size)
    flat.write(exchange.weights)
    flat.use(exchange.weights, exchange.local)
    last = run_dir / "state" / "last.safetensors"
    if last.exists():
        checkpoint.load(last, all_tensors(model, flat, exchange))
    journal = None
    if world.rank == 0:
        checkpoint.prune(run_dir / "state", [update for update, _ in state.kept])
        journal = Journal(run_dir, state.metrics_bytes, make_display(progress), tensorboard=tensorboard)
        for note in notes or []:
            journal.note(note)
        how = f"{state.workers} x {state.threads} threads" if world.device.type == "cpu" else f"{state.workers} workers"
        journal.note(
            f"{'resuming' if state.update else 'starting'} at update {state.update} on {world.device.type}, {how}"
        )
    try:
        trainer = Trainer(
            job,
            run_dir,
            world,
            model,
            flat,
            exchange,
            state,
            journal=journal,
            stop_after=stop_after,
            evaluate=evaluate,
            signals=signals,
        )
        return trainer.run()
    finally:
        if journal is not None:
            journal.close()


def _initial_model(job: TrainingJob) -> Transformer:
    """A new model, or that of `init_from`."""
    src, tgt = Tokenizer.load(job.src_tokenizer), Tokenizer.load(job.tgt_tokenizer)
    if job.training.init_from is None:
        return build(
            job.architecture, src_vocab_size=src.vocab_size, tgt_vocab_size=tgt.vocab_size, seed=job.training.seed
        )
    loaded = model_dir.load(Path(job.training.init_from))
    if loaded.model.architecture != job.architecture:
        raise CheckpointError(
            f"training.init_from = {job.training.init_from!r} has another architecture than the one to train: "
            "take over its settings, or start from no model"
        )
    if (loaded.src_tokenizer.digest, loaded.tgt_tokenizer.digest) != (src.digest, tgt.digest):
        raise CheckpointError(
            f"training.init_from = {job.training.init_from!r} was trained with other tokenizers: set "
            "tokenizer.src_file and tokenizer.tgt_file to those in its folder"
        )
    return loaded.model
