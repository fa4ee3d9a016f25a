"""Model directories from strangers, with limited memory: one sentence each, no code run, no file read outside."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from victims import Victim

LIMIT = 6 << 30
"""Bytes of address space; torch alone maps three of them."""
SCRIPT = Path(__file__).with_name("hostile_models.py")


@pytest.mark.skipif(sys.platform != "linux", reason="no limit of address space")
def test_hostile_model_directories_are_one_sentence_each(whole: Victim, tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(whole.finished / "model"), str(LIMIT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = json.loads(done.stdout)
    wrong = {name: said for name, said in outcomes.items() if said == "loaded" or said.startswith("unexpected")}
    assert not wrong
    of_decoding = [said for name, said in outcomes.items() if name.startswith("decoding = ")]
    assert of_decoding == [f"{tmp_path}/model/config.json has no usable decoding: save or copy the model again"] * 4
    assert all(said.isprintable() and "root:" not in said for said in outcomes.values())
    assert not (tmp_path / "executed").exists()
