"""Unpacking: single texts (plain, gzip, xz) and chosen members of a tar archive.

An archive comes from a stranger. Nothing of it is written under a name of its own choosing: the files wanted are copied
to paths that the caller names, and no other member is unpacked. What unpacks to too much is refused.
"""

import gzip
import lzma
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

MAX_UNPACKED_BYTES = 1 << 30
"""What an archive, or a text of unknown size, may unpack to: several times what the largest known archive does."""

MAX_MEMBERS = 10_000
"""How many entries an archive may have."""

_CHUNK = 1 << 20
_Reader = IO[bytes] | gzip.GzipFile | lzma.LZMAFile


class BadCopyError(Exception):
    """A file is damaged or not what it should be.

    The message is a phrase that says what is wrong. Who asked for the file knows what can be done about it and makes
    the sentence: try the next mirror, or tell the user.
    """


def unpack_text(source: Path, target: Path, max_bytes: int) -> None:
    """Copy `source`, uncompressed whatever its name ends in, to `target`.

    Raises BadCopyError where it is damaged or holds more than `max_bytes` bytes.
    """
    with _damage_as_bad_copy(source), _open(source) as reader:
        _copy(reader, target, max_bytes, source.name)


def list_members(archive: Path) -> list[str]:
    """Names of the regular files in a tar archive, in its order; BadCopyError where it is damaged or holds too much."""
    with _damage_as_bad_copy(archive), tarfile.open(archive) as tar:
        return [name for name, _ in _files(tar)]


def extract_members(archive: Path, targets: Mapping[str, Path]) -> None:
    """Copy the members that `targets` names to the paths it gives; BadCopyError where one is missing or damaged."""
    missing = set(targets)
    with _damage_as_bad_copy(archive), tarfile.open(archive) as tar:
        for name, member in _files(tar):
            if name in targets:
                reader = tar.extractfile(member)
                assert reader is not None, "a regular member has content"
                _copy(reader, targets[name], MAX_UNPACKED_BYTES, name)
                missing.discard(name)
    if missing:
        raise BadCopyError(f"it lacks {min(missing)}")


def _files(tar: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """The regular members in one pass over the archive, each named without a leading `./`."""
    total = 0
    for count, member in enumerate(tar, start=1):
        total += member.size
        if total > MAX_UNPACKED_BYTES or count > MAX_MEMBERS:
            raise BadCopyError(f"it unpacks to more than {MAX_UNPACKED_BYTES:,} bytes or {MAX_MEMBERS:,} files")
        if member.isreg():
            yield str(PurePosixPath(member.name)), member


def _open(path: Path) -> _Reader:
    """Open for reading, uncompressed; the first bytes tell the compression, since names lie."""
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
    """Decoders' errors as BadCopyError; errors of the disk pass."""
    try:
        yield
    except RecursionError as error:
        raise BadCopyError(f"{path.name} cannot be unpacked (too many headers in front of one file)") from error
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, ValueError) as error:
        raise BadCopyError(f"{path.name} cannot be unpacked ({str(error) or 'it ends early'})") from error
