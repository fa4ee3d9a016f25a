"""Weight absorption: W^K moves to the queries and W^V to the output, so that heads read the tokens themselves.

A score of query token x and key token y. The constant is the same for every y, so it does not change the softmax:

    (W_h^Q x + b_h^Q) · (W_h^K y + b_h^K) / sqrt(C) = (A_h x + a_h) · y + const
    A_h = W_h^Kᵀ W_h^Q / sqrt(C),  a_h = W_h^Kᵀ b_h^Q / sqrt(C)

The output, for value tokens e_j and weights p_hj, whose sum over j is one except after dropout:

    sum_h W_h^O sum_j p_hj (W_h^V e_j + b_h^V) + b^O = sum_h O_h (sum_j p_hj e_j) + sum_h (sum_j p_hj) o_h + b^O
    O_h = W_h^O W_h^V,  o_h = W_h^O b_h^V

So the keys and values of all heads are the tokens, D and M numbers wide, instead of H·C each. If heads are as wide as
the model, as in the baseline of the TensorFlow tutorial and arXiv 2410.04731, this halves the operations of the
projections and saves memory. In that paper's proposal (C = D/2), it saves memory. The result is mathematically the
same, but rounded differently.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from repose.model.kernels.linear import Linear


class Absorbed(NamedTuple):
    """The projections that remain after absorption."""

    query: Float[Tensor, "HD D"]
    """A, the absorbed query projection, including the scale 1/sqrt(C)."""
    query_bias: Float[Tensor, " HD"] | None
    """a, the bias of the absorbed query projection."""
    output: Float[Tensor, "D HM"]
    """O, the absorbed output projection."""
    value_bias: Float[Tensor, "D H"] | None
    """o, to be multiplied by the sum of each head's weights."""


def cost(d_model: int, d_value: int, head_dim: int) -> float:
    """Return the operations of a token's absorbed projections, as a share of those of the usual ones."""
    return d_model * (d_model + d_value) / (head_dim * (3 * d_model + d_value))


def absorb(query: Linear, key: Linear, value: Linear, output: Linear, num_heads: int, scale: float) -> Absorbed:
    """Return the projections of an attention after absorbing those of keys and values. Gradients flow through."""
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
