"""Files are replaced in one step, and folders as a whole."""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from repose.system import files
from repose.system.errors import WriteError
from repose.system.files import (
    checksums,
    previous,
    replacing_file,
    replacing_folder,
    write_file,
    write_json,
    write_new_json,
    writing,
)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


class TestFile:
    def test_text_bytes_and_json(self, tmp_path: Path) -> None:
        write_file(tmp_path / "new" / "text", "é\r\n")
        write_file(tmp_path / "new" / "bytes", b"\xff", durable=True)
        write_json(tmp_path / "new" / "json", {"é": [1]})
        assert (tmp_path / "new" / "text").read_bytes() == "é\r\n".encode()
        assert (tmp_path / "new" / "bytes").read_bytes() == b"\xff"
        assert (tmp_path / "new" / "json").read_text() == '{\n  "é": [\n    1\n  ]\n}\n'
        assert names(tmp_path / "new") == ["bytes", "json", "text"]

    def test_what_was_there_stays_until_the_new_is_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_text("old")
        with replacing_file(path) as temporary:
            temporary.write_text("new")
            assert path.read_text() == "old"
        assert path.read_text() == "new"
        with contextlib.suppress(KeyError), replacing_file(path) as temporary:
            temporary.write_text("half")
            raise KeyError
        assert path.read_text() == "new"
        assert names(tmp_path) == ["file"]

    def test_permissions_are_those_of_any_new_file(self, tmp_path: Path) -> None:
        (tmp_path / "plain").touch()
        write_file(tmp_path / "file", "")
        assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode

    def test_a_full_disk_is_one_sentence_with_the_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").write_text("old")

        def full(path: Path, _data: bytes) -> int:
            path.touch()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(WriteError, match=r"/file cannot be written \(No space left on device\): make room"):
            write_file(tmp_path / "file", "new")
        assert names(tmp_path) == ["file"]
        assert (tmp_path / "file").read_text() == "old"

    def test_what_cannot_be_read_is_not_what_cannot_be_written(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError), replacing_file(tmp_path / "to" / "file") as temporary:
            temporary.write_bytes((tmp_path / "from").read_bytes())

    def test_a_neighbour_that_cannot_be_read_is_not_what_cannot_be_written(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError), writing(tmp_path / "to" / "file"):
            (tmp_path / "to-read").read_bytes()

    def test_a_neighbour_of_a_relative_place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(FileNotFoundError), replacing_file(Path("out.txt")) as temporary:
            temporary.write_bytes(Path("in.txt").read_bytes())

    def test_a_relative_place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine" / "inner").mkdir(parents=True)
        with pytest.raises(WriteError, match=r"^mine cannot be written"), writing(Path("mine")):
            Path("mine/inner").write_bytes(b"")

    def test_a_place_that_cannot_be(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(WriteError, match="file/inner cannot be written"):
            write_file(tmp_path / "file" / "inner", "")


class TestFolder:
    def test_replaced_as_a_whole(self, tmp_path: Path) -> None:
        for text in ("first", "second"):
            with replacing_folder(tmp_path / "a" / "d") as temporary:
                (temporary / text).write_text(text)
        assert names(tmp_path / "a") == ["d"]
        assert names(tmp_path / "a" / "d") == ["second"]

    def test_what_is_not_ours_is_kept(self, tmp_path: Path) -> None:
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "ours").write_text("old")
        (tmp_path / "d" / "notes").write_text("mine")
        with replacing_folder(tmp_path / "d", keep_all_but=["ours"]) as temporary:
            (temporary / "ours").write_text("new")
        assert (tmp_path / "d" / "ours").read_text() == "new"
        assert (tmp_path / "d" / "notes").read_text() == "mine"

    def test_what_the_new_one_brings_is_not_replaced_by_what_is_kept(self, tmp_path: Path) -> None:
        for text in ("old", "new"):
            with replacing_folder(tmp_path / "d", keep_all_but=["ours"]) as temporary:
                (temporary / "notes").write_text(text)
        assert (tmp_path / "d" / "notes").read_text() == "new"
        assert names(tmp_path) == ["d"]

    def test_an_error_leaves_the_old_one(self, tmp_path: Path) -> None:
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "ours").write_text("old")
        with contextlib.suppress(KeyError), replacing_folder(tmp_path / "d") as temporary:
            (temporary / "ours").write_text("half")
            raise KeyError
        assert (tmp_path / "d" / "ours").read_text() == "old"
        assert names(tmp_path) == ["d"]

    def test_the_old_one_comes_back_where_a_machine_stopped_between_the_renames(self, tmp_path: Path) -> None:
        previous(tmp_path / "d").mkdir()
        (previous(tmp_path / "d") / "notes").write_text("mine")
        with replacing_folder(tmp_path / "d", keep_all_but=["ours"]) as temporary:
            assert names(tmp_path / "d") == ["notes"]
            (temporary / "ours").write_text("new")
        assert names(tmp_path / "d") == ["notes", "ours"]
        assert names(tmp_path) == ["d"]

    def test_a_file_in_its_place_is_not_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "d").write_text("mine")
        with pytest.raises(WriteError, match="/d cannot be written"), replacing_folder(tmp_path / "d"):
            pass
        assert (tmp_path / "d").read_text() == "mine"


def test_a_file_that_is_open_elsewhere_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows refuses to rename it meanwhile; other systems never refuse it for that."""
    open_elsewhere = [True] * 6

    def refused(real: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
        def rename(path: Path, target: Path) -> Path:
            if open_elsewhere and open_elsewhere.pop():
                raise PermissionError(errno.EACCES, "used by another process", str(path))
            return real(path, target)

        return rename

    monkeypatch.setattr(Path, "rename", refused(Path.rename))
    monkeypatch.setattr(Path, "replace", refused(Path.replace))
    monkeypatch.setattr(files, "_PATIENCE", 0.0)
    with pytest.raises(WriteError, match="used by another process"):
        write_file(tmp_path / "d" / "file", "no")
    monkeypatch.setattr(files, "_PATIENCE", 60.0)
    write_file(tmp_path / "d" / "file", "old")
    assert open_elsewhere == []
    open_elsewhere += [True] * 2
    with replacing_folder(tmp_path / "d") as temporary:
        (temporary / "file").write_text("new")
    assert (tmp_path / "d" / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What is flushed and renamed, in order, by name."""
    calls: list[tuple[str, ...]] = []

    def flush(descriptor: int) -> None:
        calls.append(("flush", Path(f"/proc/self/fd/{descriptor}").readlink().name))

    monkeypatch.setattr(os, "fsync", flush)

    def watched(real: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
        def move(source: Path, target: Path) -> Path:
            calls.append(("move", source.name, target.name))
            return real(source, target)

        return move

    monkeypatch.setattr(Path, "rename", watched(Path.rename))
    monkeypatch.setattr(Path, "replace", watched(Path.replace))
    return calls


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of open files")
class TestPowerCut:
    """The data is on disk before a name stands for it, and then the name."""

    def test_file(self, tmp_path: Path, done: list[tuple[str, ...]]) -> None:
        write_file(tmp_path / "file", "text", durable=True)
        half = done[0][1]
        assert half.endswith(".tmp")
        assert done == [("flush", half), ("move", half, "file"), ("flush", tmp_path.name)]

    def test_folder(self, tmp_path: Path, done: list[tuple[str, ...]]) -> None:
        (tmp_path / "d").mkdir()
        with replacing_folder(tmp_path / "d") as temporary:
            (temporary / "inner").mkdir()
            for path in (temporary / "a", temporary / "inner" / "b"):
                path.write_text("text")
        assert sorted(done[:3]) == [("flush", "a"), ("flush", "b"), ("flush", "inner")]
        moves = [("move", "d", previous(tmp_path / "d").name), ("move", temporary.name, "d")]
        assert done[3:] == [("flush", temporary.name), *moves, ("flush", tmp_path.name)]


def test_a_new_file_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "config.json"
    assert write_new_json(path, {"a": 1})
    assert not write_new_json(path, {"a": 2})
    assert path.read_text() == '{\n  "a": 1\n}\n'
    assert list(path.parent.iterdir()) == [path]

    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    assert write_new_json(path, {"a": 3})
    assert path.read_text() == '{\n  "a": 3\n}\n'
    assert list(path.parent.iterdir()) == [path]


def test_a_new_file_that_cannot_be_written_is_named_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WriteError) as caught:
        write_new_json(tmp_path / "file" / "config.json", {})
    assert str(caught.value).startswith(f"{tmp_path / 'file' / 'config.json'} cannot be written")


def test_checksums(tmp_path: Path) -> None:
    write_file(tmp_path / "a" / "b", "123456789")
    write_file(tmp_path / "a" / ".lock", "")
    write_file(tmp_path / "c", "")
    assert checksums(tmp_path) == {"a/b": 0xCBF43926, "c": 0}  # the check value of CRC-32
