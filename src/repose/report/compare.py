"""Two systems compared from Python, by the tests of a report."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from repose.evaluation.metrics import GREEDY
from repose.evaluation.sentence_statistics import Metric
from repose.evaluation.significance import LEVEL, Difference, SeedInterval, resample, welch
from repose.evaluation.significance import compare as compare_resampled
from repose.report.collect import method_of, read_runs
from repose.report.figures import decoding_of
from repose.report.pairs import Pair, Remarks, left_out, small_sets
from repose.report.significance import neither_translates, notes_of, systems_of
from repose.report.tables_settings import confounded, mixed_code
from repose.runs.folder import RunFolder
from repose.system.errors import CheckpointError, ConfigError, DataError, unknown
from repose.system.files import checked_path

Runs = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class Comparison:
    """How much higher one system scores than another on a test set, and how sure that is (docs/significance.md).

    `decoding`: whose translations are scored, "greedy" or a beam such as "beam4". `num_sentences`: of the test set.
    `scores`, `other_scores`: of each run of the system, and of the other. `sentences`: the difference of the means over
    runs; its interval and p are of other test sentences (paired bootstrap). `seeds`: the same difference; its interval
    and p are of other trainings (Welch), and it is None with one run of either. `neither_translates`: both score below
    1 BLEU and 25 chrF, so that the difference says nothing. `notes`: what to bear in mind, in sentences, as under the
    tables of a report: that the two were not trained alike, that neither translates, or that the test set is small.
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
        """Whether both p are at or below 0.05, and at least one of the two translates. The p are not corrected for how
        many comparisons you make."""
        if self.seeds is None or self.neither_translates:
            return False
        return max(self.sentences.p, self.seeds.p) <= LEVEL


def compare(system: Runs, other: Runs, *, metric: Metric = "bleu", decoding: str | None = None) -> Comparison:
    """Tests whether a system is better than another, as `repose report` does for all those of a grid.

    `system`, `other`: the directories of finished runs of each, as many as there are seeds. `metric`: "bleu" or "chrf".
    `decoding`: "greedy", or the search that the runs are compared by, such as "beam4", which is the default.

    Correct p for the number of comparisons that you make (`repose.evaluation.significance.holm`). Raises ConfigError
    for arguments that cannot be, CheckpointError for what is no run, and DataError for runs that cannot be compared:
    of other test sets, scored in other ways, unfinished, that look ahead, or whose translations have changed; and where
    the runs of one side differ in more than their seed.
    """
    if metric not in get_args(Metric):
        raise ConfigError(unknown("metric", metric, get_args(Metric)))
    folders = {name: _folders(name, runs) for name, runs in (("system", system), ("other", other))}
    if twice := set(folders["system"]) & set(folders["other"]):
        raise ConfigError(f"{min(twice)} is on both sides: name it once")
    every = [path for paths in folders.values() for path in paths]
    for path in every:
        if not RunFolder(path).exists:
            raise CheckpointError(f"{path} is no run directory: name the directories of the runs themselves")
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
        raise DataError(f"the runs are of several corpora, {' and '.join(sorted(corpora))}: compare those of one")
    usual = {decoding_of(run) for run in runs}
    names = sorted({*usual, GREEDY})
    if decoding is not None and decoding not in names:
        raise ConfigError(f"decoding is {decoding!r}: these runs can be compared by {' or '.join(names)}")
    remarks, reasons = Remarks(), dict[str, list[str]]()
    systems = systems_of(replace(found, runs=tuple(runs), baseline=None), runs[0].corpus, remarks)
    if decoding not in (None, *usual):
        systems = [one for system in systems if (one := system.by_greedy(reasons)) is not None]
    if said := [*remarks.of_scores, *remarks.of_texts, *left_out(reasons)]:
        raise DataError(said[0].removesuffix("."))
    by_name = {one.group: one for one in systems}
    return _tested(Pair(*(by_name[name] for name in sides)), metric)


def _tested(pair: Pair, metric: Metric) -> Comparison:
    system, other = pair.system, pair.other
    scores, others = (side.scores(metric) for side in (system, other))
    resampled = (resample(side.statistics, metric) for side in (system, other))
    decoding, number = system.decoding or decoding_of(system.runs[0]), len(system.statistics[0])
    notes = [confounded(system.runs, other.runs), *mixed_code([*system.runs, *other.runs]), *notes_of(pair)]
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
    """As they are on disk. Raises ConfigError for none, one that is named twice, and what is no list of paths."""
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
