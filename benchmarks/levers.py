"""Compare processor seconds of a training step here and in another checkout, in turns, on the same batches.

Both use one thread. This is for machines with other load: wall time is ignored, and what slows both cancels out in the
ratio of each step. A step is one worker's share: half of a batch. `--set` changes a constant of a module on this side.

    git worktree add ../before HEAD~1
    python benchmarks/levers.py ../before --train train.de train.en --out levers.json
    python benchmarks/levers.py . --set repose.model.kernels.blocks.SHORTEST=0.65
"""

import argparse
import contextlib
import importlib
import json
import statistics
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch

import workload
from interleave import PATIENCE, Contestant, Process, rotate
from records import command_line, record, table, write
from repose.config.experiment import TrainingConfig
from repose.data.batching import Batches
from repose.data.dataset import PairDataset
from repose.model.presets import preset
from repose.model.transformer import build
from repose.system.device import tuned
from repose.tasks.translation import TASK
from repose.training.distributed import World
from repose.training.feed import Feed
from repose.training.learner import Learner

HERE = Path(__file__).resolve().parents[1]
WORKS = (
    *(("reinforced", "fp32", "random64", "0"), ("baseline", "fp32", "random64", "0")),
    *(("reinforced", "bf16", "tokens1600", "0"), ("baseline", "bf16", "tokens1600", "0")),
    *(("reinforced", "fp32", "random64", "1"), ("reinforced", "bf16", "tokens1600", "1")),
)
"""Model, precision, batches, and the weight of R-Drop."""
WORKERS, LEARNING_RATE, WARM = 2, 1e-4, 4


def follow(folder: Path, model: str, precision: str, batches: str, r_drop: str, changes: Sequence[str]) -> None:
    """Run one side: for each number on stdin, train this many steps and write their seconds and losses to stdout."""
    for change in changes:
        place, _, value = change.partition("=")
        module, _, name = place.rpartition(".")
        setattr(importlib.import_module(module), name, json.loads(value))
    torch.set_num_threads(1)
    kind, size = workload.POLICIES[batches]
    config = TrainingConfig(
        batching=kind,  # type: ignore[arg-type]
        batch_size=size,
        schedule="constant",
        learning_rate=LEARNING_RATE,
        precision=precision,  # type: ignore[arg-type]
        r_drop=float(r_drop),
    )
    sizes = (workload.facts(folder)[name] for name in ("src_vocab_size", "tgt_vocab_size"))
    net = build(preset(model), **dict(zip(("src_vocab_size", "tgt_vocab_size"), sizes, strict=True)))
    learner = Learner(TASK, net, config, World(0, 1, torch.device("cpu")))
    data = PairDataset.open(folder / "prepared")
    order = Batches(data.src_lengths, data.tgt_lengths, config.batching, size, config.seed)
    share = World(0, WORKERS, torch.device("cpu"))
    feed = Feed(TASK, lambda _: data, order, world=share, num_micro_batches=1).epoch(0, 0)
    with tuned():
        for count in chain([WARM], map(int, sys.stdin)):
            answer: dict[str, list[float]] = {"seconds": [], "losses": []}
            for number in range(count):
                batch, began = next(feed), time.process_time()
                learner.backward(batch, number)
                learner.step(LEARNING_RATE)
                answer["seconds"].append(time.process_time() - began)
                answer["losses"].append(float(learner.sums[0]))
                learner.sums.zero_()
            print(json.dumps(answer), flush=True)


def compare(args: argparse.Namespace, folder: Path, work: tuple[str, str, str, str]) -> dict[str, Any]:
    """Compare both sides on one kind of work."""
    jobs = {}
    with contextlib.ExitStack() as stack:
        for name, checkout, changes in (("before", args.other, []), ("after", HERE, args.set)):
            more = [part for change in changes for part in ("--set", change)]
            command = [sys.executable, __file__, "--follow", str(folder), *work, *more]
            variables = {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{checkout / 'src'}:{HERE / 'benchmarks'}"}
            process = Process(Contestant(name, command, variables))
            stack.callback(process.close)
            process.listen(PATIENCE)
            jobs[name] = partial(process.ask, args.steps, PATIENCE)
        answers = rotate(jobs, args.rounds)
    seconds, losses = (
        [[x for answer in answers[name] for x in answer[what]] for name in ("before", "after")]
        for what in ("seconds", "losses")
    )
    before, after = map(statistics.median, seconds)
    ratios = [a / b for a, b in zip(*seconds, strict=True)]
    apart = max(abs(a / b - 1) for a, b in zip(*losses, strict=True))
    figures = {"before_s": before, "after_s": after, "ratio": statistics.median(ratios), "losses_apart": apart}
    return {"work": " ".join(work[:3]) + ", R-Drop" * (work[3] != "0"), **figures, "steps": len(ratios)}


def main() -> int:
    """Command-line entry point: measure and print."""
    if sys.argv[1:2] == ["--follow"]:
        folder, model, precision, batches, r_drop, *more = sys.argv[2:]
        follow(Path(folder), model, precision, batches, r_drop, more[1::2])
        return 0
    parser = command_line(__doc__)
    workload.add_arguments(parser)
    parser.add_argument("other", type=Path, help="another checkout, or this one")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=JSON", help="a constant of this side")
    parser.add_argument("--works", type=int, nargs="+", default=range(len(WORKS)), help="which of WORKS, from 0")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=4, help="in each round")
    args = parser.parse_args()
    args.other = args.other.resolve()
    folder = workload.from_arguments(args)
    found = [compare(args, folder, WORKS[number]) for number in args.works]
    rows = [
        [x["work"], *(f"{1e3 * x[name]:.1f}" for name in ("before_s", "after_s")), f"{x['ratio']:.3f}"] for x in found
    ]
    print(table(["work", "ms before", "ms after", "ratio"], rows))
    write(args.out, record("levers", changes=args.set, works=found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
