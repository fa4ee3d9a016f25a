"""Fused attention for a CPU: softmax(s Q Kᵀ + B) V of all blocks as one function, with its own backward pass.

With separate operations, attention over six blocks takes some sixty of them, of a few microseconds each, and as many
nodes of autograd's graph. Together with the copies between them, they took longer than the products.

With scores S = s Q Kᵀ + B, weights P = softmax(S) and the weights after dropout W = m ⊙ P (m is 0 or 1 / (1 - p), for a
dropout rate of p):

    O = W V                          dV = Wᵀ dO
                                     dP = m ⊙ (dO Vᵀ)
    dB = dS = P ⊙ (dP - rowsum(P ⊙ dP))
                                     dQ = s dS K,  dK = s dSᵀ Q
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from repose.model.kernels.blocks import Block, split
from repose.model.kernels.dropout import keep_factors
from repose.model.kernels.linear import products_of_new_shapes


class BlockShapes(NamedTuple):
    """The blocks, and the sizes of their matrices of queries and keys, which follow one another in two tensors."""

    blocks: Sequence[Block]
    queries: Sequence[tuple[int, int]]
    """(b, q) for each block: b matrices of q queries."""
    keys: Sequence[tuple[int, int]]
    """(b, k) for each block: b matrices of k keys. If b is smaller than for the queries, heads share their keys."""

    def parts(self, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Return each block's queries, keys and values, (b, l, C)."""
        return self.of_queries(queries), split(keys, self.keys), split(values, self.keys)

    def of_queries(self, flat: Float[Tensor, "n C"]) -> list[Tensor]:
        """Return each block's queries; those of heads that share keys are rows of one matrix."""
        sizes = ((b, heads * q // b) for (heads, q), (b, _) in zip(self.queries, self.keys, strict=True))
        return split(flat, list(sizes))


def attend(
    queries: Float[Tensor, "Q C"],
    keys: Float[Tensor, "K C"],
    values: Float[Tensor, "K e"],
    shapes: BlockShapes,
    *,
    scale: float,
    dropout: float,
    with_sums: bool = False,
) -> tuple[Float[Tensor, "Q e"], Float[Tensor, "Q 1"] | None]:
    """Return O, and `with_sums` also the sum of each query's weights, which is not 1 after dropout. For a CPU.

    A query without keys gets zeros. Biases that require a gradient get one.
    """
    biases = [block.bias for block in shapes.blocks]
    return _Attend.apply(queries, keys, values, shapes, scale, dropout, with_sums, *biases)  # type: ignore[no-untyped-call]


def product(
    a: Float[Tensor, "n i j"], b: Float[Tensor, "n j k"], plus: Float[Tensor, "n i k"] | None = None, scale: float = 1.0
) -> Float[Tensor, "n i k"]:
    """Return a b, or scale · a b + plus, for blocks that `attend` does not handle."""
    assert plus is not None or scale == 1
    return _Product.apply(a, b, plus, scale)  # type: ignore[no-untyped-call]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, plus: Tensor | None, scale: float) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.scale = scale
        with products_of_new_shapes():
            return torch.bmm(a, b) if plus is None else torch.baddbmm(plus.to(a.dtype), a, b, alpha=scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        a, b = ctx.saved_tensors
        with products_of_new_shapes():
            scaled = grad if ctx.scale == 1 else grad * ctx.scale
            return torch.bmm(scaled, b.mT), torch.bmm(a.mT, scaled), grad if ctx.needs_input_grad[2] else None, None


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        shapes: BlockShapes,
        scale: float,
        dropout: float,
        with_sums: bool,
        *biases: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        out, weights, sums = queries.new_empty(len(queries), values.shape[1]), [], []
        factors = _factors(shapes, dropout, queries)
        with products_of_new_shapes():
            parts = zip(*shapes.parts(queries, keys, values), shapes.of_queries(out), biases, factors, strict=True)
            for q, k, v, o, bias, factor in parts:
                scores = torch.baddbmm(bias.to(q.dtype).reshape(len(q), q.shape[1], -1), q, k.mT, alpha=scale)
                p = scores.softmax(-1)
                weights.append(p)
                w = p if factor is None else p * factor
                torch.bmm(w, v, out=o)
                if with_sums:
                    sums.append(w.sum(2).view(-1, 1))
        ctx.save_for_backward(queries, keys, values, *weights)
        ctx.shapes, ctx.scale, ctx.factors = shapes, scale, factors
        ctx.set_materialize_grads(False)
        return out, torch.cat(sums) if with_sums else None

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor | None, grad_sums: Tensor | None) -> tuple[Tensor | None, ...]:
        queries, keys, values, *weights = ctx.saved_tensors
        shapes, scale = ctx.shapes, ctx.scale
        if grad_out is None:
            grad_out = queries.new_zeros(len(queries), values.shape[1])
        grads = [torch.empty_like(x) for x in (queries, keys, values)]
        of_sums = [None] * len(weights) if grad_sums is None else shapes.of_queries(grad_sums.contiguous())
        of_biases = []
        with products_of_new_shapes():
            inputs, outputs = shapes.parts(queries, keys, values), shapes.parts(*grads)
            parts = zip(
                *inputs, *outputs, shapes.of_queries(grad_out.contiguous()), of_sums, weights, ctx.factors, strict=True
            )
            for q, k, v, grad_q, grad_k, grad_v, grad_o, grad_sum, p, factor in parts:
                w, grad_p = p, torch.bmm(grad_o, v.mT)
                if grad_sum is not None:
                    grad_p += grad_sum
                if factor is not None:
                    w = p * factor
                    grad_p *= factor
                torch.bmm(w.mT, grad_o, out=grad_v)
                grad_s = torch._softmax_backward_data(grad_p, p, -1, p.dtype)
                torch.baddbmm(grad_q, grad_s, k, beta=0, alpha=scale, out=grad_q)
                torch.baddbmm(grad_k, grad_s.mT, q, beta=0, alpha=scale, out=grad_k)
                of_biases.append(grad_s)
        shaped = zip(of_biases, shapes.blocks, ctx.needs_input_grad[7:], strict=True)
        for_biases = [g.view(b.bias.shape).to(b.bias.dtype) if needed else None for g, b, needed in shaped]
        return *grads, None, None, None, None, *for_biases


def _factors(shapes: BlockShapes, dropout: float, like: Tensor) -> list[Tensor | None]:
    """Return the factors on each block's weights: dropout's 0 or 1 / (1 - p), and 0 for a query without keys."""
    factors: list[Tensor | None] = []
    for block, (b, _) in zip(shapes.blocks, shapes.keys, strict=True):
        shape, factor = block.bias.shape, None
        if dropout:
            factor = keep_factors(shape.numel(), dropout, like.dtype).view(shape)
        if block.has_key is not None:
            has_key = block.has_key.to(like.dtype)
            factor = has_key.expand(shape) if factor is None else factor * has_key
        factors.append(None if factor is None else factor.reshape(b, -1, shape[2]))
    return factors
