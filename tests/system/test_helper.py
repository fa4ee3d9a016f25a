"""Helper processes and the process that started them."""

import subprocess
import sys
import threading

import pytest

from repose.system.helper import end_with

WATCH = "import sys, time; from repose.system.helper import end_with; end_with(int(sys.argv[1])); time.sleep(60)"


def test_a_helper_ends_with_its_parent() -> None:
    done = subprocess.run([sys.executable, "-c", WATCH, "1"], timeout=30, check=False)  # whose parent has ended, then
    assert done.returncode == 1


def test_a_launcher_is_no_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows an environment's Python is one, and stays the helper's parent whoever ends."""
    before = threading.active_count()
    with monkeypatch.context() as patched:
        patched.setattr("repose.system.helper.os.name", "nt")
        end_with(1)
    assert threading.active_count() == before
