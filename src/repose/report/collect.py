"""Collect the runs of a report: run directories, grids, and folders of either.

A run directory needs `config.json` and `metrics.jsonl`. The scores of a finished run are in `scores.test.json`, or in
`scores.valid.json` if its corpus has no test set. Model, state and hypotheses may be missing, as in `results/`.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from repose.config.experiment import TASK_SETTINGS, Experiment
from repose.config.run_id import settings_in_id
from repose.grids import manifest
from repose.grids.cells import CellStatus, reason
from repose.grids.file import CORPUS
from repose.grids.manifest import Entry, Manifest
from repose.report.naming import (
    corpora_apart,
    corpus_name,
    find_baseline,
    grouped,
    names_apart,
    once,
    systems_apart,
)
from repose.runs.folder import SCORED_SPLITS, RunConfig, RunFolder
from repose.runs.records import Record, Records, RunStatus
from repose.system.errors import CheckpointError, ConfigError
from repose.system.terminal import counted


@dataclass(frozen=True, kw_only=True)
class ReportRun:
    """One run, as recorded in its directory."""

    folder: Path
    place: Path
    """Folder of the grid that lists the run, wherever the run is stored; without a grid, the run's parent folder."""
    name: str
    """Name of the cell or, without a grid, of the folder; unique within a RunSet."""
    group: str
    """The system. Runs of one group and corpus differ only in their seed."""
    labels: Mapping[str, str]
    """Maps each axis of the grid to the run's label; empty without a grid."""
    corpus: str
    seed: int
    config: RunConfig
    experiment: Experiment
    records: Records
    scores: Mapping[str, Any] | None
    """Content of scores.test.json or scores.valid.json; None while the run is unfinished."""
    split: str
    """The set that the scores are measured on: "test" or "valid"."""
    task: str
    """The setting `training.task`."""
    looks_ahead: bool
    """True if target positions see later ones, so that teacher-forced figures mean nothing."""
    run_id: str
    """The run id in its scores, which adds how many workers shared its batches if several did; else its own."""
    status: str
    """ "done", or how far the run is: "waiting", "running", "stopped", "failed", "unfinished"."""
    failed_checks: tuple[str, ...] = ()
    """Checks of `repose audit` that its model failed; empty if it was not audited."""

    @property
    def done(self) -> bool:
        """True if it has finished and has scores."""
        return self.scores is not None

    @property
    def failed(self) -> bool:
        """True if its grid records it as failed."""
        return self.status == CellStatus.FAILED

    @property
    def translates(self) -> bool:
        """True if its task is translation."""
        return TASK_SETTINGS[self.task].translates

    @property
    def trained(self) -> bool:
        """True if its training has ended, with or without scores."""
        return self.records.status is RunStatus.DONE

    @property
    def comparable(self) -> bool:
        """True if its numbers may be compared with other systems': it neither looks ahead nor failed an audit."""
        return not self.looks_ahead and not self.failed_checks

    def of_kind(self, kind: str) -> tuple[Record, ...]:
        """Return its records of one kind: "train", "epoch", "valid" or "model"."""
        return self.records.of_kind(kind)


@dataclass(frozen=True, kw_only=True)
class Absent:
    """A run without final figures."""

    name: str
    group: str
    corpus: str
    why: Literal["failed", "left out", "missing", "unfinished"]


@dataclass(frozen=True, kw_only=True)
class RunSet:
    """Runs to report together, in the order in which they were named."""

    title: str
    runs: tuple[ReportRun, ...]
    """Finished runs, and unfinished ones that have recorded something."""
    baseline: str | None = None
    """The group that the others are tested against; None if none is named."""
    twins: Mapping[str, str] = field(default_factory=dict)
    """Maps some groups to the group that they are tested against instead of the baseline."""
    published: tuple[str, ...] = ()
    """Entries of published.toml that the grid names; if empty, all entries that fit are shown."""
    sentences: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Maps a corpus to the lines of its test set, counted from 1, whose translations the grid asks for."""
    missing: tuple[Absent, ...] = ()
    """Cells of grids without a run here: nothing was recorded, or the records cannot be read."""
    problems: tuple[str, ...] = ()
    """One sentence for each run that is unfinished, broken or left out, and for each other problem."""
    about: tuple[str, ...] = ()
    """What each grid is for, as its file says."""

    def of(self, group: str, corpus: str) -> tuple[ReportRun, ...]:
        """Return the runs of a system on a corpus, including unfinished ones."""
        return tuple(run for run in self.runs if run.group == group and run.corpus == corpus)

    def done(self, group: str, corpus: str) -> tuple[ReportRun, ...]:
        """Return the finished runs of a system on a corpus."""
        return tuple(run for run in self.of(group, corpus) if run.done)

    @property
    def absent(self) -> tuple[Absent, ...]:
        """Everything without final figures: missing cells, and runs that have not finished."""
        unfinished = (
            Absent(name=run.name, group=run.group, corpus=run.corpus, why="failed" if run.failed else "unfinished")
            for run in self.runs
            if not run.done
        )
        return (*self.missing, *unfinished)

    def against(self, groups: Sequence[str]) -> dict[str, str]:
        """Return the group that each group is tested against: its twin, else the baseline, else the first group. Groups
        that others are tested against have no entry."""
        base = self.baseline if self.baseline is not None and self.baseline in groups else groups[0]
        twins = {group: twin for group, twin in self.twins.items() if {group, twin} <= set(groups)}
        bases = {base, *twins.values()}
        return {group: twins.get(group, base) for group in groups if group not in bases}

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """All systems, in the order of the runs."""
        return tuple(dict.fromkeys(run.group for run in self.runs))

    @cached_property
    def corpora(self) -> tuple[str, ...]:
        """All corpora, in the order of the runs."""
        return tuple(dict.fromkeys(run.corpus for run in self.runs))

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """All tasks, in the order of the runs."""
        return tuple(dict.fromkeys(run.task for run in self.runs))

    def of_task(self, task: str) -> "RunSet":
        """Return only the runs of one task."""
        return self._only(run for run in self.runs if run.task == task)

    def on(self, corpora: Sequence[str]) -> "RunSet":
        """Return only the runs on these corpora."""
        return self._only(run for run in self.runs if run.corpus in corpora)

    @property
    def translations(self) -> "RunSet":
        """Only the runs that translate."""
        return self._only(run for run in self.runs if run.translates)

    def _only(self, runs: Iterable[ReportRun]) -> "RunSet":
        """Return a set of these runs; it keeps the baseline only if that is among their systems."""
        part = replace(self, runs=tuple(runs))
        return part if part.baseline in part.groups else replace(part, baseline=None)


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
    corpus = corpus_name(experiment.corpus)
    task = experiment.training.task
    return ReportRun(
        folder=folder,
        place=(grid or folder.absolute().parent).absolute(),
        name=cell.name if cell else folder.name,
        group=cell.system if cell else folder.name,
        labels=cell.labels if cell else {},
        corpus=(cell.corpus if cell else None) or corpus,
        seed=experiment.training.seed,
        config=config,
        experiment=experiment,
        records=records,
        scores=scores,
        split=split,
        task=task,
        looks_ahead=bool((scores or {}).get("looks_ahead", experiment.looks_ahead)),
        run_id=str((scores or {}).get("run_id", config.run_id)),
        status="done" if scores is not None else "unfinished" if cell is None or cell.status == "done" else cell.status,
    )


_NO_FOLDER = "there is no folder {}: name run folders, or folders of runs"


def read_runs(paths: Sequence[Path], *, title: str | None = None, baseline: str | None = None) -> RunSet:
    """Read all runs under `paths`: run directories, grid folders (grid.json), or folders with either at any depth.

    A run that is found twice (same id and decoding settings) counts once. Anything unreadable is left out and listed in
    `problems`. Raises CheckpointError if a path does not exist or no run is found, ConfigError if the baseline is not
    one of the systems.
    """
    problems: list[str] = []
    grids, folders = _find(paths, problems)
    missing: list[tuple[Path, Entry, Absent]] = []
    in_grids = [run for folder, grid in grids for run in _of_grid(folder, grid, problems, missing)]
    alone = _of_folders(_others(folders, in_grids), problems)
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
        title=title or ("" if alone else ", ".join(grid.name for _, grid in grids)) or _title(paths),
        runs=tuple(runs),
        baseline=found,
        twins=twins,
        published=tuple(dict.fromkeys(name for _, grid in grids for name in grid.report.published)),
        sentences=_sentences(grids, runs),
        missing=tuple(_as_named(*cell, runs) for cell in missing),
        problems=tuple(dict.fromkeys(problems)),
        # With the grid's name, if there are several grids.
        about=tuple(f"{grid.name}: {grid.about}" * (len(grids) > 1) or grid.about for _, grid in grids if grid.about),
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


def _others(folders: Iterable[Path], runs: Iterable[ReportRun]) -> list[Path]:
    """Return the folders that belong to none of these runs."""
    known = {run.folder.resolve() for run in runs}
    return [folder for folder in folders if folder.resolve() not in known]


def _warmup_warnings(runs: Iterable[ReportRun]) -> list[str]:
    """Return a sentence for each run whose training ended before its learning rate reached the peak."""
    found = []
    for run in runs:
        if run.trained and (warning := run.experiment.training.warmup_warning(run.records.updates)):
            found.append(f"{run.name}: {warning}.")
    return found


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
    named, folders = folders, list(dict.fromkeys(run for f in folders for run in _runs_in(f))) or list(folders)
    grids = dict.fromkeys([*named, *(folder.parent for folder in folders)])
    cells: dict[Path, Entry] = {}
    problems: dict[Path, str] = {}
    for folder in grids:
        is_named = any(folder.resolve().is_relative_to(path.resolve()) for path in named)
        for place, cell in _cells_in(folder):
            cells.setdefault(place, cell)
            if is_named and cell.status == CellStatus.FAILED:
                problems[place] = f"{cell.name} is left out: it failed ({reason(cell.state) or 'for no known reason'})."
    read, errors = [], []
    for folder in folders:
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
    of_grids = systems_apart([runs[place] for place in cells if place in runs])
    return RunSet(title="", runs=tuple(names_apart([*of_grids, *alone])), problems=tuple(problems.values()))


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


def _of_grid(
    place: Path, grid: Manifest, problems: list[str], missing: list[tuple[Path, Entry, Absent]]
) -> list[ReportRun]:
    """Return the runs of a grid's cells. Cells without one go to `missing`, with what the grid records of them."""
    runs, waiting = [], []
    for cell in grid.entries:
        folder = place / cell.folder
        failed = cell.status == CellStatus.FAILED
        absent = Absent(name=cell.name, group=cell.system, corpus=cell.corpus or "", why="left out")
        if failed:
            problems.append(f"{cell.name} failed: {reason(cell.state) or 'no reason is recorded'}.")
            absent = replace(absent, why="failed")
        if not RunFolder(folder).exists or not RunFolder(folder).has_records:
            if is_gone := cell.status == CellStatus.DONE:
                problems.append(f"{cell.name} was finished, but {folder} is gone: put it back, or run the grid again.")
            waiting += [] if failed or is_gone else [cell.name]
            why: Any = "missing" if is_gone else "unfinished"
            missing.append((place, cell, absent if failed else replace(absent, why=why)))
            continue
        try:
            run = read_run(folder, cell, place)
        except (CheckpointError, ConfigError) as error:
            problems += [] if failed else [f"{cell.name} is left out: {error}."]
            missing.append((place, cell, absent))
            continue
        held = run.config.run_id
        if held == cell.run_id:  # a failed cell's scores are not the ones it should have
            runs.append(replace(run, scores=None, status="failed") if failed else run)
            continue
        own = "the grid does not know the cell's" if cell.run_id is None else f"the cell is run {cell.run_id}"
        problems.append(f"{cell.name} is left out: {folder} holds run {held}, {own}.")
        missing.append((place, cell, absent))
    if waiting:
        number = f"{len(waiting)} of {counted(len(grid.entries), 'cell')}"
        have = "has" if len(waiting) == 1 else "have"
        problems.append(f"{number} of {grid.name} {have} recorded nothing yet: {some(waiting)}.")
    return runs


def _as_named(place: Path, cell: Entry, absent: Absent, runs: Iterable[ReportRun]) -> Absent:
    """Return `absent` with the report's names for its system and corpus, if other runs with its labels are there."""
    beside = next((run for run in runs if run.place == place.absolute() and run.labels == cell.labels), None)
    return absent if beside is None else replace(absent, group=beside.group, corpus=beside.corpus)


def some(names: Sequence[str]) -> str:
    """List the first three names, and say how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


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
    if run.trained:
        return (
            f"{run.name} is trained, but not scored: run the same command again, which only scores it, or for a trial "
            f"of a search `repose evaluate {run.folder} --out {run.folder}`."
        )
    training, epochs = run.experiment.training, len(run.of_kind("epoch"))
    so_far = f"{epochs} of {counted(training.epochs, 'epoch')}" if training.epochs else counted(epochs, "epoch")
    if training.updates:
        so_far = f"{run.records.updates:,} of {training.updates:,} updates"
    return f"{run.name} is unfinished ({so_far}): it is in the learning curves, not in the final figures."


def unlike(runs: Sequence[ReportRun]) -> list[str]:
    """Return sentences about systems whose runs differ in more than their seed, or share a seed."""
    seen: dict[tuple[str, str, int], ReportRun] = {}
    problems = []
    for run in runs:
        other = seen.setdefault((run.group, run.corpus, run.seed), run)
        if other is not run:
            problems.append(
                f"{other.name} and {run.name} are both seed {run.seed} of {run.group} on {run.corpus}, but differ in "
                "data, settings or numerics (their run ids differ): the mean is over both."
            )
    methods: dict[tuple[str, str], dict[str, ReportRun]] = {}
    for run in runs:
        methods.setdefault((run.group, run.corpus), {}).setdefault(method_of(run), run)
    for (group, corpus), found in methods.items():
        if len(found) > 1 and len({run.seed for run in found.values()}) > 1:
            one, other, *_ = found.values()
            problems.append(
                f"{one.name} and {other.name} of {group} on {corpus} differ in more than their seed: the mean and the "
                "deviation are over both."
            )
    return problems


def method_of(run: ReportRun) -> str:
    """Return, as JSON, all settings that affect the trained weights, except the seed and the corpus's files."""
    settings = settings_in_id(run.experiment)
    settings["training"]["seed"] = None
    return json.dumps(settings, sort_keys=True)


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
    found = [place for f in (_walk(folder) if folder.is_dir() else ()) for place in (f, *(p for p, _ in _cells_in(f)))]
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
