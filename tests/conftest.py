"""Shapes are executed: in the rooms about models, every annotation of `repose.model` is checked at each call."""

import errno
import functools
import gc
import io
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import filelock
import hypothesis
import jaxtyping
import pytest
import torch

hypothesis.settings.register_profile("repose", deadline=None)  # a test asserts behaviour, not time
hypothesis.settings.load_profile("repose")

jaxtyping.install_import_hook("repose.model", "beartype.beartype")
SHAPES_CHECKED = ("model",)
"""Rooms. The others train small models or ask them often, which takes up to twice as long where shapes are checked."""

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # for tests that import ONNX Runtime themselves

jaxtyping.config.update("jaxtyping_disable", True)  # while tests are collected

gc.disable()  # while tests are collected: nothing of that is garbage, and looking through it takes seconds
gc.set_threshold(10_000)  # and models make little garbage afterwards

# A shell starts what it runs in the background with SIGINT ignored, nohup with SIGHUP, and so whatever the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The README's commands, which train, come first: last, one worker would wait for the other."""
    items.sort(key=lambda item: item.path.name != "test_readme.py")


def pytest_collection_finish() -> None:
    """What was collected stays, and is not looked through again."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Graphs of models that tests load are kept with the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPOSE_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _disks_are_not_waited_for() -> Iterator[None]:
    """No test cuts the power, and a suite writes thousands of files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _workers_are_forked() -> Iterator[None]:
    """From a process that has loaded everything, where there is fork: each worker saves two seconds of imports."""
    from repose.training import distributed

    with pytest.MonkeyPatch.context() as patch:
        if "forkserver" in multiprocessing.get_all_start_methods():
            multiprocessing.set_forkserver_preload(["repose.runs.run", "repose.cli.tables"])
            start = functools.partial(distributed.start_processes, start_method="forkserver")
            patch.setattr(distributed, "start_processes", start)
        yield


@pytest.fixture(autouse=True)
def _shapes(request: pytest.FixtureRequest) -> None:
    room = request.path.relative_to(Path(__file__).parent).parts[0]
    jaxtyping.config.update("jaxtyping_disable", room not in SHAPES_CHECKED)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tests run side by side, one core each."""
    torch.set_num_threads(1)


@pytest.fixture
def no_collection() -> Iterator[None]:
    """For input nested as deep as Python goes: at the bottom of it, finalizers of other tests' garbage would fail."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def locks_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """There, a lock file that is held cannot be removed, and goes when it is let go."""
    held: set[str] = set()
    acquire, release, unlink = filelock.FileLock.acquire, filelock.FileLock.release, os.unlink

    def acquired(lock: filelock.BaseFileLock, **options: Any) -> object:
        proxy = acquire(lock, **options)
        held.add(lock.lock_file)
        return proxy

    def released(lock: filelock.BaseFileLock, **options: Any) -> None:
        release(lock, **options)
        if lock.lock_file in held:
            held.remove(lock.lock_file)
            Path(lock.lock_file).unlink(missing_ok=True)

    def removed(path: Any, **options: Any) -> None:
        name = os.fspath(path)
        if name in held or ("dir_fd" in options and name in {Path(one).name for one in held}):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        unlink(path, **options)

    monkeypatch.setattr(filelock.FileLock, "acquire", acquired)
    monkeypatch.setattr(filelock.FileLock, "release", released)
    monkeypatch.setattr(os, "unlink", removed)


@pytest.fixture
def run_repose(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs `repose` with these arguments in this process: (exit code, stdout, stderr)."""
    from repose.cli import main

    def call(*arguments: object, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["repose", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        try:
            main.main()
            code = 0
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
