"""A model directory: everything that translating needs, as data; read and written here only.

    config.json            format_version, architecture, vocabulary sizes, decoding settings, run id, versions, and
                           the SHA-256 of each file below but the card
    model.safetensors      weights, fp32; tied ones once
    tokenizer.src.json     Hugging Face tokenizers, both always there
    tokenizer.tgt.json
    README.md              model card

Reading executes nothing and follows nothing: no pickle, no path in a field, no link out of the folder, and sizes are
checked against the architecture before anything is allocated.

Writing replaces the folder as a whole (`repose.atomic_folder`). A reader that meets files of two models sees it by
their SHA-256, and begins again.
"""

import dataclasses
import hashlib
import json
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from repose._version import __version__
from repose.atomic_folder import previous, replace_folder
from repose.device import find_device
from repose.errors import CheckpointError, ConfigError, DataError
from repose.model.architecture import Architecture

if TYPE_CHECKING:
    import torch

    from repose.data.tokenizer import Tokenizer
    from repose.model.transformer import Transformer

FORMAT_VERSION = 1
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
SRC_TOKENIZER, TGT_TOKENIZER = "tokenizer.src.json", "tokenizer.tgt.json"
LOOKS_AHEAD = (
    "This model's decoder normalises over the whole target sentence and so sees tokens that it is to predict: "
    "its teacher-forced loss and accuracy are no measure of translation, and it cannot translate."
)

_MAX_JSON_BYTES = 256 * 2**20
_HEADER_BYTES = 16 * 2**20  # more than the names of any model's tensors take
_MAX_LAYERS, _MAX_LENGTH = 1000, 2**20  # beyond these a config is damaged, or meant to exhaust memory
_ATTEMPTS, _PAUSE_SECONDS = 4, 0.05  # a writer's two renames take less than a millisecond


class LoadedModel(NamedTuple):
    """A model ready to translate."""

    model: "Transformer"
    src_tokenizer: "Tokenizer"
    tgt_tokenizer: "Tokenizer"
    config: dict[str, Any]
    """config.json as it is in the folder."""


def save(
    folder: Path,
    model: "Transformer",
    src_tokenizer_json: str,
    tgt_tokenizer_json: str,
    *,
    card: str,
    extra: Mapping[str, object],
) -> None:
    """Write or replace a model directory in one step as seen by readers (module docstring).

    `extra` goes into config.json as it is: decoding settings, run id, languages, scores. A file in the folder that
    is not the model's own stays. Raises CheckpointError where the folder holds something else, or cannot be written.
    """
    contents = {
        WEIGHTS: _weights_bytes(model),
        SRC_TOKENIZER: src_tokenizer_json.encode(),
        TGT_TOKENIZER: tgt_tokenizer_json.encode(),
    }
    if model.architecture.looks_ahead and LOOKS_AHEAD not in card:
        card = f"> **Warning.** {LOOKS_AHEAD}\n\n{card}"
    config = _config(model, contents, extra)
    files = {
        **contents,
        CARD: card.encode(),
        CONFIG: (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode(),
    }
    try:
        replace_folder(folder.resolve(), files, mark=CONFIG)
    except OSError as error:
        raise CheckpointError(f"the model directory {folder} cannot be written: {error.strerror}") from error


def load(folder: Path, device: str = "cpu") -> LoadedModel:
    """The model of a model directory, or of a run directory, in evaluation mode on `device`.

    Raises CheckpointError for whatever is missing, damaged or of another format, DeviceError for the device.
    """
    target = find_device(device)
    for attempt in range(_ATTEMPTS):
        try:
            return _load(_locate(folder), target)
        except CheckpointError:
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(_PAUSE_SECONDS)
    raise AssertionError("the last attempt returns or raises")


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a model directory, or of a run directory's model. Loads no torch. Raises CheckpointError."""
    return _read_config(_locate(folder))


def tokenizer_paths(folder: Path) -> tuple[Path, Path]:
    """The tokenizer files (source, target) of a model directory, or of a run directory's model."""
    found = _locate(folder)
    return found / SRC_TOKENIZER, found / TGT_TOKENIZER


def _config(model: "Transformer", contents: Mapping[str, bytes], extra: Mapping[str, object]) -> dict[str, object]:
    """config.json of a model and its other files."""
    import torch

    own: dict[str, object] = {
        "format_version": FORMAT_VERSION,
        "architecture": dataclasses.asdict(model.architecture),
        "src_vocab_size": model.src_vocab_size,
        "tgt_vocab_size": model.tgt_vocab_size,
        "looks_ahead": LOOKS_AHEAD if model.architecture.looks_ahead else None,
        "versions": {"repose": __version__, "torch": torch.__version__},
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
    }
    assert not own.keys() & extra.keys(), "these keys are the model directory's own"
    return {**own, **extra}


def _weights_bytes(model: "Transformer") -> bytes:
    from safetensors.torch import save as to_safetensors

    return to_safetensors({n: t.detach().cpu().contiguous() for n, t in _tensors(model).items()}, {"format": "pt"})


def _tensors(model: "Transformer") -> dict[str, "torch.Tensor"]:
    """What is stored: parameters, tied ones under their first name, and buffers that a state_dict keeps."""
    unique: dict[int, tuple[str, torch.Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        unique.setdefault(id(tensor), (name, tensor))
    return dict(unique.values())


def _locate(folder: Path) -> Path:
    """The model directory that a user's path means: itself, or `model` in a run directory."""
    inner = folder / "model"
    if not (folder / WEIGHTS).exists() and (inner.is_dir() or previous(inner).is_dir()):
        return inner
    if not folder.is_dir() and not previous(folder).is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise CheckpointError(f"the model directory {folder} {what}: give a folder that holds {CONFIG} and {WEIGHTS}")
    return folder


def _load(folder: Path, device: "torch.device") -> LoadedModel:
    config = _read_config(folder)
    model = _model(folder, config)
    src_tokenizer, tgt_tokenizer = (_tokenizer(folder, config, side) for side in ("src", "tgt"))
    return LoadedModel(model.to(device).eval(), src_tokenizer, tgt_tokenizer, config)


def _read_config(folder: Path) -> dict[str, Any]:
    data = _read(folder, CONFIG, _MAX_JSON_BYTES)
    try:
        config = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{folder / CONFIG} is damaged, it is not JSON: save or copy the model again") from error
    version = config.get("format_version") if isinstance(config, dict) else None
    if not isinstance(version, int) or version < 1:
        raise CheckpointError(f"{folder / CONFIG} has no format_version, so {folder} is no model directory")
    if version > FORMAT_VERSION:
        raise CheckpointError(
            f"{folder} was written by a newer repose (format {version}, this one reads {FORMAT_VERSION}): update repose"
        )
    return dict(config)


def _read(folder: Path, name: str, max_bytes: int, digests: Mapping[str, str] | None = None) -> bytes:
    """A file of the folder: regular, inside, of a size that makes sense, and the one that config.json means."""
    base = folder if folder.is_dir() else previous(folder)
    path = base / name
    try:
        inside = path.resolve().is_relative_to(base.resolve())
        status = path.stat()
        if not inside or not stat.S_ISREG(status.st_mode):
            raise CheckpointError(
                f"{path} is not a file within the model directory: copy the file itself to this place"
            )
        if status.st_size > max_bytes:
            raise CheckpointError(
                f"{path} is damaged, it has {status.st_size} bytes of at most {max_bytes}: copy the model again"
            )
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing, so the model is not complete: save or copy it again") from error
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        raise CheckpointError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from error
    if digests is not None and hashlib.sha256(data).hexdigest() != digests.get(name):
        raise CheckpointError(
            f"{path} is damaged or of another model, its SHA-256 is not {CONFIG}'s: save or copy the model again"
        )
    return data


def _model(folder: Path, config: Mapping[str, Any]) -> "Transformer":
    """The model, on the CPU. Its sizes are compared with the file before memory is taken."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load as from_safetensors

    from repose.model.transformer import Transformer

    architecture, src_vocab_size, tgt_vocab_size = _architecture(folder, config)

    try:
        with torch.device("meta"):
            model = Transformer(architecture, src_vocab_size=src_vocab_size, tgt_vocab_size=tgt_vocab_size)
        expected = {n: (tuple(t.shape), t.dtype) for n, t in _tensors(model).items()}
    except (ConfigError, RuntimeError, TypeError) as error:  # the last two are torch's, for sizes beyond 64 bits
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"{folder / CONFIG} describes no model that can be built: {reason}") from error
    num_bytes = sum(4 * torch.Size(shape).numel() for shape, _ in expected.values())
    data = _read(folder, WEIGHTS, num_bytes + _HEADER_BYTES, config["sha256"])
    try:
        found = from_safetensors(data)
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise CheckpointError(f"{folder / WEIGHTS} is damaged: save or copy the model again ({error})") from error
    _compare(folder, expected, {n: (tuple(t.shape), t.dtype) for n, t in found.items()})
    with torch.random.fork_rng(devices=[]):  # its initial values are of no use
        model = Transformer(architecture, src_vocab_size=src_vocab_size, tgt_vocab_size=tgt_vocab_size)
    with torch.no_grad():
        for name, tensor in _tensors(model).items():
            tensor.copy_(found[name])
    return model


def _architecture(folder: Path, config: Mapping[str, Any]) -> tuple[Architecture, int, int]:
    """Architecture and vocabulary sizes, each of a kind and size that a model can have."""
    where = folder / CONFIG
    try:
        architecture = Architecture(**config["architecture"])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, ("architecture", *first["loc"])))
        raise CheckpointError(
            f"{where} has {field} = {first['input']!r}, which this repose does not know: "
            "the model was written by a newer one, or the file is damaged"
        ) from error
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{where} has no section architecture: save or copy the model again") from error
    src, tgt = config.get("src_vocab_size"), config.get("tgt_vocab_size")
    if not (isinstance(src, int) and isinstance(tgt, int) and src > 0 and tgt > 0):
        raise CheckpointError(f"{where} has no usable src_vocab_size and tgt_vocab_size: save or copy the model again")
    if not isinstance(config.get("sha256"), dict):
        raise CheckpointError(f"{where} has no section sha256: save or copy the model again")
    num_layers = architecture.num_encoder_layers + architecture.num_decoder_layers
    if num_layers > _MAX_LAYERS or architecture.max_length > _MAX_LENGTH:
        raise CheckpointError(
            f"{where} describes {num_layers} layers and a max_length of {architecture.max_length}, "
            f"where {_MAX_LAYERS} and {_MAX_LENGTH} are the most that are read: the file is damaged"
        )
    return architecture, src, tgt


def _compare(folder: Path, expected: Mapping[str, object], found: Mapping[str, object]) -> None:
    """Refuse weights of another architecture, naming the first tensor that differs."""
    for name in (*expected, *found):
        if expected.get(name) != found.get(name):
            what = f"is {found.get(name, 'missing')} where its {CONFIG} has {expected.get(name, 'nothing')}"
            raise CheckpointError(
                f"{folder / WEIGHTS} belongs to another architecture: tensor {name!r} {what}".replace("torch.", "")
            )


def _tokenizer(folder: Path, config: Mapping[str, Any], side: str) -> "Tokenizer":
    from repose.data.tokenizer import Tokenizer

    name = {"src": SRC_TOKENIZER, "tgt": TGT_TOKENIZER}[side]
    data = _read(folder, name, _MAX_JSON_BYTES, config["sha256"])
    try:
        tokenizer = Tokenizer(data.decode(), name=str(folder / name))
    except (DataError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{folder / name} is no tokenizer that can be used: {error}") from error
    if tokenizer.vocab_size != config[f"{side}_vocab_size"]:
        raise CheckpointError(
            f"{folder / name} has {tokenizer.vocab_size} tokens where the model has {config[f'{side}_vocab_size']}: "
            "put the tokenizer that the model was trained with back in its place"
        )
    return tokenizer
