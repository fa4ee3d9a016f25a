"""Read untrusted zip archives within limits, and write them again with some members changed."""

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from itertools import groupby

from repose.system.errors import DataError

MOST_MEMBERS, MOST_MEMBER_BYTES, MOST_BYTES = 4000, 64 << 20, 256 << 20
"""Maximum number of members, bytes of an unpacked member, and bytes of all of them."""
_MOST_GROWTH, _MEBIBYTE = 100, 1 << 20
"""Maximum of unpacked bytes per packed byte, for members that unpack to more than a mebibyte."""
_SAVE = "save the document again"
_UNLOCK = "save it in a newer format, such as .docx, .pptx or .odt, without a password"
_COMPOUND = bytes.fromhex("d0cf11e0a1b11ae1")
"""First bytes of files from earlier versions of Office, and of files that Office encrypts."""


class Archive:
    """The unpacked members of an archive."""

    def __init__(self, data: bytes) -> None:
        """Raises DataError if the data is no archive, is damaged or encrypted, or unpacks to more than the limits."""
        if data.startswith(_COMPOUND):
            raise DataError(f"the document is encrypted, or of Office before 2007: {_UNLOCK}")
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as file:
                self._infos = file.infolist()
                self._check()
                self.members = {info.filename: _read(file, info) for info in self._infos}
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            NotImplementedError,
            RuntimeError,
            ValueError,
            OverflowError,
            LookupError,
            struct.error,
        ) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"this is not a document, or a damaged one ({error}): {_SAVE}") from error

        if b"encryption-data" in self.members.get("META-INF/manifest.xml", b""):  # how OpenDocument marks encryption
            raise DataError(f"the document is encrypted: {_UNLOCK}")

    def _check(self) -> None:
        names = sorted(info.filename for info in self._infos)
        if len(names) > MOST_MEMBERS:
            raise DataError(f"the document has {len(names):,} members and {MOST_MEMBERS:,} are read: {_SAVE}")
        twice = next((name for name, same in groupby(names) if len(list(same)) > 1), None)
        if twice is not None:
            raise DataError(f"the document has {twice!r} twice: {_SAVE}")
        if any(info.flag_bits & 1 for info in self._infos):
            raise DataError(f"the document is encrypted: {_UNLOCK}")
        if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in self._infos):
            raise DataError(f"the document is packed in an unusual way: {_SAVE}")
        if sum(info.file_size for info in self._infos) > MOST_BYTES:
            raise DataError(f"the document unpacks to more than {MOST_BYTES:,} bytes: split it")
        for info in self._infos:
            if info.file_size > max(_MEBIBYTE, _MOST_GROWTH * info.compress_size):
                raise DataError(f"{info.filename!r} of the document unpacks to far more than is packed: {_SAVE}")

    def written(self, changed: Mapping[str, bytes]) -> bytes:
        """Return the archive with new contents for some members, which keep their order and compression."""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as file:
            for info in self._infos:
                kept = zipfile.ZipInfo(info.filename, info.date_time)
                kept.compress_type, kept.external_attr = info.compress_type, info.external_attr
                file.writestr(kept, changed.get(info.filename, self.members[info.filename]))
        return out.getvalue()


def most_written(read: int) -> int:
    """Return the maximum number of characters of a document's translated paragraphs. `read`: bytes of its XML."""
    return min(MOST_MEMBER_BYTES, max(_MEBIBYTE, _MOST_GROWTH * read))


def _read(file: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Read a member without trusting the size that the archive states."""
    most = min(info.file_size, MOST_MEMBER_BYTES)
    with file.open(info) as member:
        data = member.read(most + 1)
    if len(data) > most:
        raise DataError(f"{info.filename!r} of the document unpacks to more than {most:,} bytes: {_SAVE}")
    return data
