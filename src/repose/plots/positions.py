"""Plot position tables, like Fig. 5 of arXiv 2310.10930, with statistics of how similar positions are."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from torch import Tensor

from repose.model.positions import sinusoids, upscale
from repose.plots.canvas import PALETTE, Plotted, canvas, files_of, place, save, save_numbers
from repose.system.errors import ConfigError, unknown

KINDS = ("interleaved", "halves", "printed")
_RED, _COLOURS = "#E00000", "cividis"  # also goes from dark to light in greyscale
_LEFT, _WIDTH, _GAP, _HEIGHTS, _BETWEEN = 0.55, 2.6, 0.2, (2.2, 2.6, 1.6), 0.62  # inches; between: titles and labels
FIRST = 32
"""How many positions, from the first, `distinct_rows` and `nearly_constant` look at; most sentences have as many."""
NEARLY_CONSTANT = 0.05
"""Standard deviation below which a column is nearly constant; entries are between -1 and 1."""


@dataclass(frozen=True)
class PositionNumbers:
    """Statistics of a table P of L positions, behind Fig. 5 of arXiv 2310.10930."""

    adjacent_cosine_mean: float
    """Mean cosine of P(i) and P(i + 1)."""
    adjacent_cosine_min: float
    """Minimum cosine of P(i) and P(i + 1)."""
    mean_step: float
    """Mean of ||P(i + 1) - P(i)||; small for a smooth table."""
    largest_step: float
    """Maximum of ||P(i + 1) - P(i)||; large if the table has a jump."""
    mean_norm: float
    """Mean of ||P(i)||, to compare steps with."""
    distinct_rows: int
    """Number of distinct rows among the first 32 positions."""
    nearly_constant_columns: float
    """Share of columns whose standard deviation over the first 32 positions is below 0.05 (the paper's red box)."""


def position_numbers(table: Float[Tensor, "L M"]) -> PositionNumbers:
    """Return the statistics of a table with at least two positions."""
    table = table.double()
    adjacent, steps = similarity(table).diagonal(1), table.diff(dim=0).norm(dim=1)
    return PositionNumbers(
        adjacent_cosine_mean=adjacent.mean().item(),
        adjacent_cosine_min=adjacent.min().item(),
        mean_step=steps.mean().item(),
        largest_step=steps.max().item(),
        mean_norm=table.norm(dim=1).mean().item(),
        distinct_rows=len(table[:FIRST].unique(dim=0)),
        nearly_constant_columns=len(nearly_constant(table)) / table.shape[1],
    )


def similarity(table: Float[Tensor, "L M"]) -> Float[Tensor, "L L"]:
    """Return the cosines of all pairs of positions; 0 for a row of zeros."""
    unit = torch.nn.functional.normalize(table.double(), dim=1)
    return unit @ unit.T


def similarity_by_distance(table: Float[Tensor, "L M"]) -> tuple[Float[Tensor, " L"], Float[Tensor, " L"]]:
    """Return the mean and standard deviation of the cosines of positions i and j, for each distance |i - j|."""
    cosines = similarity(table)
    diagonals = [cosines.diagonal(distance) for distance in range(len(table))]
    return torch.stack([x.mean() for x in diagonals]), torch.stack([x.std(correction=0) for x in diagonals])


def nearly_constant(table: Float[Tensor, "L M"]) -> list[int]:
    """Return the columns that are nearly constant over the first 32 positions."""
    deviations = table[:FIRST].double().std(dim=0, correction=0)
    return (deviations < NEARLY_CONSTANT).nonzero().squeeze(1).tolist()


def tables(
    small: Float[Tensor, "n d"], *, kinds: tuple[str, ...], length: int, width: int
) -> dict[str, Float[Tensor, "length width"]]:
    """Return each panel's table by its title: sinusoids, and a learned table before and after its pooling.

    Before pooling, each number is repeated as a block, so that all panels have the same axes.
    Raises ConfigError for a kind other than a sinusoid, and for sizes too small to plot.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise ConfigError(unknown("sinusoid", kind, KINDS))
    if length < 2 or width < 2 or width % 2:
        raise ConfigError(
            f"a table of {length} x {width} cannot be drawn: give at least 2 positions, and an even width"
        )
    shown = {f"sinusoid ({kind})": sinusoids(kind, length, width) for kind in kinds}  # type: ignore[arg-type]
    rows, columns = (torch.arange(size) * n // size for size, n in zip((length, width), small.shape, strict=True))
    shown["learned, before pooling"] = small.float()[rows][:, columns]
    shown["learned, after pooling"] = upscale(small, length, width)
    return shown


def draw(shown: Mapping[str, Float[Tensor, "L M"]]) -> Figure:
    """Draw, from top to bottom: each table, the cosines of all pairs of positions, and cosines by distance."""
    figure = Figure(figsize=(_LEFT + len(shown) * (_WIDTH + _GAP) + 0.75, sum(_HEIGHTS) + 3 * _BETWEEN + 0.35))
    tops = [0.35 + sum(_HEIGHTS[:row]) + row * _BETWEEN for row in range(3)]
    for column, (title, table) in enumerate(shown.items()):
        left = _LEFT + column * (_WIDTH + _GAP)
        rows = [place(figure, left, top, _WIDTH, height) for top, height in zip(tops, _HEIGHTS, strict=True)]
        heat = _heat(rows[0], table)
        rows[0].set(title=f"({ascii_lowercase[column]}) {title}", xlabel="dimension")
        _boxes(rows[0], table)
        _heat(rows[1], similarity(table))
        rows[1].set(title="cosine of two positions", xlabel="position")
        _distances(rows[2], table)
        for axes, label in zip(rows, ("position", "position", "cosine"), strict=True):
            if column == 0:
                axes.set_ylabel(label)
            else:
                axes.set_yticklabels([])
    for top, height, label in zip(tops, _HEIGHTS, ("value", "cosine"), strict=False):
        figure.colorbar(heat, cax=place(figure, left + _WIDTH + 0.12, top, 0.12, height), label=label)
    note = f"over the first {FIRST} positions (standard deviation below {NEARLY_CONSTANT})"
    figure.text(0.01, 0.01, f"Boxes: runs of columns that hardly change {note}.", fontsize=7)
    return figure


def _heat(axes: Axes, values: Float[Tensor, "L M"]) -> AxesImage:
    return axes.imshow(values.numpy(), cmap=_COLOURS, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")


def _boxes(axes: Axes, table: Float[Tensor, "L M"]) -> None:
    """Draw a red box around each group of nearly constant columns that is wide enough to see."""
    columns = nearly_constant(table)
    starts = [column for column in columns if column - 1 not in columns]
    ends = [column for column in columns if column + 1 not in columns]
    for start, end in zip(starts, ends, strict=True):
        if end - start + 1 < table.shape[1] / 64:
            continue
        box = Rectangle((start - 0.5, -0.5), end - start + 1, min(FIRST, len(table)), fill=False, clip_on=False)
        box.set(edgecolor=_RED, linewidth=1.2, path_effects=[withStroke(linewidth=2.6, foreground="white")])
        axes.add_patch(box)


def _distances(axes: Axes, table: Float[Tensor, "L M"]) -> None:
    mean, deviation = (x.numpy() for x in similarity_by_distance(table))
    distances = np.arange(len(table))
    axes.axhline(0, color="#BBBBBB", linewidth=0.6)
    axes.fill_between(distances, mean - deviation, mean + deviation, color=PALETTE[0], alpha=0.25, linewidth=0)
    axes.plot(distances, mean, color=PALETTE[0])
    axes.set(title="mean cosine at a distance, ±1 sd", xlabel="distance |i − j|", ylim=(-1.05, 1.05))
    axes.set_xlim(0, len(table) - 1)


def plot_positions(
    table: Float[Tensor, "n d"],
    out: Path,
    *,
    kinds: Sequence[str],
    length: int,
    width: int,
    source: Mapping[str, str],
) -> Plotted:
    """Plot sinusoids beside a learned table, before and after pooling.

    `source`: the table's origin, as written to the JSON. Raises ConfigError as `tables`, `canvas` and `files_of` do.
    """
    files_of(out)
    shown = tables(table, kinds=tuple(kinds), length=length, width=width)
    with canvas():
        files = save(draw(shown), out)
    forms = {
        "cosine of neighbours": ".4f",
        "least": ".4f",
        "mean step": ".3f",
        "largest": ".3f",
        "mean norm": ".2f",
        "distinct of first 32": "d",
        "hardly changing": ".0%",
    }
    content, rows = {}, []
    for title, full in shown.items():
        numbers, (mean, deviation) = position_numbers(full), similarity_by_distance(full)
        by_distance = {"cosine_by_distance": mean.tolist(), "cosine_by_distance_sd": deviation.tolist()}
        content[title] = dataclasses.asdict(numbers) | by_distance
        rows.append([title, *map(format, dataclasses.astuple(numbers), forms.values())])
    files.append(save_numbers({"table": dict(source), "length": length, "width": width, "encodings": content}, out))
    return Plotted(files, ["encoding", *forms], rows)
