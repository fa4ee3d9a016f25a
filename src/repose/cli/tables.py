"""What the command line shows: tables on stdout, progress of downloads on stderr."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from repose.model.presets import PRESETS, difference, preset
from repose.runs.folder import RunFolder
from repose.saved_model.directory import UNNAMED_TASK

if TYPE_CHECKING:
    from repose.model.audit import AuditReport
    from repose.runs.run import RunResult

NUM_SAMPLES = 5
_TEACHER_FORCED = {
    "tf_loss": "nats per target token",
    "tf_accuracy": "share of target tokens",
    "tf_bleu": "argmax given the reference's prefix; no translation",
    "tf_bleu_sentence_mean": "the same, a mean over sentences, unsmoothed",
}


def make_console(*, width: int = 160, markup: bool = True) -> Console:
    """stdout. A file or pipe has no width: of `width` columns, so that what a program will read is not folded."""
    found = Console(highlight=False, markup=markup)
    return found if found.is_terminal else Console(highlight=False, markup=markup, width=width)


def presets_table() -> None:
    """Every preset: what it is, what differs from Vaswani's base model, where it comes from."""
    table = Table("preset", "differs from vaswani-base in", "source")
    for name, p in PRESETS.items():
        changed = ", ".join(f"{field} {value}" for field, (_, value) in difference(p.architecture).items())
        table.add_row(name, f"{p.summary}\n[dim]{changed or 'nothing'}[/dim]", p.citation)
        table.add_section()
    make_console().print(table)


def describe_table(name: str, src_vocab_size: int, tgt_vocab_size: int, length: int) -> None:
    """Parameters by part, operations and memory of a preset. Raises ConfigError where it is unknown."""
    from repose.decoding.translator import LOOKS_AHEAD
    from repose.model.describe import describe

    architecture = preset(name)
    d = describe(architecture, src_vocab_size=src_vocab_size, tgt_vocab_size=tgt_vocab_size, length=length)
    table = Table("part", "parameters", title=f"{name}: {PRESETS[name].summary}", title_justify="left")
    table.columns[1].justify = "right"
    for part, count in d.parts.items():
        table.add_row(part, f"{count:,}")
    table.add_section()
    table.add_row("total", f"{d.total:,}")
    published = PRESETS[name].published_parameters
    if published is not None:
        table.add_row("published (at vocabularies 7,765 and 7,010)", f"{published:,}")
    console = make_console()
    console.print(table)
    console.print(f"vocabularies        {src_vocab_size:,} source, {tgt_vocab_size:,} target tokens")
    console.print(
        f"training            {d.training_flops / 1e6:,.1f} MFLOP per target token, at {length} tokens a sentence"
    )
    console.print(f"forward             {d.forward_flops / 1e6:,.1f} MFLOP per target token")
    console.print(f"weights             {d.weights_bytes / 2**20:,.1f} MiB in fp32")
    console.print(
        f"weights + training  {d.training_bytes / 2**20:,.1f} MiB with gradients and Adam's moments, less activations"
    )
    if architecture.looks_ahead:
        console.print(f"warning             {LOOKS_AHEAD}")


def audit_table(report: "AuditReport") -> None:
    """What was tried, and by how much the logits moved."""
    from repose.decoding.translator import LOOKS_AHEAD

    table = Table("check", "tried", "moved by", "")
    for check in report.checks:
        table.add_row(check.name, check.tried, f"{check.moved:.1e}", "passed" if check.passed else "FAILED")
    console = make_console()
    console.print(table)
    if report.looks_ahead:
        console.print(LOOKS_AHEAD)


def evaluation_table(scores: dict[str, Any]) -> None:
    """Figures of one evaluation, each with its signature or unit."""
    if "figures" in scores:
        _figures_table(scores)
        return
    table = Table("score", "value", "signature")
    table.columns[1].justify = "right"
    for decoding, found in scores["decoded"].items():
        for name, score in found.items():
            if name != "unfinished":
                table.add_row(f"{decoding} {name}", f"{score['value']:.2f}", score["signature"])
        table.add_section()
    for name, value in scores["teacher_forced"].items():
        table.add_row(name, f"{value:.2f}" if name.startswith("tf_bleu") else f"{value:.4f}", _TEACHER_FORCED[name])
    means = scores.get("over_validations", {})
    if means:
        table.add_section()
        what = f"mean and deviation of {means['num_validations']} validations, epochs {means['first_epoch']} to "
        what += f"{means['last_epoch']}, {means['num_sentences']:,} sentences"
        for name in (name for name in means if "bleu" in name):
            mean, sd = means[name]["mean"], means[name]["sd"]
            shown = f"{mean:.2f}" if sd is None else f"{mean:.2f} ± {sd:.2f}"
            table.add_row(name if name.startswith("tf_") else f"greedy {name}", shown, what)
    console = make_console()
    console.print(table)
    run_id, split = scores.get("run_id"), scores.get("split")
    console.print(f"run {run_id}, {split}: {scores['num_sentences']:,} sentences")
    if dropped := scores.get("dropped"):
        reasons = ", ".join(f"{reason}: {number:,}" for reason, number in dropped.items())
        console.print(f"{sum(dropped.values()):,} pairs were left out ({reasons})")
    _warn_of_looking_ahead(scores, console)


def _figures_table(scores: dict[str, Any]) -> None:
    """Figures of another task than translation."""
    table = Table("score", "value", "unit")
    table.columns[1].justify = "right"
    for name, figure in scores["figures"].items():
        table.add_row(name, f"{figure['value']:.4f}", figure["unit"])
    console = make_console()
    console.print(table)
    console.print(f"run {scores.get('run_id')}, {scores['split']}, {scores['task'].replace('_', ' ')}")
    _warn_of_looking_ahead(scores, console)


def _warn_of_looking_ahead(scores: dict[str, Any], console: Console) -> None:
    if scores.get("looks_ahead"):
        from repose.tasks.registry import get_task

        console.print(get_task(scores.get("task", UNNAMED_TASK)).look_ahead_warning)


def run_table(folder: Path, result: "RunResult") -> None:
    """What a finished run has come to."""
    assert result.scores is not None, "a finished run has scores"
    console = make_console()
    run, outcome = RunFolder(folder), result.outcome
    end, why = run.records(may_be_empty=True).end, outcome.reason.describe(run.config().experiment.training)
    parameters, seconds = _parameters(folder), 0.0 if end is None else end.seconds
    console.print(f"finished: {why}, {outcome.update:,} updates")
    console.print(f"{parameters:,} parameters, {seconds:,.0f} seconds of training, model in {folder / 'model'}")
    evaluation_table(result.scores)


def demo_table(folder: Path, result: "RunResult") -> None:
    """The same, with a few held-out sentences and their translations."""
    from repose.tasks.corpus import prepare_corpus

    run_table(folder, result)
    experiment = RunFolder(folder).config().experiment
    src, references = prepare_corpus(experiment).text("test")
    beam = f"beam{experiment.decoding.beam_size}"
    hypotheses = RunFolder(folder).hypotheses("test", beam)
    table = Table("held-out sentence", "translation", "reference", show_lines=True)
    for row in range(0, len(src), max(1, len(src) // NUM_SAMPLES)):
        table.add_row(src[row], hypotheses[row], references[row])
    console = make_console()
    console.print(table)
    console.print(f"translate your own: echo 'O gato viu o cachorro.' | repose translate {folder}")


def _parameters(folder: Path) -> int:
    from repose.tasks.registry import task_of_model

    return sum(p.numel() for p in task_of_model(folder).load(folder).model.parameters())


@contextmanager
def download_progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """A live line per download, on stderr."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: dict[str, Any] = {}

        def update(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        yield update
