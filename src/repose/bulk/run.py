"""Choose where to work on the shards of a job: in this process, in several, or on a cluster."""

import threading
from collections.abc import Sequence

from repose.bulk.line_work import work_of
from repose.bulk.local import OnProgress, run_here, run_in_processes
from repose.bulk.plan import Plan, Shard
from repose.bulk.storage import Store
from repose.decoding.translator import Translator
from repose.system.device import check_workers, usual_workers


def run_shards(
    store: Store,
    plan: Plan,
    shards: Sequence[Shard],
    models: list[Translator],
    *,
    on: str,
    address: str | None = None,
    workers: int | None = None,
    on_progress: OnProgress = lambda _tally: None,
    stop: threading.Event | None = None,
) -> bool:
    """Work on shards until all are done. Return whether all are done; False if `stop` was set first.

    `models`: the job's loaded models, which are used only if one process does all the work; otherwise, the list is
    emptied. Raises what `run_here`, `run_in_processes` and `run_on_ray` raise.
    """
    stop = stop or threading.Event()
    if not shards:
        return True
    if on == "ray":
        from repose.bulk.on_ray import run_on_ray

        models.clear()
        return run_on_ray(store, plan, shards, address=address, workers=workers, on_progress=on_progress, stop=stop)
    if workers is None:
        workers = usual_workers(plan.job.models[0].device)
    check_workers(workers)
    workers = min(workers, len(shards))
    if workers > 1:
        models.clear()  # each process has its own
        return run_in_processes(store, plan, shards, workers, on_progress=on_progress, stop=stop)
    return run_here(store, plan, shards, work_of(plan.job, models), on_progress=on_progress, stop=stop)
