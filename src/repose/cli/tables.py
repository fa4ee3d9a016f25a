"""Tables that the verbs print on stdout."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from repose.model.presets import PRESETS, difference, preset
from repose.runs.folder import RunFolder
from repose.saved_model.directory import UNNAMED_TASK
from repose.system.terminal import make_table, show

if TYPE_CHECKING:
    from repose.model.audit import AuditReport
    from repose.runs.run import RunResult

NUM_SAMPLES = 5
_TEACHER_FORCED = {
    "tf_loss": "nats per target token",
    "tf_accuracy": "share of target tokens",
    "tf_bleu": "argmax given the reference's prefix; not a translation",
    "tf_bleu_sentence_mean": "the same, averaged over sentences, unsmoothed",
}


def presets_table() -> None:
    """Every preset: what it is, how it differs from Vaswani's base model, where it comes from."""
    rows: list[tuple[str, Text, str] | None] = []
    for name, p in PRESETS.items():
        changed = ", ".join(f"{field} {value}" for field, (_, value) in difference(p.architecture).items())
        rows += [(name, Text.assemble(p.summary, "\n", (changed or "nothing", "dim")), p.citation), None]
    show(make_table(("preset", "differs from vaswani-base in", "source"), rows))


def describe_table(name: str, src_vocab_size: int, tgt_vocab_size: int, length: int) -> None:
    """Parameters by part, operations and memory of a preset. Raises ConfigError where it is unknown."""
    from repose.decoding.translator import LOOKS_AHEAD
    from repose.model.describe import describe

    architecture = preset(name)
    d = describe(architecture, src_vocab_size=src_vocab_size, tgt_vocab_size=tgt_vocab_size, length=length)
    rows: list[tuple[str, str] | None] = [(part, f"{count:,}") for part, count in d.parts.items()]
    rows += [None, ("total", f"{d.total:,}")]
    published = PRESETS[name].published_parameters
    if published is not None:
        rows.append(("published (at vocabularies 7,765 and 7,010)", f"{published:,}"))
    show(
        make_table(("part", "parameters"), rows, right=[1], title=f"{name}: {PRESETS[name].summary}"),
        f"vocabularies        {src_vocab_size:,} source, {tgt_vocab_size:,} target tokens",
        f"training            {d.training_flops / 1e6:,.1f} MFLOP per target token, at {length} tokens a sentence",
        f"forward             {d.forward_flops / 1e6:,.1f} MFLOP per target token",
        f"weights             {d.weights_bytes / 2**20:,.1f} MiB in fp32",
        f"weights + training  {d.training_bytes / 2**20:,.1f} MiB with gradients and Adam's moments, less activations",
        *[f"warning             {LOOKS_AHEAD}"] * architecture.looks_ahead,
    )


def audit_table(report: "AuditReport") -> None:
    """What was tried, and by how much the logits moved."""
    from repose.decoding.translator import LOOKS_AHEAD

    rows = [(c.name, c.tried, f"{c.moved:.1e}", "passed" if c.passed else "FAILED") for c in report.checks]
    show(make_table(("check", "tried", "moved by", ""), rows), *[LOOKS_AHEAD] * report.looks_ahead)


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
