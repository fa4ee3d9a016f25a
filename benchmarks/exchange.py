"""Measure how long the workers of one machine take to sum their gradients, with shared memory and gloo's all-reduce.

Both are the project's own code (`repose.training.exchange`). They take turns in the same processes, for the two models
of arXiv 2410.04731.

    python benchmarks/exchange.py --out exchange.json
"""

import statistics
import time
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from interleave import rotate
from records import command_line, record, table, write
from repose.training import distributed
from repose.training.distributed import World
from repose.training.exchange import AllReduce, SharedMemory

SIZES = {"reinforced": 2_809_634, "baseline": 10_184_162}
"""Elements of a gradient: the models' numbers of parameters at the paper's vocabularies."""
KINDS = {"shared memory": SharedMemory, "gloo all-reduce": AllReduce}


def measure(world: World, rounds: int, repeats: int) -> dict[str, dict[str, list[float]]]:
    """Return milliseconds per sum, by model and kind: for each round, the mean over `repeats`.

    All workers must make the same calls.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for model, size in SIZES.items():
        jobs = {kind: partial(milliseconds, world, make(world, size), repeats) for kind, make in KINDS.items()}
        found[model] = rotate(jobs, rounds, warm_rounds=1)
    return found


def milliseconds(world: World, exchange: AllReduce, repeats: int) -> float:
    """Return the milliseconds of one sum, as the mean over `repeats`."""
    dist.barrier()
    began = time.perf_counter()
    for _ in range(repeats):
        exchange.local.fill_(1.0)
        exchange.sum()
    taken = time.perf_counter() - began
    assert exchange.gradient[0] == world.size
    return 1e3 * taken / repeats


def main() -> None:
    """Command-line entry point: measure and print."""
    parser = command_line(__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    settings = (args.rounds, args.repeats)
    with distributed.started(args.workers, torch.device("cpu"), 1, measure, settings) as world:
        found = measure(world, *settings)
    rows = []
    medians: dict[str, Any] = {}
    for model, kinds in found.items():
        medians[model] = {kind: statistics.median(times) for kind, times in kinds.items()}
        ratio = medians[model]["gloo all-reduce"] / medians[model]["shared memory"]
        rows += [[f"{model}, {kind}", f"{time:.2f}"] for kind, time in medians[model].items()]
        rows.append([f"{model}, ratio", f"{ratio:.1f}"])
    print(table(["sum over workers", "ms"], rows))
    facts = {"settings": vars(args) | {"out": None}, "torch": torch.__version__}
    write(args.out, record("exchange", **facts, median_ms=medians, rounds_ms=found))


if __name__ == "__main__":
    main()
