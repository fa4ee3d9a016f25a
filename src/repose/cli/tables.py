"""Tables that the verbs print on stdout."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from repose.runs.folder import RunFolder
from repose.saved_model.directory import UNNAMED_TASK
from repose.system.terminal import make_table, show

if TYPE_CHECKING:
    from repose.runs.run import RunResult

NUM_SAMPLES = 5
_TEACHER_FORCED = {
    "tf_loss": "nats per target token",
    "tf_accuracy": "share of target tokens",
    "tf_bleu": "argmax given the reference's prefix; not a translation",
    "tf_bleu_sentence_mean": "the same, averaged over sentences, unsmoothed",
}


def evaluation_table(scores: dict[str, Any]) -> None:
    """Figures of one evaluation, each with its signature or unit."""
    heads, after = ("score", "value", "unit"), f"{scores['split']}, {scores.get('task', '').replace('_', ' ')}"
    rows: list[tuple[str, str, str] | None]
    if "figures" in scores:  # of another task than translation
        rows = [(name, f"{figure['value']:.4f}", figure["unit"]) for name, figure in scores["figures"].items()]
    else:
        heads, after = ("score", "value", "signature"), f"{scores['split']}: {scores['num_sentences']:,} sentences"
        rows = _translation_rows(scores)
    show(make_table(heads, rows, right=[1]), f"run {scores.get('run_id')}, {after}")
    if dropped := scores.get("dropped"):
        reasons = ", ".join(f"{reason}: {number:,}" for reason, number in dropped.items())
        show(f"{sum(dropped.values()):,} pairs were left out ({reasons})")
    if scores.get("looks_ahead"):
        from repose.tasks.registry import get_task

        show(get_task(scores.get("task", UNNAMED_TASK)).look_ahead_warning)


def _translation_rows(scores: dict[str, Any]) -> list[tuple[str, str, str] | None]:
    rows: list[tuple[str, str, str] | None] = []
    for decoding, figures in scores["decoded"].items():
        for name, score in figures.items():
            if name != "unfinished":
                rows.append((f"{decoding} {name}", f"{score['value']:.2f}", score["signature"]))
        rows.append(None)
    for name, value in scores["teacher_forced"].items():
        rows.append((name, f"{value:.2f}" if name.startswith("tf_bleu") else f"{value:.4f}", _TEACHER_FORCED[name]))
    if means := scores.get("over_validations", {}):
        what = f"mean and deviation of {means['num_validations']} validations, epochs {means['first_epoch']} to "
        what += f"{means['last_epoch']}, {means['num_sentences']:,} sentences"
        rows.append(None)
        for name in (name for name in means if "bleu" in name):
            mean, sd = means[name]["mean"], means[name]["sd"]
            shown = f"{mean:.2f}" if sd is None else f"{mean:.2f} ± {sd:.2f}"
            rows.append((name if name.startswith("tf_") else f"greedy {name}", shown, what))
    return rows


def run_table(folder: Path, result: "RunResult") -> None:
    """The outcome of a finished run."""
    assert result.scores is not None, "a finished run has scores"
    run, outcome = RunFolder(folder), result.outcome
    end, why = run.records(may_be_empty=True).end, outcome.reason.describe(run.config().experiment.training)
    show(
        f"finished: {why}, {outcome.update:,} updates",
        f"{run.num_parameters() or 0:,} parameters, {0.0 if end is None else end.seconds:,.0f} seconds of training, "
        f"model in {run.model}",
    )
    evaluation_table(result.scores)


def demo_table(folder: Path, result: "RunResult") -> None:
    """The same, with a few held-out sentences and their translations."""
    from repose.tasks.corpus import prepare_corpus

    run_table(folder, result)
    experiment = RunFolder(folder).config().experiment
    src, references = prepare_corpus(experiment).text("test")
    hypotheses = RunFolder(folder).hypotheses("test", f"beam{experiment.decoding.beam_size}")
    rows = list(zip(src, hypotheses, references, strict=True))[:: max(1, len(src) // NUM_SAMPLES)]
    show(
        make_table(("held-out sentence", "translation", "reference"), rows, lines=True),
        f"translate your own: echo 'O gato viu o cachorro.' | repose translate {folder}",
    )
