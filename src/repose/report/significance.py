"""Which systems of a report are tested against which, and the tests of significance between them, as tables.

What is tested and how: `repose.evaluation.significance` and docs/significance.md.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np

from repose.config.experiment import TASK_SETTINGS
from repose.evaluation import significance as testing
from repose.evaluation.sentence_statistics import Metric, SentenceStatistics
from repose.report.collect import ReportRun, RunSet, some
from repose.report.content import Cell, Column, Table
from repose.report.figures import kind_of_score, score, task_figure
from repose.report.tables import NONE, captioned, spread, spread_cell
from repose.report.tables_settings import confounded
from repose.report.translations import decoding_of, settings_of, statistics_of
from repose.system.errors import DataError, ReposeError

GREEDY = "greedy"
UNITS: dict[Metric, str] = {"bleu": "BLEU", "chrf": "chrF"}
_RESAMPLES_PER_TEST = 200  # so that the least p there is, corrected for the number of tests, is 0.01
_SIGNIFICANT = f"At or below {testing.LEVEL} after the correction."
_DEAD = 1.0  # BLEU
_NEITHER = "Both systems score below 1 BLEU: neither translates, and no difference between them says anything."
_NO_INTERVAL = "One seed on a side, or scores that do not differ, give no interval."
_ALL_PAIRS_BELOW = 4  # with fewer systems on a corpus, each is tested against each


@dataclass(frozen=True)
class System:
    """The finished runs of a system on a corpus that can be tested."""

    group: str
    corpus: str
    runs: tuple[ReportRun, ...]
    """Those whose scores may stand beside the others'."""
    counts: tuple[SentenceStatistics | None, ...]
    """Of each run; None where its translations cannot be counted."""
    decoding: str | None = None
    """Of the counts; None: the one that each run is compared by."""

    @property
    def statistics(self) -> tuple[SentenceStatistics, ...]:
        """The counts that there are."""
        return tuple(one for one in self.counts if one is not None)

    @property
    def counted(self) -> "System":
        """The system with those runs alone that have counts."""
        runs = tuple(run for run, one in zip(self.runs, self.counts, strict=True) if one is not None)
        return replace(self, runs=runs, counts=self.statistics)

    def scores(self, metric: Metric) -> list[float]:
        """Of each run on the whole test set, as its scores.*.json has them."""
        found = (score(run, self.decoding or decoding_of(run), metric) for run in self.runs)
        return [value for value in found if value is not None]

    @property
    def greedy_scores(self) -> "System | None":
        """The system by its greedy scores alone; None where a run has none, or no others were made."""
        if all(decoding_of(run) == GREEDY for run in self.runs):
            return None
        scored = all(score(run, GREEDY, "bleu") is not None for run in self.runs)
        return replace(self, counts=(None,) * len(self.runs), decoding=GREEDY) if scored else None

    @property
    def greedy(self) -> "System | None":
        """The system by its greedy translations; None where some cannot be counted, or no others were made."""
        scored = self.greedy_scores
        if scored is None:
            return None
        try:
            counts = tuple(statistics_of(run, GREEDY) for run in self.runs)
        except (ReposeError, KeyError):
            return None
        return replace(scored, counts=counts)


@dataclass(frozen=True)
class Pair:
    """A system and what it is tested against."""

    system: System
    other: System

    @property
    def single(self) -> bool:
        """Whether both have one seed."""
        return len(self.system.runs) == len(self.other.runs) == 1


@dataclass
class Remarks:
    """What could not be tested, and why."""

    of_scores: list[str] = field(default_factory=list)
    """Runs whose scores stand beside no other's."""
    of_texts: list[str] = field(default_factory=list)
    """Runs without translations that could be resampled."""


def systems_of(runs: RunSet, corpus: str, remarks: Remarks) -> list[System]:
    """The systems that can be tested on a corpus; what cannot is said in `remarks`."""
    systems: dict[str, System] = {}
    usual = _usual(runs, corpus, _way)
    counted: tuple[ReportRun, SentenceStatistics] | None = None
    unlike: dict[str, list[str]] = {}
    uncounted: dict[str, list[str]] = {}
    for group in sorted(runs.groups, key=lambda group: group != runs.baseline):  # whose references are the others'
        kept: list[ReportRun] = []
        counts: list[SentenceStatistics | None] = []
        for run in runs.done(group, corpus):
            try:
                _check_scores(run, usual)
            except ReposeError as error:
                unlike.setdefault(str(error), []).append(run.name)
                continue
            try:
                found = statistics_of(run)
            except ReposeError as error:
                uncounted.setdefault(str(error), []).append(run.name)
                counts.append(None)
            else:
                counted = counted or (run, found)
                if not np.array_equal(found.bleu[:, 1], counted[1].bleu[:, 1]):  # tokens of each reference
                    unlike.setdefault(f"its references are not those of {counted[0].name}", []).append(run.name)
                    continue
                counts.append(found)
            kept.append(run)
        if kept:
            systems[group] = System(group, corpus, tuple(kept), tuple(counts))
    remarks.of_scores += _sentences(unlike)
    remarks.of_texts += _sentences(uncounted)
    return [systems[group] for group in runs.groups if group in systems]


def _usual(runs: RunSet, corpus: str, way: Callable[[ReportRun], object]) -> ReportRun | None:
    """A run that is measured in the way that most are: of the baseline's runs, if it has some that may be compared."""
    found: list[tuple[ReportRun, object]] = []
    for run in (run for run in runs.runs if run.done and run.corpus == corpus and run.comparable):
        with suppress(ReposeError):
            found.append((run, way(run)))
    found = [one for one in found if one[0].group == runs.baseline] or found
    ways = [one for _, one in found]
    return found[ways.index(max(ways, key=ways.count))][0] if ways else None


def _way(run: ReportRun) -> object:
    """How a run's translations were made and scored. Raises DataError where scores are incomplete."""
    return kind_of_score(run, decoding_of(run), "bleu")


def _check_comparable(run: ReportRun) -> None:
    """Raises DataError for a run whose scores say nothing of it."""
    if run.looks_ahead:
        raise DataError("its decoder looks ahead, so it is compared with nothing")
    if run.failed_checks:
        raise DataError(f"it failed the audit ({', '.join(run.failed_checks)})")


def _check_scores(run: ReportRun, usual: ReportRun | None) -> None:
    """Raises ReposeError for a run whose scores cannot stand beside those of the `usual` one."""
    _check_comparable(run)
    way = settings_of(run)
    if usual is None:
        return
    ways = [(one["case"], one["tok"]) for one in (way, settings_of(usual))]
    if ways[0] != ways[1]:
        shown = [f"case:{case} and tok:{tokenize}" for case, tokenize in ways]
        raise DataError(f"it was scored with {shown[0]}, {usual.name} with {shown[1]}")
    widths = [decoding_of(one) for one in (run, usual)]
    if widths[0] != widths[1]:
        raise DataError(f"it was decoded with {_in_words(widths[0])}, {usual.name} with {_in_words(widths[1])}")
    numbers = [(one.split, (one.scores or {}).get("num_sentences")) for one in (run, usual)]
    if numbers[0] != numbers[1]:
        raise DataError(f"its test set is not that of {usual.name}")


def _in_words(decoding: str) -> str:
    """ "beam 4" or "greedy search"."""
    return "greedy search" if decoding == GREEDY else decoding.replace("beam", "beam ")


def _sentences(left_out: dict[str, list[str]]) -> list[str]:
    return [f"Left out of the tests: {some(names)}; {reason}." for reason, names in left_out.items()]


def pairs_of(systems: Sequence[System], baseline: str | None, remarks: list[str]) -> list[Pair]:
    """Who is tested against whom: all against the baseline (else the first), each against each where they are few."""
    if len(systems) < 2:
        return []
    base = next((system for system in systems if system.group == baseline), None)
    if len(systems) < _ALL_PAIRS_BELOW:
        ordered = sorted(systems, key=lambda system: system is not base)  # the baseline is what others are held against
        return [Pair(system, other) for other, system in combinations(ordered, 2)]
    if base is None:
        base = systems[0]
        reason = f"{baseline} cannot be tested" if baseline else "no baseline is named"
        remarks.append(f"On {base.corpus}, {reason}: systems are tested against the first, {base.group}.")
    return [Pair(system, base) for system in systems if system is not base]


def significance_tables(runs: RunSet) -> tuple[Table, ...]:
    """All tests between the systems of a report that translate.

    `significance`, `significance-chrf` and `significance-greedy` (BLEU of greedy translations, where there are counts
    of them beside the beam's): over test sentences; `seeds`: over seeds; `approximate-randomization`: of pairs with
    one seed each; `seeds-greedy`: over seeds, by greedy scores beside the beam's, where seeds give an interval;
    `seeds-<task>`: over seeds, of other tasks. Every system is tested against `runs.baseline` (else
    the first), all pairs where a corpus has fewer than four. Systems that look ahead or failed an audit are left out;
    runs without translations are in `seeds` alone, which needs their scores only. Notes say so. Empty where there are
    not two systems.
    """
    of_tasks = (seeds_of_task(runs.of_task(task)) for task in runs.tasks if not TASK_SETTINGS[task].translates)
    others = tuple(table for table in of_tasks if table is not None)
    runs = runs.translations
    if len(runs.groups) < 2:
        return others
    remarks = Remarks()
    pairs: list[Pair] = []
    counted: list[Pair] = []
    for corpus in runs.corpora:
        systems = systems_of(runs, corpus, remarks)
        pairs += pairs_of(systems, runs.baseline, remarks.of_scores)
        counted += pairs_of([one.counted for one in systems if one.statistics], runs.baseline, remarks.of_texts)
    tables = [_over_sentences(counted, "bleu", list(dict.fromkeys([*remarks.of_scores, *remarks.of_texts])))]
    if pairs:
        tables.append(_over_seeds(pairs, remarks.of_scores))
    if counted:
        tables.append(_over_sentences(counted, "chrf", []))
    if greedy := _greedy(counted):
        tables.append(_over_sentences(greedy, "bleu", [], name="significance-greedy"))
    scored = _paired([(pair.system.greedy_scores, pair.other.greedy_scores) for pair in pairs])
    if any(_of_seeds(_sides(scored))):
        tables.append(_over_seeds(scored, []))
    if single := [pair for pair in counted if pair.single]:
        tables.append(_randomized(single))
    return (*tables, *others)


def _greedy(pairs: Sequence[Pair]) -> list[Pair]:
    """The same pairs by greedy translations, those that can be."""
    systems = {id(one): one.greedy for pair in pairs for one in (pair.system, pair.other)}
    return _paired([(systems[id(pair.system)], systems[id(pair.other)]) for pair in pairs])


def _paired(found: Sequence[tuple[System | None, System | None]]) -> list[Pair]:
    """Those of which there are both."""
    return [Pair(system, other) for system, other in found if system is not None and other is not None]


def _over_sentences(pairs: Sequence[Pair], metric: Metric, remarks: Sequence[str], *, name: str = "") -> Table:
    """The paired bootstrap, corrected over all rows."""
    unit, number = UNITS[metric], max(testing.NUM_RESAMPLES, _RESAMPLES_PER_TEST * len(pairs))
    sampled: dict[int, testing.Resampled] = {}
    for system in {id(one): one for pair in pairs for one in (pair.system, pair.other)}.values():
        sampled[id(system)] = testing.resample(system.statistics, metric, num_resamples=number)
    found = [testing.compare(sampled[id(pair.system)], sampled[id(pair.other)]) for pair in pairs]
    seeds = _of_seeds([(pair.system.scores(metric), pair.other.scores(metric)) for pair in pairs])
    rows = [
        [
            *_names(pair),
            *(_number(len(side.runs), "d") for side in (pair.system, pair.other)),
            _difference(pair, one.value),
            *(_number(value, "+.2f") for value in (one.low, one.high)),
            _p(one.p),
            _p(p, corrected=True),
            _seeds_agree(of_seeds, one.value),
        ]
        for pair, one, p, of_seeds in zip(pairs, found, testing.holm([one.p for one in found]), seeds, strict=True)
    ]
    columns = [Column("seeds"), Column("seeds (against)")]
    columns += [Column(name, unit) for name in ("difference", "95 % from", "to")]
    columns += [Column("p"), Column("p (Holm)"), Column("seeds agree", numeric=False)]
    name = name or ("significance" if metric == "bleu" else f"significance-{metric}")
    like, least = "significance" if pairs else "significance-of-none", 2 / (number + 1)
    greedy = bool(pairs and pairs[0].system.decoding)
    words = {
        "of": " of greedy translations" * greedy,
        "how": "greedy translations" if greedy else "translations with each run's own beam",
        "unit": unit,
        "number": number,
        "seed": testing.SEED,
        "least": least,
        "holm": _holm(len(pairs)),
    }
    return _table(name, columns, rows, like=like, remarks=remarks, **words)


def _over_seeds(pairs: Sequence[Pair], remarks: Sequence[str]) -> Table:
    """Spread over seeds, and Welch's interval of the difference."""
    sides = _sides(pairs)
    found = _of_seeds(sides)
    rows = [
        [*_names(pair), *_seed_cells(values, others, of_seeds, 2, notes=[_NEITHER] * _dead(pair))]
        for pair, (values, others), of_seeds in zip(pairs, sides, found, strict=True)
    ]
    name, of = ("seeds-greedy", " of greedy translations") if pairs[0].system.decoding else ("seeds", "")
    return _table(name, _seed_columns("BLEU"), rows, like="seeds", remarks=remarks, of=of, holm=_holm_of_seeds(found))


def _sides(pairs: Sequence[Pair]) -> list[tuple[list[float], list[float]]]:
    """BLEU of the seeds of either system."""
    return [(pair.system.scores("bleu"), pair.other.scores("bleu")) for pair in pairs]


def _seed_columns(unit: str) -> list[Column]:
    columns = [Column(name, unit) for name in ("mean", "mean (against)", "difference", "95 % from", "to")]
    return [*columns, Column("p"), Column("p (Holm)")]


def _seed_cells(
    values: Sequence[float], others: Sequence[float], found: "OfSeeds | None", digits: int, notes: Sequence[str] = ()
) -> list[Cell]:
    """Both means, the difference, and Welch's interval and p of it."""
    form = f"+.{digits}f"
    means = [spread_cell(spread(side), digits, expected=0) for side in (values, others)]
    difference = _number(fmean(values) - fmean(others), form, notes=notes)
    if found is None:
        return [*means, difference, *[Cell(NONE, notes=[_NO_INTERVAL])] * 4]
    ends = [_number(value, form) for value in (found.interval.low, found.interval.high)]
    return [*means, difference, *ends, _p(found.interval.p), _p(found.p, corrected=True)]


@dataclass(frozen=True)
class OfSeeds:
    """What other seeds say of a difference."""

    interval: testing.SeedInterval
    p: float
    """Corrected for the number of comparisons."""


def _of_seeds(sides: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[OfSeeds | None]:
    """Of each pair of systems' scores, corrected over all of them (Holm); None where seeds give no interval."""
    found = [testing.welch(*side) for side in sides]
    corrected = iter(testing.holm([one.p for one in found if one is not None]))
    return [None if one is None else OfSeeds(one, next(corrected)) for one in found]


def seeds_of_task(part: RunSet) -> Table | None:
    """Differences over seeds of a task that does not translate, in its first figure; None without two systems.

    Pairs are those of `significance_tables`. Left out, with a remark: models that look ahead or failed an audit, and
    runs that were measured on another set or, where tokens are counted, with other tokens.
    """
    done = [run for run in part.runs if run.done]
    if not done:
        return None
    (name, unit), task = _first_figure(done[0]), part.tasks[0]
    remarks, pairs = list[str](), list[Pair]()
    for corpus in part.corpora:
        pairs += pairs_of(_systems_of_task(part, corpus, name, unit, remarks), part.baseline, remarks)
    if not pairs:
        return None
    sides = [([*_figures(pair.system, name)], [*_figures(pair.other, name)]) for pair in pairs]
    found = _of_seeds(sides)
    rows = [[*_names(pair), *_seed_cells(*side, one, 3)] for pair, side, one in zip(pairs, sides, found, strict=True)]
    words = {"task": task.replace("_", " "), "figure": _called(name), "holm": _holm_of_seeds(found)}
    return _table(f"seeds-{task}", _seed_columns(unit), rows, like="seeds-of-task", remarks=remarks, **words)


def _systems_of_task(part: RunSet, corpus: str, figure: str, unit: str, remarks: list[str]) -> list[System]:
    """The systems that can be tested by a figure."""

    def way(run: ReportRun) -> tuple[str, str]:
        return run.split, run.config.digests.get("tgt", "") if "token" in unit else ""

    usual, systems, unlike = _usual(part, corpus, way), list[System](), dict[str, list[str]]()
    for group in part.groups:
        kept = []
        for run in part.done(group, corpus):
            try:
                _check_comparable(run)
                if task_figure(run, figure) is None:
                    raise DataError(f"it has no {_called(figure)}")
                assert usual is not None, "one that may be compared"
                if run.split != usual.split:
                    raise DataError(f"it was measured on the {run.split} set, {usual.name} on the {usual.split} set")
                if way(run) != way(usual):
                    raise DataError(f"its tokens are not those of {usual.name}")
            except DataError as error:
                unlike.setdefault(str(error), []).append(run.name)
            else:
                kept.append(run)
        if kept:
            systems.append(System(group, corpus, tuple(kept), (None,) * len(kept)))
    remarks += _sentences(unlike)
    return systems


def _figures(system: System, name: str) -> Iterator[float]:
    return (value for run in system.runs if (value := task_figure(run, name)) is not None)


def _first_figure(run: ReportRun) -> tuple[str, str]:
    """The figure that a task is told by: the last of those in percent, which is the strictest, else the first."""
    figures = (run.scores or {})["figures"]
    percent = [name for name, figure in figures.items() if str(figure["unit"]).startswith("percent")]
    name = (percent or list(figures))[-1 if percent else 0]
    return name, str(figures[name]["unit"]).partition(" of ")[0]


def _called(figure: str) -> str:
    """A figure's name in a sentence."""
    return figure.upper() if len(figure) == len("las") else figure.replace("_", " ")


def _randomized(pairs: Sequence[Pair]) -> Table:
    """Approximate randomization, for pairs of single runs."""
    found = [testing.approximate_randomization(pair.system.statistics[0], pair.other.statistics[0]) for pair in pairs]
    rows = [
        [*_names(pair), _difference(pair, one.difference), _p(one.p), _p(p, corrected=True)]
        for pair, one, p in zip(pairs, found, testing.holm([one.p for one in found]), strict=True)
    ]
    columns = [Column("difference", "BLEU"), Column("p"), Column("p (Holm)")]
    trials = f"{testing.NUM_TRIALS:,}"
    return _table("approximate-randomization", columns, rows, trials=trials, holm=_holm(len(pairs)))


def _table(name: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], **words: Any) -> Table:
    """A table whose rows begin with corpus, system and against; without the corpora where there is only one."""
    heads = [Column(name, numeric=False) for name in ("corpus", "system", "against")]
    first = 0 if len({row[0].text for row in rows}) > 1 else 1
    return captioned(name, [*heads[first:], *columns], [row[first:] for row in rows], **words)


def _holm(number: int) -> str:
    if number == 1:
        return " One comparison: nothing to correct for."
    return f" p (Holm) is corrected for the {number} comparisons of this table (Holm 1979)."


def _holm_of_seeds(found: Sequence[OfSeeds | None]) -> str:
    """The same of tests over seeds; of pairs without an interval there is nothing to correct."""
    number = sum(one is not None for one in found)
    if not number and len(found) > 1:
        return " No comparison has an interval: nothing to correct for."
    return _holm(max(number, 1))


def _names(pair: Pair) -> list[Cell]:
    """Corpus, system and against; noted where the two were not trained alike."""
    unlike = confounded(pair.system.runs, pair.other.runs)
    system = Cell(pair.system.group, notes=[unlike] if unlike else [])
    return [Cell(pair.system.corpus), system, Cell(pair.other.group)]


def _difference(pair: Pair, value: float) -> Cell:
    """A difference; noted where neither system translates."""
    return _number(value, "+.2f", notes=[_NEITHER] * _dead(pair))


def _dead(pair: Pair) -> bool:
    return all(fmean(side.scores("bleu")) < _DEAD for side in (pair.system, pair.other))


def _seeds_agree(found: OfSeeds | None, value: float) -> Cell:
    """Whether other seeds would leave the sign of a difference as it is, corrected for the number of rows."""
    if found is None:
        return Cell(NONE)
    return Cell("yes" if found.p <= testing.LEVEL and found.interval.value * value > 0 else "no")


def _number(value: float, form: str, notes: Sequence[str] = ()) -> Cell:
    return Cell(f"{value:{form}}".replace("-", "−"), float(value), notes=notes)


def _p(value: float, *, corrected: bool = False) -> Cell:
    """A p value; a corrected one is noted where it is small."""
    notes = [_SIGNIFICANT] * (corrected and value <= testing.LEVEL)
    return Cell("<0.001" if value < 0.001 else f"{value:.3f}", value, notes=notes)
