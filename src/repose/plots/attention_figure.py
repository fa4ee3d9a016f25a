"""Attention as pictures: a heat map per layer and head, tokens beside them."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from torch import Tensor

from repose.data.token_labels import CONTINUES
from repose.plots.attention_maps import Maps, Reading
from repose.plots.attention_numbers import AttentionNumbers, head_numbers
from repose.plots.canvas import GREY, INCH, place
from repose.system.errors import ConfigError

TITLES = {"encoder": "Encoder self-attention", "decoder": "Decoder self-attention", "cross": "Cross-attention"}
_CELL, _CELL_ALONE = 0.15, 0.24  # inches of a token's row, in a grid of heads and where there is but one map
_SMALLEST_MAP, _LARGEST_GRID = 1.35, 30.0
_LABEL, _SMALLEST_LABEL = 8.0, 4.5  # points
_GAP, _HEAD, _TOP, _MARGIN = 0.14, 0.36, 0.5, 0.12  # inches: between maps, titles above each, of the figure, around


@dataclass(frozen=True)
class Grid:
    """Sizes in inches of a grid of maps of `queries` x `keys` tokens."""

    rows: int
    columns: int
    cell: float
    left: float
    """Of the row labels."""
    bottom: float
    """Of the column labels."""
    width: float
    height: float
    """Of one map."""
    label: float
    """Size of labels in points; 0: too small to be read, and left out."""

    @property
    def figure_size(self) -> tuple[float, float]:
        """Of the whole figure, with room for a colour bar on the right."""
        width = self.left + self.columns * (self.width + _GAP) + 0.75
        return max(width, 4.2), _TOP + self.rows * (self.height + _HEAD) + self.bottom + _MARGIN

    def corner(self, row: int, column: int) -> tuple[float, float]:
        """Left and top of a map."""
        return self.left + column * (self.width + _GAP), _TOP + row * (self.height + _HEAD) + _HEAD


def make_grid(rows: int, columns: int, queries: Sequence[str], keys: Sequence[str]) -> Grid:
    """The largest grid that is no larger than can be looked at."""
    q, k = len(queries), len(keys)
    wanted = max(_CELL_ALONE if rows * columns == 1 else _CELL, _SMALLEST_MAP / max(q, k))
    cell = min(wanted, _LARGEST_GRID / (columns * k), _LARGEST_GRID / (rows * q))
    label = min(_LABEL, 0.85 * cell * INCH)
    label = label if label >= _SMALLEST_LABEL else 0.0
    left, bottom = (max(map(_ems, labels)) * label / INCH + 0.1 for labels in (queries, keys))
    return Grid(rows, columns, cell, left + _MARGIN, bottom, k * cell, q * cell, label)


def draw(reading: Reading, maps: Maps, *, layer: int | None = None, head: int | None = None) -> Figure:
    """Maps of all layers (down) and heads (across), or of one layer, or one head, counted from 1.

    Raises ConfigError for a layer or head that the model has not.
    """
    layers = chosen("layer", layer, len(maps.layers))
    heads = chosen("head", head, len(maps.layers[0]))
    grid = make_grid(len(layers), len(heads), maps.queries, maps.keys)
    figure = Figure(figsize=grid.figure_size)
    for row, index in enumerate(layers):
        numbers = head_numbers(maps, index)
        for column, number in enumerate(heads):
            axes = place(figure, *grid.corner(row, column), grid.width, grid.height)
            title = f"layer {index + 1}, head {number + 1}"
            heat = draw_map(axes, maps, maps.layers[index][number], title, numbers[number])
            label_map(axes, maps, grid.label, rows=column == 0, columns=row == len(layers) - 1)
    finish(figure, grid, heat, f"{TITLES[maps.kind]} of {reading.name}", maps)
    return figure


def draw_map(
    axes: Axes, maps: Maps, weights: Float[Tensor, "Q K"], title: str, numbers: AttentionNumbers | None
) -> Any:
    """One heat map on a scale of square roots, grey where a query may not look; returns what a colour bar needs."""
    colours = matplotlib.colormaps["Blues"].with_extremes(bad="#E4E4E4")
    seen = torch.where(maps.visible, weights, torch.nan)
    heat = axes.imshow(seen.numpy(), cmap=colours, norm=PowerNorm(0.5, 0, 1), aspect="auto", interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=True, color="#BBBBBB")
    axes.annotate(title, (0, 1), xycoords="axes fraction", xytext=(0, 12), textcoords="offset points", fontsize=7.5)
    if numbers is not None:
        own = "" if numbers.diagonal is None else f" · self {numbers.diagonal:.2f}"
        axes.set_title(f"entropy {numbers.normalised_entropy:.2f}{own}", fontsize=6.5, color=GREY, pad=3)
    return heat


def label_map(axes: Axes, maps: Maps, size: float, *, rows: bool, columns: bool) -> None:
    """Tokens beside the rows and below the columns of a map, `size` points high."""
    if not size:
        return
    if rows:
        axes.set_yticks(range(len(maps.queries)), maps.queries, fontsize=size)
    if columns:
        # East Asian labels are written downwards, others turned.
        upright = [all(map(_is_wide, label.removeprefix(CONTINUES))) for label in maps.keys]
        labels = ["\n".join(label) if stays else label for label, stays in zip(maps.keys, upright, strict=True)]
        axes.set_xticks(range(len(labels)), labels, fontsize=size, linespacing=1.15)
        for text, stays in zip(axes.get_xticklabels(), upright, strict=True):
            text.set_rotation(0 if stays else 90)
    axes.tick_params(length=0, pad=2)


def finish(figure: Figure, grid: Grid, heat: Any, title: str, maps: Maps) -> None:
    """Title, colour bar, and what the axes are."""
    width, height = figure.get_size_inches()
    figure.text(_MARGIN / width, 1 - 0.12 / height, title, va="top", fontsize=10)
    query = "token that attends" if maps.kind != "cross" else "target token that is written after looking"
    about = f"rows: {query}; columns: token attended to"
    if not grid.label:
        about += "; too many tokens for labels beside so many maps: choose one by --layer and --head"
    figure.text(_MARGIN / width, 1 - 0.34 / height, about, va="top", fontsize=7, color=GREY)
    left, top = grid.corner(0, grid.columns)
    bar = figure.colorbar(heat, cax=place(figure, left, top, 0.1, min(grid.height, 2.0)))
    bar.set_ticks([0, 0.05, 0.2, 0.5, 1], labels=["0", "0.05", "0.2", "0.5", "1"])
    bar.outline.set_visible(False)
    bar.ax.set_title("weight", fontsize=7)


def chosen(what: str, number: int | None, count: int) -> list[int]:
    """Indices from 0 of what is asked for by its number from 1, or of all. Raises ConfigError for others."""
    if number is None:
        return list(range(count))
    if not 1 <= number <= count:
        raise ConfigError(f"there is no {what} {number}: the model has {count}, counted from 1")
    return [number - 1]


def _is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in "WF"


def _ems(label: str) -> float:
    """About how wide a label is, in its own height."""
    return sum(1.0 if _is_wide(char) else 0.64 for char in label)
