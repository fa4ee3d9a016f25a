"""Files that are never seen half-written, and folders that are replaced as a whole.

A file or folder is written under a temporary name in the same directory and then renamed, which a file system does in
one step. Python has no system call that replaces an existing folder, so a folder takes two renames: the old one is
renamed away, and the new one takes its name. A reader that opens the folder's files one by one meanwhile may see

- the old folder or the new one, each complete;
- some files of each, since every opening looks the path up anew: a reader must be able to detect this (by digests in
  one of the files), and start again;
- no folder, between the two renames, or permanently if the machine stops at that moment: the old one is then complete
  at `previous(folder)`, where readers may use it; the next writer puts it back first.

Only one process at a time may write a folder: see locks.py.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import time
import zlib
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any

from repose.system.errors import ConfigError, WriteError

_SEAL = "own_crc32"
_PATIENCE = 2.0 if os.name == "nt" else 0.0
"""Seconds for which a rename is retried. Windows refuses to rename a file, or a folder with a file, that anybody has
open, for instance a virus scanner or a process that is just reading a record."""


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_file(path: Path) -> bytes:
    """Read a file. Raises OSError, also for a pipe or a device, where reading might never end."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.read_bytes()


def checked_path(name: str, value: object) -> Path:
    """Return a caller's argument as a path.

    `name` is the argument's name in errors. Raises ConfigError if it is not a path.
    """
    try:
        if isinstance(value, str | os.PathLike) and b"\0" not in os.fsencode(value):
            return Path(os.fsdecode(value))
    except UnicodeEncodeError:  # a lone surrogate
        pass
    shown = f"{value!a}"
    if len(shown) > 60:
        shown = f"an object of the class {type(value).__name__}"
    remedy = ": save it to one first, with its method save" if hasattr(value, "save") else ""
    raise ConfigError(f"{name} is {shown}, but must be the path of a folder{remedy}")


def check_writable(folder: Path) -> None:
    """Raise WriteError if a folder of this name could not be created or written to."""
    nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise WriteError(f"{folder} cannot be written, {nearest} is a file: choose another folder")
    if not os.access(nearest, os.W_OK):
        raise WriteError(f"{folder} cannot be written, nothing may be written in {nearest}: choose another folder")


def write_file(path: Path, data: str | bytes, *, durable: bool = False) -> None:
    """Write a file whole or not at all; see `replacing_file`. Text is written as UTF-8, with line feeds unchanged."""
    with replacing_file(path, durable=durable) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


def write_json(path: Path, content: object) -> None:
    """Write a value as indented JSON, whole or not at all; see `replacing_file`."""
    write_file(path, _indented(content))


def _indented(content: object) -> bytes:
    return json_bytes(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_new_json(path: Path, content: object) -> bool:
    """Write a value as indented JSON, whole, unless the file exists already; return whether it was written.

    If several processes do this at once, one of them writes. On a file system without hard links, the last one wins.
    """
    temporary = _half_written(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(_indented(content))
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            except OSError:  # no hard links
                _patiently(temporary.replace, path)
        finally:
            temporary.unlink(missing_ok=True)
    return True


def json_bytes(text: str) -> bytes:
    """Return JSON as UTF-8.

    File names that are not UTF-8 contain surrogates in Python, which are written as JSON escapes.
    """
    return text.encode(errors="backslashreplace")


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with a checksum of its content added."""
    return {**content, _SEAL: _seal(content)}


def unsealed(content: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the object without its checksum; None if it has changed since.

    Without a checksum, it is returned as it is.
    """
    bare = {name: value for name, value in content.items() if name != _SEAL}
    return bare if content.get(_SEAL) in (None, _seal(bare)) else None


def _seal(content: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"


@contextlib.contextmanager
def replacing_file(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path; the file written there replaces `path` if the block ends without an error.

    The folder is created if it is missing. Any number of processes may do this at once: the last one wins. `durable`
    flushes the data to disk before the file takes its place, so that even a power cut does not leave half of it. Raises
    WriteError if the file cannot be written, for instance on a full disk; the file at `path` is then unchanged.
    """
    temporary = _half_written(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            if durable:
                _flush(temporary)
            _patiently(temporary.replace, path)
            if durable:
                _flush(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def _half_written(path: Path) -> Path:
    """Return a new temporary name for a file that is being written."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def name_when_whole(name: str) -> str | None:
    """Return the final name of a half-written file, given its temporary name; None for the name of any other file."""
    found = re.fullmatch(r"\.(.+)\.[0-9a-f]+\.tmp", name)
    return None if found is None else found[1]


def remove_half_written(folder: Path, name: str | None = None) -> None:
    """Remove files that killed processes left in a folder during `replacing_file`.

    Call it only when nobody writes there. With `name`, only remnants of that file are removed.
    """
    for path in folder.glob(".*.tmp"):
        whole = name_when_whole(path.name)
        if whole is not None and name in (None, whole):
            path.unlink(missing_ok=True)


def previous(folder: Path) -> Path:
    """Return where the old folder is while the new one takes its name."""
    folder = folder if folder.name else folder.absolute()  # "." has none
    return folder.with_name(f".{folder.name}.old")


@contextlib.contextmanager
def replacing_folder(folder: Path, *, keep_all_but: Container[str] | None = None) -> Iterator[Path]:
    """Yield an empty temporary folder that replaces `folder` if the block ends without an error.

    With `keep_all_but`, everything in the old folder under other names than these moves into the new one. Without it,
    the whole old folder is deleted. Only one process at a time may do this (see the module docstring). Raises
    WriteError if the folder cannot be written; the old folder is then unchanged.
    """
    temporary, old = folder.with_name(f".{folder.name}.new"), previous(folder)
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if old.exists() and not folder.exists():
            _patiently(old.rename, folder)
        _move_others(old, folder, keep_all_but)
        for leftover in (temporary, old):
            if leftover.exists():
                shutil.rmtree(leftover)
        temporary.mkdir()
        try:
            yield temporary
            for entry in temporary.rglob("*"):
                if entry.is_file() or entry.is_dir():
                    _flush(entry)
            _flush(temporary)
            _swap(temporary, folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        if old.exists():
            _move_others(old, folder, keep_all_but)
            shutil.rmtree(old)


def _patiently(rename: Callable[[Path], Path], name: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            rename(name)
            return
        except PermissionError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.01)


def _swap(temporary: Path, folder: Path) -> None:
    old = previous(folder)
    if folder.exists():
        _patiently(folder.rename, old)
    try:
        _patiently(temporary.rename, folder)
    except OSError:
        if old.exists():
            _patiently(old.rename, folder)
        raise
    _flush(folder.parent)


def _move_others(old: Path, folder: Path, ours: Container[str] | None) -> None:
    """Move files that are not ours from the old folder, if there is one, to the new one."""
    if ours is not None and old.exists():
        for entry in list(old.iterdir()):
            if entry.name not in ours and not (folder / entry.name).exists():
                entry.rename(folder / entry.name)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of the operating system inside the block into a WriteError about `path`."""
    try:
        yield
    except OSError as error:
        if isinstance(error.filename, str) and not _is_of(Path(error.filename).absolute(), path.absolute()):
            raise  # about something that the block read
        raise WriteError(
            f"{path} cannot be written ({error.strerror or error}): make room, or choose a place that can be written to"
        ) from error


def _is_of(about: Path, path: Path) -> bool:
    """Return whether `about` is `path`, inside it, above it, or the temporary file or folder that is to replace it."""
    return (
        about.is_relative_to(path)
        or path.is_relative_to(about)
        or (about.is_relative_to(path.parent) and about.relative_to(path.parent).parts[0].startswith(f".{path.name}"))
    )


def _flush(path: Path) -> None:
    """Flush a file's data to disk, or a folder's list of names if the system can open a folder."""
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksums(folder: Path) -> dict[str, int]:
    """Return the CRC-32 of each file in a folder by its path within, except hidden files.

    It is cheap to compute and detects damage by the disk.
    """
    paths = (path for path in sorted(folder.rglob("[!.]*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): _crc32(path) for path in paths}


def _crc32(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            crc = zlib.crc32(block, crc)
    return crc
