"""Errors that a user can cause and mend: one sentence that says what is wrong and what to do."""

import difflib
from collections.abc import Sequence


class ReposeError(ValueError):
    """Base of every error shown to a user as one sentence, without a traceback."""


class ConfigError(ReposeError):
    """A setting, preset, key or command-line value that cannot be used (exit code 2)."""


class DataError(ReposeError):
    """A corpus, tokenizer or prepared dataset that is missing, damaged or inconsistent."""


class CheckpointError(ReposeError):
    """A checkpoint or model directory that is missing, damaged or belongs to another architecture."""


class DeviceError(ReposeError):
    """A device that is unknown or not present on this machine."""


class BusyError(ReposeError):
    """A run directory that another live process is using."""


def unknown(what: str, name: str, known: Sequence[str]) -> str:
    """One sentence for a name that is not among the known ones, with the nearest as a guess."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    return f"there is no {what} {name!r}: {hint}"
