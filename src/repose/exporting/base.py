"""What the targets of `repose export` share: options, and what an export hands back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repose.data.tokenizer import SPECIAL_TOKENS
from repose.decoding.engine import Precision


@dataclass(frozen=True)
class Options:
    """How a model is exported. A target that knows no choice of one refuses any but the default."""

    precision: Precision = "fp32"
    """Precision of the products with weights."""
    single_file: bool = False
    """One file that needs no other (target `web`)."""


@dataclass(frozen=True)
class Exported:
    """What was written: `target` and `folder`, the `largest_difference` of a log-probability (in nats) from this
    project's model, bytes of `files` and of `parts`, and `notes` for whoever uses it."""

    target: str
    folder: Path
    largest_difference: float | None = None
    """Largest difference of a log-probability, in nats, from this project's model; None where nothing was compared."""
    files: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each file, by its path within the folder."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """Bytes by what they are for, before they are packed; where that is more than one thing."""
    notes: tuple[str, ...] = ()
    """Sentences about what whoever uses it should know."""


def usage(decoding: Mapping[str, Any], *how_to_load: str) -> dict[str, Any]:
    """What the description of every export says of its use: ids of the special tokens, how the model searches, and the
    lines that load it."""
    return {
        "special_tokens": {token: i for i, token in enumerate(SPECIAL_TOKENS)},
        "decoding": dict(decoding),
        "how_to_load": list(how_to_load),
    }
