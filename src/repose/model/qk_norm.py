"""Normalization of queries and keys before their product: the axis `qk_norm`."""

import math
from typing import assert_never

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from repose.model.architecture import Architecture
from repose.model.kernels.linear import at_least_fp32

LONGEST = 64
"""L in the formula for the first value of g."""
EPS = 1e-12
"""A query or key shorter than this is divided by this instead of by its length."""


class QkNorm(nn.Module):
    """Normalization of one attention's queries and keys, head by head, before rotary positions turn them.

        none: queries and keys stay as they are
        l2:   g q / ||q|| and k / ||k||      Henry et al. 2020, arXiv 2010.04245, section 3

    With `l2`, a score is g times a cosine, and no other factor scales it. g is one learned number for each attention,
    log2(L² - L) at first.

    Differs from the paper: L is 64. The paper takes a length that 97.5 % of the training sentences do not exceed; a
    length twice as large adds 2 to g. g does not multiply what positions add to the scores.
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
        """True if queries and keys stay as they are, so that heads may be absorbed."""
        return self.gain is None

    def scale(self, without: float) -> float:
        """Return the factor on products of queries and keys. `without`: the factor where there is no norm."""
        return without if self.gain is None else 1.0

    def queries(self, rows: Float[Tensor, "*N HC"]) -> Float[Tensor, "*N HC"]:
        """Return the queries, each head's part of a row scaled to length g."""
        return rows if self.gain is None else self._units(rows, self.gain)

    def keys(self, rows: Float[Tensor, "*N HC"]) -> Float[Tensor, "*N HC"]:
        """Return the keys, each head's part of a row scaled to length 1."""
        return rows if self.gain is None else self._units(rows, None)

    def _units(self, rows: Tensor, gain: Tensor | None) -> Tensor:
        """Scale each head's part of a row to length 1, times `gain`. Computed in fp32 at least."""
        wide = at_least_fp32(rows)
        units = F.normalize(wide.unflatten(-1, (-1, self.head_dim)), dim=-1, eps=EPS).flatten(-2)
        return (units if gain is None else units * gain).to(rows.dtype)
