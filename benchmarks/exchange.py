"""Measure how long the workers of one machine take to sum their gradients, with shared memory and gloo's all-reduce.

Both are the project's own code (`repose.training.exchange`). They take turns in the same processes, for the two models
of arXiv 2410.04731.

    python benchmarks/exchange.py --out exchange.json
"""

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from interleave import machine, table, write
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
        exchanges = {kind: make(world, size) for kind, make in KINDS.items()}
        found[model] = {kind: [] for kind in exchanges}
        for number in range(rounds + 1):  # the first one warms up
            for kind, exchange in exchanges.items():
                dist.barrier()
                began = time.perf_counter()
                for _ in range(repeats):
                    exchange.local.fill_(1.0)
                    exchange.sum()
                if number:
                    found[model][kind].append(1e3 * (time.perf_counter() - began) / repeats)
                assert exchange.gradient[0] == world.size
    return found


def main() -> int:
    """Command-line entry point: measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", type=Path, help="write the result as JSON")
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
    record = {"benchmark": "exchange", "machine": machine(), "settings": vars(args) | {"out": None}}
    write(args.out, {**record, "torch": torch.__version__, "median_ms": medians, "rounds_ms": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
