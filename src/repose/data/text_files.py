"""Lines of text files that may be hostile, in constant memory."""

import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from repose.system.errors import DataError

_BLOCK = 1 << 20
_BOM = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """One line."""

    number: int
    """From 1."""
    text: str | None
    """Without its line end; None where it is longer than the reader's bound."""


class LineReader:
    """The lines of a UTF-8 text file, plain, .gz or .xz, one pass over them.

    Lines end at "\\n" only: form feed, U+0085, U+2028 and a lone "\\r" are text. A "\\r" before the "\\n" and a
    byte-order mark at the file's beginning are taken away. A line of more than `max_bytes` bytes is skipped over
    without being held in memory. Raises `DataError` with file and line number for anything else than UTF-8, and for
    files that cannot be read.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path = path
        self.num_lines = 0
        """Lines read so far."""
        self.had_bom = False
        self.num_carriage_returns = 0
        """Lines that ended in "\\r\\n" so far."""
        self._max_bytes = max_bytes

    def __iter__(self) -> Iterator[Line]:
        with _readable(self.path), _open(self.path) as file:
            bound = self._max_bytes + 2  # room for the line end
            while data := file.readline(bound + (len(_BOM) if self.num_lines == 0 else 0)):
                self.num_lines += 1
                if self.num_lines == 1 and data.startswith(_BOM):
                    self.had_bom = True
                    data = data.removeprefix(_BOM)
                    if not data:  # a file of nothing but the mark has no line
                        self.num_lines = 0
                        return
                ended = data.endswith(b"\n")
                line = data.removesuffix(b"\n")
                if ended and line.endswith(b"\r"):
                    line = line.removesuffix(b"\r")
                    self.num_carriage_returns += 1
                if len(line) > self._max_bytes:
                    if not ended:
                        _skip_line(file)
                    yield Line(self.num_lines, None)
                else:
                    yield Line(self.num_lines, self._decoded(line))

    def _decoded(self, line: bytes) -> str:
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.path}, line {self.num_lines}: not UTF-8 (byte 0x{line[error.start]:02x} at position "
                f"{error.start + 1}): convert the file to UTF-8"
            ) from error


def check_file(path: Path) -> None:
    """Raise `DataError` unless `path` is a regular file that can be opened."""
    with _readable(path):
        if path.is_dir():
            raise DataError(f"{path} is a folder: name a file in it")
        if path.exists() and not path.is_file():
            raise DataError(f"{path} is not a regular file, and data is read more than once: save it to a file first")
        path.open("rb").close()


def _skip_line(file: BinaryIO) -> None:
    while (data := file.readline(_BLOCK)) and not data.endswith(b"\n"):
        pass


def _open(path: Path) -> BinaryIO:
    match path.suffix.lower():
        case ".gz":
            return _buffered(gzip.open(path, "rb"))
        case ".xz":
            return _buffered(lzma.open(path, "rb"))
        case _:
            return path.open("rb", buffering=_BLOCK)


def _buffered(file: gzip.GzipFile | lzma.LZMAFile) -> BinaryIO:
    # Their own readline() is written in Python and several times slower than BufferedReader's.
    return io.BufferedReader(file, _BLOCK)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}: check the path") from error
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is damaged or not what its name says ({error}): get or pack it again") from error
    except OSError as error:
        raise DataError(
            f"cannot read {path} ({error.strerror or error}): check the file and its permissions"
        ) from error
