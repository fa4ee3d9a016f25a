"""Packing: there and back, its gradient, and packed computation equal to padded."""

import pytest
import torch

from repose.model.kernels.packing import ROWS, Packing


def test_there_and_back(packing: Packing) -> None:
    x = torch.randn(*packing.mask.shape, 3)
    assert torch.equal(packing.pad(packing.pack(x)), x * packing.mask[:, :, None])
    assert torch.equal(packing.real(packing.pack(x)), x[packing.mask])


def test_columns_are_positions_in_the_sentence(packing: Packing) -> None:
    assert torch.equal(packing.real(packing.columns), packing.mask.nonzero()[:, 1])


def test_rows_come_in_few_numbers(packing: Packing) -> None:
    """So that a matrix library meets few shapes; what the spare rows hold is not seen, nor has it a gradient."""
    if not packing.packs:
        pytest.skip("there each position is a row")
    rows = packing.pack(torch.ones(*packing.mask.shape, 1))
    assert packing.is_full or len(rows) % ROWS == 0
    assert not rows[packing.num_tokens :].any()
    rows = torch.randn(len(rows), 2, requires_grad=True)
    packing.pad(rows).sum().backward()
    assert rows.grad is not None
    assert torch.equal(rows.grad[:, 0], (torch.arange(len(rows)) < packing.num_tokens).float())


def test_sums_are_over_real_tokens(packing: Packing) -> None:
    x = torch.randn(*packing.mask.shape, 3)
    torch.testing.assert_close(packing.without_padding(packing.pack(x)).sum(0), x[packing.mask].sum(0))


def test_rows_of_chosen_positions(packing: Packing) -> None:
    """Some of them twice."""
    x, cells = torch.randn(*packing.mask.shape, 3), packing.mask.flatten().nonzero().squeeze(1).repeat(2)
    assert torch.equal(packing.at(packing.pack(x), cells), x.flatten(0, 1)[cells])


def test_gradients(packing: Packing) -> None:
    x = torch.randn(*packing.mask.shape, 2, dtype=torch.float64, requires_grad=True)
    rows = torch.randn(len(packing.pack(x)), 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(packing.pack, (x,))
    assert torch.autograd.gradcheck(packing.pad, (rows,))
    assert torch.autograd.gradgradcheck(packing.pad, (rows,))


@pytest.mark.parametrize(
    ("sentences", "length", "rows"), [(40, 33, 1344), (300, 1, 300), (4, 5, 20), (64, 32, 2048), (100, 41, 4224)]
)
def test_many_rows_come_in_few_numbers_without_padding_too(sentences: int, length: int, rows: int) -> None:
    """Batches by tokens hold sentences of one length. A step of decoding and few rows stay as they are."""
    packing = Packing(torch.ones(sentences, length, dtype=torch.bool))
    x = torch.randn(sentences, length, 3, requires_grad=True)
    packed = packing.pack(x)
    assert len(packed) == rows
    assert torch.equal(packing.pad(packed), x)
    packing.pad(packed).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.ones_like(x))
