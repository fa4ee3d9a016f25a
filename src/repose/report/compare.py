"""Compare two systems from Python, with the tests of a report."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from repose.evaluation.metrics import GREEDY
from repose.evaluation.sentence_statistics import Metric
from repose.evaluation.significance import LEVEL, Difference, SeedInterval, resample, welch
from repose.evaluation.significance import compare as compare_resampled
from repose.report.collect import read_runs
from repose.report.differences import (
    confounded,
    method_of,
    mixed_code,
    same_systems,
    trained_on_their_test,
    unlike_searches,
    without_source,
)
from repose.report.figures import decoding_of
from repose.report.pairs import Pair, small_sets
from repose.report.significance import neither_translates, notes_of, systems_of
from repose.saved_run.folder import RunFolder
from repose.system.errors import CheckpointError, ConfigError, DataError, unknown
from repose.system.files import checked_path

Runs = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class Comparison:
    """How much higher one system scores than another on a test set, and how certain that is (docs/significance.md).

    `decoding`: which translations are scored, "greedy" or a beam such as "beam4". `num_sentences`: size of the test
    set. `scores`, `other_scores`: the scores of each run of the system, and of the other. `sentences`: the difference
    of the means over runs, with an interval and p for other test sentences (paired bootstrap). `seeds`: the same
    difference, with an interval and p for other trainings (Welch); None if either side has a single run, or if no
    scores vary. `neither_translates`: True if both score below 1 BLEU and 25 chrF, so that the difference means
    nothing. `notes`: sentences of caution, as in a report: that the two were not trained or decoded in the same way, or
    are seeds of one system, that one hardly reads its source, that neither translates, or that the test set is small.
    """

    metric: Metric
    decoding: str
    num_sentences: int
    scores: tuple[float, ...]
    other_scores: tuple[float, ...]
    sentences: Difference
    seeds: SeedInterval | None
    neither_translates: bool = False
    notes: tuple[str, ...] = ()

    @property
    def safe(self) -> bool:
        """True if both p values are at most 0.05 and at least one of the systems translates. The p values are not
        corrected for the number of comparisons that you make."""
        if self.seeds is None or self.neither_translates:
            return False
        return max(self.sentences.p, self.seeds.p) <= LEVEL


def compare(system: Runs, other: Runs, *, metric: Metric = "bleu", decoding: str | None = None) -> Comparison:
    """Test whether one system is better than another, as `repose report` does for the systems of a grid.

    `system`, `other`: the directories of each system's finished runs, one per seed. `metric`: "bleu" or "chrf".
    `decoding`: "greedy", or the decoding that the runs are compared by, such as "beam4", which is the default.

    Correct p values for the number of comparisons you make (`repose.evaluation.significance.holm`). Raises ConfigError
    for invalid arguments, CheckpointError for a path that is not a run, and DataError for runs that cannot be compared:
    runs with different test sets or scored in different ways, unfinished runs, runs that look ahead, runs whose
    translations have changed, and runs of one side that differ in more than their seed.
    """
    if metric not in get_args(Metric):
        raise ConfigError(unknown("metric", metric, get_args(Metric)))
    folders = {name: _folders(name, runs) for name, runs in (("system", system), ("other", other))}
    if twice := set(folders["system"]) & set(folders["other"]):
        raise ConfigError(f"{min(twice)} is on both sides: name it once")
    every = [path for paths in folders.values() for path in paths]
    for path in every:
        if not RunFolder(path).exists:
            raise CheckpointError(f"{path} is not a run directory: name the directories of the runs themselves")
        if RunFolder(path).is_under_way:
            raise DataError(f"{path} is not finished: let it finish first")
    found = read_runs(every)
    unfinished = [run.name for run in found.runs if not run.done]
    if unfinished or len(found.runs) < len(every):
        reason = f"{unfinished[0]} is not finished: let it finish first" if unfinished else "two hold the same run"
        raise DataError("; ".join(found.problems) or reason)
    run_of = {run.folder.resolve(): run for run in found.runs}
    sides = {run_of[paths[0]].name: [run_of[path] for path in paths] for paths in folders.values()}
    for first, *others in sides.values():
        if unlike := [run.name for run in others if method_of(run) != method_of(first)]:
            raise DataError(f"{first.name} and {unlike[0]} differ in more than their seed: compare one with the other")
    runs = [replace(run, group=name) for name, side in sides.items() for run in side]
    if len(corpora := {run.corpus for run in runs}) > 1:
        raise DataError(f"the runs are of several corpora, {' and '.join(sorted(corpora))}: compare runs of one")
    usual = {decoding_of(run) for run in runs}
    names = sorted({*usual, GREEDY})
    if decoding is not None and decoding not in names:
        raise ConfigError(f"decoding is {decoding!r}: these runs can be compared by {' or '.join(names)}")
    alike = replace(found, runs=tuple(runs), baseline=None)
    systems, unlike_scores, no_texts = systems_of(alike, runs[0].corpus, decoding)
    if said := [*unlike_scores, *no_texts]:
        raise DataError(said[0].removesuffix("."))
    by_name = {one.group: one for one in systems}
    return _tested(Pair(*(by_name[name] for name in sides)), metric)


def _tested(pair: Pair, metric: Metric) -> Comparison:
    system, other = pair
    scores, others = (side.scores(metric) for side in pair)
    resampled = (resample(side.statistics, metric) for side in pair)
    decoding, number = system.decoding or decoding_of(system.runs[0]), len(system.statistics[0])
    runs, sides = [*system.runs, *other.runs], [(side.group, side.runs) for side in pair]
    greedy = decoding == GREEDY
    notes = [confounded(system.runs, other.runs, greedy=greedy), *unlike_searches(runs, greedy=greedy)]
    notes += [*same_systems(runs), *mixed_code(runs)]
    notes += [*trained_on_their_test(runs), without_source(sides), *notes_of(pair)]
    notes += small_sets({system.corpus: number}, "sentences")
    return Comparison(
        metric,
        decoding,
        number,
        scores=tuple(scores),
        other_scores=tuple(others),
        sentences=compare_resampled(*resampled),
        seeds=welch(scores, others),
        neither_translates=neither_translates(pair),
        notes=tuple(filter(None, notes)),
    )


def _folders(name: str, runs: Runs) -> list[Path]:
    """Return one side's run directories as resolved paths. Raises ConfigError if there is none, if one is named twice,
    or if `runs` is neither a path nor a list of paths."""
    try:
        given = [runs] if isinstance(runs, str | os.PathLike) else list(runs)
    except TypeError:
        given = []
    if not given:
        raise ConfigError(f"{name} names no run: give the directory of one, or several in a list")
    found = [checked_path(name, one).resolve() for one in given]
    if len(set(found)) < len(found):
        raise ConfigError(f"{name} names {max(found, key=found.count)} twice: name it once")
    return found
