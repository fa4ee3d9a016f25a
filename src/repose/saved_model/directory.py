"""A model directory: everything that translating needs, as data; read and written here only.

    config.json            format_version, architecture, vocabulary sizes, decoding settings, run id, versions, and
                           the SHA-256 of each file below but the card
    model.safetensors      weights, fp32; tied ones once
    tokenizer.src.json     Hugging Face tokenizers, both always there
    tokenizer.tgt.json
    tokenizer.json         instead of these in a model of another task than translation, which config.json then names
    README.md              model card

Reading executes nothing and follows nothing: no pickle, no path in a field, no link out of the folder, and sizes are
checked against the architecture before anything is allocated.

Writing replaces the folder as a whole (`repose.system.files`). A reader that meets files of two models sees it by
their SHA-256, and begins again.
"""

import dataclasses
import hashlib
import json
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from repose._version import __version__
from repose.saved_model.weights import architecture_of, compare, tensors_of, weights_bytes
from repose.system.device import find_device
from repose.system.errors import CheckpointError, ConfigError, DataError
from repose.system.files import previous, replacing_folder

if TYPE_CHECKING:
    import torch
    from torch import nn

    from repose.data.tokenizer import Tokenizer
    from repose.model.transformer import Transformer

    M = TypeVar("M", bound=nn.Module)

T = TypeVar("T")
Extra: TypeAlias = Mapping[str, object]

FORMAT_VERSION = 1
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
SRC_TOKENIZER, TGT_TOKENIZER = "tokenizer.src.json", "tokenizer.tgt.json"
TOKENIZER, TRANSLATION = "tokenizer.json", "translation"
LOOKS_AHEAD = (
    "This model's decoder normalises over the whole target sentence and so sees tokens that it is to predict: "
    "its teacher-forced loss and accuracy are no measure of translation, and it cannot translate."
)

_MAX_JSON_BYTES = 256 * 2**20
_HEADER_BYTES = 16 * 2**20  # more than the names of any model's tensors take
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
    is not the model's own stays. Raises CheckpointError where the folder holds something else, and WriteError
    where it cannot be written.
    """
    write(
        folder,
        model,
        {"src_vocab_size": model.src_vocab_size, "tgt_vocab_size": model.tgt_vocab_size},
        {SRC_TOKENIZER: src_tokenizer_json, TGT_TOKENIZER: tgt_tokenizer_json},
        LOOKS_AHEAD if model.architecture.looks_ahead else None,
        card,
        extra,
    )


def load(folder: Path, device: str = "cpu") -> LoadedModel:
    """The model of a model directory, or of a run directory, in evaluation mode on `device`.

    Raises CheckpointError for whatever is missing, damaged or of another format, DeviceError for the device.
    """
    target = find_device(device)
    return attempted(lambda: _load(locate(folder), target))


def attempted(read: Callable[[], T]) -> T:
    """What `read` returns, tried again where a writer may have come between."""
    for attempt in range(_ATTEMPTS):
        try:
            return read()
        except CheckpointError:
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(_PAUSE_SECONDS)
    raise AssertionError("the last attempt returns or raises")


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a model directory, or of a run directory's model. Loads no torch. Raises CheckpointError."""
    return _read_config(locate(folder))


def tokenizer_paths(folder: Path) -> tuple[Path, Path]:
    """The tokenizer files (source, target) of a model directory, or of a run directory's model; one may be both."""
    found = locate(folder)
    if task_of(_read_config(found)) != TRANSLATION:
        return found / TOKENIZER, found / TOKENIZER
    return found / SRC_TOKENIZER, found / TGT_TOKENIZER


def task_of(config: Mapping[str, Any]) -> str:
    """The task of the model whose config.json that is."""
    return str(config.get("task", TRANSLATION))


def _config(
    model: "nn.Module", sizes: Mapping[str, object], contents: Mapping[str, bytes], warning: str | None, extra: Extra
) -> dict[str, object]:
    """config.json of a model and its other files."""
    import torch

    architecture: Any = model.architecture
    own: dict[str, object] = {
        "format_version": FORMAT_VERSION,
        "architecture": dataclasses.asdict(architecture),
        **sizes,
        "looks_ahead": warning,
        "versions": {"repose": __version__, "torch": torch.__version__},
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
    }
    assert not own.keys() & extra.keys(), "these keys are the model directory's own"
    return {**own, **extra}


def write(
    folder: Path,
    model: "nn.Module",
    sizes: Mapping[str, object],
    tokenizers: Mapping[str, str],
    warning: str | None,
    card: str,
    extra: Extra,
) -> None:
    """Put the directory of a model of any task in its place; `warning` stands first in the card, too."""
    contents = {WEIGHTS: weights_bytes(model), **{name: text.encode() for name, text in tokenizers.items()}}
    if warning is not None and warning not in card:
        card = f"> **Warning.** {warning}\n\n{card}"
    config = _config(model, sizes, contents, warning, extra)
    files = {
        **contents,
        CARD: card.encode(),
        CONFIG: (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode(),
    }
    place = folder.resolve()
    if place.is_dir() and not (place / CONFIG).exists() and any(place.iterdir()):
        raise CheckpointError(f"{folder} holds something else than a model: choose a new or empty folder")
    with replacing_folder(place, keep_all_but=files) as temporary:
        for name, data in files.items():
            (temporary / name).write_bytes(data)


def locate(folder: Path) -> Path:
    """The model directory that a user's path means: itself, or `model` in a run directory."""
    inner = folder / "model"
    if not (folder / WEIGHTS).exists() and (inner.is_dir() or previous(inner).is_dir()):
        return inner
    if not folder.is_dir() and not previous(folder).is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise CheckpointError(f"the model directory {folder} {what}: give a folder that holds {CONFIG} and {WEIGHTS}")
    return folder


def _load(folder: Path, device: "torch.device") -> LoadedModel:
    from repose.model.transformer import Transformer

    config = _read_config(folder)
    if (task := task_of(config)) != TRANSLATION:
        raise CheckpointError(
            f"{folder} holds a model of {task.replace('_', ' ')}, which does not translate: "
            "`repose evaluate` measures it"
        )
    architecture = architecture_of(folder / CONFIG, config)
    src, tgt = read_sizes(folder, config, "src_vocab_size", "tgt_vocab_size")
    model = read_model(folder, config, lambda: Transformer(architecture, src_vocab_size=src, tgt_vocab_size=tgt))
    src_tokenizer = read_tokenizer(folder, config, SRC_TOKENIZER, "src_vocab_size")
    tgt_tokenizer = read_tokenizer(folder, config, TGT_TOKENIZER, "tgt_vocab_size")
    return LoadedModel(model.to(device).eval(), src_tokenizer, tgt_tokenizer, config)


def read_sizes(folder: Path, config: Mapping[str, Any], *names: str) -> list[int]:
    """Vocabulary sizes of config.json. Raises CheckpointError for what is none."""
    sizes = [config.get(name) for name in names]
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise CheckpointError(f"{folder / CONFIG} has no usable {' and '.join(names)}: save or copy the model again")
    return [size for size in sizes if size is not None]


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


def read_model(folder: Path, config: Mapping[str, Any], make: "Callable[[], M]") -> "M":
    """What `make` builds, with the folder's weights, on the CPU. Sizes are compared with the file before memory is
    taken."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load as from_safetensors

    try:
        with torch.device("meta"):
            model = make()
        expected = {n: (tuple(t.shape), t.dtype) for n, t in tensors_of(model).items()}
    except (ConfigError, RuntimeError, TypeError) as error:  # the last two are torch's, for sizes beyond 64 bits
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"{folder / CONFIG} describes no model that can be built: {reason}") from error
    num_bytes = sum(4 * torch.Size(shape).numel() for shape, _ in expected.values())
    data = _read(folder, WEIGHTS, num_bytes + _HEADER_BYTES, config["sha256"])
    try:
        found = from_safetensors(data)
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise CheckpointError(f"{folder / WEIGHTS} is damaged: save or copy the model again ({error})") from error
    compare(folder / WEIGHTS, expected, {n: (tuple(t.shape), t.dtype) for n, t in found.items()})
    with torch.random.fork_rng(devices=[]):  # its initial values are of no use
        model = make()
    with torch.no_grad():
        for name, tensor in tensors_of(model).items():
            tensor.copy_(found[name])
    return model


def read_tokenizer(folder: Path, config: Mapping[str, Any], name: str, size: str) -> "Tokenizer":
    """The tokenizer of that file, which must be of the size that config.json has under `size`."""
    from repose.data.tokenizer import Tokenizer

    data = _read(folder, name, _MAX_JSON_BYTES, config["sha256"])
    try:
        tokenizer = Tokenizer(data.decode(), name=str(folder / name))
    except (DataError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{folder / name} is no tokenizer that can be used: {error}") from error
    if tokenizer.vocab_size != config[size]:
        raise CheckpointError(
            f"{folder / name} has {tokenizer.vocab_size} tokens where the model has {config[size]}: "
            "put the tokenizer that the model was trained with back in its place"
        )
    return tokenizer
