"""Estimate time and memory of a grid: the tables of `repose grid --dry-run`.

A few real updates, one validation and a few translations of each kind of cell are measured; their results are
discarded. `python -m repose.grids.estimate` is the process that measures: it reads an order as JSON on stdin and writes
a `Cost` as JSON on stdout. As many of these run at once as cells would, because cells slow each other down.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repose.config.experiment import TASK_SETTINGS, Experiment
from repose.config.file import from_json, to_json
from repose.grids.cells import environment, keep_on, last_line, reason
from repose.grids.local import Share, in_places
from repose.grids.run import GridPlan
from repose.grids.view import once
from repose.system.errors import ReposeError
from repose.system.helper import end_with_parent
from repose.system.signals import Interrupted, interruptible
from repose.system.terminal import Say, counted, duration, make_table

if TYPE_CHECKING:
    from rich.table import Table

WARM_UPDATES, TIMED_UPDATES = 3, 10
GIB = 2**30
SENTENCES = 64
"""Number of sentences, of medium length, that each decoding translates."""
_SPEED = (
    *("task", "batching", "batch_size", "accumulation", "max_src_tokens", "max_tgt_tokens", "long_pairs", "epochs"),
    *("updates", "validate_every_updates", "label_smoothing", "precision", "bleu_every_epochs", "bleu_sentences"),
    *("init_from", "position_table", "corpus_temperature", "upsample"),
    *("r_drop", "bpe_dropout", "word_dropout", "best_by", "keep", "average_checkpoints"),
)
"""Fields of `training` that affect how long it takes."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Time and memory that cells of one kind take."""

    parameters: int
    updates: int | None
    """Optimizer steps of the whole training; None if only the clock ends it."""
    update_seconds: float
    validation_seconds: float
    """Seconds of one validation, including writing the model."""
    validations: int
    translation_seconds: float
    """Seconds of all translations at validations."""
    decode_seconds: float
    """Seconds of all translations after training."""
    start_seconds: float
    """Seconds from the start of the process to the first update."""
    memory_bytes: int
    """Largest resident memory of the process and its workers."""

    def seconds(self, limit_hours: float | None) -> float:
        """Return the seconds of a whole cell. `limit_hours` ends a training (`training.max_hours`)."""
        validations = self.validations * self.validation_seconds + self.translation_seconds
        training = (self.updates or 0) * self.update_seconds + validations
        if limit_hours is not None:
            training = 3600 * limit_hours if self.updates is None else min(training, 3600 * limit_hours)
        return self.start_seconds + training + self.decode_seconds


def kind_of(experiment: Experiment) -> str:
    """Return a key that is equal for cells that take the same time."""
    training = {name: getattr(experiment.training, name) for name in _SPEED}
    others = [asdict(part) for part in (experiment.corpus, experiment.tokenizer, experiment.architecture)]
    return json.dumps([training, asdict(experiment.decoding), *others], sort_keys=True)


def calibrate(plan: GridPlan, share: Share, *, device: str, say: Say) -> dict[str, Cost | ReposeError]:
    """Return the cost of each kind of cell to be run, by `kind_of`, or the error if a kind cannot be measured."""
    kinds = {kind_of(plan.cell(entry).experiment): plan.cell(entry) for entry in plan.todo}
    costs: dict[str, Cost | ReposeError] = {}
    telling = threading.Lock()  # one sentence at a time

    def work(kind: str, place: int, cores: tuple[int, ...]) -> None:
        order = {"experiment": to_json(kinds[kind].experiment), "cores": share.cores, "affinity": cores}
        order |= {"device": share.device(place, device), "began": time.time()}
        with telling:
            say(f"calibrating: {kinds[kind].name}")
        costs[kind] = _in_process(order)

    in_places(share, kinds, work, threading.Event())
    return costs


def _in_process(order: Mapping[str, Any]) -> Cost | ReposeError:
    command = [sys.executable, "-P", "-m", "repose.grids.estimate"]  # -P: import nothing from the current folder
    text = json.dumps({**order, "parent": os.getpid()}).encode()
    env = environment(cores=order["cores"])
    done = subprocess.run(command, input=text, capture_output=True, env=env, check=False)
    if done.returncode != 0:
        return ReposeError(last_line(done.stderr.decode(errors="replace")) or f"exit code {done.returncode}")
    return Cost(**json.loads(done.stdout.decode().splitlines()[-1]))


def estimate_table(
    plan: GridPlan, costs: Mapping[str, Cost | ReposeError], share: Share, *, on: str = "local"
) -> "Iterator[Table | str]":
    """Yield a table of cells, parameters, updates, time and memory; then warnings, totals, and their basis."""
    seconds: list[float] = []
    memory = 0
    todo = {entry.name for entry in plan.todo}
    rows, warnings, told = [], set[str](), once()
    for entry in plan.chosen:
        experiment = plan.cell(entry).experiment
        warnings.update(filter(None, [experiment.positions_warning]))
        cost = costs.get(kind_of(experiment)) if entry.name in todo else None
        if isinstance(cost, Cost):
            own = cost.seconds(experiment.training.max_hours)
            if (warning := experiment.training.warmup_warning(cost.updates)) is not None:
                warnings.add(warning)
            seconds.append(own)
            memory = max(memory, cost.memory_bytes)
            updates = "by the clock" if cost.updates is None else f"{cost.updates:,}"
            numbers = (f"{cost.parameters:,}", updates, duration(own), f"{cost.memory_bytes / GIB:.1f} GiB")
            rows.append((entry.name, str(entry.status), *numbers))
        else:
            why = told(str(cost) if cost is not None else reason(entry.state))
            where = f"in {entry.folder}" if entry.folder != entry.name else ""
            rows.append((entry.name, " ".join(filter(None, (entry.status, why, where))), "", "", "", ""))
    heads = ("cell", "status", "parameters", "updates", "time", "memory")
    yield make_table(heads, rows, right=range(2, 6), title=plan.grid.about or None)
    yield from sorted(warnings)
    yield from _totals(plan, seconds, memory, share, on)


def _totals(plan: GridPlan, seconds: list[float], memory: int, share: Share, on: str) -> Iterator[str]:
    if plan.grid.budget:
        yield f"budget       {plan.grid.budget}"
    yield f"cells        {len(plan.chosen)}, {plan.summary}"
    if not seconds:
        return
    ends = [0.0] * share.jobs  # when each place is free again; the next cell takes the first one
    for own in seconds:
        ends[ends.index(min(ends))] += own
    at_once = f"{counted(share.jobs, 'cell')} at once on {counted(share.cores, 'core')} each"
    yield f"time         about {duration(max(ends))} with {at_once}; {duration(sum(seconds))} one after the other"
    yield f"memory       about {memory * share.jobs / GIB:.1f} GiB at a time"
    yield (
        f"The estimate rests on {TIMED_UPDATES} updates, one validation and {SENTENCES} translations of each distinct "
        f"architecture and corpus, {share.jobs} at once, on this machine; on hypotheses as long as their references; "
        "and on trainings that do not stop early. A batch of longer sentences than those seen takes more memory."
        + (" On a cluster other machines may be faster or slower." if on != "local" else "")
    )


# The process that measures


def main() -> int:
    order = json.load(sys.stdin)
    pinned = keep_on(order["affinity"], order["cores"])
    try:
        with interruptible(), tempfile.TemporaryDirectory(prefix="repose-calibration-") as folder:
            end_with_parent(order["parent"], remove=Path(folder))
            experiment = from_json(order["experiment"], "the cell's experiment")
            workers = None if pinned else order["cores"]
            cost = measure(experiment, Path(folder), device=order["device"], workers=workers, began=order["began"])
    except ReposeError as error:
        print(f"repose: {error}", file=sys.stderr)
        return 1
    except Interrupted:  # for example by `timeout`, which signals all processes of a command
        return 1
    print(json.dumps(asdict(cost)))
    return 0


def measure(experiment: Experiment, folder: Path, *, device: str, workers: int | None, began: float) -> Cost:
    """Train for a few updates in `folder`, validate once and translate a few sentences.

    `began`: when the process was started, in seconds since the epoch.
    """
    from repose.runs.run import run
    from repose.saved_run.folder import RunFolder
    from repose.tasks.corpus import prepare_corpus

    data, tried = prepare_corpus(experiment), _tried(experiment)
    elapsed = [0.0]
    for updates in (WARM_UPDATES, TIMED_UPDATES, 1):  # the validation is due before the last update
        run(tried, folder, device=device, workers=workers, stop_after=updates, progress="none")
        if updates == WARM_UPDATES:
            started = time.time()
        end = RunFolder(folder).records(may_be_empty=True).end
        elapsed.append(0.0 if end is None else end.seconds)
    update = (elapsed[2] - elapsed[1]) / TIMED_UPDATES
    validation = max(0.0, elapsed[3] - elapsed[2] - update)
    total, per_epoch = _updates(experiment, data)
    start = started - began - elapsed[1]
    validations = -(-(total or 0) // (experiment.training.validate_every_updates or per_epoch))
    translation, decode = 0.0, validation  # scoring other tasks takes about as long as one validation
    if TASK_SETTINGS[experiment.training.task].translates:
        epochs = (total or 0) // per_epoch
        numbers = {"validations": validations, "epochs": epochs}
        translation, decode = _translations(experiment, data, folder, device, **numbers)
    return Cost(
        parameters=RunFolder(folder).num_parameters() or 0,
        updates=total,
        update_seconds=update,
        validation_seconds=validation,
        validations=validations,
        translation_seconds=translation,
        decode_seconds=decode,
        start_seconds=max(0.0, start),
        memory_bytes=_memory(RunFolder(folder).workers or 1),
    )


def _tried(experiment: Experiment) -> Experiment:
    """Return an experiment with the same work per update that does not end or pause by itself. Its validation does not
    translate, which `_translations` measures."""
    endless: dict[str, Any] = dict.fromkeys(("epochs", "max_hours", "patience", "bleu_every_epochs", "warmup_share"))
    endless |= {"updates": 10**9, "save_every_minutes": 1e6, "validate_every_updates": WARM_UPDATES + TIMED_UPDATES}
    endless |= {"best_by": "loss"}
    return replace(experiment, training=replace(experiment.training, **endless))


def _updates(experiment: Experiment, data: Any) -> tuple[int | None, int]:
    """Return the optimizer steps of the whole training, and those of an epoch."""
    from repose.data.batching import Batches
    from repose.data.tokenizer import Tokenizer
    from repose.tasks.more_corpora import mixture
    from repose.tasks.registry import get_task

    c = experiment.training
    examples: Any = get_task(c.task).open(data.ids("train"))
    mixed = None
    if TASK_SETTINGS[c.task].translates:
        mixed = mixture(examples, Tokenizer.load(data.tokenizer_path("src")), c, experiment.corpus.synthetic_tag)
    batches = Batches(examples.src_lengths, examples.tgt_lengths, c.batching, c.batch_size, c.seed, mixture=mixed)
    limits = [limit for limit in (c.updates, c.epochs and batches.num_updates(c.epochs)) if limit is not None]
    return min(limits, default=None), batches.num_batches(0)


def _translations(
    experiment: Experiment, data: Any, folder: Path, device: str, *, validations: int, epochs: int
) -> tuple[float, float]:
    """Return the seconds of all translations: at `validations` over `epochs`, and after training. After few updates, a
    model does not know when to end. So the time per token of a hypothesis is measured, and hypotheses are assumed to be
    as long as references."""
    from repose.decoding.load import load
    from repose.system.device import one_thread
    from repose.tasks import decoding_choice

    c = experiment.training
    src, references = data.text(data.measured)
    middle = max(0, (len(src) - SENTENCES) // 2)
    sample = sorted(src, key=len)[middle : middle + SENTENCES]  # of similar length, as in the batches of a whole set
    with load(folder, "cpu" if device == "auto" else device, engine="torch") as translator, one_thread():
        encoded = translator.tgt_tokenizer.encode_batch(list(references))
        expected = sum(len(ids) - 1 for ids in encoded)  # decoding steps: END takes one, START takes none
        translator.translate(sample[:2], beam_size=1)  # a process's first translation takes longer
        per_token = {}
        for beam_size in {1, experiment.decoding.beam_size}:
            began = time.monotonic()
            found = translator.translate(sample, beam_size=beam_size)
            tokens = sum(1 + len(t.hypotheses[0].tokens) for t in found if t.hypotheses)
            per_token[beam_size] = (time.monotonic() - began) / max(1, tokens)
    during, after = 0.0, sum(per_token.values()) * expected
    every = c.bleu_every_epochs
    if number := validations if c.best_by == "chrf" else 0 if every is None else epochs // every:
        valid = len(data.text("valid")[0])
        share = min(valid, c.bleu_sentences or valid) / len(references)
        during = number * share * per_token[1] * expected
    if experiment.decoding.length_penalty is None:  # the decoding is chosen on the validation set
        share = min(len(data.text("valid")[0]), decoding_choice.SENTENCES) / len(references)
        after += share * expected * sum(per_token[beam] for beam in decoding_choice.searches(experiment.decoding))
    return during, after


def _memory(workers: int) -> int:
    """Return the largest resident memory in bytes: this process's, plus its largest child's per further worker."""
    if sys.platform == "win32":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    own, child = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return unit * (own + (workers - 1) * child)


if __name__ == "__main__":
    sys.exit(main())
