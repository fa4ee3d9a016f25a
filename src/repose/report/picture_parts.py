"""Which runs share a picture, and how their systems are drawn in it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from repose.report.drawing import FEW, System
from repose.report.runs import RunSet


def parts_of(runs: RunSet) -> Iterator[tuple[RunSet, str]]:
    """Runs that share pictures, and what to add to these pictures' ids: corpora of few systems, and one of many."""
    for task in runs.tasks:
        of_task = runs.of_task(task)
        alone = [corpus for corpus in of_task.corpora if len(_on(of_task, [corpus]).groups) > FEW]
        others = [corpus for corpus in of_task.corpora if corpus not in alone]
        if len(_on(of_task, others).groups) > FEW:  # not many on any of them, but not the same ones
            alone, others = list(of_task.corpora), []
        for corpora in [others] * bool(others) + [[corpus] for corpus in alone]:
            pieces = [task] * (task != "translation") + corpora * (corpora != others and len(of_task.corpora) > 1)
            yield _on(of_task, corpora), re.sub(r"[^\w.]+", "-", "".join(f"-{piece}" for piece in pieces))


def _on(runs: RunSet, corpora: Sequence[str]) -> RunSet:
    """The runs on some of the corpora."""
    found = tuple(run for run in runs.runs if run.corpus in corpora)
    return replace(runs, runs=found, groups=tuple(dict.fromkeys(run.group for run in found)), corpora=tuple(corpora))


def systems_of(part: RunSet) -> dict[str, System]:
    """How each system is drawn."""
    return {
        group: System(
            name=group,
            number=number,
            looks_ahead=any(run.looks_ahead for run in part.runs if run.group == group),
            failed_audit=any(run.failed_checks for run in part.runs if run.group == group),
        )
        for number, group in enumerate(part.groups)
    }


def title_of(part: RunSet, title: str) -> str:
    """With what all panels have in common: task and corpus."""
    task = part.tasks[0]
    where = [task.replace("_", " ")] * (task != "translation") + [*part.corpora] * (len(part.corpora) == 1)
    return ", ".join([title, *where])
