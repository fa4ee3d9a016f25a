"""Run a grid: leave finished cells alone, resume interrupted ones, report failed ones, and go on with the rest."""

import contextlib
import fnmatch
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from repose.config.file import to_json
from repose.grids import manifest
from repose.grids.cells import CellJob, CellState, CellStatus, RunCells, Tell
from repose.grids.grid import Cell, Grid
from repose.grids.manifest import Entry
from repose.grids.survey import Identity, check_distinct, identify, is_finished, look, unseen
from repose.saved_run.folder import OTHER_CODE, RunFolder
from repose.system.errors import CheckpointError, ConfigError, ReposeError
from repose.system.job_array import every_nth
from repose.system.signals import stopping
from repose.system.terminal import Say, counted

_LISTED = 20


@dataclass(frozen=True)
class GridPlan:
    """A grid in its folder, with the status of its cells and those to be run."""

    grid: Grid
    folder: Path
    chosen: tuple[Entry, ...]
    """The cells that this call is about (`only`, `shard`)."""
    todo: tuple[Entry, ...]
    """The chosen cells that are to be run."""
    identities: Mapping[str, Identity | ReposeError]
    """The identity of each chosen cell, by name."""

    @property
    def summary(self) -> str:
        """How many of the chosen cells are done, are to be run, run elsewhere, or failed, in words."""
        done, elsewhere = (
            sum(entry.status == status for entry in self.chosen) for status in (CellStatus.DONE, CellStatus.ELSEWHERE)
        )
        failed = len(self.chosen) - done - elsewhere - len(self.todo)
        rest = f", {elsewhere} running elsewhere" * bool(elsewhere) + f", {failed} that failed" * bool(failed)
        return f"{done} of them done, {len(self.todo)} to run{rest}"

    def cell(self, entry: Entry) -> Cell:
        return next(cell for cell in self.grid.cells if cell.name == entry.name)


@dataclass(frozen=True)
class GridOutcome:
    """The outcome of a call on a grid."""

    entries: tuple[Entry, ...]
    """The chosen cells with their status now."""
    stopped: bool
    """True if it was asked to stop."""
    note: str = ""
    """Why the manifest could not be written, if so."""

    @property
    def exit_code(self) -> int:
        """0 if all are done, 1 if some failed, 3 if some are still to be done: the same command resumes them."""
        if self.stopped and any(entry.status != CellStatus.DONE for entry in self.entries):
            return 3
        if any(entry.status == CellStatus.FAILED for entry in self.entries):
            return 1
        return 0 if all(entry.status == CellStatus.DONE for entry in self.entries) else 3


def choose(cells: Sequence[Cell], only: Sequence[str], shard: str | None) -> tuple[Cell, ...]:
    """Return every N-th (`shard`) of the cells whose name or group matches one of the patterns. Raises ConfigError."""
    for pattern in only:
        if not any(_matches(cell, pattern) for cell in cells):
            groups = list(dict.fromkeys(cell.group for cell in cells))
            listed = ", ".join(groups[:_LISTED]) + (f" and {len(groups) - _LISTED} more" if groups[_LISTED:] else "")
            raise ConfigError(f"--only {pattern!r} matches no cell: groups are {listed}; * stands for anything")
    found = tuple(cell for cell in cells if not only or any(_matches(cell, pattern) for pattern in only))
    return tuple(every_nth(found, shard))


def _matches(cell: Cell, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in (cell.name, cell.group))


def make_plan(
    grid: Grid,
    out: Path,
    *,
    only: Sequence[str] = (),
    shard: str | None = None,
    retry_failed: bool = True,
    record: bool = True,
    say: Say,
) -> GridPlan:
    """Prepare the corpora of the chosen cells and look up the cells' status; write the manifest if `record`.

    Raises ConfigError and CheckpointError.
    """
    chosen = choose(grid.cells, only, shard)
    folder = out / grid.name
    known = manifest.known_entries(folder)
    if RunFolder(folder).exists:
        raise CheckpointError(f"{folder} is a run directory: choose another --out for the grid {grid.name}")
    identities = identify(chosen, say=say)
    check_distinct(chosen, identities)
    mine, blocked = look(chosen, identities, folder, known)
    if record:
        seen = {entry.name: _kept(entry, known, folder, blocked) for entry in mine}
        rest = {cell.name: unseen(cell, folder, known) for cell in grid.cells if cell.name not in seen}
        manifest.write(folder, grid, seen, known, rest=rest)
        _say_left_out(grid, seen | rest, known, say)
    _say_other_code(mine, folder, say)
    open_ = {CellStatus.WAITING, CellStatus.STOPPED, *([CellStatus.FAILED] if retry_failed else [])}
    todo = tuple(entry for entry in mine if entry.status in open_ and entry.name not in blocked)
    return GridPlan(grid, folder, mine, todo, identities)


def _kept(entry: Entry, known: Mapping[str, Entry], folder: Path, blocked: Collection[str]) -> Entry:
    """Return the entry for the manifest. If the grid's file has changed since, a finished run stays in it, and in
    reports, because the cell's new run cannot take its place."""
    before = known.get(entry.name)
    return before if entry.name in blocked and before is not None and is_finished(folder, before) else entry


def _say_left_out(grid: Grid, now: Mapping[str, Entry], known: Mapping[str, Entry], say: Say) -> None:
    """Say which finished cells the grid no longer has, for example because other seeds were asked for. A cell whose run
    now has another name is still there."""
    names, runs = {cell.name for cell in grid.cells}, {entry.run_id for entry in now.values()}
    done = [entry for entry in known.values() if entry.status == CellStatus.DONE]
    gone = [entry.name for entry in done if entry.name not in names and entry.run_id not in runs]
    if gone:
        say(
            f"its report leaves out {counted(len(gone), 'finished cell')} that this call does not name, such as "
            f"{gone[0]}: to include them, name all seeds and values at once"
        )


def _say_other_code(entries: Sequence[Entry], folder: Path, say: Say) -> None:
    """Say which finished cells were trained with other code, such as before a change of an equation."""
    done = [entry for entry in entries if entry.status == CellStatus.DONE]
    old = [entry.name for entry in done if RunFolder(folder / entry.folder).has_other_code]
    if old:
        cells = f"{counted(len(old), 'finished cell')}, such as {old[0]}"
        say(f"{cells}: started {OTHER_CODE}: choose another --out to train them again")


def jobs_of(plan: GridPlan, *, device: str, cores: int, gpus: float = 0.0) -> list[CellJob]:
    needs: dict[str, Any] = {"cores": cores, "gpus": gpus, "device": device}
    folder, cells = plan.folder.absolute(), map(plan.cell, plan.todo)
    return [CellJob(name=c.name, folder=folder / c.name, experiment=to_json(c.experiment), **needs) for c in cells]


class Book:
    """The record of cells' states: it updates the manifest and passes changes to `watch`. Called from any thread."""

    def __init__(self, plan: GridPlan, watch: Tell) -> None:
        self._folder, self._watch = plan.folder, watch
        self._lock = threading.Lock()
        self._began: dict[str, float] = {}
        self.entries = {entry.name: entry for entry in plan.chosen}
        self.note = ""

    def tell(self, name: str, state: CellState) -> None:
        with self._lock:
            took, seconds = 0.0, self.entries[name].seconds
            if state.status == CellStatus.RUNNING:
                self._began[name] = time.monotonic()
            elif name in self._began and state.status != CellStatus.ELSEWHERE:
                took = time.monotonic() - self._began.pop(name)
                seconds = round((seconds or 0.0) + took, 1)
            self.entries[name] = replace(self.entries[name], state=state, seconds=seconds)
            try:
                manifest.update(self._folder, name, took=took, missing=self.entries[name], state=state)
            except ReposeError as error:  # the cells' results are in their own folders
                self.note = str(error)
            with contextlib.suppress(OSError):  # nobody reads the output any more; the work goes on
                self._watch(name, state)

    def look_again(self, plan: GridPlan) -> None:
        """Record how cells ended that may have ended unseen: those that other processes were at work on, even if they
        failed here, and those that finished while they were asked to stop."""
        unsure, ran = (CellStatus.ELSEWHERE, CellStatus.STOPPED), {entry.name for entry in plan.todo}
        theirs = [
            plan.cell(entry)
            for entry in self.entries.values()
            if entry.status in unsure or (entry.status == CellStatus.FAILED and entry.name in ran)
        ]
        if not theirs:
            return
        try:
            known = manifest.known_entries(plan.folder)
            entries, _ = look(theirs, plan.identities, plan.folder, known)
            for entry in entries:
                if entry.status in (CellStatus.DONE, CellStatus.FAILED, CellStatus.ELSEWHERE):
                    self.entries[entry.name] = entry
                if entry.status in (CellStatus.DONE, CellStatus.FAILED):  # the process that ran it records its seconds
                    manifest.update(plan.folder, entry.name, missing=entry, state=entry.state, folder=entry.folder)
        except ReposeError as error:
            self.note = str(error)


def run_plan(plan: GridPlan, jobs: Sequence[CellJob], run_cells: RunCells, *, watch: Tell) -> GridOutcome:
    """Run the cells. The first signal (`repose.system.signals`) asks them to save; a second SIGINT ends them."""
    book, stop, kill = Book(plan, watch), threading.Event(), threading.Event()
    with stopping(stop, kill.set):
        if jobs:
            run_cells(jobs, book.tell, stop=stop, kill=kill)
    book.look_again(plan)
    entries = tuple(book.entries[entry.name] for entry in plan.chosen)
    return GridOutcome(entries, stop.is_set(), book.note)
