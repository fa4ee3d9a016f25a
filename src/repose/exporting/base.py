"""What the targets of `repose export` share: options, the description of a folder, and what an export hands back."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from repose._version import __version__
from repose.saved_model import directory
from repose.system.errors import CheckpointError

Precision: TypeAlias = Literal["fp32", "int8"]

FORMAT_VERSION = 1
"""Of the descriptions that exports write."""


@dataclass(frozen=True)
class Options:
    """How a model is exported. A target that knows no choice of one refuses any but the default."""

    precision: Precision = "fp32"
    """Of the products with weights."""
    single_file: bool = False
    """One file that needs no other (target `web`)."""


@dataclass(frozen=True)
class Exported:
    """What was written."""

    target: str
    folder: Path
    files: Mapping[str, int]
    """Bytes of each file, by its path within the folder."""
    largest_difference: float | None = None
    """Largest difference of a log-probability, in nats, from this project's model; None where nothing was compared."""
    notes: tuple[str, ...] = ()
    """Sentences about what whoever uses it should know."""


def description_file(target: str) -> str:
    """Name of the file by which a folder says what it is."""
    return f"repose-{target}.json"


def sizes_of(out: Path) -> dict[str, int]:
    """Bytes of each file of a folder, by its path within."""
    files = (path for path in sorted(out.rglob("*")) if path.is_file())
    return {path.relative_to(out).as_posix(): path.stat().st_size for path in files}


def write_description(out: Path, target: str, model: Path, fields: Mapping[str, Any]) -> None:
    """Write `repose-<target>.json`, the last file of an export: what the model is, `fields`, and SHA-256 of the others.

    `model`: the model or run directory that the export is of.
    """
    config = directory.read_config(model)
    files = {name: _sha256(out / name) for name in sizes_of(out)}
    content = {
        "format_version": FORMAT_VERSION,
        "target": target,
        "repose": __version__,
        "run_id": config.get("run_id"),
        "src_lang": config.get("src_lang", "und"),
        "tgt_lang": config.get("tgt_lang", "und"),
        "weights_sha256": config["sha256"][directory.WEIGHTS],
        **fields,
        "sha256": files,
    }
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    (out / description_file(target)).write_text(text, encoding="utf-8")


def read_description(folder: Path, target: str) -> dict[str, Any]:
    """The content of `repose-<target>.json`. Raises CheckpointError where it is missing or damaged."""
    path = folder / description_file(target)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder} holds no export to {target}: it has no {path.name}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: export the model again") from error
    if not isinstance(content, dict) or not isinstance(content.get("sha256"), dict):
        raise CheckpointError(f"{path} is damaged: export the model again")
    return content


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
