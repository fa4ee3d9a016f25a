"""Shared by all targets of `repose export`: options, and the result of an export."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repose.data.tokenizer import SPECIAL_TOKENS
from repose.decoding.engine import Precision


@dataclass(frozen=True)
class Options:
    """Options of an export. A target without a choice refuses anything but the default."""

    precision: Precision = "fp32"
    """Precision of the products with weights."""
    single_file: bool = False
    """Write a single self-contained file (target `web`)."""


@dataclass(frozen=True)
class Exported:
    """The result of an export: `target` and `folder`, the `largest_difference` (in nats) of a log-probability from this
    project's model, sizes of `files` and `parts` in bytes, and `notes` for users."""

    target: str
    folder: Path
    largest_difference: float | None = None
    """Largest difference (in nats) of a log-probability from this project's model; None if nothing was compared."""
    files: Mapping[str, int] = field(default_factory=dict)
    """Size of each file in bytes, by its path within the folder."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """Bytes by purpose, before compression, if there is more than one purpose."""
    notes: tuple[str, ...] = ()
    """Sentences that users of the export should read."""


def usage(decoding: Mapping[str, Any], *how_to_load: str) -> dict[str, Any]:
    """Return the fields on usage in an export's description: ids of special tokens, decoding settings, and the lines of
    code that load it."""
    return {
        "special_tokens": {token: i for i, token in enumerate(SPECIAL_TOKENS)},
        "decoding": dict(decoding),
        "how_to_load": list(how_to_load),
    }
