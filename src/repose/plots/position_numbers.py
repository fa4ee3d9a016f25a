"""What a position table says of places, in numbers: how alike rows are, and how smoothly they change."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

FIRST = 32
"""Positions that most sentences have: the numbers of rows and columns that hardly change are about these."""
NEARLY_CONSTANT = 0.05
"""Standard deviation below which a column counts as nearly constant; entries lie between -1 and 1."""


@dataclass(frozen=True)
class PositionNumbers:
    """A table P of L positions, in the numbers behind Fig. 5 of arXiv 2310.10930."""

    adjacent_cosine_mean: float
    """Mean cosine of P(i) and P(i + 1)."""
    adjacent_cosine_min: float
    """The least such cosine."""
    mean_step: float
    """Mean of ||P(i + 1) - P(i)||: the smoother, the smaller."""
    largest_step: float
    """The largest of them: what jumps."""
    mean_norm: float
    """Mean of ||P(i)||, which steps are to be seen against."""
    distinct_rows: int
    """How many of the first 32 positions have a row of their own."""
    nearly_constant_columns: float
    """Share of columns whose standard deviation over the first 32 positions is below 0.05: the paper's red box."""


def position_numbers(table: Float[Tensor, "L M"]) -> PositionNumbers:
    """The numbers of one table of at least two positions."""
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
    """Cosines of all pairs of positions; a row of zeros is like nothing (0)."""
    unit = torch.nn.functional.normalize(table.double(), dim=1)
    return unit @ unit.T


def similarity_by_distance(table: Float[Tensor, "L M"]) -> tuple[Float[Tensor, " L"], Float[Tensor, " L"]]:
    """Mean and standard deviation of the cosines of all pairs of positions i, j, for each distance |i - j|."""
    cosines = similarity(table)
    diagonals = [cosines.diagonal(distance) for distance in range(len(table))]
    return torch.stack([x.mean() for x in diagonals]), torch.stack([x.std(correction=0) for x in diagonals])


def nearly_constant(table: Float[Tensor, "L M"]) -> list[int]:
    """Columns that are nearly constant over the first 32 positions."""
    deviations = table[:FIRST].double().std(dim=0, correction=0)
    return (deviations < NEARLY_CONSTANT).nonzero().squeeze(1).tolist()
