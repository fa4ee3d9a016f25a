"""Tests of significance between systems whose task is not translation, as tables."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from repose.evaluation import significance as testing
from repose.evaluation.ratio import RatioStatistics, read_ratio
from repose.report.content import Table
from repose.report.figures import task_figure, task_figure_label
from repose.report.pairs import (
    ComparedSystem,
    Pair,
    bootstrap_table,
    check_comparable,
    check_number,
    left_out,
    pairs_of,
    seeds_table,
    small_of,
    small_sets,
    tried,
    usual_of,
    usual_run,
)
from repose.report.run_set import ReportRun, RunSet
from repose.report.tables import scored_on
from repose.saved_run.folder import RunFolder, main_figure
from repose.system.errors import DataError

_SAME = 1e-6  # relative difference above which sums and scores are from different evaluations
_Sums = dict[Path, RatioStatistics]
"""Maps runs' folders to the sums behind their figure."""


class TaskFigure(NamedTuple):
    """The figure by which systems of a task other than translation are compared."""

    name: str
    unit: str

    @property
    def called(self) -> str:
        """The figure's name in a sentence."""
        return task_figure_label(self.name)


def tables_of_task(part: RunSet) -> tuple[Table, ...]:
    """Return the tables of differences in the main figure of a task other than translation: `significance-<task>`, over
    sentences or documents, if runs have `statistics.<split>.npz`, and `seeds-<task>`. Empty if there are fewer than two
    systems.

    The pairs are those of `significance_tables`. Models that look ahead or failed an audit are left out, with a remark.
    So are runs that were measured on a different set or, if tokens are counted, with different tokens.
    """
    done = [run for run in part.runs if run.done]
    if not done:
        return ()
    figure, remarks, of_counts = first_figure(done[0]), list[str](), list[str]()
    pairs, counted, counts, missing = list[Pair](), list[Pair](), _Sums(), dict[str, list[str]]()
    for corpus in part.corpora:
        systems = _systems_of_task(part, corpus, figure, remarks)
        if len(systems) > 1:
            pairs += pairs_of(systems, part, remarks)
            counts |= _sums_of(systems, part, figure, missing)
            counted += pairs_of(_with_sums(systems, counts), part, of_counts)
    if not pairs:
        return ()
    task = part.tasks[0]
    of_counts += left_out(missing) if counts else []  # not worth saying if no run has sums
    if not counted:
        return (_over_seeds(pairs, figure, task, list(dict.fromkeys([*remarks, *of_counts]))),)
    return _over_units(counted, counts, figure, task, of_counts), _over_seeds(pairs, figure, task, remarks)


def _over_seeds(pairs: Sequence[Pair], figure: TaskFigure, task: str, remarks: Sequence[str]) -> Table:
    """Return the table of tests over seeds."""
    return seeds_table(
        f"seeds-{task}",
        pairs,
        lambda system: _figures(system, figure.name),
        unit=figure.unit,
        digits=3,
        like="seeds-of-task",
        remarks=remarks,
        task=task.replace("_", " "),
        figure=figure.called,
    )


def _over_units(pairs: Sequence[Pair], counts: _Sums, figure: TaskFigure, task: str, remarks: Sequence[str]) -> Table:
    """Return the table of the paired bootstrap over sentences or documents."""

    def of(system: ComparedSystem) -> list[RatioStatistics]:
        return [counts[run.folder] for run in system.runs]

    units = of(pairs[0].system)[0].units
    sizes = {pair.system.corpus: len(of(pair.system)[0]) for pair in pairs}
    table = bootstrap_table(
        f"significance-{task}",
        pairs,
        lambda system, number: testing.resample_ratio(of(system), num_resamples=number),
        lambda system: _figures(system, figure.name),
        unit=figure.unit,
        digits=3,
        like="significance-of-task",
        remarks=[*remarks, *small_sets(sizes, units)],
        task=task.replace("_", " "),
        figure=figure.called,
        units=units,
    )
    return replace(table, small_sets=frozenset(small_of(sizes)))


def _sums_of(
    systems: Sequence[ComparedSystem], part: RunSet, figure: TaskFigure, missing: dict[str, list[str]]
) -> _Sums:
    """Return the sums of runs that have them, for the units of most runs; `missing` gets the others, by reason."""
    runs = (run for system in systems for run in system.runs)
    found = tried(runs, lambda run: _statistics(run, figure), missing)
    likeness = usual_of([(run, statistics.sizes.tobytes()) for run, statistics in found], part.baseline)
    counts = _Sums()
    for run, statistics in found:
        if likeness is not None and statistics.sizes.tobytes() != likeness[1]:
            missing.setdefault(f"its {statistics.units} are not those of {likeness[0].name}", []).append(run.name)
        else:
            counts[run.folder] = statistics
    return counts


def _with_sums(systems: Sequence[ComparedSystem], counts: _Sums) -> list[ComparedSystem]:
    """Return the systems with only the runs that have sums."""
    kept = [(system, tuple(run for run in system.runs if run.folder in counts)) for system in systems]
    return [replace(system, runs=runs) for system, runs in kept if runs]


def _statistics(run: ReportRun, figure: TaskFigure) -> RatioStatistics:
    """Return the sums behind a run's figure. Raises DataError if they are absent, too few, or of another evaluation."""
    found = read_ratio(RunFolder(run.folder).statistics_file(run.split))
    recorded = task_figure(run, figure.name)
    is_same = recorded is not None and abs(found.value - recorded) <= _SAME * max(1.0, abs(recorded))
    if found.figure != figure.name or not is_same:
        raise DataError(f"statistics.{run.split}.npz does not give its {figure.called}: evaluate the run again")
    check_number(len(found), found.units)
    return found


def _systems_of_task(part: RunSet, corpus: str, figure: TaskFigure, remarks: list[str]) -> list[ComparedSystem]:
    """Return the systems that can be compared by a figure; sentences about other runs go to `remarks`."""

    def way(run: ReportRun) -> tuple[object, str]:
        return scored_on(run), run.config.digests.get("tgt", "") if "token" in figure.unit else ""

    usual, unlike = usual_run(part, corpus, way), dict[str, list[str]]()

    def check(run: ReportRun) -> None:
        check_comparable(run)
        value = task_figure(run, figure.name)
        if value is None:
            raise DataError(f"it has no {figure.called}")
        if not math.isfinite(value):
            raise DataError(f"its {figure.called} is {value}")
        assert usual is not None, "one that may be compared"
        if run.split != usual.split:
            raise DataError(f"it was measured on the {run.split} set, {usual.name} on the {usual.split} set")
        if scored_on(run) != scored_on(usual):
            raise DataError(f"its {run.split} set is not that of {usual.name}")
        if way(run) != way(usual):
            raise DataError(f"its tokens are not those of {usual.name}")

    kept = {group: tried(part.done(group, corpus), check, unlike) for group in part.groups}
    remarks += left_out(unlike)
    return [ComparedSystem(group, corpus, tuple(run for run, _ in found)) for group, found in kept.items() if found]


def _figures(system: ComparedSystem, name: str) -> list[float]:
    """Return the figure of each seed."""
    return [value for run in system.runs if (value := task_figure(run, name)) is not None]


def first_figure(run: ReportRun) -> TaskFigure:
    """Return the main figure of a run's task."""
    figures = (run.scores or {})["figures"]
    name = main_figure(figures)
    return TaskFigure(name, str(figures[name]["unit"]).partition(" of ")[0])
