"""Where a job is stored: a folder of a file system, or of an object store by URL (`s3://`, `gs://`; library fsspec).

A file under its final name is complete, because it is first written elsewhere. Nothing here requires more of a store.
"""

import contextlib
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

from repose.system.errors import ConfigError, DataError, WriteError, of_extra
from repose.system.files import remove_half_written, replacing_file, write_file
from repose.system.locks import locked, trying_lock

_BLOCK = 1 << 20


def is_url(name: str) -> bool:
    """Return whether a name is one that fsspec opens."""
    return "://" in name


def normalised(name: str) -> str:
    """Return a URL unchanged, and a path, or a `file://` URL, as an absolute path."""
    if name.startswith("file://"):
        name = unquote(name.removeprefix("file://"))
    return name if is_url(name) else str(Path(name).absolute())


def open_input(name: str) -> BinaryIO:
    """Open a file for reading; the file can seek. Raises DataError if it is missing or cannot be read."""
    try:
        if not is_url(name):
            if not Path(name).is_file():
                what = "there is no file" if not Path(name).exists() else "this is not a regular file:"
                raise DataError(f"{what} {name}: check the path")
            return Path(name).open("rb", buffering=_BLOCK)
        fs, path = _fsspec(name)
        return fs.open(path, "rb")
    except OSError as error:
        raise _unreadable(name, error) from error


def stamp(name: str) -> str:
    """Return a value that changes when a file does, as far as can be known without reading it. Raises DataError if the
    file is missing or out of reach."""
    try:
        if not is_url(name):
            found = Path(name).stat()
            return f"{found.st_size} {found.st_mtime_ns}"
        fs, path = _fsspec(name)
        info = fs.info(path)
        marks = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "created")
        mark = next((info[key] for key in marks if key in info), "")
        return f"{info['size']} {mark}"
    except FileNotFoundError as error:
        raise DataError(f"there is no file {name}: check the path") from error
    except OSError as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: OSError) -> DataError:
    return DataError(f"{name} cannot be read ({error.strerror or error}): check the path and its rights")


def _fsspec(url: str) -> tuple[Any, str]:
    with of_extra("urls", f"{url} needs fsspec"):
        import fsspec
    try:
        fs, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:  # the library of that store is missing, or there is no such store
        raise ConfigError(f"{url} cannot be opened: {error}") from error
    return fs, path


class Store(ABC):
    """The folder of a job. Names of files are relative, with slashes."""

    @staticmethod
    def at(where: str) -> "Store":
        """Return the store at a path or a URL. Raises ConfigError for a URL that cannot be opened."""
        place = normalised(where)
        return UrlStore(place) if is_url(place) else FolderStore(Path(place))

    where: str
    """Path or URL of the folder."""

    def place(self, name: str) -> str:
        """Return the path or URL of a file in the store."""
        return f"{self.where.rstrip('/')}/{name}"

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return a file's content; None if there is no such file."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Return a file's size in bytes; None if there is no such file."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the sorted names of the files in a folder, without the folder's name."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Write a file whole or not at all. Raises WriteError."""

    @abstractmethod
    def replacing(self, name: str) -> contextlib.AbstractContextManager[Path]:
        """Yield a temporary path on this machine. Its file is moved to `name` when the block ends without an error.

        Raises WriteError.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if it exists; on Windows, only if nobody has it open."""

    @abstractmethod
    def claimed(self, name: str) -> contextlib.AbstractContextManager[bool]:
        """Within the block, hold the lock file `name` if nobody else does; yield whether it is held. A store without
        locks always yields True."""

    @abstractmethod
    def locked(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Wait for the lock file `name`, and hold it within the block. A store without locks does not wait."""

    @abstractmethod
    def remove_half_written(self, name: str) -> None:
        """Remove what killed processes left of this file, if no process is writing it."""


class FolderStore(Store):
    """A store in a folder of a file system."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.where = folder, str(folder)

    def read(self, name: str) -> bytes | None:
        try:
            return (self.folder / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def size(self, name: str) -> int | None:
        try:
            return (self.folder / name).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, folder: str) -> list[str]:
        place = self.folder / folder
        return sorted(path.name for path in place.iterdir() if path.is_file()) if place.is_dir() else []

    def write(self, name: str, data: bytes) -> None:
        write_file(self.folder / name, data, durable=True)

    def replacing(self, name: str) -> contextlib.AbstractContextManager[Path]:
        return replacing_file(self.folder / name, durable=True)

    def remove(self, name: str) -> None:
        with contextlib.suppress(PermissionError):  # on Windows
            (self.folder / name).unlink(missing_ok=True)

    def claimed(self, name: str) -> contextlib.AbstractContextManager[bool]:
        return trying_lock(self.folder / name)

    def locked(self, name: str) -> contextlib.AbstractContextManager[None]:
        return locked(self.folder / name)

    def remove_half_written(self, name: str) -> None:
        path = self.folder / name
        remove_half_written(path.parent, path.name)


class UrlStore(Store):
    """A store in an object store. A part is written to this machine's disk and then uploaded, which is a single
    step."""

    def __init__(self, url: str) -> None:
        self.where = url
        self._fs, self._root = _fsspec(url)

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def read(self, name: str) -> bytes | None:
        try:
            return self._fs.cat_file(self._path(name))
        except FileNotFoundError:
            return None

    def size(self, name: str) -> int | None:
        try:
            return int(self._fs.info(self._path(name))["size"])
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        try:
            found = self._fs.ls(self._path(folder), detail=True, refresh=True)
        except FileNotFoundError:
            return []
        return sorted(entry["name"].rpartition("/")[2] for entry in found if entry["type"] == "file")

    def write(self, name: str, data: bytes) -> None:
        with self._writing(name):
            self._fs.pipe_file(self._path(name), data)

    @contextlib.contextmanager
    def replacing(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="repose-") as folder:
            temporary = Path(folder) / "part"
            yield temporary  # errors of the block are its own
            with self._writing(name):
                self._fs.put_file(str(temporary), self._path(name))

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name))

    def claimed(self, name: str) -> contextlib.AbstractContextManager[bool]:
        return contextlib.nullcontext(True)

    def locked(self, name: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def remove_half_written(self, name: str) -> None:
        """Do nothing: a file appears only once it is complete."""

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        """Make the folder of a file that is written within the block. Raises WriteError."""
        try:
            self._fs.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)
            yield
        except OSError as error:
            raise WriteError(
                f"{self.place(name)} cannot be written ({error.strerror or error}): run it again"
            ) from error


def blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield a file's bytes in blocks, to its end."""
    while block := file.read(_BLOCK):
        yield block


def reads_of_range(file: BinaryIO, start: int, end: int) -> Callable[[int], bytes]:
    """Return a function that reads like `file.read`, from `start` up to `end`."""
    file.seek(start)
    left = end - start

    def read(size: int) -> bytes:
        nonlocal left
        data = file.read(min(size, left))
        left -= len(data)
        return data

    return read
