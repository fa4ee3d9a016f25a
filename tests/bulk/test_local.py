"""Worker processes for shards: what happens when they die, fail or must stop."""

import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from repose.bulk import local
from repose.bulk import models as models_module
from repose.bulk import run as run_module
from repose.bulk.line_work import LineTranslator
from repose.bulk.local import Tally, run_in_processes
from repose.bulk.plan import Plan
from repose.bulk.shards import Ended, OnWindow, merge, run_shard
from repose.bulk.storage import Store
from repose.system.errors import ReposeError, WriteError

from .conftest import MODEL, Numbering

Planned = Callable[..., tuple[Store, Plan]]
Script = Callable[[int, int], str]


class FakeProcess:
    """Works in this process; `script` says of the n-th try on a shard what becomes of it."""

    store: Store
    plan: Plan
    script: Script
    tries: dict[int, int]
    alive: list["FakeProcess"]

    def __init__(self, where: str, identity: str) -> None:
        assert (where, identity) == (self.store.where, self.plan.identity)
        self.stopped = self.dead = False
        self.alive.append(self)

    def run(self, shard: int, on_window: OnWindow) -> Ended:
        self.tries[shard] = self.tries.get(shard, 0) + 1
        outcome = type(self).script(shard, self.tries[shard])
        if outcome == "dies":
            raise EOFError
        if outcome == "fails":
            raise WriteError("the disk is full")
        if outcome == "long":
            while not self.stopped and not self.dead:
                time.sleep(0.001)
            return Ended.STOPPED
        if outcome in ("busy", "stopped"):
            return Ended(outcome)
        return run_shard(
            self.store,
            self.plan,
            self.plan.shards[shard],
            LineTranslator(self.plan.job, Numbering()),
            on_window=on_window,
        )

    def failure(self) -> ReposeError:
        return ReposeError("a process was killed")

    def ask_to_stop(self) -> None:
        self.stopped = True

    def kill(self) -> None:
        self.dead = True

    def end(self) -> None:
        self.alive.remove(self)


@pytest.fixture
def run(tmp_path: Path, planned: Planned, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Runs ten shards in three processes, by a script; afterwards none is left."""
    (tmp_path / "in.txt").write_bytes(b"".join(b"%d\n" % n for n in range(20)))
    store, plan = planned([tmp_path / "in.txt"], shard_lines=2)
    monkeypatch.setattr(local, "WorkerProcess", FakeProcess)
    FakeProcess.store, FakeProcess.plan = store, plan

    def run(
        script: Script, stop: threading.Event | None = None, on_progress: Callable[[Tally], None] = lambda _: None
    ) -> bool:
        FakeProcess.script, FakeProcess.tries, FakeProcess.alive = staticmethod(script), {}, []
        try:
            ended = run_in_processes(
                store, plan, plan.shards, 3, on_progress=on_progress, stop=stop or threading.Event()
            )
        finally:
            assert FakeProcess.alive == []
        if ended:
            merge(store, plan)
        return ended

    return run


def test_a_process_that_dies_is_replaced(run: Callable[..., bool]) -> None:
    seen: list[tuple[int, int]] = []
    assert run(
        lambda shard, tried: "dies" if shard in (0, 4) and tried < 3 else "",
        on_progress=lambda tally: seen.append((tally.shards, tally.lines)),
    )
    assert FakeProcess.tries[0] == FakeProcess.tries[4] == 3
    assert seen[-1] == (10, 20)


@pytest.mark.parametrize(
    ("device", "asked", "used"), [("cpu", None, 3), ("cuda", None, 1), ("cuda", 2, 2), ("cpu", 9, 5)]
)
def test_there_are_as_many_processes_as_cores_or_gpus_but_not_more_than_shards(
    tmp_path: Path, planned: Planned, monkeypatch: pytest.MonkeyPatch, device: str, asked: int | None, used: int
) -> None:
    (tmp_path / "in.txt").write_text("a\n" * 5)
    store, plan = planned([tmp_path / "in.txt"], shard_lines=1, models=(dataclasses.replace(MODEL, device=device),))
    found: list[int] = []

    def processes(_store: Store, _plan: Plan, _shards: object, workers: int, **_: object) -> bool:
        found.append(workers)
        return True

    def here(*_: object, **__: object) -> bool:
        found.append(1)
        return True

    monkeypatch.setattr("repose.system.device.available_cores", lambda: 3)
    monkeypatch.setattr(run_module, "check_workers", lambda _: None)
    monkeypatch.setattr(run_module, "run_in_processes", processes)
    monkeypatch.setattr(run_module, "run_here", here)
    models: list[Any] = [Numbering()]
    assert run_module.run_shards(store, plan, plan.shards, models, on="local", workers=asked)
    assert found == [used]
    assert len(models) == (used == 1), "each process has its own"
    assert run_module.run_shards(store, plan, [], models, on="local", workers=asked)
    assert found == [used], "nothing is left to do"


def test_the_best_device_is_called_by_its_name_in_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    translator = SimpleNamespace(engine=SimpleNamespace(name="torch"), precision="fp32")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(models_module, "digest", lambda _: "0" * 64)
    monkeypatch.setattr(models_module, "load", lambda *how: asked.append(how) or translator)
    model, _ = models_module.used(tmp_path, "auto", None, "auto")
    assert (model.device, asked) == ("cpu", [(tmp_path, "cpu", 1, None, "auto")])


def test_a_shard_that_kills_again_and_again_ends_it(run: Callable[..., bool]) -> None:
    with pytest.raises(ReposeError, match=r"^a process was killed$"):
        run(lambda shard, _: "dies" if shard == 7 else "")
    assert FakeProcess.tries[7] == local.TRIES


def test_what_a_process_meets_ends_all(run: Callable[..., bool]) -> None:
    with pytest.raises(WriteError, match="the disk is full"):
        run(lambda shard, _: "fails" if shard == 5 else "long" if shard == 6 else "")


def test_a_thread_that_cannot_be_started_ends_all(run: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
    begun, start = threading.Event(), threading.Thread.start
    gone_on: list[int] = []

    def start_one(thread: threading.Thread) -> None:
        if begun.is_set():
            raise RuntimeError("can't start new thread")
        start(thread)
        assert begun.wait(20.0)

    def script(shard: int, _tried: int) -> str:
        if begun.is_set():
            gone_on.append(shard)
        begun.set()
        time.sleep(0.5)
        return ""

    monkeypatch.setattr(threading.Thread, "start", start_one)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        run(script)
    assert len(gone_on) < 9, "the first thread did all the rest"


def test_a_stop_reaches_those_at_work(run: Callable[..., bool]) -> None:
    stop = threading.Event()

    def script(shard: int, _tried: int) -> str:
        if shard == 3:
            stop.set()
        return "long" if shard > 1 else ""

    assert not run(script, stop)
    assert run(lambda _shard, _tried: "")


def test_what_another_runner_has_is_waited_for(run: Callable[..., bool]) -> None:
    assert run(lambda shard, tried: "busy" if shard == 2 and tried < 5 else "")
    assert FakeProcess.tries[2] == 5


def test_a_shard_whose_process_somebody_else_stops_is_begun_again(run: Callable[..., bool]) -> None:
    stop = threading.Event()
    timer = threading.Timer(20.0, stop.set)  # else a shard that is lost would be waited for without end
    timer.start()
    assert run(lambda shard, tried: "stopped" if shard in (0, 4) and tried < 3 else "", stop)
    timer.cancel()
    assert FakeProcess.tries[0] == FakeProcess.tries[4] == 3
    with pytest.raises(ReposeError, match=r"^a process was killed$"):
        run(lambda shard, _: "stopped" if shard == 7 else "")
