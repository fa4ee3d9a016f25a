"""Scores of positions beside those of contents in self-attention: the axis `position_bias`."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from repose.model.architecture import PositionBias
from repose.model.kernels.linear import Linear

NUM_BUCKETS = 32
"""Distances that TUPE-R tells apart (T5's)."""
FARTHEST = 128
"""Tokens from which on all distances share a bucket (T5's)."""


class UntiedPositions(nn.Module):
    """TUPE (Ke et al. 2021, arXiv 2006.15595, eq. 10-11): positions meet positions, contents meet contents.

        score_ij = (x_i W^Q)·(x_j W^K) / sqrt(2C) + (p_i U^Q)·(p_j U^K) / sqrt(2C)   [+ b_(j-i) for `untied_relative`]

    This computes the part without x: for each head, once for all layers of a stack, which share it. p_i is a learned
    row of d_model numbers after a layer norm of its own (which the authors' code has and the text does not name).
    b is one number per head and bucket of distances, zero at first.

    Differs from the paper: it trains an encoder with a [CLS] token whose position is untied from the rest; a
    translation has no such token. In a decoder, which sees no later token, the buckets are all of earlier ones, as
    in T5. Cross-attention is of contents alone, as in Vaswani et al.
    """

    def __init__(
        self,
        kind: PositionBias,
        *,
        max_length: int,
        d_model: int,
        num_heads: int,
        head_dim: int,
        bias: bool,
        eps: float,
        causal: bool,
    ) -> None:
        super().__init__()
        assert kind != "none"
        self.table = nn.Parameter(torch.empty(max_length, d_model).normal_(std=1 / math.sqrt(d_model)))
        self.norm = nn.LayerNorm(d_model, eps=eps)
        self.query = Linear(d_model, num_heads * head_dim, bias=bias)
        self.key = Linear(d_model, num_heads * head_dim, bias=bias)
        self.num_heads, self.scale, self.causal = num_heads, untied_scale(head_dim), causal
        self.distances = nn.Parameter(torch.zeros(num_heads, NUM_BUCKETS)) if kind == "untied_relative" else None

    def forward(
        self,
        queries_at: Int[Tensor, "*n q"],
        keys_at: Int[Tensor, "*n k"],
        projected: tuple[Tensor, Tensor] | None = None,
    ) -> Float[Tensor, "*n {self.num_heads} q k"]:
        """Scores of positions (from 0) against positions. The caller has checked them against `max_length`.

        `projected`: what that returned for at least as many positions.
        """
        with torch.autocast(self.table.device.type, enabled=False):
            # Positions beyond the last real one belong to padding.
            last = len(self.table) - 1
            queries_at, keys_at = queries_at.clamp(max=last), keys_at.clamp(max=last)
            queries, keys = projected or self.projected(int(max(queries_at.max(), keys_at.max())) + 1)
            scores = self._heads(queries[queries_at]) @ self._heads(keys[keys_at]).mT
            if self.distances is not None:
                distance = keys_at[..., None, :] - queries_at[..., :, None]
                scores = scores + self.distances.T[buckets(distance, causal=self.causal)].movedim(-1, -3)
            return scores

    def projected(self, length: int | None = None) -> tuple[Float[Tensor, "L HC"], Float[Tensor, "L HC"]]:
        """The first positions (None: all) as queries, the scale included, and as keys."""
        rows = self.norm(self.table[:length])
        return self.query(rows) * self.scale, self.key(rows)

    def _heads(self, x: Float[Tensor, "*n l HC"]) -> Float[Tensor, "*n H l C"]:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(-3, -2)


def untied_scale(head_dim: int) -> float:
    """1/sqrt(2C): of the scores of contents as of those of positions, so that their sum has the usual variance."""
    return (2 * head_dim) ** -0.5


def buckets(distance: Int[Tensor, "*x"], *, causal: bool) -> Int[Tensor, "*x"]:
    """Which of `NUM_BUCKETS` classes a distance j - i is in, as in T5 (Raffel et al. 2020, section 2.1).

    Half of a side's buckets are one distance each, the rest grow like its logarithm up to `FARTHEST`. Without `causal`
    each side has half of all buckets; with it the earlier side has them all.
    """
    num = NUM_BUCKETS if causal else NUM_BUCKETS // 2
    side = torch.zeros_like(distance) if causal else (distance > 0) * num
    size = (-distance).clamp(min=0) if causal else distance.abs()
    exact = num // 2
    steps = (size.clamp(min=exact).double() / exact).log() / math.log(FARTHEST / exact) * (num - exact)
    far = (exact + (steps + 1e-9).long()).clamp(max=num - 1)
    return side + torch.where(size < exact, size, far)
