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

Drawn as `norm = post`; with `pre` the norm stands at the head of each branch, with `both` one more does. Values
of attention are the layer's own input, or with `values = tokens` the same token embeddings in every layer
(cross-attention: the source's).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from repose.model.architecture import Norm, PositionBias, Positions, ScoreResidual, SelfScore
from repose.model.attention import Attention
from repose.model.kernels.blocks import Blocks
from repose.model.kernels.cache import Cache
from repose.model.kernels.linear import Linear
from repose.model.kernels.local import Bands
from repose.model.memory import Memory
from repose.model.position_bias import untied_scale
from repose.model.positions import Rotary
from repose.model.sublayer import Sublayer

Branch = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class LayerSizes:
    """What every layer of a stack shares."""

    d_model: int
    d_value: int
    num_heads: int
    head_dim: int
    d_ff: int
    max_length: int
    positions: Positions
    norm: Norm
    residual_weight: float
    norm_eps: float
    self_score: SelfScore
    position_bias: PositionBias
    score_residual: ScoreResidual
    attention_window: int | None
    attention_bias: bool
    dropout: float
    attention_dropout: float
    attention_output_dropout: float

    def attention(self, *, to_itself: bool) -> Attention:
        """One attention of these sizes. Positions and the diagonal are of self-attention alone."""
        untied = to_itself and self.position_bias != "none"
        rotates = to_itself and self.positions == "rotary"
        return Attention(
            d_model=self.d_model,
            d_value=self.d_value,
            num_heads=self.num_heads,
            head_dim=self.head_dim,
            bias=self.attention_bias,
            dropout=self.attention_dropout,
            scale=untied_scale(self.head_dim) if untied else None,
            own_score=self.self_score if to_itself else "keep",
            score_residual=self.score_residual,
            rotary=Rotary(max_length=self.max_length, head_dim=self.head_dim) if rotates else None,
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
        self.inner = Linear(d_model, d_ff)
        self.outer = Linear(d_ff, d_model)

    def forward(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
        return self.outer(F.relu(self.inner(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.self_attention = sizes.attention(to_itself=True)
        self.self_attention_sublayer = sizes.sublayer(sizes.attention_output_dropout)
        self.feed_forward = FeedForward(sizes.d_model, sizes.d_ff)
        self.feed_forward_sublayer = sizes.sublayer(sizes.dropout)

    def forward(
        self, x: Float[Tensor, "R D"], values: Float[Tensor, "R M"] | None, blocks: Blocks | Bands
    ) -> Float[Tensor, "R D"]:
        """One layer; `values` None means the layer's own input."""

        def attend(y: Tensor) -> Tensor:
            return self.self_attention(y, y, y if values is None else values, blocks)

        x = self.self_attention_sublayer(x, attend)
        return self.feed_forward_sublayer(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the memory, then feed-forward."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.window = sizes.attention_window
        self.self_attention = sizes.attention(to_itself=True)
        self.self_attention_sublayer = sizes.sublayer(sizes.attention_output_dropout)
        self.cross_attention = sizes.attention(to_itself=False)
        self.cross_attention_sublayer = sizes.sublayer(sizes.attention_output_dropout)
        self.feed_forward = FeedForward(sizes.d_model, sizes.d_ff)
        self.feed_forward_sublayer = sizes.sublayer(sizes.dropout)

    def forward(
        self,
        x: Float[Tensor, "R D"],
        values: Float[Tensor, "R M"] | None,
        memory: Memory,
        itself: Blocks | Bands,
        across: Blocks,
    ) -> Float[Tensor, "R D"]:
        """One layer over whole targets; `values` None means the layer's own input."""

        def attend(y: Tensor) -> Tensor:
            return self.self_attention(y, y, y if values is None else values, itself)

        def attend_to_memory(y: Tensor) -> Tensor:
            return self.cross_attention(y, memory.hidden, memory.values, across)

        return self._sublayers(x, attend, attend_to_memory)

    def step(
        self,
        x: Float[Tensor, "R D"],
        values: Float[Tensor, "R M"] | None,
        memory: Memory | None,
        cache: Cache,
        position_scores: Float[Tensor, "H K"] | None,
    ) -> Float[Tensor, "R D"]:
        """One layer over one more token per row; `memory` may be None once the cache has its keys and values."""

        def attend(y: Tensor) -> Tensor:
            return self.self_attention.stepper(cache).itself(
                y, values, cache, window=self.window, position_scores=position_scores
            )

        def attend_to_memory(y: Tensor) -> Tensor:
            return self.cross_attention.stepper(cache).across(y, memory, cache)

        return self._sublayers(x, attend, attend_to_memory)

    def _sublayers(self, x: Tensor, attend: Branch, attend_to_memory: Branch) -> Tensor:
        x = self.self_attention_sublayer(x, attend)
        x = self.cross_attention_sublayer(x, attend_to_memory)
        return self.feed_forward_sublayer(x, self.feed_forward)
