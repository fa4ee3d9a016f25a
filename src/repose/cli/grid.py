"""`repose grid`: trains the cells of a grid, on this machine or on a cluster."""

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from repose.cli.options import PLACES, Address, TrainingDevice, change
from repose.system.errors import ConfigError, unknown
from repose.system.terminal import counted, make_table, quoted, say, show

if TYPE_CHECKING:
    from repose.grids.cells import CellJob, RunCells
    from repose.grids.run import GridPlan


def grid(
    file: Annotated[
        str | None,
        Argument(
            help="A grid file, or the name of one that ships with repose. Without it, the shipped grids are listed."
        ),
    ] = None,
    out: Annotated[Path, Option("--out", "-o", help="Folder to create the grid's folder in.")] = Path("runs"),
    jobs: Annotated[
        int | None, Option("--jobs", "-j", help="Number of cells that run at once (default: one per core).")
    ] = None,
    cores_per_cell: Annotated[int | None, Option(help="Cores per cell (default: an equal share).")] = None,
    dry_run: Annotated[
        bool,
        Option(
            "--dry-run",
            help="Show cells, parameters, time and memory, then exit. Trains a few updates (about a minute).",
        ),
    ] = False,
    only: Annotated[
        list[str] | None, Option(help="Run only these cells or groups, such as 'reinforced*'. Can be repeated.")
    ] = None,
    shard: Annotated[
        str | None,
        Option(metavar="I/N", help="Run every N-th cell, starting from the I-th (counted from 0); for job arrays."),
    ] = None,
    overrides: Annotated[list[str] | None, change("a setting in all cells")] = None,
    seeds: Annotated[str | None, Option(help="Number of seeds, or a list such as 0,5 (default: the file's).")] = None,
    device: TrainingDevice = "auto",
    retry_failed: Annotated[bool, Option(help="Also run cells that failed before.")] = True,
    on: Annotated[str, Option(help="Where to run cells: local, or ray for a Ray cluster (extra `cluster`).")] = "local",
    address: Address = None,
    gpus_per_cell: Annotated[float, Option(help="GPUs per cell; with 0.5, two cells share one.")] = 0.0,
    retries: Annotated[
        int | None, Option(help="How often to restart a cell whose machine was lost (Ray only; default: 3).")
    ] = None,
) -> None:
    """Train every combination of a grid's architectures, corpora, settings and seeds. Run it again to resume."""
    if file is None:
        from repose.grids.grid import shipped_grids

        show(make_table(("grid", "what it answers", "budget"), shipped_grids(), lines=True))
        return
    if on not in PLACES:
        raise ConfigError(unknown("backend", on, PLACES))
    from repose.grids.grid import read_grid
    from repose.grids.local import check_request, num_devices, run_here, share
    from repose.grids.run import jobs_of, make_plan

    _refuse_others(on, address=address, retries=retries, jobs=None if dry_run else jobs)
    check_request(jobs=jobs, cores=cores_per_cell, device=device, here=on == "local", gpus=gpus_per_cell)
    devices = num_devices(device) if on == "local" else 0
    if gpus_per_cell and on == "local" and not devices:
        raise ConfigError(f"--gpus-per-cell = {gpus_per_cell:g}, but there are no GPUs to share here: leave it out")
    wanted = read_grid(file, overrides=overrides or [], seeds=seeds)
    # Print each sentence once: a corpus is prepared again for each combination of its settings.
    plan = make_plan(
        wanted, out, only=only or [], shard=shard, retry_failed=retry_failed, record=not dry_run, say=cache(say)
    )
    mine = share(len(plan.chosen), jobs=jobs, cores=cores_per_cell, devices=devices, gpus=gpus_per_cell)
    mine = mine.of_fewer(len(plan.todo))
    if dry_run:
        from repose.grids.estimate import calibrate, estimate_table

        costs = calibrate(plan, mine, device=device, say=say)
        show(*estimate_table(plan, costs, mine, on=on))
        return
    if on == "ray":
        from repose.grids.ray import run_on_ray

        cells = jobs_of(plan, device=device, cores=cores_per_cell or 1, gpus=gpus_per_cell)
        _run(plan, cells, partial(run_on_ray, address=address, retries=3 if retries is None else retries))
    else:
        at_once = f", {mine.jobs} at once on {counted(mine.cores, 'core')} each"
        cells = jobs_of(plan, device=device, cores=mine.cores)
        _run(plan, cells, partial(run_here, share=mine), at_once if cells else "")


def _refuse_others(on: str, **options: object) -> None:
    """Raise ConfigError for a given option that has an effect only with the other value of `--on`."""
    elsewhere = {"local": ("address", "retries"), "ray": ("jobs",)}
    given = [f"--{name}" for name in elsewhere[on] if options[name] is not None]
    if given:
        other, them = "ray" if on == "local" else "local", "it" if len(given) == 1 else "them"
        raise ConfigError(f"{' and '.join(given)} would have no effect: leave {them} out, or add --on {other}")


def _run(plan: "GridPlan", cells: "Sequence[CellJob]", run_cells: "RunCells", at_once: str = "") -> None:
    from repose.grids.cells import CellStatus
    from repose.grids.run import run_plan
    from repose.grids.view import make_view, outcome_table

    say(f"{plan.folder}: {counted(len(plan.chosen), 'cell')}, {plan.summary}{at_once}")
    with make_view(plan) as view:
        outcome = run_plan(plan, cells, run_cells, watch=view)
    show(outcome_table(plan, outcome))
    if outcome.note:
        say(f"repose: {outcome.note}")
    code = outcome.exit_code
    rest = sum(entry.status != CellStatus.DONE for entry in outcome.entries)
    if code == 3:
        say(f"still to be done: {rest} of {counted(len(outcome.entries), 'cell')}, which the same command resumes")
    if rest < len(outcome.entries):
        say(f"tables and figures: repose report {quoted(plan.folder)}")
    raise typer.Exit(code)
