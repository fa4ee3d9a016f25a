"""Multi-head attention over packed queries, with keys and values that may come from different tensors."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from repose.model.architecture import ScoreResidual, SelfScore
from repose.model.cached_attention import Stepper
from repose.model.kernels.absorption import cost, together
from repose.model.kernels.blocks import Block, Blocks
from repose.model.kernels.cache import Cache
from repose.model.kernels.dropout import Dropout
from repose.model.kernels.linear import Linear, linear
from repose.model.kernels.local import Bands
from repose.model.positions import Rotary

TOGETHER = 0.75
"""Share of the projections' operations at which heads read tokens themselves, which takes some products of weights."""


class Attention(nn.Module):
    """MultiHead(Q, K, V) = [head_1 .. head_H] W^O, head_k = softmax(Q W_k^Q (K W_k^K)^T / sqrt(C)) V W_k^V.

    Vaswani et al. 3.2.2. Order: content scores x scale, scores of positions, the layer before's scores, all of which
    the next layer is given; then the token's own score, the mask, softmax, dropout.

        own_score        zero: score_ii = 0 (arXiv 2310.10930, 3.4: "zero masked self-attention", the attention score
                         being the dot product of its 2.4); exclude: -inf; zero_weights: 0 after softmax, no sum of 1
        score_residual   S_l = Q K^T / sqrt(C) + S_(l-1), softmax(S_l) (RealFormer, He et al. 2021, arXiv 2012.11747)

    Queries and keys are d_model wide; values may be narrower (arXiv 2410.04731 eq. 12-19:
    the token embeddings). The scale is 1/sqrt(head_dim); eq. 12 prints 1/sqrt(m), the same number at the paper's sizes.
    Additive attention (Vaswani et al. 3.2.1) is left out: they found it slower and no better once scores are scaled.
    """

    recorded: list[Tensor] | None = None
    """Attention weights of each call, while `record` is on."""

    def __init__(
        self,
        *,
        d_model: int,
        d_value: int,
        num_heads: int,
        head_dim: int,
        bias: bool,
        dropout: float,
        scale: float | None = None,
        own_score: SelfScore = "keep",
        score_residual: ScoreResidual = "none",
        rotary: Rotary | None = None,
    ) -> None:
        """`scale` None: 1/sqrt(head_dim). `own_score` and `rotary` are for self-attention, where `Blocks` does
        `exclude` itself."""
        super().__init__()
        width = num_heads * head_dim
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.scale = head_dim**-0.5 if scale is None else scale
        self.own_score, self.score_residual, self.rotary = own_score, score_residual, rotary
        self.dropout = Dropout(dropout)
        self.query = Linear(d_model, width, bias=bias)
        self.key = Linear(d_model, width, bias=bias)
        self.value = Linear(d_value, width, bias=bias)
        self.output = Linear(width, d_model, bias=bias)
        self.reads_scores = own_score in ("zero", "zero_weights") or score_residual != "none"
        plain = not self.reads_scores and rotary is None
        self.is_together = plain and cost(d_model, d_value, head_dim) <= TOGETHER

    def forward(
        self,
        queries_from: Float[Tensor, "R D"],
        keys_from: Float[Tensor, "S D"],
        values_from: Float[Tensor, "S M"],
        blocks: Blocks | Bands,
    ) -> Float[Tensor, "R D"]:
        """Attends within whole sentences. A query without keys gets zeros (then the output bias), never NaN."""
        if self.is_together and queries_from.device.type == "cpu":
            return self._together(queries_from, keys_from, values_from, blocks)
        q, k = self.query(queries_from), self.key(keys_from)
        if self.rotary is not None:
            q, k = (self.rotary(rows, blocks.positions) for rows in (q, k))
        queries, keys = blocks.split_queries(q), blocks.split_keys(k)
        values = blocks.split_keys(self.value(values_from))
        if queries_from.device.type != "cpu" and not self.reads_scores and self.recorded is None:
            dropout = self.dropout.p if self.training else 0.0
            parts = zip(queries, keys, values, blocks.blocks, strict=True)
            return self.output(blocks.join_queries([fused(*x, self.num_heads, self.scale, dropout) for x in parts]))
        with torch.autocast(queries_from.device.type, enabled=False):  # small products, which bf16 makes no faster
            queries, keys, values = ([_wide(x) for x in rows] for rows in (queries, keys, values))
            weights = self._weights(queries, keys, blocks)
            self._record(weights, blocks)
            heads = [self.dropout(w) @ v for w, v in zip(weights, values, strict=True)]
        return self.output(blocks.join_queries(heads))

    def _weights(
        self, queries: Sequence[Tensor], keys: Sequence[Tensor], blocks: Blocks | Bands
    ) -> list[Float[Tensor, "n q k"]]:
        """softmax(scale Q K^T) over the keys that each query may attend to; zeros where there is none."""
        scores = [
            torch.baddbmm(block.bias.to(q.dtype), q, k.mT, alpha=self.scale)
            for q, k, block in zip(queries, keys, blocks.blocks, strict=True)
        ]
        if self.score_residual == "previous_layer":
            if blocks.scores is not None:
                scores = [x + before for x, before in zip(scores, blocks.scores, strict=True)]
            blocks.scores = scores
        return [self._normalised(x, block) for x, block in zip(scores, blocks.blocks, strict=True)]

    def _normalised(self, scores: Float[Tensor, "n q k"], block: Block) -> Float[Tensor, "n q k"]:
        """The softmax, with a token's score of itself as `own_score` says."""
        own = block.own
        match self.own_score:
            case "zero":
                assert own is not None
                weights = scores.masked_fill(own, 0.0).softmax(dim=2)
            case "zero_weights":
                assert own is not None
                weights = scores.softmax(dim=2).masked_fill(own, 0.0)
            case "keep" | "exclude":
                weights = scores.softmax(dim=2)
        return weights if block.answered is None else weights * block.answered

    def _together(self, queries_from: Tensor, keys_from: Tensor, values_from: Tensor, blocks: Blocks | Bands) -> Tensor:
        w_q, b_q, w_o, value_bias = together(self.query, self.key, self.value, self.output, self.num_heads, self.scale)
        queries = blocks.split_queries(linear(queries_from, w_q, b_q))
        keys = blocks.split_tokens(keys_from)
        values = keys if values_from is keys_from else blocks.split_tokens(values_from)
        heads, sums, maps = [], [], []
        for q, k, v, block in zip(queries, keys, values, blocks.blocks, strict=True):
            with torch.autocast("cpu", enabled=False):
                q, k, v = (_wide(x) for x in (q, k, v))
                scores = torch.baddbmm(
                    block.bias.to(q).view(len(k), -1, k.shape[1]), q.view(len(k), -1, k.shape[2]), k.mT
                )
                weights = scores.softmax(dim=2)
                if block.answered is not None:
                    weights = weights * block.answered.view(len(k), -1, 1)
                maps.append(weights.view(*q.shape[:2], -1))
                weights = self.dropout(weights)
                heads.append((weights @ v).view(*q.shape[:2], -1))
                sums.append(weights.sum(2).view(*q.shape[:2], 1))
        self._record(maps, blocks)
        out = linear(blocks.join_queries(heads), w_o, self.output.bias)
        return out if value_bias is None else out + linear(blocks.join_queries(sums), value_bias)

    def _record(self, weights: Sequence[Tensor], blocks: Blocks | Bands) -> None:
        """Keep the weights, while `record` is on."""
        if self.recorded is not None:
            self.recorded.append(blocks.padded([x.detach() for x in weights]))

    def stepper(self, cache: Cache) -> Stepper:
        """This attention as decoding with `cache` uses it."""
        return cache.once(
            self,
            lambda: Stepper(
                self.query,
                self.key,
                self.value,
                self.output,
                self.num_heads,
                scale=self.scale,
                own_score=self.own_score,
                score_residual=self.score_residual,
                rotary=self.rotary,
            ),
        )


def _wide(x: Tensor) -> Tensor:
    """In fp32, or as it is if it is wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def fused(
    queries: Float[Tensor, "bh q c"],
    keys: Float[Tensor, "bh k c"],
    values: Float[Tensor, "bh k c"],
    block: Block,
    num_heads: int,
    scale: float,
    dropout: float,
) -> Float[Tensor, "bh q c"]:
    """The block's attention by torch's fused kernels, for accelerators: they want four dimensions and one dtype."""
    q, k, v, bias = (x.unflatten(0, (-1, num_heads)) for x in (queries, keys, values, block.bias.to(queries.dtype)))
    heads = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout, scale=scale).flatten(0, 1)
    return heads if block.answered is None else heads * block.answered.to(heads.dtype)


@contextmanager
def record(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """While open, every attention in `model` keeps its weights: module name -> (B, H, Q, K) per call."""
    attentions = {name: module for name, module in model.named_modules() if isinstance(module, Attention)}
    for module in attentions.values():
        module.recorded = []
    try:
        yield {name: module.recorded for name, module in attentions.items() if module.recorded is not None}
    finally:
        for module in attentions.values():
            module.recorded = None
