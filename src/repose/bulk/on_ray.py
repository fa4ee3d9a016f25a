"""Work on the shards of a job on a Ray cluster (extra `cluster`): one actor per core, or GPU, each with its own model.

Only numbers of shards and how they ended are sent; text goes from storage to storage. An actor whose machine is lost is
restarted elsewhere by Ray, and a shard that Ray gives up is handed out again. All machines must see the job's folder
and its inputs under the same name.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from repose._version import __version__
from repose.bulk.local import TRIES, OnProgress, Tally
from repose.bulk.plan import Plan, Shard
from repose.bulk.shards import Ended
from repose.bulk.storage import Store
from repose.bulk.worker import LoadedJob
from repose.system.cluster import connected, import_ray
from repose.system.errors import ConfigError, ReposeError
from repose.system.helper import worker_error

POLL = 1.0
"""Seconds between checks for results."""
PAUSE = 5.0
"""Seconds for which a lost actor gets no shards while Ray restarts it elsewhere; doubled after each further loss."""
LATE = 30.0
"""Seconds after which a shard is handed out again if there is nothing else to do; its lock shows if it runs."""
GRACE = 30.0
"""Seconds that actors have to finish the current window when the run is stopped."""


class Actor:
    """A process on a machine of the cluster, with the job and its model, loaded when the first shard arrives."""

    def __init__(self, where: str, identity: str, version: str) -> None:
        self._given = (where, identity, version)
        self._loaded: LoadedJob | None = None
        self._stop = threading.Event()

    def run(self, shard: int) -> tuple[Ended, int, int]:
        """Work on a shard; return how it ended, and the numbers of lines and tokens. Raises ReposeError."""
        tally = Tally(lambda _: None)
        try:
            ended = self._job().run(shard, tally.count, self._stop.is_set)
        except Exception as error:
            raise worker_error(error) from error
        return ended, tally.lines, tally.tokens

    def stop(self) -> None:
        """Stop after the current window."""
        self._stop.set()

    def _job(self) -> LoadedJob:
        where, identity, version = self._given
        if version != __version__:
            raise ConfigError(f"a machine has repose {__version__}, this one {version}: install the same on both")
        self._loaded = self._loaded or LoadedJob(where, identity)
        return self._loaded


def run_on_ray(
    store: Store,
    plan: Plan,
    shards: Sequence[Shard],
    *,
    address: str | None,
    workers: int | None,
    on_progress: OnProgress,
    stop: threading.Event,
) -> bool:
    """Work on shards until all are done. Return whether all are done; False if `stop` was set first.

    `address`: address of the head; None: RAY_ADDRESS, or the cluster that this machine belongs to. `workers`: number of
    actors, by default the cluster's number of cores, or GPUs. Raises ConfigError without Ray or a cluster, and
    ReposeError for an error on a machine, and if a shard is lost again and again.
    """
    ray = import_ray()
    with connected(ray, address):
        kind = "CPU" if plan.job.models[0].device == "cpu" else "GPU"
        number = min(len(shards), workers or int(ray.cluster_resources().get(kind, 0)))
        if not number:
            raise ConfigError(f"the Ray cluster has no {kind}: add a machine, or choose --device cpu")
        return _Driver(ray, store, plan, on_progress, stop, {f"num_{kind.lower()}s": 1}, number).run(shards)


@dataclass(eq=False)
class _Worker:
    """An actor as the driver sees it."""

    actor: Any
    is_free: bool = True
    pause: float = PAUSE
    """Seconds for which it gets no shards if it is lost now."""
    resumes: float = 0.0
    """When its pause ends."""


class _Driver:
    def __init__(
        self,
        ray: Any,
        store: Store,
        plan: Plan,
        on_progress: OnProgress,
        stop: threading.Event,
        resources: dict[str, int],
        number: int,
    ) -> None:
        self._ray, self._tally, self._stop = ray, Tally(on_progress), stop
        kind = ray.remote(concurrency_groups={"control": 1})(_controlled(ray))
        options = {**resources, "max_restarts": -1, "max_task_retries": 0}  # shards are retried here, on other actors
        given = (store.where, plan.identity, __version__)
        self._workers = [_Worker(kind.options(**options).remote(*given)) for _ in range(number)]
        self._at_work: dict[Any, tuple[_Worker, Shard]] = {}
        self._waiting: deque[Shard] = deque()
        self._handed: dict[int, float] = {}  # time at which each shard was last handed out
        self._done: set[int] = set()
        self._losses: Counter[int] = Counter()

    def run(self, shards: Sequence[Shard]) -> bool:
        """Hand out shards until all are done."""
        self._waiting.extend(shards)
        deadline: float | None = None
        while len(self._done) < len(shards):
            if self._stop.is_set() and deadline is None:
                deadline = time.monotonic() + GRACE
                for worker in self._workers:
                    worker.actor.stop.remote()
            if deadline is None:
                self._hand_out()
            elif not self._at_work or time.monotonic() > deadline:
                return False
            if not self._at_work:
                self._stop.wait(POLL)  # all actors were lost, and pause
                continue
            ready, _ = self._ray.wait(list(self._at_work), timeout=POLL)
            for ticket in ready:
                self._see(ticket)
        return True

    def _hand_out(self) -> None:
        """Give each free actor a shard. At the end, shards that have taken long are handed out once more, as their
        machine may be lost."""
        now = time.monotonic()
        for worker in self._workers:
            if worker.is_free and worker.resumes <= now:
                if (shard := self._waiting.popleft() if self._waiting else self._late(now)) is None:
                    return
                worker.is_free = False
                self._at_work[worker.actor.run.remote(shard.number)] = (worker, shard)
                self._handed[shard.number] = now

    def _late(self, now: float) -> Shard | None:
        """Return a shard that was handed out long ago and is not done; None if there is none."""
        shards = (shard for _, shard in self._at_work.values() if shard.number not in self._done)
        return next((shard for shard in shards if self._handed[shard.number] < now - LATE), None)

    def _see(self, ticket: Any) -> None:
        worker, shard = self._at_work.pop(ticket)
        worker.is_free = True
        try:
            ended, lines, tokens = self._ray.get(ticket)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self._ray.exceptions.RayError as error:  # its machine or its process was lost
            worker.resumes = time.monotonic() + worker.pause
            worker.pause *= 2
            self._losses[shard.number] += 1
            if self._losses[shard.number] == TRIES:
                sentence = f"shard {shard.number} was lost {TRIES} times ({type(error).__name__}): look at that machine"
                raise ReposeError(sentence) from error
            if self._is_open(shard):
                self._waiting.appendleft(shard)
            return
        worker.pause = PAUSE
        if ended == Ended.DONE:
            self._tally.count(lines, tokens, shards=shard.number not in self._done)
            self._done.add(shard.number)
        elif ended == Ended.BUSY and self._is_open(shard):
            self._waiting.append(shard)

    def _is_open(self, shard: Shard) -> bool:
        """Return whether a shard is neither done nor with another actor."""
        return shard.number not in self._done and all(other is not shard for _, other in self._at_work.values())


def _controlled(ray: Any) -> type[Actor]:
    """Return an actor class that answers `stop` while `run` is working."""

    class Controlled(Actor):
        @ray.method(concurrency_group="control")  # type: ignore[untyped-decorator]
        def stop(self) -> None:
            super().stop()

    return Controlled
