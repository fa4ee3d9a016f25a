"""What the tests of the command line share: a cache of their own, and `run`."""

from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that is REPOSE_HOME: corpora are prepared once for all of these tests."""
    return tmp_path_factory.getbasetemp() / "repose-home"


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("REPOSE_HOME", str(home))


@pytest.fixture
def run(run_repose: Run) -> Run:
    """See `tests/conftest.py`."""
    return run_repose
