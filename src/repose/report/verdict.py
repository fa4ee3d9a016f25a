"""What a report says first: one sentence about each corpus, and the picture that shows most of it."""

from collections.abc import Sequence
from math import isfinite

from repose.report import figures
from repose.report.collect import RunSet
from repose.report.content import Picture
from repose.report.pairs import ALL_PAIRS_BELOW
from repose.report.significance import DEAD
from repose.report.significance_of_tasks import first_figure
from repose.report.tables import Figure, Row, Spread, number, over_seeds, rows_of, shown, tokenizers
from repose.report.tables_scores import beam_name, task_column, translation_score

_MOST = 4
"""Corpora of which something is said; of one more, too, rather than that there is one."""
_CHANCE = "; whether that is more than chance is under Significance."
_OF_ONE = "; whether other sentences might change that is under Significance, but one seed says nothing of others."


def verdict(runs: RunSet) -> str:
    """How the systems stand on each corpus: the best and the next, or the figures of a single one."""
    rows = rows_of(runs)
    if not rows:
        return "No run is finished yet, so there is nothing to compare."
    corpora = list(dict.fromkeys(row.corpus for row in rows))
    most = _MOST if len(corpora) > _MOST + 1 else len(corpora)
    sentences = [_of_corpus([row for row in rows if row.corpus == corpus], runs) for corpus in corpora[:most]]
    ends = [end for sentence in sentences for end in (_CHANCE, _OF_ONE) if sentence.endswith(end)]
    if len(ends) > 1:  # said once of all
        sentences = [sentence.replace(_CHANCE, ".").replace(_OF_ONE, ".") for sentence in sentences]
        but = ", but one seed says nothing of others" * (_OF_ONE in ends)
        sentences.append(f"Whether a lead is more than chance is under Significance{but}.")
    if len(corpora) > most:
        sentences.append(f"{len(corpora) - most} more corpora: see the scores.")
    return " ".join(sentences)


def main_picture(pictures: Sequence[Picture], runs: RunSet) -> Picture | None:
    """Scores against sizes where several systems have both; else the first, which are learning curves."""
    several = len({run.group for run in runs.runs if run.done}) > 1
    against = [picture for picture in pictures if "parameters" in picture.id] if several else []
    return next(iter([*against, *pictures]), None)


def _of_corpus(rows: Sequence[Row], runs: RunSet) -> str:
    corpus, comparable = rows[0].corpus, [row for row in rows if row.comparable]
    figure = _judge(comparable or rows)
    found = [(row, mean) for row in comparable if (mean := over_seeds(row.runs, figure)) and isfinite(mean.mean)]
    if not found:
        return f"On {corpus} no model has a score that may be compared."
    if figure.judged_by_tokens and len(tokenizers([row for row, _ in found])) > 1:
        return f"On {corpus} the systems count other tokens: their losses cannot be compared."
    if len(figure.kinds([row for row, _ in found])) > 1:
        return f"On {corpus} the systems were scored in unlike ways or on unlike sets: their scores cannot be compared."
    sign = -1 if figure.better == "higher" else 1
    found.sort(key=lambda pair: sign * pair[1].mean)
    (best, mean), *others = found
    if not others:
        if figure.name.startswith("BLEU") and mean.mean < DEAD:
            return f"{best.group} on {corpus} does not translate: {figure.name} is {_shown(mean, figure)}."
        return f"{best.group} on {corpus}: {figure.name} {_shown(mean, figure)}."
    (second, next_mean) = others[0]
    without = f" that have one ({len(comparable)} in all)" * (len(found) < len(comparable))
    among = f"the best {figure.name} of {len(found)} systems{without}"
    if figure.name.startswith("BLEU") and mean.mean < DEAD:
        return f"On {corpus} no system translates: the best {figure.name} is {_shown(mean, figure)}."
    level = [row.group for row, other in found if round(other.mean, figure.digits) == round(mean.mean, figure.digits)]
    if len(level) == len(found) > 2:
        return f"On {corpus} all {len(found)} systems{without} have the same {figure.name}, {_shown(mean, figure)}."
    if len(level) > 1:
        score = f"{number(mean.mean, figure.digits)}{_inflated(found[: len(level)])}"
        return f"On {corpus} {_listed(level)} share {among}, {score}."
    apart = f"{number(abs(mean.mean - next_mean.mean), figure.digits)} {'above' if sign < 0 else 'below'}"
    said = f"On {corpus} {best.group} has {among}, {_shown(mean, figure)}, {apart} {second.group}{_inflated(found[:2])}"
    base = runs.baseline if runs.baseline in {row.group for row in comparable} else comparable[0].group
    against = runs.against([row.group for row in comparable])
    tested = against.get(best.group) == second.group or against.get(second.group) == best.group
    if len(comparable) < ALL_PAIRS_BELOW or tested:
        return f"{said}{_CHANCE if mean.n > 1 and next_mean.n > 1 else _OF_ONE}"
    if runs.twins:
        return f"{said}; under Significance, they are not tested against each other."
    return f"{said}; under Significance, both are tested against {base}, and not against each other."


def _judge(rows: Sequence[Row], metric: str = "bleu") -> Figure:
    """BLEU of the widest beam, or of greedy search where not all have one; of other tasks what they are tested by."""
    runs = [run for row in rows for run in row.runs]
    if not runs[0].translates:
        return task_column(*first_figure(runs[0]))
    wide = all(figures.beam(run) is not None for run in runs)
    name = f"BLEU ({beam_name(runs)})" if wide else "BLEU (greedy)"
    return translation_score(name, None if wide else "greedy", metric)


def _inflated(found: Sequence[tuple[Row, Spread]]) -> str:
    """What these systems' BLEU is where references are detokenised, below that of tokenised ones; else nothing."""
    if not found[0][0].runs[0].translates:
        return ""
    figure = _judge([row for row, _ in found], "bleu_detokenised")
    means = [over_seeds(row.runs, figure) for row, _ in found]
    if any(mean is None for mean in means):
        return ""
    return f" (detokenised {_listed([number(mean.mean, figure.digits) for mean in means if mean])})"


def _shown(mean: Spread, figure: Figure) -> str:
    seeds = f"{mean.n} seeds" if mean.n > 1 else "one seed"
    return f"{shown(mean, figure.digits)} ({seeds})"


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}"
