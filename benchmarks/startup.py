"""Measure the wall time until a program has started: in a fresh process each time, in turn, as medians.

`repose --help` and `import repose` must not load torch. This is checked with the interpreter's own list of imports.
Peers are imported if their environments are installed (`make bench-peers`).

    python benchmarks/startup.py --out results/startup.json
"""

import os
import re
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from interleave import NOT_INSTALLED, Result, as_json, python_of, rotate
from records import command_line, record, table, write

GOAL = 0.3
"""Largest number of seconds that the first two may take."""
PYTHON = sys.executable
EMPTY = "python -c pass"
PEERS = {
    "import ctranslate2": ("ctranslate2", "ctranslate2"),
    "import tensorflow": ("keras", "tensorflow-cpu"),
    "from transformers import MarianMTModel, Trainer": ("marian", "transformers"),
}
"""What a user of a peer imports, the environment that has it, and the package whose version is recorded.
(`transformers` loads nothing until a name is used.)"""


class Program(NamedTuple):
    """A program to start."""

    command: list[str]
    package: str
    """Package whose version is recorded."""
    may_load_torch: bool = True


def programs() -> dict[str, Program]:
    """Return the programs, by what a user would type."""
    found = {
        "repose --help": Program([str(Path(PYTHON).with_name("repose")), "--help"], "repose-nmt", may_load_torch=False),
        'python -c "import repose"': Program([PYTHON, "-c", "import repose"], "repose-nmt", may_load_torch=False),
        EMPTY: Program([PYTHON, "-c", "pass"], "repose-nmt"),
        'python -c "import torch"': Program([PYTHON, "-c", "import torch"], "torch"),
    }
    for statement, (environment, package) in PEERS.items():
        found[f'python -c "{statement}"'] = Program([str(python_of(environment)), "-c", statement], package)
    return found


def imported(report: str) -> set[str]:
    """Return the modules that an interpreter lists on stderr with PYTHONPROFILEIMPORTTIME.

    Its lines are "import time: us | us | name".
    """
    return set(re.findall(r"^import time:[\s\d]+\|[\s\d]+\|\s*(\S+)$", report, flags=re.MULTILINE))


def start(program: Program, variables: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. Raises CalledProcessError if it fails, FileNotFoundError if it is missing."""
    environment = {**os.environ, **(variables or {})}
    return subprocess.run(program.command, capture_output=True, text=True, check=True, env=environment)


def version(program: Program) -> str:
    """Return the version of the program's package, in its environment."""
    python = Path(program.command[0]).with_name("python")
    script = f"import importlib.metadata; print(importlib.metadata.version({program.package!r}))"
    return start(Program([str(python), "-c", script], program.package)).stdout.strip()


def measure(rounds: int) -> tuple[dict[str, Result], list[str]]:
    """Return starts per second of each program, by round, and the programs that wrongly loaded torch.

    The first round does not count: in it, files enter the system's cache and bytecode is written.
    """
    results = {name: Result() for name in programs()}
    offenders = []
    present = {}
    for name, program in programs().items():
        try:
            report = start(program, {"PYTHONPROFILEIMPORTTIME": "1"}).stderr
        except FileNotFoundError:
            results[name].problem = NOT_INSTALLED
            continue
        except subprocess.CalledProcessError as error:
            results[name].problem = error.stderr.strip().splitlines()[-1]
            continue
        present[name] = program
        results[name].ready = {"versions": {program.package: version(program)}}
        if not program.may_load_torch and "torch" in imported(report):
            offenders.append(name)
    jobs = {name: partial(starts_per_second, program) for name, program in present.items()}
    for name, rates in rotate(jobs, rounds).items():
        results[name].rates = rates
    return results, offenders


def starts_per_second(program: Program) -> float:
    """Start a program once, and return how often a second has room for that."""
    began = time.perf_counter()
    start(program)
    return 1 / (time.perf_counter() - began)


def seconds(result: Result) -> list[float]:
    """Return the seconds of each round."""
    return [1 / rate for rate in result.rates]


def show(results: dict[str, Result], offenders: list[str]) -> None:
    """Print the results."""
    rows = []
    for name, result in results.items():
        if result.rates:
            taken = seconds(result)
            rows.append([name, *(f"{value:.3f}" for value in (statistics.median(taken), min(taken), max(taken)))])
        else:
            rows.append([name, result.problem, "", ""])
    print(table(["start-up (seconds)", "median", "min", "max"], rows))
    print(f"torch is loaded by: {', '.join(offenders)}" if offenders else "repose loads no torch before it is needed")


def main() -> int:
    """Command-line entry point: measure, print a table, write the record; return 1 if torch was loaded too early."""
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    results, offenders = measure(args.rounds)
    show(results, offenders)
    median = {name: statistics.median(seconds(result)) for name, result in results.items() if result.rates}
    content = record(
        "startup",
        settings={"rounds": args.rounds, "rates": "starts per second"},
        contestants=as_json(results),
        ratios={f"{name} / {EMPTY}": value / median[EMPTY] for name, value in median.items()},
        seconds=median,
        goal_seconds=GOAL,
        loads_torch_too_early=offenders,
    )
    write(args.out, content)
    return 1 if offenders else 0


if __name__ == "__main__":
    sys.exit(main())
