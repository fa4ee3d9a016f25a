"""The system of a report that others are tested against: as asked for, or as a grid names it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from repose.grids.file import SYSTEM
from repose.grids.grid import folder_label
from repose.system.errors import ConfigError, unknown

if TYPE_CHECKING:
    from repose.report.collect import ReportRun


class NamesBefore:
    """What groups were called before they were told apart from those of other grids, or joined with them."""

    def __init__(self, before: Sequence["ReportRun"], now: Sequence["ReportRun"]) -> None:
        self._before, self._now = before, {run.run_id: run.group for run in now}

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
) -> str | None:
    """The requested group, or the one that a grid names."""
    groups = list(dict.fromkeys(run.group for run in runs))
    if requested is not None:
        found = [requested] if requested in groups else before.groups(requested)
        if len(found) > 1:
            raise ConfigError(f"--baseline {requested} may be {' or '.join(found)}: name one of them")
        if not found:
            raise ConfigError(unknown("system", requested, groups))
        return found[0]
    named = next((str(hint["baseline"]) for hint in hints if hint.get("baseline")), None)
    if named is None or named in groups:
        return named
    if found := before.groups(named):
        return found[0]
    problems.append(f"The grid's baseline {named} has no run here: the first system stands in for it.")
    return None
