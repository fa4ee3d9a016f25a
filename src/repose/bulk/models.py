"""The models of a job: what identifies them, and how each worker loads the same ones."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repose.bulk.plan import UsedModel
from repose.decoding.engine import EngineChoice, Precision
from repose.decoding.load import load
from repose.decoding.onnx_engine import OnnxEngine
from repose.decoding.translator import Translator
from repose.graphs.folder import is_graph_folder
from repose.saved_model import hub
from repose.system.device import device_name
from repose.system.errors import CheckpointError

_COUNTS = (
    "architecture",
    "sha256",
    "decoding",
    "tag",
    "also",
    "src_lang",
    "tgt_lang",
    "src_scripts",
    "max_src_tokens",
    "split_src_tokens",
    "src_normalization",
)


def digest(translator: Translator) -> str:
    """Return the SHA-256 of everything that translations depend on: weights, tokenizers, architecture and settings."""
    config: Mapping[str, Any] = translator.config
    content = {name: config[name] for name in _COUNTS if name in config}
    if (
        isinstance(translator.engine, OnnxEngine)
        and translator.folder is not None
        and is_graph_folder(translator.folder)
    ):
        content["graphs"] = translator.engine.graphs.description["sha256"]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def used(folder: Path, device: str, precision: Precision | None, engine: EngineChoice) -> tuple[UsedModel, Translator]:
    """Load a model as `repose.load` does here; return its description, which means the same on every machine, and the
    model.

    Raises what `load` raises.
    """
    device = device_name(device)
    translator = load(folder, device, 1, precision, engine)
    name = str(folder) if hub.is_on_hub(folder) else str(folder.absolute())
    made = UsedModel(name, digest(translator), translator.engine.name, translator.precision, device)
    return made, translator


def loaded(model: UsedModel) -> Translator:
    """Load the model in a process that works on shards.

    Raises CheckpointError if it has changed, and what `load` raises.
    """
    # An export states its own precision; the default of a model directory is fp32.
    translator = load(model.folder, model.device, 1, model.precision, model.engine)
    if digest(translator) != model.sha256:
        raise CheckpointError(
            f"{model.folder} has changed since the job was started: put it back, or start again with another --out"
        )
    return translator
