"""`repose plot share`: how much of a gain in validation loss is due to looking ahead."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from repose.plots.canvas import Plotted, files_of, save, save_numbers
from repose.plots.charts import DrawnSystem, Point, Series, chart_canvas, draw_curves
from repose.report import tables
from repose.report.collect import read_curves
from repose.report.differences import confounded
from repose.report.pictures import aggregate, points_of
from repose.report.run_set import ReportRun
from repose.system.errors import ConfigError

_Losses: TypeAlias = Mapping[float, float]
"""A run's losses by epoch."""


def plot_share(folders: Sequence[Path], out: Path, *, font: Path | None = None) -> Plotted:
    """Plot 1 - (L_plain - L_causal) / (L_plain - L_ahead) by epoch to files, with validation losses L on one corpus.

    `folders` are runs of three systems: one that looks ahead, its causal twin, and one without token norm. The share is
    computed for each seed that all three have, then its mean and deviation; without common seeds, it is computed from
    the mean losses. Of several runs of a system with the same seed, the first counts, and a remark names the others.
    Epochs at which L_plain - L_ahead is not clearly positive have no share. A note names settings in which the systems
    differ. Raises ConfigError if the runs are not of three such systems, or if no epoch has a share.
    """
    files_of(out)
    runs = read_curves(folders)
    kept, left_out = _once_each_seed(runs.runs)
    ahead = [run for run in kept if run.looks_ahead]
    plain = [run for run in kept if not _normalises(run)]
    causal = [run for run in kept if _normalises(run) and not run.looks_ahead]
    parts = plain, causal, ahead
    if any(len({run.group for run in part}) != 1 for part in parts) or len(runs.corpora) != 1:
        raise ConfigError(
            "the share needs runs of three systems on one corpus: one without token norm, one with it, and one that "
            "looks ahead, such as those of the grid lookahead-share"
        )
    losses = [{run.seed: points_of(run, "valid", "tf_loss", "epoch") for run in part} for part in parts]
    seeds = sorted(set(losses[0]) & set(losses[1]) & set(losses[2]))
    means = [aggregate(list(of_system.values())) for of_system in losses]
    of_runs = [[of_system[seed] for of_system in losses] for seed in seeds]
    of_runs = of_runs or [[{point.x: point.mean for point in points} for points in means]]
    epochs = sorted({x for three in of_runs for x in set.intersection(*map(set, three))})
    if not epochs:
        raise ConfigError("these runs have no validated epoch in common: validate all three after the same epochs")
    clear = [x for x in epochs if _gain_is_clear([(plain, ahead) for plain, _, ahead in of_runs], means, x)]
    shares = aggregate([{x: share for x, share in _shares(*three).items() if x in clear} for three in of_runs])
    if not shares:
        raise ConfigError(
            "there is no share: at no epoch is the loss of the system that looks ahead clearly below that of the one "
            "without token norm"
        )
    (corpus,) = runs.corpora
    names = [part[0].group for part in parts]
    series = Series(system=DrawnSystem(label=names[2], number=0), points=_hundredfold(shares))
    with chart_canvas("".join([corpus, *names]), font):
        files = save(draw_curves({corpus: [series]}, "epoch", "share due to looking ahead, percent"), out)
    content = {
        "systems": dict(zip(("plain", "causal", "ahead"), names, strict=True)),
        "seeds": seeds,
        "runs": [str(run.folder) for part in parts for run in part],
        "losses": [[dataclasses.asdict(point) for point in points] for points in means],
        "share": [dataclasses.asdict(point) for point in shares],
    }
    files.append(save_numbers(content, out))
    at, share_at = [{point.x: point for point in points} for points in means], {point.x: point for point in shares}
    rows = [[f"{x:g}", *(f"{points[x].mean:.3f}" for points in at), *_percent(share_at.get(x))] for x in epochs]
    return Plotted(files, ["epoch", *names, "look ahead", "±"], rows, [*runs.problems, *left_out, *_unlike(parts)])


def _once_each_seed(runs: Sequence[ReportRun]) -> tuple[list[ReportRun], list[str]]:
    """Return the first run of each system with each seed, and sentences about the others."""
    firsts: dict[tuple[str, str, int], ReportRun] = {}
    left_out = []
    for run in runs:
        first = firsts.setdefault((run.group, run.corpus, run.seed), run)
        if first is not run:
            left_out.append(f"{run.name} is left out: {first.name} has the same settings and seed.")
    return list(firsts.values()), left_out


def _percent(share: Point | None) -> list[str]:
    """Return the mean and deviation of a share as the texts of two cells."""
    if share is None:
        return [tables.NONE, tables.NONE]
    return [f"{100 * share.mean:.0f} %", tables.NONE if share.deviation is None else f"{100 * share.deviation:.0f}"]


def _unlike(parts: Sequence[Sequence[ReportRun]]) -> list[str]:
    """Return sentences about systems whose settings, architecture aside, differ from those of the plain one."""
    return [f"{part[0].group}: {text}" for part in parts[1:] if (text := confounded(part, parts[0]))]


def _gain_is_clear(of_runs: Sequence[tuple[_Losses, _Losses]], means: Sequence[Sequence[Point]], x: float) -> bool:
    """Return whether, at an epoch, the plain losses exceed those of looking ahead by more than the deviation of this
    difference over seeds. With a single seed, by more than the deviation of the losses themselves, if either system has
    more runs."""
    gain = tables.spread([plain[x] - ahead[x] for plain, ahead in of_runs if x in plain and x in ahead])
    if gain is None:
        return False
    of_losses = [point.deviation or 0.0 for points in (means[0], means[2]) for point in points if point.x == x]
    return gain.mean > (math.hypot(*of_losses) if gain.deviation is None else gain.deviation)


def _normalises(run: ReportRun) -> bool:
    a = run.experiment.architecture
    return {a.encoder_token_norm, a.decoder_token_norm} != {"none"}


def _shares(plain: _Losses, causal: _Losses, ahead: _Losses) -> dict[float, float]:
    return {
        x: 1 - (plain[x] - causal[x]) / (plain[x] - ahead[x])
        for x in sorted(plain.keys() & causal.keys() & ahead.keys())
        if plain[x] != ahead[x]
    }


def _hundredfold(points: Sequence[Point]) -> tuple[Point, ...]:
    return tuple(Point(p.x, 100 * p.mean, p.deviation and 100 * p.deviation, p.n) for p in points)
