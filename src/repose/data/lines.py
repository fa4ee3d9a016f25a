"""Read lines of text files from unknown sources, plain, .gz or .xz, in constant memory.

They are in UTF-8, or in UTF-16 with a byte-order mark, as Excel's Unicode Text; anything else is a `DataError`.
"""

import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from repose.system.errors import DataError
from repose.system.terminal import quoted

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

AS_TEXT = "save a document as plain text in UTF-8, one sentence per line, and a spreadsheet as CSV in UTF-8"
PACKED: Mapping[str, Callable[[Path | BinaryIO], Any]] = {".gz": gzip.open, ".xz": lzma.open}
"""Functions that open compressed files for reading, by the ending of the file name."""
_DOCUMENTS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"%PDF-")
"""First bytes of zip files, such as those of Word, Excel and LibreOffice, of older Office files, and of PDF files."""
_PACKERS = {
    b"\x1f\x8b": "gzip: rename it to {}.gz",
    b"\xfd7zXZ\0": "xz: rename it to {}.xz",
    b"BZh91AY&SY": "bzip2: unpack it",
}
"""First bytes of compressed files: the program that packed them, and what to do about it."""
WHERE_ENCODING = (
    "where ENCODING is, for instance, cp1252 for Western Europe, cp1250 for Central Europe, cp1251 for Cyrillic, "
    "cp1253 for Greek, cp1254 for Turkish, cp1255 for Hebrew, cp1256 for Arabic, cp1257 for the Baltic languages, "
    "gb18030, cp932 or cp949"
)
"""The end of a sentence that says how to convert a file from ENCODING."""
_LOST = "if letters have become ? in it, no conversion brings them back: save it again, from a spreadsheet as CSV UTF-8"
_IN_EXCEL = ", in Excel by saving it as CSV UTF-8"
_UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
"""Encodings by their byte-order mark."""
_BLOCK, _PIECE = 1 << 20, 1 << 16


def on_one_line(text: str) -> str:
    """Return the text with line breaks replaced by spaces, so that it fits on one line of a file."""
    return " ".join(text.splitlines())


class LineReader:
    """The lines of a text file, plain, .gz or .xz, without line ends; read in one pass.

    The file is in UTF-8, or in UTF-16 if its byte-order mark says so.

    Lines end at "\\n" only: form feed, U+0085, U+2028 and a lone "\\r" are text. A "\\r" before the "\\n" is removed,
    and so is a byte-order mark at the beginning of the file. A line of more than `max_bytes` bytes is skipped without
    holding it in memory, and yielded as None. Raises `DataError` with file and line number for other encodings, for
    files that cannot be read, and for files whose only line ends are "\\r".
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path = path
        self.num_lines = 0
        """Lines read so far: the number of the latest line, from 1."""
        self.had_bom = False
        self.num_carriage_returns = 0
        """Lines so far that ended in "\\r\\n"."""
        self._max_bytes = max_bytes

    def __iter__(self) -> Iterator[str | None]:
        with _readable(self.path), opened(self.path) as packed:
            file = _in_utf_8(packed)
            bound = self._max_bytes + 2  # room for the line end
            while data := file.readline(bound + (len(codecs.BOM_UTF8) if self.num_lines == 0 else 0)):
                self.num_lines += 1
                if self.num_lines == 1 and data.startswith(codecs.BOM_UTF8):
                    self.had_bom = True
                    data = data.removeprefix(codecs.BOM_UTF8)
                    if not data:  # a file that holds only the mark has no lines
                        self.num_lines = 0
                        return
                ended = data.endswith(b"\n")
                line = data.removesuffix(b"\n")
                if ended and line.endswith(b"\r"):
                    line = line.removesuffix(b"\r")
                    self.num_carriage_returns += 1
                too_long = len(line) > self._max_bytes
                if too_long and not ended:
                    ended = _skip_line(file)
                if self.num_lines == 1:
                    self._refuse_other_kinds(line, ended)
                try:
                    yield None if too_long else line.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise DataError(
                        f"{self.path}, line {self.num_lines}: not UTF-8 (byte 0x{line[error.start]:02x} at position "
                        f"{error.start + 1}): convert the file to UTF-8{_IN_EXCEL * (self.path.suffix == '.csv')}"
                        f"{self._by_iconv('ENCODING', f', {WHERE_ENCODING}')}; {_LOST}"
                    ) from error

    def _refuse_other_kinds(self, first: bytes, ended: bool) -> None:
        """Raise DataError if the first line is that of another kind of file. `ended`: whether it has a line end."""
        if is_document(first):
            raise DataError(f"{self.path} is a file of Word, Excel or another program: {AS_TEXT}")
        if packed := next(filter(first.startswith, _PACKERS), b""):
            raise DataError(f"{self.path} is packed by {_PACKERS[packed].format(self.path.name)}")
        if first.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
            raise DataError(f"{self.path} is in UTF-32: save it in UTF-8{self._by_iconv('utf-32')}")
        if order := order_of_utf_16(first):
            by_iconv = self._by_iconv(f"utf-16{order}")
            raise DataError(f"{self.path} is in UTF-16 without a byte-order mark: save it in UTF-8{by_iconv}")
        if not ended and first.count(b"\r") > 1:
            old = "has no line feed but carriage returns, the line ends of old Macs"
            by_tr = self._by(r"tr '\r' '\n' <", "unix")
            raise DataError(f"{self.path} {old}: convert it{by_tr}")

    def _by_iconv(self, encoding: str, more: str = "") -> str:
        """Name the iconv command that converts the file, as the end of a sentence; empty for a compressed file."""
        command = self._by(f"iconv -f {encoding} -t utf-8", "utf8")
        return command and f", or{command}{more}"

    def _by(self, command: str, before: str) -> str:
        """Name the command that converts the file to a copy with `before` in its name; empty for a compressed file."""
        if self.path.suffix.lower() in PACKED:
            return ""
        old, new = (quoted(name) for name in (self.path, self.path.with_name(f"{before}.{self.path.name}")))
        return f" with `{command} {old} > {new}`"


class _Decoded(io.RawIOBase):
    """The bytes of a file in another encoding, in UTF-8."""

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        super().__init__()
        text = codecs.iterdecode(iter(lambda: file.read(_PIECE), b""), encoding)
        self._blocks = codecs.iterencode(text, "utf-8")
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        room = memoryview(buffer)
        self._rest = self._rest or next(self._blocks, b"")
        read, self._rest = self._rest[: len(room)], self._rest[len(room) :]
        room[: len(read)] = read
        return len(read)


def _in_utf_8(file: io.BufferedReader) -> io.BufferedReader:
    """Return a reader of the file's bytes in UTF-8, if its byte-order mark says that it is in UTF-16; else the file."""
    encoding = encoding_by_mark(file.peek(4))
    if encoding is None:
        return file
    return io.BufferedReader(_Decoded(file, encoding), _BLOCK)  # the mark stays, and becomes that of UTF-8


def beginning_of(path: Path) -> tuple[str, str]:
    """Return the first line of a file, shortened if it is long, and the file's encoding as iconv calls it.

    Raises `DataError` for a file that cannot be read.
    """
    data = next(blocks(path), b"")
    has_mark = data[:2] in _UTF_16
    order = order_of_utf_16(data.partition(b"\n")[0])
    encoding = f"utf-16{order}" if has_mark or order else "utf-8"
    return data.decode(encoding, errors="replace").partition("\n")[0], encoding


def blocks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, plain, .gz or .xz, in blocks. Raises `DataError` if it cannot be read."""
    with _readable(path), opened(path) as file:
        while block := file.read(_PIECE):
            yield block


def check_file(path: Path, *, again: bool = True) -> None:
    """Raise `DataError` unless `path` is a regular file that can be opened, or a pipe that is not read `again`."""
    with _readable(path):
        if path.is_dir():
            raise DataError(f"{path} is a folder: name a file in it")
        if path.is_fifo() and not again:
            return  # opening it would start reading it
        if path.exists() and not path.is_file():
            raise DataError(f"{path} is not a regular file, and data is read more than once: save it to a file first")
        path.open("rb").close()


def encoding_by_mark(begin: bytes) -> str | None:
    """Return the encoding of a file in UTF-16, by the byte-order mark with which it begins; None for any other."""
    is_utf_32 = begin.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE))
    return None if is_utf_32 else _UTF_16.get(begin[:2])


def is_document(line: bytes) -> bool:
    """Return whether a file that begins with this line is one of an office program, or a PDF file."""
    return line.startswith(_DOCUMENTS)


def order_of_utf_16(line: bytes) -> str:
    """Guess the byte order ("le" or "be") of a UTF-16 line without byte-order mark; "" if unclear.

    It is recognised by ASCII characters, of which every other byte is zero.
    """
    even, odd = line[::2], line[1::2]
    orders = {"le": (odd, even), "be": (even, odd)}
    return next(
        (order for order, (nul, others) in orders.items() if len(line) > 7 and not any(nul) and all(others)), ""
    )


def _skip_line(file: BinaryIO) -> bool:
    """Read to the end of the line; return whether it had a line end."""
    while (data := file.readline(_BLOCK)) and not data.endswith(b"\n"):
        pass
    return bool(data)


def opened(path: Path) -> io.BufferedReader:
    """Open a text file for reading, unpacked if its name ends in .gz or .xz."""
    # gzip's and lzma's own readline() are written in Python and several times slower than BufferedReader's.
    return io.BufferedReader(PACKED.get(path.suffix.lower(), io.FileIO)(path), _BLOCK)


@contextmanager
def unpackable(path: Path | str) -> Iterator[None]:
    """Raise DataError if the file cannot be unpacked inside the block."""
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is damaged or not what its name says ({error}): get or pack it again") from error


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise DataError if the file cannot be opened, or cannot be read or unpacked inside the block."""
    try:
        with unpackable(path):
            yield
    except UnicodeDecodeError as error:  # by `_Decoded`
        raise DataError(f"{path} is damaged: it has the mark of UTF-16 but is not in it: save it again") from error
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}: check the path") from error
    except OSError as error:
        why = error.strerror or error
        raise DataError(f"cannot read {path} ({why}): check the file and its permissions") from error
