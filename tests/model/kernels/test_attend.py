"""Attention as one function: its numbers and gradients are those of separate operations."""

import dataclasses

import pytest
import torch
from torch import Tensor

from repose.model.kernels.attend import BlockShapes, attend, product
from repose.model.kernels.blocks import Block

SCALE = 0.7


def shapes(*, shared: bool, has_key: bool) -> BlockShapes:
    """Two blocks of two heads: one sentence of 3 queries and 2 keys, two of 1 query and 4 keys."""
    sizes = ((1, 3, 2), (2, 1, 4))
    blocks = []
    for b, q, k in sizes:
        some = torch.ones(2 * b, q, 1, dtype=torch.float64)
        some[0, 0] = 0
        bias = torch.randn(2 * b, q, k, dtype=torch.float64)
        bias.requires_grad_()
        blocks.append(Block(sentences=torch.arange(b), bias=bias, has_key=some if has_key else None, own=None))
    heads = 1 if shared else 2
    return BlockShapes(blocks, [(2 * b, q) for b, q, _ in sizes], [(heads * b, k) for b, _, k in sizes])


def inputs(shared: bool) -> list[Tensor]:
    """10 queries, 20 keys and values or, where heads share them, 10."""
    rows = (10, 10, 10) if shared else (10, 20, 20)
    return [
        torch.randn(n, width, dtype=torch.float64, requires_grad=True) for n, width in zip(rows, (3, 3, 5), strict=True)
    ]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("has_key", [False, True])
def test_it_is_what_its_formula_says(shared: bool, has_key: bool) -> None:
    where, (queries, keys, values) = shapes(shared=shared, has_key=has_key), inputs(shared)
    out, sums = attend(queries, keys, values, where, scale=SCALE, dropout=0.0, with_sums=True)
    q, k, v = (x.detach() for x in (queries, keys, values))
    wanted, at, of = [], 0, 0
    for block, (heads, length), (_, num_keys) in zip(where.blocks, where.queries, where.keys, strict=True):
        for head in range(heads):
            place = of + num_keys * (head // 2 if shared else head)
            mine, theirs = slice(at, at + length), slice(place, place + num_keys)
            weights = (SCALE * q[mine] @ k[theirs].T + block.bias[head].detach()).softmax(1)
            weights = weights if block.has_key is None else weights * block.has_key[head]
            wanted.append(torch.cat([weights @ v[theirs], weights.sum(1, keepdim=True)], 1))
            at += length
        of += num_keys * (heads // 2 if shared else heads)
    torch.testing.assert_close(torch.cat([out, sums], 1), torch.cat(wanted))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_gradients(shared: bool, dropout: float) -> None:
    where, tensors = shapes(shared=shared, has_key=True), inputs(shared)

    def run(q: Tensor, k: Tensor, v: Tensor, *biases: Tensor) -> tuple[Tensor, ...]:
        torch.manual_seed(3)  # the same weights are dropped each time
        there = where._replace(
            blocks=[dataclasses.replace(b, bias=x) for b, x in zip(where.blocks, biases, strict=True)]
        )
        out, sums = attend(q, k, v, there, scale=SCALE, dropout=dropout, with_sums=shared)
        return (out,) if sums is None else (out, sums)

    assert torch.autograd.gradcheck(run, (*tensors, *(block.bias for block in where.blocks)))


def test_products_have_their_gradients() -> None:
    shapes = (2, 3, 4), (2, 4, 5), (2, 3, 5)
    a, b, plus = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    assert torch.autograd.gradcheck(product, (a, b))
    assert torch.autograd.gradcheck(lambda *x: product(*x, SCALE), (a, b, plus))
    torch.testing.assert_close(product(a, b, plus, SCALE), SCALE * a @ b + plus)
