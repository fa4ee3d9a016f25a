"""Helper processes and the process that starts them."""

import subprocess
import sys
from pathlib import Path

import pytest

from repose.system.errors import OUT_OF_MEMORY, ConfigError, ReposeError
from repose.system.helper import worker_error

WATCH = """
import os, pathlib, time
from repose.system.helper import end_with_parent
os.name = "{system}"
end_with_parent(1, remove={folder})  # which is not this process's parent, as after the parent's end
time.sleep({seconds})
print("alive", flush=True)
os._exit(0)
"""


def watched(system: str, seconds: float, folder: str = "None") -> str:
    code = WATCH.format(system=system, seconds=seconds, folder=folder)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False).stdout


def test_a_helper_ends_with_its_parent() -> None:
    assert watched("posix", 30.0) == ""


def test_a_helper_that_ends_with_its_parent_leaves_no_temporary_files(tmp_path: Path) -> None:
    (tmp_path / "calibration" / "run").mkdir(parents=True)
    assert watched("posix", 30.0, f"pathlib.Path({str(tmp_path / 'calibration')!r})") == ""
    assert not list(tmp_path.iterdir())


def test_a_launcher_is_no_parent() -> None:
    """On Windows an environment's Python is one, and stays the helper's parent whoever ends."""
    assert watched("nt", 0.5) == "alive\n"


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (ConfigError("beam_size is 0"), ConfigError, "beam_size is 0"),
        (MemoryError(), ReposeError, OUT_OF_MEMORY),
        (ModuleNotFoundError("No module", name="torch"), ReposeError, "pip install 'repose-nmt[train]'"),
        (IndexError("out of range\nin row 3"), ReposeError, "a translation worker failed: IndexError: out of range"),
        (KeyError(), ReposeError, "a translation worker failed: KeyError: no reason given"),
    ],
)
def test_what_a_worker_met_is_one_sentence(error: Exception, kind: type[ReposeError], sentence: str) -> None:
    found = worker_error(error)
    assert type(found) is kind
    assert str(found).endswith(sentence)
