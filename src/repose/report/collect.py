"""Runs that are reported together: run directories, grids of them, and folders that hold such.

A run directory needs `config.json` and `metrics.jsonl`; once it has finished, its scores are `scores.test.json`, or
`scores.valid.json` where its corpus has no test set. Model, state and hypotheses may be missing, as in `results/`.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from repose.config.experiment import TASK_SETTINGS, Experiment
from repose.config.run_id import settings_in_id
from repose.grids import manifest
from repose.grids.cells import CellStatus
from repose.grids.file import CORPUS
from repose.grids.manifest import Entry, Manifest
from repose.grids.view import reason
from repose.model.presets import exact_preset_name
from repose.report.baseline import NamesBefore, find_baseline
from repose.report.corpora import corpus_name, told_apart
from repose.report.folders import cells_in, runs_in, walk
from repose.runs.folder import SCORED_SPLITS, RunConfig, RunFolder
from repose.runs.records import Record, Records, RunStatus
from repose.system.errors import CheckpointError, ConfigError
from repose.system.terminal import counted


@dataclass(frozen=True, kw_only=True)
class ReportRun:
    """One training, as it stands in its directory."""

    folder: Path
    place: str
    """Name of the folder of the grid that it is reported of, wherever it lies; without a grid of the one above it."""
    name: str
    """Name of the cell, or of the folder; unique within a RunSet."""
    group: str
    """The system: runs of one group and corpus differ in their seed alone."""
    labels: Mapping[str, str]
    """Axis of the grid to the run's label on it; empty without a grid."""
    corpus: str
    seed: int
    config: RunConfig
    experiment: Experiment
    records: Records
    scores: Mapping[str, Any] | None
    """scores.test.json or scores.valid.json; None while the run is unfinished."""
    split: str
    """The set that the scores are of: "test" or "valid"."""
    task: str
    """What `training.task` says."""
    looks_ahead: bool
    """Whether target positions see later ones, so that teacher-forced figures are no measure of anything."""
    run_id: str
    """That of its scores, which tells how many workers shared its batches where those were several; else its own."""
    status: str
    """"done", or how far the run is: "waiting", "running", "stopped", "failed", "unfinished"."""
    failed_checks: tuple[str, ...] = ()
    """Checks of `repose audit` that its model failed, where it was audited."""

    @property
    def done(self) -> bool:
        """Whether it has finished and has scores."""
        return self.scores is not None

    @property
    def translates(self) -> bool:
        """Whether its task is translation."""
        return TASK_SETTINGS[self.task].translates

    @property
    def trained(self) -> bool:
        """Whether its training has ended, be it scored or not."""
        return self.records.status is RunStatus.DONE

    @property
    def comparable(self) -> bool:
        """Whether its numbers may be set beside others': it neither looks ahead nor failed an audit."""
        return not self.looks_ahead and not self.failed_checks

    def of_kind(self, kind: str) -> tuple[Record, ...]:
        """Its records of one kind: "train", "epoch", "valid" or "model"."""
        return self.records.of_kind(kind)


@dataclass(frozen=True, kw_only=True)
class RunSet:
    """Runs that are reported together, in the order in which they were named."""

    title: str
    runs: tuple[ReportRun, ...]
    """Finished ones, and unfinished ones that have recorded something."""
    baseline: str | None = None
    """The group that the others are tested against."""
    twins: Mapping[str, str] = field(default_factory=dict)
    """The groups that some are tested against instead."""
    published: tuple[str, ...] = ()
    """Entries of published.toml that the grid names; empty: whatever fits."""
    sentences: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Lines of a corpus's test set, from 1, that the grid wants to see translated."""
    problems: tuple[str, ...] = ()
    """What is unfinished, broken or left out, one sentence each."""
    about: tuple[str, ...] = ()
    """What the grid is for, in its own words."""

    def of(self, group: str, corpus: str) -> tuple[ReportRun, ...]:
        """Runs of a system on a corpus, unfinished ones included."""
        return tuple(run for run in self.runs if run.group == group and run.corpus == corpus)

    def done(self, group: str, corpus: str) -> tuple[ReportRun, ...]:
        """The finished ones among them."""
        return tuple(run for run in self.of(group, corpus) if run.done)

    def against(self, groups: Sequence[str]) -> dict[str, str]:
        """What each of some groups is tested against: its twin, else the baseline, else the first; not those three."""
        base = self.baseline if self.baseline is not None and self.baseline in groups else groups[0]
        twins = {group: twin for group, twin in self.twins.items() if {group, twin} <= set(groups)}
        bases = {base, *twins.values()}
        return {group: twins.get(group, base) for group in groups if group not in bases}

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Systems."""
        return tuple(dict.fromkeys(run.group for run in self.runs))

    @cached_property
    def corpora(self) -> tuple[str, ...]:
        """Corpora of the runs."""
        return tuple(dict.fromkeys(run.corpus for run in self.runs))

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """Tasks of the runs."""
        return tuple(dict.fromkeys(run.task for run in self.runs))

    def of_task(self, task: str) -> "RunSet":
        """The runs of one task."""
        return self._only(run for run in self.runs if run.task == task)

    def on(self, corpora: Sequence[str]) -> "RunSet":
        """The runs on some corpora."""
        return self._only(run for run in self.runs if run.corpus in corpora)

    @property
    def translations(self) -> "RunSet":
        """The runs that translate."""
        return self._only(run for run in self.runs if run.translates)

    def _only(self, runs: Iterable[ReportRun]) -> "RunSet":
        """Some of the runs, with the baseline if it is among their systems."""
        part = replace(self, runs=tuple(runs))
        return part if part.baseline in part.groups else replace(part, baseline=None)


def read_run(folder: Path, cell: Entry | None, grid: Path | None = None) -> ReportRun:
    """The run of a directory, and what its grid says of it. Raises CheckpointError for damaged files.

    `grid`: the folder of the grid. Without one, name and group are the folder's.
    """
    run = RunFolder(folder)
    records, config = run.records(), run.config()
    experiment = config.experiment
    split, scores = run.best_scores() or (SCORED_SPLITS[0], None)
    if records.status is RunStatus.STOPPED or (records.end is None and run.is_under_way):
        scores = None  # `repose evaluate --out` has put them there, of a model that is still being trained
    corpus = corpus_name(experiment.corpus)
    task = experiment.training.task
    return ReportRun(
        folder=folder,
        place=(grid or folder.absolute().parent).absolute().name,
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
    """The runs under `paths`: run directories, grid folders (grid.json), or folders that hold either, however deep.

    A run that is found twice (same id, decoded alike) counts once. What cannot be read is left out and said in
    `problems`. Raises CheckpointError where a path does not exist or no run is found, ConfigError for a baseline that
    is no system.
    """
    runs: list[ReportRun] = []
    problems: list[str] = []
    grids: list[tuple[Path, Manifest]] = []
    loose: list[Path] = []
    for path in paths:
        if not path.is_dir():
            raise CheckpointError(_NO_FOLDER.format(path))
        for folder in walk(path):
            try:
                grid = manifest.read(folder)
            except CheckpointError as error:
                problems.append(f"{error}.")
                grid = None
            if grid is not None:
                grids.append((folder, grid))
            elif RunFolder(folder).exists and RunFolder(folder).metrics_file.is_file():
                loose.append(folder)
    of_first: slice | None = None
    for folder, grid in grids:
        start = len(runs)
        runs += _of_grid(folder, grid, problems)
        if of_first is None and grid.report.get("baseline"):
            of_first = slice(start, len(runs))
    in_grids = {run.folder.resolve() for run in runs}
    alone = _of_folders([f for f in dict.fromkeys(loose) if f.resolve() not in in_grids], problems)
    named = told_apart([*runs, *alone])
    runs = [*named[: len(runs)], *_grouped(named[len(runs) :])]
    if not runs:
        detail = f": {problems[0]}" if problems else ""
        raise CheckpointError(f"there is no run that has recorded anything under {', '.join(map(str, paths))}{detail}")
    own, runs = runs, _named_apart(_grouped_apart(_written_alike(_once(runs, problems))))
    problems += [_unfinished(run) for run in runs if not run.done]
    for run in runs:
        if run.trained and (warning := run.experiment.training.warmup_warning(run.records.training[-1]["update"])):
            problems.append(f"{run.name}: {warning}.")
    hints = [grid.report for _, grid in grids]
    before = NamesBefore([*own[of_first or slice(0)], *own], runs)
    found, twins = find_baseline(baseline, hints, runs, before, problems)
    return RunSet(
        title=title or ", ".join(grid.name for _, grid in grids) or _title(paths),
        runs=tuple(runs),
        baseline=found,
        twins=twins,
        published=tuple(dict.fromkeys(str(name) for hint in hints for name in hint.get("published", ()))),
        sentences=_sentences(grids, runs),
        problems=tuple(dict.fromkeys(problems)),
        # With their names where there are several.
        about=tuple(f"{grid.name}: {grid.about}" * (len(grids) > 1) or grid.about for _, grid in grids if grid.about),
    )


def _title(paths: Sequence[Path]) -> str:
    """The name of the folder, or of the one that holds all of several."""
    real = [path.resolve() for path in paths]
    together = Path(os.path.commonpath(real)) if len({path.drive for path in real}) == 1 else real[0]
    return together.name or real[0].name


def read_curves(folders: Sequence[Path]) -> RunSet:
    """The runs of these directories and below them, finished or not; a cell of a grid beside it is the system that it
    is there, in the grid's order. What else a shell's `*` names is left out. Raises CheckpointError or ConfigError."""
    if missing := next((folder for folder in folders if not folder.exists()), None):
        raise CheckpointError(_NO_FOLDER.format(missing))
    named, folders = folders, list(dict.fromkeys(run for f in folders for run in runs_in(f))) or list(folders)
    grids = dict.fromkeys([*named, *(folder.parent for folder in folders)])
    cells: dict[Path, Entry] = {}
    for place, cell in (found for folder in grids for found in cells_in(folder)):
        cells.setdefault(place, cell)
    runs = {r.folder.resolve(): r for r in told_apart([read_run(f, cells.get(f.resolve())) for f in folders])}
    alone = _grouped([run for place, run in runs.items() if place not in cells])
    of_grids = _grouped_apart(_written_alike([runs[place] for place in cells if place in runs]))
    return RunSet(title="", runs=tuple(_named_apart([*of_grids, *alone])))


def _sentences(grids: Sequence[tuple[Path, Manifest]], runs: Sequence[ReportRun]) -> dict[str, tuple[int, ...]]:
    """Lines by corpus; a plain list is of every corpus of its grid."""
    found: dict[str, dict[int, None]] = {}
    for folder, grid in grids:
        wanted = grid.report.get("sentences") or {}
        for run in runs:
            if run.folder.is_relative_to(folder):
                label = run.labels.get(CORPUS) or corpus_name(run.experiment.corpus)
                lines = wanted.get(label, ()) if isinstance(wanted, dict) else wanted
                found.setdefault(run.corpus, {}).update(dict.fromkeys(lines))
    return {corpus: tuple(lines) for corpus, lines in found.items() if lines}


def _of_grid(place: Path, grid: Manifest, problems: list[str]) -> list[ReportRun]:
    runs, missing = [], []
    for cell in grid.entries:
        folder = place / cell.folder
        failed = cell.status == CellStatus.FAILED
        if failed:
            problems.append(f"{cell.name} failed: {reason(cell.state) or 'no reason is recorded'}.")
        if not RunFolder(folder).exists or not RunFolder(folder).has_records:
            missing += [] if failed else [cell.name]
            continue
        try:
            run = read_run(folder, cell, place)
        except (CheckpointError, ConfigError) as error:
            problems.append(f"{cell.name} is left out: {error}.")
            continue
        held = run.config.run_id
        if held == cell.run_id:  # scores that lie with a failed cell are not those that it was to have
            runs.append(replace(run, scores=None, status="failed") if failed else run)
            continue
        own = "the grid does not know the cell's" if cell.run_id is None else f"the cell is run {cell.run_id}"
        problems.append(f"{cell.name} is left out: {folder} holds run {held}, {own}.")
    if missing:
        number = f"{len(missing)} of {counted(len(grid.entries), 'cell')}"
        problems.append(f"{number} of {grid.name} have recorded nothing yet: {some(missing)}.")
    return runs


def some(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _of_folders(folders: Iterable[Path], problems: list[str]) -> list[ReportRun]:
    runs = []
    for folder in folders:
        try:
            runs.append(read_run(folder, None))
        except (CheckpointError, ConfigError) as error:
            problems.append(f"{folder.name} is left out: {error}.")
    return runs


def _grouped(runs: Sequence[ReportRun]) -> list[ReportRun]:
    """Runs without a grid: those of one corpus and the same settings but for the seed are a group; groups of one name
    on several corpora are one system."""
    names: dict[Path, str] = {}
    for corpus in dict.fromkeys(run.corpus for run in runs):
        groups: dict[str, list[ReportRun]] = {}
        for run in runs:
            if run.corpus == corpus:
                groups.setdefault(_settings(run), []).append(run)
        for name, group in zip(_names(list(groups.values())), groups.values(), strict=True):
            names |= {run.folder: name for run in group}
    return [replace(run, group=names[run.folder]) for run in runs]


def _names(groups: Sequence[Sequence[ReportRun]]) -> list[str]:
    """The preset that each group is, or its first folder without the seed; folders for all where two would be called
    the same, with the seed for those that still are."""
    runs = [group[0] for group in groups]
    folders = [folder_name(group[0].folder, several=len({run.seed for run in group}) > 1) for group in groups]
    names = [preset_of(run) or name for run, name in zip(runs, folders, strict=True)]
    if len(set(names)) == len(names):
        return names
    names = folders
    names = _apart(names, [run.folder.name for run in runs])
    return _apart(names, [_in_folder(run, name) for name, run in zip(names, runs, strict=True)])


def _apart(names: Sequence[str], longer: Sequence[str]) -> list[str]:
    """Names that no other has, or else the longer ones."""
    return [name if names.count(name) == 1 else long for name, long in zip(names, longer, strict=True)]


def _in_folder(run: ReportRun, name: str) -> str:
    return f"{run.place}/{name}"


def preset_of(run: ReportRun) -> str | None:
    """The preset that has a run's very architecture, if any: systems may differ in dropout alone."""
    return exact_preset_name(run.experiment.architecture)


_SEED = r"(?:[-_. ]?seed|[-_. ]s)[-_. ]?\d+"
_NUMBER = rf"(?:{_SEED}|(?:[-_. ]?(?:run|trial))?[-_. ]?\d+)"


def folder_name(folder: Path, *, several: bool) -> str:
    """`original` of original-seed2 and original/seed-2; of original_2 too where it is one of several seeds."""
    whole = folder.absolute()
    if re.fullmatch(_NUMBER, whole.name, re.IGNORECASE):
        return whole.parent.name
    return re.sub((_NUMBER if several else _SEED) + "$", "", whole.name, flags=re.IGNORECASE) or whole.name


def _once(runs: Sequence[ReportRun], problems: list[str]) -> list[ReportRun]:
    """Each training once: of two directories of the same run the one that is done, or else the first.

    Another test set makes another one, though a run's id does not know of it; so does another number of workers, which
    scores alone know of. One that goes by another name is said to be left out.
    """
    found: dict[str, list[ReportRun]] = {}
    for run in runs:
        identity = run.config.run_id or str(run.folder)
        key = json.dumps([identity, run.config.data, run.seed, asdict(run.experiment.decoding)])
        found.setdefault(key, []).append(run)
    kept: list[ReportRun] = []
    joined: dict[tuple[str, str, str], str] = {}  # the rest of a group, which must not stand there as another one
    for alike in found.values():
        done = {run.run_id: run for run in reversed(alike) if run.done}
        own = [run for run in alike if done.get(run.run_id) is run] or alike[:1]
        for run in alike:
            twin = done.get(run.run_id, own[0])
            if run.name != twin.name:
                problems.append(f"{run.name} is left out: it is the same run as {twin.name} ({twin.run_id}).")
                joined.setdefault((run.group, run.corpus, _settings(run)), twin.group)
        kept += own
    return [replace(run, group=joined.get((run.group, run.corpus, _settings(run)), run.group)) for run in kept]


def _written_alike(runs: Sequence[ReportRun]) -> list[ReportRun]:
    """A cell may be a run of another grid that wrote out the `schedule_width` which "none" stands for: none for all."""
    none = {run.group for run in runs if run.experiment.training.schedule_width is None}
    alike = []
    for run in runs:
        experiment = run.experiment
        if run.group in none and experiment.training.schedule_width == experiment.architecture.d_token:
            training = replace(experiment.training, schedule_width=None)
            run = replace(run, experiment=replace(experiment, training=training))
        alike.append(run)
    return alike


def _grouped_apart(runs: Sequence[ReportRun]) -> list[ReportRun]:
    """Systems of one name whose settings differ from grid to grid go by their grids' folders, too: those of the same
    settings in several grids by the first one's."""
    names: dict[tuple[str, str], dict[str, str]] = {}
    for run in runs:
        names.setdefault((run.group, run.corpus), {}).setdefault(_settings(run), _in_folder(run, run.group))
    unlike = {group for (group, _), found in names.items() if len(set(found.values())) > 1}
    return [
        replace(run, group=names[run.group, run.corpus][_settings(run)]) if run.group in unlike else run for run in runs
    ]


def _settings(run: ReportRun) -> str:
    """All settings but the seed."""
    experiment = asdict(run.experiment)
    return json.dumps({**experiment, "training": {**experiment["training"], "seed": None}}, sort_keys=True)


def _named_apart(runs: Sequence[ReportRun]) -> list[ReportRun]:
    """Runs of one name in different places go by their folders, too."""
    names = _apart([run.name for run in runs], [_in_folder(run, run.name) for run in runs])
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]


def _unfinished(run: ReportRun) -> str:
    if run.trained and run.status == CellStatus.FAILED:
        return f"{run.name} is trained, but its cell failed: it is in the learning curves, not in the final figures."
    if run.trained:
        return (
            f"{run.name} is trained, but not scored: run the same command again, which only scores it, or for a trial "
            f"of a search `repose evaluate {run.folder} --out {run.folder}`."
        )
    training, epochs = run.experiment.training, len(run.of_kind("epoch"))
    so_far = f"{epochs} of {counted(training.epochs, 'epoch')}" if training.epochs else counted(epochs, "epoch")
    if training.updates:
        so_far = f"{run.records.training[-1]['update']:,} of {training.updates:,} updates"
    return f"{run.name} is unfinished ({so_far}): it is in the learning curves, not in the final figures."


def unlike(runs: Sequence[ReportRun]) -> list[str]:
    """Runs of one system that are more than its seeds: of other settings, or several of one seed."""
    seen: dict[tuple[str, str, int], ReportRun] = {}
    problems = []
    for run in runs:
        other = seen.setdefault((run.group, run.corpus, run.seed), run)
        if other is not run:
            problems.append(
                f"{other.name} and {run.name} are both seed {run.seed} of {run.group} on {run.corpus}, but of unlike "
                "data, settings or numerics (their run ids differ): the mean is over both."
            )
    methods: dict[tuple[str, str], dict[str, ReportRun]] = {}
    for run in runs:
        methods.setdefault((run.group, run.corpus), {}).setdefault(_method(run), run)
    for (group, corpus), found in methods.items():
        if len(found) > 1 and len({run.seed for run in found.values()}) > 1:
            one, other, *_ = found.values()
            problems.append(
                f"{one.name} and {other.name} of {group} on {corpus} differ in more than their seed: the mean and the "
                "deviation are over both."
            )
    return problems


def _method(run: ReportRun) -> str:
    """All settings that move weights, but the seed; not where the text lies."""
    settings = settings_in_id(run.experiment)
    settings["training"]["seed"] = None
    return json.dumps(settings, sort_keys=True)
