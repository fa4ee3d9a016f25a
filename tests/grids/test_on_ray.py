"""Cells on a Ray cluster: claims on their folders, what happens when machines go, and the whole on two real ones."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from repose._version import __version__
from repose.grids import claim as claims
from repose.grids import ray as on_ray
from repose.grids import remote_cells
from repose.grids.cells import ELSEWHERE, CellJob, CellResult
from repose.grids.claim import MARGIN, Claim, take
from repose.grids.ray import RayBackend
from repose.grids.remote_cells import LostError, Machine, NeverBegunError, Session, Supervisor
from repose.system.errors import BusyError, ConfigError

DONE = CellResult(status="done", reason="", seconds=1.0)
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "ray_two_nodes.py"


def job(folder: Path, name: str = "a-s0", **changes: Any) -> CellJob:
    return CellJob(name=name, folder=folder / "runs" / "grid" / name, experiment="{}", **changes)


# Claims


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A clock that moves only when it is slept by."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(claims.time, "monotonic", lambda: now[0])
    return sleep


def test_a_claim_is_held_until_it_is_released(tmp_path: Path, clock: Callable[[float], None]) -> None:
    first = take(tmp_path / "cell", wait=clock)
    assert claims.time.monotonic() == 0  # nobody was there: no waiting
    assert first.is_held()
    first.release()
    assert not first.is_held()
    assert list((tmp_path / "cell" / "state").iterdir()) == []
    assert take(tmp_path / "cell", wait=clock).attempt == 1


def test_whoever_takes_a_claim_over_waits_until_the_one_before_has_ended(
    tmp_path: Path, clock: Callable[[float], None]
) -> None:
    first = take(tmp_path, lease=20.0, wait=clock)
    seen = []

    def wait(seconds: float) -> None:
        seen.append(first.is_held())
        clock(seconds)

    second = take(tmp_path, lease=5.0, wait=wait)
    assert claims.time.monotonic() == pytest.approx(20.0 + MARGIN)  # the lease of the one before, not its own
    assert not any(seen)  # the one before can see it from the beginning
    assert second.attempt == 2
    first.release()
    assert second.is_held()  # what is another's is not released


def test_of_two_that_take_a_claim_over_the_later_one_has_it(tmp_path: Path, clock: Callable[[float], None]) -> None:
    take(tmp_path, lease=3.0, wait=clock)
    later: list[Claim] = []

    def wait(seconds: float) -> None:
        if not later:
            later.append(take(tmp_path, lease=3.0, wait=clock))
        clock(seconds)

    with pytest.raises(BusyError, match="another process"):
        take(tmp_path, lease=3.0, wait=wait)
    assert later[0].is_held()


def test_half_a_claim_is_nobodys(tmp_path: Path, clock: Callable[[float], None]) -> None:
    first = take(tmp_path, wait=clock)
    path = tmp_path / "state" / "claim.json"
    path.write_text(path.read_text(encoding="utf-8")[:20], encoding="utf-8")
    assert not first.is_held()
    take(tmp_path, lease=7.0, wait=clock)
    assert claims.time.monotonic() == pytest.approx(7.0 + MARGIN)


# Sessions


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Session.opened(tmp_path / "runs" / "grid", tmp_path / "home") as opened:
        yield opened


def test_a_session_tells_what_a_machine_does_not_see(session: Session, tmp_path: Path) -> None:
    assert session.unseen() == ""
    assert "set REPOSE_HOME" in Session(session.folder, tmp_path / "other", session.token).unseen()
    assert "choose an --out" in Session(tmp_path / "other", session.home, session.token).unseen()


def test_a_session_passes_on_what_begins_and_that_all_must_stop(session: Session) -> None:
    session.begin("a-s0.1", Machine("id", "host", 1.0, 0.0))
    assert session.begun({"a-s0.1": None, "b-s0.1": None}) == {"a-s0.1": ("id", "host")}
    assert not session.asks_to_stop()
    session.ask_to_stop()
    assert session.asks_to_stop()


def test_a_session_leaves_nothing_and_its_end_is_a_stop(tmp_path: Path) -> None:
    with Session.opened(tmp_path / "grid", tmp_path / "home") as session:
        assert not session.asks_to_stop()
    assert session.asks_to_stop()
    assert [*(tmp_path / "grid").iterdir(), *(tmp_path / "home").iterdir()] == []


# The supervisor


class FakeCluster:
    """Begins cells in order on the first machine that has room, and ends them as the script says."""

    def __init__(
        self, session: Session, script: dict[str, CellResult | Exception], machines: Sequence[Machine]
    ) -> None:
        self.session, self.script, self.present = session, script, list(machines)
        self.submitted: list[str] = []
        self.taken_back: list[str] = []
        self.each_turn: Callable[[], None] = lambda: None

    def submit(self, job: CellJob, attempt: str) -> str:
        self.submitted.append(attempt)
        for machine in self.present:
            if machine.can_hold(job):
                self.session.begin(attempt, machine)
                break
        return attempt

    def ended(self, tickets: Sequence[str], _seconds: float) -> Sequence[str]:
        self.each_turn()
        return [ticket for ticket in tickets if ticket in self.script]

    def result(self, ticket: str) -> CellResult:
        found = self.script[ticket]
        if isinstance(found, Exception):
            raise found
        return found

    def take_back(self, ticket: str) -> None:
        self.taken_back.append(ticket)
        self.script[ticket] = NeverBegunError()

    def machines(self) -> list[Machine]:
        return list(self.present)


SMALL = Machine("m1", "small", 1.0, 0.0)
LARGE = Machine("m2", "large", 8.0, 2.0)


class Told(list[tuple[str, str, str]]):
    """What was told, in order."""

    def __call__(self, *event: str) -> None:
        self.append((event[0], event[1], event[2]))


def supervisor(cluster: FakeCluster, told: Told, *, retries: int = 2) -> Supervisor:
    return Supervisor(cluster, cluster.session, told, threading.Event(), threading.Event(), retries)


def test_a_cell_whose_machine_is_lost_begins_again(session: Session, tmp_path: Path) -> None:
    script = {"a-s0.1": LostError("its machine was lost"), "a-s0.2": DONE, "b-s0.1": DONE}
    told, cluster = Told(), FakeCluster(session, script, [SMALL])
    results = supervisor(cluster, told).run([job(tmp_path, "a-s0"), job(tmp_path, "b-s0")])
    assert results == {"a-s0": DONE, "b-s0": DONE}
    assert cluster.submitted == ["a-s0.1", "b-s0.1", "a-s0.2"]
    assert [status for name, status, _ in told if name == "a-s0"] == ["running", "waiting", "running", "done"]
    assert ("a-s0", "waiting", "its machine was lost (small): begins again, 1 of 2 retries") in told
    assert [status for name, status, _ in told if name == "b-s0"] == ["running", "done"]


def test_a_cell_that_is_lost_every_time_fails_with_the_reason(session: Session, tmp_path: Path) -> None:
    script = {f"a-s0.{number}": LostError("its machine had no memory left") for number in (1, 2, 3)}
    told = Told()
    results = supervisor(FakeCluster(session, {**script, "b-s0.1": DONE}, [SMALL]), told).run(
        [job(tmp_path, "a-s0"), job(tmp_path, "b-s0")]
    )
    assert results["a-s0"].status == "failed"
    assert "lost 3 times, at last because its machine had no memory left (small)" in results["a-s0"].reason
    assert results["b-s0"] == DONE


def test_a_machine_that_is_gone_without_a_word_is_noticed(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_cells, "LOOK_AT_MACHINES", 0.0)
    told, cluster = Told(), FakeCluster(session, {"a-s0.2": DONE}, [SMALL, LARGE])
    turns = []

    def lose_after_two_turns() -> None:
        turns.append(cluster.submitted[-1])
        if len(turns) == 2:
            cluster.present = [LARGE]

    cluster.each_turn = lose_after_two_turns
    assert supervisor(cluster, told).run([job(tmp_path)]) == {"a-s0": DONE}
    assert cluster.submitted == ["a-s0.1", "a-s0.2"]
    assert turns.count("a-s0.1") == 3  # one look at which it is missing is not enough
    assert [reason for _, status, reason in told if status == "running"] == ["on small", "on large"]


def test_stopping_asks_the_running_ones_to_save_and_takes_the_others_back(session: Session, tmp_path: Path) -> None:
    told, cluster = Told(), FakeCluster(session, {}, [SMALL])
    watched = supervisor(cluster, told)

    def stop_then_save() -> None:
        if session.asks_to_stop():
            cluster.script["a-s0.1"] = CellResult(status="stopped", reason="asked to stop", seconds=1.0)
        watched.stop.set()

    cluster.each_turn = stop_then_save
    results = watched.run([job(tmp_path, "a-s0"), job(tmp_path, "big-s0", cores=4), job(tmp_path, "c-s0", gpus=0.5)])
    assert list(results) == ["a-s0"]  # the others were not begun
    assert results["a-s0"].status == "stopped"
    assert cluster.taken_back == ["big-s0.1", "c-s0.1"]


def test_one_that_is_taken_back_as_it_begins_is_not_left_running(session: Session, tmp_path: Path) -> None:
    told, cluster = Told(), FakeCluster(session, {"a-s0.1": NeverBegunError()}, [SMALL])
    results = supervisor(cluster, told).run([job(tmp_path, "a-s0")])
    assert results["a-s0"].status == "stopped"
    assert told == [("a-s0", "running", "on small"), ("a-s0", "stopped", "asked to stop")]


def test_a_machine_lost_while_stopping_is_not_begun_again(session: Session, tmp_path: Path) -> None:
    told, cluster = Told(), FakeCluster(session, {"a-s0.1": LostError("its machine was lost")}, [SMALL])
    watched = supervisor(cluster, told)
    watched.stop.set()
    assert watched.run([job(tmp_path)])["a-s0"].status == "stopped"
    assert cluster.submitted == ["a-s0.1"]


def test_a_kill_waits_for_nobody(session: Session, tmp_path: Path) -> None:
    told, cluster = Told(), FakeCluster(session, {}, [SMALL])
    watched = supervisor(cluster, told)
    cluster.each_turn = watched.kill.set
    results = watched.run([job(tmp_path), job(tmp_path, "big-s0", cores=4)])
    assert list(results) == ["a-s0"]  # the other was not begun
    assert told[-1] == ("a-s0", "stopped", "not waited for")


def test_a_cell_that_fits_no_machine_says_so_once(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_cells, "LOOK_AT_MACHINES", 0.0)
    monkeypatch.setattr(remote_cells, "PATIENCE", 0.0)
    told, cluster = Told(), FakeCluster(session, {}, [SMALL])
    turns = []

    def grow_after_three_turns() -> None:
        turns.append(1)
        if len(turns) == 3:
            cluster.present.append(LARGE)
            session.begin("a-s0.1", LARGE)
            cluster.script["a-s0.1"] = DONE

    cluster.each_turn = grow_after_three_turns
    assert supervisor(cluster, told).run([job(tmp_path, cores=4, gpus=2.0)]) == {"a-s0": DONE}
    needs = "the cluster has no machine with 4 cores and 2 GPUs: add one, or ask for less per cell"
    assert [event[1:] for event in told] == [("waiting", needs), ("running", "on large"), ("done", "")]


# On a machine of the cluster


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Has a cell run until it is told to stop or killed; what it was told, and the jobs it was given."""
    monkeypatch.setattr(on_ray, "POLL", 0.01)
    seen: dict[str, Any] = {"jobs": [], "results": []}

    def run_cell(job: CellJob, *, stop: threading.Event, kill: threading.Event) -> CellResult:
        seen["jobs"].append(job)
        if seen["results"]:
            return seen["results"].pop(0)
        end = time.monotonic() + 10
        while not (stop.is_set() or kill.is_set()) and time.monotonic() < end:
            time.sleep(0.005)
        seen["told"] = "kill" if kill.is_set() else "stop" if stop.is_set() else "nothing"
        return CellResult(status="stopped", reason="asked to stop", seconds=0.1)

    monkeypatch.setattr(on_ray, "run_cell", run_cell)
    return seen


def test_a_cell_is_killed_when_a_later_attempt_claims_its_folder(
    session: Session, tmp_path: Path, cell: dict[str, Any]
) -> None:
    mine = take(job(tmp_path).folder)
    path = mine.folder / "state" / "claim.json"
    later = json.loads(path.read_text(encoding="utf-8")) | {"token": "later"}
    threading.Timer(0.1, lambda: path.write_text(json.dumps(later), encoding="utf-8")).start()
    result = on_ray._guarded(job(tmp_path), mine, session)
    assert cell["told"] == "kill"  # it must not save over the later one's checkpoint
    assert (result.status, result.reason.startswith(ELSEWHERE)) == ("stopped", True)


def test_a_cell_saves_when_the_session_asks_for_it(session: Session, tmp_path: Path, cell: dict[str, Any]) -> None:
    mine = take(job(tmp_path).folder)
    threading.Timer(0.1, session.ask_to_stop).start()
    assert on_ray._guarded(job(tmp_path), mine, session).status == "stopped"
    assert cell["told"] == "stop"


@pytest.mark.parametrize("hangs", [False, True])
def test_a_cell_is_killed_when_the_storage_does_not_answer(
    session: Session, tmp_path: Path, cell: dict[str, Any], monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    def no_answer(_: Claim) -> bool:
        while hangs and "told" not in cell:
            time.sleep(0.01)
        raise OSError("no answer")

    monkeypatch.setattr(Claim, "is_held", no_answer)
    mine = Claim(job(tmp_path).folder, "token", 0.1, "host", 1)
    with pytest.raises(LostError, match="did not answer"):
        on_ray._guarded(job(tmp_path), mine, session)
    assert cell["told"] == "kill"


def test_after_a_lost_attempt_its_lock_is_waited_for(session: Session, tmp_path: Path, cell: dict[str, Any]) -> None:
    busy = CellResult(status="stopped", reason=f"{ELSEWHERE}: process 7 is at work", seconds=0.1)
    first = take(job(tmp_path).folder)
    cell["results"] = [busy, DONE]
    assert on_ray._patiently(job(tmp_path), first, session) == busy  # another grid is at work here
    first.release()
    second = Claim(first.folder, take(first.folder).token, 1.0, "host", 2)
    cell["results"] = [busy, busy, DONE]
    assert on_ray._patiently(job(tmp_path), second, session) == DONE


def test_cells_see_the_gpus_that_they_asked_for(tmp_path: Path) -> None:
    assert on_ray._on_this_machine(job(tmp_path, cores=4)).device == "cpu"
    assert on_ray._on_this_machine(job(tmp_path, device="cuda")).device == "cuda"
    shared = on_ray._on_this_machine(job(tmp_path, cores=4, gpus=0.5))
    assert (shared.device, shared.cores) == ("auto", 1)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A folder, and this process as a worker of a Ray machine somewhere else, whose changes of itself do not stay."""
    context = SimpleNamespace(get_node_id=lambda: "m1")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get_runtime_context=lambda: context))
    monkeypatch.setenv("REPOSE_HOME", "elsewhere")
    monkeypatch.chdir("/")
    return str(tmp_path)


def test_a_task_runs_its_cell_on_the_shared_storage(
    session: Session, tmp_path: Path, cell: dict[str, Any], node: str
) -> None:
    cell["results"] = [DONE]
    assert on_ray._cell_task(job(tmp_path), "a-s0.1", session, 5.0, node) == DONE
    assert session.begun({"a-s0.1": None}) == {"a-s0.1": ("m1", socket.gethostname())}
    assert (os.environ["REPOSE_HOME"], Path.cwd()) == (str(session.home), tmp_path)
    assert list((job(tmp_path).folder / "state").iterdir()) == []  # the claim is released


def test_a_task_that_is_asked_to_stop_while_it_waits_for_a_claim_leaves_it(
    session: Session, tmp_path: Path, cell: dict[str, Any], node: str
) -> None:
    take(job(tmp_path).folder, lease=60.0)
    threading.Timer(0.1, session.ask_to_stop).start()
    assert on_ray._cell_task(job(tmp_path), "a-s0.2", session, 60.0, node).status == "stopped"
    assert cell["jobs"] == []
    # The one before may still be at work: who comes next must wait for it, too.
    assert (job(tmp_path).folder / "state" / "claim.json").exists()


def test_a_task_says_what_its_machine_lacks(session: Session, tmp_path: Path, cell: dict[str, Any], node: str) -> None:
    blind = Session(tmp_path / "nowhere", session.home, session.token)
    result = on_ray._cell_task(job(tmp_path), "a-s0.1", blind, 5.0, node)
    assert result.status == "failed"
    assert "does not see" in result.reason
    session.ask_to_stop()
    assert on_ray._cell_task(job(tmp_path), "a-s0.1", session, 5.0, node).status == "stopped"
    assert cell["jobs"] == []


# Ray itself, as far as it is asked


class FakeRay(SimpleNamespace):
    """A Ray that runs tasks at once, in this process, on machines that see what this one sees."""

    def __init__(self, init: Callable[..., None], answers: dict[str, Any]) -> None:
        kinds = {"RayError": type("RayError", (Exception,), {})}
        for name in ("TaskCancelledError", "OutOfMemoryError", "NodeDiedError", "WorkerCrashedError"):
            kinds[name] = type(name, (kinds["RayError"],), {})
        for name in ("RayTaskError", "RuntimeEnvSetupError", "TaskUnschedulableError"):
            kinds[name] = type(name, (kinds["RayError"],), {})
        super().__init__(init=init, exceptions=SimpleNamespace(**kinds), answers=answers, asked=[])

    def is_initialized(self) -> bool:
        return False

    def shutdown(self) -> None:
        pass

    def nodes(self) -> list[dict[str, Any]]:
        node = {"NodeID": "m1", "NodeManagerHostname": "small", "Alive": True, "Resources": {"CPU": 2.0, "GPU": 1.0}}
        return [node, {**node, "NodeID": "gone", "Alive": False}]

    def remote(self, function: Callable[..., Any]) -> Any:
        def options(**asked: Any) -> Any:
            self.asked.append((function.__name__, asked))
            return SimpleNamespace(remote=lambda *arguments: (function.__name__, arguments))

        return SimpleNamespace(options=options)

    def wait(self, tickets: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return tickets, []

    def get(self, ticket: Any) -> Any:
        name, arguments = ticket
        if name == "_check_task" and name not in self.answers:
            return on_ray._check_task(*arguments)
        answer = self.answers[name]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, str) and name == "_cell_task":
            raise getattr(self.exceptions, answer)(f"a traceback\n{answer}: no good\n")
        return answer


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., FakeRay]:
    """Puts a fake in the place of Ray."""
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda **kw: kw)
    monkeypatch.setitem(sys.modules, "ray.util", SimpleNamespace(scheduling_strategies=strategies))
    monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", strategies)

    def put(init: Callable[..., None] = lambda **_: None, **answers: Any) -> FakeRay:
        fake = FakeRay(init, answers)
        monkeypatch.setitem(sys.modules, "ray", fake)
        return fake

    return put


def run(
    tmp_path: Path, told: Told | None = None, *, address: str | None = None, **changes: Any
) -> dict[str, CellResult]:
    cells, events = [job(tmp_path, **changes)], Told() if told is None else told
    return RayBackend(address=address).run(cells, events, threading.Event())


def test_a_cell_is_a_task_with_its_share_of_the_machine(tmp_path: Path, ray: Callable[..., FakeRay]) -> None:
    fake = ray(_cell_task=DONE)
    assert run(tmp_path, cores=2, gpus=0.5) == {"a-s0": DONE}
    checked, asked = fake.asked
    assert checked[0] == "_check_task"
    assert checked[1]["scheduling_strategy"] == {"node_id": "m1", "soft": False}
    assert (asked[1]["num_cpus"], asked[1]["num_gpus"], asked[1]["max_retries"]) == (2, 0.5, 0)


@pytest.mark.parametrize("error", ["NodeDiedError", "WorkerCrashedError", "OutOfMemoryError"])
def test_what_ray_loses_begins_again(tmp_path: Path, ray: Callable[..., FakeRay], error: str) -> None:
    ray(_cell_task=[error, DONE])
    told = Told()
    assert run(tmp_path, told) == {"a-s0": DONE}
    assert [status for _, status, _ in told] == ["waiting", "done"]


def test_what_fails_in_a_task_is_the_reason_of_its_cell(tmp_path: Path, ray: Callable[..., FakeRay]) -> None:
    ray(_cell_task="RayTaskError")
    assert run(tmp_path)["a-s0"].reason == "RayTaskError: no good"


def test_a_machine_that_does_not_see_the_storage_is_named(tmp_path: Path, ray: Callable[..., FakeRay]) -> None:
    ray(_check_task="does not see FOLDER: choose an --out on storage that all machines share")
    with pytest.raises(ConfigError, match="machine small does not see FOLDER: choose"):
        run(tmp_path)


def test_machines_must_have_the_same_repose(session: Session) -> None:
    assert on_ray._check_task(session, __version__) == ""
    assert "has repose" in on_ray._check_task(session, "0.0.1")


def test_without_ray_or_a_cluster_one_sentence_says_what_to_do(
    tmp_path: Path, ray: Callable[..., FakeRay], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(**_: Any) -> None:
        raise ConnectionError("could not find any running Ray instance")

    ray(nobody)
    with pytest.raises(ConfigError, match="no Ray cluster answers here: start one with `ray start --head`"):
        run(tmp_path)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        ray()  # which would be content
        with pytest.raises(ConfigError, match=f"no Ray cluster answers at {address}"):
            run(tmp_path, address=address)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'repose-nmt\[cluster\]'"):
        run(tmp_path)


def test_rays_handler_does_not_replace_that_of_the_grid(tmp_path: Path, ray: Callable[..., FakeRay]) -> None:
    ray(lambda **_: signal.signal(signal.SIGTERM, signal.SIG_IGN), _cell_task=DONE)
    before = signal.getsignal(signal.SIGTERM)
    run(tmp_path)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra `cluster`")
@pytest.mark.parametrize("way", ["killed", "cut off"])
def test_a_machine_of_a_real_cluster_is_lost(tmp_path: Path, way: str) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, str(BENCHMARK), "--seeds", "2", "--ways", way, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text(encoding="utf-8"))["rounds"][way]
    assert {cell["status"] for cell in found["cells"].values()} == {"done"}
    assert all(cell["equal"] for cell in found["cells"].values())
    assert found["cells"][found["lost"]["cell"]]["resumed"] == 1
