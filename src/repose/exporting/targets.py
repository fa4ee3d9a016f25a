"""Export a trained model, by the name of the target, to a folder that other tools load.

A target is a module with a function `export(model, out, options) -> Exported`. It writes into the empty folder `out`,
checks that the result computes what the model computes, raises if not, and ends with
`saved_model.description.write_description`. Its `why_not(architecture)` says why it cannot express an architecture, or
None.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from repose.decoding.engine import Precision
from repose.exporting.base import Exported, Options
from repose.exporting.card import card
from repose.model.architecture import Architecture
from repose.saved_model.description import add_to_description, description_file, file_sizes, read_description
from repose.saved_model.directory import CARD, UNNAMED_TASK, locate, read_config, task_of
from repose.saved_run.folder import unfinished
from repose.system.device import own_defaults
from repose.system.errors import CheckpointError, ConfigError, WriteError, naming_extras, unknown
from repose.system.files import checked_path, replacing_folder
from repose.system.locks import locked_or_busy, making_lock

Target: TypeAlias = Callable[[Path, Path, Options], Exported]

TargetName: TypeAlias = Literal["onnx", "ctranslate2", "web"]
TARGETS: dict[TargetName, str] = {
    "onnx": "repose.exporting.to_onnx",
    "ctranslate2": "repose.exporting.to_ctranslate2",
    "web": "repose.exporting.to_web",
}
"""Maps a target's name to its module."""
IN_ONE_FILE = ("web",)
"""Targets that support `single_file`."""
WITH_CARD = ("onnx", "ctranslate2")
"""Targets that get a model card, because programs load them, also from a hub."""


@naming_extras()
def export(
    run: str | os.PathLike[str],
    *,
    to: TargetName,
    out: str | os.PathLike[str],
    precision: Precision = "fp32",
    single_file: bool = False,
) -> Exported:
    """Write a trained model as a folder that another tool loads (docs/export.md).

    `run`: a run or model directory. `to`: one of `TARGETS`. `precision`: fp32 or int8. `single_file`: target `web` as
    one file. The folder `out` appears only once it is complete and checked. It replaces an earlier export to the same
    target; files that did not belong to that export stay.

    Raises ConfigError for an unknown target or option, or an architecture that the target cannot express;
    CheckpointError for a model that cannot be read, an `out` that holds something else, or an export that computes
    something other than the model; BusyError if another process exports there; WriteError if it cannot be written.
    """
    if not isinstance(to, str) or to not in TARGETS:
        raise ConfigError(unknown("target", to, list(TARGETS)))
    target: Target = import_module(TARGETS[to]).export
    if precision not in get_args(Precision):
        raise ConfigError(unknown("precision", precision, get_args(Precision)))
    if single_file and to not in IN_ONE_FILE:
        raise ConfigError(f"single_file is for the target {' or '.join(IN_ONE_FILE)}: leave it out")
    options = Options(precision, single_file)
    model, place = locate(checked_path("run", run)), checked_path("out", out)
    try:
        place = place.resolve()
    except (OSError, RuntimeError) as error:  # a loop of symbolic links
        raise WriteError(f"{str(out)!a} cannot be written to ({error}): choose a new or empty folder") from error
    if (task := task_of(read_config(model))) != UNNAMED_TASK:
        what = task.replace("_", " ")
        raise ConfigError(f"{run} holds a model of {what!r}, and only models that translate can be exported")
    if place == model.resolve() or model.resolve().is_relative_to(place):
        raise CheckpointError(f"{out} is where the model itself is: choose a new or empty folder")
    with locked_or_busy(making_lock(place), f"exports to {out}: wait for it"):
        ours = _own_files(place, to, str(out))
        with own_defaults(), replacing_folder(place, keep_all_but=ours) as temporary:
            made = target(model, temporary, options)
            kept = (place / CARD).exists() and CARD not in ours
            if to in WITH_CARD and not kept:
                _write_card(model, temporary, to)
            files = file_sizes(temporary)
    notes = [*made.notes, *filter(None, [unfinished(model)])]
    if to in WITH_CARD and kept:
        notes.append(
            f"{place / CARD} has been edited since it was exported: it is kept, and may describe another model"
        )
    return replace(made, folder=place, files=files, notes=tuple(notes))


def targets_of(architecture: Architecture) -> list[str]:
    """Return the targets that can express an architecture."""
    return [name for name, module in TARGETS.items() if import_module(module).why_not(architecture) is None]


def _write_card(model: Path, out: Path, target: str) -> None:
    """Write the export's card, if the model has one, and its digest to the description, to recognise the card later."""
    try:
        text = (model / CARD).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    made = card(text, target, read_description(out, target, check_files=False)["how_to_load"]).encode()
    (out / CARD).write_bytes(made)
    add_to_description(out, target, card_sha256=hashlib.sha256(made).hexdigest())


def _own_files(place: Path, target: str, said: str) -> set[str]:
    """Return the names in the folder that belong to an earlier export. Raises if the folder holds something else."""
    if place.exists() and not place.is_dir():
        raise WriteError(f"{said} is a file: choose a new or empty folder")
    if not place.is_dir() or not any(place.iterdir()):
        return set()
    with contextlib.suppress(CheckpointError):
        described = read_description(place, target, check_files=False)
        own = {description_file(target), *(str(name).partition("/")[0] for name in described["sha256"])}
        return own | ({CARD} if _is_our_card(place / CARD, described.get("card_sha256")) else set())
    raise CheckpointError(f"{said} holds something other than an export to {target}: choose a new or empty folder")


def _is_our_card(card: Path, digest: object) -> bool:
    """Return whether a card is as an export wrote it, so that people have not edited it."""
    try:
        return hashlib.sha256(card.read_bytes()).hexdigest() == digest
    except OSError:
        return False
