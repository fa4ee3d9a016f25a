"""Errors that users can cause and fix: one sentence that says what is wrong and what to do."""

import contextlib
import difflib
import errno
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class ReposeError(ValueError):
    """Base class of all errors shown to users as one sentence, without a traceback."""


class ConfigError(ReposeError):
    """A setting, preset, key or command-line value that cannot be used (exit code 2)."""


class MissingExtraError(ConfigError, ImportError):
    """A library that is not installed; the message names the extra of this package that provides it."""


class DataError(ReposeError):
    """A corpus, tokenizer or prepared dataset that is missing, damaged or inconsistent."""


class CheckpointError(ReposeError):
    """A checkpoint or model directory that is missing, damaged or belongs to another architecture."""


class HubError(ReposeError):
    """A model that a hub cannot deliver: no network, no such name or revision, or no permission."""


class DeviceError(ReposeError):
    """A device that is unknown or not present on this machine."""


class BusyError(ReposeError):
    """A run directory that another live process is using."""


class WriteError(ReposeError):
    """A file or folder that cannot be written, for instance because the disk is full or permission is missing."""


class LostWorkerError(ReposeError):
    """A training process that was killed, for instance when memory ran out, or never joined.

    The same command resumes.
    """


_OF_TRAIN = ("torch", "safetensors", "jaxtyping", "sacrebleu", "sacremoses", "py3langid")
EXTRA_OF = {**dict.fromkeys(_OF_TRAIN, "train"), "onnx": "fast", "onnxruntime": "runtime"}
"""The extra that provides each library, for libraries where one message fits all uses."""
OUT_OF_MEMORY = "out of memory: use a machine with more, or smaller sizes"


_NO_ROOM = {getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name)}
_OUT_OF_MEMORY = ("DefaultCPUAllocator: can't allocate", "CUDA error: out of memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out: Python's, a GPU's, or the CPU's in torch, which has no class for that."""
    of_torch = type(error).__name__ == "OutOfMemoryError" or any(sentence in str(error) for sentence in _OUT_OF_MEMORY)
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and of_torch)


def missing_extra(error: ModuleNotFoundError) -> MissingExtraError | None:
    """Turn a missing library into an error that names the extra that provides it; None if no extra does."""
    extra = EXTRA_OF.get((error.name or "").partition(".")[0])
    return None if extra is None else MissingExtraError(f"this needs {error.name}: pip install 'repose-nmt[{extra}]'")


@contextlib.contextmanager
def naming_extras() -> Iterator[None]:
    """Raise MissingExtraError for a missing library, inside the block or in a decorated function."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None


@contextlib.contextmanager
def of_extra(extra: str, need: str) -> Iterator[None]:
    """Raise MissingExtraError for a library that cannot be imported inside the block: the `need`, and the extra."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(f"{need}: pip install 'repose-nmt[{extra}]'") from error


class UserMessage(NamedTuple):
    """What a user is told about an error."""

    sentence: str
    exit_code: int


def user_message(error: BaseException) -> UserMessage | None:
    """Return what a user is told about an error that users can fix; None if it is a bug."""
    if isinstance(error, ReposeError):
        return UserMessage(str(error), 2 if isinstance(error, ConfigError) else 1)
    if is_out_of_memory(error):
        return UserMessage(OUT_OF_MEMORY, 1)
    if isinstance(error, ModuleNotFoundError) and (missing := missing_extra(error)) is not None:
        return UserMessage(str(missing), 2)
    if isinstance(error, OSError):  # without its number, and with the name of its file if it has one
        what = (error.strerror or str(error)) + ", so make room, or write elsewhere" * (error.errno in _NO_ROOM)
        return UserMessage(what if error.filename is None else f"{os.fsdecode(error.filename)}: {what}", 1)
    return None


def unknown(what: str, name: object, known: Sequence[str]) -> str:
    """Return one sentence that says that a name is not among the known ones, and suggests the nearest one.

    The nearest name is one that `name` abbreviates by its initials (`lr`, `training.lr`), or else the most similar one.
    A common section is ignored in the comparison.
    """
    text = name if isinstance(name, str) else ""
    section, dot, last = text.rpartition(".")
    parts = {one.removeprefix(section + dot): one for one in known}
    initials = [one for part, one in parts.items() if last == "".join(word[:1] for word in part.split("_"))]
    near = initials or [parts[part] for part in difflib.get_close_matches(last, parts, n=1, cutoff=0.5)]
    near = near or difflib.get_close_matches(text, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    return f"there is no {what} {name!r}: {hint}"
