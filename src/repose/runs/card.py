"""The model card (README.md): what the model is, its data, its scores, and how to load it.

Its head is what the Hugging Face hub reads (https://huggingface.co/docs/hub/model-cards), as JSON, which YAML holds: a
directory can be uploaded as it is. It is written with the model, and again when there are scores.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from repose.config.experiment import Experiment, TrainingConfig
from repose.config.run_id import NOT_IN_RUN_ID
from repose.model.architecture import Architecture
from repose.model.presets import PRESETS, difference, preset_name
from repose.saved_model import directory as model_dir
from repose.saved_model.card import FENCE, head, loading
from repose.saved_run.folder import RunConfig, RunFolder, model_warnings
from repose.saved_run.records import EndReason, EndRecord, knows_its_test
from repose.system.files import read_file, write_file
from repose.system.terminal import counted, duration
from repose.tasks.base import Card
from repose.tasks.inflation import inflated
from repose.tasks.registry import get_task

_NAMES = {"bleu": "BLEU", "chrf": "chrF"}
_SCORES = "## Scores"


def write_card(folder: Path) -> None:
    """Rewrite the card of a run's model, with its scores.

    Raises CheckpointError if the run cannot be read, WriteError if the card cannot be written.
    """
    run = RunFolder(folder)
    write_file(run.model / model_dir.CARD, card(run.config(), run))


def waits_for_scores(model: Path) -> bool:
    """Return whether a model's card is as it was first written, without scores. Other cards are not changed, because
    people may have edited them."""
    try:
        text = read_file(model / model_dir.CARD)
    except OSError:
        return True
    return text.startswith(FENCE.encode()) and f"\n{_SCORES}\n".encode() not in text


def card(config: RunConfig, run: RunFolder | None = None) -> str:
    """Return the card; for a finished run, with its scores, the end of its training and its files."""
    experiment = config.experiment
    task = get_task(experiment.training.task)
    of_task = task.card(experiment)
    scored = None if run is None else run.main_scores()
    end = None if run is None else run.records().end
    figures = {} if run is None else run.figures_of_model()
    warnings = model_warnings(
        {"looks_ahead": task.look_ahead_warning if experiment.looks_ahead else None, "validation": figures}
    )
    parts = [
        _head(config, of_task, scored),
        f"# {of_task.title}, run {config.run_id}\n",
        *(f"> **Warning.** {warning}\n" for warning in warnings),
        _what(config, of_task),
        loading(of_task.use, of_task.in_python),
        _section("Intended use and limits", *of_task.limits, *_licence(experiment)),
        _section("Data", *config.report),
        _section("Training", *_training(experiment, end)),
        *([] if scored is None else [_scores(*scored)]),
        _differences(experiment),
        *([] if run is None else [_files(run.model)]),
        _citation(experiment),
    ]
    return "\n".join(parts)


def _head(config: RunConfig, of_task: Card, scored: tuple[str, Mapping[str, Any]] | None) -> str:
    """Return the front matter."""
    preset = preset_name(config.experiment.architecture)
    fields: dict[str, Any] = {
        "pipeline_tag": of_task.pipeline,
        "tags": ["repose", *([preset] if preset else [])],
        "metrics": ["bleu", "chrf"] if of_task.pipeline == "translation" else [],
        "model-index": [] if scored is None else _index(config, of_task, *scored),
    }
    return head(of_task.languages, fields)


def _index(config: RunConfig, of_task: Card, split: str, scores: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the results that the hub shows."""
    name = config.experiment.corpus.name
    metrics = [
        {
            "type": metric,
            "value": round(value, 4),
            "name": f"{_NAMES.get(metric, metric)}, {_decoding(decoding)}" if decoding else metric,
            **({"args": {"signature": signature}} if signature else {}),
        }
        for decoding, metric, value, signature in _figures(scores)
        if not metric.startswith("tf_")
    ]
    result = {
        "task": {"type": of_task.pipeline or config.experiment.training.task, "name": of_task.title},
        "dataset": {"type": name or "own-corpus", "name": name or "the corpus's own set", "split": split},
        "metrics": metrics,
    }
    return [{"name": f"{of_task.title}, run {config.run_id}", "results": [result]}] if metrics else []


def _figures(scores: Mapping[str, Any]) -> Iterator[tuple[str, str, float, str]]:
    """Yield decoding ("" for tasks without one), metric, value, and signature or unit."""
    for decoding, found in scores.get("decoded", {}).items():
        for metric, score in found.items():
            if isinstance(score, Mapping):
                yield decoding, metric, score["value"], score["signature"]
    for metric, figure in scores.get("figures", {}).items():
        yield "", metric, figure["value"], figure["unit"]


def _decoding(name: str) -> str:
    return f"beam {name.removeprefix('beam')}" if name.startswith("beam") else name


def _what(config: RunConfig, of_task: Card) -> str:
    a = config.experiment.architecture
    preset = preset_name(a)
    named = f" of the preset `{preset}` ({PRESETS[preset].summary})" if preset else ""
    return (
        f"{of_task.what}{named}, trained with repose {config.versions.get('repose', '')}: d_model {a.d_model}, "
        f"{a.num_encoder_layers} + {a.num_decoder_layers} layers, {_heads(a)}, d_ff {a.d_ff}.\n"
    )


def _heads(a: Architecture) -> str:
    shared = "" if a.kv_heads == a.num_heads else f" that share {counted(a.kv_heads, 'head')} of keys and values"
    return f"{counted(a.num_heads, 'head')} of {a.head_dim}{shared}"


def _licence(experiment: Experiment) -> Iterator[str]:
    corpus = "the corpus" if experiment.corpus.name is None else f"the licence of the corpus {experiment.corpus.name}"
    yield (
        "No licence is stated: if you publish the model, add one to the head of this file (`license:`) that "
        f"{corpus} allows."
    )


def _section(title: str, *sentences: str) -> str:
    return f"## {title}\n\n" + "".join(f"- {sentence}\n" for sentence in sentences)


def _training(experiment: Experiment, end: EndRecord | None) -> Iterator[str]:
    training, usual = experiment.training, TrainingConfig()
    named = [
        f"{field.name} {'none' if value is None else value}"
        for field in fields(TrainingConfig)
        if (value := getattr(training, field.name)) != getattr(usual, field.name)
        and field.name not in {"task", "seed", "keep"} | NOT_IN_RUN_ID
    ]
    others = f" Settings that differ from the defaults: {', '.join(named)}." if named else ""
    yield f"Seed {training.seed}; the {training.keep} weights are kept.{others}"
    if end is not None:
        is_cut = end.reason is EndReason.HOURS and end.total is not None and end.total > end.update
        of = f" of {end.total:,}, when its time was up" if is_cut else ""
        yield f"{counted(end.update, 'update')}{of}, {counted(end.epoch, 'epoch')}, {duration(end.seconds)}."
    yield "Validation figures and versions are in config.json, teacher-forced ones under names that begin with tf_."


def _scores(split: str, scores: Mapping[str, Any]) -> str:
    """Return a table of scores, with notes on scores that are too high and unfinished translations."""
    set_name = {"test": "test set", "valid": "validation set"}.get(split, split)
    count = f", {counted(scores['num_sentences'], 'sentence')}" if "num_sentences" in scores else ""
    rows = "".join(
        f"| {_decoding(decoding) or '–'} | {_NAMES.get(metric, metric)} | {value:.2f} | `{_cell(signature)}` |\n"
        for decoding, metric, value, signature in _figures(scores)
    )
    notes = [
        f"- {_decoding(decoding)}: {counted(found['unfinished'], 'translation')} did not end, "
        f"{found.get('looping', 0):,} looping\n"
        for decoding, found in scores.get("decoded", {}).items()
        if found.get("unfinished") or found.get("looping")
    ]
    warnings = filter(None, (knows_its_test(scores).capitalize(), inflated(scores)))
    free = "; the model reads its own earlier words, not a reference's" if "decoded" in scores else ""
    return (
        f"{_SCORES}\n\nOn the {set_name} of its own corpus{count}{free}. Scores on other kinds of text differ.\n\n"
        f"| decoding | metric | value | signature |\n|---|---|---|---|\n{rows}"
        + ("\n" + "".join(notes) if notes else "")
        + "".join(f"\n> **Warning.** {warning}\n" for warning in warnings)
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _differences(experiment: Experiment) -> str:
    changed = difference(experiment.architecture)
    rows = "".join(f"| `{name}` | {old} | {new} |\n" for name, (old, new) in changed.items())
    return f"## Differences from Vaswani et al. (2017), base\n\n| setting | there | here |\n|---|---|---|\n{rows}"


def _files(model: Path) -> str:
    files = [model / name for name in (model_dir.CONFIG, *model_dir.read_config(model)["sha256"])]
    of_files = [(file.name, file.stat().st_size, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]
    rows = "".join(f"| `{name}` | {size:,} | `{digest}` |\n" for name, size, digest in of_files)
    return f"## Files\n\n| file | bytes | SHA-256 |\n|---|---|---|\n{rows}"


def _citation(experiment: Experiment) -> str:
    preset = preset_name(experiment.architecture)
    of_preset = [f"the architecture: {PRESETS[preset].citation}"] if preset else []
    return _section("Sources", *of_preset, "the Transformer: Vaswani et al. 2017, arXiv 1706.03762")
