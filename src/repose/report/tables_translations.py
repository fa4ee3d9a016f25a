"""What translations are like, apart from their scores: how they end, and BLEU by the length of the source.

BLEU by length shows whether a system keeps up on sentences longer than those it was trained on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from repose.evaluation.by_length import SMALL, Bucket, by_length, edges_with, scores_by_length
from repose.evaluation.metrics import GREEDY
from repose.evaluation.sentence_statistics import SourceLengths
from repose.report import figures
from repose.report.content import Cell, Column, Table, suffixes
from repose.report.pairs import left_out, tried
from repose.report.run_set import ReportRun, RunSet
from repose.report.tables import UNLIKE, Figure, Kind, Of, captioned, figure_table, rows_of, spread, spread_cell
from repose.report.tables_scores import shown_decodings
from repose.report.translations import lengths_of, statistics_of
from repose.system.errors import DataError, ReposeError
from repose.tasks.inflation import inflated

_DIGITS = 1  # decimals of a score; the best is chosen after rounding
_LONGER = "Longer than every source that any run of this system was trained on."
_FEW = f"Fewer than {SMALL} sentences."
_NOT_FAIR = "Its decoder looks ahead, or it failed the audit: never marked as the best."


def endings_table(runs: RunSet) -> Table | None:
    """Return the table of translations that are too short, did not end, or loop; None for old runs without counts."""
    rows = [row for row in rows_of(runs.translations) if any(_counts(run, GREEDY) for run in row.runs)]
    if not rows:
        return None
    ways = shown_decodings([run for row in rows for run in row.runs]).items()
    shown = [
        Figure(f"brevity penalty, {label}", _brevity_penalty(way), digits=3, free_running=True, kind=_kind(way))
        for label, way in ways
    ]
    for name, key in (("did not end", "unfinished"), ("loop", "looping")):
        for label, way in ways:
            of, kind = _share(key, way), _kind(way)
            shown.append(
                Figure(f"{name}, {label}", of, unit="%", digits=1, better="lower", free_running=True, kind=kind)
            )
    return figure_table(rows, shown, "endings")


def _kind(decoding: str | None) -> Kind:
    return lambda run: figures.kind_of_score(run, decoding, "bleu")


def _counts(run: ReportRun, decoding: str | None) -> dict[str, Any]:
    """Return what was counted beside the scores of a decoding; `decoding` None: the one with a beam."""
    found = figures.scored(run, decoding)
    return dict(found) if "looping" in found else {}


def _brevity_penalty(decoding: str | None) -> Of:
    return lambda run: _counts(run, decoding).get("bleu", {}).get("brevity_penalty")


def _share(name: str, decoding: str | None) -> Of:
    """Return a function from a run to the share of sentences counted under `name`, in percent."""

    def share(run: ReportRun) -> float | None:
        count = _counts(run, decoding).get(name)
        return None if count is None or run.scores is None else 100 * count / run.scores["num_sentences"]

    return share


def inflated_scores(runs: RunSet) -> tuple[str, ...]:
    """Return a warning for each corpus whose references look tokenised or have HTML entities, which inflates BLEU."""
    found = {
        run.corpus: sentence
        for run in runs.translations.runs
        if run.scores is not None and (sentence := inflated(run.scores, figures=False))
    }
    return tuple(f"{corpus}: {sentence}." for corpus, sentence in found.items())


@dataclass(frozen=True)
class _Measured:
    """A finished run with its BLEU in each bucket."""

    run: ReportRun
    lengths: SourceLengths
    values: tuple[float, ...]


def length_tables(runs: RunSet) -> tuple[Table, ...]:
    """Return, for each corpus, the table of every system's BLEU on parts of the test set by source length.

    Lengths are in tokens, including START and END, as `training.max_src_tokens` counts them, if all systems share the
    source tokenizer. Otherwise they are in words, because different tokenizers would sort the sentences differently.
    With tokens, if the test set has sources longer than any in training, the longest training source is an edge, and
    parts beyond it are marked. Runs without translations, or scored on other sentences than most, are left out, with a
    note. A corpus without any has no table.
    """
    runs = runs.translations
    names = {corpus: f"lengths{suffix}" for corpus, suffix in suffixes(runs.corpora).items()}
    tables = (_length_table(runs, corpus, name) for corpus, name in names.items())
    return tuple(table for table in tables if table is not None)


def _length_table(runs: RunSet, corpus: str, name: str) -> Table | None:
    found, missing = _lengths(runs, corpus)
    if not found:
        return None
    tokenizers = {run.config.digests.get("src") for run, _ in found}
    in_tokens = len(tokenizers) == 1 and None not in tokenizers
    of_runs = [own.tokens if in_tokens else own.words for _, own in found]
    lengths = max(of_runs, key=lambda one: sum(np.array_equal(one, other) for other in of_runs))
    limits = sorted({one.longest_trained for _, one in found}) if in_tokens else []
    beyond = [limit for limit in limits if limit < lengths.max()]
    buckets = by_length(lengths, edges_with(beyond))
    measured: list[_Measured] = []
    for (run, own), of_run in zip(found, of_runs, strict=True):
        try:
            if not np.array_equal(of_run, lengths):
                raise DataError("its test sentences are not those of most runs")
            measured.append(_Measured(run, own, scores_by_length(statistics_of(run), buckets)))
        except ReposeError as error:
            missing.append(f"{run.name} is left out: {error}.")
    groups = [[one for one in measured if one.run.group == group] for group in runs.groups]
    sizes = [Cell(f"{len(bucket):,}", len(bucket), notes=[_FEW] * bucket.small) for bucket in buckets]
    return captioned(
        name,
        [Column("system", numeric=False), *(Column(bucket.label) for bucket in buckets)],
        [[Cell("test sentences"), *sizes], *_length_rows([group for group in groups if group], buckets, in_tokens)],
        like="lengths",
        remarks=missing,
        corpus="" if name == "lengths" else f", {corpus}",
        unit="tokens, START and END counted" if in_tokens else "words",
        more=_longest_trained(beyond, limits),
    )


def _lengths(runs: RunSet, corpus: str) -> tuple[list[tuple[ReportRun, SourceLengths]], list[str]]:
    """Return the finished runs with the lengths of their sources, and sentences about runs without."""
    missing: dict[str, list[str]] = {}
    found = tried((run for group in runs.groups for run in runs.done(group, corpus)), lengths_of, missing)
    return found, left_out(missing, of="")


def _longest_trained(beyond: Sequence[int], limits: Sequence[int]) -> str:
    if not limits:
        return ""
    if not beyond:
        return f" No source is longer than the longest in training ({max(limits)} tokens)."
    shown = " or ".join(map(str, beyond))
    return f" The longest source in training has {shown} tokens" + (", by system." if len(limits) > 1 else ".")


def _length_rows(groups: Sequence[Sequence[_Measured]], buckets: Sequence[Bucket], in_tokens: bool) -> list[list[Cell]]:
    """Return a row for each system, without means if its runs were scored in different ways. In each column, the best
    mean of comparable systems is marked, ties included, if all were scored in the same way and the means differ."""
    means = [[fmean(column) for column in zip(*(one.values for one in group), strict=True)] for group in groups]
    fair = [all(one.run.comparable for one in group) for group in groups]
    kinds = [
        {figures.kind_of_score(one.run, figures.decoding_of(one.run), "bleu") for one in group} for group in groups
    ]
    alike = len(set().union(*(of_group for of_group, is_fair in zip(kinds, fair, strict=True) if is_fair))) == 1
    fair_means = [mean for mean, is_fair in zip(means, fair, strict=True) if is_fair]
    compared = [{round(mean[place], _DIGITS) for mean in fair_means} for place in range(len(buckets))]
    rows = []
    for group, mean, is_fair, kind in zip(groups, means, fair, kinds, strict=True):
        longest = max(one.lengths.longest_trained for one in group)
        cells = [Cell(group[0].run.group)]
        for place, bucket in enumerate(buckets):
            reasons = {_LONGER: in_tokens and bucket.shortest > longest, _FEW: bucket.small, _NOT_FAIR: not is_fair}
            reasons[UNLIKE] = len(kind) > 1
            notes = [reason for reason, holds in reasons.items() if holds]
            differ = alike and len(compared[place]) > 1
            is_best = is_fair and differ and round(mean[place], _DIGITS) == max(compared[place])
            found = None if reasons[UNLIKE] else spread([one.values[place] for one in group])
            cells.append(spread_cell(found, _DIGITS, notes=notes, best=is_best))
        rows.append(cells)
    return rows
