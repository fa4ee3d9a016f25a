"""Tests of significance between the systems of a report, as tables.

What is tested and how: `repose.evaluation.significance` and docs/significance.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import TypeAlias

import numpy as np

from repose.errors import DataError, ReposeError
from repose.evaluation.sentence_statistics import Metric, SentenceStatistics
from repose.evaluation.significance import (
    LEVEL,
    NUM_RESAMPLES,
    SEED,
    Resampled,
    approximate_randomization,
    compare,
    holm,
    resample,
    welch,
)
from repose.report.content import Cell, Column, Table
from repose.report.run_folder import ReportRun
from repose.report.runs import RunSet
from repose.report.summaries import NONE, Notes, spread, spread_cell
from repose.report.translations import settings_of, statistics_of

Measured: TypeAlias = tuple[ReportRun, SentenceStatistics]
UNITS: dict[Metric, str] = {"bleu": "BLEU", "chrf": "chrF"}
ALL_PAIRS_BELOW = 4
"""With fewer systems on a corpus, each is tested against each."""
_RESAMPLES_PER_TEST = 200  # so that the least p there is, corrected for the number of tests, is 0.01
_SIGNIFICANT = f"At or below {LEVEL} after the correction."
_NO_INTERVAL = "One seed on a side, or scores that do not differ, give no interval."


@dataclass(frozen=True)
class System:
    """The finished runs of a system on a corpus that can be tested."""

    group: str
    corpus: str
    runs: tuple[ReportRun, ...]
    statistics: tuple[SentenceStatistics, ...]
    """Of each run."""

    def scores(self, metric: Metric) -> list[float]:
        """Of each run on the whole test set."""
        return [one.score(metric) for one in self.statistics]


@dataclass(frozen=True)
class Pair:
    """A system and what it is tested against."""

    system: System
    other: System

    @property
    def single(self) -> bool:
        """Whether both have one seed."""
        return len(self.system.runs) == len(self.other.runs) == 1


def significance_tables(runs: RunSet) -> tuple[Table, ...]:
    """All tests between the systems of a report that translate.

    `significance` and `significance-chrf`: over test sentences; `seeds`: over seeds; `approximate-randomization`: of
    pairs with one seed each. Every system is tested against `runs.baseline` (else the first), all pairs where a
    corpus has fewer than four. Systems that look ahead or failed an audit are left out, as are runs without
    translations; notes say so. Empty where there are not two systems.
    """
    runs = runs.of_task("translation")
    if len(runs.groups) < 2:
        return ()
    remarks: list[str] = []
    pairs = [
        pair for corpus in runs.corpora for pair in _pairs(systems_of(runs, corpus, remarks), runs.baseline, remarks)
    ]
    tables = [_over_sentences(pairs, "bleu", remarks)]
    if pairs:
        tables += [_over_seeds(pairs), _over_sentences(pairs, "chrf", [])]
    if single := [pair for pair in pairs if pair.single]:
        tables.append(_randomized(single))
    return tuple(tables)


def systems_of(runs: RunSet, corpus: str, remarks: list[str]) -> list[System]:
    """The systems that can be tested on a corpus; what cannot is said in `remarks`."""
    systems: list[System] = []
    first: Measured | None = None
    left_out: dict[str, list[str]] = {}
    for group in runs.groups:
        kept: list[Measured] = []
        for run in runs.done(group, corpus):
            try:
                kept.append((run, _testable(run, first)))
            except ReposeError as error:
                left_out.setdefault(str(error), []).append(run.name)
            else:
                first = first or kept[0]
        if kept:
            systems.append(System(group, corpus, *(tuple(column) for column in zip(*kept, strict=True))))
    remarks += [f"Left out of the tests: {_shown(names)}; {reason}." for reason, names in left_out.items()]
    return systems


def _testable(run: ReportRun, first: Measured | None) -> SentenceStatistics:
    """A run's counts. Raises ReposeError for a run whose scores cannot stand beside those of the `first`."""
    if run.looks_ahead:
        raise DataError("its decoder looks ahead, so it is compared with nothing")
    if run.failed_checks:
        raise DataError(f"it failed the audit ({', '.join(run.failed_checks)})")
    statistics = statistics_of(run)
    if first is None:
        return statistics
    ways = [(settings_of(one)["case"], settings_of(one)["tok"]) for one in (run, first[0])]
    if ways[0] != ways[1]:
        shown = [f"case:{case} and tok:{tokenize}" for case, tokenize in ways]
        raise DataError(f"it was scored with {shown[0]}, {first[0].name} with {shown[1]}")
    if not np.array_equal(statistics.bleu[:, 1], first[1].bleu[:, 1]):  # tokens of each reference
        raise DataError(f"its references are not those of {first[0].name}")
    return statistics


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _pairs(systems: Sequence[System], baseline: str | None, remarks: list[str]) -> list[Pair]:
    """Who is tested against whom."""
    if len(systems) < 2:
        return []
    base = next((system for system in systems if system.group == baseline), None)
    if len(systems) < ALL_PAIRS_BELOW:
        ordered = sorted(systems, key=lambda system: system is not base)  # the baseline is what others are held against
        return [Pair(system, other) for other, system in combinations(ordered, 2)]
    if base is None:
        base = systems[0]
        reason = f"{baseline} cannot be tested" if baseline else "no baseline is named"
        remarks.append(f"On {base.corpus}, {reason}: systems are tested against the first, {base.group}.")
    return [Pair(system, base) for system in systems if system is not base]


def _over_sentences(pairs: Sequence[Pair], metric: Metric, remarks: Sequence[str]) -> Table:
    """The paired bootstrap, corrected over all rows."""
    unit, number = UNITS[metric], max(NUM_RESAMPLES, _RESAMPLES_PER_TEST * len(pairs))
    sampled: dict[int, Resampled] = {}
    for system in {id(one): one for pair in pairs for one in (pair.system, pair.other)}.values():
        sampled[id(system)] = resample(system.statistics, metric, num_resamples=number)
    found = [compare(sampled[id(pair.system)], sampled[id(pair.other)]) for pair in pairs]
    corrected = holm([one.p for one in found])
    notes = Notes()
    rows = [
        (
            *_names(pair),
            _number(len(pair.system.runs), "d"),
            _number(len(pair.other.runs), "d"),
            _number(one.value, "+.2f"),
            _number(one.low, "+.2f"),
            _number(one.high, "+.2f"),
            _p(one.p),
            _p(p, notes),
        )
        for pair, one, p in zip(pairs, found, corrected, strict=True)
    ]
    columns = [
        Column(name="seeds"),
        Column(name="seeds (against)"),
        Column(name="difference", unit=unit),
        Column(name="95 % from", unit=unit),
        Column(name="to", unit=unit),
        Column(name="p"),
        Column(name="p (Holm)"),
    ]
    caption = (
        f"{unit}, mean over seeds within each of {number:,} resamples of the test sentences (seed {SEED}), minus that "
        "of the system it is tested against: paired bootstrap (Koehn 2004); p is two-sided and, with so many "
        f"resamples, at least {2 / (number + 1):.1g}. It says what other test sentences might change for these models, "
        "not what other seeds might." + (_holm_caption(len(pairs)) if pairs else " No two systems could be tested.")
    )
    for remark in remarks:
        notes.key(remark)
    name = "significance" if metric == "bleu" else f"significance-{metric}"
    return _table(name, f"Differences in {unit}, over test sentences", columns, rows, caption, notes)


def _over_seeds(pairs: Sequence[Pair]) -> Table:
    """Spread over seeds, and Welch's interval of the difference."""
    notes, rows = Notes(), []
    for pair in pairs:
        values, others = pair.system.scores("bleu"), pair.other.scores("bleu")
        interval = welch(values, others)
        rows.append(
            (
                *_names(pair),
                *(spread_cell(spread(side), 2, expected=0) for side in (values, others)),
                _number(fmean(values) - fmean(others), "+.2f"),
                *(
                    (_number(interval.low, "+.2f"), _number(interval.high, "+.2f"))
                    if interval is not None
                    else (Cell(text=NONE, notes=(notes.key(_NO_INTERVAL),)),) * 2
                ),
            )
        )
    columns = [Column(name=name, unit="BLEU") for name in ("mean", "mean (against)", "difference", "95 % from", "to")]
    caption = (
        "Mean ± standard deviation (n) of the seeds' BLEU on the whole test set, and Welch's 95 % interval of the "
        "difference of the means, each seed a draw of its own; not corrected for the number of rows. It says what "
        "other seeds might change on these sentences: a difference is safe where this and the resampling of sentences "
        "agree."
    )
    return _table("seeds", "Differences in BLEU, over seeds", columns, rows, caption, notes)


def _randomized(pairs: Sequence[Pair]) -> Table:
    """sacreBLEU's approximate randomization, for pairs of single runs."""
    ways = [settings_of(pair.system.runs[0]) for pair in pairs]
    found = [
        approximate_randomization(
            pair.system.statistics[0], pair.other.statistics[0], lowercase=way["case"] == "lc", tokenize=way["tok"]
        )
        for pair, way in zip(pairs, ways, strict=True)
    ]
    corrected = holm([one.p for one in found])
    notes = Notes()
    rows = [
        (*_names(pair), _number(one.difference, "+.2f"), _p(one.p), _p(p, notes))
        for pair, one, p in zip(pairs, found, corrected, strict=True)
    ]
    columns = [Column(name="difference", unit="BLEU"), Column(name="p"), Column(name="p (Holm)")]
    signatures = " and ".join(dict.fromkeys(one.signature for one in found))
    caption = f"sacreBLEU's paired approximate randomization, {signatures}." + _holm_caption(len(pairs))
    title = "Differences in BLEU of two single runs"
    return _table("approximate-randomization", title, columns, rows, caption, notes)


def _table(
    name: str,
    title: str,
    columns: Sequence[Column],
    rows: Sequence[tuple[Cell, ...]],
    caption: str,
    notes: Notes,
) -> Table:
    """A table whose rows begin with corpus, system and against; without the corpora where there is only one."""
    heads = [Column(name=name, numeric=False) for name in ("corpus", "system", "against")]
    first = 0 if len({row[0].text for row in rows}) > 1 else 1
    return Table(
        id=name,
        title=title,
        columns=(*heads[first:], *columns),
        rows=tuple(row[first:] for row in rows),
        caption=caption,
        notes=notes.sentences,
    )


def _holm_caption(number: int) -> str:
    if number == 1:
        return " One comparison: nothing to correct for."
    return f" p (Holm) is corrected for the {number} comparisons of this table (Holm 1979)."


def _names(pair: Pair) -> tuple[Cell, ...]:
    return tuple(Cell(text=text) for text in (pair.system.corpus, pair.system.group, pair.other.group))


def _number(value: float, form: str) -> Cell:
    return Cell(text=f"{value:{form}}".replace("-", "−"), value=float(value))


def _p(value: float, notes: Notes | None = None) -> Cell:
    """A p value; a corrected one is noted where it is small."""
    text = "<0.001" if value < 0.001 else f"{value:.3f}"
    keys = (notes.key(_SIGNIFICANT),) if notes is not None and value <= LEVEL else ()
    return Cell(text=text, value=value, notes=keys)
