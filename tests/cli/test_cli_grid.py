"""`repose grid` as users see it."""

import contextlib
import functools
import hashlib
import io
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from repose.config.experiment import CorpusConfig, TokenizerConfig
from repose.config.file import from_json, to_json
from repose.data.batching import Batches
from repose.grids import estimate, view
from repose.grids import run as grid_run
from repose.grids.cells import CellState, CellStatus, Lost, reason
from repose.grids.estimate import Cost, estimate_table
from repose.grids.grid import Cell, read_grid
from repose.grids.local import Share
from repose.grids.run import GridOutcome, make_plan
from repose.grids.survey import Identity
from repose.grids.view import GridLines, GridLive, headline, outcome_table, progress
from repose.system.errors import ReposeError
from repose.system.terminal import duration

FILE = """
[corpus]
name = "phrasebook"
[tokenizer]
vocab_size = 400
[architecture]
d_token = 16
num_heads = 2
head_dim = 8
d_ff = 32
num_encoder_layers = 1
num_decoder_layers = 1
[training]
batch_size = 1000
epochs = 2
schedule = "inverse_sqrt"
learning_rate = 0.004
[decoding]
max_extra_tokens = 3
[grid]
about = "a trial of two"
budget = "seconds"
presets = ["ablation-none", "reinforced"]
seeds = 2
"""
IMITATION = """
import hashlib, json, sys
from pathlib import Path
from typing import Any
folder, order = Path(sys.argv[1]), json.load(sys.stdin)
experiment = json.loads(order["experiment"])
if experiment["training"]["seed"] == 1 and experiment["architecture"]["combine"] == "concat":
    sys.exit("repose: the loss is no longer a finite number")
run_id = hashlib.sha256(order["experiment"].encode()).hexdigest()[:12]
config = {"run_id": run_id, "experiment": experiment, "data": "prepared"}
(folder / "config.json").write_text(json.dumps(config))
end = {"kind": "end", "status": "done", "reason": "epochs", "update": 9, "epoch": 2, "wall": {"seconds": 1, "at": ""}}
(folder / "metrics.jsonl").write_text(json.dumps(end) + chr(10))
decoded = {"greedy": {"bleu": {"value": 1}}, "beam4": {"bleu": {"value": 27.125}}}
scores = {"run_id": run_id, "split": "test", "decoded": decoded}
(folder / "scores.test.json").write_text(json.dumps(scores))
"""
POPEN = subprocess.Popen
RUNNING = CellState(status=CellStatus.RUNNING)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(run_repose: Run) -> Run:
    """Runs `repose grid` in this process: (exit code, stdout, stderr)."""
    return functools.partial(run_repose, "grid")


def identities(cells: tuple[Cell, ...], **_: object) -> dict[str, Identity]:
    def digest(cell: Cell) -> str:
        return hashlib.sha256(to_json(cell.experiment).encode()).hexdigest()[:12]

    return {cell.name: Identity(digest(cell), "prepared", "test") for cell in cells}


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A grid file; cells are imitated, and no corpus is prepared."""

    def popen(command: list[str], **options: object) -> object:
        return POPEN([sys.executable, "-c", IMITATION, command[-1]], **options)  # type: ignore[call-overload]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("subprocess.Popen", popen)
    monkeypatch.setattr(grid_run, "identify", identities)
    (tmp_path / "trial.toml").write_text(FILE, encoding="utf-8")
    return tmp_path / "trial.toml"


def test_without_a_file_the_shipped_grids_are_listed(run: Run) -> None:
    code, out, _ = run()
    assert code == 0
    assert "reinforced-ablation-small" in out
    assert "two cores" in out


def test_from_the_first_call_to_the_last(trial: Path, run: Run) -> None:
    code, out, err = run(trial, "--jobs", 2, "--only", "*-s0")
    assert code == 0
    rows = [line for line in out.splitlines() if "-s" in line]
    assert len(rows) == 2
    assert all("done" in row and "BLEU 27.12 (beam4, test)" in row for row in rows)
    assert "2 cells, 0 of them done, 2 to run, 2 at once" in err
    assert re.search(r"\[1/2\] \S+: done after \d+ s, BLEU 27.12", err)
    code, out, err = run(trial)
    assert code == 1
    assert "4 cells, 2 of them done, 2 to run" in err
    assert "reinforced-s1: failed after" in err
    assert "the loss is no longer a finite number" in out
    assert "repose report runs/trial" in err
    (line,) = [line for line in run(trial, "--no-retry-failed")[2].splitlines() if "0 to run" in line]
    assert line.endswith("3 of them done, 0 to run, 1 that failed")  # and nothing of how many at once
    found = json.loads(Path("runs/trial/grid.json").read_text())
    assert [cell["status"] for cell in found["cells"]] == ["done", "done", "done", "failed"]


def test_what_is_left_of_a_grid_gets_no_more_cores(trial: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would change the bits of its training."""
    monkeypatch.setattr("repose.grids.local.available_cores", lambda: 4)
    assert "4 to run, 2 at once on 2 cores each" in run(trial, "--jobs", 2)[2]
    assert "1 to run, 1 at once on 2 cores each" in run(trial, "--jobs", 2)[2]


def test_shards(trial: Path, run: Run) -> None:
    assert run(trial, "--shard", "0/2")[0] == 0
    code, out, _ = run(trial, "--shard", "1/2")
    assert code == 1
    assert [line.split()[1] for line in out.splitlines() if "-s" in line] == ["reinforced-s0", "reinforced-s1"]


BAD = {
    "no such grid": (["reinforced-ablation-smal"], "did you mean 'reinforced-ablation-small'"),
    "no grid": (["default"], "it is one experiment, for `repose train --config default`"),
    "backend": (["trial.toml", "--on", "cloud"], "there is no backend 'cloud'"),
    "setting": (["trial.toml", "--set", "training.epoch=3"], "did you mean 'training.epochs'"),
    "pattern": (["trial.toml", "--only", "x"], "matches no cell"),
    "shard": (["trial.toml", "--shard", "2/2"], "I from 0 to N - 1"),
    "seeds": (["trial.toml", "--seeds", "many"], "--seeds"),
    "jobs": (["trial.toml", "--jobs", "0"], "--jobs = 0"),
    "cores": (["trial.toml", "--cores-per-cell", "9999"], "--cores-per-cell = 9999, but there are"),
    "device": (["trial.toml", "--device", "tpu"], "there is no device 'tpu'"),
    "device that trains nothing": (["trial.toml", "--device", "mps"], "there is no device 'mps'"),
    "of Ray": (
        ["trial.toml", "--address", "1.2.3.4", "--retries", "7"],
        "--address and --retries would have no effect: leave them out, or add --on ray",
    ),
    "of this machine": (
        ["trial.toml", "--on", "ray", "--jobs", "2"],
        "--jobs would have no effect: leave it out, or add --on local",
    ),
    "of GPUs": (
        ["trial.toml", "--device", "cpu", "--gpus-per-cell", "0.5"],
        "--gpus-per-cell = 0.5, but there are no GPUs to share here: leave it out",
    ),
}


@pytest.mark.parametrize(("arguments", "sentence"), BAD.values(), ids=BAD.keys())
def test_bad_usage_is_one_sentence_before_anything_is_written(
    arguments: list[str], sentence: str, trial: Path, run: Run
) -> None:
    assert trial.exists()
    code, _, err = run(*arguments)
    assert code == 2
    assert err.splitlines()[-1].startswith("repose: ")
    assert sentence in err.splitlines()[-1]
    assert not Path("runs").exists()


def test_numbers_and_devices_are_checked_before_corpora_are_prepared(
    trial: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[tuple[Cell, ...]] = []

    def identify(cells: tuple[Cell, ...], **_: object) -> dict[str, Identity]:
        prepared.append(cells)
        return identities(cells)

    monkeypatch.setattr(grid_run, "identify", identify)
    for wrong in (("--jobs", 0), ("--cores-per-cell", 9999), ("--device", "tpu")):
        assert run(trial, *wrong)[0] == 2
    assert prepared == []
    assert run(trial, "--only", "ablation-none")[0] == 0
    assert len(prepared) == 1


def test_a_dry_run_shows_what_it_would_take_and_changes_nothing(
    trial: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = Cost(
        parameters=25_168,
        updates=908,
        update_seconds=0.5,
        validation_seconds=10.0,
        validations=2,
        translation_seconds=0.0,
        decode_seconds=100.0,
        start_seconds=6.0,
        memory_bytes=2**30,
    )
    measured: list[str] = []

    def in_process(order: dict[str, Any]) -> Cost | ReposeError:
        measured.append(estimate.kind_of(from_json(order["experiment"])))
        return ReposeError("it needs a GPU") if '"concat"' in measured[-1] else cost

    monkeypatch.setattr(estimate, "_in_process", in_process)
    code, out, _ = run(trial, "--dry-run", "--jobs", 2)
    assert code == 0
    assert len(measured) == 2  # of four cells: seeds take the same time
    rows = {line.split()[1]: line for line in out.splitlines() if "-s" in line and "│" in line}
    assert "25,168" in rows["ablation-none-s1"]
    assert "908" in rows["ablation-none-s1"]
    assert "10 min" in rows["ablation-none-s1"]  # 6 + 908 / 2 + 20 + 100 seconds
    assert "1.0 GiB" in rows["ablation-none-s1"]
    assert "it needs a GPU" in rows["reinforced-s0"]
    assert re.search(r"time +about 10 min with 2 cells at once on \d+ cores? each; 19 min one after the other", out)
    assert re.search(r"memory +about 2.0 GiB", out)
    assert "rests on 10 updates" in " ".join(out.split())
    assert not Path("runs").exists()


def test_a_mixture_is_not_counted_to_the_end_of_time(
    trial: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its epochs are of different pairs, so that each is counted; the measuring training ends after a few updates."""
    counted: list[int] = []
    num_batches = Batches.num_batches

    def count(self: Batches, epoch: int) -> int:
        counted.append(epoch)
        assert len(counted) < 1000
        return num_batches(self, epoch)

    monkeypatch.setattr(Batches, "num_batches", count)
    for name in ("train", "more"):
        (tmp_path / f"{name}.tsv").write_text("".join(f"gato {n}\tcat {n}\n" for n in range(60)), encoding="utf-8")
    (small,) = {c.experiment for c in read_grid(trial).cells[:1]}
    corpus = CorpusConfig(train=(str(tmp_path / "train.tsv"),), synthetic=(str(tmp_path / "more.tsv"),))
    training = replace(small.training, batching="tokens", batch_size=300, upsample=2)
    mixed = replace(small, corpus=corpus, training=training, tokenizer=TokenizerConfig(kind="wordlevel"))
    cost = estimate.measure(mixed, tmp_path / "measured", device="cpu", workers=1, began=time.time())
    assert cost.updates
    assert counted


def test_all_translations_are_in_the_estimate_and_once(trial: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the choice of a search: greedy search and the beam with each of four penalties on the validation set, and the
    best of both once more."""

    class Fake(contextlib.nullcontext[Any]):
        tgt_tokenizer = SimpleNamespace(encode_batch=lambda lines: [[2, 5, 5, 3]] * len(lines))  # three steps each

        def translate(self, texts: list[str], beam_size: int) -> list[Any]:
            assert beam_size in (1, 4)
            return [SimpleNamespace(hypotheses=[SimpleNamespace(tokens=["a", "b"])]) for _ in texts]

    fake = Fake()
    fake.enter_result = fake
    monkeypatch.setattr("repose.decoding.load.load", lambda *_, **_how: fake)
    monkeypatch.setattr(estimate, "time", SimpleNamespace(monotonic=itertools.count().__next__))  # a second a look
    lines = {"valid": ["a"] * 10, "test": ["a"] * 20}
    data: Any = SimpleNamespace(text=lambda split: (lines[split], lines[split]), measured="test")
    known = read_grid(trial).cells[0].experiment
    chosen = replace(known, decoding=replace(known.decoding, length_penalty=None))
    shown = replace(known, training=replace(known.training, bleu_every_epochs=3))
    by_chrf = replace(known, training=replace(shown.training, best_by="chrf"))
    numbers = {"validations": 7, "epochs": 6}
    every = (known, chosen, shown, by_chrf)
    seconds = [estimate._translations(one, data, Path(), "cpu", **numbers) for one in every]
    assert seconds == [pytest.approx(pair) for pair in ((0, 2), (0, 2 + 0.5 * 7), (0.5 * 2, 2), (0.5 * 7, 2))]
    assert {estimate._tried(one).training.best_by for one in every} == {"loss"}  # a validation's time has none of them


def test_a_clock_bounds_the_estimate() -> None:
    numbers = {"parameters": 1, "update_seconds": 1.0, "validation_seconds": 0.0, "validations": 0, "memory_bytes": 1}
    numbers |= {"translation_seconds": 0.0}
    cost = Cost(updates=7200, decode_seconds=5.0, start_seconds=5.0, **numbers)  # type: ignore[arg-type]
    assert cost.seconds(None) == 7210
    assert cost.seconds(1.0) == 3610
    translating = replace(cost, translation_seconds=700.0)  # at validations, for which the clock goes on
    assert (translating.seconds(None), translating.seconds(1.0)) == (7910, 3610)
    endless = Cost(updates=None, decode_seconds=0.0, start_seconds=0.0, **numbers)  # type: ignore[arg-type]
    assert endless.seconds(12.0) == 12 * 3600


def test_how_far_a_run_is(trial: Path, tmp_path: Path) -> None:
    experiment = read_grid(trial).cells[0].experiment
    assert progress(tmp_path / "nowhere", experiment).share is None
    lines = [
        {"kind": "train", "update": 50, "epoch": 1, "loss": 4.0},
        {"kind": "epoch", "update": 80, "epoch": 1, "loss": 3.0},
        {"kind": "valid", "update": 80, "epoch": 1, "tf_loss": 2.5, "bleu": 3.25},
        {"kind": "train", "update": 100, "epoch": 2, "loss": 2.0},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text(json.dumps(lines[0]) + "\n")
    assert progress(tmp_path, experiment) == progress(tmp_path, experiment)
    assert progress(tmp_path, experiment).where == "epoch 1/2, update 50"
    metrics.write_text("x" * 70_000 + "\n" + text + '{"kind": "tr')  # a long history, and a line that is being written
    found = progress(tmp_path, experiment)
    assert found.where == "epoch 2/2, update 100 of 160"
    assert found.share == pytest.approx(100 / 160)
    assert found.figures == "loss 2.000, tf_loss 2.500, BLEU 3.2"


def test_headlines_of_other_tasks_and_of_half_written_scores(tmp_path: Path) -> None:
    scores = tmp_path / "scores.test.json"
    assert headline(tmp_path) == ""
    scores.write_text('{"figures": {"uas": {"value": 0.8125, "unit": "share of words"}}}')
    assert headline(tmp_path) == "uas 0.812 share of words"
    percent = {name: {"value": value, "unit": "percent"} for name, value in (("uas", 72.5), ("las", 70.25))}
    scores.write_text(json.dumps({"figures": percent}))
    assert headline(tmp_path) == "las 70.250 percent"  # which the report judges by
    scores.write_text('{"figures": {"uas"')
    assert headline(tmp_path) == ""


def test_the_live_table(trial: Path, tmp_path: Path) -> None:
    plan = make_plan(read_grid(trial), tmp_path / "runs", say=lambda _: None)
    view = GridLive(plan)
    view("ablation-none-s0", RUNNING)
    view("reinforced-s0", RUNNING)
    view("reinforced-s0", CellState(status=CellStatus.FAILED, message="no [bold] luck"))
    view(plan.todo[-1].name, CellState(status=CellStatus.WAITING))  # as Ray tells
    folder = plan.folder / "ablation-none-s0"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text('{"kind": "epoch", "update": 80, "epoch": 1}\n')
    console = Console(file=io.StringIO(), width=140)
    console.print(view._table())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "trial: 1 of 4 cells, 2 waiting" in text
    assert re.search(r"ablation-none-s0 +│ running +│ epoch 1/2, update 80 of 160", text)
    assert "no [bold] luck" in text


def test_what_many_cells_failed_of_is_said_once(trial: Path, tmp_path: Path) -> None:
    """Thirty-six rows of one sentence hide what they say."""
    plan = make_plan(read_grid(trial), tmp_path / "runs", say=lambda _: None)
    states = [CellState(status=CellStatus.FAILED, message="no corpus")] * 3 + [CellState(status=CellStatus.STOPPED)]
    entries = tuple(replace(entry, state=state) for entry, state in zip(plan.chosen, states, strict=True))
    plan = replace(plan, chosen=entries, todo=())
    for table in (
        next(iter(estimate_table(plan, {}, Share(1, 1)))),
        outcome_table(plan, GridOutcome(entries, False, 0)),
    ):
        console = Console(file=io.StringIO(), width=140)
        console.print(table)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert (text.count("no corpus"), text.count("as above")) == (1, 2)


def test_cells_of_another_process_are_said_to_be_so_once(
    trial: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = CellState(status=CellStatus.ELSEWHERE, message="process 7 on node2")
    plan = make_plan(read_grid(trial), tmp_path / "runs", say=lambda _: None)
    theirs = replace(plan.chosen[0], state=state)
    plan = replace(plan, chosen=(theirs,), todo=())
    view = GridLines(plan)
    view(theirs.name, state)
    assert capsys.readouterr().err == f"[0/0] {theirs.name}: running elsewhere, process 7 on node2\n"
    console = Console(file=io.StringIO(), width=140)
    console.print(next(iter(estimate_table(plan, {}, Share(1, 1)))))
    console.print(outcome_table(plan, GridOutcome((theirs,), stopped=False)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "running elsewhere process 7 on node2" in text
    assert re.search(r"│ running elsewhere │ +│ process 7 on node2", text)


STATES = {
    "on node2": CellState(status=CellStatus.RUNNING, host="node2"),
    "its machine was lost (node2): begins again, attempt 2": CellState(lost=Lost.MACHINE, host="node2", attempt=2),
    "its machine was lost: begins again, attempt 2": CellState(lost=Lost.MACHINE, attempt=2),
    "lost 4 times, the last time because its machine ran out of memory (node2): the same command resumes it": CellState(
        status=CellStatus.FAILED, lost=Lost.MEMORY, host="node2", attempt=4
    ),
    "its process was killed by signal 9 (out of memory?): the same command resumes it": CellState(
        status=CellStatus.FAILED, exit_code=-9
    ),
    "its process ended with exit code 7 and no message": CellState(status=CellStatus.FAILED, exit_code=7),
    "the disk is full": CellState(status=CellStatus.FAILED, message="the disk is full"),
    "": CellState(status=CellStatus.DONE),
}


@pytest.mark.parametrize(("sentence", "state"), STATES.items())
def test_states_in_words(sentence: str, state: CellState) -> None:
    assert reason(state) == sentence


def test_a_table_reads_each_running_cell_once(trial: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder may be on a network."""
    live = GridLive(make_plan(read_grid(trial), tmp_path / "runs", say=lambda _: None))
    read, original = [], view.progress
    monkeypatch.setattr(
        view, "progress", lambda folder, experiment: read.append(folder) or original(folder, experiment)
    )
    for name in ("reinforced-s0", "reinforced-s1"):
        live(name, CellState(status=CellStatus.RUNNING))
    read.clear()
    live._table()
    assert sorted(folder.name for folder in read) == ["reinforced-s0", "reinforced-s1"]


def test_stopped_cells_are_no_progress(trial: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = make_plan(read_grid(trial), tmp_path / "runs", say=lambda _: None)
    lines, live = GridLines(plan), GridLive(plan)
    for name, status in (("ablation-none-s0", "failed"), ("reinforced-s0", "stopped"), ("reinforced-s1", "stopped")):
        lines(name, CellState(status=CellStatus(status)))
        live(name, CellState(status=CellStatus(status)))
    assert [line.split()[0] for line in capsys.readouterr().err.splitlines()] == ["[1/4]"] * 3
    assert "trial: 1 of 4 cells" in live._title(live._states, [])


def test_a_report_is_suggested_where_there_is_something_to_report(
    trial: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def popen(_: list[str], **options: object) -> object:
        return POPEN([sys.executable, "-c", "raise SystemExit(3)"], **options)  # type: ignore[call-overload]

    with monkeypatch.context() as patch:
        patch.setattr("subprocess.Popen", popen)
        code, _, err = run(trial, "--only", "ablation-none")
    assert (code, "repose report" in err) == (3, False)
    assert "still to be done: 2 of 2 cells, which the same command resumes" in err
    assert "repose report runs/trial" in run(trial, "--only", "ablation-none")[2]


def test_calibrations_are_told_one_after_the_other(
    trial: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(read_grid(trial), tmp_path / "runs", say=lambda _: None)
    both, said = threading.Barrier(2), threading.Lock()

    def say(_: str) -> None:
        assert said.acquire(blocking=False), "two at a time"
        time.sleep(0.05)
        said.release()

    def in_process(*_: object) -> ReposeError:
        both.wait(timeout=10)
        return ReposeError("not measured")

    monkeypatch.setattr(estimate, "_in_process", in_process)
    costs = estimate.calibrate(plan, Share(2, 1), device="cpu", say=say)
    assert [str(cost) for cost in costs.values()] == ["not measured"] * 2


def test_a_plan_without_work_has_no_totals(trial: Path, tmp_path: Path) -> None:
    plan = make_plan(read_grid(trial), tmp_path / "runs", only=["reinforced-s1"], say=lambda _: None)
    parts = list(estimate_table(plan, {}, Share(1, 1)))
    assert [part for part in parts if isinstance(part, str)][-1].startswith("cells        1, 0 of them done, 1 to run")


def test_times_in_words() -> None:
    assert [duration(seconds) for seconds in (0.4, 89, 600, 3 * 3600)] == ["0 s", "89 s", "10 min", "3.0 h"]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux")
def test_a_real_grid_killed_interrupted_and_resumed(tmp_path: Path) -> None:
    """One cell dies by SIGKILL, the grid is interrupted, the same command ends it; another time, nothing runs."""
    (tmp_path / "trial.toml").write_text(FILE.replace("epochs = 2", "updates = 2000\nepochs = 29"), encoding="utf-8")
    environment = os.environ | {"REPOSE_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "repose", "grid", "trial.toml", "--jobs", "2"]

    def start() -> "subprocess.Popen[str]":
        return POPEN(command, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    folders = {name: tmp_path / "runs" / "trial" / name for name in ("ablation-none-s0", "reinforced-s0")}
    grid = start()
    deadline = time.monotonic() + 180
    while not all(
        (folder / "metrics.jsonl").exists() and "train" in (folder / "metrics.jsonl").read_text()
        for folder in folders.values()
    ):
        assert grid.poll() is None, grid.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(int((folders["reinforced-s0"] / "cell.lock").read_text().split()[0]), signal.SIGKILL)
    while '"exit_code": -9' not in (tmp_path / "runs" / "trial" / "grid.json").read_text():
        time.sleep(0.1)
    grid.send_signal(signal.SIGINT)
    _, err = grid.communicate(timeout=120)
    assert grid.returncode == 3, err
    assert "reinforced-s0: failed" in err
    assert "ablation-none-s0: stopped" in err
    grid = start()
    out, err = grid.communicate(timeout=900)
    assert grid.returncode == 0, err
    assert out.count("done") == 4
    metrics = sorted((tmp_path / "runs" / "trial").glob("*/metrics.jsonl"))
    assert len(metrics) == 4
    for path in metrics:
        records = [json.loads(line) for line in path.read_text().splitlines()]
        assert (records[-1]["kind"], records[-1]["status"], records[-1]["update"]) == ("end", "done", 2000)
        places = [(r["kind"], r["update"]) for r in records if r["kind"] not in ("data", "end")]
        assert places[-1] == ("valid", 2000)
        assert len(set(places)) == len(places)  # nothing is counted twice
    before = {path: path.stat().st_mtime_ns for path in metrics}
    grid = start()
    _, err = grid.communicate(timeout=120)
    assert grid.returncode == 0
    assert "4 of them done, 0 to run" in err
    assert {path: path.stat().st_mtime_ns for path in metrics} == before


@pytest.mark.slow
def test_a_real_calibration(tmp_path: Path) -> None:
    (tmp_path / "trial.toml").write_text(FILE, encoding="utf-8")
    environment = os.environ | {"REPOSE_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "repose", "grid", "trial.toml", "--dry-run", "--only", "reinforced"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.splitlines() if "reinforced-s0" in line)
    assert "36,160" in row  # parameters: those of `repose describe`'s kind, counted from the weights
    assert re.search(r"│ +[\d,]+ │ +\d+ (s|min) │ +\d+\.\d GiB", row)
    assert done.stderr.count("calibrating") == 1
