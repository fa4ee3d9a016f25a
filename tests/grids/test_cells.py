"""The process of a cell, and several cells in parallel on this machine."""

import contextlib
import errno
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from repose.config.file import load, to_json
from repose.grids import cells, estimate
from repose.grids.cells import BUSY, LOCK, CellJob, CellState, CellStatus, environment, run_cell
from repose.grids.local import Share, check_request, claimed_cores, in_places, num_devices, run_here, share
from repose.system.errors import ConfigError, DeviceError
from repose.system.locks import locked_or_busy

TINY = [
    *(f"architecture.{name}" for name in ("d_token=8", "num_heads=1", "head_dim=8", "d_ff=8")),
    *(f"architecture.{name}=1" for name in ("num_encoder_layers", "num_decoder_layers")),
    *("tokenizer.kind=wordlevel", "training.batch_size=200", "decoding.max_extra_tokens=1", "decoding.beam_size=1"),
]
POPEN = subprocess.Popen


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CellJob]:
    """A job on a few made-up pairs."""
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    lines = [f"{a} {b}\t{b} {a}\n" for a in ("one", "two", "six") for b in ("red", "sun", "oak", "elm")]
    (tmp_path / "pairs.tsv").write_text("".join(lines), encoding="utf-8")

    def make(*overrides: str, name: str = "a-s0") -> CellJob:
        settings = [*TINY, f'corpus.train=["{tmp_path / "pairs.tsv"}"]', *overrides]
        experiment = load("default", overrides=settings).experiment
        return CellJob(name=name, folder=tmp_path / "grid" / name, experiment=to_json(experiment), device="cpu")

    return make


def imitated(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Puts a process in the cell's place that does this."""

    def popen(_: list[str], **options: object) -> object:
        return POPEN([sys.executable, "-c", f"import sys, json\norder = json.loads(input())\n{code}"], **options)  # type: ignore[call-overload]

    monkeypatch.setattr(cells.subprocess, "Popen", popen)


def test_a_cell_trains_is_stopped_and_goes_on(job: Callable[..., CellJob]) -> None:
    stop = threading.Event()
    endless = job("training.epochs=1000000", "training.patience=none")
    log = endless.folder / "train.log"

    def when_training() -> None:
        while not log.exists():
            time.sleep(0.05)
        stop.set()

    threading.Thread(target=when_training, daemon=True).start()
    result = run_cell(endless, stop=stop)
    assert result == CellState(status=CellStatus.STOPPED), (endless.folder / "cell.log").read_text()
    assert "the same command resumes" in log.read_text(encoding="utf-8")
    assert (endless.folder / "state" / "last.safetensors").exists()


WINDOWS = """
import sys
from repose.grids import cells
cells._BY_SIGNAL = False
sys.exit(cells.main())
"""


def test_where_a_signal_would_end_it_at_once_a_cell_is_asked_by_the_end_of_its_input(
    monkeypatch: pytest.MonkeyPatch, job: Callable[..., CellJob]
) -> None:
    def popen(command: list[str], **options: object) -> "subprocess.Popen[bytes]":
        process = POPEN([sys.executable, "-c", WINDOWS, command[-1]], **options)  # type: ignore[call-overload]
        monkeypatch.setattr(process, "terminate", process.kill)
        return process

    monkeypatch.setattr(cells.subprocess, "Popen", popen)
    monkeypatch.setattr(cells, "_BY_SIGNAL", False)
    test_a_cell_trains_is_stopped_and_goes_on(job)


def test_one_that_was_killed_on_windows_was_stopped(
    monkeypatch: pytest.MonkeyPatch, job: Callable[..., CellJob]
) -> None:
    """There, a process that is killed ends with exit code 1."""
    kill = threading.Event()
    monkeypatch.setattr(cells, "_BY_SIGNAL", False)
    imitated(monkeypatch, "import time; print('said', file=sys.stderr); time.sleep(0.5); sys.exit(1)")
    assert run_cell(job(), stop=threading.Event(), kill=kill).status == CellStatus.FAILED
    monkeypatch.setattr(POPEN, "kill", lambda _: None)
    kill.set()
    assert run_cell(job(), stop=threading.Event(), kill=kill) == CellState(status=CellStatus.STOPPED)


def test_half_written_scores_are_made_again_and_nothing_is_trained_twice(
    job: Callable[..., CellJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cell's own process, here in this one."""
    short = job("training.epochs=1", "corpus.held_out_test=0")
    short.folder.mkdir(parents=True)
    order = {"experiment": short.experiment, "cores": 1, "device": "cpu", "affinity": [], "parent": os.getppid()}
    monkeypatch.setattr(sys, "argv", ["cells", str(short.folder)])
    monkeypatch.setattr(cells, "_save_when_alone", lambda _: None)
    monkeypatch.setattr(cells, "keep_on", lambda *_: False)

    def main() -> int:
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(order)))
        return cells.main()

    assert main() == 0
    scores = short.folder / "scores.valid.json"
    whole, metrics = scores.read_bytes(), (short.folder / "metrics.jsonl").read_bytes()
    scores.write_bytes(whole[: len(whole) // 2])
    assert main() == 0
    assert scores.read_bytes() == whole
    assert (short.folder / "metrics.jsonl").read_bytes() == metrics


@pytest.mark.parametrize(("kept_on", "had", "given"), [(False, None, 4), (False, 1, 1), (True, 1, None)])
def test_a_cell_that_is_kept_on_no_cores_goes_on_with_the_workers_that_it_had(
    kept_on: bool,
    had: int | None,
    given: int | None,
    job: Callable[..., CellJob],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others draw other dropout masks. Where it is kept on some, the training itself sees to that."""
    seen: list[object] = []
    monkeypatch.setattr("repose.saved_run.folder.RunFolder.workers", had)
    monkeypatch.setattr(cells, "_save_when_alone", lambda _: None)
    monkeypatch.setattr(cells, "keep_on", lambda *_: kept_on)
    monkeypatch.setattr(cells, "_run", lambda *_, workers: seen.append(workers) or 0)
    place = job().folder
    place.mkdir(parents=True)
    order = {"experiment": "", "cores": 4, "device": "cpu", "affinity": [], "parent": os.getppid()}
    monkeypatch.setattr(sys, "argv", ["cells", str(place)])
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(order)))
    assert cells.main() == 0
    assert seen == [given]


def test_memory_that_runs_out_is_one_sentence(
    job: Callable[..., CellJob], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    order = {"experiment": "", "cores": 1, "device": "cpu", "affinity": [], "parent": os.getppid()}
    monkeypatch.setattr(sys, "argv", ["cells", str(job().folder)])
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(order)))
    monkeypatch.setattr(cells, "_save_when_alone", lambda _: None)
    monkeypatch.setattr(cells, "keep_on", lambda *_: False)
    monkeypatch.setattr(cells, "_run", fail)
    assert cells.main() == 1
    assert capsys.readouterr().err == "repose: out of memory: use a machine with more, or smaller sizes\n"


def test_a_process_that_measures_for_an_estimate_ends_with_the_command(job: Callable[..., CellJob]) -> None:
    """By the number of another parent, it learns that its own has ended."""
    order = {"experiment": job().experiment, "cores": 1, "device": "cpu", "affinity": [], "began": 0.0, "parent": 1}
    command = [sys.executable, "-P", "-m", "repose.grids.estimate"]
    done = subprocess.run(command, input=json.dumps(order), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")


def test_nothing_is_imported_from_the_present_folder(
    job: Callable[..., CellJob], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit('not yours')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    no_such = job('corpus.train=["none.tsv"]')
    assert "none.tsv: check the path" in run_cell(no_such, stop=threading.Event()).message
    order = {"experiment": no_such.experiment, "cores": 1, "device": "cpu", "affinity": [], "began": 0.0}
    assert "none.tsv: check the path" in str(estimate._in_process(order))


def test_a_failure_is_the_last_line_that_was_said(monkeypatch: pytest.MonkeyPatch, job: Callable[..., CellJob]) -> None:
    imitated(monkeypatch, "print('working', file=sys.stderr); sys.exit('repose: the disk is full: free some')")
    result = run_cell(job(), stop=threading.Event())
    assert result == CellState(status=CellStatus.FAILED, message="the disk is full: free some")
    # Only of this attempt: the log keeps the one before.
    imitated(monkeypatch, "sys.exit(7)")
    assert run_cell(job(), stop=threading.Event()) == CellState(status=CellStatus.FAILED, exit_code=7)
    assert "the disk is full" in (job().folder / "cell.log").read_text()


def test_ways_to_end(monkeypatch: pytest.MonkeyPatch, job: Callable[..., CellJob]) -> None:
    stop, stopped = threading.Event(), CellState(status=CellStatus.STOPPED)
    imitated(monkeypatch, "import os; os.kill(os.getpid(), 9)")
    assert run_cell(job(), stop=stop) == CellState(status=CellStatus.FAILED, exit_code=-9, passing=True)
    imitated(monkeypatch, "import sys; print('the disk is full', file=sys.stderr); sys.exit(5)")
    assert run_cell(job(), stop=stop) == CellState(status=CellStatus.FAILED, message="the disk is full", passing=True)
    lost = f"""
import io
from repose.grids import cells
from repose.runs import run
from repose.system.errors import LostWorkerError
def fail(*_, **__):
    raise LostWorkerError("a worker was killed")
run.run = fail
sys.stdin, sys.argv = io.StringIO(json.dumps(order)), ["", {str(job().folder)!r}]
sys.exit(cells.main())"""
    imitated(monkeypatch, lost)
    killed = CellState(status=CellStatus.FAILED, message="a worker was killed", passing=True)
    assert run_cell(job(), stop=stop) == killed
    imitated(monkeypatch, f"print('process 12 is at work', file=sys.stderr); sys.exit({BUSY})")
    assert run_cell(job(), stop=stop) == CellState(status=CellStatus.ELSEWHERE, message="process 12 is at work")
    imitated(monkeypatch, "sys.exit(3)")
    assert run_cell(job(), stop=stop) == stopped
    # Asked to stop before it could handle the signal, it just dies: that is no failure.
    stop.set()
    imitated(monkeypatch, "import time; time.sleep(60)")
    assert run_cell(job(), stop=stop) == stopped
    # One that does not listen is ended by the second request.
    kill = threading.Event()
    imitated(monkeypatch, "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)")
    threading.Timer(0.2, kill.set).start()
    assert run_cell(job(), stop=stop, kill=kill) == stopped


def test_the_process_is_told_its_job(monkeypatch: pytest.MonkeyPatch, job: Callable[..., CellJob]) -> None:
    imitated(monkeypatch, "import os; json.dump([order, dict(os.environ)], open(1, 'w'))")
    monkeypatch.setenv("WORLD_SIZE", "8")
    mine = job()
    assert run_cell(mine, stop=threading.Event()) == CellState(status=CellStatus.DONE)
    order, seen = json.loads((mine.folder / "cell.log").read_text())
    assert order["experiment"] == mine.experiment
    assert order["parent"] == os.getpid()
    assert seen["OMP_NUM_THREADS"] == "1"
    assert "WORLD_SIZE" not in seen  # a cell is no worker of the launcher that started the grid
    assert environment(cores=3).keys() >= {"PATH", "OMP_NUM_THREADS"}


def test_two_processes_do_not_work_on_one_cell(job: Callable[..., CellJob]) -> None:
    mine = job("training.epochs=1")
    mine.folder.mkdir(parents=True)
    with locked_or_busy(mine.folder / LOCK, ""):
        result = run_cell(mine, stop=threading.Event())
    assert result.status == CellStatus.ELSEWHERE
    assert result.message == f"process {os.getpid()} on {socket.gethostname()} is at work in {mine.folder}"
    assert not (mine.folder / "config.json").exists()


HOLDER = """
import sys, time
from pathlib import Path
from repose.grids import cells, estimate
cells.POLL = float(sys.argv[2])
with cells._held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(float(sys.argv[3]))
"""


@contextlib.contextmanager
def holding(folder: Path, *, looks_every: float, seconds: float) -> Iterator["subprocess.Popen[str]"]:
    """A process that holds a cell's lock and does nothing else, once it does."""
    command = [sys.executable, "-c", HOLDER, str(folder), str(looks_every), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX")
def test_one_that_lost_its_lock_unawares_ends_before_the_next_one_begins(tmp_path: Path) -> None:
    """As a machine that slept until its storage gave its locks to others."""
    with holding(tmp_path, looks_every=0.05, seconds=600) as first:
        lock = tmp_path / LOCK
        name = lock.read_text(encoding="utf-8")
        assert name.startswith(f"{first.pid} on ")
        lock.unlink()  # the lock goes with the file
        lock.write_text(name, encoding="utf-8")
        with holding(tmp_path, looks_every=2, seconds=0) as second:  # gives the first one 4 s to look
            assert first.poll() == BUSY
            assert f"process {second.pid} on " in first.communicate()[1]
            second.communicate(timeout=180)
        assert second.returncode == 0
    assert not lock.exists()  # it has signed off, and the next one need not wait


def test_a_folder_that_cannot_be_written_is_one_sentence(job: Callable[..., CellJob], tmp_path: Path) -> None:
    (tmp_path / "grid").write_text("a file is in the way")
    result = run_cell(job(), stop=threading.Event())
    assert result.status == CellStatus.FAILED
    assert "cannot be written" in result.message
    assert "--out" in result.message


def test_a_process_that_cannot_be_started_is_no_full_disk(
    job: Callable[..., CellJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(subprocess, "Popen", fails)
    result = run_cell(job(), stop=threading.Event())
    assert (result.status, result.passing) == (CellStatus.FAILED, True)
    assert result.message == "its process could not be started (Too many open files): give fewer --jobs"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "setsid"), reason="POSIX")
def test_a_cell_saves_when_its_grid_has_died(job: Callable[..., CellJob]) -> None:
    endless = job("training.epochs=1000000", "training.patience=none")
    fields = {name: getattr(endless, name) for name in ("name", "experiment", "device")}
    code = (
        "import json, sys, threading; from pathlib import Path; from repose.grids.cells import *\n"
        f"run_cell(CellJob(folder=Path({str(endless.folder)!r}), **json.load(sys.stdin)), stop=threading.Event())"
    )
    grid = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    assert grid.stdin is not None
    with grid.stdin as stdin:
        stdin.write(json.dumps(fields).encode())
    log = endless.folder / "train.log"
    wait_for(lambda: log.exists() and "starting" in log.read_text(), grid)
    grid.send_signal(signal.SIGKILL)
    grid.wait()
    wait_for(lambda: "the same command resumes" in log.read_text())


def wait_for(condition: Callable[[], bool], process: "subprocess.Popen[bytes] | None" = None) -> None:
    for _ in range(1200):
        if condition():
            return
        assert process is None or process.poll() is None, "it ended too early"
        time.sleep(0.05)
    raise AssertionError("nothing came of it in a minute")


def fake(done: list[CellJob], *, seconds: float = 0.0) -> Callable[..., CellState]:
    def run(job: CellJob, *, stop: threading.Event, kill: threading.Event) -> CellState:
        done.append(job)
        time.sleep(seconds)
        assert not kill.is_set()
        good = CellStatus.STOPPED if stop.is_set() else CellStatus.DONE
        return CellState(status=CellStatus.FAILED if job.name == "bad" else good)

    return run


def jobs_named(*names: str) -> list[CellJob]:
    return [CellJob(name=name, folder=Path(name), experiment="{}") for name in names]


def test_an_error_in_one_place_stops_the_others_and_is_raised() -> None:
    stop, begun, others = threading.Event(), list[int](), list[bool]()

    def work(item: int, *_: object) -> None:
        begun.append(item)
        if item == 1:
            raise ConfigError("of no cell")
        others.append(stop.wait(timeout=10))

    with pytest.raises(ConfigError, match="of no cell"):
        in_places(Share(2, 1), range(4), work, stop)
    assert (sorted(begun), others) == ([0, 1], [True])


def test_after_ctrl_c_no_further_item_is_begun() -> None:
    stop, begun = threading.Event(), list[int]()

    def work(item: int, *_: object) -> None:
        begun.append(item)
        signal.raise_signal(signal.SIGINT)  # the main thread handles it
        stop.wait(timeout=10)

    with pytest.raises(KeyboardInterrupt):
        in_places(Share(1, 1), range(1, 4), work, stop)
    assert stop.is_set()
    assert begun == [1]


def test_no_error_of_the_work_is_taken_for_the_end_of_the_items() -> None:
    def work(*_: object) -> None:
        raise StopIteration

    with pytest.raises(StopIteration):
        in_places(Share(1, 1), range(2), work, threading.Event())


def test_cells_side_by_side_each_once_and_on_cores_of_their_own() -> None:
    done: list[CellJob] = []
    told: dict[str, list[str]] = {}
    names = ["a", "bad", "c", "d", "e"]

    def tell(name: str, state: CellState) -> None:
        told.setdefault(name, []).append(state.status)

    cell = fake(done, seconds=0.05)
    run_here(jobs_named(*names), tell, share=Share(2, 1), stop=threading.Event(), kill=threading.Event(), run_cell=cell)
    assert sorted(job.name for job in done) == names
    assert told == {name: ["running", "failed" if name == "bad" else "done"] for name in names}
    if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) >= 2:
        assert len({job.affinity for job in done}) == 2
        assert all(len(job.affinity) == 1 for job in done)


def test_after_a_stop_no_cell_is_begun() -> None:
    done: list[CellJob] = []
    stop = threading.Event()
    told: list[str] = []

    def tell(name: str, _: CellState) -> None:
        told.append(name)
        stop.set()

    run_here(jobs_named("a", "b"), tell, share=Share(1, 1), stop=stop, kill=threading.Event(), run_cell=fake(done))
    assert [job.name for job in done] == ["a"]
    assert told == ["a", "a"]  # that it began, and how it ended


def test_cells_go_round_the_gpus() -> None:
    done: list[CellJob] = []
    never, mine = {"stop": threading.Event(), "kill": threading.Event()}, Share(3, 1, devices=2)
    run_here(jobs_named("a", "b", "c"), lambda *_: None, share=mine, **never, run_cell=fake(done, seconds=0.2))
    assert sorted(job.device for job in done) == ["cuda:0", "cuda:0", "cuda:1"]


def test_shares_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repose.grids.local.available_cores", lambda: 8)

    def found(num_cells: int, jobs: int | None = None, cores: int | None = None, devices: int = 0) -> tuple[int, int]:
        chosen = share(num_cells, jobs=jobs, cores=cores, devices=devices)
        return chosen.jobs, chosen.cores

    assert found(30) == (8, 1)
    assert found(3) == (3, 2)
    assert found(30, jobs=2) == (2, 4)
    assert found(30, cores=4) == (2, 4)
    assert found(30, jobs=16) == (16, 1)
    assert found(2, jobs=8) == (2, 4), "no core is left idle"
    assert found(30, devices=2) == (2, 4)
    assert share(30, jobs=None, cores=None, devices=2, gpus=0.5) == Share(4, 2, devices=2)


def test_gpus_that_torch_cannot_use_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts them where the driver is too old; training takes the CPU there."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    for is_usable, expected in ((True, 2), (False, 0)):
        monkeypatch.setattr("torch.cuda.is_available", lambda is_usable=is_usable: is_usable)
        assert [num_devices(name) for name in ("auto", "cuda", "cpu", "cuda:1")] == [expected, expected, 0, 0]


def test_what_no_cell_could_run_with_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repose.grids.local.available_cores", lambda: 8)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)

    def check(jobs: int | None = None, cores: int | None = None, device: str = "auto", *, here: bool = True) -> None:
        check_request(jobs=jobs, cores=cores, device=device, here=here)

    check(jobs=20, cores=8)
    check(cores=99, device="cuda:7", here=False)  # what a cluster's machines have, they say themselves
    for device in ("cpu", "cuda", "cuda:0"):
        check(device=device)
    for jobs, cores in ((0, None), (None, -1)):
        with pytest.raises(ConfigError, match="give 1 or more"):
            check(jobs, cores, here=False)
    with pytest.raises(ConfigError, match="--cores-per-cell = 99, but there are 8 here: give 8 or less"):
        check(cores=99)
    with pytest.raises(ConfigError, match="--cores-per-trial = 0, but a trial needs at least one"):
        check_request(jobs=None, cores=0, device="auto", here=True, unit="trial")
    for device in ("tpu", "cuda:x", "cuda:", "auto:1", ""):
        with pytest.raises(ConfigError, match="--device: there is no device"):
            check(device=device, here=False)
    with pytest.raises(ConfigError, match="an NVIDIA or AMD GPU is cuda"):
        check(device="gpu")
    with pytest.raises(DeviceError, match="device 'cuda:1' is not available"):
        check(device="cuda:1")


@pytest.fixture
def whole_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a container that grants less than all cores."""
    monkeypatch.setattr("repose.system.device.granted_cores", lambda: None)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity here")
def test_cells_are_kept_on_no_cores_where_a_container_grants_a_share_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others would be kept on the first cores as well, while the rest of the machine is idle."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr("repose.system.device.granted_cores", lambda: 2)
    assert share(4, jobs=None, cores=None, devices=0) == Share(2, 1)
    with claimed_cores(2, 1) as given:
        assert given == [(), ()]
    assert not cells.keep_on((), 1)


@pytest.mark.usefixtures("whole_machine")
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity here")
@pytest.mark.parametrize(
    ("jobs", "cores", "places"),
    [(2, 2, [(1, 3), (5, 7)]), (3, 2, [(1, 3), (5, 7), (1, 3)]), (2, 8, [(1, 3, 5, 7)] * 2), (1, 1, [(1,)])],
)
def test_cores_of_cells(
    jobs: int, cores: int, places: list[tuple[int, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3, 5, 7})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with claimed_cores(jobs, cores) as given:
        assert given == places


@pytest.mark.usefixtures("whole_machine")
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity here")
def test_a_second_grid_takes_other_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with claimed_cores(1, 2):
        with claimed_cores(1, 1) as second:
            assert second == [(2,)]
        with claimed_cores(3, 1) as all_three:
            assert all_three == [(2,), (0,), (1,)]
    with claimed_cores(1, 1) as after:
        assert after == [(0,)]


@pytest.mark.usefixtures("whole_machine")
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity here")
def test_nothing_is_claimed_in_a_folder_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place, elsewhere = tmp_path / f"repose-cores-{os.getuid()}", tmp_path / "elsewhere"
    elsewhere.mkdir()
    place.symlink_to(elsewhere)
    with claimed_cores(2, 1) as given:
        assert given == [(0,), (1,)]
    assert not list(elsewhere.iterdir())
    place.unlink()
    with claimed_cores(1, 1):
        assert place.stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("whole_machine")
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity here")
def test_cores_without_a_place_for_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with claimed_cores(2, 1) as given:
        assert given == [(0,), (1,)]


@pytest.mark.parametrize(("device", "gpus"), [("cpu", 2.0), ("cuda:1", 0.5)])
def test_gpus_that_no_cell_of_this_machine_can_have_are_refused(device: str, gpus: float) -> None:
    with pytest.raises(ConfigError, match="--gpus-per-cell"):
        check_request(jobs=None, cores=None, device=device, here=True, gpus=gpus)
    check_request(jobs=None, cores=None, device=device, here=False, gpus=gpus)


@pytest.mark.parametrize("gpus", [1.5, -1.0, float("nan"), float("inf")])
def test_gpus_that_no_cell_can_have_are_refused(gpus: float) -> None:
    with pytest.raises(ConfigError, match="give a whole number of GPUs, or a share of one"):
        check_request(jobs=None, cores=None, device="cpu", here=False, gpus=gpus)
