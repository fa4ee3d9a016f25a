"""The runs of a report, and what each directory records. `collect.py` reads them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

from repose.config.experiment import TASK_SETTINGS, Experiment
from repose.grids.cells import CellStatus
from repose.saved_run.folder import RunConfig
from repose.saved_run.records import LITTLE_GAIN, Record, Records, RunStatus

Why: TypeAlias = Literal["failed", "left out", "missing", "unfinished"]
"""Why a run has no final figures."""


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
    config: RunConfig
    experiment: Experiment
    records: Records
    scores: Mapping[str, Any] | None
    """Content of scores.test.json or scores.valid.json; None while the run is unfinished."""
    split: str
    """The set that the scores are measured on: "test" or "valid"."""
    looks_ahead: bool
    """True if target positions see later ones, so that teacher-forced figures mean nothing."""
    run_id: str
    """The run id in its scores, which adds how many workers shared its batches if several did; else its own."""
    status: str
    """ "done", or how far the run is: "waiting", "running", "stopped", "failed", "unfinished"."""
    failed_checks: tuple[str, ...] = ()
    """Checks of `repose audit` that its model failed; empty if it was not audited."""

    @property
    def seed(self) -> int:
        """The setting `training.seed`."""
        return self.experiment.training.seed

    @property
    def task(self) -> str:
        """The setting `training.task`."""
        return self.experiment.training.task

    @property
    def done(self) -> bool:
        """True if it has finished and has scores."""
        return self.scores is not None

    @property
    def failed(self) -> bool:
        """True if its grid records it as failed."""
        return self.status == CellStatus.FAILED

    @property
    def running(self) -> bool:
        """True if a process is training or scoring it."""
        return self.status == CellStatus.RUNNING

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

    @property
    def hardly_reads(self) -> bool:
        """True if the source hardly helped in any of its validations that measured that."""
        gains = [record["source_gain"] for record in self.of_kind("valid") if "source_gain" in record]
        return bool(gains) and max(gains) < LITTLE_GAIN

    def of_kind(self, kind: str) -> tuple[Record, ...]:
        """Return its records of one kind: "train", "epoch", "valid" or "model"."""
        return self.records.of_kind(kind)


@dataclass(frozen=True, kw_only=True)
class Absent:
    """A run without final figures."""

    name: str
    group: str
    corpus: str
    why: Why


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
