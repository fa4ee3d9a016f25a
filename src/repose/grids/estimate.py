"""What a grid would take, by its calibration: the table of `repose grid --dry-run`."""

from collections.abc import Iterator, Mapping

from rich.markup import escape
from rich.table import Table

from repose.grids.calibrate import SENTENCES, TIMED_UPDATES, Cost, kind_of
from repose.grids.local import Share
from repose.grids.run import Plan
from repose.grids.view import duration, without_status
from repose.system.errors import ReposeError

GIB = 2**30


def estimate_table(
    plan: Plan, costs: Mapping[str, Cost | ReposeError], share: Share, *, on: str = "local"
) -> Iterator[Table | str]:
    """Cells, parameters, updates, time and memory; then totals, and what they rest on."""
    table = Table("cell", "status", "parameters", "updates", "time", "memory", title=plan.grid.about or None)
    table.title_justify = "left"
    for column in table.columns[2:]:
        column.justify = "right"
    seconds: list[float] = []
    memory = 0
    todo = {entry.name for entry in plan.todo}
    for entry in plan.chosen:
        experiment = plan.cell(entry).experiment
        cost = costs.get(kind_of(experiment)) if entry.name in todo else None
        if isinstance(cost, Cost):
            own = cost.seconds(experiment.training.max_hours)
            seconds.append(own)
            memory = max(memory, cost.memory_bytes)
            updates = "by the clock" if cost.updates is None else f"{cost.updates:,}"
            numbers = (f"{cost.parameters:,}", updates, duration(own), f"{cost.memory_bytes / GIB:.1f} GiB")
            table.add_row(escape(entry.name), entry.status, *numbers)
        else:
            reason = str(cost) if cost is not None else without_status(entry.reason)
            where = f"in {entry.folder}" if entry.folder != entry.name else ""
            table.add_row(escape(entry.name), escape(" ".join(filter(None, (entry.status, reason, where)))))
    yield table
    yield from _totals(plan, seconds, memory, share, on)


def _totals(plan: Plan, seconds: list[float], memory: int, share: Share, on: str) -> Iterator[str]:
    if plan.grid.budget:
        yield f"budget       {plan.grid.budget}"
    done = sum(entry.status == "done" for entry in plan.chosen)
    yield f"cells        {len(plan.chosen)}, {done} of them done, {len(plan.todo)} to run"
    if not seconds:
        return
    whole = _makespan(seconds, share.jobs)
    yield (
        f"time         about {duration(whole)} with {share.jobs} cells at once, cores of each: {share.cores}; "
        f"{duration(sum(seconds))} one after the other"
    )
    yield f"memory       about {memory * share.jobs / GIB:.1f} GiB at a time"
    yield (
        f"The estimate rests on {TIMED_UPDATES} updates, one validation and {SENTENCES} translations of each distinct "
        f"architecture and corpus, {share.jobs} at once, on this machine; on hypotheses as long as their references; "
        "and on trainings that do not stop early. A batch of longer sentences than those seen takes more memory."
        + (" On a cluster other machines may be faster or slower." if on != "local" else "")
    )


def _makespan(seconds: list[float], jobs: int) -> float:
    """When the last of these ends, each taken in turn by the first of `jobs` places that is free."""
    ends = [0.0] * jobs
    for own in seconds:
        ends[ends.index(min(ends))] += own
    return max(ends)
