"""Run contestants in turn, A B C B C A ..., so that changes in the machine's speed affect them alike.

A contestant is a process that speaks the protocol of `peers/protocol.py`. All are started first, one at a time. Then,
in each round, each runs the same number of batches while the others wait. The result is the median over rounds.
"""

import contextlib
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

PATIENCE = 1800.0
"""Seconds that a contestant may take to get ready or to answer before it is given up."""
NOT_INSTALLED = "not installed"
_FOLDER = Path(__file__).resolve().parent
_ENVIRONMENTS = _FOLDER.parent / ".venv-peers"


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
    variables: Mapping[str, str] = MappingProxyType({}),
    **options: Any,
) -> Contestant:
    """Return the contestant `peers/<script>` with this workload.

    It runs in the environment `.venv-peers/<environment>`, or in this one. `options` are those of `peers/protocol.py`,
    without their dashes: task="train", processes=2.
    """
    python = sys.executable if environment is None else str(_ENVIRONMENTS / environment / "bin" / "python")
    arguments = [part for option, value in options.items() for part in (f"--{option}", str(value))]
    return Contestant(name, [python, str(_FOLDER / "peers" / script), str(workload), *arguments], dict(variables))


class _DeadError(Exception):
    """The contestant has ended or was ended; the message says why."""


class _Process:
    """A contestant's process, from its start until `close`."""

    def __init__(self, contestant: Contestant) -> None:
        """Start the process. Raises _DeadError if its interpreter is missing."""
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
            raise _DeadError(NOT_INSTALLED) from None

    def listen(self, patience: float) -> dict[str, Any]:
        """Return the next JSON object that the process writes.

        Raises _DeadError if the process ends, or writes nothing for `patience` seconds.
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
        raise _DeadError(f"no answer in {patience:g} s" if too_late else self._last_words())

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
    with contextlib.ExitStack() as stack:
        running: dict[str, _Process] = {}
        for contestant in contestants:
            with _noting(results[contestant.name], contestant.name):
                print(f"starting {contestant.name}", file=sys.stderr)
                process = _Process(contestant)
                stack.callback(process.close)
                results[contestant.name].ready = process.listen(patience)
                running[contestant.name] = process
        for number in range(-warm_rounds, rounds):
            for name in _turned(list(running), number):
                result = results[name]
                with _noting(result, name):
                    answer = {}
                    try:
                        answer = running[name].ask(batches, patience)
                    except _DeadError:
                        del running[name]
                        raise
                    if number >= 0:
                        result.rates.append(answer["units"] / answer["seconds"])
                        result.peak_rss = max(result.peak_rss, answer["peak_rss"])
                        print(f"round {number + 1}: {name} {result.rates[-1]:,.4g}/s", file=sys.stderr)
    return results


@contextlib.contextmanager
def _noting(result: Result, name: str) -> Iterator[None]:
    try:
        yield
    except _DeadError as death:
        result.problem = str(death)
        print(f"{name}: {death}", file=sys.stderr)


def _turned(names: list[str], number: int) -> list[str]:
    """Return the names in the order of round `number`: each round begins with another name."""
    start = number % len(names) if names else 0
    return names[start:] + names[:start]


def machine() -> dict[str, Any]:
    """Return facts about the machine that affect the figures, without its names or paths."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": _cpu_model(),
        "cores": cores,
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.system(),
        "release": platform.release(),
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def record(
    benchmark: str,
    *,
    workload: Mapping[str, Any],
    settings: Mapping[str, Any],
    results: Mapping[str, Result],
    ratios: Mapping[str, float],
    **more: Any,
) -> dict[str, Any]:
    """Return the record of a benchmark, for its JSON file."""
    return {
        "benchmark": benchmark,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "workload": dict(workload),
        "settings": dict(settings),
        "contestants": {name: result.as_json() for name, result in results.items()},
        "ratios": dict(ratios),
        **more,
    }


def write(path: Path | None, content: Mapping[str, Any]) -> None:
    """Write a record if a path is given."""
    if path is not None:
        path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return text in columns: the first aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = [headings, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]).rstrip()
        for line in lines
    )
