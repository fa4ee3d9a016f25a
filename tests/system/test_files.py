"""Files are replaced in one step, folders as a whole, and locks end with their process."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock
import pytest

from repose.system import files
from repose.system.errors import BusyError, WriteError
from repose.system.files import (
    checksums,
    lock_holder,
    locked,
    locked_or_busy,
    previous,
    replacing_file,
    replacing_folder,
    share_lock,
    trying_lock,
    write_file,
    write_json,
    writing,
)

HOLD = """
import sys
from pathlib import Path
from repose.system.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""

SHARE = """
import sys
from pathlib import Path
from repose.system.files import share_lock
class Owner: pass
owner = Owner()
share_lock(Path(sys.argv[1]), owner)
print("held", flush=True)
sys.stdin.read()
"""


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


def test_checksums(tmp_path: Path) -> None:
    write_file(tmp_path / "a" / "b", "123456789")
    write_file(tmp_path / "a" / ".lock", "")
    write_file(tmp_path / "c", "")
    assert checksums(tmp_path) == {"a/b": 0xCBF43926, "c": 0}  # the check value of CRC-32


@contextlib.contextmanager
def holder(path: Path, program: str = HOLD) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock until its stdin ends."""
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


class TestLock:
    def test_it_dies_with_its_process(self, tmp_path: Path) -> None:
        path = tmp_path / "lock"
        path.write_text("1\n")  # whatever is in it
        assert lock_holder(path) is None
        with holder(path) as other:
            assert lock_holder(path) == f"process {other.pid} on {os.uname().nodename}"
            busy = pytest.raises(BusyError, match=f"^process {other.pid} on .* is busy: wait$")
            with busy, locked_or_busy(path, "is busy: wait"):
                pass
            other.send_signal(signal.SIGKILL)
            other.wait()
            assert lock_holder(path) is None
            with locked_or_busy(path, "is busy: wait"):
                assert path.read_text().startswith(f"{os.getpid()} on ")
        assert lock_holder(path) is None

    def test_who_looks_whether_it_is_held_keeps_nobody_from_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fcntl = pytest.importorskip("fcntl")
        monkeypatch.setattr("repose.system.files._MOMENT", 2.0)  # a busy machine may run the timer late
        path = tmp_path / "lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # for a moment
        looked = threading.Timer(0.02, os.close, [descriptor])
        looked.start()
        with locked_or_busy(path, "is busy: wait"):
            pass
        looked.join()

    def test_it_is_removed_at_the_end(self, tmp_path: Path) -> None:
        path = tmp_path / "lock"
        with pytest.raises(ZeroDivisionError), locked_or_busy(path, "is busy: wait"):
            raise ZeroDivisionError
        assert names(tmp_path) == []

    def test_it_is_held_until_it_is_removed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Or another could take a lock on a file that is then gone, and a third one make it anew."""
        path, holders, unlink = tmp_path / "lock", [], Path.unlink

        def watched(gone: Path, missing_ok: bool = False) -> None:
            holders.append(lock_holder(gone))
            unlink(gone, missing_ok)

        monkeypatch.setattr(Path, "unlink", watched)
        with locked_or_busy(path, "is busy: wait"):
            pass
        assert holders == [f"process {os.getpid()} on {os.uname().nodename}"]

    def test_another_s_file_in_its_place_stays(self, tmp_path: Path) -> None:
        path = tmp_path / "folder" / "lock"
        with locked_or_busy(path, "is busy: wait"):
            path.parent.rename(tmp_path / "moved")
            path.parent.mkdir()
            with holder(path) as other:
                pass
        assert path.read_text().startswith(f"{other.pid} on ")

    def test_one_at_a_time_though_it_is_removed(self, tmp_path: Path) -> None:
        path, inside, most, done = tmp_path / "lock", [], [0], [0]

        def work() -> None:
            while done[0] < 200:
                with contextlib.suppress(BusyError), locked_or_busy(path, "is busy: wait"):
                    inside.append(1)
                    most[0] = max(most[0], len(inside))
                    done[0] += 1
                    inside.pop()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert most[0] == 1

    def test_it_may_be_removed_while_somebody_waits_for_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, acquire, tries = tmp_path / "lock", filelock.FileLock.acquire, []

        def once_too_late(lock: filelock.FileLock, **how: float) -> object:
            tries.append(lock)
            if len(tries) == 1:
                raise filelock.Timeout(str(path))
            return acquire(lock, **how)

        monkeypatch.setattr(filelock.FileLock, "acquire", once_too_late)
        with locked_or_busy(path, "is busy: wait"):
            assert len(tries) == 2

    def test_several_wait_for_it(self, tmp_path: Path) -> None:
        path, waiting, held = tmp_path / "lock", [], []
        with holder(path) as other:

            def wait(name: str) -> None:
                with locked(path, on_wait=lambda: waiting.append(name)):
                    held.append(name)
                    assert len(held) == 1
                    held.remove(name)

            threads = [threading.Thread(target=wait, args=(name,)) for name in "ab"]
            for thread in threads:
                thread.start()
            while len(waiting) < 2:
                threading.Event().wait(0.01)
            other.kill()
            for thread in threads:
                thread.join(timeout=30)
        assert sorted(waiting) == ["a", "b"]
        assert lock_holder(path) is None

    def test_no_lock_file_is_no_holder(self, tmp_path: Path) -> None:
        assert lock_holder(tmp_path / "lock") is None
        assert names(tmp_path) == []

    def test_a_holder_that_left_no_name(self, tmp_path: Path) -> None:
        with locked(tmp_path / "lock"):
            (tmp_path / "lock").write_text("")
            assert lock_holder(tmp_path / "lock") == "another process"

    def test_a_place_that_cannot_be_locked(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        for lock in (locked(tmp_path / "file" / "lock"), locked_or_busy(tmp_path / "file" / "lock", "")):
            with pytest.raises(WriteError, match="file is a file: name a folder"), lock:
                pass

    def test_a_file_system_without_locks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_locks(_lock: object, **_options: object) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr(filelock.FileLock, "acquire", no_locks)
        with locked(tmp_path / "lock"):
            pass
        with pytest.raises(WriteError, match="on a file system that has locks"), locked_or_busy(tmp_path / "lock", ""):
            pass

    def test_an_error_within_is_not_the_lock_s(self, tmp_path: Path) -> None:
        for lock in (locked(tmp_path / "lock"), locked_or_busy(tmp_path / "lock", "")):
            with pytest.raises(FileNotFoundError), lock:
                raise FileNotFoundError
            assert lock_holder(tmp_path / "lock") is None


class Owner:
    """Something that can be gone."""


class TestSharedLock:
    def test_nobody_holds_it_alone_until_the_last_one_is_gone(self, tmp_path: Path) -> None:
        path, owner = tmp_path / "lock", Owner()
        share_lock(path, owner)
        with holder(path, SHARE) as other:
            with trying_lock(path) as held:
                assert not held
            del owner
            with trying_lock(path) as held:
                assert not held
            other.send_signal(signal.SIGKILL)
            other.wait()
        with trying_lock(path) as held:
            assert held
        assert names(tmp_path) == ["lock"]

    def test_who_holds_it_alone_is_waited_for(self, tmp_path: Path) -> None:
        thread = threading.Thread(target=share_lock, args=(tmp_path / "lock", self))
        with locked(tmp_path / "lock"):
            thread.start()
            thread.join(timeout=0.1)
            assert thread.is_alive()
        thread.join(timeout=30)
        assert not thread.is_alive()

    def test_a_fork_goes_on_holding_it(self, tmp_path: Path) -> None:
        path, owner = tmp_path / "lock", Owner()
        share_lock(path, owner)
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks where there are threads
            child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        os.close(reading)
        del owner
        with trying_lock(path) as held:
            assert not held
        os.close(writing)
        os.waitpid(child, 0)
        with trying_lock(path) as held:
            assert held

    def test_where_it_cannot_be_shared_it_goes_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").touch()
        share_lock(tmp_path / "file" / "lock", self)
        monkeypatch.setitem(sys.modules, "fcntl", None)
        share_lock(tmp_path / "lock", self)
        assert names(tmp_path) == ["file"]
