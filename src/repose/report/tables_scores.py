"""Tables of scores: a row for each system and corpus, with means over seeds."""

from collections.abc import Callable, Sequence

from repose.config.experiment import TASK_SETTINGS
from repose.evaluation.metrics import GREEDY
from repose.report import figures
from repose.report.content import Table
from repose.report.differences import confounded, unlike_searches, without_source
from repose.report.run_set import ReportRun, RunSet
from repose.report.tables import (
    Better,
    Figure,
    Of,
    Row,
    accuracy,
    caption,
    figure_table,
    loss,
    quality,
    rows_of,
    scored_on,
    tokenizers,
    validated_on,
)

_OTHER_VOCABULARIES = "Systems of this corpus have different vocabularies, whose tokens cannot be compared."
_AVERAGE = "Of the last validation; the model is an average of checkpoints."
_WHEN = {
    "last": "after the last epoch",
    "best": "of the best validation, whose weights are kept",
    "average": "of the last validation, where the model is an average of checkpoints",
    "model": "with the weights that were kept as the model",
}
"""Phrases for the validation that a table's validation figures are from."""
_NO_TEST_SET = "Scored on the validation set, because there are no scores on a test set."
_NO_EPOCH = "No epoch was completed: mean over the last updates recorded."


def beam_name(runs: Sequence[ReportRun]) -> str:
    """Return the name of the runs' beam, such as "beam 4", or "beam" if they have different ones."""
    names = {name for run in runs if (name := figures.beam_decoding_name(run)) is not None}
    return f"beam {names.pop().removeprefix('beam')}" if len(names) == 1 else "beam"


def shown_decodings(runs: Sequence[ReportRun]) -> dict[str, str | None]:
    """Return the decodings to show, by name, as `figures.score` takes them: greedy search and the runs' beam."""
    return {GREEDY: GREEDY, beam_name(runs): None}


def judged_decoding(runs: Sequence[ReportRun]) -> tuple[str | None, str]:
    """Return the decoding by which runs are compared, as `figures.score` takes it, and its name: their beam, or greedy
    search if not all have a beam."""
    by_beam = all(figures.decoding_of(run) != GREEDY for run in runs)
    return (None, beam_name(runs)) if by_beam else (GREEDY, GREEDY)


def translation_score(name: str, decoding: str | None, metric: str) -> Figure:
    """Return the figure for a score of translations from START; its kind says how and on which set it was measured.
    `decoding` None: with a beam."""
    return quality(
        name,
        lambda run: figures.score(run, decoding, metric),
        lambda run: figures.kind_of_score(run, decoding, metric),
        metric=metric,
        decoding=decoding,
    )


def scores_table(runs: RunSet) -> Table:
    """Return the main table: losses, perplexity, accuracy, BLEU and chrF."""
    rows = rows_of(runs.translations)
    done = [run for row in rows for run in row.runs]
    several = {row.corpus for row in rows if len(tokenizers([r for r in rows if r.corpus == row.corpus])) > 1}
    scores = [
        translation_score(f"{label} {way}", decoding, metric)
        for metric, label in figures.SCORES.items()
        for way, decoding in shown_decodings(done).items()
    ]
    train_loss = Figure("train loss", figures.train_loss, unit=figures.TARGET_NATS, digits=3)
    shown = [
        train_loss,
        loss("valid. loss", figures.valid_loss, figures.TARGET_NATS, validated_on),
        Figure("perplexity", figures.perplexity, better="lower", judged_by_tokens=True, kind=validated_on),
        accuracy("accuracy", figures.valid_accuracy, validated_on),
        *scores,
    ]

    def marks(row: Row, figure: Figure) -> list[str]:
        averaged = any(_when(run) == _WHEN["average"] for run in row.runs)
        reasons = {
            _OTHER_VOCABULARIES: figure.judged_by_tokens and row.corpus in several,
            _AVERAGE: figure.judged_by_tokens and averaged,
            _NO_TEST_SET: figure in scores and any(run.split != "test" for run in row.runs),
            _NO_EPOCH: figure is train_loss and not all(run.of_kind("epoch") for run in row.runs),
        }
        return [reason for reason, holds in reasons.items() if holds]

    signatures = [
        f"{label} {text}"
        for metric, label in figures.SCORES.items()
        for text in dict.fromkeys(figures.signature(run, GREEDY, metric) for run in done)
        if text
    ]
    return figure_table(
        rows,
        shown,
        "scores",
        marks=marks,
        about=_unlike_baseline(rows, runs),
        remarks=unlike_searches(done),
        when=", or ".join(when for when in _WHEN.values() if when in {_when(run) for run in done}),
        sets=" and ".join(sorted({run.split for run in done})) or "test",
        signatures="; ".join(signatures),
    )


def _when(run: ReportRun) -> str:
    """Return the phrase for the validation from which `figures.validation_of_model` takes a run's figures."""
    if run.of_kind("model"):
        return _WHEN["model"]
    training = run.experiment.training
    return _WHEN["average" if training.average_checkpoints > 1 else training.keep]


def _unlike_baseline(rows: Sequence[Row], runs: RunSet) -> Callable[[Row], list[str]]:
    """Return a function that notes systems whose settings, architecture aside, differ from those of the system they are
    compared with (their twin, the baseline, or else the first system), and those that hardly read their source."""

    def about(row: Row) -> list[str]:
        here = [other for other in rows if other.corpus == row.corpus]
        group = runs.against([other.group for other in here]).get(row.group, row.group)
        unlike = confounded(row.runs, next(other.runs for other in here if other.group == group))
        return [note for note in (unlike, without_source([(row.group, row.runs)], alone=len(here) == 1)) if note]

    return about


def teacher_forced_table(runs: RunSet) -> Table | None:
    """Return the table of figures on the test set given the reference's own prefix, which papers may show as if they
    were of translations; None if there are none."""

    def forced(name: str) -> Of:
        return lambda run: figures.teacher_forced(run, name)

    rows = rows_of(runs.translations)
    shown = [
        loss("loss", forced("tf_loss"), figures.TARGET_NATS, scored_on),
        accuracy("accuracy", forced("tf_accuracy"), scored_on),
        Figure("tf BLEU", forced("tf_bleu"), digits=1, kind=scored_on),
        Figure("tf BLEU, mean of sentences", forced("tf_bleu_sentence_mean"), digits=1, kind=scored_on),
    ]
    return figure_table(rows, shown, "teacher-forced") if any(figure.kinds(rows) for figure in shown) else None


def variants_table(runs: RunSet) -> Table | None:
    """Return the table of further BLEU and chrF scores that a corpus or tokenizer calls for; None if there are none."""
    rows = [row for row in rows_of(runs.translations) if any(_other_scores(run) for run in row.runs)]
    done = [run for row in rows for run in row.runs]
    names = list(dict.fromkeys(name for run in done for name in _other_scores(run)))
    if not names:
        return None
    shown = [
        translation_score(f"{_variant(name)}, {label}", decoding, name)
        for name in names
        for label, decoding in shown_decodings(done).items()
    ]
    return figure_table(rows, shown, "score-variants")


def _other_scores(run: ReportRun) -> list[str]:
    return [name for found in figures.decodings(run).values() for name in found if name.startswith(("bleu_", "chrf_"))]


def _variant(name: str) -> str:
    """Return the label of a further score: "BLEU tok:none" for bleu_tok_none."""
    metric, _, rest = name.partition("_")
    return f"{figures.SCORES[metric]} {'tok:none' if rest == 'tok_none' else rest.replace('_', ' ')}"


def task_tables(runs: RunSet) -> list[Table]:
    """Return a table of figures for each task other than translation."""
    tables = []
    for task in (task for task in runs.tasks if not TASK_SETTINGS[task].translates):
        rows = rows_of(runs.of_task(task))
        done = [run for row in rows for run in row.runs]
        units: dict[str, dict[str, None]] = {}
        for run in done:
            for name, found in (run.scores or {}).get("figures", {}).items():
                unit = str(found.get("unit", "")) if isinstance(found, dict) else ""
                units.setdefault(str(name), {})[unit] = None
        if not units:
            continue
        # Units that name the size of a set, such as "percent of 120 words", are cut before the size if sets differ.
        common = {
            name: next(iter(of)) if len(of) == 1 else next(iter(of)).partition(" of ")[0] for name, of in units.items()
        }
        columns = {name: task_column(name, unit) for name, unit in common.items()}
        shown = [
            *(column for name, column in columns.items() if not name.startswith("tf_")),
            Figure("train loss", figures.train_loss, unit=figures.nats(done), digits=3),
            loss("valid. loss", figures.valid_loss, figures.nats(done), validated_on),
            *(column for name, column in columns.items() if name.startswith("tf_")),
        ]
        averaged = any(_when(run) == _WHEN["average"] for run in done)
        tables.append(
            figure_table(
                rows,
                shown,
                f"scores-{task.replace('_', '-')}",
                like="scores-task",
                about=_unlike_baseline(rows, runs),
                task=task.replace("_", " ").capitalize(),
                averaged=f", or {_WHEN['average']}" * averaged,
                sets=" and ".join(sorted({run.split for run in done})),
                meanings=caption(f"figures-of-{task}"),
            )
        )
    return tables


def task_column(name: str, unit: str) -> Figure:
    """Return the column for a figure of a task other than translation."""
    label = figures.task_figure_label(name)
    if name == "tf_accuracy":
        return accuracy(label, lambda run: figures.task_figure(run, name), scored_on)
    digits = 2 if "percent" in unit or "%" in unit or name == "perplexity" else 3
    return Figure(
        label,
        lambda run: figures.task_figure(run, name),
        unit="" if label.endswith(unit) else unit,
        digits=digits,
        better=_better(name),
        judged_by_tokens="token" in unit,
        free_running=name.startswith("stepwise"),
        kind=scored_on,
    )


def _better(name: str) -> Better:
    if any(piece in name for piece in ("loss", "perplexity", "bits")):
        return "lower"
    return "higher" if any(piece in name for piece in ("uas", "las", "accuracy")) else ""
