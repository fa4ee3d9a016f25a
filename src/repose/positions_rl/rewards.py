"""What a table of positions is worth: the paper's reward, and one whose optimum tells positions apart."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int

Reward = Callable[[Float[np.ndarray, "... n d"]], Any]
"""A score for each table: a number for one, an array of numbers for several."""


def pairs(num_positions: int) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """All pairs i < j of positions, and their distances j - i."""
    first, second = np.triu_indices(num_positions, 1)
    return first, second, second - first


def literal(table: Float[np.ndarray, "... n d"]) -> Any:
    """Reward = sum over i < j of (p_i . p_j) / |i - j|: arXiv 2310.10930 eq. (7), summed over every pair.

    Its columns are worth x^T W x each, W >= 0: over numbers in [-1, 1] that is greatest where every column is all 1 or
    all -1. The best table gives every position the same encoding (`best_literal`; docs/decisions/013).
    """
    first, second, distance = pairs(table.shape[-2])
    products = (table @ np.swapaxes(table, -1, -2))[..., first, second]
    return (products / distance).sum(axis=-1)


def best_literal(num_positions: int, width: int) -> float:
    """The greatest value of `literal` over numbers in [-1, 1]: that of a table of ones."""
    return float(width * (1.0 / pairs(num_positions)[2]).sum())


def sound(table: Float[np.ndarray, "... n d"]) -> Any:
    """Reward = - mean over i < j of (cos(p_i, p_j) - cos(pi |i - j| / (n - 1)))^2, at most 0.

    Asks for what the paper describes in words: alike where positions are near, different where they are far. The
    wanted cosines are those of n points on half a circle, so that 0 is reached by any table of two columns or more:
    p_i = (cos(pi i / (n - 1)), sin(pi i / (n - 1)), 0, ...). Only directions count, not lengths. The cosine with a row
    of zeros has no value; here it is 0.
    Differs from the paper: eq. (7) is `literal`.
    """
    num_positions = table.shape[-2]
    first, second, distance = pairs(num_positions)
    length = np.linalg.norm(table, axis=-1, keepdims=True)
    direction = np.divide(table, length, out=np.zeros_like(table, dtype=np.float64), where=length > 0)
    cosine = (direction @ np.swapaxes(direction, -1, -2))[..., first, second]
    return -((cosine - np.cos(np.pi * distance / (num_positions - 1))) ** 2).mean(axis=-1)


REWARDS: Mapping[str, Reward] = {"sound": sound, "literal": literal}
"""By the name that the command line and the table's file use."""
