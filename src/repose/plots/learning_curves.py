"""Learning curves: what runs wrote into metrics.jsonl, runs that differ in their seed alone taken together."""

import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from repose.model.architecture import Architecture
from repose.model.presets import PRESETS
from repose.runs.folder import RunFolder
from repose.system.errors import ConfigError, unknown

By: TypeAlias = Literal["epoch", "update"]
TRAINING_NAME = {"tf_loss": "nll", "tf_loss_keras": "nll_keras"}
"""What the training records call a validation figure, where it is another name: its loss has no label smoothing."""
_NATS = "nats per target token"
UNITS = {
    **dict.fromkeys(("tf_loss", "tf_loss_keras", "nll", "nll_keras", "loss", "loss_keras"), _NATS),
    "tf_accuracy": "share of target tokens",
    "bleu": "free-running, greedy",
    "tf_bleu": "teacher-forced: no translation",
}
_NO_FIGURES = {"kind", "update", "epoch", "wall"}
_SEED = re.compile(r"(?:[-_. ]?(?:seed|run|trial)|[-_. ]s)?[-_. ]?\d+", re.IGNORECASE)


@dataclass(frozen=True)
class Run:
    """One run directory: its settings and records."""

    folder: Path
    settings: Mapping[str, Any]
    records: tuple[Mapping[str, Any], ...]

    def points(self, kind: str, name: str, by: By) -> dict[int, float]:
        """A figure by epoch (the last of each) or by update."""
        return {r[by]: r[name] for r in self.records if r["kind"] == kind and isinstance(r.get(name), int | float)}


@dataclass(frozen=True)
class Point:
    """A figure of several runs at one place."""

    x: int
    mean: float
    deviation: float
    """Standard deviation over the runs, with n - 1; 0 for one run."""
    n: int
    """Runs that got so far."""


@dataclass(frozen=True)
class Curve:
    """A figure of all runs of one kind."""

    label: str
    runs: tuple[Path, ...]
    validation: tuple[Point, ...]
    training: tuple[Point, ...]


@dataclass(frozen=True)
class Summary:
    """A curve in a line: the mean over its runs, each at its own last and best."""

    label: str
    num_runs: int
    last_x: str
    last: tuple[float, float]
    """Mean and standard deviation."""
    best: tuple[float, float] | None
    """None for figures of which neither the least nor the largest is the best."""


def read_run(folder: Path) -> Run:
    """Raises CheckpointError for a folder that is no run's, or in which nothing was recorded yet."""
    run = RunFolder(folder)
    return Run(folder, records=run.records().training, settings=run.settings())


def curves(runs: Sequence[Run], metric: str, by: By = "epoch") -> list[Curve]:
    """One curve for each set of runs whose settings differ in nothing but the seed, in the order of the runs.

    Raises ConfigError for a metric that no run has, with the nearest that one has.
    """
    training_name = TRAINING_NAME.get(metric, metric)
    found = []
    groups = same_settings(runs)
    for label, group in zip(_labels(groups), groups, strict=True):
        validation = aggregate([run.points("valid", metric, by) for run in group])
        training = aggregate([run.points("epoch", training_name, by) for run in group])
        label += " (looks ahead)" * _looks_ahead(group[0].settings)
        found.append(Curve(label, tuple(run.folder for run in group), validation, training))
    if not any(curve.validation or curve.training for curve in found):
        raise ConfigError(unknown("metric", metric, _names(runs)))
    return [curve for curve in found if curve.validation or curve.training]


def summaries(runs: Sequence[Run], metric: str, by: By = "epoch") -> list[Summary]:
    """Last and best validation figures (training figures where there are none) of each set of runs."""
    by_folder = {run.folder: run for run in runs}
    is_loss, is_score = "loss" in metric or "nll" in metric, any(x in metric for x in ("accuracy", "bleu", "chrf"))
    lines = []
    for curve in curves(runs, metric, by):
        points = [by_folder[folder].points("valid", metric, by) for folder in curve.runs]
        if not curve.validation:
            points = [by_folder[folder].points("epoch", TRAINING_NAME.get(metric, metric), by) for folder in curve.runs]
        points = [run for run in points if run]
        ends = sorted({max(run) for run in points})
        last_x = f"{ends[0]}" if len(ends) == 1 else f"{ends[0]}–{ends[-1]}"
        last = _mean([run[max(run)] for run in points])
        best = _mean([(min if is_loss else max)(run.values()) for run in points]) if is_loss or is_score else None
        lines.append(Summary(curve.label, len(points), last_x, last, best))
    return lines


def aggregate(runs: Sequence[Mapping[int, float]]) -> tuple[Point, ...]:
    """Mean and deviation at each place over the runs that got so far; a run is place to figure, as `Run.points`."""
    points = []
    for x in sorted({x for run in runs for x in run}):
        values = [run[x] for run in runs if x in run]
        points.append(Point(x, *_mean(values), len(values)))
    return tuple(points)


def _mean(values: Sequence[float]) -> tuple[float, float]:
    spread = len(values) > 1 and all(map(math.isfinite, values))  # a run that diverged has no deviation
    return statistics.fmean(values), statistics.stdev(values) if spread else 0.0


def same_settings(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs of the same settings but for the seed, taken together."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        training = {**run.settings.get("training", {}), "seed": None}
        groups.setdefault(json.dumps({**run.settings, "training": training}, sort_keys=True), []).append(run)
    return list(groups.values())


def _labels(groups: Sequence[Sequence[Run]]) -> list[str]:
    """The preset whose architecture a group has, or else its folder's name without its seed; folders for all, where two
    groups would be called the same."""
    labels = [preset_of(group[0].settings) or folder_name(group[0].folder) for group in groups]
    if len(set(labels)) == len(labels):
        return labels
    names = [folder_name(group[0].folder) for group in groups]
    return names if len(set(names)) == len(names) else [str(group[0].folder) for group in groups]


def _looks_ahead(settings: Mapping[str, Any]) -> bool:
    """Whether teacher-forced figures are no measure of translation: see `repose.decoding.translator.LOOKS_AHEAD`."""
    return bool(settings.get("architecture", {}).get("decoder_token_norm") == "sentence")


def preset_of(settings: Mapping[str, Any]) -> str | None:
    """The preset whose architecture a run has, if any."""
    try:
        architecture = Architecture(**settings["architecture"])
    except (KeyError, TypeError, ValueError):  # of another version
        return None
    return next((name for name, preset in PRESETS.items() if preset.architecture == architecture), None)


def folder_name(folder: Path) -> str:
    """`original` of original-seed2, original_2 and original/seed-2."""
    whole = folder.absolute()
    if _SEED.fullmatch(whole.name):
        return whole.parent.name
    return re.sub(_SEED.pattern + "$", "", whole.name, flags=re.IGNORECASE) or whole.name


def _names(runs: Sequence[Run]) -> list[str]:
    """Every figure that some run has for each epoch."""
    records = [record for run in runs for record in run.records if record["kind"] in ("valid", "epoch")]
    return sorted({name for record in records for name in record} - _NO_FIGURES)
