"""Show a running grid: a live table on a terminal, elsewhere a line per event; and a table at the end."""

import contextlib
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

from repose.config.experiment import Experiment
from repose.grids.cells import CellState, CellStatus, Tell, reason
from repose.grids.run import GridOutcome, GridPlan
from repose.saved_run import records
from repose.saved_run.folder import RunFolder, main_figure
from repose.saved_run.records import Record
from repose.system.errors import CheckpointError
from repose.system.terminal import Fitted, counted, duration, make_table, say

_TAIL = 1 << 16  # bytes of metrics.jsonl that hold its last records
_LAST_DONE = 3  # finished cells that stay in the live table
_ENDED = (CellStatus.DONE, CellStatus.FAILED)  # stopped cells are still to be done


class CellProgress(NamedTuple):
    """The progress of a run."""

    where: str
    """Epoch and update, with their totals."""
    figures: str
    share: float | None
    """Share of its updates that are done; None while the length of an epoch is not known."""


def progress(folder: Path, experiment: Experiment) -> CellProgress:
    """Return the progress of the run in a directory, from the end of its metrics.jsonl."""
    lines = _tail(RunFolder(folder).metrics_file)
    if not lines:
        return CellProgress("", "", None)
    training, update = experiment.training, lines[-1]["update"]
    ends = [
        record["update"] / record["epoch"]
        for record in lines
        if record["kind"] == "epoch" and min(record["update"], record["epoch"]) > 0
    ]
    limits = [] if training.updates is None else [training.updates]
    limits += [round(ends[-1]) * training.epochs] if training.epochs is not None and ends else []
    of_epochs = f"/{training.epochs}" if training.epochs is not None else ""
    of_updates = f" of {min(limits):,}" if limits else ""
    where = f"epoch {lines[-1]['epoch']}{of_epochs}, update {update:,}{of_updates}"
    figures = []
    for kind, name, label in (("train", "loss", "loss"), ("valid", "tf_loss", "tf_loss"), ("valid", "bleu", "BLEU")):
        last = next((r[name] for r in reversed(lines) if r["kind"] == kind and name in r), None)
        figures += [] if last is None else [f"{label} {last:{'.1f' if name == 'bleu' else '.3f'}}"]
    return CellProgress(where, ", ".join(figures), min(1.0, update / min(limits)) if limits else None)


def _tail(path: Path) -> list[Record]:
    """Return the last records, without lines that are cut off at either end."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found: list[Record] = []
    for line in lines:
        with contextlib.suppress(*records.NOT_RECORDS):
            found += records.parse(line).training
    return found


def headline(folder: Path) -> str:
    """Return the main figure of a finished run: BLEU with its beam, or another task's `main_figure`."""
    try:
        split, scores = RunFolder(folder).main_scores() or ("", {})
    except CheckpointError:
        return ""
    decoded = scores.get("decoded", {})
    for name in sorted(decoded, key=lambda name: name == "greedy"):
        if "bleu" in decoded[name]:
            return f"BLEU {decoded[name]['bleu']['value']:.2f} ({name}, {split})"
    if figures := scores.get("figures"):
        name = main_figure(figures)
        return f"{name} {figures[name]['value']:.3f} {figures[name].get('unit', '')}".strip()
    return ""


class GridLines:
    """One line per event on stderr."""

    def __init__(self, plan: GridPlan) -> None:
        self._plan, self._ended, self._began = plan, 0, dict[str, float]()

    def __call__(self, name: str, state: CellState) -> None:
        status, what = state.status, str(state.status)
        if status == CellStatus.RUNNING:
            self._began.setdefault(name, time.monotonic())
        elif status in (*_ENDED, CellStatus.STOPPED):
            self._ended += status in _ENDED
            what += f" after {duration(time.monotonic() - self._began.get(name, time.monotonic()))}"
        more = headline(self._plan.folder / name) if status == CellStatus.DONE else reason(state)
        say(f"[{self._ended}/{len(self._plan.todo)}] {name}: {', '.join(filter(None, (what, more)))}")


class GridLive:
    """A table on stderr that is redrawn every second while its context is open."""

    def __init__(self, plan: GridPlan) -> None:
        self._plan = plan
        self._experiments = {cell.name: cell.experiment for cell in plan.grid.cells}
        self._states: dict[str, CellState] = {}
        self._began: dict[str, float] = {}
        self._share: dict[str, float] = {}  # share that a resumed cell had done when it began
        self._took: list[float] = []
        self._lock = threading.Lock()
        console = Console(stderr=True, highlight=False, emoji=False)
        self._live = Live(console=console, get_renderable=self._table, refresh_per_second=1, transient=True)

    def __call__(self, name: str, state: CellState) -> None:
        with self._lock:
            self._states[name] = state
            now = time.monotonic()
            if state.status == CellStatus.RUNNING:
                self._began[name] = now
                self._share[name] = self._progress(name).share or 0.0
            elif name in self._began and state.status == CellStatus.DONE:
                self._took.append(now - self._began[name])

    def __enter__(self) -> "GridLive":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the table; `outcome_table` follows."""
        self._live.stop()

    def _progress(self, name: str) -> CellProgress:
        return progress(self._plan.folder / name, self._experiments[name])

    def _table(self) -> RenderableType:
        with self._lock:
            states, now = dict(self._states), time.monotonic()
        done = [name for name, state in states.items() if state.status == CellStatus.DONE]
        shown = {name: state for name, state in states.items() if name not in done[:-_LAST_DONE]}
        running = [name for name, state in states.items() if state.status == CellStatus.RUNNING]
        found = {name: self._progress(name) for name in running}
        left = {name: self._left(name, found[name].share, now) for name in running}
        columns = {
            name: self._running(found[name], state, left[name]) if name in found else self._not_running(name, state)
            for name, state in shown.items()
        }
        rows = [(name, str(shown[name].status), *texts) for name, texts in columns.items()]
        title = self._title(states, list(left.values()))
        return Fitted(make_table(("cell", "status", "progress", "so far", "left"), rows, title=title))

    def _not_running(self, name: str, state: CellState) -> tuple[str, str, str]:
        """Return progress, figures and time left of a cell that is not running."""
        if state.status == CellStatus.DONE:
            return "", headline(self._plan.folder / name), ""
        return reason(state), "", ""

    def _running(self, found: CellProgress, state: CellState, left: float | None) -> tuple[str, str, str]:
        """Return progress, figures and time left of a running cell."""
        where = f"{found.where}: scoring" if found.share == 1.0 else found.where or reason(state)
        return where, found.figures, duration(left) if left else ""

    def _left(self, name: str, share: float | None, now: float) -> float | None:
        """Return the seconds that a running cell still needs, from its own speed."""
        before = self._share.get(name, 0.0)
        if name not in self._began or share is None or share <= before:
            return None
        return (now - self._began[name]) / (share - before) * (1.0 - share)

    def _title(self, states: Mapping[str, CellState], running: Sequence[float | None]) -> str:
        """Return the table's title. `running`: seconds that each running cell still needs, None if unknown."""
        ended = sum(state.status in _ENDED for state in states.values())
        begun = sum(state.status != CellStatus.WAITING for state in states.values())  # Ray reports waiting cells, too
        waiting, left = len(self._plan.todo) - begun, ""
        if self._took and None not in running:
            mean = statistics.fmean(self._took)
            left = f", about {duration((sum(filter(None, running)) + mean * waiting) / max(1, len(running)))} left"
        finished = sum(entry.status == CellStatus.DONE for entry in self._plan.chosen)
        done = f"{finished + ended} of {counted(len(self._plan.chosen), 'cell')}"
        return f"{self._plan.grid.name}: {done}, {waiting} waiting{left}"


def make_view(plan: GridPlan) -> contextlib.AbstractContextManager[Tell]:
    """Return GridLive if stderr is a terminal, else GridLines. The entered view may be called from any thread."""
    return GridLive(plan) if sys.stderr.isatty() else contextlib.nullcontext(GridLines(plan))


def once() -> Callable[[str], str]:
    """Return a function that returns each reason in full the first time and "as above" later, because dozens of cells
    may fail for one reason."""
    said: set[str] = set()

    def told(why: str) -> str:
        if why in said:
            return "as above"
        said.update(filter(None, [why]))
        return why

    return told


def outcome_table(plan: GridPlan, outcome: GridOutcome) -> Table:
    """Return a table of the chosen cells: status, seconds, and main figure or reason."""
    rows, why = [], once()
    for entry in outcome.entries:
        done = entry.status == CellStatus.DONE
        result = [headline(plan.folder / entry.folder) if done else why(reason(entry.state))]
        result += [f"(in {entry.folder})"] * (entry.folder != entry.name)
        seconds = "" if entry.seconds is None else f"{entry.seconds:,.0f}"
        rows.append((entry.name, str(entry.status), seconds, " ".join(filter(None, result))))
    return make_table(("cell", "status", "seconds", "result"), rows, right=[2], title=plan.grid.about or None)
