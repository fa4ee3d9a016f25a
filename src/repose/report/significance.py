"""Tests of significance between the systems of a report, as tables: for translation and for other tasks.

`repose.evaluation.significance` and docs/significance.md explain the tests.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean
from typing import Literal

from repose.config.experiment import TASK_SETTINGS
from repose.evaluation import significance as testing
from repose.evaluation.metrics import GREEDY
from repose.evaluation.sentence_statistics import Metric, SentenceStatistics
from repose.report.content import Column, Table
from repose.report.figures import SCORES, decoding_of, kind_of_score, score
from repose.report.pairs import (
    ComparedSystem,
    Pair,
    bootstrap_table,
    check_comparable,
    check_number,
    holm_words,
    left_out,
    name_cells,
    number_cell,
    of_seeds,
    p_cell,
    pair_table,
    pairs_of,
    seeds_table,
    small_of,
    small_sets,
    tried,
    usual_of,
    usual_run,
)
from repose.report.run_set import ReportRun, RunSet
from repose.report.significance_of_tasks import tables_of_task
from repose.report.translations import settings_of, statistics_of
from repose.system.errors import DataError, ReposeError

DEAD, DEAD_CHRF = 1.0, 25.0
"""A model whose BLEU and chrF are both below these values does not translate."""
_NEITHER = (
    "Both systems score below 1 BLEU and 25 chrF: neither translates, and no difference between their scores says "
    "anything."
)


def systems_of(
    runs: RunSet, corpus: str, decoding: str | None = None
) -> tuple[list[ComparedSystem], list[str], list[str]]:
    """Return the systems that can be tested on a corpus, sentences about runs whose scores cannot be compared with the
    others', and sentences about runs without translations that can be resampled. `decoding`: compare by this decoding
    instead of each run's own."""
    usual = usual_run(runs, corpus, lambda run: _way(run, decoding))
    unlike: dict[str, list[str]] = {}
    uncounted: dict[str, list[str]] = {}
    done = (run for group in runs.groups for run in runs.done(group, corpus))
    comparable = [run for run, _ in tried(done, lambda run: _check_scores(run, usual, decoding), unlike)]
    found = [(run, _counts(run, decoding, uncounted)) for run in comparable]
    likeness = usual_of([(run, _references(counts)) for run, counts in found if counts is not None], runs.baseline)
    kept: dict[str, list[tuple[ReportRun, SentenceStatistics | None]]] = {}
    for run, counts in found:
        if counts is not None and likeness is not None and _references(counts) != likeness[1]:
            unlike.setdefault(f"its references are not those of {likeness[0].name}", []).append(run.name)
        else:
            kept.setdefault(run.group, []).append((run, counts))
    systems = [
        ComparedSystem(group, corpus, tuple(run for run, _ in pairs), tuple(counts for _, counts in pairs), decoding)
        for group, pairs in kept.items()
    ]
    return systems, left_out(unlike), left_out(uncounted)


def _counts(run: ReportRun, decoding: str | None, reasons: dict[str, list[str]]) -> SentenceStatistics | None:
    """Return the counts of a run's translations; if they cannot be resampled, None, with the run's name added to
    `reasons`."""
    try:
        found = statistics_of(run, decoding)
        check_number(len(found), "sentences")
    except ReposeError as error:
        reasons.setdefault(str(error), []).append(run.name)
        return None
    return found


def _references(counts: SentenceStatistics) -> object:
    """Return what identifies the references of a run: the number of tokens of each."""
    return counts.bleu[:, 1].tobytes()


def _way(run: ReportRun, decoding: str | None) -> object:
    """Return how a run's translations were made and scored. Raises DataError if its scores are incomplete."""
    settings_of(run)
    return kind_of_score(run, decoding or decoding_of(run), "bleu")


def _check_scores(run: ReportRun, usual: ReportRun | None, decoding: str | None) -> None:
    """Raise ReposeError for a run whose scores cannot be compared with those of the `usual` one."""
    check_comparable(run)
    if decoding is not None and score(run, decoding, "bleu") is None:
        raise DataError(f"it has no scores by {_in_words(decoding)}")
    way = settings_of(run)
    if usual is None:
        return
    usual_way = settings_of(usual)
    if unlike := sorted(name for name in way | usual_way if way.get(name) != usual_way.get(name)):
        shown = [" and ".join(f"{name}:{one.get(name, 'none')}" for name in unlike) for one in (way, usual_way)]
        raise DataError(f"it was scored with {shown[0]}, {usual.name} with {shown[1]}")
    widths = [decoding or decoding_of(one) for one in (run, usual)]
    if widths[0] != widths[1]:
        raise DataError(f"it was decoded with {_in_words(widths[0])}, {usual.name} with {_in_words(widths[1])}")
    numbers = [(one.split, (one.scores or {}).get("num_sentences")) for one in (run, usual)]
    if numbers[0] != numbers[1]:
        raise DataError(f"its test set is not that of {usual.name}")


def _in_words(decoding: str) -> str:
    """Return the name of a decoding in a sentence: "beam 4" or "greedy search"."""
    return "greedy search" if decoding == GREEDY else decoding.replace("beam", "beam ")


def significance_tables(runs: RunSet) -> tuple[Table, ...]:
    """Return the tables of all tests between the systems of a report.

    Over test sentences: `significance`, `significance-chrf`, and `significance-greedy` (BLEU of greedy translations, if
    they are counted besides a beam's). Over seeds: `seeds` and, where seeds give an interval, `seeds-chrf` and
    `seeds-greedy` (greedy scores besides a beam's). For pairs with one seed each: `approximate-randomization`. For
    other tasks: `significance-<task>` and `seeds-<task>`.

    Every system is tested against `runs.baseline` (else the first system) or its twin; if a corpus has fewer than four
    systems, all pairs are tested. Systems that look ahead or failed an audit are left out. Runs without translations
    are only in `seeds`, which needs just their scores. Notes say so. Empty if there are fewer than two.
    """
    of_tasks = (tables_of_task(runs.of_task(task)) for task in runs.tasks if not TASK_SETTINGS[task].translates)
    others = tuple(table for tables in of_tasks for table in tables)
    runs = runs.translations
    if len(runs.groups) < 2:
        return others
    of_scores, of_texts = list[str](), list[str]()
    pairs, counted = list[Pair](), list[Pair]()
    for corpus in runs.corpora:
        systems, unlike_scores, no_texts = systems_of(runs, corpus)
        of_scores += unlike_scores
        of_texts += no_texts
        pairs += pairs_of(systems, runs, of_scores)
        counted += pairs_of([one.counted for one in systems if one.statistics], runs, of_texts)
    greedy, without = _by_greedy(pairs)
    by_text = [Pair(a.counted, b.counted) for a, b in greedy if a.statistics and b.statistics]
    sizes = {pair.system.corpus: len(pair.system.statistics[0]) for pair in (*by_text, *counted)}
    over_seeds = any(of_seeds(greedy, lambda system: system.scores("bleu")))
    said = [*of_scores, *of_texts, *([] if by_text or over_seeds else without)]
    few = small_sets(sizes, "sentences")
    said = list(dict.fromkeys([*said, *few]))
    tables = [_over_sentences(counted, "bleu", said)]
    if pairs:
        tables.append(_over_seeds(pairs, of_scores))
    if by_chrf := [pair for pair in counted if pair.has_scores("chrf")]:
        tables.append(_over_sentences(by_chrf, "chrf", few))
    if any(of_seeds(by_chrf, lambda system: system.scores("chrf"))):
        tables.append(_over_seeds(by_chrf, [], "chrf"))
    if by_text:
        tables.append(_over_sentences(by_text, "bleu", [*without, *few]))
    if over_seeds:
        tables.append(_over_seeds(greedy, [] if by_text else without))
    if single := [pair for pair in counted if pair.single]:
        tables.append(_randomized(single))
    small = frozenset(small_of(sizes))
    return (*(replace(table, small_sets=small) for table in tables), *others)


def _by_greedy(pairs: Sequence[Pair]) -> tuple[list[Pair], list[str]]:
    """Return the same pairs by greedy translations, if both systems have some, and sentences about the runs left out.
    Both are empty if no system has greedy translations besides a beam's."""
    reasons: dict[str, list[str]] = {}
    by_greedy = {system: _greedy(system, reasons) for system in dict.fromkeys(chain.from_iterable(pairs))}
    if not any(by_greedy.values()):
        return [], []
    both = [(by_greedy[system], by_greedy[other]) for system, other in pairs]
    found = [Pair(system, other) for system, other in both if system is not None and other is not None]
    return found, left_out(reasons, " of the tests of greedy translations")


def _greedy(system: ComparedSystem, reasons: dict[str, list[str]]) -> ComparedSystem | None:
    """Return the system with greedy translations, and with only the runs that have scores of them; None if no run has
    any, or if all runs are compared by greedy search already. Names of runs without scores or counts are added to
    `reasons`."""
    if all(decoding_of(run) == GREEDY for run in system.runs):
        return None
    found = []
    for run in system.runs:
        if score(run, GREEDY, "bleu") is None:
            reasons.setdefault("it has no scores of greedy translations", []).append(run.name)
        else:
            found.append((run, _counts(run, GREEDY, reasons)))
    runs, counts = tuple(run for run, _ in found), tuple(counts for _, counts in found)
    return replace(system, runs=runs, counts=counts, decoding=GREEDY) if runs else None


def table_name(tests: Literal["significance", "seeds"], metric: str, *, greedy: bool) -> str:
    """Return the id of the table of tests over sentences, or over seeds, for a score. `greedy`: for greedy translations
    of systems that are compared by a beam."""
    return tests + f"-{metric}" * (metric != "bleu") + "-greedy" * greedy


def _over_sentences(pairs: Sequence[Pair], metric: Metric, remarks: Sequence[str]) -> Table:
    """Return the table of the paired bootstrap over test sentences."""
    greedy = bool(pairs and pairs[0].system.decoding)
    return bootstrap_table(
        table_name("significance", metric, greedy=greedy),
        pairs,
        lambda system, number: testing.resample(system.statistics, metric, num_resamples=number),
        lambda system: system.scores(metric),
        unit=SCORES[metric],
        digits=2,
        notes=notes_of,
        like="significance" if pairs else "significance-of-none",
        remarks=remarks,
        of=" of greedy translations" * greedy,
        how="greedy translations" if greedy else "translations with each run's own beam",
    )


def _over_seeds(pairs: Sequence[Pair], remarks: Sequence[str], metric: Metric = "bleu") -> Table:
    """Return the table of tests over seeds."""
    greedy = bool(pairs[0].system.decoding)
    return seeds_table(
        table_name("seeds", metric, greedy=greedy),
        pairs,
        lambda system: system.scores(metric),
        unit=SCORES[metric],
        digits=2,
        notes=notes_of,
        like="seeds",
        remarks=remarks,
        of=" of greedy translations" * greedy,
    )


def _randomized(pairs: Sequence[Pair]) -> Table:
    """Return the table of approximate randomization, for pairs of single runs."""
    found = [testing.approximate_randomization(a.statistics[0], b.statistics[0]) for a, b in pairs]
    rows = [
        [
            *name_cells(pair),
            number_cell(one.difference, "+.2f", notes=notes_of(pair)),
            p_cell(one.p),
            p_cell(p, marked=not notes_of(pair)),
        ]
        for pair, one, p in zip(pairs, found, testing.holm([one.p for one in found]), strict=True)
    ]
    columns = [Column("difference", "BLEU"), Column("p"), Column("p (Holm)")]
    trials = f"{testing.NUM_TRIALS:,}"
    return pair_table("approximate-randomization", columns, rows, trials=trials, holm=holm_words(len(pairs)))


def notes_of(pair: Pair) -> list[str]:
    """Return a list with the reason why a difference means nothing: neither system translates."""
    return [_NEITHER] * neither_translates(pair)


def neither_translates(pair: Pair) -> bool:
    """Return whether a pair's scores are too low for their difference to mean anything."""
    return all(is_dead(fmean(side.scores("bleu")), fmean(side.scores("chrf") or [0.0])) for side in pair)


def is_dead(bleu: float, chrf: float = 0.0) -> bool:
    """Return whether a system does not translate. BLEU alone does not tell: three-word sentences have no four-grams."""
    return bleu < DEAD and chrf < DEAD_CHRF
