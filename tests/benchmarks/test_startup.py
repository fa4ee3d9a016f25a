import sys
from pathlib import Path

import pytest

import startup
from startup import Program, imported, measure, seconds

REPORT = """import time: self [us] | cumulative | imported package
import time:       213 |        213 | _io
import time:        44 |       1021 |     torch.nn
import time:      2100 |       5121 |   torch
something else | 1 | torchvision
"""


def test_reads_the_interpreters_list_of_imports() -> None:
    assert imported(REPORT) == {"_io", "torch.nn", "torch"}


def test_measures_what_is_there_and_finds_who_loads_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").touch()
    monkeypatch.chdir(tmp_path)  # where `python -c` finds modules first
    found = {
        "early": Program([sys.executable, "-c", "import torch"], "numpy", may_load_torch=False),
        "late": Program([sys.executable, "-c", "pass"], "numpy", may_load_torch=False),
        "free": Program([sys.executable, "-c", "import torch"], "numpy"),
        "broken": Program([sys.executable, "-c", "import nothing_of_this_name"], "numpy"),
        "missing": Program([str(tmp_path / "python"), "-c", "pass"], "numpy"),
    }
    monkeypatch.setattr(startup, "programs", lambda: found)
    results, offenders = measure(2)
    assert offenders == ["early"]
    assert {name: len(seconds(result)) for name, result in results.items()} == {
        **dict.fromkeys(("early", "late", "free"), 2),
        **dict.fromkeys(("broken", "missing"), 0),
    }
    assert results["missing"].problem == "not installed"
    assert "nothing_of_this_name" in results["broken"].problem
    assert list(results["free"].ready["versions"]) == ["numpy"]


def test_ours_are_checked_for_torch() -> None:
    checked = [name for name, program in startup.programs().items() if not program.may_load_torch]
    assert checked == ["repose --help", 'python -c "import repose"']
