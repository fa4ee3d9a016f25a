"""Fixtures for all tests. In tests of models, the shape annotations of `repose.model` are checked at each call."""

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
"""Rooms in which shapes are checked. Other rooms train or call models, which takes up to twice as long with checks."""

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # for tests that import ONNX Runtime themselves

jaxtyping.config.update("jaxtyping_disable", True)  # while tests are collected

gc.disable()  # while tests are collected, which makes no garbage; looking for it takes seconds
gc.set_threshold(10_000)  # models make little garbage

# A shell ignores SIGINT in background jobs, nohup ignores SIGHUP, and processes that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the README's commands first: they train, and at the end one test worker would wait for another."""
    items.sort(key=lambda item: item.path.name != "test_readme.py")


def pytest_collection_finish() -> None:
    """Exclude objects of the collection from garbage collection."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the cache, such as graphs of models, in a temporary folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPOSE_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _disks_are_not_waited_for() -> Iterator[None]:
    """Skip fsync: no test cuts the power, and the suite writes thousands of files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _workers_are_forked() -> Iterator[None]:
    """Fork workers from a process that has imported everything, where possible. Saves two seconds per worker."""
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
    """Use one thread, since tests run in parallel with one core each."""
    torch.set_num_threads(1)


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Stop garbage collection, for input nested to Python's limit, where finalizers of garbage would fail."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def locks_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imitate Windows, where a lock file cannot be removed while held, and disappears when released."""
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
    """Return a function that runs `repose` with arguments in this process, and returns (exit code, stdout, stderr)."""
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
