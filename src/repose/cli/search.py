"""`repose search`: compares settings on the validation set; most of its trainings end early."""

from functools import cache
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from repose.cli.options import TrainingDevice, change
from repose.system.terminal import counted, say, show


def search(
    file: Annotated[str, Argument(help="An experiment file with a table \\[search].")],
    out: Annotated[Path, Option("--out", "-o", help="Folder to create the search's folder in.")] = Path("runs"),
    trials: Annotated[int | None, Option(min=1, help="Number of trials (default: the file's).")] = None,
    jobs: Annotated[
        int | None, Option("--jobs", "-j", help="Number of trials that run at once (default: one per core).")
    ] = None,
    cores_per_trial: Annotated[int | None, Option(help="Cores per trial (default: an equal share).")] = None,
    overrides: Annotated[list[str] | None, change("a setting of all trials")] = None,
    device: TrainingDevice = "auto",
) -> None:
    """Find good settings with short trainings; only the best continue (extra `search`). Run it again to resume."""
    from repose.grids.local import check_request, num_devices, share
    from repose.search import result
    from repose.search.file import read_search
    from repose.search.run import Searcher, held, prepare
    from repose.search.study import Study

    check_request(jobs=jobs, cores=cores_per_trial, device=device, here=True, unit="trial")
    wanted = read_search(file, overrides=overrides or [], trials=trials)
    mine = share(wanted.trials, jobs=jobs, cores=cores_per_trial, devices=num_devices(device))
    folder = out / wanted.name
    with held(folder):
        study = Study(wanted, folder)
        study.check_data(prepare(wanted, cache(say)))
        at_once = f"{mine.jobs} at once on {counted(mine.cores, 'core')} each"
        say(f"{folder}: {counted(wanted.trials, 'trial')} of {', '.join(wanted.settings)}, {at_once}")
        searcher = Searcher(wanted, study, folder, mine, device, say)
        complete = searcher.run()
        report = result.result_of(wanted, study, folder)
        result.write(report, folder)
    show(result.table(report), *result.sentences(report, folder))
    if not complete:
        say("stopped: the same command resumes the search")
        raise typer.Exit(3)
    if report.best is None:
        raise typer.Exit(1)
