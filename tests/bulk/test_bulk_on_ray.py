"""Shards on a Ray cluster: which worker gets which shard, and what happens when machines are lost."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from repose.bulk import on_ray
from repose.bulk.line_work import LineTranslator
from repose.bulk.plan import Plan
from repose.bulk.shards import Ended, merge, run_shard
from repose.bulk.storage import Store
from repose.system.errors import ReposeError, WriteError

from .conftest import Numbering

Planned = Callable[..., tuple[Store, Plan]]


class LostError(Exception):
    """Ray gave a task up."""


class FailedError(LostError):
    """A task raised something."""

    cause = WriteError("the disk is full")


class FakeRay:
    """A Ray in which each task runs when it is waited for; `script` says what becomes of one, by actor and shard."""

    exceptions = SimpleNamespace(RayError=LostError, RayTaskError=FailedError)

    def __init__(self, store: Store, plan: Plan, script: Callable[[int, int], object]) -> None:
        self.store, self.plan, self.script = store, plan, script
        self.actors, self.log = list[Any](), list[tuple[int, int]]()
        self.most = 0
        self.waiting: dict[int, list[object]] = {}

    def remote(self, **_: object) -> Callable[[type], Any]:
        return lambda _kind: SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self._actor))

    def method(self, **_: object) -> Callable[[Any], Any]:
        return lambda function: function

    def _actor(self, *_: object) -> Any:
        number = len(self.actors)
        run = SimpleNamespace(remote=lambda shard: self._task(number, shard))
        self.actors.append(SimpleNamespace(run=run, stop=SimpleNamespace(remote=lambda: None)))
        self.waiting[number] = []
        return self.actors[-1]

    def _task(self, actor: int, shard: int) -> object:
        self.log.append((actor, shard))
        ticket = (actor, shard, object())
        self.waiting[actor].append(ticket)
        self.most = max(self.most, *map(len, self.waiting.values()))
        return ticket

    def wait(self, tickets: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:  # noqa: ARG002
        ready = [ticket for ticket in tickets if self.script(ticket[0], ticket[1]) != "never"][:1]
        return ready, []

    def get(self, ticket: Any) -> tuple[str, int, int]:
        actor, shard, _ = ticket
        self.waiting[actor].remove(ticket)
        outcome = self.script(actor, shard)
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, str):
            return outcome, 0, 0
        work = LineTranslator(self.plan.job, Numbering())
        return str(run_shard(self.store, self.plan, self.plan.shards[shard], work)), 1, 1


@pytest.fixture
def driven(tmp_path: Path, planned: Planned, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Runs ten shards on two actors, by a script."""
    (tmp_path / "in.txt").write_bytes(b"".join(b"%d\n" % n for n in range(20)))
    store, plan = planned([tmp_path / "in.txt"], shard_lines=2)
    monkeypatch.setattr(on_ray, "LATE", 0.0)
    monkeypatch.setattr(on_ray, "POLL", 0.0)
    monkeypatch.setattr(on_ray, "PAUSE", 0.01)

    def run(script: Callable[[int, int], object], stop: threading.Event | None = None) -> tuple[bool, FakeRay]:
        ray = FakeRay(store, plan, script)
        stop = stop or threading.Event()
        driver = on_ray._Driver(ray, store, plan, lambda _: None, stop, {"num_cpus": 1}, 2)
        return driver.run(plan.shards), ray

    yield run
    if store.read("parts/000009.json") is not None:
        merge(store, plan)


def test_all_are_done_and_no_actor_has_two_at_once(driven: Callable[..., tuple[bool, FakeRay]]) -> None:
    ended, ray = driven(lambda _actor, _shard: None)
    assert ended
    assert sorted({shard for _, shard in ray.log}) == list(range(10))
    assert {actor for actor, _ in ray.log} == {0, 1}
    assert ray.most == 1


def test_what_is_lost_is_handed_out_again(driven: Callable[..., tuple[bool, FakeRay]]) -> None:
    times: dict[int, int] = {}

    def script(_actor: int, shard: int) -> object:
        times[shard] = times.get(shard, 0) + 1
        return LostError() if shard == 3 and times[shard] < 4 else None

    assert driven(script)[0]
    with pytest.raises(ReposeError, match="shard 3 was lost 3 times"):
        driven(lambda _actor, shard: LostError() if shard == 3 else Ended.DONE)


def test_an_actor_that_is_lost_at_once_takes_no_shard_down(driven: Callable[..., tuple[bool, FakeRay]]) -> None:
    ended, ray = driven(lambda actor, _shard: LostError() if actor == 1 else None)
    assert ended
    assert {shard for actor, shard in ray.log if actor == 0} == set(range(10))


def test_an_actor_that_is_never_placed_holds_nothing_up(driven: Callable[..., tuple[bool, FakeRay]]) -> None:
    ended, ray = driven(lambda actor, _shard: "never" if actor == 1 else None)
    assert ended
    assert {shard for actor, shard in ray.log if actor == 0} == set(range(10))


def test_what_others_work_on_is_asked_for_again_and_errors_are_told(
    driven: Callable[..., tuple[bool, FakeRay]],
) -> None:
    asked: list[int] = []

    def script(_actor: int, shard: int) -> object:
        asked.append(shard)
        return str(Ended.BUSY) if shard == 5 and asked.count(5) < 6 else None

    assert driven(script)[0]
    with pytest.raises(WriteError, match=r"^the disk is full$"):
        driven(lambda _actor, _shard: FailedError())


def test_a_stop_begins_nothing_more(driven: Callable[..., tuple[bool, FakeRay]]) -> None:
    stop = threading.Event()

    def script(_actor: int, shard: int) -> object:
        if shard == 1:
            stop.set()
        return None

    ended, ray = driven(script, stop)
    assert not ended
    assert len(ray.log) < 10
    stop.clear()
    assert driven(lambda _actor, _shard: None)[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray leaves files and sockets open
def test_a_cluster_that_loses_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray, cluster_utils = pytest.importorskip("ray"), pytest.importorskip("ray.cluster_utils")
    from tests.cli.test_cli_bulk import corpus, save_model

    from repose.bulk.jobs import translation_job
    from repose.bulk.plan import make_plan

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    model, text = save_model(tmp_path / "model", 1), corpus(tmp_path / "in.txt", 30_000)
    job, _, (translator,) = translation_job(
        model,
        [str(text)],
        form="text",
        field="text",
        load={"device": "cpu", "precision": None, "engine": "torch"},
        search={},
        shard_lines=500,
        output={"into": "translation", "failed": "keep", "num_hypotheses": 1, "pairs": False},
    )
    alone = Store.at(str(tmp_path / "alone"))
    wanted = make_plan(alone, job, [(str(text),)])
    for shard in wanted.shards:
        run_shard(alone, wanted, shard, LineTranslator(job, translator))
    store = Store.at(str(tmp_path / "out"))
    plan = make_plan(store, job, [(str(text),)])
    machine = {"num_cpus": 1, "object_store_memory": 80 << 20}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={**machine, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(**machine) for _ in range(2)]
        ray.init(address=cluster.address, log_to_driver=False)
        lost: list[object] = []

        def on_progress(_tally: Any) -> None:
            if not lost:
                lost.append(nodes.pop())
                cluster.remove_node(lost[0], allow_graceful=False)

        assert on_ray.run_on_ray(
            store, plan, plan.shards, address=None, workers=None, on_progress=on_progress, stop=threading.Event()
        )
        assert lost
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert Path(store.place(merge(store, plan))).read_bytes() == Path(alone.place(merge(alone, wanted))).read_bytes()
