"""Cells on a Ray cluster: what happens when machines are lost, and a whole grid on a real cluster."""

import _thread
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from repose._version import __version__
from repose.grids import ray as on_ray
from repose.grids.cells import CellJob, CellState, CellStatus, Lost
from repose.grids.ray import _Machine, _Shared, run_on_ray
from repose.system.errors import ConfigError

DONE, STOPPED = CellState(status=CellStatus.DONE), CellState(status=CellStatus.STOPPED)
BUSY = CellState(status=CellStatus.ELSEWHERE, message="process 7 on node2 is at work")
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "ray_two_nodes.py"


def job(folder: Path, name: str = "a-s0", **changes: Any) -> CellJob:
    return CellJob(name=name, folder=folder / "runs" / "grid" / name, experiment="{}", **changes)


# Ray, as far as it is asked

SMALL, LARGE = _Machine("m1", "small"), _Machine("m2", "large")
RESOURCES = {SMALL: {"CPU": 2.0, "GPU": 1.0}, LARGE: {"CPU": 8.0, "GPU": 2.0}}


class Stream:
    """What a task yields: machines and states; the name of an error is raised."""

    def __init__(self, ray: "FakeRay", *items: Any) -> None:
        self.ray, self.items = ray, list(items)

    def __next__(self) -> Any:
        if not self.items:
            raise StopIteration
        return self.items.pop(0)


class FakeRay(SimpleNamespace):
    """A Ray whose tasks come to what a script says, attempt by attempt: nothing for one that never begins."""

    def __init__(self, script: dict[str, list[Any]], init: Callable[..., None] = lambda **_: None) -> None:
        kinds = {"RayError": type("RayError", (Exception,), {})}
        for name in ("TaskCancelledError", "OutOfMemoryError", "NodeDiedError", "WorkerCrashedError"):
            kinds[name] = type(name, (kinds["RayError"],), {})
        for name in ("RayTaskError", "RuntimeEnvSetupError", "TaskUnschedulableError"):
            kinds[name] = type(name, (kinds["RayError"],), {})
        self.script, self.present, self.checked = script, [SMALL], "nothing"
        self.tasks: list[tuple[str, dict[str, Any]]] = []
        self.cancelled: list[Stream] = []
        self.streams: dict[str, Stream] = {}
        self.each_turn: Callable[[], None] = lambda: None
        super().__init__(init=init, exceptions=SimpleNamespace(**kinds))

    def is_initialized(self) -> bool:
        return False

    def shutdown(self) -> None:
        pass

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "NodeID": machine.id,
                "NodeManagerHostname": machine.host,
                "Alive": machine in self.present,
                "Resources": RESOURCES[machine],
            }
            for machine in (SMALL, LARGE)
        ]

    def remote(self, function: Callable[..., Any]) -> Any:
        def options(**asked: Any) -> Any:
            def submit(*arguments: Any) -> Any:
                self.tasks.append((function.__name__, asked))
                if function is on_ray._check_task:
                    return arguments
                name = f"{arguments[0].name}.{arguments[1]}"
                self.streams[name] = Stream(self, *self.script.get(name, ()))
                return self.streams[name]

            return SimpleNamespace(remote=submit)

        return SimpleNamespace(options=options)

    def wait(self, tickets: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        if not isinstance(tickets[0], Stream):
            return tickets, []
        self.each_turn()
        return [stream for stream in tickets if stream.items][:1], []

    def get(self, item: Any) -> Any:
        if isinstance(item, tuple):
            return on_ray._check_task(*item) if self.checked == "nothing" else self.checked
        if isinstance(item, str):
            raise getattr(self.exceptions, item)(f"a traceback\n{item}: no good\n")
        return item

    def cancel(self, stream: Stream, *, force: bool) -> None:
        assert not force  # it must save
        self.cancelled.append(stream)

    @property
    def submitted(self) -> list[str]:
        return list(self.streams)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., FakeRay]:
    """Puts a fake in the place of Ray."""
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda **kw: kw)
    monkeypatch.setitem(sys.modules, "ray.util", SimpleNamespace(scheduling_strategies=strategies))
    monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", strategies)

    def put(script: dict[str, list[Any]] | None = None, **more: Any) -> FakeRay:
        fake = FakeRay(script or {}, **more)
        monkeypatch.setitem(sys.modules, "ray", fake)
        return fake

    return put


class Told(list[tuple[str, CellState]]):
    """What was told, in order."""

    def __call__(self, name: str, state: CellState) -> None:
        self.append((name, state))

    def of(self, name: str) -> list[str]:
        return [str(state.status) for told, state in self if told == name]


def run(*jobs: CellJob, told: Told | None = None, **options: Any) -> dict[str, CellState]:
    """How each cell ended that began, or could not, as it was told; each is told to end once, and then nothing more."""
    told = Told() if told is None else told
    run_on_ray(jobs, told, **{"stop": threading.Event(), "kill": threading.Event(), **options})
    ended = [(name, state) for name, state in told if state.status not in (CellStatus.WAITING, CellStatus.RUNNING)]
    last = dict(told)
    assert all(last[name] is state for name, state in ended)
    return dict(ended)


def test_a_cell_is_a_task_with_its_share_of_the_machine(tmp_path: Path, ray: Callable[..., FakeRay]) -> None:
    fake = ray({"a-s0.1": [SMALL, DONE]})
    told = Told()
    assert run(job(tmp_path, cores=2, gpus=0.5), told=told) == {"a-s0": DONE}
    (_, checked), (_, asked) = fake.tasks
    assert checked["scheduling_strategy"] == {"node_id": "m1", "soft": False}
    assert (asked["num_cpus"], asked["num_gpus"], asked["max_retries"]) == (2, 0.5, 0)
    assert told == [("a-s0", CellState(status=CellStatus.RUNNING, host="small")), ("a-s0", DONE)]
    assert [*(tmp_path / "runs" / "grid").iterdir(), *(tmp_path / "home").iterdir()] == []  # it leaves nothing


LOSSES = {"NodeDiedError": Lost.MACHINE, "WorkerCrashedError": Lost.WORKER, "OutOfMemoryError": Lost.MEMORY}


@pytest.mark.parametrize("error", LOSSES)
def test_what_ray_loses_begins_again(tmp_path: Path, ray: Callable[..., FakeRay], error: str) -> None:
    fake = ray({"a-s0.1": [SMALL, error], "a-s0.2": [LARGE, DONE], "b-s0.1": [SMALL, DONE]})
    told = Told()
    assert run(job(tmp_path, "a-s0"), job(tmp_path, "b-s0"), told=told) == {"a-s0": DONE, "b-s0": DONE}
    assert fake.submitted == ["a-s0.1", "b-s0.1", "a-s0.2"]
    assert told.of("a-s0") == ["running", "waiting", "running", "done"]
    assert ("a-s0", CellState(lost=LOSSES[error], host="small", attempt=2)) in told
    assert ("a-s0", CellState(status=CellStatus.RUNNING, host="large", attempt=2)) in told
    assert told.of("b-s0") == ["running", "done"]


def test_a_cell_that_is_lost_every_time_fails_with_the_reason(tmp_path: Path, ray: Callable[..., FakeRay]) -> None:
    lost = {f"a-s0.{number}": [SMALL, "OutOfMemoryError"] for number in (1, 2, 3)}
    ray({**lost, "b-s0.1": [SMALL, DONE]})
    results = run(job(tmp_path, "a-s0"), job(tmp_path, "b-s0"), retries=2)
    assert results["a-s0"] == CellState(status=CellStatus.FAILED, lost=Lost.MEMORY, host="small", attempt=3)
    assert results["b-s0"] == DONE


def test_a_machine_that_falls_silent_is_noticed(
    tmp_path: Path, ray: Callable[..., FakeRay], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray gives it up, and says nothing of its task."""
    monkeypatch.setattr(on_ray, "LOOK_AT_MACHINES", 0.0)
    fake = ray({"a-s0.1": [SMALL], "a-s0.2": [LARGE, DONE]})
    fake.present, turns = [SMALL, LARGE], list[str]()

    def lose_after_two_turns() -> None:
        turns.append(fake.submitted[-1])
        if len(turns) == 2:
            fake.present = [LARGE]

    fake.each_turn = lose_after_two_turns
    told = Told()
    assert run(job(tmp_path), told=told) == {"a-s0": DONE}
    assert fake.submitted == ["a-s0.1", "a-s0.2"]
    assert turns.count("a-s0.1") == 3  # one look at which it is missing is not enough
    assert [state.host for _, state in told if state.status == CellStatus.RUNNING] == ["small", "large"]


def test_stopping_asks_all_to_save_and_takes_back_those_that_wait(tmp_path: Path, ray: Callable[..., FakeRay]) -> None:
    fake, stop = ray({"a-s0.1": [SMALL]}), threading.Event()

    def stop_then_save() -> None:
        if fake.streams["a-s0.1"].items:
            return  # it has just begun
        if stop.is_set():
            assert fake.cancelled == list(fake.streams.values())
            for stream in fake.streams.values():
                stream.items = ["TaskCancelledError"]
        stop.set()

    fake.each_turn = stop_then_save
    assert run(job(tmp_path, "a-s0"), job(tmp_path, "b-s0"), stop=stop) == {"a-s0": STOPPED}  # the other did not begin


def test_a_machine_lost_while_stopping_is_not_begun_again(tmp_path: Path, ray: Callable[..., FakeRay]) -> None:
    fake, stop = ray({"a-s0.1": [SMALL, "NodeDiedError"]}), threading.Event()
    stop.set()
    assert run(job(tmp_path), stop=stop)["a-s0"].status == CellStatus.STOPPED
    assert fake.submitted == ["a-s0.1"]


def test_a_kill_waits_for_nobody(tmp_path: Path, ray: Callable[..., FakeRay]) -> None:
    fake, kill, told = ray({"a-s0.1": [SMALL]}), threading.Event(), Told()

    def kill_when_begun() -> None:
        if not fake.streams["a-s0.1"].items:
            kill.set()

    fake.each_turn = kill_when_begun
    assert run(job(tmp_path, "a-s0"), job(tmp_path, "b-s0"), told=told, kill=kill) == {"a-s0": STOPPED}
    assert told[-1] == ("a-s0", STOPPED)


def test_cells_that_fit_no_machine_yet_say_so_once(tmp_path: Path, ray: Callable[..., FakeRay]) -> None:
    fake, told = ray({"a-s0.1": [LARGE, DONE], "b-s0.1": [LARGE, DONE]}), Told()
    run(job(tmp_path, "a-s0", cores=4, gpus=2.0), job(tmp_path, "b-s0", cores=4, gpus=2.0), told=told)
    needs = "the cluster has no machine with 4 cores and 2 GPUs yet: add one, or ask for less per cell"
    assert told[0] == ("a-s0", CellState(message=needs))
    assert told.of("b-s0") == ["running", "done"]
    assert [name for name, _ in fake.tasks] == ["_cell_task"] * 2  # nor is any machine asked what it sees


def test_what_fails_in_a_task_is_the_reason_of_its_cell(tmp_path: Path, ray: Callable[..., FakeRay]) -> None:
    ray({"a-s0.1": ["RayTaskError"]})
    assert run(job(tmp_path))["a-s0"] == CellState(status=CellStatus.FAILED, message="RayTaskError: no good")


def test_a_machine_that_does_not_see_the_storage_is_named(tmp_path: Path, ray: Callable[..., FakeRay]) -> None:
    ray().checked = "does not see FOLDER: choose an --out on storage that all machines share"
    with pytest.raises(ConfigError, match="machine small does not see FOLDER: choose"):
        run(job(tmp_path))


def test_without_ray_or_a_cluster_one_sentence_says_what_to_do(
    tmp_path: Path, ray: Callable[..., FakeRay], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(**_: Any) -> None:
        raise ConnectionError("could not find any running Ray instance")

    ray(init=nobody)
    with pytest.raises(ConfigError, match="no Ray cluster answers here: start one with `ray start --head`"):
        run(job(tmp_path))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        ray()  # which would be content
        with pytest.raises(ConfigError, match=f"no Ray cluster answers at {address}"):
            run(job(tmp_path), address=address)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'repose-nmt\[cluster\]'"):
        run(job(tmp_path))


def test_rays_handler_does_not_replace_that_of_the_grid(tmp_path: Path, ray: Callable[..., FakeRay]) -> None:
    ray({"a-s0.1": [SMALL, DONE]}, init=lambda **_: signal.signal(signal.SIGTERM, signal.SIG_IGN))
    before = signal.getsignal(signal.SIGTERM)
    run(job(tmp_path))
    assert signal.getsignal(signal.SIGTERM) is before


# On a machine of the cluster


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[_Shared]:
    with _Shared.opened(tmp_path / "runs" / "grid", tmp_path / "home") as opened:
        yield opened


def test_machines_must_have_the_same_repose_and_see_the_same_storage(shared: _Shared, tmp_path: Path) -> None:
    assert on_ray._check_task(shared) == ""
    assert f"has repose {__version__}, this one 0.0.1" in on_ray._check_task(replace(shared, version="0.0.1"))
    assert "set REPOSE_HOME" in _Shared(shared.folder, tmp_path / "other", shared.mark, "").trouble()
    assert "choose an --out" in _Shared(tmp_path / "other", shared.home, shared.mark, "").trouble()


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Has a cell run until it is asked to stop, unless `results` are left."""
    monkeypatch.setattr(on_ray, "POLL", 0.01)
    seen: dict[str, Any] = {"jobs": [], "results": []}

    def run_cell(job: CellJob, *, stop: threading.Event) -> CellState:
        seen["jobs"].append(job)
        if seen["results"]:
            return seen["results"].pop(0)
        assert stop.wait(10)
        time.sleep(0.02)  # it saves
        return STOPPED

    monkeypatch.setattr(on_ray, "run_cell", run_cell)
    return seen


class InterruptedEvent(threading.Event):
    """Where the main thread first waits for one, it is interrupted, as `ray.cancel` does."""

    been = False

    def wait(self, timeout: float | None = None) -> bool:
        if threading.current_thread() is threading.main_thread() and not InterruptedEvent.been:
            InterruptedEvent.been = True
            _thread.interrupt_main()
        return super().wait(timeout)


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(InterruptedEvent, "been", False)
    monkeypatch.setattr(on_ray, "threading", SimpleNamespace(Thread=threading.Thread, Event=InterruptedEvent))
    yield
    assert InterruptedEvent.been


@pytest.mark.usefixtures("interrupted")
def test_a_cell_that_ray_interrupts_saves(tmp_path: Path, cell: dict[str, Any]) -> None:
    assert on_ray._run(job(tmp_path), 1) == STOPPED
    assert len(cell["jobs"]) == 1


def test_a_cell_that_ray_interrupts_as_it_begins_saves(
    tmp_path: Path, cell: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Thread(threading.Thread):
        def start(self) -> None:
            super().start()
            _thread.interrupt_main()

    monkeypatch.setattr(on_ray, "threading", SimpleNamespace(Thread=Thread, Event=threading.Event))
    assert on_ray._run(job(tmp_path), 1) == STOPPED
    assert len(cell["jobs"]) == 1


def test_after_a_lost_attempt_its_lock_is_waited_for(tmp_path: Path, cell: dict[str, Any]) -> None:
    cell["results"] = [BUSY, DONE]
    assert on_ray._run(job(tmp_path), 1) == BUSY  # another grid is at work here
    cell["results"] = [BUSY, BUSY, DONE]
    assert on_ray._run(job(tmp_path), 2) == DONE


@pytest.mark.usefixtures("interrupted")
def test_one_that_waits_for_a_lock_stops_when_asked(tmp_path: Path, cell: dict[str, Any]) -> None:
    cell["results"] = [BUSY] * 1000
    assert on_ray._run(job(tmp_path), 2) == BUSY
    assert len(cell["jobs"]) < 1000


def test_cells_see_the_gpus_that_they_asked_for(tmp_path: Path) -> None:
    assert on_ray._on_this_machine(job(tmp_path, cores=4)).device == "cpu"
    assert on_ray._on_this_machine(job(tmp_path, device="cuda")).device == "cuda"
    half = on_ray._on_this_machine(job(tmp_path, cores=4, gpus=0.5))
    assert (half.device, half.cores) == ("auto", 1)


def test_a_task_runs_its_cell_on_the_shared_storage(
    shared: _Shared, tmp_path: Path, cell: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process is a worker of a Ray machine, whose changes of itself do not stay."""
    context = SimpleNamespace(get_node_id=lambda: "m1")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get_runtime_context=lambda: context))
    monkeypatch.setenv("REPOSE_HOME", "elsewhere")
    monkeypatch.chdir("/")
    there = _Shared(shared.folder, shared.home, shared.mark, str(tmp_path))
    cell["results"] = [DONE]
    assert list(on_ray._cell_task(job(tmp_path), 1, there)) == [_Machine("m1", socket.gethostname()), DONE]
    assert (os.environ["REPOSE_HOME"], Path.cwd()) == (str(shared.home), tmp_path)
    blind = _Shared(tmp_path / "nowhere", shared.home, shared.mark, str(tmp_path))
    (state,) = on_ray._cell_task(job(tmp_path), 1, blind)
    assert isinstance(state, CellState)
    assert state.message.startswith(f"machine {socket.gethostname()} does not see")
    (state,) = on_ray._cell_task(job(tmp_path), 1, replace(there, version="0.0.1"))  # it joined late
    assert isinstance(state, CellState)
    assert state.message.startswith(f"machine {socket.gethostname()} has repose {__version__}")
    assert len(cell["jobs"]) == 1


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra `cluster`")
@pytest.mark.parametrize("way", ["killed", "silent"])
def test_a_machine_of_a_real_cluster_is_lost(tmp_path: Path, way: str) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, str(BENCHMARK), "--seeds", "2", "--ways", way, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text(encoding="utf-8"))["rounds"][way]
    assert {cell["status"] for cell in found["cells"].values()} == {"done"}
    assert all(cell["equal"] for cell in found["cells"].values())
    assert found["cells"][found["lost"]["cell"]]["resumed"] == 1
