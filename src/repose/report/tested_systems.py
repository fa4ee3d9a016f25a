"""Which systems of a report are tested, and against which."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from repose.evaluation.sentence_statistics import Metric, SentenceStatistics
from repose.report.figures import score
from repose.report.run_folder import ReportRun
from repose.report.runs import RunSet
from repose.report.translations import decoding_of, settings_of, statistics_of
from repose.system.errors import DataError, ReposeError

ALL_PAIRS_BELOW = 4
"""With fewer systems on a corpus, each is tested against each."""


@dataclass(frozen=True)
class System:
    """The finished runs of a system on a corpus that can be tested."""

    group: str
    corpus: str
    runs: tuple[ReportRun, ...]
    """Those whose scores may stand beside the others'."""
    counts: tuple[SentenceStatistics | None, ...]
    """Of each run; None where its translations cannot be counted."""

    @property
    def statistics(self) -> tuple[SentenceStatistics, ...]:
        """The counts that there are."""
        return tuple(one for one in self.counts if one is not None)

    @property
    def counted(self) -> "System":
        """The system with those runs alone that have counts."""
        runs = tuple(run for run, one in zip(self.runs, self.counts, strict=True) if one is not None)
        return replace(self, runs=runs, counts=self.statistics)

    def scores(self, metric: Metric) -> list[float]:
        """Of each run on the whole test set, as its scores.*.json has them."""
        return [value for run in self.runs if (value := score(run, decoding_of(run), metric)) is not None]


@dataclass(frozen=True)
class Pair:
    """A system and what it is tested against."""

    system: System
    other: System

    @property
    def single(self) -> bool:
        """Whether both have one seed."""
        return len(self.system.runs) == len(self.other.runs) == 1


@dataclass
class Remarks:
    """What could not be tested, and why."""

    of_scores: list[str] = field(default_factory=list)
    """Runs whose scores stand beside no other's."""
    of_texts: list[str] = field(default_factory=list)
    """Runs without translations that could be resampled."""


def systems_of(runs: RunSet, corpus: str, remarks: Remarks) -> list[System]:
    """The systems that can be tested on a corpus; what cannot is said in `remarks`."""
    systems: list[System] = []
    first: ReportRun | None = None
    counted: tuple[ReportRun, SentenceStatistics] | None = None
    unlike: dict[str, list[str]] = {}
    uncounted: dict[str, list[str]] = {}
    for group in runs.groups:
        kept: list[ReportRun] = []
        counts: list[SentenceStatistics | None] = []
        for run in runs.done(group, corpus):
            try:
                _check_scores(run, first)
            except ReposeError as error:
                unlike.setdefault(str(error), []).append(run.name)
                continue
            try:
                found = statistics_of(run)
            except ReposeError as error:
                uncounted.setdefault(str(error), []).append(run.name)
                counts.append(None)
            else:
                counted = counted or (run, found)
                if not np.array_equal(found.bleu[:, 1], counted[1].bleu[:, 1]):  # tokens of each reference
                    unlike.setdefault(f"its references are not those of {counted[0].name}", []).append(run.name)
                    continue
                counts.append(found)
            first = first or run
            kept.append(run)
        if kept:
            systems.append(System(group, corpus, tuple(kept), tuple(counts)))
    remarks.of_scores += _sentences(unlike)
    remarks.of_texts += _sentences(uncounted)
    return systems


def _check_scores(run: ReportRun, first: ReportRun | None) -> None:
    """Raises ReposeError for a run whose scores cannot stand beside those of the `first`."""
    if run.looks_ahead:
        raise DataError("its decoder looks ahead, so it is compared with nothing")
    if run.failed_checks:
        raise DataError(f"it failed the audit ({', '.join(run.failed_checks)})")
    way = settings_of(run)
    if first is None:
        return
    ways = [(one["case"], one["tok"]) for one in (way, settings_of(first))]
    if ways[0] != ways[1]:
        shown = [f"case:{case} and tok:{tokenize}" for case, tokenize in ways]
        raise DataError(f"it was scored with {shown[0]}, {first.name} with {shown[1]}")
    numbers = [(one.split, (one.scores or {}).get("num_sentences")) for one in (run, first)]
    if numbers[0] != numbers[1]:
        raise DataError(f"its test set is not that of {first.name}")


def _sentences(left_out: dict[str, list[str]]) -> list[str]:
    return [f"Left out of the tests: {_shown(names)}; {reason}." for reason, names in left_out.items()]


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def pairs_of(systems: Sequence[System], baseline: str | None, remarks: list[str]) -> list[Pair]:
    """Who is tested against whom: all against the baseline (else the first), each against each where they are few."""
    if len(systems) < 2:
        return []
    base = next((system for system in systems if system.group == baseline), None)
    if len(systems) < ALL_PAIRS_BELOW:
        ordered = sorted(systems, key=lambda system: system is not base)  # the baseline is what others are held against
        return [Pair(system, other) for other, system in combinations(ordered, 2)]
    if base is None:
        base = systems[0]
        reason = f"{baseline} cannot be tested" if baseline else "no baseline is named"
        remarks.append(f"On {base.corpus}, {reason}: systems are tested against the first, {base.group}.")
    return [Pair(system, base) for system in systems if system is not base]
