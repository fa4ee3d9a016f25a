"""Files that are never seen half-written, folders that are replaced as a whole, and locks between processes.

A file or a folder is written under a temporary name beside its place and then renamed, which a file system does in one
step. No system call that Python knows replaces a folder that is there, so a folder takes two renames: the old one is
renamed away and the new one takes its name. Whoever reads the files of a folder one by one meanwhile can see

- the old folder or the new one, each complete;
- some files of one and some of the other, since a path is looked up anew at each opening: a reader must be able to
  tell (by digests in one of the files), and begin again;
- no folder, between the two renames, or for good if the machine stops just there: the old one is then complete at
  `previous(folder)`, for readers to use; the next writer puts it back first.

One process at a time may write a folder. Locks are the operating system's (flock), so they die with their process.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import time
import weakref
import zlib
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repose.system.errors import BusyError, ConfigError, WriteError

if TYPE_CHECKING:
    from filelock import BaseFileLock

_SEAL = "own_crc32"
_MOMENT = 0.05
"""Seconds that a lock may be held by somebody who only looks whether it is."""
_TRIES = 5
"""Times that a lock file is looked for which was there and is not, before it counts as one that cannot be made."""
_PATIENCE = 2.0 if os.name == "nt" else 0.0
"""Seconds for which a renaming is tried again: Windows refuses it while anybody has the file, or one of the folder,
open, be it a virus scanner or whoever reads a record just then."""
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_file(path: Path) -> bytes:
    """The content of a file. Raises OSError, for a pipe or a device too, of which reading might never end."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.read_bytes()


def checked_path(name: str, value: object) -> Path:
    """A path that a caller gives as `name`. Raises ConfigError for what is none."""
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
    """Raises WriteError where a folder of this name could not be made or written to."""
    nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise WriteError(f"{folder} cannot be written, {nearest} is a file: choose another folder")
    if not os.access(nearest, os.W_OK):
        raise WriteError(f"{folder} cannot be written, nothing may be written in {nearest}: choose another folder")


def write_file(path: Path, data: str | bytes, *, durable: bool = False) -> None:
    """Write a file whole or not at all; see `replacing_file`. Text is written as UTF-8, line feeds as they are."""
    with replacing_file(path, durable=durable) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


def write_json(path: Path, content: object) -> None:
    """Write a value as indented JSON, whole or not at all; see `replacing_file`."""
    write_file(path, json_bytes(json.dumps(content, indent=2, ensure_ascii=False) + "\n"))


def write_new_json(path: Path, content: object) -> bool:
    """Write a value as indented JSON, whole, unless there is a file of that name; whether it was written.

    Of several processes that do this at once, one does. On a file system without hard links the last one wins.
    """
    temporary = _half_written(path)
    write_json(temporary, content)
    with writing(path):
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError:
            write_json(path, content)
        finally:
            temporary.unlink(missing_ok=True)
    return True


def json_bytes(text: str) -> bytes:
    """JSON as UTF-8. Bytes of file names that are not UTF-8 are surrogates in Python, which JSON writes as escapes."""
    return text.encode(errors="backslashreplace")


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with a checksum of itself."""
    return {**content, _SEAL: _seal(content)}


def unsealed(content: Mapping[str, Any]) -> dict[str, Any] | None:
    """The object without its checksum; None where it has changed since. One that has none is taken as it is."""
    bare = {name: value for name, value in content.items() if name != _SEAL}
    return bare if content.get(_SEAL) in (None, _seal(bare)) else None


def _seal(content: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"


@contextlib.contextmanager
def replacing_file(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A temporary path; the file written there takes the place of `path` when the block ends without an error.

    The folder is made where it is missing. Any number of processes may do this at once: the last one wins.
    `durable` has the data on disk before the file takes its place, so that not even a power cut leaves half of it.
    Raises WriteError where the file cannot be written, a full disk for instance; what was at `path` then stays.
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
    """A new name for a file until it is whole."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def name_when_whole(name: str) -> str | None:
    """What a half-written file of this name was to be called; None for the name of any other file."""
    found = re.fullmatch(r"\.(.+)\.[0-9a-f]+\.tmp", name)
    return None if found is None else found[1]


def remove_half_written(folder: Path, name: str | None = None) -> None:
    """Remove what processes that were killed in `replacing_file` left in a folder, when none is at work there; with
    `name`, of that file alone."""
    for path in folder.glob(".*.tmp"):
        whole = name_when_whole(path.name)
        if whole is not None and name in (None, whole):
            path.unlink(missing_ok=True)


def previous(folder: Path) -> Path:
    """The place of the old folder while the new one takes its name."""
    folder = folder if folder.name else folder.absolute()  # "." has none
    return folder.with_name(f".{folder.name}.old")


@contextlib.contextmanager
def replacing_folder(folder: Path, *, keep_all_but: Container[str] | None = None) -> Iterator[Path]:
    """An empty temporary folder, which takes the place of `folder` when the block ends without an error.

    With `keep_all_but`, whatever lies in the old folder under other names than these moves into the new one; without
    it, the old folder goes as a whole. One process at a time (module docstring). Raises WriteError where it cannot be
    written; the old folder is then as it was.
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
            time.sleep(_MOMENT / 5)


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
    """Move other files than ours from the old folder, if there is one, to the new."""
    if ours is not None and old.exists():
        for entry in list(old.iterdir()):
            if entry.name not in ours and not (folder / entry.name).exists():
                entry.rename(folder / entry.name)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Within, what the operating system refuses is a WriteError about `path`."""
    try:
        yield
    except OSError as error:
        if isinstance(error.filename, str) and not _is_of(Path(error.filename).absolute(), path.absolute()):
            raise  # something that the block read
        raise WriteError(
            f"{path} cannot be written ({error.strerror or error}): make room, or choose a place that can be written to"
        ) from error


def _is_of(about: Path, path: Path) -> bool:
    """Whether `about` is `path`, in it, above it, or the file or folder beside it that is to take its place."""
    return (
        about.is_relative_to(path)
        or path.is_relative_to(about)
        or (about.is_relative_to(path.parent) and about.relative_to(path.parent).parts[0].startswith(f".{path.name}"))
    )


def _flush(path: Path) -> None:
    """Have a file's data on disk, or a folder's list of names where the system lets a folder be opened."""
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksums(folder: Path) -> dict[str, int]:
    """CRC-32 of every file in a folder, hidden ones apart, by its path within: cheap, and finds what a disk damages."""
    paths = (path for path in sorted(folder.rglob("[!.]*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): _crc32(path) for path in paths}


def _crc32(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            crc = zlib.crc32(block, crc)
    return crc


@contextlib.contextmanager
def locked(path: Path, *, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock file `path`, waiting for it as long as need be; `on_wait` is called once before that.

    The file is made where it is missing and stays. On a file system without locks (some network file systems) it goes
    on at once: what is written under this lock must be whole even so. Raises WriteError where the file cannot be made.
    """
    with contextlib.ExitStack() as stack:
        if not stack.enter_context(trying_lock(path)):
            on_wait()
            stack.enter_context(trying_lock(path, wait=True))
        yield


@contextlib.contextmanager
def locked_or_busy(path: Path, holder_does: str) -> Iterator[None]:
    """Hold the lock file `path`, or raise BusyError at once where another process does.

    `holder_does` ends the sentence that begins with that process: "is training in runs/x: wait for it". The file is
    made where it is missing, and removed at the end. Raises WriteError where it cannot be made or the file system has
    no locks.
    """
    try:
        lock = _acquired(path)
    except OSError as error:
        raise _cannot_lock(path, error) from error
    if lock is None:
        raise BusyError(f"{_holder(path)} {holder_does}")
    try:
        _sign(path)
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            if path.read_text(encoding="utf-8") == _signature():  # no other process made it anew after a move
                path.unlink()  # while it is held: who waits for it finds that it is gone, and makes its own
        lock.release()


@contextlib.contextmanager
def trying_lock(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Whether this process holds the lock file `path` within: not where another does, unless this one is to `wait`.

    On a file system without locks it does, too (see `locked`). Raises WriteError where the file cannot be made.
    """
    with contextlib.ExitStack() as stack:
        held = True
        try:
            lock = _acquired(path, wait=wait)
            held = lock is not None
            if lock is not None:
                stack.callback(lock.release)
                _sign(path)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise _cannot_lock(path, error) from error
        yield held


def remove_held(path: Path) -> None:
    """Remove a lock file that this process holds, if it is there: who waits for it makes its own. Windows refuses that;
    there the file goes when the lock is let go."""
    with contextlib.suppress(PermissionError):
        path.unlink(missing_ok=True)


def share_lock(path: Path, owner: object) -> None:
    """Hold the lock file `path` together with others who share it, until `owner` is gone or this process ends.

    Nobody can hold it alone meanwhile, and whoever does is waited for. The file is made where it is missing and stays.
    Where it cannot be shared (on Windows, without locks, where the file cannot be made) it goes on without.
    """
    with contextlib.suppress(ImportError, OSError):
        import fcntl  # filelock's shared locks are a database

        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
        weakref.finalize(owner, os.close, descriptor).atexit = False  # other threads may still go on
        fcntl.flock(descriptor, fcntl.LOCK_SH)


def making_lock(place: Path) -> Path:
    """The lock file that a process holds while it makes a folder, or removes it."""
    return place.with_name(f".{place.name}.lock")


def using_lock(place: Path) -> Path:
    """The lock file that all share which use a folder of the cache."""
    return place.with_name(f".{place.name}.used")


def lock_holder(path: Path) -> str | None:
    """Who holds the lock file `path`, such as "process 123 on node7"; None where nobody does.

    Raises OSError where the file is there but cannot be opened.
    """
    if not path.exists():
        return None
    lock = _acquired(path)
    if lock is None:
        return _holder(path)
    lock.release()
    return None


def _acquired(path: Path, *, wait: bool = False) -> "BaseFileLock | None":
    """The lock, acquired; None where another holds it. Raises OSError where the file cannot be locked."""
    from filelock import FileLock, Timeout  # 50 ms, which most commands need not spend

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    for _ in range(_TRIES):
        try:
            if wait:
                lock.acquire()
            else:
                lock.acquire(timeout=_MOMENT, poll_interval=_MOMENT / 5)
            return lock
        except Timeout:
            if path.exists():
                return None
    # Others may remove it again and again, but in a folder such as /proc there is never one.
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def _sign(path: Path) -> None:
    """Write into the held lock file who holds it. Where that fails (on Windows), others do not learn it."""
    with contextlib.suppress(OSError):
        path.write_text(_signature(), encoding="utf-8")


def _signature() -> str:
    return f"{os.getpid()} on {socket.gethostname()}\n"


def _holder(path: Path) -> str:
    try:
        words = path.read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        words = []
    return f"process {' '.join(words)}" if words else "another process"


def _cannot_lock(path: Path, error: OSError) -> WriteError:
    if (file := next((place for place in path.parents if place.is_file()), None)) is not None:
        return WriteError(f"{file} is a file: name a folder")
    return WriteError(
        f"{path} cannot be locked ({error.strerror or error}): choose a folder that can be written to, on a file "
        "system that has locks"
    )
