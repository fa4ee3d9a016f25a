"""Weight absorption: W^K moved to the side of the queries, W^V to that of the output, so that heads read tokens.

A score is (W_h^Q x + b_h^Q) · (W_h^K y + b_h^K) / sqrt(C) = (A_h x + a_h) · y + (what is the same for every y, and so
nothing to softmax) with A_h = W_h^Kᵀ W_h^Q / sqrt(C), a_h = W_h^Kᵀ b_h^Q / sqrt(C); and the output is
sum_h W_h^O sum_j p_hj (W_h^V e_j + b_h^V) + b^O = sum_h O_h (sum_j p_hj e_j) + sum_h (sum_j p_hj) o_h + b^O with
O_h = W_h^O W_h^V, o_h = W_h^O b_h^V. The weights p_hj of a query sum to one, unless dropout has fallen on them.

So keys and values of all heads are the tokens, D and M numbers wide, instead of H·C each: where heads are as wide as
the model, as in the TensorFlow tutorial's and arXiv 2410.04731's baseline, half of the projections' operations and less
memory; in that paper's proposal (C = D/2), less memory. The same mathematics, rounded otherwise.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from repose.model.kernels.linear import Linear


class Absorbed(NamedTuple):
    """The projections that are left."""

    query: Float[Tensor, "HD D"]
    """A, the scale included."""
    query_bias: Float[Tensor, " HD"] | None
    """a."""
    output: Float[Tensor, "D HM"]
    """O."""
    value_bias: Float[Tensor, "D H"] | None
    """o, to be multiplied by the sum of each head's weights."""


def cost(d_model: int, d_value: int, head_dim: int) -> float:
    """Operations of the projections of a token, as a share of those with keys and values of each head."""
    return d_model * (d_model + d_value) / (head_dim * (3 * d_model + d_value))


def absorb(query: Linear, key: Linear, value: Linear, output: Linear, num_heads: int, scale: float) -> Absorbed:
    """The projections of an attention with keys' and values' absorbed; gradients flow through."""
    with torch.autocast(query.weight.device.type, enabled=False):
        w_q, w_k, w_v = (x.weight.unflatten(0, (num_heads, -1)) for x in (query, key, value))
        w_o = output.weight.unflatten(1, (num_heads, -1))
        scaled = w_k * scale
        a = torch.einsum("hcy,hcx->hyx", scaled, w_q).flatten(0, 1)
        o = torch.einsum("dhc,hce->dhe", w_o, w_v).flatten(1)
        a_bias = o_bias = None
        if query.bias is not None:
            a_bias = (scaled * query.bias.unflatten(0, (num_heads, -1, 1))).sum(1).flatten()
        if value.bias is not None:
            o_bias = (w_o * value.bias.unflatten(0, (num_heads, -1))).sum(2)
        return Absorbed(a, a_bias, o, o_bias)
