"""The layers of the two stacks.

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

Drawn as `norm = post`; with `pre` the norm stands at the head of each branch. Values of attention are the layer's own
input, or with `values = tokens` the same token embeddings in every layer (cross-attention: the source's).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from repose.model.architecture import Norm
from repose.model.attention import Attention
from repose.model.cache import Cache
from repose.model.packing import Packing
from repose.model.sublayer import Sublayer


@dataclass(frozen=True)
class Memory:
    """What the encoder hands to the decoder: packed rows of real source tokens."""

    hidden: Float[Tensor, "N D"]
    """Output of the last encoder layer: the keys of cross-attention."""
    values: Float[Tensor, "N M"]
    """What cross-attention takes its values from: `hidden`, or the normalised source token embeddings."""
    packing: Packing
    """Where the rows belong; its mask (B, S) is True at real source tokens."""

    def select(self, rows: Tensor) -> "Memory":
        """The memory of the sentences `rows`, which may repeat."""
        packing = Packing(self.packing.mask[rows])
        hidden, values = (packing.pack(self.packing.pad(x)[rows]) for x in (self.hidden, self.values))
        return Memory(hidden, values, packing)


@dataclass(frozen=True, kw_only=True)
class LayerSizes:
    """What every layer of a stack shares."""

    d_model: int
    d_value: int
    num_heads: int
    head_dim: int
    d_ff: int
    norm: Norm
    residual_weight: float
    norm_eps: float
    attention_bias: bool
    dropout: float
    attention_dropout: float
    attention_output_dropout: float

    def attention(self) -> Attention:
        """One attention of these sizes."""
        return Attention(
            d_model=self.d_model,
            d_value=self.d_value,
            num_heads=self.num_heads,
            head_dim=self.head_dim,
            bias=self.attention_bias,
            dropout=self.attention_dropout,
        )

    def sublayer(self, dropout: float) -> Sublayer:
        """One residual connection of these sizes."""
        return Sublayer(
            self.d_model, norm=self.norm, residual_weight=self.residual_weight, dropout=dropout, eps=self.norm_eps
        )


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (Vaswani et al. eq. 2), on each token by itself.

    Differs from arXiv 2410.04731: its eq. 31 gives B_1 a row per position, impossible for any length; a vector here.
    """

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        return self.outer(F.relu(self.inner(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.self_attention = sizes.attention()
        self.self_attention_sublayer = sizes.sublayer(sizes.attention_output_dropout)
        self.feed_forward = FeedForward(sizes.d_model, sizes.d_ff)
        self.feed_forward_sublayer = sizes.sublayer(sizes.dropout)

    def forward(
        self,
        x: Float[Tensor, "N D"],
        values: Float[Tensor, "N M"] | None,
        packing: Packing,
        mask: Bool[Tensor, "B 1 1 S"],
    ) -> Float[Tensor, "N D"]:
        """One layer; `values` None means the layer's own input."""

        def attend(y: Tensor) -> Tensor:
            keys, projected = self.self_attention.project(y, y if values is None else values, packing)
            return self.self_attention(y, packing, keys, projected, mask)

        x = self.self_attention_sublayer(x, attend)
        return self.feed_forward_sublayer(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the memory, then feed-forward."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.self_attention = sizes.attention()
        self.self_attention_sublayer = sizes.sublayer(sizes.attention_output_dropout)
        self.cross_attention = sizes.attention()
        self.cross_attention_sublayer = sizes.sublayer(sizes.attention_output_dropout)
        self.feed_forward = FeedForward(sizes.d_model, sizes.d_ff)
        self.feed_forward_sublayer = sizes.sublayer(sizes.dropout)

    def forward(
        self,
        x: Float[Tensor, "N D"],
        values: Float[Tensor, "N M"] | None,
        packing: Packing,
        mask: Bool[Tensor, "#B 1 T K"],
        memory: Memory | None,
        memory_mask: Bool[Tensor, "B 1 1 S"],
        cache: Cache | None = None,
    ) -> Float[Tensor, "N D"]:
        """One layer. With a cache, x are new tokens only, and `memory` may be None once its keys are in the cache."""

        def attend(y: Tensor) -> Tensor:
            keys, projected = self.self_attention.project(y, y if values is None else values, packing)
            if cache is not None:
                keys, projected = extend(cache, self.self_attention, keys, projected)
            return self.self_attention(y, packing, keys, projected, mask)

        def attend_to_memory(y: Tensor) -> Tensor:
            keys, projected = self._memory(memory, cache)
            return self.cross_attention(y, packing, keys, projected, memory_mask)

        x = self.self_attention_sublayer(x, attend)
        x = self.cross_attention_sublayer(x, attend_to_memory)
        return self.feed_forward_sublayer(x, self.feed_forward)

    def _memory(self, memory: Memory | None, cache: Cache | None) -> tuple[Tensor, Tensor]:
        """Keys and values of the memory: projected once per decoding, or once per call without a cache."""
        known = None if cache is None else cache.get(self.cross_attention)
        if known is None:
            assert memory is not None, "the first step of a cache needs the memory"
            known = self.cross_attention.project(memory.hidden, memory.values, memory.packing)
            if cache is not None:
                cache.put(self.cross_attention, *known)
        return known[0], known[1]


def extend(cache: Cache, attention: Attention, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Appends new keys and values (B, H, Q, C) to the cache; returns all of them."""
    past = cache.get(attention)
    if past is not None:
        keys, values = (torch.cat([old, new], dim=2) for old, new in zip(past, (keys, values), strict=True))
    cache.put(attention, keys, values)
    return keys, values
