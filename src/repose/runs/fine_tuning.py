"""Fine-tuning: the settings to take over from a trained model to train it on other sentences.

Architecture, tokenizers and weights are the model's; the recipe is that of an experiment file, by default the shipped
`fine-tuning` with its low constant learning rate. Domain adaptation by going on is Luong and Manning 2015 ("Stanford
Neural Machine Translation Systems for Spoken Language Domains").
"""

import contextlib
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from repose.config.experiment import TASK_SETTINGS, DecodingConfig, Experiment, TrainingConfig
from repose.config.file import Layer, Loaded, ModelLayers, Origin
from repose.data.language import UNKNOWN, languages_in_names
from repose.data.tags import taught
from repose.data.tokenizer import Tokenizer
from repose.saved_model import directory
from repose.saved_model.hub import is_on_hub
from repose.saved_run.folder import RunFolder
from repose.system.errors import CheckpointError

FINE_TUNING = "fine-tuning"
"""Name of the shipped experiment for fine-tuning."""


def settings_of(folder: Path, languages: tuple[str, str] | None = None, *, with_corpus: bool = False) -> ModelLayers:
    """Return the settings that a training takes over from its initial run or model directory. `with_corpus`: include a
    run's corpus and split. Raises CheckpointError.

    `languages`: those of the new sentences, if they differ from the model's. A tag that names the target language is
    then changed to theirs, if the model has one.
    """
    source = Origin("model", str(folder))
    if is_on_hub(folder):
        folder = directory.locate(folder)
    config = directory.read_config(folder)
    name = directory.task_of(config)
    if name not in TASK_SETTINGS:
        raise CheckpointError(f"{folder} holds a model of the task {name!r}, which is not known: update repose")
    task = TASK_SETTINGS[name]
    architecture = directory.architecture_of(folder)
    src, tgt = (str(path.absolute()) for path in directory.tokenizer_paths(folder))
    run = None
    with contextlib.suppress(CheckpointError):  # a model directory without a run
        run = RunFolder(folder).config().experiment
    limits = {limit: _longest(run, config, limit, architecture.max_length) for limit in task.limits}
    side = "tgt" if "max_tgt_tokens" in task.limits else "src"  # tasks with one language have only `src`
    named = (
        {"src_lang": "src_lang", "tgt_lang": "tgt_lang", "tag": "tag"} if task.translates else {f"{side}_lang": "lang"}
    )
    corpus = asdict(run.corpus) if with_corpus and run is not None else {}
    corpus |= {field: config[key] for field, key in named.items() if isinstance(config.get(key), str)}
    if languages is not None:
        told = next((one.tag for one in taught(config)[1:] if (one.src_lang, one.tgt_lang) == languages), None)
        if told is not None:
            corpus["tag"] = told
        elif corpus.get("tag") == corpus.get("tgt_lang") != languages[1]:
            corpus.pop("tag", None)
            if languages[1] in Tokenizer.load(Path(src)).tags:
                corpus["tag"] = languages[1]
        corpus |= dict(zip(("src_lang", "tgt_lang"), languages, strict=True))
    under: dict[str, Any] = {"corpus": corpus, "training": limits, "decoding": _decoding(run, config)}
    over: dict[str, Any] = {
        "architecture": asdict(architecture),
        "tokenizer": {"src_file": src, "tgt_file": tgt},
        "training": {"task": name, "init_from": str(folder.absolute())},
    }
    if task.translates:
        over["tokenizer"]["sharing"] = "shared" if src == tgt else "separate"
    if "training.label_smoothing" in task.refuses:
        over["training"]["label_smoothing"] = 0.0  # the recipe has it
    return ModelLayers(*(Layer(tables, source, Path.cwd()) for tables in (under, over)))


def other_languages(loaded: Loaded) -> tuple[str, str] | None:
    """Return the languages in the names of the training files, if they differ from the model's languages, which are the
    default."""
    corpus, origins = loaded.experiment.corpus, loaded.sources
    if not corpus.train or "model" not in (origins["corpus.src_lang"].kind, origins["corpus.tgt_lang"].kind):
        return None
    fields_of = (corpus.src_field, corpus.tgt_field)
    named = languages_in_names([Path(path) for path in corpus.train], fields_of)
    return None if named in ((UNKNOWN, UNKNOWN), (corpus.src_lang, corpus.tgt_lang)) else named


def _decoding(run: Experiment | None, config: dict[str, Any]) -> dict[str, Any]:
    """Return its decoding settings as originally requested, so that values chosen on validation data are chosen
    again."""
    if run is not None:
        return asdict(run.decoding)
    stored = config.get("decoding_asked", config.get("decoding"))
    known = {field.name for field in fields(DecodingConfig)}
    return {name: value for name, value in stored.items() if name in known} if isinstance(stored, dict) else {}


def _longest(run: Experiment | None, config: dict[str, Any], limit: str, max_length: int) -> int:
    """Return the length limit of the model's training, if known; not the longest sentence seen, which may be far
    shorter."""
    stored = config.get("max_tokens") if run is None else getattr(run.training, limit)  # a language model's own limit
    if isinstance(stored, int) and 2 <= stored <= max_length:
        return stored
    return min(getattr(TrainingConfig, limit), max_length)
