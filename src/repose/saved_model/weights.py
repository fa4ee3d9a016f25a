"""A model's tensors and sizes as a model directory stores them, and the checks of what is read from one."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from repose.model.architecture import Architecture, from_earlier
from repose.system.errors import CheckpointError

if TYPE_CHECKING:
    import torch
    from torch import nn

_MAX_LAYERS, _MAX_LENGTH = 1000, 2**20  # beyond these a config is damaged, or meant to exhaust memory


def weights_bytes(model: "nn.Module") -> bytes:
    """The content of model.safetensors."""
    from safetensors.torch import save as to_safetensors

    return to_safetensors({n: t.detach().cpu().contiguous() for n, t in tensors_of(model).items()}, {"format": "pt"})


def tensors_of(model: "nn.Module") -> dict[str, "torch.Tensor"]:
    """What is stored: parameters, tied ones under their first name, and buffers that a state_dict keeps."""
    unique: dict[int, tuple[str, torch.Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        unique.setdefault(id(tensor), (name, tensor))
    return dict(unique.values())


def architecture_of(where: Path, config: Mapping[str, Any]) -> Architecture:
    """The architecture that the config.json `where` names, of sizes that a model can have. Raises CheckpointError."""
    try:
        architecture = Architecture(**from_earlier(config["architecture"]))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, ("architecture", *first["loc"])))
        raise CheckpointError(
            f"{where} has {field} = {first['input']!r}, which this repose does not know: "
            "the model was written by a newer one, or the file is damaged"
        ) from error
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{where} has no section architecture: save or copy the model again") from error
    if not isinstance(config.get("sha256"), dict):
        raise CheckpointError(f"{where} has no section sha256: save or copy the model again")
    num_layers = architecture.num_encoder_layers + architecture.num_decoder_layers
    if num_layers > _MAX_LAYERS or architecture.max_length > _MAX_LENGTH:
        raise CheckpointError(
            f"{where} describes {num_layers} layers and a max_length of {architecture.max_length}, "
            f"where {_MAX_LAYERS} and {_MAX_LENGTH} are the most that are read: the file is damaged"
        )
    return architecture


def compare(path: Path, expected: Mapping[str, object], found: Mapping[str, object]) -> None:
    """Refuse weights of another architecture, naming the first tensor that differs."""
    for name in (*expected, *found):
        if expected.get(name) != found.get(name):
            what = f"is {found.get(name, 'missing')} where its config.json has {expected.get(name, 'nothing')}"
            raise CheckpointError(
                f"{path} belongs to another architecture: tensor {name!r} {what}".replace("torch.", "")
            )
