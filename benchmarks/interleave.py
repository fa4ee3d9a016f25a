"""Run contestants in turn, A B C B C A ..., so that changes in the machine's speed affect them alike.

A contestant is a process that speaks the protocol of `peers/protocol.py`. All are started first, one at a time. Then,
in each round, each runs the same number of batches while the others wait. The result is the median over rounds.
`rotate` does the same with functions of this process.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

PATIENCE = 1800.0
"""Seconds that a contestant may take to get ready or to answer before it is given up."""
NOT_INSTALLED = "not installed"
_FOLDER = Path(__file__).resolve().parent
Name, T = TypeVar("Name", bound=Hashable), TypeVar("T")


def python_of(environment: str | None) -> Path:
    """Return the Python of an environment of `make bench-peers`, installed or not; None means this one."""
    if environment is None:
        return Path(sys.executable)
    return _FOLDER.parent / ".venv-peers" / environment / "bin" / "python"


@dataclass(frozen=True)
class Contestant:
    """A process to be measured."""

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    """Variables to add to the environment of this process."""


@dataclass
class Result:
    """The result of a contestant."""

    rates: list[float] = field(default_factory=list)
    """Units per second in each round."""
    peak_rss: int = 0
    """Peak memory in bytes, summed over all processes of the contestant."""
    ready: dict[str, Any] = field(default_factory=dict)
    """The contestant's message when it was ready: parameters, versions, processes, threads."""
    problem: str = ""
    """Why it has no rates or stopped early: "not installed", or the last line that it wrote to stderr."""

    @property
    def median(self) -> float:
        """Median of the rates; 0 if there are none."""
        return statistics.median(self.rates) if self.rates else 0.0

    @property
    def min(self) -> float:
        """Rate of the slowest round."""
        return min(self.rates, default=0.0)

    @property
    def max(self) -> float:
        """Rate of the fastest round."""
        return max(self.rates, default=0.0)

    def as_json(self) -> dict[str, Any]:
        """Return the result for a record."""
        if not self.rates:
            return {"problem": self.problem}
        figures = {"median": self.median, "min": self.min, "max": self.max, "rates": self.rates}
        told = {name: value for name, value in self.ready.items() if name not in ("ready", "name")}
        return {**figures, "peak_rss": self.peak_rss, **told, **({"problem": self.problem} if self.problem else {})}


def peer(
    name: str,
    script: str,
    environment: str | None,
    workload: Path,
    *,
    benchmarks: Path = _FOLDER,
    variables: Mapping[str, str] = MappingProxyType({}),
    **options: Any,
) -> Contestant:
    """Return the contestant `peers/<script>` with this workload.

    It runs in the environment `.venv-peers/<environment>`, or in this one. `benchmarks` is this folder, or that of
    another checkout. `options` are those of `peers/protocol.py`, without their dashes: task="train", processes=2.
    """
    arguments = [part for option, value in options.items() for part in (f"--{option}", str(value))]
    command = [str(python_of(environment)), str(benchmarks / "peers" / script), str(workload), *arguments]
    return Contestant(name, command, dict(variables))


class DeadError(Exception):
    """The contestant has ended or was ended; the message says why."""


class Process:
    """A contestant's process, from its start until `close`."""

    def __init__(self, contestant: Contestant) -> None:
        """Start the process. Raises DeadError if its interpreter is missing."""
        self._stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (closed in `close`)
        try:
            self._process = subprocess.Popen(
                contestant.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                text=True,
                env={**os.environ, **contestant.environment},
            )
        except FileNotFoundError:
            self._stderr.close()
            raise DeadError(NOT_INSTALLED) from None

    def listen(self, patience: float) -> dict[str, Any]:
        """Return the next JSON object that the process writes.

        Raises DeadError if the process ends, or writes nothing for `patience` seconds.
        """
        assert self._process.stdout is not None
        timer = threading.Timer(patience, self._process.kill)
        timer.start()
        try:
            for line in self._process.stdout:
                if line.startswith("{"):
                    return json.loads(line)
        finally:
            too_late = not timer.is_alive()
            timer.cancel()
        raise DeadError(f"no answer in {patience:g} s" if too_late else self._last_words())

    def ask(self, batches: int, patience: float) -> dict[str, Any]:
        """Make the process run this many batches, and return its answer."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `listen` will say why
            self._process.stdin.write(f"{batches}\n")
            self._process.stdin.flush()
        return self.listen(patience)

    def close(self) -> None:
        """Let the process end; kill it if it does not."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()  # type: ignore[union-attr]
        self._stderr.close()

    def _last_words(self) -> str:
        code = self._process.wait()
        self._stderr.seek(0)
        lines = [line.strip() for line in self._stderr if line.strip()]
        last = lines[-1] if lines else f"ended with exit code {code}"
        return NOT_INSTALLED if last.startswith("ModuleNotFoundError") else last


def interleave(
    contestants: Sequence[Contestant],
    *,
    rounds: int,
    batches: int,
    warm_rounds: int = 1,
    patience: float = PATIENCE,
) -> dict[str, Result]:
    """Run all contestants, and return their results by name, in the given order.

    Rates of the first `warm_rounds` rounds are dropped. If a contestant is not installed or dies, its `problem` is set
    and the others continue. Progress goes to stderr.
    """
    results = {contestant.name: Result() for contestant in contestants}
    assert len(results) == len(contestants), "contestants need different names"

    def give_up(name: str, death: DeadError) -> None:
        results[name].problem = str(death)
        print(f"{name}: {death}", file=sys.stderr)

    with contextlib.ExitStack() as stack:
        running: dict[str, Process] = {}
        for contestant in contestants:
            print(f"starting {contestant.name}", file=sys.stderr)
            try:
                process = Process(contestant)
                stack.callback(process.close)
                results[contestant.name].ready = process.listen(patience)
                running[contestant.name] = process
            except DeadError as death:
                give_up(contestant.name, death)
        for number in range(-warm_rounds, rounds):
            for name in _turned(list(running), number):
                try:
                    answer = running[name].ask(batches, patience)
                except DeadError as death:
                    del running[name]
                    give_up(name, death)
                    continue
                if number >= 0:
                    result = results[name]
                    result.rates.append(answer["units"] / answer["seconds"])
                    result.peak_rss = max(result.peak_rss, answer["peak_rss"])
                    print(f"round {number + 1}: {name} {result.rates[-1]:,.4g}/s", file=sys.stderr)
    return results


def rotate(jobs: Mapping[Name, Callable[[], T]], rounds: int, *, warm_rounds: int = 0) -> dict[Name, list[T]]:
    """Call all functions in turn, and return what each returned, such as its seconds, in each round.

    Each round begins with another function. What the first `warm_rounds` rounds return is dropped.
    """
    found: dict[Name, list[T]] = {name: [] for name in jobs}
    step = max(1, len(jobs) // max(1, rounds))  # so that the beginnings of few rounds are spread over many functions
    for number in range(-warm_rounds, rounds):
        for name in _turned(list(jobs), number * step):
            returned = jobs[name]()
            if number >= 0:
                found[name].append(returned)
        print(f"\rround {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def _turned(names: list[Name], start: int) -> list[Name]:
    """Return the names in the order that begins with number `start`, counted round and round."""
    start = start % len(names) if names else 0
    return names[start:] + names[:start]


def some_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Return a type of argument for argparse: several of these names, with commas between them."""

    def split(names: str) -> list[str]:
        for name in names.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(known)}")
        return names.split(",")

    return split


def as_json(results: Mapping[str, Result]) -> dict[str, Any]:
    """Return the results for a record."""
    return {name: result.as_json() for name, result in results.items()}
