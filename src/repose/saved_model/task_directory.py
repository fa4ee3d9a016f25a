"""Model directories of other tasks than translation: as `repose.saved_model.directory` has them, with one tokenizer.

config.json names the task, the vocabulary's size and, for parsing, the labels.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from repose.saved_model.directory import (
    CONFIG,
    TOKENIZER,
    Extra,
    attempted,
    locate,
    read_config,
    read_model,
    read_sizes,
    read_tokenizer,
    task_of,
    write,
)
from repose.saved_model.weights import architecture_of
from repose.system.device import find_device
from repose.system.errors import CheckpointError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from repose.data.tokenizer import Tokenizer
    from repose.model.language_model import LanguageModel
    from repose.model.parser import Parser

AHEAD_IN_TEXT = (
    "This model normalises over the whole block of a text and so sees tokens that it is to predict: its teacher-forced "
    "figures are no measure of language modelling."
)


class TaskModel(NamedTuple):
    """A model of another task than translation, ready to be measured."""

    model: "nn.Module"
    tokenizer: "Tokenizer"
    config: dict[str, Any]


def save(
    folder: Path,
    model: "LanguageModel | Parser",
    tokenizer_json: str,
    *,
    task: str,
    sizes: Mapping[str, object],
    card: str,
    extra: Extra,
) -> None:
    """As `model_dir.save`. `sizes`: what the model is built from besides its architecture."""
    warning = AHEAD_IN_TEXT if model.architecture.looks_ahead and task == "language_modelling" else None
    write(folder, model, {"task": task, **sizes}, {TOKENIZER: tokenizer_json}, warning, card, extra)


def load(folder: Path, device: str = "cpu") -> TaskModel:
    """The model of a model or run directory, in evaluation mode. Raises CheckpointError and DeviceError."""
    target = find_device(device)
    return attempted(lambda: _load(locate(folder), target))


def _load(folder: Path, device: "torch.device") -> TaskModel:
    from repose.model.language_model import LanguageModel
    from repose.model.parser import Parser

    config = read_config(folder)
    if (task := task_of(config)) not in ("language_modelling", "parsing"):
        raise CheckpointError(
            f"{folder} holds a model of {task.replace('_', ' ')}, not of language modelling or parsing"
        )
    architecture, (vocab_size,) = architecture_of(folder / CONFIG, config), read_sizes(folder, config, "vocab_size")
    make: Callable[[], nn.Module]
    if task == "language_modelling":
        make = partial(LanguageModel, architecture, vocab_size=vocab_size)
    else:
        labels = config.get("labels")
        if not isinstance(labels, list) or not labels:
            raise CheckpointError(f"{folder / CONFIG} has no labels: save or copy the model again")
        make = partial(Parser, architecture, vocab_size=vocab_size, num_labels=len(labels))
    model = read_model(folder, config, make)
    return TaskModel(model.to(device).eval(), read_tokenizer(folder, config, TOKENIZER, "vocab_size"), config)
