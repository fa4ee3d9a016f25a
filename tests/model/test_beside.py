"""Gradients of weights computed beside the others are those of autograd."""

import pytest
import torch
from tests.axes import AXES, ids, one_for_each_value
from tests.model.test_on_accelerators import LABELS, SIZES, SRC, TGT, made

from repose.model.architecture import Architecture
from repose.model.kernels.beside import Beside
from repose.model.kernels.linear import Linear
from repose.model.transformer import Transformer
from repose.training.loss import cross_entropy

DRAWN = list(one_for_each_value(AXES, **SIZES))


def gradients(model: Transformer) -> list[torch.Tensor]:
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for _ in range(2):  # they are added up
        sums = cross_entropy(model.hidden(SRC, TGT), model.output.weight, model.output.bias, LABELS)
        sums.loss.backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("a", DRAWN, ids=ids(AXES, DRAWN))
def test_every_axis(a: Architecture) -> None:
    torch.manual_seed(0)
    model = made(a)
    wanted = gradients(model)
    beside = Beside(None, {})
    with beside.active():
        found = gradients(model)
    assert len(found) == len(wanted) > 3
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_products_under_autocast_read_the_copies() -> None:
    """The others do not."""
    layer, x = Linear(8, 4), torch.randn(2, 3, 8)
    narrow = {p: torch.full_like(p, 0.5, dtype=torch.bfloat16) for p in layer.parameters()}
    outside = layer(x)
    beside = Beside(None, narrow)
    with beside.active():
        torch.testing.assert_close(layer(x), outside)
        with torch.autocast("cpu", torch.bfloat16):
            out = layer(x)
        with torch.no_grad():
            torch.testing.assert_close(layer(x), outside)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(
        out.float(), (0.5 * x.bfloat16().float().sum(-1, keepdim=True) + 0.5).expand(2, 3, 4), atol=0.1, rtol=0.02
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_gradient_is_computed_in_the_dtype_of_products_and_added_in_that_of_weights(dtype: torch.dtype) -> None:
    layer, x = Linear(8, 4), torch.randn(5, 8, requires_grad=True)
    narrow = {p: p.detach().to(dtype) for p in layer.parameters()}
    found = []
    for used in (None, Beside(None, narrow)):
        for parameter in (*layer.parameters(), x):
            parameter.grad = torch.ones_like(parameter)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            out = layer(x) if used is None else used.linear(x, layer.weight, layer.bias)
        out.float().square().sum().backward()
        found.append([p.grad for p in (*layer.parameters(), x)])
    for ours, theirs in zip(*found, strict=True):
        assert ours is not None
        assert theirs is not None
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)
