"""Replacing a folder of files as a whole.

No system call that Python knows replaces a folder in one step. So the new folder is written beside the old one under
another name and flushed to disk; then the old one is renamed away and the new one takes its name. Whoever reads the
files one by one meanwhile can see

- the old folder or the new one, each complete;
- some files of one and some of the other, since a path is looked up anew at each opening: a reader must be able to
  tell (by digests in one of the files), and begin again;
- no folder, between the two renames, or for good if the machine stops just there: the old one is then complete at
  `previous(folder)`, for readers to use; the next writer puts it back first.

One process at a time may write a folder.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from repose.system.errors import CheckpointError


def previous(folder: Path) -> Path:
    """Where the old folder is while the new one takes its name."""
    return folder.with_name(f".{folder.name}.old")


def replace_folder(folder: Path, files: Mapping[str, bytes], *, mark: str) -> None:
    """Make `folder` hold these files; what else lies in it stays.

    `mark` is the file by which a folder of this kind is known: another folder that is not empty is refused
    (CheckpointError). Raises OSError where it cannot be written; the old folder is then as it was.
    """
    staging, old = folder.with_name(f".{folder.name}.new"), previous(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if old.exists() and not folder.exists():
        old.rename(folder)
    if folder.exists() and not (folder / mark).exists() and any(folder.iterdir()):
        raise CheckpointError(f"{folder} holds something else than a model: choose a new or empty folder")
    _keep_strangers(old, folder, files)
    for leftover in (staging, old):
        if leftover.exists():
            shutil.rmtree(leftover)
    staging.mkdir()
    for name, data in files.items():
        with (staging / name).open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    _flush_names(staging)
    if folder.exists():
        folder.rename(old)
    try:
        staging.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
    _flush_names(folder.parent)
    if old.exists():
        _keep_strangers(old, folder, files)
        shutil.rmtree(old)


def _keep_strangers(old: Path, folder: Path, files: Mapping[str, bytes]) -> None:
    """Move what is none of our files from the old folder, if there is one, to the new."""
    for entry in list(old.iterdir()) if old.exists() else []:
        if entry.name not in files and not (folder / entry.name).exists():
            entry.rename(folder / entry.name)


def _flush_names(folder: Path) -> None:
    """Flush a folder's list of names to disk, on systems that let a folder be opened."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
