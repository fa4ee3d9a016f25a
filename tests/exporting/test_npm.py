"""Fetching files of npm packages, with a script in place of npm."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from repose.exporting import npm
from repose.system.errors import ConfigError, DataError

CONTENT = b"export const x = 1;\n"
PACKAGE = npm.Package("@owner/name", "1.2.3", {"dist/x.js": hashlib.sha256(CONTENT).hexdigest()})


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What npm packs; it notes how it was called."""
    archive, calls, program = tmp_path / "packed.tgz", tmp_path / "calls", tmp_path / "bin" / "npm"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {calls}\ncp {archive} owner-name-1.2.3.tgz\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    pack(archive, "package/dist/x.js", CONTENT)
    return archive


def pack(archive: Path, name: str, content: bytes) -> None:
    with tarfile.open(archive, "w:gz") as packed:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        packed.addfile(member, io.BytesIO(content))


def test_a_package_is_fetched_once(registry: Path) -> None:
    assert npm.files_of(PACKAGE) == {"dist/x.js": CONTENT}
    registry.unlink()
    assert npm.files_of(PACKAGE) == {"dist/x.js": CONTENT}
    assert (registry.parent / "calls").read_text() == "pack --silent --ignore-scripts @owner/name@1.2.3\n"


def test_a_damaged_cache_is_fetched_anew(registry: Path) -> None:
    npm.files_of(PACKAGE)
    (kept,) = (registry.parent / "home").rglob("x.js")
    kept.write_bytes(b"export const x = 2;\n")
    assert npm.files_of(PACKAGE) == {"dist/x.js": CONTENT}
    assert kept.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("name", "content"),
    [("package/dist/x.js", b"something else"), ("package/other.js", CONTENT), (None, b"no archive")],
)
def test_anything_else_is_refused(registry: Path, name: str | None, content: bytes) -> None:
    if name is None:
        registry.write_bytes(content)
    else:
        pack(registry, name, content)
    with pytest.raises(DataError, match=r"npm fetched something other than @owner/name 1\.2\.3"):
        npm.files_of(PACKAGE)
    assert not list((registry.parent / "home").rglob("x.js"))


def test_without_a_network_it_is_one_sentence(registry: Path) -> None:
    registry.unlink()
    with pytest.raises(DataError, match=r"npm cannot fetch @owner/name 1\.2\.3, .*: try again with a network"):
        npm.files_of(PACKAGE)


def test_without_npm_it_says_what_to_install(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(registry.parent))
    with pytest.raises(ConfigError, match=r"install Node\.js with npm"):
        npm.files_of(PACKAGE)
