"""Fine-tuning: the settings that come with a trained model, so that its training can go on with other sentences.

Architecture, tokenizers and weights are the model's; the recipe is that of an experiment file, by default the shipped
`fine-tuning` with its low constant learning rate. Domain adaptation by going on is Luong and Manning 2015 ("Stanford
Neural Machine Translation Systems for Spoken Language Domains").
"""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from repose.config.experiment import TASK_SETTINGS, DecodingConfig, TrainingConfig
from repose.config.file import Layer, ModelLayers, Origin
from repose.saved_model import directory
from repose.saved_model.hub import is_on_hub
from repose.system.errors import CheckpointError

RECIPE = "fine-tuning"
"""The experiment that ships for it."""


def settings_of(folder: Path) -> ModelLayers:
    """What a training that starts from this run or model directory takes over. Raises CheckpointError."""
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
    one = directory.have_one_tokenizer(folder)
    limits = {limit: _longest(config, limit, architecture.max_length) for limit in task.limits}
    side = "tgt" if "max_tgt_tokens" in task.limits else "src"  # of the tasks with one language
    named = (
        {"src_lang": "src_lang", "tgt_lang": "tgt_lang", "tag": "tag"} if task.translates else {f"{side}_lang": "lang"}
    )
    languages = {field: config[key] for field, key in named.items() if isinstance(config.get(key), str)}
    stored = config.get("decoding")
    known = {field.name for field in fields(DecodingConfig)}
    decoding = {name: value for name, value in stored.items() if name in known} if isinstance(stored, dict) else {}
    under: dict[str, Any] = {"corpus": languages, "training": limits, "decoding": decoding}
    over: dict[str, Any] = {
        "architecture": asdict(architecture),
        "tokenizer": {"src_file": src, "tgt_file": src if one else tgt},
        "training": {"task": name, "init_from": str(folder.absolute())},
    }
    if task.translates:
        over["tokenizer"]["sharing"] = "shared" if one else "separate"
    if "training.label_smoothing" in task.refuses:
        over["training"]["label_smoothing"] = 0.0  # which the recipe has
    return ModelLayers(*(Layer(tables, source, Path.cwd()) for tables in (under, over)))


def _longest(config: dict[str, Any], limit: str, max_length: int) -> int:
    """What the model was trained on, where it says so."""
    stored = config.get("max_tokens", config.get(limit))
    if isinstance(stored, int) and 2 <= stored <= max_length:
        return stored
    return min(getattr(TrainingConfig, limit), max_length)
