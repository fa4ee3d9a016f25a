"""Measure what integrity checks cost when a program starts, against another checkout, such as one without checksums.

Both checkouts prepare pairs made from the phrasebook (30,000 by default), and resume a run of the default recipe for
one update. The whole command is timed, in fresh processes that take turns. Each checkout has its own
cache and its own run, which is restored before each time. The result is the median over rounds. Both load torch first,
although only the later one needs it to prepare, so that only the checks are compared.

    git worktree add ../before 4cc8e41
    python benchmarks/start.py ../before --out results/speed/start.json
"""

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

from interleave import rotate
from records import command_line, record, write
from repose.data import phrasebook

HERE = Path(__file__).resolve().parents[1]
PREPARE, RESUME = "prepare a corpus", "resume a run"
REPOSE = """
import sys, torch
try:
    from repose.cli.main import main
except ImportError:
    from repose.cli import main
sys.argv[0] = "repose"
main()
"""


class Cost(NamedTuple):
    """The cost of a command, in seconds."""

    wall: float
    processor: float
    """Processor time of the process and its children. It varies less if other programs use the machine."""


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Side(NamedTuple):
    """One of the two checkouts."""

    name: str
    checkout: Path
    folder: Path
    """Folder of the checkout's cache and runs."""

    def repose(self, *arguments: object, home: str = "home", code: int = 0) -> Cost:
        """Return the cost of a command. Raises RuntimeError if its exit code is not `code`."""
        environment = {**os.environ, "PYTHONPATH": str(self.checkout / "src"), "REPOSE_HOME": str(self.folder / home)}
        command = [sys.executable, "-c", REPOSE, *map(str, arguments)]
        began, spent = time.perf_counter(), _processor_seconds()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        cost = Cost(time.perf_counter() - began, _processor_seconds() - spent)
        if done.returncode != code:
            raise RuntimeError(f"{self.name}: {' '.join(command[3:])}: {done.stderr}")
        return cost

    def train(self, corpus: Path, run: str, updates: int, settings: list[str]) -> Cost:
        """Train this many updates."""
        limits = ("--workers", 1, "--stop-after", updates)
        return self.repose("train", corpus, "--out", self.folder / run, *limits, *settings, code=3)

    def prepare(self, corpus: Path, settings: list[str]) -> Cost:
        """Prepare the corpus from scratch."""
        shutil.rmtree(self.folder / "new", ignore_errors=True)
        return self.repose("prepare", corpus, "--workers", 1, *settings, home="new")

    def resume(self, corpus: Path, settings: list[str]) -> Cost:
        """Resume the run, for one update."""
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        shutil.copytree(self.folder / "begun", self.folder / "run")
        return self.train(corpus, "run", 1, settings)


def write_corpus(path: Path, number: int) -> None:
    """Write this many pairs, each made of two of the phrasebook's."""
    pairs = [pair for split in phrasebook.read().values() for pair in split]
    lines = (f"{a[0]} {b[0]}\t{a[1]} {b[1]}\n" for a, b in islice(product(pairs, pairs[::97]), number))
    path.write_text("".join(lines), encoding="utf-8")


Costs = dict[tuple[str, str], list[Cost]]
"""Costs of each round, by task and checkout."""


def measure(before: Path, folder: Path, rounds: int, pairs: int, settings: list[str]) -> Costs:
    corpus = folder / "pairs.tsv"
    write_corpus(corpus, pairs)
    sides = [Side("before", before.resolve(), folder / "before"), Side("now", HERE, folder / "now")]
    for side in sides:
        side.train(corpus, "begun", 2, settings)
    jobs = {(PREPARE, side.name): partial(side.prepare, corpus, settings) for side in sides}
    jobs |= {(RESUME, side.name): partial(side.resume, corpus, settings) for side in sides}
    return rotate(jobs, rounds)


def summary(costs: Costs) -> dict[str, Any]:
    """Return seconds, medians, and the ratio of the medians (now / before), by task and by clock."""
    made: dict[str, Any] = {PREPARE: {}, RESUME: {}}
    for what in made:
        for clock in Cost._fields:
            seconds = {name: [getattr(cost, clock) for cost in costs[what, name]] for name in ("before", "now")}
            medians = {name: statistics.median(values) for name, values in seconds.items()}
            ratio = medians["now"] / medians["before"]
            made[what][clock] = {"median_seconds": medians, "ratio": ratio, "seconds": seconds}
    return made


def main() -> None:
    """Command-line entry point: measure, print and write the record."""
    parser = command_line(__doc__)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--pairs", type=int, default=30_000)
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.FIELD=VALUE")
    args = parser.parse_args()
    settings = [part for setting in args.settings for part in ("--set", setting)]
    with tempfile.TemporaryDirectory() as folder:
        found = summary(measure(args.before, Path(folder), args.rounds, args.pairs, settings))
    for what, clocks in found.items():
        for clock, figures in clocks.items():
            m = figures["median_seconds"]
            print(f"{what}, {clock}: {m['before']:.2f} s before, {m['now']:.2f} s now, ratio {figures['ratio']:.3f}")
    chosen = {"rounds": args.rounds, "pairs": args.pairs, "set": args.settings}
    write(args.out, record("start", settings=chosen, results=found))


if __name__ == "__main__":
    main()
