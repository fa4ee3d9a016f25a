"""Load a translator from a folder: a run, a model directory, or an export to ONNX."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from repose.data.tokenizer import Tokenizer
from repose.decoding import graph_cache
from repose.decoding.engine import Engine, EngineChoice, Precision
from repose.decoding.ensemble import Ensemble
from repose.decoding.onnx_engine import OnnxEngine
from repose.decoding.options import SETTINGS, checked_settings
from repose.decoding.translator import MODEL_KIND, Translator
from repose.graphs import folder as graphs
from repose.saved_model import directory, hub
from repose.system.device import device_name
from repose.system.errors import CheckpointError, ConfigError, WriteError, naming_extras, unknown

if TYPE_CHECKING:
    import torch

    from repose.model.transformer import Transformer


@naming_extras()
def load(
    folder: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    device: "str | torch.device" = "cpu",
    workers: int | None = None,
    precision: Precision | None = None,
    engine: EngineChoice = "auto",
) -> Translator:
    """Load a translator from a run directory (or the result of `train`), a model directory, an export to ONNX, or a
    model on a hub (`hf://owner/name@revision`, extra `hub`). Nothing in the folder is executed. Several folders make an
    ensemble: each token is chosen by the mean of the models' probabilities. Their tokenizers must be the same, as
    between the seeds of a grid; languages, tag and search settings are those of the first.

    `device`: cpu, cuda, cuda:1 or mps, a `torch.device`, or auto (cuda if there is one). `workers`: processes.
    `precision`: fp32, the default, or int8, which is faster on a CPU, and translates a few sentences differently.
    `engine`: torch computes with the model itself, on any device. onnx computes with its graphs, on a CPU; it is
    faster, with the same results in fp32 except for rounding. The graphs are made once and cached. auto is onnx on a
    CPU if the extra `fast` is installed, and otherwise torch.

    Raises CheckpointError for a missing or damaged directory, HubError for a model that a hub does not provide,
    DeviceError for an unknown device, ConfigError for an engine or a precision that is unknown or that this folder
    cannot have, and for models with different tokenizers, MissingExtraError if the engine's library is not installed,
    and WriteError if the engine is onnx and the cache cannot be written.
    """
    if isinstance(folder, Sequence) and not isinstance(folder, str | bytes):
        return _ensemble(folder, workers, device=device, precision=precision, engine=engine)
    device = device_name(device)
    if engine not in get_args(EngineChoice):
        raise ConfigError(unknown("engine", engine, get_args(EngineChoice)))
    if precision not in (None, *get_args(Precision)):
        raise ConfigError(unknown("precision", precision, get_args(Precision)))
    if precision == "int8" and device != "cpu":
        raise ConfigError(f"precision = 'int8' is for the CPU: leave precision out on {device}")
    if engine == "onnx" and device != "cpu":
        raise ConfigError(f"engine = 'onnx' is for the CPU: leave engine out on {device}")
    local_folder = hub.local_folder(folder)
    if graphs.is_graph_folder(local_folder):
        return _of_graphs(local_folder, engine, device, precision, workers)
    int8, why_torch = precision == "int8", None
    if device == "cpu" and (engine == "onnx" or (engine == "auto" and graph_cache.can_make())):
        tokenizers, config = directory.load_without_weights(local_folder, MODEL_KIND)
        if not directory.architecture_in(config, local_folder).looks_ahead:
            try:
                model_dir = directory.locate(local_folder)
                made = graph_cache.engine_of(model_dir, config, int8=int8, again=engine == "onnx")
                return _translator(made, tokenizers, config, local_folder, workers)
            except (WriteError, CheckpointError, ConfigError) as error:  # torch can still translate
                if engine == "onnx":
                    raise
                why_torch = str(error)
        elif engine == "onnx":
            raise ConfigError("engine = 'onnx' decodes with a cache, which this model cannot: leave engine out")
    model, tokenizers, config = directory.load(local_folder, MODEL_KIND, device)
    if int8:
        from repose.model.kernels.linear import quantize

        quantize(model)
    translator = _translator(model, tokenizers, config, local_folder, workers)
    translator.why_torch = why_torch
    return translator


def is_export(folder: str | os.PathLike[str]) -> bool:
    """Return whether a path, which may be on a hub, is an export to ONNX. Raises HubError."""
    return graphs.is_graph_folder(hub.local_folder(folder))


def _ensemble(folders: Sequence[str | os.PathLike[str]], workers: int | None, **how: Any) -> Translator:
    """Return the translator of several models, or of a single one."""
    if not folders:
        raise ConfigError("a list of models is empty: name one at least")
    first, *others = (load(folder, workers=workers, **how) for folder in folders)
    if not others:
        return first
    for folder, other in zip(folders[1:], others, strict=True):
        for side in ("src_tokenizer", "tgt_tokenizer"):
            if getattr(other, side).digest != getattr(first, side).digest:
                raise ConfigError(
                    f"{folder} has other tokenizers than {folders[0]}: train an ensemble on the same corpus, with the "
                    "same tokenizers"
                )
    members = [first, *others]
    search = {name: getattr(first, name) for name in SETTINGS}
    config = first.config | {"ensemble": [member.config.get("run_id") for member in members]}
    engine = Ensemble([member.engine for member in members])
    made = Translator(engine, first.src_tokenizer, first.tgt_tokenizer, workers=workers, config=config, **search)
    made.folder, made.why_torch = first.folder, first.why_torch
    return made


def _of_graphs(
    folder: Path, engine: EngineChoice, device: str, precision: Precision | None, workers: int | None
) -> Translator:
    """Return the translator of an export to ONNX."""
    if engine == "torch" or device != "cpu":
        raise ConfigError(f"{folder} holds ONNX graphs, which the engine onnx computes on a CPU: load the model itself")
    made = OnnxEngine(graphs.read(folder))
    if precision not in (None, made.precision):
        raise ConfigError(f"{folder} was exported in {made.precision}: export the model with --precision {precision}")
    config = graphs.config_of(made.graphs, folder)
    tokenizers = directory.read_tokenizers(folder, made.graphs.description["sha256"], MODEL_KIND, config)
    return _translator(made, tokenizers, config, folder, workers)


def _translator(
    model: "Transformer | Engine",
    tokenizers: Sequence[Tokenizer],
    config: dict[str, Any],
    folder: Path,
    workers: int | None,
) -> Translator:
    src_tokenizer, tgt_tokenizer = tokenizers
    if config.get("tag", "") not in ("", *src_tokenizer.tags):
        raise CheckpointError(f"config.json of {folder} names a tag that its tokenizer does not have: copy it again")
    stored = config.get("decoding", {})
    try:
        decoding = asdict(checked_settings(**{name: value for name, value in stored.items() if name in SETTINGS}))
    except ConfigError as error:
        raise CheckpointError(f"config.json of {folder} cannot be used: {error}") from error
    made = Translator(model, src_tokenizer, tgt_tokenizer, workers=workers, config=config, **decoding)
    made.folder = folder.absolute()
    return made
