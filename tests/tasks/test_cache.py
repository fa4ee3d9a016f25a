"""The cache: what of it is listed, removed and left."""

import json
from pathlib import Path

import pytest

from repose.data.corpora import prepared_home
from repose.decoding.graph_cache import graphs_home
from repose.saved_run.folder import RunFolder
from repose.saved_run.records import EndReason, EndRecord, RunStatus
from repose.system.errors import BusyError, CheckpointError
from repose.system.locks import locked_or_busy, making_lock, share_lock, using_lock
from repose.tasks.cache import graphs, prepared_corpora, remove_graphs, remove_state


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))


def write(path: Path, num_bytes: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * num_bytes)


def test_graphs_go_but_those_that_a_process_makes_or_uses() -> None:
    home = graphs_home()
    for name in ("idle", ".idle.new", "used", "made"):
        write(home / name / "encoder.onnx", 10)
    assert graphs()[0] == 3, "a half-written folder is of no other model"
    user = object.__new__(type("User", (), {}))
    share_lock(using_lock(home / "used"), user)
    with locked_or_busy(making_lock(home / "made"), "is making it"):
        assert remove_graphs() == (20, 2)
    assert {path.name for path in home.iterdir() if path.is_dir()} == {"used", "made"}
    del user
    assert remove_graphs() == (20, 0)
    assert graphs()[0] == 0


def test_prepared_corpora_are_listed_from_the_largest_on() -> None:
    for name, num_bytes in (("a", 1), ("b", 300), ("c", 20)):
        write(prepared_home() / name / "text" / "train.src", num_bytes)
    assert [(one.folder.name, one.num_bytes) for one in prepared_corpora()] == [("b", 300), ("c", 20), ("a", 1)]


@pytest.mark.parametrize(
    ("status", "is_scored", "is_removed"),
    [(RunStatus.DONE, True, True), (RunStatus.DONE, False, False), (RunStatus.STOPPED, True, False)],
)
def test_the_state_goes_where_a_training_is_over_and_its_model_scored(
    tmp_path: Path, status: RunStatus, is_scored: bool, is_removed: bool
) -> None:
    run = RunFolder(tmp_path / "run")
    end = EndRecord(status=status, reason=EndReason.EPOCHS, update=8, epoch=1, seconds=1.0, at="")
    write(run.state / "last.safetensors", 7)
    run.metrics_file.write_text(json.dumps(end.to_json()) + "\n")
    if is_scored:
        run.write_scores("valid", {"decoded": {}}, {})
    if not is_removed:
        with pytest.raises(CheckpointError, match="needs its state to go on"):
            remove_state(run.path)
        assert run.checkpoint.exists()
        return
    with locked_or_busy(run.lock_file, "is training"), pytest.raises(BusyError):
        remove_state(run.path)
    assert run.checkpoint.exists()
    assert remove_state(run.path) >= 7
    assert not run.state.exists()
    assert remove_state(run.path) == 0
