"""`repose plot share`: how much of a gain in validation loss is due to looking ahead."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from repose.plots.canvas import Plotted, files_of, save, save_numbers
from repose.plots.charts import DrawnSystem, Point, Series, chart_canvas, draw_curves
from repose.report import tables
from repose.report.collect import ReportRun, read_curves
from repose.report.pictures import aggregate, points_of
from repose.system.errors import ConfigError


def plot_share(folders: Sequence[Path], out: Path, *, font: Path | None = None) -> Plotted:
    """1 - (L_plain - L_causal) / (L_plain - L_ahead) by epoch, L the validation losses, of one corpus, as files.

    `folders` are runs of three systems: one that looks ahead, its causal twin, and one that normalises no tokens.
    Of each seed that all three have, a share, then mean and deviation; without common seeds, of the mean losses.
    Raises ConfigError where the runs are not of three such systems.
    """
    files_of(out)
    runs = read_curves(folders)
    ahead = [run for run in runs.runs if run.looks_ahead]
    plain = [run for run in runs.runs if not _normalises(run)]
    causal = [run for run in runs.runs if _normalises(run) and not run.looks_ahead]
    parts = plain, causal, ahead
    if any(len({run.group for run in part}) != 1 for part in parts) or len(runs.corpora) != 1:
        raise ConfigError(
            "the share needs runs of three systems on one corpus: one without token norm, one with it, and one that "
            "looks ahead, such as those of the grid lookahead-share"
        )
    losses = [{run.seed: points_of(run, "valid", "tf_loss", "epoch") for run in part} for part in parts]
    seeds = sorted(set(losses[0]) & set(losses[1]) & set(losses[2]))
    shares = aggregate([_shares(*(of_system[seed] for of_system in losses)) for seed in seeds])
    means = [aggregate(list(of_system.values())) for of_system in losses]
    if not shares:
        shares = aggregate([_shares(*({point.x: point.mean for point in points} for points in means))])
    if not shares:
        raise ConfigError("these runs have no validated epoch in common: validate all three after the same epochs")
    (corpus,) = runs.corpora
    series = Series(system=DrawnSystem(label="look ahead", number=0), points=_hundredfold(shares))
    with chart_canvas(corpus, font):
        files = save(draw_curves({corpus: [series]}, "epoch", "share of the gain in loss, percent"), out)
    names = [part[0].group for part in parts]
    content = {
        "systems": dict(zip(("plain", "causal", "ahead"), names, strict=True)),
        "seeds": seeds,
        "runs": [str(run.folder) for part in parts for run in part],
        "losses": [[dataclasses.asdict(point) for point in points] for points in means],
        "share": [dataclasses.asdict(point) for point in shares],
    }
    files.append(save_numbers(content, out))
    at = [{point.x: point for point in points} for points in means]
    rows = [
        [
            str(p.x),
            *(f"{points[p.x].mean:.3f}" for points in at),
            f"{100 * p.mean:.0f} %",
            tables.NONE if p.deviation is None else f"{100 * p.deviation:.0f}",
        ]
        for p in shares
    ]
    return Plotted(files, ["epoch", *names, "look ahead", "±"], rows)


def _normalises(run: ReportRun) -> bool:
    a = run.experiment.architecture
    return {a.encoder_token_norm, a.decoder_token_norm} != {"none"}


def _shares(plain: dict[int, float], causal: dict[int, float], ahead: dict[int, float]) -> dict[int, float]:
    return {
        x: 1 - (plain[x] - causal[x]) / (plain[x] - ahead[x])
        for x in sorted(plain.keys() & causal.keys() & ahead.keys())
        if plain[x] != ahead[x]
    }


def _hundredfold(points: Sequence[Point]) -> tuple[Point, ...]:
    return tuple(Point(p.x, 100 * p.mean, p.deviation and 100 * p.deviation, p.n) for p in points)
