"""Tables that the commands print on stdout."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from repose.config.experiment import TASK_SETTINGS, Experiment
from repose.data.input_warning import InputWarning
from repose.saved_model.directory import UNNAMED_TASK, read_config
from repose.saved_run.folder import RunFolder
from repose.saved_run.records import knows_its_test
from repose.system.terminal import counted, duration, make_table, quoted, reasons, show
from repose.tasks.inflation import inflated

if TYPE_CHECKING:
    from repose.runs.run import RunResult

NUM_SAMPLES = 5
_TEACHER_FORCED = {
    "tf_loss": "nats per target token",
    "tf_accuracy": "share of target tokens",
    "tf_bleu": "argmax given the reference's prefix; not a translation",
    "tf_bleu_sentence_mean": "the same, averaged over sentences, unsmoothed",
}

_COUNTED = (
    ("unfinished", "did not end", "sentences that reached the length limit"),
    ("looping", "loop", "sentences that say the same words again and again"),
)


def evaluation_table(scores: dict[str, Any], *, every: bool = False) -> None:
    """Print the figures of one evaluation, each with its signature or unit.

    `every`: also print the teacher-forced figures (`tf_`), which do not measure translation quality.
    """
    from repose.runs.arguments import FEW_MEASURED

    rows: list[tuple[str, str, str] | None]
    if "figures" in scores:  # a task other than translation
        rows = [(name, f"{figure['value']:.4f}", figure["unit"]) for name, figure in scores["figures"].items()]
        last, what = "unit", f", {scores.get('task', '').replace('_', ' ')}"
    else:
        rows = _translation_rows(scores, every)
        last, what = "signature", f": {counted(scores['num_sentences'], 'sentence')}"
    show(make_table(("score", "value", last), rows, right=[1]), f"run {scores.get('run_id')}, {scores['split']}{what}")
    if dropped := scores.get("dropped"):
        what = "document" if "figures" in scores else "pair"
        show(f"left out: {counted(sum(dropped.values()), what)} ({reasons(dropped)})")
    if truncated := scores.get("truncated_sources"):
        show(f"cut: {counted(truncated, 'source')} longer than the model reads, translated by its beginning")
    if every and (truncated := scores.get("truncated_references")):
        show(f"cut in the figures under tf_: {counted(truncated, 'reference')} longer than the model reads")
    if scores.get("num_sentences", FEW_MEASURED) < FEW_MEASURED:
        show(f"WARNING: scores of only {counted(scores['num_sentences'], 'sentence')} say next to nothing")
    if names := scores.get("column_names"):
        what = "the first pair, which is scored like any other, seems to name the columns"
        show(f"WARNING: {what} ({', '.join(names)}): delete it")
    if warning := knows_its_test(scores):
        show(f"WARNING: {warning}")
    for unlike in scores.get("input_warnings", ()):
        show(f"WARNING: {InputWarning.from_json(unlike).sentence}")
    if warning := inflated(scores):
        show(f"WARNING: {warning}")
    if scores.get("looks_ahead"):
        from repose.tasks.registry import get_task

        show(get_task(scores.get("task", UNNAMED_TASK)).look_ahead_warning)


def _translation_rows(scores: dict[str, Any], every: bool) -> list[tuple[str, str, str] | None]:
    rows: list[tuple[str, str, str] | None] = []
    looks_tokenised = 20 * scores.get("references", {}).get("tokenised", 0) >= scores["num_sentences"]
    detokenised = every or looks_tokenised or inflated(scores) != ""  # else a few entities changed nothing
    for decoding, figures in scores["decoded"].items():
        for name, score in figures.items():
            if isinstance(score, dict) and (detokenised or not name.endswith("_detokenised")):
                rows.append((f"{decoding} {name}", f"{score['value']:.2f}", score["signature"]))
        if "brevity_penalty" in figures["bleu"]:
            what = "factor in BLEU for translations shorter than their references"
            rows.append((f"{decoding} brevity penalty", f"{figures['bleu']['brevity_penalty']:.3f}", what))
        rows += [(f"{decoding} {name}", f"{figures[key]:,}", what) for key, name, what in _COUNTED if key in figures]
        rows.append(None)
    if every:
        for name, value in scores["teacher_forced"].items():
            rows.append((name, f"{value:.2f}" if name.startswith("tf_bleu") else f"{value:.4f}", _TEACHER_FORCED[name]))
    if means := scores.get("over_validations", {}):
        what = f"mean and deviation of {means['num_validations']} validations, epochs {means['first_epoch']} to "
        what += f"{means['last_epoch']}, {counted(means['num_sentences'], 'sentence')}"
        rows.append(None)
        for name in (name for name in means if "bleu" in name and (every or not name.startswith("tf_"))):
            mean, sd = means[name]["mean"], means[name]["sd"]
            shown = f"{mean:.2f}" if sd is None else f"{mean:.2f} ± {sd:.2f}"
            rows.append((name if name.startswith("tf_") else f"greedy {name}", shown, what))
    return rows


def run_table(folder: Path, result: "RunResult") -> None:
    """Print the outcome of a finished run: its model, its scores, a few translations, and what to try next."""
    run = RunFolder(folder)
    experiment, end = run.config().experiment, run.records(may_be_empty=True).end
    took = duration(0.0 if end is None else end.seconds)
    show(f"finished in {took}: a model of {run.num_parameters() or 0:,} parameters, in {run.model}")
    evaluation_table(result.scores)
    if "decoding_chosen" in result.scores:
        show(f"it searches {_how_it_searches(run)}: the best on the validation set")
    if TASK_SETTINGS[experiment.training.task].translates:
        _show_samples(run, experiment, result.scores["split"], _search_of(result.scores))
    else:
        show(f"measure it on another file: repose evaluate {quoted(folder)} FILE")
    show(f"its page, with learning curves: repose report {quoted(folder)}")


def _how_it_searches(run: RunFolder) -> str:
    decoding = read_config(run.model)["decoding"]
    beam = f"with a beam of {decoding['beam_size']} and a length penalty of {decoding['length_penalty']}"
    repeats = decoding.get("no_repeat_ngram_size", 0)
    never = f", and never says the same {counted(repeats, 'token')} in a row twice" if repeats else ""
    return ("greedily" if decoding["beam_size"] == 1 else beam) + never


def _search_of(scores: dict[str, Any]) -> str:
    """Return the name of the model's default decoding: the one chosen on the validation set, else the widest beam."""
    from repose.tasks.decoding_choice import DecodingChoice

    names = list(scores["decoded"])  # greedy decoding comes first
    tried = scores.get("decoding_chosen")
    return str(names[0] if tried and DecodingChoice.from_json(tried).best.beam_size == 1 else names[-1])


def _show_samples(run: RunFolder, experiment: Experiment, split: str, decoding: str) -> None:
    """Print a few sentences of the scored set with their translations, and how to translate others."""
    from repose.data.language import UNKNOWN
    from repose.tasks.corpus_files import languages_of
    from repose.tasks.corpus_of_run import text_of_run

    sources, references = text_of_run(run, split)
    hypotheses = run.hypotheses(split, decoding)
    some = zip(sources, hypotheses, references, strict=True)
    every = -(-len(sources) // NUM_SAMPLES)
    rows = [row for number, row in enumerate(some) if number % every == 0]
    example = next((source for source in sources if len(source) < 60 and "'" not in source), "A sentence.")
    languages = " --lang SOURCE:TARGET" if UNKNOWN in languages_of(experiment.corpus) else ""
    path = quoted(run.path)
    next_steps = (
        f"translate your own: echo '{example}' | repose translate {path}",
        f"measure it on other text: repose evaluate {path} SOURCES REFERENCES",
        f"use it over HTTP, with a page to try it: repose serve {path}{languages}",
        f"use it without repose: repose export {path} --to onnx --out DIR",
    )
    table = make_table(("held-out sentence", "translation", "reference"), rows, lines=True)
    show(table, *([] if experiment.architecture.looks_ahead else next_steps))
