"""Collect the runs of a report: run directories, grids, and folders of either.

A run directory needs `config.json` and `metrics.jsonl`. The scores of a finished run are in `scores.test.json`, or in
`scores.valid.json` if its corpus has no test set. Model, state and hypotheses may be missing, as in `results/`.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from repose.grids import manifest
from repose.grids.cells import CellStatus, holder_of, reason
from repose.grids.file import CORPUS
from repose.grids.manifest import Entry, Manifest
from repose.report.content import some
from repose.report.naming import (
    corpora_apart,
    corpus_name,
    find_baseline,
    grouped,
    names_apart,
    once,
    systems_apart,
)
from repose.report.run_set import Absent, ReportRun, RunSet, Why
from repose.saved_run.folder import SCORED_SPLITS, RunFolder
from repose.saved_run.records import RunStatus
from repose.system.errors import CheckpointError, ConfigError
from repose.system.terminal import counted


def read_run(folder: Path, cell: Entry | None, grid: Path | None = None) -> ReportRun:
    """Read the run in a directory, with what its grid records about it. Raises CheckpointError for damaged files.

    `cell`: the run's entry in its grid; without one, name and group are the folder's name. `grid`: the grid's folder.
    """
    run = RunFolder(folder)
    records, config = run.records(), run.config()
    experiment = config.experiment
    split, scores = run.main_scores() or (SCORED_SPLITS[0], None)
    if records.status is RunStatus.STOPPED or (records.end is None and run.is_under_way):
        scores = None  # written by `repose evaluate --out` while the model is still being trained
    return ReportRun(
        folder=folder,
        place=(grid or folder.absolute().parent).absolute(),
        name=cell.name if cell else folder.name,
        group=cell.system if cell else folder.name,
        labels=cell.labels if cell else {},
        corpus=(cell.corpus if cell else None) or corpus_name(experiment.corpus),
        config=config,
        experiment=experiment,
        records=records,
        scores=scores,
        split=split,
        looks_ahead=bool((scores or {}).get("looks_ahead", experiment.looks_ahead)),
        run_id=str((scores or {}).get("run_id", config.run_id)),
        status="done" if scores is not None else _status(folder, cell),
    )


def _status(folder: Path, cell: Entry | None) -> str:
    """Return how far a run without scores is. It runs if a process holds its lock, whatever its grid records: a grid
    that was killed records nothing."""
    recorded = "unfinished" if cell is None or cell.status == CellStatus.DONE else cell.status
    try:
        holder = holder_of(folder)
    except OSError:
        return recorded
    if holder is not None:
        return CellStatus.RUNNING
    return CellStatus.STOPPED if recorded in (CellStatus.RUNNING, CellStatus.ELSEWHERE) else recorded


_NO_FOLDER = "there is no folder {}: name run folders, or folders of runs"


def read_runs(paths: Sequence[Path], *, title: str | None = None, baseline: str | None = None) -> RunSet:
    """Read all runs under `paths`: run directories, grid folders (grid.json), or folders with either at any depth.

    A run that is found twice (same id and decoding settings) counts once. Anything unreadable is left out and listed in
    `problems`. Raises CheckpointError if a path does not exist or no run is found, ConfigError if the baseline is not
    one of the systems.
    """
    problems: list[str] = []
    grids, folders = _find(paths, problems)
    cells = [(folder, *found) for folder, grid in grids for found in _of_grid(folder, grid, problems)]
    in_grids = [run for _, _, run in cells if isinstance(run, ReportRun)]
    known = {run.folder.resolve() for run in in_grids}
    alone = _of_folders((folder for folder in folders if folder.resolve() not in known), problems)
    named = corpora_apart([*in_grids, *alone])
    named = [*named[: len(in_grids)], *grouped(named[len(in_grids) :])]
    if not named:
        detail = f": {problems[0]}" if problems else ""
        raise CheckpointError(f"no run has recorded anything under {', '.join(map(str, paths))}{detail}")
    runs = names_apart(systems_apart(once(named, problems)))
    problems += [*map(_unfinished, (run for run in runs if not run.done)), *_warmup_warnings(runs)]
    baselines = ((folder.absolute(), grid.report.baseline) for folder, grid in grids if grid.report.baseline)
    place, of_grid = next(baselines, (None, None))
    before = sorted(named, key=lambda run: run.place != place)  # that grid's runs first
    found, twins = find_baseline(baseline, of_grid, before, runs, problems)
    return RunSet(
        title=title or ("" if alone else ", ".join(dict.fromkeys(grid.name for _, grid in grids))) or _title(paths),
        runs=tuple(runs),
        baseline=found,
        twins=twins,
        published=tuple(dict.fromkeys(name for _, grid in grids for name in grid.report.published)),
        sentences=_sentences(grids, runs),
        missing=tuple(_absent(folder, cell, why, runs) for folder, cell, why in cells if isinstance(why, str)),
        problems=tuple(dict.fromkeys(problems)),
        # With the grid's name, if there are several grids.
        about=tuple(
            dict.fromkeys(
                f"{grid.name}: {grid.about}" * (len(grids) > 1) or grid.about for _, grid in grids if grid.about
            )
        ),
    )


def _find(paths: Sequence[Path], problems: list[str]) -> tuple[list[tuple[Path, Manifest]], list[Path]]:
    """Return the grids under `paths`, with their folders, and the other run directories, each only once."""
    grids: dict[Path, tuple[Path, Manifest]] = {}
    folders: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise CheckpointError(_NO_FOLDER.format(path))
        for folder in _walk(path):
            try:
                grid = manifest.read(folder)
            except CheckpointError as error:
                problems.append(f"{error}.")
                grid = None
            if grid is not None:
                grids.setdefault(folder.resolve(), (folder, grid))
            elif RunFolder(folder).exists and RunFolder(folder).metrics_file.is_file():
                folders.setdefault(folder.resolve(), folder)
    return list(grids.values()), list(folders.values())


def _warmup_warnings(runs: Iterable[ReportRun]) -> list[str]:
    """Return a sentence for each run whose training ended before its learning rate reached the peak."""
    found = ((run, run.experiment.training.warmup_warning(run.records.updates)) for run in runs if run.trained)
    return [f"{run.name}: {warning}." for run, warning in found if warning]


def _title(paths: Sequence[Path]) -> str:
    """Return the name of the folder, or of the closest folder that contains all of them."""
    real = [path.resolve() for path in paths]
    together = Path(os.path.commonpath(real)) if len({path.drive for path in real}) == 1 else real[0]
    return together.name or real[0].name


def read_curves(folders: Sequence[Path]) -> RunSet:
    """Read the runs in these directories and below them, finished or not. A cell of a grid in or just above them keeps
    its system's name and its order from the grid. Other paths that a shell's `*` matches are ignored. Unreadable runs,
    such as cells that failed before they recorded anything, are left out and listed in `problems`. Raises
    CheckpointError or ConfigError if no run is left."""
    if missing := next((folder for folder in folders if not folder.exists()), None):
        raise CheckpointError(_NO_FOLDER.format(missing))
    found = list(dict.fromkeys(place for folder in folders for place in _runs_in(folder))) or list(folders)
    grids = dict.fromkeys([*folders, *(folder.parent for folder in found)])
    cells: dict[Path, Entry] = {}
    problems: dict[Path, str] = {}
    for folder in grids:
        is_named = any(folder.resolve().is_relative_to(path.resolve()) for path in folders)
        for place, cell in _cells_in(folder):
            cells.setdefault(place, cell)
            if is_named and cell.status == CellStatus.FAILED:
                problems[place] = f"{cell.name} is left out: it failed ({reason(cell.state) or 'for no known reason'})."
    read, errors = [], []
    for folder in found:
        try:
            read.append(read_run(folder, cells.get(folder.resolve())))
            problems.pop(folder.resolve(), None)
        except (CheckpointError, ConfigError) as error:
            problems.setdefault(folder.resolve(), f"{folder.name} is left out: {error}.")
            errors.append(error)
    if not read:
        raise errors[0]
    runs = {run.folder.resolve(): run for run in corpora_apart(read)}
    alone = grouped([run for place, run in runs.items() if place not in cells])
    left_out = list(problems.values())
    kept = once([*(runs[place] for place in cells if place in runs), *alone], left_out)
    return RunSet(title="", runs=tuple(names_apart(systems_apart(kept))), problems=tuple(left_out))


def _sentences(grids: Sequence[tuple[Path, Manifest]], runs: Sequence[ReportRun]) -> dict[str, tuple[int, ...]]:
    """Return the lines that grids ask for, by corpus; a plain list of lines applies to all corpora of its grid."""
    found: dict[str, dict[int, None]] = {}
    for folder, grid in grids:
        wanted = grid.report.sentences
        for run in runs:
            if run.folder.is_relative_to(folder):
                label = run.labels.get(CORPUS) or corpus_name(run.experiment.corpus)
                lines = wanted.get(label, ()) if isinstance(wanted, Mapping) else wanted
                found.setdefault(run.corpus, {}).update(dict.fromkeys(lines))
    return {corpus: tuple(lines) for corpus, lines in found.items() if lines}


def _of_grid(place: Path, grid: Manifest, problems: list[str]) -> list[tuple[Entry, ReportRun | Why]]:
    """Return each cell of a grid with its run, or with why it has none."""
    found = [(cell, _of_cell(place, cell, problems)) for cell in grid.entries]
    if waiting := [cell.name for cell, run in found if run == "unfinished"]:
        number = f"{len(waiting)} of {counted(len(grid.entries), 'cell')}"
        have = "has" if len(waiting) == 1 else "have"
        problems.append(f"{number} of {grid.name} {have} recorded nothing yet: {some(waiting)}.")
    return found


def _of_cell(place: Path, cell: Entry, problems: list[str]) -> ReportRun | Why:
    """Return a cell's run, or why it has none."""
    folder, failed = place / cell.folder, cell.status == CellStatus.FAILED
    if failed:
        problems.append(f"{cell.name} failed: {reason(cell.state) or 'no reason is recorded'}.")
    if not RunFolder(folder).exists or not RunFolder(folder).has_records:
        if cell.status != CellStatus.DONE:
            return "failed" if failed else "unfinished"
        problems.append(f"{cell.name} was finished, but {folder} is gone: put it back, or run the grid again.")
        return "missing"
    try:
        run = read_run(folder, cell, place)
    except (CheckpointError, ConfigError) as error:
        problems += [] if failed else [f"{cell.name} is left out: {error}."]
        return "failed" if failed else "left out"
    held = run.config.run_id
    if held == cell.run_id:  # a failed cell's scores are not the ones it should have
        return replace(run, scores=None, status="failed") if failed else run
    own = "the grid does not know the cell's" if cell.run_id is None else f"the cell is run {cell.run_id}"
    problems.append(f"{cell.name} is left out: {folder} holds run {held}, {own}.")
    return "failed" if failed else "left out"


def _absent(place: Path, cell: Entry, why: Why, runs: Iterable[ReportRun]) -> Absent:
    """Return a cell without a run, with the report's names for its system and corpus if other runs with its labels are
    there."""
    beside = next((run for run in runs if run.place == place.absolute() and run.labels == cell.labels), None)
    group, corpus = (cell.system, cell.corpus or "") if beside is None else (beside.group, beside.corpus)
    return Absent(name=cell.name, group=group, corpus=corpus, why=why)


def _of_folders(folders: Iterable[Path], problems: list[str]) -> list[ReportRun]:
    runs = []
    for folder in folders:
        try:
            runs.append(read_run(folder, None))
        except (CheckpointError, ConfigError) as error:
            problems.append(f"{folder.name} is left out: {error}.")
    return runs


def _unfinished(run: ReportRun) -> str:
    if run.trained and run.failed:
        return f"{run.name} is trained, but its cell failed: it is in the learning curves, not in the final figures."
    if run.trained and run.running:
        return f"{run.name} is trained, and is being scored."
    if run.trained:
        return (
            f"{run.name} is trained, but not scored: run the same command again, which only scores it, or for a trial "
            f"of a search `repose evaluate {run.folder} --out {run.folder}`."
        )
    training, epochs = run.experiment.training, len(run.of_kind("epoch"))
    so_far = f"{epochs} of {counted(training.epochs, 'epoch')}" if training.epochs else counted(epochs, "epoch")
    if training.updates:
        so_far = f"{run.records.updates:,} of {training.updates:,} updates"
    is_so_far = "is being trained" if run.running else "is unfinished"
    return f"{run.name} {is_so_far} ({so_far}): it is in the learning curves, not in the final figures."


def _walk(path: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield `path` and the folders below it, but none below a run or grid; follow no link to a folder in `above`."""
    if (real := path.resolve()) in above:
        return
    yield path
    if RunFolder(path).exists or (path / manifest.NAME).is_file():
        return
    for below in sorted(path.iterdir(), key=lambda p: _natural(p.name)):
        if below.is_dir() and not below.name.startswith("."):
            yield from _walk(below, above | {real})


def _runs_in(folder: Path) -> list[Path]:
    """Return the run directories in a folder or below it that have recorded something."""
    found: list[Path] = []
    for below in _walk(folder) if folder.is_dir() else ():
        found += [below, *(place for place, _ in _cells_in(below))]
    return [place for place in found if RunFolder(place).has_records]


def _cells_in(folder: Path) -> list[tuple[Path, Entry]]:
    """Return a grid's cells with their run directories; empty if the folder has no readable grid."""
    try:
        grid = manifest.read(folder)
    except CheckpointError:
        return []
    return [] if grid is None else [((folder / cell.folder).resolve(), cell) for cell in grid.entries]


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts s2 before s10."""
    return [(int(piece), "") if piece.isdecimal() else (0, piece) for piece in re.split(r"(\d+)", name)]
