"""The system of a report that others are tested against: as asked for, or as a grid names it.

Where the grid varies something else, a system is several groups. Each other group is then tested against its twin: the
one with the same other labels.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from repose.grids.file import CORPUS, SYSTEM
from repose.grids.grid import folder_label
from repose.system.errors import ConfigError, unknown

if TYPE_CHECKING:
    from repose.report.collect import ReportRun


_APART = (SYSTEM, CORPUS)
"""Axes that twins need not agree in; they are compared on each corpus anyway."""


class NamesBefore:
    """What groups were called before they were told apart from those of other grids, or joined with them."""

    def __init__(self, before: Sequence["ReportRun"], now: Sequence["ReportRun"]) -> None:
        self._before, self._now = before, {run.run_id: run.group for run in now}

    def of_system(self, name: str) -> list[str]:
        """Today's groups of a system."""
        found = (self._now.get(run.run_id) for run in self._before if run.labels.get(SYSTEM) == name)
        return [group for group in dict.fromkeys(found) if group is not None]

    def groups(self, name: str) -> list[str]:
        """Today's groups with runs of a group of that name: whole, with a corpus before it, or by its system alone."""
        found: dict[str, None] = {}
        for run in self._before:
            names = (run.group, f"{run.corpus}-{run.group}")
            if name in (*names, *map(folder_label, names), run.labels.get(SYSTEM)) and run.run_id in self._now:
                found.setdefault(self._now[run.run_id])
        return list(found)


def find_baseline(
    requested: str | None,
    hints: Sequence[Mapping[str, Any]],
    runs: Sequence["ReportRun"],
    before: NamesBefore,
    problems: list[str],
) -> tuple[str | None, Mapping[str, str]]:
    """The requested group, or the one that a grid names; and the twins of others, where it is a system of several."""
    groups = list(dict.fromkeys(run.group for run in runs))
    if requested is not None:
        found = [requested] if requested in groups else before.groups(requested)
        if len(found) > 1 and (twins := _twins(before.of_system(requested), runs)):
            return found[0], twins
        if len(found) > 1:
            raise ConfigError(f"--baseline {requested} may be {' or '.join(found)}: name one of them")
        if not found:
            raise ConfigError(unknown("system", requested, groups))
        return found[0], {}
    named = next((str(hint["baseline"]) for hint in hints if hint.get("baseline")), None)
    if named is None or named in groups:
        return named, {}
    if found := before.groups(named):
        return found[0], _twins(before.of_system(named), runs)
    problems.append(f"The grid's baseline {named} has no run here: the first system stands in for it.")
    return None, {}


def _twins(bases: Sequence[str], runs: Sequence["ReportRun"]) -> dict[str, str]:
    """Of each group beside some, the one of those with the same labels but for the system; where those are several."""
    if len(bases) < 2:
        return {}
    labels: dict[str, dict[str, str]] = {}
    for run in runs:
        labels[run.group] = {axis: label for axis, label in run.labels.items() if axis not in _APART}
    if len({frozenset(labels[base].items()) for base in bases}) < len(bases):
        return {}  # they differ in something else, such as their grid
    others = [group for group in labels if group not in bases]
    return {group: base for group in others for base in bases if labels[base] == labels[group]}
