"""Multi-head attention over whole sentences. Queries, keys and values may come from different tensors."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import assert_never

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from repose.model.architecture import Architecture
from repose.model.kernels.absorption import Absorbed, absorb, cost
from repose.model.kernels.attend import BlockShapes, attend, product
from repose.model.kernels.blocks import Blocks, PackedLayout, join
from repose.model.kernels.dropout import Dropout
from repose.model.kernels.linear import Linear, SideBySide, at_least_fp32, linear
from repose.model.kernels.local import LocalBlocks
from repose.model.kernels.packing import packs
from repose.model.positions import Positions
from repose.model.qk_norm import QkNorm
from repose.model.scores import Scores

ABSORBED_AT = 0.75
"""Largest share of the projections' operations at which heads are absorbed over whole sentences.

It is less than 1 because absorbing has a cost of its own: some products of weights at every pass.
"""


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al. 3.2.2).

        MultiHead(Q, K, V) = [head_1 .. head_H] W^O, head_k = softmax(Q W_k^Q (K W_k^K)^T / sqrt(C)) V W_k^V

    With Q (q, D), K (k, D) and V (k, d_value), the weights W_k^Q and W_k^K are (D, C), W_k^V (d_value, C), W^O (HC, D).
    `QkNorm` defines what happens to queries and keys before their product, and `Scores` what happens between the
    product and the softmax.

    Queries and keys are projected from rows of width d_model. Values may be projected from narrower rows (arXiv
    2410.04731 eq. 12-14: the token embeddings), or from hidden states and token embeddings side by side, each for half
    of the heads. Heads may share keys and values (`num_kv_heads`: Shazeer 2019, arXiv 1911.02150; Ainslie et al. 2023,
    arXiv 2305.13245): head k then reads group k // (H / G). The scale is 1/sqrt(head_dim). Eq. 12 prints 1/sqrt(m),
    which is the same number at the paper's sizes. Additive attention (Vaswani et al. 3.2.1) is left out: they found it
    slower, and no better once scores are scaled.

    Whole sentences take one of four ways, which differ only in speed and rounding. Read the last one first:

        CPU                          `kernels.attend.attend`: all blocks of sentences as one function
        CPU, wide heads              `_absorbed`: heads read the tokens themselves (`is_absorbed`), then `attend`
        accelerator                  `_fused`: torch's scaled_dot_product_attention, with the whole batch as one block
        scores changed (`Scores`),   `_attend_plainly`: the formula above, one operation after the other, on every
          or weights recorded        device; on a CPU, wide heads are absorbed here too, if `Scores` allows it

    Decoding, one token at a time, has its own code: `cached_attention`.
    """

    def __init__(self, a: Architecture, positions: Positions | None) -> None:
        """`positions`: the stack's positions, for self-attention; None for cross-attention, which has none."""
        super().__init__()
        width, shared = a.num_heads * a.head_dim, a.kv_heads * a.head_dim
        self.num_heads, self.kv_heads, self.head_dim = a.num_heads, a.kv_heads, a.head_dim
        self.qk_norm = QkNorm(a)
        self.scale = self.qk_norm.scale(a.head_dim**-0.5 if positions is None else positions.scale(a.head_dim))
        self.scores = Scores(a, of_self=positions is not None)
        self.dropout = Dropout(a.attention_dropout)
        self.query = Linear(a.d_model, width, bias=a.attention_bias)
        self.key = Linear(a.d_model, shared, bias=a.attention_bias)
        self.value: Linear | SideBySide
        match a.values:
            case "both":
                self.value = SideBySide(a.d_model, a.d_token, shared, bias=a.attention_bias)
            case "hidden" | "tokens":
                self.value = Linear(a.d_value, shared, bias=a.attention_bias)
            case _:
                assert_never(a.values)
        self.output = Linear(width, a.d_model, bias=a.attention_bias)
        self.may_absorb = (
            self.scores.allow_absorption
            and not (positions is not None and positions.turns)
            and self.qk_norm.is_none
            and isinstance(self.value, Linear)
            and a.kv_heads == a.num_heads
        )
        """True if heads may be absorbed, both over whole sentences and while decoding.

        They may not if queries and keys are turned or normalised, because a score is then no product of projections;
        nor if half of the heads read other values than the rest; nor if heads share keys, because less is left to gain.
        """
        self.is_absorbed = self.absorbs(ABSORBED_AT)

    def absorbs(self, share: float) -> bool:
        """Return whether heads may be absorbed and the projections then take at most this share of the operations."""
        return self.may_absorb and cost(self.query.in_features, self.value.in_features, self.head_dim) <= share

    def absorbed(self) -> Absorbed:
        """Return the projections that remain when heads are absorbed; the scale is in the query's."""
        assert isinstance(self.value, Linear), "or it may not absorb"
        return absorb(self.query, self.key, self.value, self.output, self.num_heads, self.scale)

    def forward(
        self,
        queries_from: Float[Tensor, "R D"],
        keys_from: Float[Tensor, "S D"],
        values_from: Float[Tensor, "S M"],
        blocks: Blocks | LocalBlocks,
    ) -> Float[Tensor, "R D"]:
        """Attend within whole sentences. A query without keys gets zeros (then the output bias), never NaN."""
        if self.is_absorbed and packs(queries_from.device):
            return self._absorbed(queries_from, keys_from, values_from, blocks)
        queries = blocks.turn(self.qk_norm.queries(self.query(queries_from)))
        keys = blocks.turn(self.qk_norm.keys(self.key(keys_from)))
        values = self.value(values_from)
        if self._may_fuse and not packs(queries.device):
            return self.output(self._fused(queries, keys, values, blocks).to(queries.dtype))
        of_queries, of_keys = blocks.queries, blocks.keys_of(self.kv_heads)
        q, k, v = of_queries.to_blocks(queries), of_keys.to_blocks(keys), of_keys.to_blocks(values)
        heads, _ = self._attend(q, k, v, blocks, of_keys.sizes, self.scale)
        return self.output(of_queries.to_rows(heads).to(queries.dtype))

    @property
    def recorded(self) -> list[Tensor] | None:
        """Attention weights of each call in this thread, while `record` is open; otherwise None."""
        return _RECORDED.get({}).get(self)

    @property
    def _may_fuse(self) -> bool:
        """True if weights are a plain softmax and nobody records them, so that a kernel need not return them."""
        return self.scores.is_softmax and self.recorded is None

    @property
    def _dropout(self) -> float:
        return self.dropout.p if self.training else 0.0

    def _absorbed(
        self, queries_from: Tensor, keys_from: Tensor, values_from: Tensor, blocks: Blocks | LocalBlocks
    ) -> Tensor:
        """Attend as `forward` does, where the tokens are the keys and values of all heads (`kernels.absorption`)."""
        w_q, b_q, w_o, value_bias = self.absorbed()
        queries = blocks.queries.to_blocks(linear(queries_from, w_q, b_q))
        tokens = blocks.keys_of(1)
        keys = tokens.to_blocks(keys_from)
        values = keys if values_from is keys_from else tokens.to_blocks(values_from)
        heads, sums = self._attend(queries, keys, values, blocks, tokens.sizes, 1.0)
        out = linear(blocks.queries.to_rows(heads).to(w_o.dtype), w_o, self.output.bias)
        if value_bias is None:
            return out
        assert sums is not None
        return out + linear(blocks.queries.to_rows(sums).to(w_o.dtype), value_bias)

    def _fused(
        self,
        queries: Float[Tensor, "R HC"],
        keys: Float[Tensor, "S GC"],
        values: Float[Tensor, "S GC"],
        blocks: Blocks | LocalBlocks,
    ) -> Float[Tensor, "R HC"]:
        """Attend with torch's fused kernels, where one block holds the whole batch: on accelerators.

        Computed in fp32 at least. The gradient of a softmax's input sums to zero over the keys; rounded to bf16, it
        does not. The gradient of the key biases consists of such sums alone, so these biases would grow for as long as
        training lasts.
        """
        of_queries, of_keys, (block,) = blocks.queries, blocks.keys_of(self.kv_heads), blocks.blocks
        assert not isinstance(of_queries, PackedLayout)
        assert not isinstance(of_keys, PackedLayout)
        q = of_queries.heads(at_least_fp32(queries))
        k, v = of_keys.heads(at_least_fp32(keys)), of_keys.heads(at_least_fp32(values))
        if self.kv_heads < self.num_heads:
            k, v = (x.repeat_interleave(self.num_heads // self.kv_heads, dim=1) for x in (k, v))
        bias = block.bias.to(q.dtype).unflatten(0, q.shape[:2])
        with torch.autocast(q.device.type, enabled=False):
            heads = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=self._dropout, scale=self.scale)
        if block.has_key is not None:
            heads = heads * block.has_key.to(heads.dtype).unflatten(0, q.shape[:2])
        return of_queries.rows(heads)

    def _attend(
        self,
        queries: Float[Tensor, "Q C"],
        keys: Float[Tensor, "K C"],
        values: Float[Tensor, "K e"],
        blocks: Blocks | LocalBlocks,
        sizes: Sequence[tuple[int, int]],
        scale: float,
    ) -> tuple[Float[Tensor, "Q e"], Float[Tensor, "Q 1"] | None]:
        """Return the weighted means of values in the layout of the blocks, and for absorbed heads the sums of weights.

        `sizes`: (number of matrices, rows of each) for the keys of each block.
        """
        shapes = BlockShapes(blocks.blocks, blocks.queries.sizes, sizes)
        with torch.autocast(queries.device.type, enabled=False):  # products too small for bf16 to speed up
            queries, keys, values = (at_least_fp32(x) for x in (queries, keys, values))
            if self._may_fuse:
                sums = self.is_absorbed
                return attend(queries, keys, values, shapes, scale=scale, dropout=self._dropout, with_sums=sums)
            return self._attend_plainly(*shapes.parts(queries, keys, values), blocks, scale)

    def _attend_plainly(
        self,
        queries: list[Tensor],
        keys: list[Tensor],
        values: list[Tensor],
        blocks: Blocks | LocalBlocks,
        scale: float,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute what `_attend` does, one operation at a time: `Scores` changes scores, or weights are recorded.

        Each block's matrices are those of `BlockShapes.parts`: heads that share keys are rows of one matrix.
        """
        scores = [
            product(q, k.mT, block.bias.reshape(len(k), -1, k.shape[1]), scale).view(block.bias.shape)
            for q, k, block in zip(queries, keys, blocks.blocks, strict=True)
        ]
        weights = self.scores.weights(scores, blocks)
        self._record(weights, blocks)
        weights = [self.dropout(w) for w in weights]
        heads = [product(w.view(len(v), -1, v.shape[1]), v) for w, v in zip(weights, values, strict=True)]
        return join(heads), join([w.sum(2, keepdim=True) for w in weights]) if self.is_absorbed else None

    def _record(self, weights: Sequence[Tensor], blocks: Blocks | LocalBlocks) -> None:
        """Keep the weights if `record` is open."""
        if (recorded := self.recorded) is not None:
            recorded.append(blocks.padded([x.detach() for x in weights]))


_RECORDED: ContextVar[dict[nn.Module, list[Tensor]]] = ContextVar("recorded attention")
"""The recorded weights of each attention, per thread: other threads may use the same model meanwhile."""


@contextmanager
def record(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Record the attention weights of every attention in `model`, for calls of this thread.

    Yields a dict from module name to a list with one tensor (B, H, Q, K) per call.
    """
    attentions = {name: module for name, module in model.named_modules() if isinstance(module, Attention)}
    token = _RECORDED.set({module: [] for module in attentions.values()})
    try:
        yield {name: _RECORDED.get()[module] for name, module in attentions.items()}
    finally:
        _RECORDED.reset(token)
