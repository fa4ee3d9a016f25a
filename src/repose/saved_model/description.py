"""`repose-<target>.json`, the description of an exported folder."""

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from repose._version import __version__
from repose.saved_model import directory, hub
from repose.system.errors import CheckpointError
from repose.system.files import sha256_of

FORMAT_VERSION = 1
_MAX_BYTES = 1 << 26


def description_file(target: str) -> str:
    """Return the file name of an export's description."""
    return f"repose-{target}.json"


def file_sizes(out: Path) -> dict[str, int]:
    """Return the size of each file of a folder in bytes, by its path within the folder."""
    files = (path for path in sorted(out.rglob("*")) if path.is_file())
    return {path.relative_to(out).as_posix(): path.stat().st_size for path in files}


def write_description(out: Path, target: str, config: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    """Write the description, an export's last file: facts about the model, `fields`, and the SHA-256 of all other files
    but the card.

    `config`: the config.json that was read with the model, because the directory may hold another model by now.
    """
    no_digest = (description_file(target), directory.CARD)  # the card is written later, and people edit it
    files = {name: sha256_of(out / name) for name in file_sizes(out) if name not in no_digest}
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
    _write(out, target, content)


def add_to_description(out: Path, target: str, **fields: Any) -> None:
    """Add fields that are only known after the description was written."""
    _write(out, target, read_description(out, target, check_files=False) | fields)


def _write(out: Path, target: str, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    (out / description_file(target)).write_text(text, encoding="utf-8")


def read_description(
    folder: Path, target: str, *, check_files: bool = True, may_lack: Collection[str] = ()
) -> dict[str, Any]:
    """Read the description and check the digests of the files.

    Raises CheckpointError if the description or a file is missing or damaged; files in `may_lack` may be missing.
    """
    path = folder / description_file(target)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise CheckpointError(f"{path} is damaged: export the model again")
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder} holds no export to {target}: it has no {path.name}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: export the model again") from error
    files = content.get("sha256") if isinstance(content, dict) else None
    if not isinstance(files, dict):
        raise CheckpointError(f"{path} is damaged: export the model again")
    version = content.get("format_version")
    if not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
        raise CheckpointError(f"{folder} was exported by another repose, in format {version!r}: export the model again")
    for name, digest in files.items() if check_files else ():
        if name not in may_lack or os.path.lexists(folder / name):
            _check(folder, name, digest, path.name)
    return dict(content)


def _check(folder: Path, name: str, digest: Any, description: str) -> None:
    path = folder / name
    try:
        found = sha256_of(path) if hub.is_inside(path, folder) and path.is_file() else None
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from error
    except ValueError as error:
        raise CheckpointError(f"{folder} names a file that cannot exist, {name!a}: export it again") from error
    if found is None:
        raise CheckpointError(f"{path} is missing, so the export is not complete: export or copy it again")
    if found != digest:
        raise CheckpointError(
            f"{path} is damaged or of another export, its SHA-256 is not the one in {description}: "
            "export or copy it again"
        )
