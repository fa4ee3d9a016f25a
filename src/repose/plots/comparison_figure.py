"""Two models' attention side by side: Fig. 7 of arXiv 2310.10930, with the number behind "more diverse"."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from repose.plots.attention_figure import TITLES, chosen, draw_map, finish, label_map, make_grid
from repose.plots.attention_maps import Kind, Maps, Reading
from repose.plots.attention_numbers import head_numbers, mean_numbers, numbers_of
from repose.plots.canvas import MARKERS, PALETTE, place
from repose.system.errors import ConfigError

_CHART = 1.7  # inches: height of the charts
_CHARTS = 2.6  # and what they take below the maps, with their titles and labels


def draw_comparison(readings: Sequence[Reading], kind: Kind, *, layer: int = 1) -> Figure:
    """One layer's maps (from 1), a row for each model: the mean over heads, then each head, each with its numbers.
    Below, the mean entropy of rows and the mean weight of a token on itself for all layers; a dot is a head.

    Raises ConfigError for a layer that a model has not, and where the models do not read the same tokens.
    """
    models = [reading.maps[kind] for reading in readings]
    if any(maps.keys != models[0].keys or maps.queries != models[0].queries for maps in models):
        raise ConfigError(
            "the two models cut these sentences into different tokens, whose maps cannot be compared: "
            "choose two models of one tokenizer"
        )
    indices = [chosen("layer", layer, len(maps.layers))[0] for maps in models]
    num_heads = max(len(maps.layers[0]) for maps in models)
    grid = make_grid(len(models), 1 + num_heads, models[0].queries, models[0].keys)
    width, height = grid.figure_size
    figure = Figure(figsize=(max(width, 7.0), height + _CHARTS))
    for row, (maps, index) in enumerate(zip(models, indices, strict=True)):
        weights, numbers = maps.layers[index], head_numbers(maps, index)
        mean = weights.mean(0)
        columns = [(mean, numbers_of(mean[None], maps)[0], f"({'ab'[row]}) mean of heads")]
        columns += [(weights[h], numbers[h], f"head {h + 1}") for h in range(len(weights))]
        for column, (shown, number, title) in enumerate(columns):
            axes = place(figure, *grid.corner(row, column), grid.width, grid.height)
            heat = draw_map(axes, maps, shown, title, number)
            label_map(axes, maps, grid.label, rows=column == 0, columns=row == len(models) - 1)
    names = ", ".join(f"({letter}) {reading.name}" for letter, reading in zip("ab", readings, strict=True))
    finish(figure, grid, heat, f"{TITLES[kind]}, layer {layer}: {names}", models[0])
    top = height + 0.3
    entropy_axes = place(figure, 0.5, top, 2.6, _CHART)
    _chart(entropy_axes, readings, kind, "normalised_entropy", "row entropy / ln(keys)")
    entropy_axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0) if kind == "cross" else (2.5, 1.0))
    if kind != "cross":
        _chart(place(figure, 4.0, top, 2.6, _CHART), readings, kind, "diagonal", "weight of a token on itself")
    return figure


def _chart(axes: Axes, readings: Sequence[Reading], kind: Kind, number: str, title: str) -> None:
    """A line for each model through the mean over heads of each layer, and a dot for each head."""
    most = 0
    for index, reading in enumerate(readings):
        maps: Maps = reading.maps[kind]
        heads = [head_numbers(maps, layer) for layer in range(len(maps.layers))]
        x = [layer + 1 + (index - 0.5) * 0.16 for layer in range(len(heads))]
        colour, marker, most = PALETTE[index], MARKERS[index], max(most, len(heads))
        for place_of, layer_heads in zip(x, heads, strict=True):
            values = [getattr(head, number) for head in layer_heads]
            axes.scatter([place_of] * len(values), values, s=9, color=colour, marker=marker, alpha=0.45, linewidths=0)
        means = [getattr(mean_numbers(layer_heads), number) for layer_heads in heads]
        axes.plot(x, means, color=colour, marker=marker, markersize=4, label=f"({'ab'[index]}) {reading.name}")
    axes.set(title=title, xlabel="layer", ylim=(-0.03, 1.03), xticks=range(1, most + 1))
    axes.set_xlim(0.5, most + 0.5)
