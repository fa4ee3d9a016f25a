"""What one sees of a running grid: a live table on a terminal, a line per event elsewhere; and a table at the end."""

import json
import statistics
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console, RenderableType
from rich.live import Live as RichLive
from rich.markup import escape
from rich.table import Table

from repose.config.experiment import Experiment
from repose.grids.cells import ELSEWHERE
from repose.grids.run import Outcome, Plan
from repose.grids.survey import read_object

_TAIL = 1 << 16  # bytes of metrics.jsonl that hold its last records
_LAST_DONE = 3  # finished cells that stay in the live table
_ENDED = ("done", "failed")  # those that were stopped are still to be done


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    where: str
    """Epoch and update, of how many."""
    figures: str
    share: float | None
    """Of its updates; None while an epoch's length is not known."""


def progress(folder: Path, experiment: Experiment) -> Progress:
    """How far the run in a directory is, by the end of its metrics.jsonl."""
    records = _tail(folder / "metrics.jsonl")
    if not records:
        return Progress("", "", None)
    training, update = experiment.training, int(records[-1].get("update", 0))
    ends = [record for record in records if record.get("kind") == "epoch"]
    limits = []
    if training.updates is not None:
        limits.append(training.updates)
    if training.epochs is not None and ends:
        limits.append(round(ends[-1]["update"] / ends[-1]["epoch"]) * training.epochs)
    of_epochs = f"/{training.epochs}" if training.epochs is not None else ""
    of_updates = f" of {min(limits):,}" if limits else ""
    where = f"epoch {records[-1].get('epoch', 1)}{of_epochs}, update {update:,}{of_updates}"
    share = min(1.0, update / min(limits)) if limits else None
    return Progress(where, ", ".join(_figures(records)), share)


def _tail(path: Path) -> list[dict[str, Any]]:
    """The last records; lines that are cut at either end are left out."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return []
    records = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and {"kind", "update", "epoch"} <= record.keys():
            records.append(record)
    return records


def _figures(records: list[dict[str, Any]]) -> list[str]:
    shown = (("train", "loss", "loss", ".3f"), ("valid", "tf_loss", "tf_loss", ".3f"), ("valid", "bleu", "BLEU", ".1f"))
    found = []
    for kind, name, label, form in shown:
        last = next((r[name] for r in reversed(records) if r["kind"] == kind and name in r), None)
        if last is not None:
            found.append(f"{label} {last:{form}}")
    return found


def headline(folder: Path) -> str:
    """The figure of a finished run that is looked at first: BLEU of its beam, or the first of another task's."""
    scores = next((s for s in map(read_object, sorted(folder.glob("scores.*.json"))) if s), {})
    decoded = scores.get("decoded", {})
    for name in sorted(decoded, key=lambda name: name == "greedy"):
        if "bleu" in decoded[name]:
            return f"BLEU {decoded[name]['bleu']['value']:.2f} ({name}, {scores.get('split', '')})"
    for name, figure in scores.get("figures", {}).items():
        return f"{name} {figure['value']:.3f} {figure.get('unit', '')}".strip()
    return ""


class View(Protocol):
    """What shows a grid while it runs; a context manager."""

    def __call__(self, name: str, status: str, reason: str) -> None:
        """Something has happened to a cell; from any thread."""

    def __enter__(self) -> "View":
        """Begins to show."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends."""


class Lines:
    """One line per event, on stderr."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._ended, self._began = plan, 0, dict[str, float]()

    def __call__(self, name: str, status: str, reason: str) -> None:
        """Prints it."""
        seconds = ""
        if status == "running":
            self._began.setdefault(name, time.monotonic())
        elif status != "waiting":  # which a cell also is when its machine was lost
            self._ended += status in _ENDED
            seconds = f" after {duration(time.monotonic() - self._began.get(name, time.monotonic()))}"
        figure = headline(self._plan.folder / name) if status == "done" else reason
        count = f"[{self._ended}/{len(self._plan.todo)}] "
        what = reason if reason.startswith(ELSEWHERE) else f"{status}{seconds}{f', {figure}' if figure else ''}"
        print(f"{count}{name}: {what}", file=sys.stderr, flush=True)

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing."""


class Live:
    """A table that is drawn anew every second, on stderr."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._experiments = {cell.name: cell.experiment for cell in plan.grid.cells}
        self._status: dict[str, tuple[str, str]] = {}
        self._began: dict[str, float] = {}
        self._share: dict[str, float] = {}  # how far a resumed cell was when it began
        self._took: list[float] = []
        self._lock = threading.Lock()
        console = Console(stderr=True, highlight=False)
        self._live = RichLive(console=console, get_renderable=self._table, refresh_per_second=1, transient=True)

    def __call__(self, name: str, status: str, reason: str) -> None:
        """Remembers it."""
        with self._lock:
            self._status[name] = (status, reason)
            now = time.monotonic()
            if status == "running":
                self._began[name] = now
                self._share[name] = self._progress(name).share or 0.0
            elif name in self._began and status == "done":
                self._took.append(now - self._began[name])

    def __enter__(self) -> "Live":
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Takes the table away: `outcome_table` follows."""
        self._live.__exit__(kind, error, traceback)

    def _progress(self, name: str) -> Progress:
        return progress(self._plan.folder / name, self._experiments[name])

    def _table(self) -> RenderableType:
        with self._lock:
            status, now = dict(self._status), time.monotonic()
        table = Table("cell", "status", "progress", "so far", "left", title=self._title(status), title_justify="left")
        done = [name for name, (what, _) in status.items() if what == "done"][-_LAST_DONE:]
        for name, (what, reason) in status.items():
            if what == "running":
                found, left = self._progress(name), self._left(name, now)
                where = f"{found.where}: scoring" if found.share == 1.0 else found.where or without_status(reason)
                table.add_row(escape(name), what, escape(where), found.figures, duration(left) if left else "")
            elif what != "done":
                table.add_row(escape(name), what, escape(reason), "", "")
            elif name in done:
                table.add_row(escape(name), what, "", headline(self._plan.folder / name), "")
        return table

    def _left(self, name: str, now: float) -> float | None:
        """Seconds that a running cell still needs, by its own speed."""
        share, before = self._progress(name).share, self._share.get(name, 0.0)
        if name not in self._began or share is None or share <= before:
            return None
        return (now - self._began[name]) / (share - before) * (1.0 - share)

    def _title(self, status: Mapping[str, tuple[str, str]]) -> str:
        ended = sum(what in _ENDED for what, _ in status.values())
        waiting, now = len(self._plan.todo) - len(status), time.monotonic()
        running = [self._left(name, now) for name, (what, _) in status.items() if what == "running"]
        left = ""
        if self._took and None not in running:
            mean = statistics.fmean(self._took)
            left = f", about {duration((sum(filter(None, running)) + mean * waiting) / max(1, len(running)))} left"
        finished = sum(entry.status == "done" for entry in self._plan.chosen)
        return f"{self._plan.grid.name}: {finished + ended} of {len(self._plan.chosen)} cells, {waiting} waiting{left}"


def make_view(plan: Plan) -> View:
    """Live where stderr is a terminal, else lines."""
    return Live(plan) if sys.stderr.isatty() else Lines(plan)


def outcome_table(plan: Plan, outcome: Outcome) -> Table:
    """The chosen cells as they stand: status, seconds, headline figure or reason."""
    table = Table("cell", "status", "seconds", "result", title=plan.grid.about or None, title_justify="left")
    table.columns[2].justify = "right"
    for entry in outcome.entries:
        result = headline(plan.folder / entry.folder) if entry.status == "done" else without_status(entry.reason)
        if entry.folder != entry.name:
            result += f" (in {entry.folder})"
        seconds = "" if entry.seconds is None else f"{entry.seconds:,.0f}"
        table.add_row(escape(entry.name), entry.status, seconds, escape(result.strip()))
    return table


def without_status(reason: str) -> str:
    """A reason beside its cell's status: "running elsewhere" would say it twice."""
    return reason.removeprefix("running ") if reason.startswith(ELSEWHERE) else reason


def duration(seconds: float) -> str:
    """A time in words, short."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
