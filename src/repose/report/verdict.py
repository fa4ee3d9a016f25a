"""What a report says first: one sentence about each corpus, and the picture that shows most of it."""

from collections.abc import Sequence

from repose.report import figures
from repose.report.collect import RunSet
from repose.report.content import Picture
from repose.report.tables import Figure, Row, Spread, loss, number, over_seeds, rows_of, shown, tokenizers, validated_on
from repose.report.tables_scores import beam_name, translation_score

_MOST = 4
"""Corpora of which something is said."""


def verdict(runs: RunSet) -> str:
    """How the systems stand on each corpus: the best and the next, or the figures of a single one."""
    rows = rows_of(runs)
    if not rows:
        return "No run is finished yet, so there is nothing to compare."
    corpora = list(dict.fromkeys(row.corpus for row in rows))
    sentences = [_of_corpus([row for row in rows if row.corpus == corpus]) for corpus in corpora[:_MOST]]
    if len(corpora) > _MOST:
        sentences.append(f"{len(corpora) - _MOST} more corpora: see the scores.")
    return " ".join(sentences)


def main_picture(pictures: Sequence[Picture], runs: RunSet) -> Picture | None:
    """Scores against sizes where several systems have both; else the first, which are learning curves."""
    several = len({run.group for run in runs.runs if run.done}) > 1
    against = [picture for picture in pictures if "parameters" in picture.id] if several else []
    return next(iter([*against, *pictures]), None)


def _of_corpus(rows: Sequence[Row]) -> str:
    corpus, figure = rows[0].corpus, _judge(rows)
    found = [(row, mean) for row in rows if row.comparable and (mean := over_seeds(row.runs, figure)) is not None]
    if not found:
        return f"On {corpus} no model has a score that may be compared."
    if figure.judged_by_tokens and len(tokenizers([row for row, _ in found])) > 1:
        return f"On {corpus} the systems count other tokens: their losses cannot be compared."
    if len(figure.kinds([row for row, _ in found])) > 1:
        return f"On {corpus} the systems were scored in unlike ways or on unlike sets: their scores cannot be compared."
    sign = -1 if figure.better == "higher" else 1
    (best, mean), *others = sorted(found, key=lambda pair: sign * pair[1].mean)
    if not others:
        return f"{best.group} on {corpus}: {figure.name} {_shown(mean, figure)}."
    (second, next_mean) = others[0]
    apart = f"{number(abs(mean.mean - next_mean.mean), figure.digits)} {'above' if sign < 0 else 'below'}"
    return (
        f"On {corpus} {best.group} has the best {figure.name} of {len(found)} systems, {_shown(mean, figure)}, "
        f"{apart} {second.group}; whether that is more than chance is under Significance."
    )


def _judge(rows: Sequence[Row]) -> Figure:
    """BLEU of the widest beam, or of greedy search; of other tasks the validation loss."""
    runs = [run for row in rows for run in row.runs]
    if not runs[0].translates:
        return loss("validation loss", figures.valid_loss, "nats", validated_on)
    wide = any(figures.beam(run) is not None for run in runs)
    name = f"BLEU ({beam_name(runs)})" if wide else "BLEU (greedy)"
    return translation_score(name, None if wide else "greedy", "bleu")


def _shown(mean: Spread, figure: Figure) -> str:
    seeds = f"{mean.n} seeds" if mean.n > 1 else "one seed"
    return f"{shown(mean, figure.digits)} ({seeds})"
