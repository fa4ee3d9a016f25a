"""What attention does to queries and keys before they meet: the axis `qk_norm`."""

import math
from typing import assert_never

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from repose.model.architecture import Architecture
from repose.model.kernels.linear import at_least_fp32

LONGEST = 64
"""L of g's first value."""
EPS = 1e-12
"""A query or key shorter than this is divided by it."""


class QkNorm(nn.Module):
    """What a norm makes of an attention's queries and keys, head by head, before they are turned by their positions.

    none: queries and keys as they are
    l2:   g q / ||q|| and k / ||k||: a score is g times a cosine, and nothing else scales it (Henry et al. 2020,
          arXiv 2010.04245, 3). g is one learned number for each attention, log2(L² - L) at first

    Differs from the paper: L is 64, where it takes a length that 97.5 % of the training set's sentences do not exceed
    (twice as long a one adds 2 to g). What positions add to scores is not multiplied by g.
    """

    gain: nn.Parameter | None

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.head_dim = a.head_dim
        match a.qk_norm:
            case "none":
                self.gain = None
            case "l2":
                self.gain = nn.Parameter(torch.tensor(math.log2(LONGEST**2 - LONGEST)))
            case _:
                assert_never(a.qk_norm)

    @property
    def is_none(self) -> bool:
        """Whether queries and keys stay as they are, and so may be absorbed."""
        return self.gain is None

    def scale(self, without: float) -> float:
        """Factor on products of queries and keys; `without`: where there is no norm."""
        return without if self.gain is None else 1.0

    def queries(self, rows: Float[Tensor, "*N HC"]) -> Float[Tensor, "*N HC"]:
        """Each head's part of each row, g long."""
        return rows if self.gain is None else self._units(rows, self.gain)

    def keys(self, rows: Float[Tensor, "*N HC"]) -> Float[Tensor, "*N HC"]:
        """Each head's part of each row, of length 1."""
        return rows if self.gain is None else self._units(rows, None)

    def _units(self, rows: Tensor, gain: Tensor | None) -> Tensor:
        """Computed in fp32 at least."""
        wide = at_least_fp32(rows)
        units = F.normalize(wide.unflatten(-1, (-1, self.head_dim)), dim=-1, eps=EPS).flatten(-2)
        return (units if gain is None else units * gain).to(rows.dtype)
