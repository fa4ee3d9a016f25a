"""The model directory: a trained model and its tokenizers as data. All reading and writing is here.

    config.json            format_version, task, architecture, vocabulary sizes, run id, versions, settings of the task,
                           and the SHA-256 of each file below but the card
    model.safetensors      weights, fp32; tied ones once
    tokenizer.src.json     Hugging Face tokenizers of a model that translates, both always there;
    tokenizer.tgt.json       in a directory without `task`, which is how those of translation are written
    tokenizer.json         instead of these in a model of another task
    README.md              model card

What differs between tasks is a `ModelKind`. Reading executes nothing and follows nothing: no pickle, no path in a
field, no link out of the folder. Sizes are checked against the architecture before anything is allocated.

Writing replaces the whole folder (`repose.system.files`). A reader that meets files of two models notices it by their
SHA-256 and starts again.
"""

import contextlib
import dataclasses
import hashlib
import json
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from pydantic import ValidationError

from repose._version import __version__
from repose.model.architecture import BYTES_PER_WEIGHT, Architecture
from repose.model.presets import PRESETS
from repose.saved_model import hub
from repose.system.device import find_device, own_defaults
from repose.system.errors import CheckpointError, ConfigError, DataError
from repose.system.files import previous, replacing_folder, sealed, unsealed, write_json

if TYPE_CHECKING:
    import torch
    from torch import nn

    from repose.data.normalization import Normalization
    from repose.data.tokenizer import Tokenizer

M = TypeVar("M", bound="nn.Module")
T = TypeVar("T")

FORMAT_VERSION = 1
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
_MOST_NAMED = 8  # models of a folder that an error names
SRC_TOKENIZER, TGT_TOKENIZER, TOKENIZER = "tokenizer.src.json", "tokenizer.tgt.json", "tokenizer.json"
UNNAMED_TASK = "translation"
"""The task of models whose config.json names none: the first version had no other task."""

_MAX_JSON_BYTES, _MAX_NAME = 256 * 2**20, 100
_HEADER_BYTES = 16 * 2**20  # more than the tensor names of any model need
_MAX_TABLE_BYTES = 2**30  # limit for tables that are computed, not stored, so that no file size bounds them
_ATTEMPTS, _PAUSE_SECONDS = 4, 0.05  # enough: a writer's two renames take less than a millisecond


@dataclasses.dataclass(frozen=True)
class ModelKind(Generic[M]):
    """How one task's model directories differ from others'."""

    task: str
    """Name of the task."""
    tokenizers: Mapping[str, str]
    """Maps each tokenizer file to the name of its vocabulary size in config.json and in the model."""
    build: Callable[[Architecture, Mapping[str, Any]], M]
    """Builds a model, with arbitrary weights, from an architecture and a config.json. Raises ConfigError if a field is
    missing."""


class SavedModel(NamedTuple, Generic[M]):
    """A loaded model, in evaluation mode."""

    model: M
    tokenizers: tuple["Tokenizer", ...]
    """Tokenizers in the order of `ModelKind.tokenizers`."""
    config: dict[str, Any]
    """The content of config.json."""


def save(
    folder: Path,
    kind: ModelKind[M],
    model: M,
    tokenizers: Sequence[str],
    *,
    card: str,
    extra: Mapping[str, object],
    warning: str | None = None,
) -> None:
    """Write or replace a model directory; readers see this as one step.

    `tokenizers`: the contents of the files of `kind.tokenizers`. `extra` is added to config.json: run id, languages,
    decoding settings. `warning` is added to config.json and at the top of the card. Files in the folder that do not
    belong to the model stay. Raises CheckpointError if the folder holds something else, WriteError if it cannot be
    written.
    """
    import torch
    from safetensors.torch import save as to_safetensors

    tensors = {name: x.detach().cpu().float().contiguous() for name, x in _tensors_of(model).items()}
    texts = zip(kind.tokenizers, tokenizers, strict=True)
    contents = {WEIGHTS: to_safetensors(tensors, {"format": "pt"}), **{name: text.encode() for name, text in texts}}
    if warning is not None and warning not in card:
        card = f"> **Warning.** {warning}\n\n{card}"
    architecture: Any = model.architecture
    config: dict[str, object] = {
        "format_version": FORMAT_VERSION,
        "architecture": dataclasses.asdict(architecture),
        **({} if kind.task == UNNAMED_TASK else {"task": kind.task}),
        **{size: getattr(model, size) for size in kind.tokenizers.values()},
        "looks_ahead": warning,
        "versions": {"repose": __version__, "torch": torch.__version__},
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
    }
    assert not config.keys() & extra.keys(), "these keys are the model directory's own"
    config_text = json.dumps(sealed({**config, **extra}), indent=2, ensure_ascii=False) + "\n"
    files = {**contents, CARD: card.encode(), CONFIG: config_text.encode()}
    place = folder.resolve()
    if _holds_another(place):
        raise CheckpointError(f"{folder} holds something other than a model: choose a new or empty folder")
    with replacing_folder(place, keep_all_but=files) as temporary:
        for name, data in files.items():
            (temporary / name).write_bytes(data)


def _holds_another(place: Path) -> bool:
    """Return whether a folder holds something other than a model; run directories, for example, also have a
    config.json."""
    if not place.is_dir() or not any(place.iterdir()):
        return False
    try:
        config = json.loads((place / CONFIG).read_bytes())
    except OSError:
        return True
    except (ValueError, RecursionError):  # a damaged model is replaced
        return not (place / WEIGHTS).exists()
    return not (isinstance(config, dict) and "format_version" in config)


def change_config(folder: Path, values: Mapping[str, object]) -> None:
    """Change values in the config.json of a model directory or of a run directory's model. Raises CheckpointError, and
    WriteError if it cannot be written."""
    place = locate(folder)
    config = _read_config(place)
    _check_whole(place, config)
    write_json(place / CONFIG, sealed({**(unsealed(config) or {}), **values}))


def load(folder: Path, kind: ModelKind[M], device: str = "cpu") -> SavedModel[M]:
    """Load the model of a model or run directory to `device`.

    Raises CheckpointError for a model that is missing, damaged, or of another task or format; DeviceError for the
    device.
    """
    folder = hub.local_folder(folder)
    _read_whole(lambda: _read_config(locate(folder)))  # report a damaged config.json rather than a missing library
    target = find_device(device)
    return _read_whole(lambda: _load(locate(folder), kind, target))


def read_config(folder: Path) -> dict[str, Any]:
    """Read the config.json of a model directory or of a run directory's model. Loads no torch. Raises
    CheckpointError."""
    return _read_config(locate(folder))


def check(folder: Path) -> None:
    """Raise CheckpointError unless a model directory's files are as they were written."""
    config = _read_config(folder)
    for name in sorted(digests := _digests(config, folder)):
        _read(folder, name, sys.maxsize, digests)
    _check_whole(folder, config)


def read_sizes(folder: Path) -> tuple[Architecture, tuple[int, int]]:
    """Read a translation model's architecture and vocabulary sizes (source, target). Raises CheckpointError."""
    place = locate(folder)
    config = _read_config(place)
    sizes = config.get("src_vocab_size"), config.get("tgt_vocab_size")
    if task_of(config) != UNNAMED_TASK or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise CheckpointError(f"{folder} holds no model that translates: only those and presets can be described")
    return architecture_in(config, place), sizes  # type: ignore[return-value]


def task_of(config: Mapping[str, Any]) -> str:
    """Return the task that a config.json names; this version may not know it."""
    return str(config.get("task", UNNAMED_TASK))


def tokenizer_paths(folder: Path) -> tuple[Path, Path]:
    """Return the tokenizer files (source, target) of a model directory or of a run directory's model; the same file
    twice if both are equal."""
    place = locate(folder)
    digests = _digests(_read_config(place), place)
    if SRC_TOKENIZER not in digests:
        return place / TOKENIZER, place / TOKENIZER
    is_one = digests[SRC_TOKENIZER] == digests.get(TGT_TOKENIZER)
    return place / SRC_TOKENIZER, place / (SRC_TOKENIZER if is_one else TGT_TOKENIZER)


def architecture_of(folder: Path) -> Architecture:
    """Read the architecture of a model directory or of a run directory's model. Loads no torch. Raises
    CheckpointError."""
    place = locate(folder)
    return architecture_in(_read_config(place), place)


def locate(folder: Path) -> Path:
    """Find the model directory for a user's path: the path itself, `model` in a run directory, or a model on a hub.

    Raises CheckpointError if there is none, HubError if it cannot be fetched from a hub.
    """
    folder = hub.local_folder(folder)
    inner = folder / "model"
    if not (folder / WEIGHTS).exists() and (inner.is_dir() or previous(inner).is_dir()):
        return inner
    if not folder.exists() and str(folder) in PRESETS:
        raise CheckpointError(
            f"{folder} is a preset, an architecture without weights: train it with `repose train --preset {folder}`"
        )
    if not folder.is_dir() and not previous(folder).is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise CheckpointError(f"the model directory {folder} {what}: give a folder that holds {CONFIG} and {WEIGHTS}")
    if not any((folder / name).exists() for name in (CONFIG, WEIGHTS)) and (inside := _models_in(folder)):
        raise CheckpointError(f"{folder} is a folder of models: name one of {', '.join(inside)}")
    return folder


def _models_in(folder: Path) -> list[str]:
    """Return the names of a few runs and model directories directly in a folder."""
    folders = (path for path in sorted(folder.glob("*")) if path.is_dir())  # none while a writer moves the folder
    models = [str(path) for path in folders if any((path / name).is_file() for name in (WEIGHTS, f"model/{WEIGHTS}"))]
    return models if len(models) <= _MOST_NAMED else [*models[:_MOST_NAMED], "…"]


def _tensors_of(model: "nn.Module") -> dict[str, "torch.Tensor"]:
    """Return the tensors to store: parameters (tied ones once, under their first name) and persistent buffers."""
    unique: dict[int, tuple[str, torch.Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        unique.setdefault(id(tensor), (name, tensor))
    return dict(unique.values())


# Reading


def _read_whole(read: Callable[[], T]) -> T:
    """Return the result of `read`; repeat it if a writer may have replaced the folder meanwhile."""
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(CheckpointError):
            return read()
        time.sleep(_PAUSE_SECONDS)
    return read()


def _load(folder: Path, kind: ModelKind[M], device: "torch.device") -> SavedModel[M]:
    config = _read_config(folder)
    architecture, digests = _described(folder, kind, config)
    with own_defaults():
        model = _read_model(folder, digests, lambda: kind.build(architecture, config))
    made = SavedModel(model.to(device).eval(), read_tokenizers(folder, digests, kind, config), config)
    _check_whole(folder, config)
    return made


def load_without_weights(folder: Path, kind: ModelKind[M]) -> tuple[tuple["Tokenizer", ...], dict[str, Any]]:
    """Read the tokenizers and config.json of a model directory or of a run directory's model, and check the digest of
    the weights. Loads no torch. Raises CheckpointError as `load` does."""
    return _read_whole(lambda: _without_weights(locate(folder), kind))


def _without_weights(place: Path, kind: ModelKind[M]) -> tuple[tuple["Tokenizer", ...], dict[str, Any]]:
    config = _read_config(place)
    architecture, digests = _described(place, kind, config)
    tokenizers = read_tokenizers(place, digests, kind, config)
    about = BYTES_PER_WEIGHT * architecture.num_weights(*(config[size] for size in kind.tokenizers.values()))
    _read(place, WEIGHTS, 2 * about + _HEADER_BYTES, digests)
    _check_whole(place, config)
    return tokenizers, config


def _described(folder: Path, kind: ModelKind[M], config: Mapping[str, Any]) -> tuple[Architecture, Mapping[str, str]]:
    """Return the architecture and the files' digests from a config.json, after checking that it fits its task."""
    if (task := task_of(config)) != kind.task:
        ours, theirs = (name.replace("_", " ") for name in (kind.task, task))
        raise CheckpointError(
            f"{folder} holds a model of {theirs!r}, but one of {ours!r} is needed: `repose evaluate` measures any"
        )
    _check_sizes(config, folder, kind)
    return architecture_in(config, folder), _digests(config, folder)


def _check_sizes(config: Mapping[str, Any], folder: Path, kind: ModelKind[M]) -> None:
    for size in kind.tokenizers.values():
        if not isinstance(config.get(size), int) or isinstance(config[size], bool) or config[size] < 1:
            raise CheckpointError(f"{folder / CONFIG} has no usable {size}: save or copy the model again")


def read_tokenizers(
    folder: Path, digests: Mapping[str, str], kind: ModelKind[M], config: Mapping[str, Any]
) -> tuple["Tokenizer", ...]:
    """Read a folder's tokenizers, in the order of `kind`. Raises CheckpointError."""
    _check_sizes(config, folder, kind)
    return tuple(_read_tokenizer(folder, digests, name, config[size]) for name, size in kind.tokenizers.items())


def source_tokenizer(tokenizer: "Tokenizer", config: Mapping[str, Any]) -> "Tokenizer":
    """Return the source tokenizer with the `src_normalization` of config.json, if there is one. Raises
    CheckpointError."""
    normalization = source_normalization(config)
    return tokenizer if normalization is None else tokenizer.normalizing(normalization)


def source_normalization(config: Mapping[str, Any]) -> "Normalization | None":
    """Return the source normalization that config.json names, or None. Raises CheckpointError."""
    from repose.data.normalization import Normalization

    if (content := config.get("src_normalization")) is None:
        return None
    try:
        return Normalization.from_json(content)
    except ValueError as error:
        raise CheckpointError(
            f"src_normalization in {CONFIG} cannot be used, so copy the model again: {error}"
        ) from error


def _read_config(folder: Path) -> dict[str, Any]:
    if not (folder / WEIGHTS).exists() and (exported := sorted(folder.glob("repose-*.json"))):
        target = exported[0].stem.removeprefix("repose-")
        raise CheckpointError(f"{folder} is an export to {target}: name the run or model directory it was made from")
    if not any((place / name).exists() for place in (folder, previous(folder)) for name in (CONFIG, WEIGHTS)):
        raise CheckpointError(f"{folder} is not a model: it holds neither {CONFIG} nor {WEIGHTS}")
    data = _read(folder, CONFIG, _MAX_JSON_BYTES)
    try:
        config = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{folder / CONFIG} is damaged, it is not JSON: save or copy the model again") from error
    version = config.get("format_version") if isinstance(config, dict) else None
    if version is None and isinstance(config, dict) and "experiment" in config:
        raise CheckpointError(
            f"{folder} is a run without a model: if its training is not finished, run the same `repose train` command "
            "again to resume it; otherwise copy its folder model here again"
        )
    if not isinstance(version, int) or version < 1:
        raise CheckpointError(f"{folder / CONFIG} has no format_version, so {folder} is not a model directory")
    if version > FORMAT_VERSION:
        raise CheckpointError(
            f"{folder} was written by a newer repose (format {version}, this one reads {FORMAT_VERSION}): update repose"
        )
    for name in ("run_id", "task"):  # these are shown to users
        value = config.get(name, "")
        if value is not None and not (isinstance(value, str) and value.isprintable() and len(value) < _MAX_NAME):
            raise CheckpointError(f"{folder / CONFIG} has no usable {name}: save or copy the model again")
    for name in ("decoding", "decoding_asked"):  # their settings are looked up by name
        if not isinstance(config.get(name, {}), dict):
            raise CheckpointError(f"{folder / CONFIG} has no usable {name}: save or copy the model again")
    return dict(config)


def _check_whole(folder: Path, config: Mapping[str, Any]) -> None:
    """Check the whole of config.json; last, so that an error in a field is reported for that field."""
    if unsealed(config) is None:
        raise CheckpointError(f"{folder / CONFIG} has changed since it was written: save or copy the model again")


def architecture_in(config: Mapping[str, Any], folder: Path) -> Architecture:
    """Return the architecture in a config.json that was read from `folder`. Raises CheckpointError."""
    path, fields = folder / CONFIG, config.get("architecture")
    if not isinstance(fields, dict):
        raise CheckpointError(f"{path} has no section architecture: save or copy the model again")
    try:
        return Architecture(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if isinstance(reason := first.get("ctx", {}).get("error"), ConfigError):
            raise CheckpointError(f"{path} describes no model that can be built: {reason}") from error
        field = ".".join(map(str, ("architecture", *first["loc"])))
        raise CheckpointError(
            f"{path} has {field} = {first['input']!r}, which this repose does not know: "
            "the model was written by a newer one, or the file is damaged"
        ) from error


def _digests(config: Mapping[str, Any], folder: Path) -> Mapping[str, str]:
    """Return the SHA-256 of each of the other files, by name."""
    digests = config.get("sha256")
    if not isinstance(digests, dict):
        raise CheckpointError(f"{folder / CONFIG} has no section sha256: save or copy the model again")
    return digests


def _read(folder: Path, name: str, max_bytes: int, digests: Mapping[str, str] | None = None) -> bytes:
    """Read a file of the folder, after checking that it is a regular file inside it, has a plausible size, and has the
    digest in config.json."""
    base = folder if folder.is_dir() else previous(folder)
    path = base / name
    try:
        inside, status = hub.is_inside(path, base), path.stat()
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
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, or a NUL
        raise CheckpointError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from error
    if digests is not None and hashlib.sha256(data).hexdigest() != digests.get(name):
        raise CheckpointError(
            f"{path} is damaged or of another model, its SHA-256 is not {CONFIG}'s: save or copy the model again"
        )
    return data


def _read_model(folder: Path, digests: Mapping[str, str], build: Callable[[], M]) -> M:
    """Build a model and load the folder's weights, on the CPU. Sizes are compared with the file before memory is
    allocated."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load as from_safetensors

    try:
        with torch.device("meta"):
            model = build()
        expected = _shapes(_tensors_of(model))
    except (ConfigError, RuntimeError, TypeError) as error:  # torch raises the last two for sizes beyond 64 bits
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"{folder / CONFIG} describes no model that can be built: {reason}") from error
    num_bytes = sum(BYTES_PER_WEIGHT * torch.Size(shape).numel() for shape, _ in expected.values())
    tables = {id(t): t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers())}
    if (beyond := sum(tables.values()) - num_bytes) > _MAX_TABLE_BYTES:
        raise CheckpointError(
            f"{folder / CONFIG} describes a model whose tables of positions take {beyond >> 20:,} MiB, "
            f"but at most {_MAX_TABLE_BYTES >> 20:,} MiB are read: the file is damaged"
        )
    data = _read(folder, WEIGHTS, num_bytes + _HEADER_BYTES, digests)
    try:
        tensors = from_safetensors(data)
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise CheckpointError(f"{folder / WEIGHTS} is damaged: save or copy the model again ({error})") from error
    stored = _shapes(tensors)
    for name in (*expected, *stored):
        if expected.get(name) != stored.get(name):
            what = f"is {stored.get(name, 'missing')} where its config.json has {expected.get(name, 'nothing')}"
            raise CheckpointError(
                f"{folder / WEIGHTS} belongs to another architecture: tensor {name!r} {what}".replace("torch.", "")
            )
    with torch.random.fork_rng(devices=[]):  # initial values are not needed
        model = build()
    with torch.no_grad():
        for name, tensor in _tensors_of(model).items():
            tensor.copy_(tensors[name])
    return model


def _shapes(tensors: Mapping[str, "torch.Tensor"]) -> dict[str, tuple[tuple[int, ...], "torch.dtype"]]:
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}


def _read_tokenizer(folder: Path, digests: Mapping[str, str], name: str, size: int) -> "Tokenizer":
    """Read a tokenizer file, which must have `size` tokens."""
    from repose.data.tokenizer import Tokenizer

    data = _read(folder, name, _MAX_JSON_BYTES, digests)
    try:
        tokenizer = Tokenizer(data.decode(), name=str(folder / name))
    except (DataError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{folder / name} is not a tokenizer that can be used: {error}") from error
    if tokenizer.vocab_size != size:
        raise CheckpointError(
            f"{folder / name} has {tokenizer.vocab_size} tokens where the model has {size}: "
            "put the tokenizer that the model was trained with back in its place"
        )
    return tokenizer
