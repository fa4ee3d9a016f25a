"""Cached graphs stay while a process makes or uses them, and can be removed otherwise."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import repose
from repose.decoding import graph_cache
from repose.decoding.engine import built
from repose.decoding.options import SearchOptions

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

Saving = Callable[..., Path]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where this test's graphs are kept."""
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "onnx"


def folders(home: Path) -> list[Path]:
    return [path for path in home.iterdir() if path.is_dir()]


def test_graphs_that_are_being_made_are_not_cleared_away(
    saving: Saving, home: Path, run_repose: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare, said = graph_cache.compare, []

    def cleared_meanwhile(*given: Any) -> float:
        locks = {path: path.stat().st_ino for path in home.glob(".*.lock")}
        said.append(run_repose("cache", "--clear")[2])
        assert len(locks) == 1
        assert {path: path.stat().st_ino for path in home.glob(".*.lock")} == locks
        return compare(*given)

    monkeypatch.setattr(graph_cache, "compare", cleared_meanwhile)
    assert repose.load(saving("baseline"), engine="onnx").engine.name == "onnx"
    assert "0.0 MB of graphs of models removed\nthe graphs of 1 model stay, since they are in use\n" in said[0]
    assert len(folders(home)) == 1


def test_graphs_that_a_translator_has_loaded_are_not_cleared_away(saving: Saving, home: Path, run_repose: Run) -> None:
    loaded = repose.load(saving("baseline"), engine="onnx")
    again = repose.load(home.parents[1] / "model", engine="onnx")
    del loaded
    said = run_repose("cache", "--clear")[2]
    worker = built(again.engine.message())
    for beam_size in (1, 3):  # each has a graph of its own, which is opened now
        found = again.engine.search([2, 5, 3], 9, SearchOptions(beam_size))
        assert found is not None
    assert "0.0 MB of graphs of models removed\nthe graphs of 1 model stay, since they are in use\n" in said
    del again
    assert "graphs of 1 model stay" in run_repose("cache", "--clear")[2], "a worker has them, too"
    del worker
    gc.collect()
    assert "in use" not in run_repose("cache", "--clear")[2]
    assert folders(home) == []


def test_graphs_of_other_code_are_made_anew(saving: Saving, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who changes an equation, or mends a graph that was refused, has the same weights and architecture."""
    model = saving("baseline")
    with monkeypatch.context() as before:
        before.setattr(graph_cache, "code_digest", lambda *_: "before")
        repose.load(model, engine="onnx")
    repose.load(model, engine="onnx")
    assert len(folders(home)) == 2


def test_what_is_not_in_use_is_cleared_away_but_for_lock_files(saving: Saving, home: Path, run_repose: Run) -> None:
    assert "0.0 MB of graphs" in run_repose("cache", "--clear")[2], "nothing has been kept yet"
    repose.load(saving("baseline"), engine="onnx")
    gc.collect()
    (kept,) = folders(home)
    (home / f".{kept.name}.new").mkdir()  # as a machine that stopped leaves it
    (home / "made-before-locks").mkdir()
    (lock,), (used,) = home.glob(".*.lock"), home.glob(".*.used")
    nodes = lock.stat().st_ino, used.stat().st_ino
    said = run_repose("cache", "--clear")[2]
    assert "MB of graphs of models removed" in said
    assert "in use" not in said
    assert folders(home) == []
    assert (lock.stat().st_ino, used.stat().st_ino) == nodes
    assert "graphs of 0 models" in run_repose("cache")[1]
