"""Each picture as one call: read, draw, write the files, and return the numbers behind it."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

from repose.plots.canvas import canvas, files_of, require_matplotlib, save, save_numbers
from repose.system.errors import ConfigError, unknown

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from repose.plots.attention_maps import Kind, Reading


class Picture(NamedTuple):
    """What was drawn."""

    files: list[Path]
    """Pictures, and the numbers as JSON."""
    header: list[str]
    rows: list[list[str]]
    """The numbers as a table to print."""


def plot_positions(
    table: "Float[Tensor, 'n d']",
    out: Path,
    *,
    kinds: Sequence[str],
    length: int,
    width: int,
    source: Mapping[str, str],
) -> Picture:
    """Sinusoids beside a learned table, before and after pooling (`position_figure`).

    `source`: what the JSON says of the table's origin. Raises ConfigError as `tables`, `canvas` and `files_of` do.
    """
    require_matplotlib()
    from repose.plots.position_figure import draw, tables
    from repose.plots.position_numbers import position_numbers, similarity_by_distance

    files_of(out)
    shown = tables(table, kinds=tuple(kinds), length=length, width=width)
    with canvas():
        files = save(draw(shown), out)
    numbers = {title: position_numbers(full) for title, full in shown.items()}
    by_distance = {title: [x.tolist() for x in similarity_by_distance(full)] for title, full in shown.items()}
    content = {
        title: dataclasses.asdict(found)
        | dict(zip(("cosine_by_distance", "cosine_by_distance_sd"), by_distance[title], strict=True))
        for title, found in numbers.items()
    }
    files.append(save_numbers({"table": dict(source), "length": length, "width": width, "encodings": content}, out))
    header = ["encoding", "cosine of neighbours", "least", "mean step", "largest", "mean norm"]
    header += ["distinct of first 32", "hardly changing"]
    rows = [
        [
            title,
            f"{n.adjacent_cosine_mean:.4f}",
            f"{n.adjacent_cosine_min:.4f}",
            f"{n.mean_step:.3f}",
            f"{n.largest_step:.3f}",
            f"{n.mean_norm:.2f}",
            f"{n.distinct_rows}",
            f"{n.nearly_constant_columns:.0%}",
        ]
        for title, n in numbers.items()
    ]
    return Picture(files, header, rows)


def plot_attention(
    run: Path,
    sentence: str,
    out: Path,
    *,
    target: str | None = None,
    compare: Path | None = None,
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    font: Path | None = None,
) -> Picture:
    """A model's attention on a sentence (`attention_figure`), a picture for each kind of attention or that of one
    `kind`; or with `compare` one layer of two models side by side (`comparison_figure`).

    Raises ConfigError, DataError and CheckpointError as the modules of this package do.
    """
    require_matplotlib()
    from repose.plots.attention_figure import draw
    from repose.plots.attention_maps import KINDS, read
    from repose.plots.comparison_figure import draw_comparison

    files_of(out)
    if kind is not None and kind not in KINDS:
        raise ConfigError(unknown("kind of attention", kind, KINDS))
    kinds: tuple[Kind, ...] = tuple(name for name in KINDS if kind in (None, name))
    if compare is not None and head is not None:
        raise ConfigError("--compare shows all heads of a layer: leave --head out")
    if compare is not None and target is None:
        target = read(run, sentence).target  # both read what the first one writes
    readings = [read(folder, sentence, target) for folder in (run, compare) if folder is not None]
    if compare is not None and readings[0].name == readings[1].name:
        readings = [dataclasses.replace(r, name=str(path)) for r, path in zip(readings, (run, compare), strict=True)]
    text = "".join(r.name + "".join(label for m in r.maps.values() for label in m.queries + m.keys) for r in readings)
    files = []
    with canvas(text, font):
        if compare is not None:
            kinds = ("encoder",) if kind is None else kinds
            files += save(draw_comparison(readings, kinds[0], layer=1 if layer is None else layer), out)
        else:
            for name in kinds:
                figure = draw(readings[0], readings[0].maps[name], layer=layer, head=head)
                files += save(figure, out, name if kind is None else "")
    return _with_numbers(readings, kinds, out, files)


def _with_numbers(readings: "Sequence[Reading]", kinds: "Sequence[Kind]", out: Path, files: list[Path]) -> Picture:
    """Entropies and diagonals of all layers, as JSON with the heads and as a table of the means over them."""
    from repose.plots.attention_numbers import head_numbers, mean_numbers

    content, rows = [], []
    for reading in readings:
        layers = []
        for kind in kinds:
            maps = reading.maps[kind]
            for layer in range(len(maps.layers)):
                heads = head_numbers(maps, layer)
                mean = mean_numbers(heads)
                layers.append(
                    {"kind": kind, "layer": layer + 1}
                    | dataclasses.asdict(mean)
                    | {"heads": [dataclasses.asdict(number) for number in heads]}
                )
                own = "–" if mean.diagonal is None else f"{mean.diagonal:.3f}"
                numbers = [f"{mean.entropy:.3f}", f"{mean.normalised_entropy:.3f}", own]
                rows.append([reading.name, kind, f"{layer + 1}", *numbers])
        content.append({"model": reading.name, "layers": layers})
    about = {"sentence": readings[0].sentence, "target": readings[0].target, "models": content}
    header = ["model", "attention", "layer", "row entropy, nats", "over ln(keys)", "weight on itself"]
    return Picture([*files, save_numbers(about, out)], header, rows)


def plot_curves(
    runs: Sequence[Path],
    out: Path,
    *,
    metric: str = "tf_loss",
    by: str = "epoch",
    training: bool = True,
    font: Path | None = None,
) -> Picture:
    """Learning curves of runs, those that differ only in their seed as one (`learning_curves`).

    Raises ConfigError for an unknown metric, and CheckpointError for a folder that is no run's.
    """
    require_matplotlib()
    from repose.plots.curve_figure import draw_curves
    from repose.plots.learning_curves import By, curves, read_run, summaries

    files_of(out)
    if by not in get_args(By):
        raise ConfigError(unknown("axis", by, get_args(By)))
    axis: By = "update" if by == "update" else "epoch"
    read = [read_run(folder) for folder in dict.fromkeys(runs)]
    found = curves(read, metric, axis)
    with canvas("".join(curve.label for curve in found), font):
        files = save(draw_curves(found, metric, axis, training=training), out)
    lines = summaries(read, metric, axis)
    content = {
        "metric": metric,
        "by": by,
        "curves": [dataclasses.asdict(c) | {"runs": [str(folder) for folder in c.runs]} for c in found],
    }
    header = ["model", "runs", f"last {by}", f"{metric} there", "best"]
    rows = [[s.label, f"{s.num_runs}", s.last_x, *(_with_sd(x, s.num_runs) for x in (s.last, s.best))] for s in lines]
    return Picture([*files, save_numbers(content, out)], header, rows)


def _with_sd(mean_and_sd: tuple[float, float] | None, runs: int) -> str:
    if mean_and_sd is None:
        return "–"
    mean, deviation = mean_and_sd
    return f"{mean:.4g} ± {deviation:.2g}" if runs > 1 else f"{mean:.4g}"
