"""The layers of the encoder and the decoder (Vaswani et al. 2017, section 3.1).

      EncoderLayer                          DecoderLayer

      x ──┬────────────┐                    x ──┬─────────────────┐
          │ self-attention                      │ causal self-attention
          └─(+)─ norm ─┘                        └─(+)─ norm ──────┘
          ┬────────────┐                        ┬─────────────────┐
          │ feed-forward                        │ cross-attention ←─ memory
          └─(+)─ norm ─┘                        └─(+)─ norm ──────┘
          ↓                                     ┬─────────────────┐
                                                │ feed-forward
                                                └─(+)─ norm ──────┘

The drawing shows `norm = post`. With `pre`, the norm is at the start of each branch; with `both`, there is one at the
start and one after the sum (`Sublayer`).

The values of attention are the layer's own input. With `values = tokens`, they are the token embeddings, which are the
same in every layer; cross-attention takes the source's. With `values = both`, half of the heads read the one and half
the other.
"""

from typing import assert_never

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from repose.model.architecture import GATED, Architecture
from repose.model.attention import Attention
from repose.model.cached_attention import MemoryReach, StepReach, cached
from repose.model.embedding import values_from
from repose.model.kernels.blocks import Blocks
from repose.model.kernels.cache import Cache
from repose.model.kernels.linear import Linear
from repose.model.kernels.local import LocalBlocks
from repose.model.kernels.packing import Memory
from repose.model.positions import Positions
from repose.model.sublayer import Sublayer


class FeedForward(nn.Module):
    """The position-wise feed-forward network: two projections of each token, with an activation between them.

    The axis `feed_forward` names the activation:

        relu:   max(0, x W_1 + b_1) W_2 + b_2                 Vaswani et al. eq. 2
        gelu:   GELU(x W_1 + b_1) W_2 + b_2                   Hendrycks and Gimpel 2016, arXiv 1606.08415, exact
        geglu:  (GELU(x W + b) * (x W_1 + b_1)) W_2 + b_2     Shazeer 2020, arXiv 2002.05202, eq. 6, here with biases
        swiglu: (Swish(x W + b) * (x W_1 + b_1)) W_2 + b_2    likewise; Swish(y) = y sigmoid(y)

    W_1 is (D, F) and W_2 is (F, D).

    Differs from arXiv 2410.04731: its eq. 21 gives B_1 one row per position, which cannot work for every length. Here
    B_1 is a vector.
    """

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.kind = a.feed_forward
        self.inner = Linear(a.d_model, a.d_ff)
        self.gate = Linear(a.d_model, a.d_ff) if a.feed_forward in GATED else None
        self.outer = Linear(a.d_ff, a.d_model)

    def forward(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
        return self.outer(self._hidden(x))

    def _hidden(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R F"]:
        match self.kind:
            case "relu":
                return F.relu(self.inner(x))
            case "gelu":
                return F.gelu(self.inner(x))
            case "geglu":
                assert self.gate is not None
                return F.gelu(self.gate(x)) * self.inner(x)
            case "swiglu":
                assert self.gate is not None
                return F.silu(self.gate(x)) * self.inner(x)
            case _:
                assert_never(self.kind)


class EncoderLayer(nn.Module):
    """One encoder layer: self-attention, then feed-forward."""

    def __init__(self, a: Architecture, positions: Positions) -> None:
        super().__init__()
        self.values = a.values
        self.self_attention = Attention(a, positions)
        self.self_attention_sublayer = Sublayer(a, a.attention_output_dropout)
        self.feed_forward = FeedForward(a)
        self.feed_forward_sublayer = Sublayer(a, a.dropout)

    def forward(
        self, x: Float[Tensor, "R D"], tokens: Float[Tensor, "R M"] | None, blocks: Blocks | LocalBlocks
    ) -> Float[Tensor, "R D"]:
        """Apply the layer. `tokens`: the token embeddings, where attention takes values from them."""
        attend = self.self_attention
        x = self.self_attention_sublayer(x, lambda y: attend(y, y, values_from(self.values, y, tokens), blocks))
        return self.feed_forward_sublayer(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """One decoder layer: causal self-attention, cross-attention to the memory, then feed-forward."""

    def __init__(self, a: Architecture, positions: Positions) -> None:
        super().__init__()
        self.values = a.values
        self.self_attention = Attention(a, positions)
        self.self_attention_sublayer = Sublayer(a, a.attention_output_dropout)
        self.cross_attention = Attention(a, None)
        self.cross_attention_sublayer = Sublayer(a, a.attention_output_dropout)
        self.feed_forward = FeedForward(a)
        self.feed_forward_sublayer = Sublayer(a, a.dropout)

    def forward(
        self,
        x: Float[Tensor, "R D"],
        tokens: Float[Tensor, "R M"] | None,
        memory: Memory,
        to_self: Blocks | LocalBlocks,
        to_memory: Blocks,
    ) -> Float[Tensor, "R D"]:
        """Apply the layer to whole targets. `tokens`: the token embeddings, where attention takes values from them."""
        attend, attend_to_memory = self.self_attention, self.cross_attention
        x = self.self_attention_sublayer(x, lambda y: attend(y, y, values_from(self.values, y, tokens), to_self))
        x = self.cross_attention_sublayer(x, lambda y: attend_to_memory(y, memory.hidden, memory.values, to_memory))
        return self.feed_forward_sublayer(x, self.feed_forward)

    def step(
        self,
        x: Float[Tensor, "R D"],
        tokens: Float[Tensor, "R M"] | None,
        memory: Memory | None,
        cache: Cache,
        to_self: StepReach,
        to_memory: MemoryReach,
    ) -> Float[Tensor, "R D"]:
        """Apply the layer to one more token per row. `memory` may be None once the cache holds its keys and values."""
        attend = cached(self.self_attention, cache).self_attention
        attend_to_memory = cached(self.cross_attention, cache).cross_attention
        x = self.self_attention_sublayer(x, lambda y: attend(y, values_from(self.values, y, tokens), cache, to_self))
        x = self.cross_attention_sublayer(x, lambda y: attend_to_memory(y, memory, cache, to_memory))
        return self.feed_forward_sublayer(x, self.feed_forward)
