"""Locks end with their process."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import filelock
import pytest

from repose.system.errors import BusyError, WriteError
from repose.system.locks import lock_holder, locked, locked_or_busy, share_lock, trying_lock

HOLD = """
import sys
from pathlib import Path
from repose.system.locks import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""

SHARE = """
import sys
from pathlib import Path
from repose.system.locks import share_lock
class Owner: pass
owner = Owner()
share_lock(Path(sys.argv[1]), owner)
print("held", flush=True)
sys.stdin.read()
"""


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


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
        monkeypatch.setattr("repose.system.locks._MOMENT", 2.0)  # a busy machine may run the timer late
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
