"""The beginning of a report: one sentence about each corpus, and the most informative picture."""

from collections.abc import Sequence
from itertools import permutations
from math import isfinite

from repose.evaluation.metrics import GREEDY
from repose.report import figures
from repose.report.content import Picture, Shows, Table, listed
from repose.report.differences import differences, without_source
from repose.report.pairs import shown_p
from repose.report.run_set import RunSet
from repose.report.significance import is_dead, table_name
from repose.report.significance_of_tasks import first_figure
from repose.report.tables import Figure, Row, Spread, number, over_seeds, rows_of, shown, tokenizers
from repose.report.tables_scores import judged_decoding, task_column, translation_score

_MOST = 4
"""Number of corpora that get a sentence. If there is just one more, it gets a sentence, too."""
_SHORT = 60
"""Longest list of differing settings (in letters) that is quoted in a sentence."""
_HOW = "Each p is corrected for the number of tests (see Significance)."


def verdict(runs: RunSet, tests: Sequence[Table] = ()) -> str:
    """Say how the systems compare on each corpus: the best and the second best, or the figures of a single one, and the
    results of the `tests` (`significance_tables`) between the two."""
    rows = rows_of(runs)
    if not rows:
        return "No run is finished yet, so there is nothing to compare."
    corpora = list(dict.fromkeys(row.corpus for row in rows))
    most = _MOST if len(corpora) > _MOST + 1 else len(corpora)
    sentences = [_of_corpus([row for row in rows if row.corpus == corpus], tests) for corpus in corpora[:most]]
    if any(" p = " in sentence or " p < " in sentence for sentence in sentences):
        sentences.append(_HOW)
    if len(corpora) > most:
        sentences.append(f"{len(corpora) - most} more corpora: see the scores.")
    return " ".join(sentences)


def main_picture(pictures: Sequence[Picture], runs: RunSet) -> Picture | None:
    """Return the picture of scores against sizes if several systems have both, else the first (learning curves)."""
    several = len({run.group for run in runs.runs if run.done}) > 1
    against = [picture for picture in pictures if picture.shows is Shows.SCORES_AND_SIZES] if several else []
    return next(iter([*against, *pictures]), None)


def _of_corpus(rows: Sequence[Row], tests: Sequence[Table]) -> str:
    corpus, comparable = rows[0].corpus, [row for row in rows if row.comparable]
    figure = _judge(comparable or rows)
    if is_short := _has_no_bleu(comparable, figure):
        figure = _judge(comparable, "chrf")
    found = [(row, mean) for row in comparable if (mean := over_seeds(row.runs, figure)) and isfinite(mean.mean)]
    if why := _no_order(found, figure):
        return f"On {corpus}, {why}."
    found.sort(key=lambda pair: pair[1].mean, reverse=figure.better == "higher")
    (best, mean), is_single = found[0], len(found) == 1
    value = _shown(mean, figure)
    if figure.metric == "bleu" and is_dead(mean.mean):
        if is_single:
            return f"{best.group} on {corpus} does not translate: {figure.name} is {value}."
        return f"On {corpus}, no system translates: the best {figure.name} is {value}."
    if is_single:
        return f"{best.group} on {corpus}: {figure.name} {value}{', where BLEU is below 1' * is_short}."
    here = f"On {corpus}, where no BLEU reaches 1" if is_short else f"On {corpus}"
    said = f"{here}, {_of_best(found, len(comparable), figure, tests)}."
    return f"{said} {without_source((row.group, row.runs) for row, _ in found)}".rstrip()


def _no_order(found: Sequence[tuple[Row, Spread]], figure: Figure) -> str:
    """Say why systems cannot be put in order by a figure; "" if they can."""
    rows = [row for row, _ in found]
    if not found:
        return "no model has a score that can be compared"
    if figure.judged_by_tokens and len(tokenizers(rows)) > 1:
        return "the systems count different tokens: their losses cannot be compared"
    if len(figure.kinds(rows)) > 1:
        return "the systems were scored in different ways or on different sets: their scores cannot be compared"
    return ""


def _of_best(found: Sequence[tuple[Row, Spread]], num_comparable: int, figure: Figure, tests: Sequence[Table]) -> str:
    """Say which of several systems, in the order of their means, is the best, and how it compares with the second."""
    (best, mean), (second, next_mean), *_ = found
    without = f" that have one ({num_comparable} in all)" * (len(found) < num_comparable)
    among = f"the best {figure.name} of {len(found)} systems{without}"
    level = [row.group for row, other in found if round(other.mean, figure.digits) == round(mean.mean, figure.digits)]
    if len(level) == len(found) > 2:
        return f"all {len(found)} systems{without} have the same {figure.name}, {_shown(mean, figure)}"
    if len(level) > 1:
        score = f"{number(mean.mean, figure.digits)}{_inflated(figure, found[: len(level)])}"
        return f"{listed(level)} share {among}, {score}"
    beside = "above" if figure.better == "higher" else "below"
    apart = f"{_apart(abs(mean.mean - next_mean.mean), figure)} {beside} {second.group}"
    said = f"{best.group} has {among}, {_shown(mean, figure)}, {apart}{_inflated(figure, found[:2])}"
    said += _otherwise(best, second)
    if (tested := _tested(figure, tests, best, second)) is None:
        return f"{said}. No test compares the two{_above_base(figure, tests, found)}"
    return f"{said}; {tested}"


def _has_no_bleu(rows: Sequence[Row], figure: Figure) -> bool:
    """Return whether translations that are good by chrF have almost no BLEU, as when sentences are too short for it."""
    if not rows or figure.metric != "bleu":
        return False
    by_bleu, by_chrf = (
        [found.mean for row in rows if (found := over_seeds(row.runs, one))] for one in (figure, _judge(rows, "chrf"))
    )
    if not by_bleu or len(by_chrf) < len(by_bleu):
        return False
    return is_dead(max(by_bleu)) and not is_dead(max(by_bleu), max(by_chrf))


def _above_base(figure: Figure, tests: Sequence[Table], found: Sequence[tuple[Row, Spread]]) -> str:
    """Say how the best system compares with the one that it was tested against, if that is not the second best; "" if
    there is none."""
    (best, mean), *others = found
    for row, other in others:
        if (tested := _tested(figure, tests, best, row)) is not None:
            beside = "above" if mean.mean > other.mean else "below"
            apart = _apart(abs(mean.mean - other.mean), figure)
            return f"; {best.group} is {apart} {beside} {row.group}, {tested}"
    return ""


def _otherwise(one: Row, other: Row) -> str:
    """Say in which settings, architecture aside, two systems differ; "" if in none."""
    found = differences(one.runs, other.runs)
    if not found:
        return ""
    return f", but with other settings ({found if len(found) <= _SHORT else 'see Settings'})"


def _apart(difference: float, figure: Figure) -> str:
    """Format a difference of means; "less than ..." if it rounds to zero."""
    shown, none = (number(value, figure.digits) for value in (difference, 0.0))
    return f"less than {number(10**-figure.digits, figure.digits)}" if shown == none else shown


def _tested(figure: Figure, tests: Sequence[Table], one: Row, other: Row) -> str | None:
    """Say what the tests by a figure found for two systems: p over the test set and over seeds, each corrected; None if
    no test compares the two."""
    if one.runs[0].translates:
        runs = (*one.runs, *other.runs)
        beside_beam = figure.decoding == GREEDY and any(figures.decoding_of(run) != GREEDY for run in runs)
        names = [table_name(tests_over, figure.metric, greedy=beside_beam) for tests_over in ("significance", "seeds")]
    else:
        names = [f"{tests_over}-{one.runs[0].task}" for tests_over in ("significance", "seeds")]
    over_set, over_seeds = (_p_value(tests, name, one, other) for name in names)
    small = any(table.id == names[0] and one.corpus in table.small_sets for table in tests)
    if names[0] == "significance" and (exact := _p_value(tests, "approximate-randomization", one, other)):
        over_set, small = exact, False  # for two single runs; reliable for few sentences, too
    if over_set is None and over_seeds is None:
        return None
    if over_set is None:
        return f"{over_seeds} over seeds, and not tested over the test set"
    return f"{over_set} over the test set{', which is too small to rely on,' * small}" + (
        f"{'' if small else ','} and seeds are not tested" if over_seeds is None else f" and {over_seeds} over seeds"
    )


def _p_value(tests: Sequence[Table], name: str, one: Row, other: Row) -> str | None:
    """Return a p value as "p = 0.049", from a table of tests; None if the two are not in it."""
    for table in tests:
        for system, against in permutations((one.group, other.group)):
            if table.id == name and (p := table.p_values.get((one.corpus, system, against))) is not None:
                shown = shown_p(p)
                return f"p < {shown[1:]}" if shown.startswith("<") else f"p = {shown}"
    return None


def _judge(rows: Sequence[Row], metric: str = "bleu") -> Figure:
    """Return the figure to compare systems by: BLEU with the runs' own beam, or with greedy search if not all have one;
    for other tasks, their main figure."""
    runs = [run for row in rows for run in row.runs]
    if not runs[0].translates:
        return task_column(*first_figure(runs[0]))
    decoding, name = judged_decoding(runs)
    return translation_score(f"{figures.SCORES[metric.partition('_')[0]]} ({name})", decoding, metric)


def _inflated(figure: Figure, found: Sequence[tuple[Row, Spread]]) -> str:
    """Return a remark with the detokenised BLEU of these systems, which is the lower one, if their references look
    tokenised or contain HTML entities; else ""."""
    if figure.metric != "bleu":
        return ""
    figure = _judge([row for row, _ in found], "bleu_detokenised")
    means = [over_seeds(row.runs, figure) for row, _ in found]
    if any(mean is None for mean in means):
        return ""
    return f" (detokenised {listed([number(mean.mean, figure.digits) for mean in means if mean])})"


def _shown(mean: Spread, figure: Figure) -> str:
    seeds = f"{mean.n} seeds" if mean.n > 1 else "one seed"
    return f"{shown(mean, figure.digits)} ({seeds})"
