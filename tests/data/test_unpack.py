"""`repose.data.unpack` against archives that write outside, lie about their contents, or are damaged."""

from __future__ import annotations

import gzip
import io
import lzma
import random
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from repose.data import unpack
from repose.data.unpack import BadCopyError, extract_members, list_members, unpack_text

TEXT = b"eins\nzwei\n" * 1_000


def member(name: str, content: bytes = TEXT, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    """A tar header of any kind, hostile ones too."""
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = link
    info.size = len(content) if kind == tarfile.REGTYPE else 0
    return info


def write_tar(path: Path, members: Sequence[tarfile.TarInfo], content: bytes = TEXT) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info in members:
            tar.addfile(info, io.BytesIO(content) if info.size else None)
    return path


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress])
def test_a_text_is_unpacked_whatever_its_name_says(tmp_path: Path, compress: type[bytes]) -> None:
    source = tmp_path / "text.gz"
    source.write_bytes(compress(TEXT))
    unpack_text(source, tmp_path / "text", len(TEXT))
    assert (tmp_path / "text").read_bytes() == TEXT


def test_a_text_may_not_unpack_to_more_than_expected(tmp_path: Path) -> None:
    source = tmp_path / "text.gz"
    source.write_bytes(gzip.compress(TEXT))
    with pytest.raises(BadCopyError, match=r"more than the 9,999 bytes"):
        unpack_text(source, tmp_path / "text", len(TEXT) - 1)


def _flip(data: bytes) -> bytes:
    return data[:40] + bytes([data[40] ^ 0xFF]) + data[41:]


@pytest.mark.parametrize(
    "damaged",
    [
        gzip.compress(TEXT)[:-9],
        gzip.compress(TEXT)[:5],
        _flip(gzip.compress(random.Random(1).randbytes(5_000))),
        gzip.compress(TEXT) + b"garbage",
        lzma.compress(TEXT)[:-9],
        _flip(lzma.compress(random.Random(1).randbytes(5_000))),
    ],
    ids=["gz-truncated", "gz-header", "gz-flipped", "gz-trailing", "xz-truncated", "xz-flipped"],
)
def test_a_damaged_text_is_reported(tmp_path: Path, damaged: bytes) -> None:
    source = tmp_path / "text.gz"
    source.write_bytes(damaged)
    with pytest.raises(BadCopyError, match="cannot be unpacked"):
        unpack_text(source, tmp_path / "text", 1 << 20)


def test_members_are_listed_and_copied_to_the_paths_given(tmp_path: Path) -> None:
    archive = write_tar(
        tmp_path / "a.tar.gz", [member("./data", kind=tarfile.DIRTYPE), member("./data/x.en"), member("data/x.de")]
    )
    assert list_members(archive) == ["data/x.en", "data/x.de"]
    extract_members(archive, {"data/x.en": tmp_path / "mine"})
    assert (tmp_path / "mine").read_bytes() == TEXT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "mine"]


def test_a_name_with_a_null_byte_is_refused(tmp_path: Path) -> None:
    info = member("x.en")
    info.pax_headers = {"path": "x.en\0.gz"}
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(TEXT))
    with pytest.raises(BadCopyError, match="not safe"):
        list_members(path)


@pytest.mark.parametrize(
    "headers",
    [
        {"GNU.sparse.map": "a,b"},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "zz"},
        {"GNU.sparse.size": "zz"},
    ],
)
def test_headers_of_nonsense_are_damage(headers: dict[str, str], tmp_path: Path) -> None:
    info = member("x.en")
    info.pax_headers = headers
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(TEXT))
    with pytest.raises(BadCopyError, match=r"a\.tar cannot be unpacked"):
        list_members(path)


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / "a.tar.gz", [member("x.en")])
    with pytest.raises(BadCopyError, match=r"lacks x\.de"):
        extract_members(archive, {"x.en": tmp_path / "en", "x.de": tmp_path / "de"})


HOSTILE = {
    "parent": (member("../x.en"), "leaves"),
    "parent-inside": (member("data/../../x.en"), "leaves"),
    "parent-and-back": (member("data/../x.en"), "leaves"),
    "absolute": (member("/etc/x.en"), "leaves"),
    "drive": (member("C:/x.en"), "leaves"),
    "backslash": (member("..\\x.en"), "leaves"),
    "symlink": (member("x.en", kind=tarfile.SYMTYPE, link="/etc/passwd"), "a link"),
    "hardlink": (member("x.en", kind=tarfile.LNKTYPE, link="../secret"), "a link"),
    "character-device": (member("x.en", kind=tarfile.CHRTYPE), "a device"),
    "block-device": (member("x.en", kind=tarfile.BLKTYPE), "a device"),
    "fifo": (member("x.en", kind=tarfile.FIFOTYPE), "a device"),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("place", ["first", "last"])
def test_a_hostile_archive_is_refused_as_a_whole(tmp_path: Path, case: str, place: str) -> None:
    hostile, reason = HOSTILE[case]
    members = [hostile, member("good.en")] if place == "first" else [member("good.en"), hostile]
    folder = tmp_path / "in" / "side"
    folder.mkdir(parents=True)
    archive = write_tar(folder / "a.tar.gz", members)
    for wanted in ("good.en", "x.en"):
        with pytest.raises(BadCopyError, match=f"holds .*{reason}"):
            extract_members(archive, {wanted: tmp_path / "mine"})
    with pytest.raises(BadCopyError, match=f"holds .*{reason}"):
        list_members(archive)
    assert not (tmp_path / "in" / "x.en").exists()


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_SPARSE, tarfile.REGTYPE], ids=["sparse", "regular"])
def test_a_forged_size_is_neither_believed_nor_waited_for(
    tmp_path: Path, kind: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tarfile` would read on for a hundred gigabytes' worth of blocks that are not there."""
    info = tarfile.TarInfo("x.en")
    info.type, info.size = kind, 100_000_000_000
    path = tmp_path / "a.tar"
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(5_000))
    with pytest.raises(BadCopyError, match=r"a sparse file|unpacks to more"):
        list_members(path)
    monkeypatch.setattr(unpack, "MAX_UNPACKED_BYTES", 1 << 40)
    with pytest.raises(BadCopyError, match=r"a sparse file|cannot be unpacked"):
        list_members(path)


def test_a_stream_at_its_end_is_not_read_for_ever() -> None:
    stream = unpack._Bounded(io.BytesIO(b"abc"), limit=10)
    assert stream.read(5) == b"abc"
    reads = iter(lambda: stream.read(5), None)
    with pytest.raises(EOFError):
        next(chunk for chunk in reads if chunk)


def test_an_archive_may_not_unpack_to_more_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = write_tar(tmp_path / "a.tar.gz", [member("x.en"), member("x.de")])
    monkeypatch.setattr(unpack, "MAX_UNPACKED_BYTES", 2 * len(TEXT))
    assert len(list_members(archive)) == 2
    monkeypatch.setattr(unpack, "MAX_UNPACKED_BYTES", 2 * len(TEXT) - 1)
    with pytest.raises(BadCopyError, match="unpacks to more"):
        list_members(archive)


def test_an_archive_may_not_have_endless_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "MAX_MEMBERS", 2)
    archive = write_tar(tmp_path / "a.tar.gz", [member(name) for name in ("x", "y", "z")])
    with pytest.raises(BadCopyError, match="2 files"):
        list_members(archive)


def test_headers_that_unpack_without_end_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header of extended attributes is read before any member is seen, so that only the stream can be bounded."""
    monkeypatch.setattr(unpack, "_CHUNK", 1 << 10)
    info = member("x.en")
    info.pax_headers = {"comment": "a" * 100_000}
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(TEXT))
    monkeypatch.setattr(unpack, "MAX_UNPACKED_BYTES", 60_000)
    assert list_members(path) == ["x.en"]
    monkeypatch.setattr(unpack, "MAX_UNPACKED_BYTES", 20_000)
    with pytest.raises(BadCopyError, match="unpacks to too much"):
        list_members(path)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE], ids=["L", "x", "g"])
def test_names_and_attributes_of_megabytes_are_not_read(tmp_path: Path, kind: bytes) -> None:
    """`tarfile` would hold all of one in memory, and some copies of it."""
    info = tarfile.TarInfo("a name")
    info.type, info.size = kind, 2 << 20
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + b"a" * info.size))
    with pytest.raises(BadCopyError, match="it holds a name, or other attributes, of megabytes"):
        list_members(path)


def test_thousands_of_headers_in_front_of_one_member_are_damage(tmp_path: Path) -> None:
    info = tarfile.TarInfo("a name")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 512
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress((info.tobuf(tarfile.GNU_FORMAT) + b"a" * 511 + b"\0") * 5_000))
    with pytest.raises(BadCopyError, match="too many headers in front of one file"):
        list_members(path)


def test_what_is_no_archive_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    for content in (b"<html>gone</html>", gzip.compress(b"no archive in here\n" * 100), b""):
        path.write_bytes(content)
        with pytest.raises(BadCopyError, match="cannot be unpacked"):
            list_members(path)


def test_no_damage_to_an_archive_ends_in_another_error(tmp_path: Path) -> None:
    """Random damage either goes unnoticed, in a place that does not matter, or is reported as BadCopyError."""
    source = write_tar(tmp_path / "a.tar.gz", [member("data/x.en", TEXT[:700]), member("data/x.de", TEXT[:700])])
    plain = gzip.decompress(source.read_bytes())
    generator = random.Random(7)
    reported = 0
    for _ in range(100):
        damaged = bytearray(plain)
        for _ in range(generator.randint(1, 4)):
            damaged[generator.randrange(1024)] = generator.randrange(256)
        path = tmp_path / "damaged.tar"
        path.write_bytes(damaged[: generator.randint(1, len(damaged))])
        try:
            extract_members(path, {"data/x.en": tmp_path / "mine"})
        except BadCopyError:
            reported += 1
    assert reported > 30
