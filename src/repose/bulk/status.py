"""Progress of a job, counted from its manifests, whichever machine wrote them."""

from collections import Counter
from dataclasses import dataclass, field

from repose.bulk.plan import Plan
from repose.bulk.shards import Manifest
from repose.bulk.storage import Store

RECENT = 900.0
"""The rate is taken over this many seconds before the latest shard was finished."""


@dataclass
class Status:
    """How much of a job is done, and how fast."""

    shards: int
    lines: int
    """Number of lines of all inputs."""
    shards_done: int = 0
    lines_done: int = 0
    tokens: int = 0
    seconds: float = 0.0
    """Working time of all workers together."""
    failed: Counter[str] = field(default_factory=Counter)
    too_long: int = 0
    rate: float = 0.0
    """Recent rate in lines per second, of all workers together."""
    latest: float = 0.0
    """Time when the last shard was finished, in seconds since 1970."""

    @property
    def seconds_left(self) -> float | None:
        """Seconds that the rest takes at this rate; None if no rate is known."""
        return (self.lines - self.lines_done) / self.rate if self.rate else None


def status(store: Store, plan: Plan) -> Status:
    """Return the progress of a job from its manifests. Shards in progress are not counted."""
    found = Status(len(plan.shards), plan.lines)
    there = set(store.names("parts"))
    manifests = []
    for shard in plan.shards:
        if f"{shard.stem}.json" in there and (manifest := Manifest.read(store, plan, shard)) is not None:
            manifests.append(manifest)
            found.shards_done += 1
            found.lines_done += manifest.lines
            found.tokens += manifest.tokens
            found.seconds += manifest.seconds
            found.failed.update(manifest.failed)
            found.too_long += manifest.too_long
    if manifests:
        found.latest = max(manifest.finished for manifest in manifests)
        recent = [manifest for manifest in manifests if found.latest - manifest.finished < RECENT]
        began = min(manifest.finished - manifest.seconds for manifest in recent)
        found.rate = sum(manifest.lines for manifest in recent) / max(found.latest - began, 1e-3)
    return found
