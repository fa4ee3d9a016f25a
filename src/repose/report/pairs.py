"""Pairs of systems that a report tests against each other, and tables of the tests' results.

`repose.evaluation.significance` and docs/significance.md explain the tests.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias, TypeVar

from repose.evaluation import significance as testing
from repose.evaluation.by_length import SMALL
from repose.evaluation.metrics import GREEDY
from repose.evaluation.sentence_statistics import Metric, SentenceStatistics
from repose.report.content import Cell, Column, Table, some
from repose.report.differences import confounded, without_source
from repose.report.figures import decoding_of, score
from repose.report.run_set import ReportRun, RunSet
from repose.report.tables import NONE, captioned, spread, spread_cell
from repose.system.errors import DataError, ReposeError

_RESAMPLES_PER_TEST = 200  # so that the smallest possible p, corrected for the number of tests, is 0.01
_SIGNIFICANT = f"At or below {testing.LEVEL} after the correction."
_NO_INTERVAL = "One seed on a side, or scores that do not differ, give no interval."
FEWEST_UNITS = 10
"""Sentences or documents below which nothing is resampled: with a single one, every difference would look certain."""
ALL_PAIRS_BELOW = 4
"""Number of systems on a corpus below which all pairs are tested."""
_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class ComparedSystem:
    """A system's finished runs on a corpus that can be tested; equal only to itself."""

    group: str
    corpus: str
    runs: tuple[ReportRun, ...]
    """Finished runs whose scores may be compared with the others'."""
    counts: tuple[SentenceStatistics | None, ...] = ()
    """Sentence statistics of each run, None if its translations cannot be counted; empty for other tasks."""
    decoding: str | None = None
    """The decoding whose translations are counted; None: the one that each run is compared by."""

    @property
    def statistics(self) -> tuple[SentenceStatistics, ...]:
        """The counts, without those that are None."""
        return tuple(one for one in self.counts if one is not None)

    @property
    def counted(self) -> "ComparedSystem":
        """The system with only the runs that have counts."""
        runs = tuple(run for run, one in zip(self.runs, self.counts, strict=True) if one is not None)
        return replace(self, runs=runs, counts=self.statistics)

    def scores(self, metric: Metric) -> list[float]:
        """Return the score of each run on the whole test set, from its scores.*.json."""
        found = (score(run, self.decoding or decoding_of(run), metric) for run in self.runs)
        return [value for value in found if value is not None]


Scores: TypeAlias = Callable[[ComparedSystem], Sequence[float]]
"""Function from a system to the scores of its seeds."""


class Pair(NamedTuple):
    """A system, and the system that it is tested against."""

    system: ComparedSystem
    other: ComparedSystem

    @property
    def single(self) -> bool:
        """True if both have one seed."""
        return all(len(side.runs) == 1 for side in self)

    def has_scores(self, metric: Metric) -> bool:
        """Return whether all runs of both have this score."""
        return all(len(side.scores(metric)) == len(side.runs) for side in self)


def usual_run(runs: RunSet, corpus: str, way: Callable[[ReportRun], object]) -> ReportRun | None:
    """Return a run that is measured in the most frequent way: among the baseline's comparable runs, or among all if it
    has none. `way` returns how a run is measured."""
    comparable = (run for run in runs.runs if run.done and run.corpus == corpus and run.comparable)
    usual = usual_of(tried(comparable, way, {}), runs.baseline)
    return None if usual is None else usual[0]


def usual_of(found: Sequence[tuple[ReportRun, object]], baseline: str | None) -> tuple[ReportRun, object] | None:
    """Return the first run measured in the most frequent way, and that way; among the baseline's runs if it has any."""
    found = [one for one in found if one[0].group == baseline] or found
    ways = [way for _, way in found]
    return found[ways.index(max(ways, key=ways.count))] if ways else None


def tried(
    runs: Iterable[ReportRun], of: Callable[[ReportRun], _T], reasons: dict[str, list[str]]
) -> list[tuple[ReportRun, _T]]:
    """Return each run with what `of` returns for it. The names of runs for which it raises ReposeError are added to
    `reasons`, by message."""
    found = []
    for run in runs:
        try:
            found.append((run, of(run)))
        except ReposeError as error:
            reasons.setdefault(str(error), []).append(run.name)
    return found


def check_comparable(run: ReportRun) -> None:
    """Raise DataError for a run whose scores mean nothing."""
    if run.looks_ahead:
        raise DataError("its decoder looks ahead, so it is not compared")
    if run.failed_checks:
        raise DataError(f"it failed the audit ({', '.join(run.failed_checks)})")


def left_out(reasons: dict[str, list[str]], of: str = " of the tests") -> list[str]:
    """Return sentences, by reason, about runs left out `of` something."""
    return [f"Left out{of}: {some(names)}; {reason}." for reason, names in reasons.items()]


def check_number(number: int, units: str) -> None:
    """Raise DataError if a test set is too small to be resampled."""
    if number < FEWEST_UNITS:
        raise DataError(f"its test set of {number} {units} is too small to be resampled")


def small_sets(sizes: Mapping[str, int], units: str) -> list[str]:
    """Return sentences about the corpora with small test sets; `sizes` is by corpus."""
    return [
        f"The test set of {corpus} has {sizes[corpus]} {units}: with fewer than {SMALL}, the bootstrap calls too many "
        "differences significant."
        for corpus in small_of(sizes)
    ]


def small_of(sizes: Mapping[str, int]) -> list[str]:
    """Return the corpora with small test sets; `sizes` is by corpus."""
    return [corpus for corpus, number in sizes.items() if number < SMALL]


def pairs_of(systems: Sequence[ComparedSystem], runs: RunSet, remarks: list[str]) -> list[Pair]:
    """Return the pairs to test: each system against the baseline (else the first) or against its twin; all pairs if
    there are few systems."""
    if len(systems) < 2:
        return []
    baseline, by_group = runs.baseline, {system.group: system for system in systems}
    base = by_group.get(baseline or "")
    if len(systems) < ALL_PAIRS_BELOW:
        ordered = sorted(systems, key=lambda system: system is not base)  # baseline first: others are tested against it
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
    scores: Scores,
    *,
    unit: str,
    digits: int,
    notes: Callable[[Pair], Sequence[str]] = lambda _: (),
    **words: Any,
) -> Table:
    """Return a table with each pair's paired bootstrap, corrected over all rows, and whether the seeds' scores agree.

    `resample` returns a system's figure in the given number of resamples. `notes` returns why a pair's difference means
    nothing, if it does; such a pair is not marked as significant, and nothing is said about its seeds. `words` fill in
    the caption, and are passed to `pair_table`.
    """
    number, form = max(testing.NUM_RESAMPLES, _RESAMPLES_PER_TEST * len(pairs)), f"+.{digits}f"
    sampled = {system: resample(system, number) for system in dict.fromkeys(chain.from_iterable(pairs))}
    found = [testing.compare(sampled[system], sampled[other]) for system, other in pairs]
    corrected, by_seeds = testing.holm([one.p for one in found]), of_seeds(pairs, scores)
    rows = [
        [
            *name_cells(pair),
            *(number_cell(len(side.runs), "d") for side in pair),
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
    scores: Scores,
    *,
    unit: str,
    digits: int,
    notes: Callable[[Pair], Sequence[str]] = lambda _: (),
    **words: Any,
) -> Table:
    """Return a table with the spread over each pair's seeds and Welch's interval; arguments as for
    `bootstrap_table`."""
    found = of_seeds(pairs, scores)
    rows = [
        [*name_cells(pair), *_seed_cells(scores(pair.system), scores(pair.other), one, digits, notes=notes(pair))]
        for pair, one in zip(pairs, found, strict=True)
    ]
    columns = [Column(name, unit) for name in ("mean", "mean (against)", "difference", "95 % from", "to")]
    columns += [Column("p"), Column("p (Holm)")]
    return pair_table(name, columns, rows, unit=unit, holm=_holm_words_of_seeds(found), **words)


def _seed_cells(
    values: Sequence[float], others: Sequence[float], found: "OfSeeds | None", digits: int, notes: Sequence[str]
) -> list[Cell]:
    """Return the cells with both means, their difference, and Welch's interval and p."""
    form = f"+.{digits}f"
    means = [spread_cell(spread(side), digits, expected=0) for side in (values, others)]
    difference = number_cell(fmean(values) - fmean(others), form, notes=notes)
    if found is None:
        return [*means, difference, *[Cell(NONE, notes=[_NO_INTERVAL])] * 4]
    ends = [number_cell(value, form) for value in (found.interval.low, found.interval.high)]
    return [*means, difference, *ends, p_cell(found.interval.p), p_cell(found.p, marked=not notes)]


@dataclass(frozen=True)
class OfSeeds:
    """The test of a difference over seeds."""

    interval: testing.SeedInterval
    p: float
    """p, corrected for the number of comparisons."""


def of_seeds(pairs: Sequence[Pair], scores: Scores) -> list[OfSeeds | None]:
    """Return Welch's test of each pair, with p corrected over all pairs (Holm); None if seeds give no interval."""
    found = [testing.welch(*map(scores, pair)) for pair in pairs]
    corrected = iter(testing.holm([one.p for one in found if one is not None]))
    return [None if one is None else OfSeeds(one, next(corrected)) for one in found]


def pair_table(name: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], **words: Any) -> Table:
    """Return a table whose rows begin with corpus (if there are several), system, and the system tested against."""
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
    """Return the sentence of `holm_words` for tests over seeds, in which pairs without an interval do not count."""
    number = sum(one is not None for one in found)
    if not number and len(found) > 1:
        return " No comparison has an interval: nothing to correct for."
    return holm_words(max(number, 1))


def name_cells(pair: Pair) -> list[Cell]:
    """Return the cells with corpus, system and the one tested against; notes say if they were trained differently, or
    hardly read their source."""
    unlike = confounded(pair.system.runs, pair.other.runs, greedy=pair.system.decoding == GREEDY)
    deaf, base = (without_source([(side.group, side.runs)]) for side in pair)
    notes, notes_of_base = ([note for note in found if note] for found in ((unlike, deaf), (base,)))
    return [Cell(pair.system.corpus), Cell(pair.system.group, notes=notes), Cell(pair.other.group, notes=notes_of_base)]


def number_cell(value: float, form: str, notes: Sequence[str] = ()) -> Cell:
    form = form if form == "d" else f"{form[0]}z{form[1:]}"  # z: zero has no minus sign
    return Cell(f"{value:{form}}".replace("-", "−"), float(value), notes=notes)


def p_cell(value: float, *, marked: bool = False) -> Cell:
    """Return a cell with a p value. `marked`, for corrected p values, adds a note to small ones."""
    notes = [_SIGNIFICANT] * (marked and value <= testing.LEVEL)
    return Cell(shown_p(value), value, notes=notes)


def shown_p(value: float) -> str:
    """Format a p value for tables."""
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def agree_cell(found: OfSeeds | None, value: float, notes: Sequence[str] = ()) -> Cell:
    """Return a cell that says whether the test over seeds, corrected for the number of rows, finds a difference of the
    same sign. `notes`: why the difference means nothing, if it does."""
    if found is None or notes:
        return Cell(NONE, notes=notes)
    return Cell("yes" if found.p <= testing.LEVEL and found.interval.value * value > 0 else "no")
