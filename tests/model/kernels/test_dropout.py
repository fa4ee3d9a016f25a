"""Dropout: its distribution, scale and gradient, and that torch's seed rules it."""

import pytest
import torch

from repose.model.kernels.dropout import Dropout


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_it_drops_independently_with_probability_p_and_keeps_the_mean(p: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(300, 1001)
    out = Dropout(p)(x)
    dropped = (out == 0).double()
    deviation = (p * (1 - p) / x.numel()) ** 0.5
    assert dropped.mean().item() == pytest.approx(p, abs=5 * deviation)
    assert out[out != 0].unique().numel() == 1
    assert out.max().item() == pytest.approx(1 / (1 - p), rel=1e-4)
    neighbours = (dropped[:, 1:] * dropped[:, :-1]).mean().item()
    assert neighbours == pytest.approx(p * p, abs=5 * (p * p / x.numel()) ** 0.5)


def test_the_gradient_falls_where_the_output_did_not() -> None:
    x = torch.randn(40, 3, requires_grad=True)
    out = Dropout(0.5)(x)
    out.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, out.detach() / x.detach())


def test_torchs_seed_decides() -> None:
    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        dropout = Dropout(0.5)
        return torch.stack([dropout(torch.ones(99)), dropout(torch.ones(99))])

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    assert not torch.equal(*draw(1))


def test_nothing_is_dropped_in_evaluation_and_everything_at_one() -> None:
    x = torch.randn(5)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(1.0)(x), torch.zeros(5))
    assert Dropout(0.3)(x.double()).dtype == torch.float64
