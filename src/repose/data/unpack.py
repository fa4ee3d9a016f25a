"""Safe unpacking: single texts (plain, gzip, xz) and selected members of a tar archive.

An archive comes from an untrusted source, so nothing is written under a name that it chooses. The wanted members are
copied to paths that the caller names; every other member is only inspected. An archive is refused as a whole if any
member is a link, a device, or would land outside its folder, or if it unpacks to too much.
"""

import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

MAX_UNPACKED_BYTES = 1 << 30
"""Most bytes that an archive, or a text of unknown size, may unpack to: several times the size of the largest known
archive."""

MAX_MEMBERS = 10_000
"""Most entries of an archive."""

_CHUNK = 1 << 20
_MAX_ATTRIBUTES = 1 << 20
_ATTRIBUTES = (b"L", b"K", b"x", b"g", b"X")
"""Types of the headers before a member: its long name or link name (GNU), its attributes (pax, Solaris)."""
_Reader = IO[bytes] | gzip.GzipFile | lzma.LZMAFile


class BadCopyError(Exception):
    """A file that is damaged, unsafe or not the expected one.

    The message is a phrase that says what is wrong. The caller knows what to do about it: try the next mirror, or
    complete the sentence for the user.
    """


def unpack_text(source: Path, target: Path, max_bytes: int) -> None:
    """Copy `source` to `target`, uncompressed, whatever the name of `source` ends in.

    Raises BadCopyError if it is damaged or holds more than `max_bytes` bytes.
    """
    with _damage_as_bad_copy(source), _open(source) as reader:
        _copy(reader, target, max_bytes, source.name)


def list_members(archive: Path) -> list[str]:
    """Return the names of the regular files in a tar archive, in its order.

    Raises BadCopyError if the archive is unsafe.
    """
    with _damage_as_bad_copy(archive):
        return [name for name, _, _ in _files(archive)]


def extract_members(archive: Path, targets: Mapping[str, Path]) -> None:
    """Copy members to paths, as `targets` maps them. Raises BadCopyError if one is missing or unsafe."""
    missing = set(targets)
    with _damage_as_bad_copy(archive):
        for name, tar, member in _files(archive):
            if name in targets:
                reader = tar.extractfile(member)
                assert reader is not None, "a regular member has content"
                _copy(reader, targets[name], MAX_UNPACKED_BYTES, name)
                missing.discard(name)
    if missing:
        raise BadCopyError(f"it lacks {min(missing)}")


def _files(archive: Path) -> Iterator[tuple[str, tarfile.TarFile, tarfile.TarInfo]]:
    """Yield the regular members in one pass over the archive, checked, and named without a leading `./`."""
    total = 0
    with (
        _open(archive) as stream,
        # Headers and padding count here, so leave a margin; the sum of the members is checked exactly.
        tarfile.open(fileobj=_Bounded(stream, 2 * MAX_UNPACKED_BYTES + _CHUNK), mode="r|", tarinfo=_Member) as tar,
    ):
        for count, member in enumerate(tar, start=1):
            _refuse_hostile(member)
            total += member.size
            if total > MAX_UNPACKED_BYTES or count > MAX_MEMBERS:
                raise BadCopyError(f"it unpacks to more than {MAX_UNPACKED_BYTES:,} bytes or {MAX_MEMBERS:,} files")
            if member.isreg():
                yield str(PurePosixPath(member.name)), tar, member


class _Member(tarfile.TarInfo):
    """A member whose name or other attributes are not read if they are megabytes: `tarfile` holds them in memory."""

    def _proc_member(self, tarfile_: tarfile.TarFile) -> tarfile.TarInfo:
        """Override the entry point that the library's source names for subclasses."""
        if self.type in _ATTRIBUTES and self.size > _MAX_ATTRIBUTES:
            raise BadCopyError("it holds a name, or other attributes, of megabytes")
        return super()._proc_member(tarfile_)  # type: ignore[misc]


def _refuse_hostile(member: tarfile.TarInfo) -> None:
    """Raise BadCopyError for a member that is neither file nor folder, or that unpacking could write elsewhere."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or PureWindowsPath(path).drive or {"\\", "\0"} & set(member.name):
        kind = "a path that leaves its folder"
    elif member.issym() or member.islnk():
        kind = "a link"
    elif not (member.isreg() or member.isdir()):
        kind = "a device"
    elif member.issparse():
        # The size in its header is not the member's, so the sum of sizes would not bound it.
        kind = "a sparse file"
    else:
        return
    raise BadCopyError(f"it holds {kind} ({member.name!r}) and is not safe to unpack")


def _open(path: Path) -> _Reader:
    """Open a file for reading, uncompressed. The first bytes decide the compression, since names may be wrong."""
    with path.open("rb") as file:
        magic = file.read(6)
    if magic.startswith(b"\x1f\x8b"):
        return gzip.open(path, "rb")
    return lzma.open(path, "rb") if magic == b"\xfd7zXZ\x00" else path.open("rb")


def _copy(reader: _Reader, target: Path, max_bytes: int, name: str) -> None:
    size = 0
    with target.open("wb") as writer:
        while chunk := reader.read(_CHUNK):
            size += len(chunk)
            if size > max_bytes:
                raise BadCopyError(f"{name} unpacks to more than the {max_bytes:,} bytes expected")
            writer.write(chunk)


@contextmanager
def _damage_as_bad_copy(path: Path) -> Iterator[None]:
    """Turn decoders' errors into BadCopyError; let errors of the disk pass."""
    try:
        yield
    except RecursionError as error:
        raise BadCopyError(f"{path.name} cannot be unpacked (too many headers in front of one file)") from error
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, ValueError) as error:
        raise BadCopyError(f"{path.name} cannot be unpacked ({str(error) or 'it ends early'})") from error


class _Bounded(io.RawIOBase):
    """A stream that always ends: at `limit` bytes, against archives that unpack without end, and at its own end.

    Its own end matters because `tarfile` skips a member by reading on for as many blocks as a forged header claims,
    without checking whether any data still comes.
    """

    def __init__(self, stream: _Reader, limit: int) -> None:
        super().__init__()
        self._stream = stream
        self._left = limit
        self._patience = 10

    def read(self, size: int = -1) -> bytes:
        chunk = self._stream.read(min(size, _CHUNK) if size >= 0 else _CHUNK)
        self._left -= len(chunk)
        self._patience -= not chunk
        if self._left < 0:
            raise BadCopyError("it unpacks to too much")
        if self._patience < 0:
            raise EOFError("it ends early")
        return chunk
