"""Pairs of systems that a report tests against each other, and how what came of the tests stands in its tables.

What is tested and how: `repose.evaluation.significance` and docs/significance.md.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean
from typing import Any

from repose.evaluation import significance as testing
from repose.evaluation.by_length import SMALL
from repose.evaluation.metrics import GREEDY
from repose.evaluation.sentence_statistics import Metric, SentenceStatistics
from repose.report.collect import ReportRun, RunSet, some
from repose.report.content import Cell, Column, Table
from repose.report.figures import decoding_of, score
from repose.report.tables import NONE, captioned, spread, spread_cell
from repose.report.tables_settings import confounded
from repose.report.translations import statistics_of
from repose.system.errors import DataError, ReposeError

_RESAMPLES_PER_TEST = 200  # so that the least p there is, corrected for the number of tests, is 0.01
_SIGNIFICANT = f"At or below {testing.LEVEL} after the correction."
_NO_INTERVAL = "One seed on a side, or scores that do not differ, give no interval."
FEWEST_UNITS = 10
"""Sentences or documents below which nothing is resampled: of one, every difference would be certain."""
ALL_PAIRS_BELOW = 4
"""Number of systems on a corpus below which each is tested against each."""
Sides = Sequence[tuple[Sequence[float], Sequence[float]]]
"""The scores of the seeds of both systems, for each pair."""


@dataclass(frozen=True)
class ComparedSystem:
    """The finished runs of a system on a corpus that can be tested."""

    group: str
    corpus: str
    runs: tuple[ReportRun, ...]
    """Finished runs whose scores may stand beside the others'."""
    counts: tuple[SentenceStatistics | None, ...] = ()
    """What is counted of each run, None where its translations cannot be counted; nothing of other tasks."""
    decoding: str | None = None
    """Which translations are counted; None: those that each run is compared by."""

    @property
    def statistics(self) -> tuple[SentenceStatistics, ...]:
        """The counts that there are."""
        return tuple(one for one in self.counts if one is not None)

    @property
    def counted(self) -> "ComparedSystem":
        """The system with those runs alone that have counts."""
        runs = tuple(run for run, one in zip(self.runs, self.counts, strict=True) if one is not None)
        return replace(self, runs=runs, counts=self.statistics)

    def scores(self, metric: Metric) -> list[float]:
        """The score of each run on the whole test set, as its scores.*.json has it."""
        found = (score(run, self.decoding or decoding_of(run), metric) for run in self.runs)
        return [value for value in found if value is not None]

    def by_greedy(self, reasons: dict[str, list[str]]) -> "ComparedSystem | None":
        """The system by the greedy translations of those runs that have scores of them; None where none has, or no
        others were made. `reasons` gets the names of the runs that are not scored or not counted, by the reason."""
        if all(decoding_of(run) == GREEDY for run in self.runs):
            return None
        runs: list[ReportRun] = []
        counts: list[SentenceStatistics | None] = []
        for run in self.runs:
            if score(run, GREEDY, "bleu") is None:
                reasons.setdefault("it has no scores of greedy translations", []).append(run.name)
                continue
            runs.append(run)
            try:
                counts.append(enough(statistics_of(run, GREEDY)))
            except ReposeError as error:
                reasons.setdefault(str(error), []).append(run.name)
                counts.append(None)
        return replace(self, runs=tuple(runs), counts=tuple(counts), decoding=GREEDY) if runs else None


@dataclass(frozen=True)
class Pair:
    """A system and what it is tested against."""

    system: ComparedSystem
    other: ComparedSystem

    @property
    def single(self) -> bool:
        """Whether both have one seed."""
        return len(self.system.runs) == len(self.other.runs) == 1

    def has_scores(self, metric: Metric) -> bool:
        """Whether all runs of both have this score."""
        return all(len(side.scores(metric)) == len(side.runs) for side in (self.system, self.other))


@dataclass
class Remarks:
    """What could not be tested, and why."""

    of_scores: list[str] = field(default_factory=list)
    """Runs whose scores stand beside no other's."""
    of_texts: list[str] = field(default_factory=list)
    """Runs without translations that could be resampled."""


def usual_run(runs: RunSet, corpus: str, way: Callable[[ReportRun], object]) -> ReportRun | None:
    """A run that is measured in the way that most are: of the baseline's runs, if it has some that may be compared."""
    found: list[tuple[ReportRun, object]] = []
    for run in (run for run in runs.runs if run.done and run.corpus == corpus and run.comparable):
        with suppress(ReposeError):
            found.append((run, way(run)))
    usual = usual_of(found, runs.baseline)
    return None if usual is None else usual[0]


def usual_of(found: Sequence[tuple[ReportRun, object]], baseline: str | None) -> tuple[ReportRun, object] | None:
    """The first run, of the baseline's if it has some, that is in the way in which most of them are, and that way."""
    found = [one for one in found if one[0].group == baseline] or found
    ways = [way for _, way in found]
    return found[ways.index(max(ways, key=ways.count))] if ways else None


def check_comparable(run: ReportRun) -> None:
    """Raises DataError for a run whose scores say nothing of it."""
    if run.looks_ahead:
        raise DataError("its decoder looks ahead, so it is compared with nothing")
    if run.failed_checks:
        raise DataError(f"it failed the audit ({', '.join(run.failed_checks)})")


def left_out(reasons: dict[str, list[str]], of: str = "") -> list[str]:
    """Sentences about runs, by the reason why they are in no test, or in none `of` something."""
    return [f"Left out of the tests{of}: {some(names)}; {reason}." for reason, names in reasons.items()]


def enough(counts: SentenceStatistics) -> SentenceStatistics:
    """Those of enough translations to be resampled. Raises DataError."""
    check_number(len(counts), "sentences")
    return counts


def check_number(number: int, units: str) -> None:
    """Raises DataError where a test set is too small to be resampled."""
    if number < FEWEST_UNITS:
        raise DataError(f"its test set of {number} {units} is too small to be resampled")


def small_sets(sizes: Mapping[str, int], units: str) -> list[str]:
    """What is said of corpora, by name, whose test sets are small."""
    return [
        f"The test set of {corpus} has {sizes[corpus]} {units}: with fewer than {SMALL}, the bootstrap calls too many "
        "differences significant."
        for corpus in small_of(sizes)
    ]


def small_of(sizes: Mapping[str, int]) -> list[str]:
    """Corpora, by name, whose test sets are small."""
    return [corpus for corpus, number in sizes.items() if number < SMALL]


def pairs_of(systems: Sequence[ComparedSystem], runs: RunSet, remarks: list[str]) -> list[Pair]:
    """Who is tested against whom: all against the baseline (else the first), or each against its twin; each against
    each where they are few."""
    if len(systems) < 2:
        return []
    baseline, by_group = runs.baseline, {system.group: system for system in systems}
    base = by_group.get(baseline or "")
    if len(systems) < ALL_PAIRS_BELOW:
        ordered = sorted(systems, key=lambda system: system is not base)  # the baseline is what others are held against
        return [Pair(system, other) for other, system in combinations(ordered, 2)]
    if base is None:
        first = systems[0]
        reason = f"{baseline} cannot be tested" if baseline else "no baseline is named"
        remarks.append(f"On {first.corpus}, {reason}: systems are tested against the first, {first.group}.")
    return [Pair(by_group[group], by_group[other]) for group, other in runs.against(list(by_group)).items()]


def bootstrap_table(
    name: str,
    pairs: Sequence[Pair],
    resample: Callable[[ComparedSystem, int], testing.Resampled],
    scores: Sides,
    *,
    unit: str,
    digits: int,
    notes: Callable[[Pair], Sequence[str]] = lambda _: (),
    **words: Any,
) -> Table:
    """The paired bootstrap of each pair, corrected over all rows, and whether the scores of its seeds agree.

    `resample` gives a system's figure in that many resamples, `notes` why a pair's difference says nothing, if so: it
    is not marked then, nor said to be agreed on. `words` are for the caption, and what else `pair_table` takes.
    """
    number, form = _num_resamples(pairs), f"+.{digits}f"
    systems = {id(one): one for pair in pairs for one in (pair.system, pair.other)}
    sampled = {key: resample(system, number) for key, system in systems.items()}
    found = [testing.compare(sampled[id(pair.system)], sampled[id(pair.other)]) for pair in pairs]
    corrected, by_seeds = testing.holm([one.p for one in found]), of_seeds(scores)
    rows = [
        [
            *name_cells(pair),
            *(number_cell(len(side.runs), "d") for side in (pair.system, pair.other)),
            number_cell(one.value, form, notes=notes(pair)),
            *(number_cell(value, form) for value in (one.low, one.high)),
            p_cell(one.p),
            p_cell(p, marked=not notes(pair)),
            agree_cell(seeds, one.value, notes=notes(pair)),
        ]
        for pair, one, p, seeds in zip(pairs, found, corrected, by_seeds, strict=True)
    ]
    columns = [Column("seeds"), Column("seeds (against)")]
    columns += [Column(name, unit) for name in ("difference", "95 % from", "to")]
    columns += [Column("p"), Column("p (Holm)"), Column("seeds agree", numeric=False)]
    words |= {"number": number, "seed": testing.SEED, "least": 2 / (number + 1), "holm": holm_words(len(pairs))}
    return pair_table(name, columns, rows, unit=unit, **words)


def seeds_table(
    name: str,
    pairs: Sequence[Pair],
    scores: Sides,
    *,
    unit: str,
    digits: int,
    notes: Callable[[Pair], Sequence[str]] = lambda _: (),
    **words: Any,
) -> Table:
    """Spread over the seeds of each pair, and Welch's interval of the difference; as `bootstrap_table`."""
    found = of_seeds(scores)
    rows = [
        [*name_cells(pair), *_seed_cells(*sides, one, digits, notes=notes(pair))]
        for pair, sides, one in zip(pairs, scores, found, strict=True)
    ]
    columns = [Column(name, unit) for name in ("mean", "mean (against)", "difference", "95 % from", "to")]
    columns += [Column("p"), Column("p (Holm)")]
    return pair_table(name, columns, rows, unit=unit, holm=_holm_words_of_seeds(found), **words)


def _seed_cells(
    values: Sequence[float], others: Sequence[float], found: "OfSeeds | None", digits: int, notes: Sequence[str]
) -> list[Cell]:
    """Both means, the difference, and Welch's interval and p of it."""
    form = f"+.{digits}f"
    means = [spread_cell(spread(side), digits, expected=0) for side in (values, others)]
    difference = number_cell(fmean(values) - fmean(others), form, notes=notes)
    if found is None:
        return [*means, difference, *[Cell(NONE, notes=[_NO_INTERVAL])] * 4]
    ends = [number_cell(value, form) for value in (found.interval.low, found.interval.high)]
    return [*means, difference, *ends, p_cell(found.interval.p), p_cell(found.p, marked=not notes)]


@dataclass(frozen=True)
class OfSeeds:
    """What other seeds say of a difference."""

    interval: testing.SeedInterval
    p: float
    """Corrected for the number of comparisons."""


def of_seeds(sides: Sides) -> list[OfSeeds | None]:
    """Welch's interval of each pair's scores, corrected over all pairs (Holm); None where seeds give no interval."""
    found = [testing.welch(*side) for side in sides]
    corrected = iter(testing.holm([one.p for one in found if one is not None]))
    return [None if one is None else OfSeeds(one, next(corrected)) for one in found]


def pair_table(name: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], **words: Any) -> Table:
    """A table whose rows begin with corpus, system and against; without the corpora where there is only one."""
    heads = [Column(name, numeric=False) for name in ("corpus", "system", "against")]
    first = 0 if len({row[0].text for row in rows}) > 1 else 1
    place = len(heads) + [column.name for column in columns].index("p (Holm)")
    p_values = {(row[0].text, row[1].text, row[2].text): p for row in rows if (p := row[place].value) is not None}
    table = captioned(name, [*heads[first:], *columns], [row[first:] for row in rows], **words)
    return replace(table, p_values=p_values)


def holm_words(number: int) -> str:
    if number == 1:
        return " One comparison: nothing to correct for."
    return f" p (Holm) is corrected for the {number} comparisons of this table (Holm 1979)."


def _holm_words_of_seeds(found: Sequence[OfSeeds | None]) -> str:
    """What `holm_words` says, of tests over seeds: pairs without an interval need no correction."""
    number = sum(one is not None for one in found)
    if not number and len(found) > 1:
        return " No comparison has an interval: nothing to correct for."
    return holm_words(max(number, 1))


def name_cells(pair: Pair) -> list[Cell]:
    """Corpus, system and against; noted where the two were not trained alike."""
    unlike = confounded(pair.system.runs, pair.other.runs)
    system = Cell(pair.system.group, notes=[unlike] if unlike else [])
    return [Cell(pair.system.corpus), system, Cell(pair.other.group)]


def number_cell(value: float, form: str, notes: Sequence[str] = ()) -> Cell:
    form = form if form == "d" else f"{form[0]}z{form[1:]}"  # a difference of nothing has no minus
    return Cell(f"{value:{form}}".replace("-", "−"), float(value), notes=notes)


def p_cell(value: float, *, marked: bool = False) -> Cell:
    """A p value; where corrected ones are `marked`, those that are small have a note."""
    notes = [_SIGNIFICANT] * (marked and value <= testing.LEVEL)
    return Cell(shown_p(value), value, notes=notes)


def shown_p(value: float) -> str:
    """A p value as tables have it."""
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def agree_cell(found: OfSeeds | None, value: float, notes: Sequence[str] = ()) -> Cell:
    """Whether other seeds would leave the sign of a difference as it is, corrected for the number of rows. `notes`: why
    the difference says nothing, if so."""
    if found is None or notes:
        return Cell(NONE, notes=notes)
    return Cell("yes" if found.p <= testing.LEVEL and found.interval.value * value > 0 else "no")


def _num_resamples(pairs: Sequence[Pair]) -> int:
    """How many resamples a table of these pairs rests on."""
    return max(testing.NUM_RESAMPLES, _RESAMPLES_PER_TEST * len(pairs))
