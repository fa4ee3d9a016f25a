"""A grid's folder: no cell runs twice, nothing is lost, and problems are reported by cell."""

import hashlib
import json
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import repose
from repose.config.file import from_json, to_json
from repose.grids import manifest
from repose.grids import run as grid_run
from repose.grids.cells import LOCK, CellJob, CellState, CellStatus, Lost, Tell, reason
from repose.grids.grid import Cell, Grid, read_grid
from repose.grids.manifest import DamagedManifestError, Entry
from repose.grids.run import GridOutcome, GridPlan, choose, jobs_of, make_plan, run_plan
from repose.grids.survey import Identity, identify
from repose.saved_run.folder import OTHER_CODE
from repose.system.errors import CheckpointError, ConfigError, DataError, WriteError
from repose.system.locks import locked_or_busy

FILE = """
[corpus]
name = "phrasebook"
[grid]
about = "a trial"
presets = ["baseline", "reinforced"]
seeds = 2
[grid.report]
baseline = "baseline"
"""
NAMES = ["baseline-s0", "reinforced-s0", "baseline-s1", "reinforced-s1"]


def identity(cell: Cell) -> Identity:
    """Stands for the digests of prepared data."""
    settings = replace(cell.experiment.training, bleu_sentences=None)
    digest = hashlib.sha256(f"{cell.experiment.architecture}{settings}".encode()).hexdigest()[:12]
    return Identity(digest, "prepared", "test")


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Grid:
    monkeypatch.setattr(grid_run, "identify", lambda cells, **_: {cell.name: identity(cell) for cell in cells})
    (tmp_path / "trial.toml").write_text(FILE, encoding="utf-8")
    return read_grid(tmp_path / "trial.toml")


def again(tmp_path: Path, *overrides: str, name: str = "trial") -> Grid:
    (tmp_path / f"{name}.toml").write_text(FILE, encoding="utf-8")
    return read_grid(tmp_path / f"{name}.toml", overrides=overrides)


def begin(folder: Path, experiment: str, run_id: str) -> None:
    """A run directory that was begun."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"run_id": run_id, "experiment": json.loads(experiment), "data": "prepared"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def finish(folder: Path, run_id: str, status: str = "done") -> None:
    end = {"kind": "end", "status": status, "reason": "epochs", "update": 9, "epoch": 1}
    wall = {"seconds": 1.0, "at": ""}
    (folder / "metrics.jsonl").write_text(json.dumps({**end, "wall": wall}) + "\n", encoding="utf-8")
    (folder / "scores.test.json").write_text(json.dumps({"run_id": run_id, "figures": {}}), encoding="utf-8")


@dataclass
class Backend:
    """Imitates trainings: what becomes of a cell is said in advance, else it is done."""

    grid: Grid
    ends: dict[str, CellState] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    kill_at: str = ""
    """The cell during which the process is asked to stop."""
    signal: int = signal.SIGTERM

    def __call__(self, jobs: Sequence[CellJob], tell: Tell, *, stop: threading.Event, kill: threading.Event) -> None:  # noqa: ARG002
        cells = {cell.name: cell for cell in self.grid.cells}
        for job in jobs:
            if stop.is_set():
                break
            self.ran.append(job.name)
            tell(job.name, CellState(status=CellStatus.RUNNING))
            run_id = identity(cells[job.name]).run_id
            begin(job.folder, job.experiment, run_id)
            if job.name == self.kill_at:
                os.kill(os.getpid(), self.signal)
            status = CellStatus.STOPPED if stop.is_set() else CellStatus.DONE
            state = self.ends.get(job.name, CellState(status=status))
            if state.status == CellStatus.DONE:
                finish(job.folder, run_id)
            tell(job.name, state)


def say(_: str) -> None:
    """Nothing."""


def plan(grid: Grid, out: Path, only: Sequence[str] = (), shard: str | None = None, retry: bool = True) -> GridPlan:
    return make_plan(grid, out, only=only, shard=shard, retry_failed=retry, say=say)


def go(found: GridPlan, backend: Backend) -> GridOutcome:
    return run_plan(found, jobs_of(found, device="cpu", cores=1), backend, watch=lambda *_: None)


def states(folder: Path) -> dict[str, str]:
    return {name: str(entry.status) for name, entry in entries(folder).items()}


def entries(folder: Path) -> dict[str, Entry]:
    return manifest.known_entries(folder)


def failed(message: str) -> CellState:
    return CellState(status=CellStatus.FAILED, message=message)


def test_a_grid_is_done_once(trial: Grid, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    backend = Backend(trial)
    outcome = go(plan(trial, out), backend)
    assert backend.ran == NAMES
    assert (outcome.exit_code, outcome.stopped) == (0, False)
    content = json.loads((out / "trial" / "grid.json").read_text())
    assert (content["format"], content["name"], content["about"]) == (1, "trial", "a trial")
    assert content["axes"] == {"system": ["baseline", "reinforced"]}
    assert content["report"] == {"baseline": "baseline"}
    cell = content["cells"][1]
    assert cell.pop("seconds") is not None
    assert cell == {
        "name": "reinforced-s0",
        "group": "reinforced",
        "labels": {"system": "reinforced"},
        "seed": 0,
        "run_id": identity(trial.cells[1]).run_id,
        "folder": "reinforced-s0",
        "status": "done",
        "reason": "",
    }
    second = plan(trial, out)
    assert second.todo == ()
    assert go(second, backend).exit_code == 0
    assert len(backend.ran) == 4


def test_failures_are_told_while_the_rest_goes_on_and_are_tried_again(trial: Grid, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    backend = Backend(trial, ends={"reinforced-s0": failed("the loss is no number")})
    outcome = go(plan(trial, out), backend)
    assert backend.ran == NAMES
    assert outcome.exit_code == 1
    assert entries(out / "trial")["reinforced-s0"].state.message == "the loss is no number"
    assert plan(trial, out, retry=False).todo == ()
    kept = plan(trial, out, retry=False).chosen[1]
    assert kept.state == failed("the loss is no number")
    backend.ends.clear()
    assert go(plan(trial, out), backend).exit_code == 0
    assert backend.ran == [*NAMES, "reinforced-s0"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1"])
def test_a_signal_stops_it_and_the_same_call_goes_on(name: str, trial: Grid, tmp_path: Path) -> None:
    out, number = tmp_path / "runs", getattr(signal, name)
    backend = Backend(trial, kill_at="reinforced-s0", signal=number)
    before = signal.getsignal(number)
    outcome = go(plan(trial, out), backend)
    assert signal.getsignal(number) is before
    assert (outcome.exit_code, outcome.stopped) == (3, True)
    assert states(out / "trial") == dict(zip(NAMES, ["done", "stopped", "waiting", "waiting"], strict=True))
    backend.kill_at = ""
    assert go(plan(trial, out), backend).exit_code == 0
    assert backend.ran == [*NAMES[:2], *NAMES[1:]]


def test_a_grid_that_was_stopped_is_to_be_gone_on_with_whatever_failed_before(trial: Grid, tmp_path: Path) -> None:
    backend = Backend(trial, ends={NAMES[0]: failed("out of memory")}, kill_at=NAMES[1])
    outcome = go(plan(trial, tmp_path), backend)
    assert [entry.status for entry in outcome.entries] == ["failed", "stopped", "waiting", "waiting"]
    assert outcome.exit_code == 3


def test_a_second_interrupt_kills(trial: Grid, tmp_path: Path) -> None:
    def deaf(_: Sequence[CellJob], __: Tell, *, stop: threading.Event, kill: threading.Event) -> None:
        seen = []
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            seen.append((stop.is_set(), kill.is_set()))
        assert seen == [(True, False), (True, True)]

    found = plan(trial, tmp_path)
    assert run_plan(found, jobs_of(found, device="cpu", cores=1), deaf, watch=lambda *_: None).exit_code == 3


def test_cells_that_another_grid_has_finished_are_taken_from_there(trial: Grid, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    go(plan(trial, out, only=["reinforced"]), Backend(trial))
    twin = again(tmp_path, name="twin")
    found = plan(twin, out)
    assert [entry.name for entry in found.todo] == ["baseline-s0", "baseline-s1"]
    assert entries(out / "twin")["reinforced-s0"].folder == "../trial/reinforced-s0"
    assert not (out / "twin" / "reinforced-s0").exists()
    # The training is the same, but not what was measured.
    measured = again(tmp_path, "decoding.beam_size=7", name="measured")
    assert len(plan(measured, out).todo) == 4
    often = again(tmp_path, "training.bleu_sentences=5", name="often")
    assert len(plan(often, out).todo) == 4


def test_one_that_is_finished_in_its_own_place_is_not_looked_for_elsewhere(trial: Grid, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    go(plan(trial, out), Backend(trial))
    go(plan(again(tmp_path, name="twin"), out), Backend(trial))
    assert {entry.folder for entry in entries(out / "trial").values()} == set(NAMES)


def test_another_run_in_a_cells_place_is_left_alone(trial: Grid, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    place = out / "trial" / "baseline-s0"
    begin(place, to_json(trial.cells[0].experiment), "0123456789ab")
    finish(place, "0123456789ab")
    backend = Backend(trial)
    outcome = go(plan(trial, out), backend)
    assert backend.ran == NAMES[1:]
    assert outcome.exit_code == 1
    assert "holds run 0123456789ab" in outcome.entries[0].state.message
    assert json.loads((place / "scores.test.json").read_text())["run_id"] == "0123456789ab"


def test_finished_cells_stay_in_the_manifest_when_the_file_changes(trial: Grid, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    go(plan(trial, out), Backend(trial))
    before = entries(out / "trial")
    changed = again(tmp_path, "training.label_smoothing=0.2")
    outcome = go(plan(changed, out), Backend(changed))
    assert outcome.exit_code == 1
    assert all("has settings or data that differ" in entry.state.message for entry in outcome.entries)
    assert entries(out / "trial") == before


def test_a_cell_that_has_another_name_by_now_is_not_left_out(trial: Grid, tmp_path: Path) -> None:
    out, said = tmp_path / "runs", list[str]()
    go(plan(trial, out), Backend(trial))
    grid = again(tmp_path)
    cells = tuple(replace(cell, name=cell.name.replace("baseline", "plain")) for cell in grid.cells)
    found = make_plan(replace(grid, cells=cells), out, only=["plain-s0"], say=said.append)
    assert [(entry.name, entry.folder) for entry in found.chosen] == [("plain-s0", "baseline-s0")]
    assert [text for text in said if "leaves out" in text] == [
        "its report leaves out 1 finished cell that this call does not name, such as baseline-s1: to include them, "
        "name all seeds and values at once"
    ]  # the call is not about that one, whose run id is not known


def test_a_cell_that_was_removed_begins_with_no_seconds(trial: Grid, tmp_path: Path) -> None:
    go(plan(trial, tmp_path), Backend(trial))
    manifest.update(tmp_path / "trial", NAMES[0], seconds=700.0)
    shutil.rmtree(tmp_path / "trial" / NAMES[0])
    assert (go(plan(trial, tmp_path), Backend(trial)).entries[0].seconds or 0.0) < 700.0
    early = replace(entries(tmp_path / "trial")[NAMES[1]], state=failed("no memory"), seconds=700.0)
    shutil.rmtree(tmp_path / "trial" / NAMES[1])
    manifest.update(tmp_path / "trial", NAMES[1], state=early.state, seconds=700.0)
    assert plan(trial, tmp_path, retry=False).chosen[1].seconds == 700.0  # which failed before it began a run there


def test_finished_cells_that_a_call_does_not_name_are_told(trial: Grid, tmp_path: Path) -> None:
    out, said = tmp_path / "runs", list[str]()
    go(plan(trial, out), Backend(trial))
    make_plan(read_grid(tmp_path / "trial.toml", seeds="7,"), out, say=said.append)
    assert any(f"its report leaves out {len(NAMES)} finished cells" in text and NAMES[0] in text for text in said)
    said.clear()
    make_plan(trial, out, say=said.append)
    assert not said


def test_what_another_process_enters_meanwhile_stays(trial: Grid, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "trial"
    first = plan(trial, tmp_path / "runs")
    known = entries(folder)
    manifest.update(
        folder, NAMES[1], state=CellState(status=CellStatus.DONE), seconds=7.0
    )  # while a second process prepares its corpora
    mine = {entry.name: entry for entry in first.chosen}
    manifest.write(folder, trial, mine, known, rest={})
    found = entries(folder)
    assert (found[NAMES[1]].status, found[NAMES[1]].seconds) == ("done", 7.0)
    assert {entry.status for name, entry in found.items() if name != NAMES[1]} == {"waiting"}
    others = {name: replace(entry, run_id="0" * 12) for name, entry in mine.items()}
    manifest.write(folder, trial, others, known, rest={})  # of other settings: what was entered is of other runs
    assert {entry.status for entry in entries(folder).values()} == {"waiting"}


def test_cells_of_a_process_with_other_seeds_stay(trial: Grid, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "trial"
    other = read_grid(tmp_path / "trial.toml", seeds="7,")
    first, cell = plan(trial, tmp_path / "runs"), folder / NAMES[0]
    cell.mkdir()
    with locked_or_busy(cell / LOCK, "is at work"):
        plan(other, tmp_path / "runs")
        assert NAMES[0] in entries(folder), "it is being worked on"
        assert NAMES[1] not in entries(folder), "it is only waiting"
    go(first, Backend(trial))
    found = states(folder)
    assert {found[name] for name in NAMES} == {"done"}
    assert found["baseline-s7"] == "waiting"


def test_a_view_that_nobody_reads_does_not_stop_the_work(trial: Grid, tmp_path: Path) -> None:
    def watch(*_: object) -> None:
        raise BrokenPipeError

    found = plan(trial, tmp_path / "runs")
    outcome = run_plan(found, jobs_of(found, device="cpu", cores=1), Backend(trial), watch=watch)
    assert outcome.exit_code == 0
    assert set(states(tmp_path / "runs" / "trial").values()) == {"done"}


def test_seconds_that_another_process_enters_meanwhile_are_added_to(trial: Grid, tmp_path: Path) -> None:
    stale, folder = plan(trial, tmp_path / "runs"), tmp_path / "runs" / "trial"
    manifest.update(folder, NAMES[0], seconds=700.0)
    go(stale, Backend(trial))
    assert (entries(folder)[NAMES[0]].seconds or 0.0) >= 700.0


def test_one_that_was_interrupted_does_not_go_on_to_be_measured_otherwise(trial: Grid, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    go(plan(trial, out), Backend(trial))
    for name in NAMES:
        (out / "trial" / name / "scores.test.json").unlink()
    assert {entry.status for entry in plan(trial, out).todo} == {"stopped"}
    found = plan(again(tmp_path, "decoding.beam_size=7"), out)
    assert found.todo == ()
    assert all(entry.status == "failed" and "with other scores" in entry.state.message for entry in found.chosen)


def test_scores_beside_a_training_that_was_only_stopped_do_not_finish_it(trial: Grid, tmp_path: Path) -> None:
    """As `repose evaluate RUN --out RUN` leaves them."""
    out = tmp_path / "runs"
    go(plan(trial, out), Backend(trial))
    for name in NAMES[:2]:
        finish(out / "trial" / name, entries(out / "trial")[name].run_id or "", status="stopped")
    assert {entry.name: str(entry.status) for entry in plan(trial, out).todo} == dict.fromkeys(NAMES[:2], "stopped")
    assert [entry.name for entry in plan(again(tmp_path, name="twin"), out).todo] == NAMES[:2]


def test_the_same_training_measured_otherwise_is_not_taken_for_it(trial: Grid, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    go(plan(trial, out), Backend(trial))
    found = plan(again(tmp_path, "decoding.beam_size=7"), out)
    assert found.todo == ()
    assert all(entry.status == "failed" and "with other scores" in entry.state.message for entry in found.chosen)


def test_the_same_training_with_another_test_set_is_not_taken_for_it(
    trial: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test set is in no run's id, only in the name of the prepared data."""
    out = tmp_path / "runs"
    go(plan(trial, out), Backend(trial))
    other = {cell.name: replace(identity(cell), data="another") for cell in trial.cells}
    monkeypatch.setattr(grid_run, "identify", lambda *_, **__: other)
    found = plan(trial, out)
    assert found.todo == ()
    assert all(entry.status == "failed" and "with other scores" in entry.state.message for entry in found.chosen)


@pytest.mark.usefixtures("trial")
@pytest.mark.parametrize("setting", ["decoding.beam_size", "training.bleu_sentences"])
def test_one_training_measured_in_two_ways_is_two_cells(setting: str, tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(f"{FILE}[grid.vary]\n'{setting}' = [1, 4]\n", encoding="utf-8")
    found = plan(read_grid(path), tmp_path)
    assert len({one.run_id for one in found.identities.values() if isinstance(one, Identity)}) == len(NAMES)
    assert len(found.todo) == 2 * len(NAMES)


def test_cells_that_are_one_run_written_in_two_ways_are_refused(
    trial: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        grid_run, "identify", lambda cells, **_: {c.name: Identity(f"{c.seed}", "prepared", "test") for c in cells}
    )
    with pytest.raises(ConfigError, match="cells baseline-s0 and reinforced-s0 are the same run, 0: exclude one"):
        plan(trial, tmp_path)


def test_half_written_results(trial: Grid, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    go(plan(trial, out), Backend(trial))
    folders = {name: out / "trial" / name for name in NAMES}
    (folders["baseline-s0"] / "config.json").write_text('{"run_id": "', encoding="utf-8")
    (folders["reinforced-s0"] / "scores.test.json").write_text('{"run_id": "', encoding="utf-8")
    (folders["baseline-s1"] / "config.json").unlink()
    found = plan(trial, out)
    chosen = {entry.name: entry for entry in found.chosen}
    place = folders["baseline-s0"]
    assert "config.json is damaged" in chosen["baseline-s0"].state.message
    assert f"move {place} away and run the grid again" in chosen["baseline-s0"].state.message
    assert [(n, chosen[n].status) for n in NAMES] == list(
        zip(NAMES, ["failed", "stopped", "waiting", "done"], strict=True)
    )
    assert [entry.name for entry in found.todo] == ["reinforced-s0", "baseline-s1"]
    place.rename(tmp_path / "away")
    assert [entry.name for entry in plan(trial, out).todo] == ["baseline-s0", "reinforced-s0", "baseline-s1"]


def test_cells_that_were_done_before_an_equation_was_changed_are_told(trial: Grid, tmp_path: Path) -> None:
    go(plan(trial, tmp_path), Backend(trial))
    path = tmp_path / "trial" / "baseline-s0" / "config.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"versions": {"repose": repose.__version__, "code": "before"}}))
    told: list[str] = []
    found = make_plan(trial, tmp_path, say=told.append)
    assert found.todo == ()
    (sentence,) = told
    assert sentence.startswith(f"1 finished cell, such as baseline-s0: started {OTHER_CODE}: choose another --out")


def test_manifests_of_other_versions_and_damaged_ones(trial: Grid, tmp_path: Path) -> None:
    path = tmp_path / "trial" / "grid.json"
    go(plan(trial, tmp_path), Backend(trial))
    whole = json.loads(path.read_text())
    path.write_text(json.dumps(whole | {"format": 2}))
    with pytest.raises(CheckpointError, match=r"grid\.json has format 2, this repose reads 1"):
        plan(trial, tmp_path)
    assert json.loads(path.read_text())["format"] == 2
    for damaged in ('{"format": 1, "cel', "[]", '{"format": 1}', '{"format": 1, "cells": [{"nme": "x"}]}', "\x00"):
        path.write_text(damaged)
        assert plan(trial, tmp_path).todo == ()
        assert set(states(tmp_path / "trial").values()) == {"done"}
    for report in ({"sentences": 3}, {"sentences": "abc"}, {"published": 3}, {"published": [1]}, {"baseline": []}):
        path.write_text(json.dumps(whole | {"report": report}))
        with pytest.raises(DamagedManifestError, match=r"grid\.json is damaged"):
            manifest.read(tmp_path / "trial")


def test_a_corpus_that_cannot_be_prepared_fails_its_cells_alone(
    trial: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def some(cells: Sequence[Cell], **_: object) -> dict[str, Identity | DataError]:
        missing = DataError("corpus x is not there: fetch it")
        return {cell.name: missing if cell.seed else identity(cell) for cell in cells}

    monkeypatch.setattr(grid_run, "identify", some)
    backend = Backend(trial)
    outcome = go(plan(trial, tmp_path), backend)
    assert backend.ran == NAMES[:2]
    assert outcome.exit_code == 1
    assert outcome.entries[3].state.message == "corpus x is not there: fetch it"


def test_a_cells_seconds_outlast_a_look_without_its_files(
    trial: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(plan(trial, tmp_path), Backend(trial))
    took = {name: entry.seconds for name, entry in entries(tmp_path / "trial").items()}
    assert None not in took.values()
    with monkeypatch.context() as patched:
        missing = DataError("corpus x is not there: fetch it")
        patched.setattr(grid_run, "identify", lambda cells, **_: {cell.name: missing for cell in cells})
        assert set(plan(trial, tmp_path).identities.values()) == {missing}
        assert set(states(tmp_path / "trial").values()) == {"done"}, "what is done stays so"
        (tmp_path / "trial" / NAMES[0] / "scores.test.json").unlink()
        plan(trial, tmp_path)
        assert states(tmp_path / "trial") == dict.fromkeys(NAMES, "done") | {NAMES[0]: "failed"}
    finish(tmp_path / "trial" / NAMES[0], identity(trial.cells[0]).run_id)
    assert plan(trial, tmp_path).todo == ()
    assert {name: entry.seconds for name, entry in entries(tmp_path / "trial").items()} == took


def test_corpora_of_cells_that_are_not_chosen_are_left_alone(
    trial: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(plan(trial, tmp_path), Backend(trial))
    before, asked = entries(tmp_path / "trial"), []

    def identify(cells: Sequence[Cell], **_: object) -> dict[str, Identity]:
        asked.extend(cell.name for cell in cells)
        return {cell.name: identity(cell) for cell in cells}

    monkeypatch.setattr(grid_run, "identify", identify)
    found = plan(trial, tmp_path, only=["reinforced-s1"])
    assert asked == ["reinforced-s1"]
    assert [entry.name for entry in found.chosen] == ["reinforced-s1"]
    assert entries(tmp_path / "trial") == before, "what is known of the others stays"
    plan(trial, tmp_path / "new", only=["reinforced-s1"])
    assert states(tmp_path / "new" / "trial") == dict.fromkeys(NAMES, "waiting"), "the manifest names all cells"
    (tmp_path / "trial" / "grid.json").write_text("{", encoding="utf-8")
    (tmp_path / "trial" / NAMES[0] / "scores.test.json").unlink()
    plan(trial, tmp_path, only=["reinforced-s1"])
    assert states(tmp_path / "trial") == dict.fromkeys(NAMES, "done") | {NAMES[0]: "stopped"}
    assert [entry.run_id for entry in entries(tmp_path / "trial").values()] == [e.run_id for e in before.values()]


def test_shards_that_start_together_keep_what_the_other_entered(
    trial: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def identify(cells: Sequence[Cell], **_: object) -> dict[str, Identity]:
        with monkeypatch.context() as patched:
            patched.setattr(grid_run, "identify", lambda cells, **_: {cell.name: identity(cell) for cell in cells})
            go(plan(trial, tmp_path, shard="1/2"), Backend(trial))  # all of it, while this one prepares its corpora
        return {cell.name: identity(cell) for cell in cells}

    monkeypatch.setattr(grid_run, "identify", identify)
    plan(trial, tmp_path, shard="0/2")
    found = entries(tmp_path / "trial")
    assert [str(found[name].status) for name in NAMES] == ["waiting", "done", "waiting", "done"]
    assert {name: entry.run_id for name, entry in found.items()} == {c.name: identity(c).run_id for c in trial.cells}


def test_choices(trial: Grid) -> None:
    def chosen(*only: str, shard: str | None = None) -> list[str]:
        return [cell.name for cell in choose(trial.cells, only, shard)]

    assert chosen() == NAMES
    assert chosen("reinforced") == chosen("reinf*") == NAMES[1::2]
    assert chosen("*-s1", "baseline-s0") == ["baseline-s0", *NAMES[2:]]
    assert chosen(shard="0/3") + chosen(shard="1/3") + chosen(shard="2/3") == [NAMES[i] for i in (0, 3, 1, 2)]
    assert chosen(shard="5/6") == []
    with pytest.raises(ConfigError, match="matches no cell: groups are baseline, reinforced"):
        chosen("reinforcd")
    many = [replace(trial.cells[0], group=f"group-{number}") for number in range(23)]
    with pytest.raises(ConfigError, match="group-19 and 3 more; "):
        choose(many, ["reinforcd"], None)
    for wrong in ("2/2", "1", "a/b", "-1/2", "0/0", "1/2/3"):
        with pytest.raises(ConfigError, match="--shard should be I/N"):
            chosen(shard=wrong)


def test_shards_share_one_folder(trial: Grid, tmp_path: Path) -> None:
    backends = [Backend(trial), Backend(trial)]
    plans = [plan(trial, tmp_path, shard=f"{i}/2") for i in range(2)]
    for found, backend in zip(plans, backends, strict=True):
        assert go(found, backend).exit_code == 0
    assert backends[0].ran == NAMES[::2]
    assert backends[1].ran == NAMES[1::2]
    assert set(states(tmp_path / "trial").values()) == {"done"}


@pytest.mark.parametrize("lock_file", [LOCK, "state/lock"])
def test_a_cell_that_another_process_holds_is_neither_run_nor_failed(
    lock_file: str, trial: Grid, tmp_path: Path
) -> None:
    lock = tmp_path / "trial" / "baseline-s0" / lock_file
    lock.parent.mkdir(parents=True)
    with locked_or_busy(lock, ""):
        # And one that is taken between the look and the run.
        backend = Backend(trial, ends={"reinforced-s0": CellState(status=CellStatus.ELSEWHERE, message="x")})
        outcome = go(plan(trial, tmp_path), backend)
    assert backend.ran == NAMES[1:]
    assert [entry.status for entry in outcome.entries] == [*["running elsewhere"] * 2, "done", "done"]
    assert [entry.seconds is None for entry in outcome.entries] == [True, True, False, False]  # those are the other's
    assert outcome.entries[0].state.message == f"process {os.getpid()} on {socket.gethostname()}"
    assert outcome.exit_code == 3


def test_what_failed_here_and_another_process_has_taken_up_counts(trial: Grid, tmp_path: Path) -> None:
    class Failing(Backend):
        def __call__(
            self, jobs: Sequence[CellJob], tell: Tell, *, stop: threading.Event, kill: threading.Event
        ) -> None:
            super().__call__(jobs, tell, stop=stop, kill=kill)
            go(plan(trial, tmp_path, only=[NAMES[0]]), Backend(trial))

    unlucky = dict.fromkeys(NAMES[:2], failed("the loss is no number"))
    outcome = go(plan(trial, tmp_path), Failing(trial, ends=unlucky))
    assert [entry.status for entry in outcome.entries] == ["done", "failed", "done", "done"]
    lock = tmp_path / "trial" / NAMES[1] / LOCK
    with locked_or_busy(lock, ""):
        later = plan(trial, tmp_path)
        book = grid_run.Book(replace(later, chosen=outcome.entries), lambda *_: None)
        book.look_again(replace(later, todo=outcome.entries))
    assert book.entries[NAMES[1]].status == CellStatus.ELSEWHERE


def test_what_another_process_has_finished_meanwhile_counts(trial: Grid, tmp_path: Path) -> None:
    """Two calls on one grid: the last one to end says how all cells stand."""
    elsewhere = CellState(status=CellStatus.ELSEWHERE, message="process 7")

    class Late(Backend):
        def __call__(
            self, jobs: Sequence[CellJob], tell: Tell, *, stop: threading.Event, kill: threading.Event
        ) -> None:
            for job in jobs[:2]:
                tell(job.name, CellState(status=CellStatus.RUNNING))
                tell(job.name, elsewhere)
            others = Backend(trial, ends={NAMES[1]: failed("the loss is no number")})
            go(replace(first, todo=first.todo[:2]), others)
            super().__call__(jobs[2:], tell, stop=stop, kill=kill)

    first, second = plan(trial, tmp_path), plan(trial, tmp_path)
    outcome = go(second, Late(trial))
    assert [entry.status for entry in outcome.entries] == ["done", "failed", "done", "done"]
    assert outcome.entries[1].state.message == "the loss is no number"
    assert outcome.entries[0].seconds is not None
    assert outcome.exit_code == 1
    assert entries(tmp_path / "trial") == {entry.name: entry for entry in outcome.entries}
    # The other's end is overwritten by what was true a moment before: the run directory says what it came to.
    go(plan(trial, tmp_path), Backend(trial))
    manifest.update(tmp_path / "trial", NAMES[0], state=elsewhere)
    theirs = replace(second.chosen[0], state=elsewhere)
    outcome = go(replace(second, chosen=(theirs,), todo=()), Backend(trial))
    assert (outcome.exit_code, outcome.entries[0].state.message) == (0, "")
    assert states(tmp_path / "trial")[NAMES[0]] == "done"


def test_one_that_finished_as_it_was_asked_to_stop_is_done(trial: Grid, tmp_path: Path) -> None:
    """A cluster tells of those that it was asked to stop only that they have ended."""

    class Deaf(Backend):
        def __call__(
            self, jobs: Sequence[CellJob], tell: Tell, *, stop: threading.Event, kill: threading.Event
        ) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.is_set()
            super().__call__(jobs[:1], lambda *_: None, stop=threading.Event(), kill=kill)
            tell(jobs[0].name, CellState(status=CellStatus.STOPPED))

    outcome = go(plan(trial, tmp_path, only=["baseline"], shard="0/2"), Deaf(trial))
    assert (outcome.exit_code, [entry.status for entry in outcome.entries]) == (0, ["done"])
    assert states(tmp_path / "trial")[NAMES[0]] == "done"


def test_all_that_is_known_of_a_cell_is_read_as_it_was_written(trial: Grid, tmp_path: Path) -> None:
    plan(trial, tmp_path)
    lost = CellState(status=CellStatus.FAILED, lost=Lost.MEMORY, host="node7", attempt=4)
    killed = CellState(status=CellStatus.FAILED, exit_code=-9)
    for name, state in zip(NAMES, (lost, killed), strict=False):
        manifest.update(tmp_path / "trial", name, state=state, seconds=2.5)
    found = entries(tmp_path / "trial")
    assert [found[name].state for name in NAMES] == [lost, killed, CellState(), CellState()]
    assert found[NAMES[0]].seconds == 2.5


def test_a_grid_json_of_an_earlier_version_is_read(trial: Grid, tmp_path: Path) -> None:
    """Its reasons are whole sentences."""
    path = tmp_path / "trial" / "grid.json"
    plan(trial, tmp_path)
    content = json.loads(path.read_text())
    content["cells"][0] |= {"status": "failed", "reason": "its process was killed by signal 9"}
    content["cells"][1] |= {"status": "running", "reason": "running elsewhere: process 7"}
    path.write_text(json.dumps(content))
    assert entries(tmp_path / "trial")[NAMES[0]].state == failed("its process was killed by signal 9")
    assert reason(plan(trial, tmp_path, retry=False).chosen[0].state) == "its process was killed by signal 9"
    assert states(tmp_path / "trial")[NAMES[1]] == "waiting"


def test_a_full_disk_is_one_sentence_and_stops_no_cell(
    trial: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = plan(trial, tmp_path)

    def full(path: Path, *_: object) -> None:
        raise WriteError(f"{path} cannot be written (No space left on device): make room")

    with monkeypatch.context() as patch:
        patch.setattr(manifest, "write_json", full)
        backend = Backend(trial)
        outcome = go(found, backend)
        assert backend.ran == NAMES
        assert "grid.json cannot be written (No space left on device): make room" in outcome.note
        with pytest.raises(WriteError, match=r"grid\.json cannot be written"):
            plan(trial, tmp_path)
    assert plan(trial, tmp_path).todo == ()  # what the cells have come to is in their own folders


def test_a_run_directory_is_no_grids(trial: Grid, tmp_path: Path) -> None:
    begin(tmp_path / "trial", to_json(trial.cells[0].experiment), "x")
    with pytest.raises(CheckpointError, match="is a run directory: choose another --out"):
        plan(trial, tmp_path)


def test_jobs_carry_whole_experiments(trial: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    jobs = jobs_of(plan(trial, Path("runs")), device="cuda", cores=3, gpus=0.5)
    assert [job.name for job in jobs] == NAMES
    assert jobs[2].folder == tmp_path / "runs" / "trial" / "baseline-s1"
    assert from_json(jobs[2].experiment) == trial.cells[2].experiment
    assert (jobs[0].cores, jobs[0].gpus, jobs[0].device) == (3, 0.5, "cuda")


def test_a_corpus_is_prepared_once_and_ids_are_those_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a real run's own id."""
    from repose.runs.run import run
    from repose.tasks import corpus as corpus_data

    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    rows = [f"{a} {b}\t{b} {a}\n" for a in ("one", "two", "six") for b in ("red", "sun", "oak", "elm")]
    (tmp_path / "pairs.tsv").write_text("".join(rows), encoding="utf-8")
    (tmp_path / "small.toml").write_text(
        """
[tokenizer]
kind = "wordlevel"
[architecture]
d_token = 8
num_heads = 1
d_ff = 8
[training]
updates = 1
[corpus]
held_out_test = 0
[decoding]
beam_size = 1
max_extra_tokens = 0
[grid]
presets = ["ablation-none", "ablation-values"]
seeds = 2
[grid.vary]
"training.max_hours" = [1.0, 2.0]
[grid.corpora]
pairs = { train = ["pairs.tsv"] }
absent = { train = ["absent.tsv"] }
""",
        encoding="utf-8",
    )
    grid = read_grid(tmp_path / "small.toml")
    prepared, real = [], corpus_data.prepare_corpus
    monkeypatch.setattr(
        corpus_data, "prepare_corpus", lambda experiment, **kw: prepared.append(experiment) or real(experiment, **kw)
    )
    told: list[str] = []
    found = identify(grid.cells, say=told.append)
    assert len(prepared) == 2
    assert told
    assert all(sentence.startswith("pairs: ") for sentence in told)
    for cell in grid.cells:
        assert isinstance(found[cell.name], Identity if cell.labels["corpus"] == "pairs" else DataError)
    ids = [found[cell.name] for cell in grid.cells if cell.labels["corpus"] == "pairs"]
    assert len(set(ids)) == 8
    result = run(grid.cells[0].experiment, tmp_path / "run", device="cpu", workers=1, progress="none")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert found[grid.cells[0].name] == Identity(result.run_id, config["data"], "valid")
