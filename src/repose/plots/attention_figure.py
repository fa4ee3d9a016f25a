"""Attention as pictures: heat maps per layer and head, and two models side by side."""

import dataclasses
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from torch import Tensor

from repose.data.token_labels import CONTINUES
from repose.plots.attention import KINDS, AttentionNumbers, Kind, Maps, Reading, mean_numbers, read
from repose.plots.canvas import GREY, INCH, MARKERS, PALETTE, Plotted, canvas, files_of, place, save, save_numbers
from repose.system.errors import ConfigError, unknown

TITLES = {"encoder": "Encoder self-attention", "decoder": "Decoder self-attention", "cross": "Cross-attention"}
_CELL, _CELL_ALONE = 0.15, 0.24  # inches per token: in a grid of heads, and for a single map
_SMALLEST_MAP, _LARGEST_GRID = 1.35, 30.0
_LABEL, _SMALLEST_LABEL = 8.0, 4.5  # points
_GAP, _HEAD, _TOP, _MARGIN = 0.14, 0.36, 0.5, 0.12  # inches: between maps, map titles, figure title, edges
_CHART = 1.7  # inches: height of the charts
_TITLE_SIZE = 10
_CHARTS = 2.6  # inches: the charts with their titles and labels


@dataclass(frozen=True)
class Grid:
    """Sizes, in inches, of a grid of maps with `queries` x `keys` tokens each."""

    rows: int
    columns: int
    cell: float
    left: float
    """Width of the row labels."""
    bottom: float
    """Height of the column labels."""
    width: float
    height: float
    """Height of one map."""
    label: float
    """Font size of labels in points; 0 leaves out labels too small to read."""

    @property
    def figure_size(self) -> tuple[float, float]:
        """Width and height of the whole figure, including the colour bar on the right."""
        width = self.left + self.columns * (self.width + _GAP) + 0.75
        return max(width, 4.2), _TOP + self.rows * (self.height + _HEAD) + self.bottom + _MARGIN

    def corner(self, row: int, column: int) -> tuple[float, float]:
        """Return the left and top edge of a map."""
        return self.left + column * (self.width + _GAP), _TOP + row * (self.height + _HEAD) + _HEAD


def make_grid(rows: int, columns: int, queries: Sequence[str], keys: Sequence[str]) -> Grid:
    """Return the largest grid that still fits a readable figure."""
    q, k = len(queries), len(keys)
    wanted = max(_CELL_ALONE if rows * columns == 1 else _CELL, _SMALLEST_MAP / max(q, k))
    cell = min(wanted, _LARGEST_GRID / (columns * k), _LARGEST_GRID / (rows * q))
    label = min(_LABEL, 0.85 * cell * INCH)
    label = label if label >= _SMALLEST_LABEL else 0.0
    left, bottom = (max(map(_ems, labels)) * label / INCH + 0.1 for labels in (queries, keys))
    return Grid(rows, columns, cell, left + _MARGIN, bottom, k * cell, q * cell, label)


def draw(reading: Reading, maps: Maps, *, layer: int | None = None, head: int | None = None) -> Figure:
    """Draw the maps of all layers (rows) and heads (columns), or of one layer or head, counted from 1.

    Raises ConfigError for a layer or head that the model does not have.
    """
    layers = chosen("layer", layer, len(maps.layers))
    heads = chosen("head", head, len(maps.layers[0]))
    grid = make_grid(len(layers), len(heads), maps.queries, maps.keys)
    figure = Figure(figsize=grid.figure_size)
    rows = []
    for index in layers:
        weights, numbers = maps.layers[index], maps.numbers_of(maps.layers[index])
        rows.append((maps, [(weights[h], numbers[h], f"layer {index + 1}, head {h + 1}") for h in heads]))
    draw_grid(figure, grid, rows, f"{TITLES[maps.kind]} of {reading.name}")
    return figure


def draw_grid(
    figure: Figure,
    grid: Grid,
    rows: Sequence[tuple[Maps, Sequence[tuple[Float[Tensor, "Q K"], AttentionNumbers, str]]]],
    title: str,
) -> None:
    """Draw rows of maps, each map given by its weights, statistics and title."""
    for row, (maps, shown) in enumerate(rows):
        for column, (weights, numbers, name) in enumerate(shown):
            axes = place(figure, *grid.corner(row, column), grid.width, grid.height)
            heat = draw_map(axes, maps, weights, name, numbers)
            label_map(axes, maps, grid.label, rows=column == 0, columns=row == len(rows) - 1)
    finish(figure, grid, heat, title, maps)


def draw_map(axes: Axes, maps: Maps, weights: Float[Tensor, "Q K"], title: str, numbers: AttentionNumbers) -> Any:
    """Draw one heat map on a square-root scale, grey where a query may not attend; return what a colour bar needs."""
    colours = matplotlib.colormaps["Blues"].with_extremes(bad="#E4E4E4")
    seen = torch.where(maps.visible, weights, torch.nan)
    heat = axes.imshow(seen.numpy(), cmap=colours, norm=PowerNorm(0.5, 0, 1), aspect="auto", interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=True, color="#BBBBBB")
    axes.annotate(title, (0, 1), xycoords="axes fraction", xytext=(0, 12), textcoords="offset points", fontsize=7.5)
    own = "" if numbers.diagonal is None else f" · self {numbers.diagonal:.2f}"
    axes.set_title(f"entropy {numbers.normalised_entropy:.2f} of 1{own}", fontsize=6.5, color=GREY, pad=3)
    return heat


def label_map(axes: Axes, maps: Maps, size: float, *, rows: bool, columns: bool) -> None:
    """Write tokens beside the rows and below the columns of a map, in `size` points."""
    if not size:
        return
    if rows:
        axes.set_yticks(range(len(maps.queries)), maps.queries, fontsize=size)
    if columns:
        # East Asian labels are written from top to bottom, others are rotated.
        upright = [all(map(_is_wide, label.removeprefix(CONTINUES))) for label in maps.keys]
        labels = ["\n".join(label) if stays else label for label, stays in zip(maps.keys, upright, strict=True)]
        axes.set_xticks(range(len(labels)), labels, fontsize=size, linespacing=1.15)
        for text, stays in zip(axes.get_xticklabels(), upright, strict=True):
            text.set_rotation(0 if stays else 90)
    axes.tick_params(length=0, pad=2)


def finish(figure: Figure, grid: Grid, heat: Any, title: str, maps: Maps) -> None:
    """Add the title, the colour bar and the names of the axes."""
    width, height = figure.get_size_inches()
    figure.text(_MARGIN / width, 1 - 0.12 / height, title, va="top", fontsize=_TITLE_SIZE)
    query = "token that attends" if maps.kind != "cross" else "target token being written"
    about = f"rows: {query}; columns: token attended to"
    if not grid.label:
        about += "; too many tokens for labels beside so many maps: choose one with --layer and --head"
    figure.text(_MARGIN / width, 1 - 0.34 / height, about, va="top", fontsize=7, color=GREY)
    left, top = grid.corner(0, grid.columns)
    bar = figure.colorbar(heat, cax=place(figure, left, top, 0.1, min(grid.height, 2.0)))
    bar.set_ticks([0, 0.05, 0.2, 0.5, 1], labels=["0", "0.05", "0.2", "0.5", "1"])
    bar.outline.set_visible(False)
    bar.ax.set_title("weight", fontsize=7)


def chosen(what: str, number: int | None, count: int) -> list[int]:
    """Return the index (from 0) of the layer or head with this number (from 1), or all indices. Raises ConfigError."""
    if number is None:
        return list(range(count))
    if not 1 <= number <= count:
        raise ConfigError(f"there is no {what} {number}: the model has {count}, counted from 1")
    return [number - 1]


def _is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in "WF"


def _ems(label: str) -> float:
    """Estimate the width of a label in multiples of its font size."""
    return sum(1.0 if _is_wide(char) else 0.64 for char in label)


def draw_comparison(readings: Sequence[Reading], kind: Kind, *, layer: int = 1) -> Figure:
    """Draw one layer (from 1) of each model as a row: the mean over heads, then each head, with its statistics.
    Below, for all layers: the mean entropy of rows and a token's mean weight on itself; each dot is a head.

    Raises ConfigError for a layer that a model does not have, and if the models do not read the same tokens.
    """
    models = [reading.maps[kind] for reading in readings]
    if any(maps.keys != models[0].keys or maps.queries != models[0].queries for maps in models):
        raise ConfigError(
            "the two models cut these sentences into different tokens, whose maps cannot be compared: "
            "choose two models with the same tokenizer"
        )
    for maps in models:
        chosen("layer", layer, len(maps.layers))
    num_heads = max(len(maps.layers[0]) for maps in models)
    grid = make_grid(len(models), 1 + num_heads, models[0].queries, models[0].keys)
    names = ", ".join(f"({letter}) {reading.name}" for letter, reading in zip("ab", readings, strict=True))
    title = f"{TITLES[kind]}, layer {layer}: {names}"
    width, height = grid.figure_size
    least = max(7.0, _ems(title) * _TITLE_SIZE / INCH + 2 * _MARGIN)
    figure = Figure(figsize=(max(width, least), height + _CHARTS))
    rows = []
    for letter, maps in zip("ab", models, strict=True):
        weights = maps.layers[layer - 1]
        numbers, mean = maps.numbers_of(weights), weights.mean(0)
        columns = [(mean, maps.numbers_of(mean[None])[0], f"({letter}) mean of heads")]
        columns += [(weights[h], numbers[h], f"head {h + 1}") for h in range(len(weights))]
        rows.append((maps, columns))
    draw_grid(figure, grid, rows, title)
    top = height + 0.3
    entropy_axes = place(figure, 0.5, top, 2.6, _CHART)
    _chart(entropy_axes, readings, kind, "normalised_entropy", "row entropy / ln(keys)")
    entropy_axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), handlelength=1)
    if kind != "cross":
        _chart(place(figure, 4.0, top, 2.6, _CHART), readings, kind, "diagonal", "weight of a token on itself")
    return figure


def _chart(axes: Axes, readings: Sequence[Reading], kind: Kind, number: str, title: str) -> None:
    """Draw a line per model through each layer's mean over heads, and a dot per head."""
    most = 0
    for index, reading in enumerate(readings):
        maps: Maps = reading.maps[kind]
        heads = list(map(maps.numbers_of, maps.layers))
        x = [layer + 1 + (index - 0.5) * 0.16 for layer in range(len(heads))]
        colour, marker, most = PALETTE[index], MARKERS[index], max(most, len(heads))
        for place_of, layer_heads in zip(x, heads, strict=True):
            values = [getattr(head, number) for head in layer_heads]
            axes.scatter([place_of] * len(values), values, s=9, color=colour, marker=marker, alpha=0.45, linewidths=0)
        means = [getattr(mean_numbers(layer_heads), number) for layer_heads in heads]
        axes.plot(x, means, color=colour, marker=marker, markersize=4, label=f"({'ab'[index]})")
    axes.set(title=title, xlabel="layer", ylim=(-0.03, 1.03), xticks=range(1, most + 1))
    axes.set_xlim(0.5, most + 0.5)


def plot_attention(
    run: Path,
    sentence: str,
    out: Path,
    *,
    target: str | None = None,
    to: str | None = None,
    compare: Path | None = None,
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    font: Path | None = None,
) -> Plotted:
    """Plot a model's attention on a sentence: one picture per kind of attention, or only `kind`; with `compare`, one
    layer of two models side by side. `to`: as for `Translator.translate`.

    Raises ConfigError, DataError and CheckpointError as `read`, `draw` and `draw_comparison` do.
    """
    files_of(out)
    if kind is not None and kind not in KINDS:
        raise ConfigError(unknown("kind of attention", kind, KINDS))
    kinds: tuple[Kind, ...] = tuple(name for name in KINDS if kind in (None, name))
    if compare is not None and head is not None:
        raise ConfigError("--compare shows all heads of a layer: leave --head out")
    if compare is not None and target is None:
        target = read(run, sentence, to=to).target  # both models read the first one's translation
    readings = [read(folder, sentence, target, to) for folder in (run, compare) if folder is not None]
    if compare is not None and readings[0].name == readings[1].name:
        paths = (run, compare)
        short = ["/".join(path.absolute().parts[-2:]) for path in paths]
        told_apart = short if short[0] != short[1] else list(map(str, paths))
        readings = [dataclasses.replace(r, name=name) for r, name in zip(readings, told_apart, strict=True)]
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


def _with_numbers(readings: Sequence[Reading], kinds: Sequence[Kind], out: Path, files: list[Path]) -> Plotted:
    """Save entropies and diagonals: as JSON for every head, and as a table of each layer's means."""
    content, rows = [], []
    for reading in readings:
        layers = []
        for kind in kinds:
            maps = reading.maps[kind]
            for layer, weights in enumerate(maps.layers, start=1):
                heads = maps.numbers_of(weights)
                mean = mean_numbers(heads)
                means = {"kind": kind, "layer": layer} | dataclasses.asdict(mean)
                layers.append(means | {"heads": [dataclasses.asdict(number) for number in heads]})
                own = "–" if mean.diagonal is None else f"{mean.diagonal:.3f}"
                numbers = [f"{mean.entropy:.3f}", f"{mean.normalised_entropy:.3f}", own]
                rows.append([reading.name, kind, f"{layer}", *numbers])
        content.append({"model": reading.name, "layers": layers})
    about = {"sentence": readings[0].sentence, "target": readings[0].target, "models": content}
    header = ["model", "attention", "layer", "row entropy, nats", "over ln(keys)", "weight on itself"]
    return Plotted([*files, save_numbers(about, out)], header, rows)
