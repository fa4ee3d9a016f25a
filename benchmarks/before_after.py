"""Compare the speed of this checkout with another checkout of this project, in training and decoding.

Both take turns on the same batches, as all contestants do (`interleave`): one begins one round, the other the next.
Each runs its own `peers/repose_.py` and its own sources, in this environment.

    git worktree add ../before v0.1.0
    python benchmarks/before_after.py ../before --train train.de train.en --out before-after.json
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import workload
from decode import PASS
from interleave import Contestant, Result, as_json, interleave, peer
from records import command_line, record, table, write
from repose.system.device import available_cores

HERE = Path(__file__).resolve().parents[1]


class Work(NamedTuple):
    """A task for both checkouts."""

    name: str
    options: Mapping[str, Any]
    batches: int
    """Batches in each round."""


def all_work(args: argparse.Namespace) -> Iterator[Work]:
    """Yield all tasks, for both models.

    Training in fp32 with batches of 64 random sentences, training in bf16 with batches of 1,600 tokens, and decoding
    with greedy search and with a beam of 4: in batches with both engines, and sentence by sentence with ONNX Runtime.
    """
    one_thread = {"processes": available_cores(), "threads": 1}
    for model in ("reinforced", "baseline"):
        for precision, batches in (("fp32", "random64"), ("bf16", "tokens1600")):
            options = {"task": "train", "model": model, "precision": precision, "batches": batches, **one_thread}
            yield Work(f"train {model} {precision}", options, args.batches_per_round)
        for beam in (1, 4):
            options = {"task": "decode", "model": model, "size": "exact", "beam": beam}
            name = f"{model}, {'greedy' if beam == 1 else f'beam {beam}'}"
            yield Work(f"decode {name}", options | one_thread, args.passes * PASS)
            for precision in ("fp32", "int8"):
                options |= {"engine": "onnx", "precision": precision}
                yield Work(f"onnx {precision} {name}", options | one_thread, args.passes * PASS)
                alone = {"alone": 1, "processes": 1, "threads": 1}
                yield Work(f"alone {precision} {name}", options | alone, args.passes * PASS)


class Side(NamedTuple):
    """One of the two checkouts."""

    name: str
    checkout: Path
    home: Path
    """A cache for this checkout alone, because formats of prepared corpora may differ."""

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that make Python find this checkout's sources."""
        return {"PYTHONPATH": str(self.checkout / "src"), "REPOSE_HOME": str(self.home)}

    def workload(self, corpus: Sequence[str]) -> Path:
        """Prepare the workload with this checkout's code. `corpus`: options of `workload.add_arguments`."""
        command = [sys.executable, str(self.checkout / "benchmarks" / "workload.py"), *corpus]
        environment = {**os.environ, **self.environment}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return Path(done.stdout.splitlines()[-1])

    def contestant(self, folder: Path, options: Mapping[str, Any]) -> Contestant:
        """Return this checkout's contestant."""
        where = {"benchmarks": self.checkout / "benchmarks", "variables": self.environment}
        return peer(self.name, "repose_.py", None, folder, **where, **options)


def ratio(results: Mapping[str, Result]) -> float:
    """Return how many times as fast this checkout is: the median over rounds of the ratio of both rates."""
    pairs = zip(results["after"].rates, results["before"].rates, strict=True)
    return statistics.median(after / before for after, before in pairs)


def compare(sides: Sequence[Side], folders: Sequence[Path], args: argparse.Namespace) -> dict[str, Any]:
    """Run every task with both in turns, print a table and return the record."""
    facts = [workload.facts(folder) for folder in folders]
    assert facts[0] == facts[1], "the two prepare the corpus differently"
    results: dict[str, Result] = {}
    ratios: dict[str, float] = {}
    for work in (work for work in all_work(args) if args.only in work.name):
        both = [side.contestant(folder, work.options) for side, folder in zip(sides, folders, strict=True)]
        measured = interleave(both, rounds=args.rounds, batches=work.batches)
        results |= {f"{work.name}, {name}": result for name, result in measured.items()}
        ratios[work.name] = ratio(measured)
        print(f"{work.name}: {ratios[work.name]:.3f}", flush=True)
    rows = [
        [name, *(f"{results[f'{name}, {side}'].median:,.0f}" for side in ("before", "after")), f"{value:.3f}"]
        for name, value in ratios.items()
    ]
    print(table(["units per second", "before", "after", "after / before"], rows))
    settings = {"rounds": args.rounds, "batches_per_round": args.batches_per_round, "passes": args.passes}
    return record("before and after", workload=facts[1], settings=settings, contestants=as_json(results), ratios=ratios)


def main() -> None:
    """Command-line entry point: measure, print a table and write the record."""
    parser = command_line(__doc__)
    parser.add_argument("before", type=Path, help="the other checkout")
    workload.add_arguments(parser)
    parser.add_argument("--only", default="", help="what is in the name of the work, such as train or bf16")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--batches-per-round", type=int, default=20, help="of training")
    parser.add_argument("--passes", type=int, default=1, help="over the 1,000 sentences, of decoding")
    args = parser.parse_args()
    corpus = (
        ["--corpus", args.corpus] if args.train is None else ["--train", *(str(path.resolve()) for path in args.train)]
    )
    with tempfile.TemporaryDirectory() as cache:
        sides = [
            Side(name, checkout, Path(cache) / name)
            for name, checkout in (("before", args.before.resolve()), ("after", HERE))
        ]
        content = compare(sides, [side.workload(corpus) for side in sides], args)
    write(args.out, content)


if __name__ == "__main__":
    main()
