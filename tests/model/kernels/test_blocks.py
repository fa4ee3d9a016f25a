"""Blocks: every sentence in one, there and back with its gradient, and the same attention however a batch is cut."""

import pytest
import torch
from torch import Tensor

from repose.model.architecture import Architecture
from repose.model.attention import Attention
from repose.model.kernels import blocks
from repose.model.kernels.blocks import Blocks, join, split
from repose.model.kernels.packing import Packing

ONE_LONG = [[1] * 8, [1, 1] + [0] * 6, [1] * 3 + [0] * 5, [1, 1, 1] + [0] * 5]


def test_every_sentence_is_in_one_block_of_like_lengths() -> None:
    packing = Packing(torch.tensor(ONE_LONG, dtype=torch.bool))
    cut = Blocks(packing, packing, num_heads=1).blocks
    assert [block.sentences.tolist() for block in cut] == [[0], [2, 3], [1]]
    assert [tuple(block.bias.shape) for block in cut] == [(1, 8, 8), (2, 3, 3), (1, 2, 2)]


def test_there_and_back(packing: Packing) -> None:
    cut = Blocks(packing, packing, num_heads=2)
    rows = packing.pack(torch.randn(*packing.mask.shape, 6))
    assert torch.equal(cut.queries.to_rows(join(split(cut.queries.to_blocks(rows), cut.queries.sizes))), rows)
    assert not cut.keys_of(2).to_blocks(rows).isnan().any()


def test_gradients(packing: Packing) -> None:
    cut = Blocks(packing, packing, num_heads=2)
    rows = packing.pack(torch.randn(*packing.mask.shape, 4, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(cut.keys_of(2).to_blocks, (rows,))
    assert torch.autograd.gradcheck(cut.queries.to_rows, (cut.queries.to_blocks(rows).detach().requires_grad_(),))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_the_same_however_the_batch_is_cut(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    a = Architecture(d_token=6, num_heads=2, head_dim=3, attention_bias=True)
    attention = Attention(a, None).double()
    queries = Packing(torch.tensor(ONE_LONG, dtype=torch.bool))
    keys = queries if causal else Packing(torch.rand(4, 9) < 0.5)
    x, y = (p.pack(torch.randn(*p.mask.shape, 6, dtype=torch.float64)).requires_grad_() for p in (queries, keys))

    def run() -> tuple[Tensor, ...]:
        out = queries.real(
            attention(x, x if causal else y, x if causal else y, Blocks(queries, keys, num_heads=2, causal=causal))
        )
        return out, *torch.autograd.grad(out.square().sum(), (x,) if causal else (x, y))

    cut = run()
    monkeypatch.setattr(blocks, "SHORTEST", 0.0)  # all sentences together
    for a, b in zip(cut, run(), strict=True):
        torch.testing.assert_close(a, b)
