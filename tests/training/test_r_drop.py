"""R-Drop's loss and gradients against torch's own, written down as in the paper."""

import pytest
import torch
import torch.nn.functional as F

from repose.training import loss
from repose.training.r_drop import r_drop


def reference(first, second, weight, bias, labels, smoothing, alpha):
    """Half of eq. 4 of arXiv 2106.14448, summed over tokens, by autograd."""
    logs = [F.log_softmax(F.linear(side, weight, bias), 1) for side in (first, second)]
    entropies = [
        F.cross_entropy(F.linear(side, weight, bias), labels, label_smoothing=smoothing, reduction="sum")
        for side in (first, second)
    ]
    divergences = [
        F.kl_div(a, b, reduction="sum", log_target=True) for a, b in ((logs[0], logs[1]), (logs[1], logs[0]))
    ]
    return sum(entropies) / 2 + alpha / 2 * sum(divergences) / 2


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("rows", [1, 37])
def test_loss_and_gradients_are_those_of_the_formula(monkeypatch, with_bias, rows):
    monkeypatch.setattr(loss, "CPU_LOGITS", 11 * 32)  # several chunks
    torch.manual_seed(0)
    leaves = [torch.randn(rows, 8), torch.randn(rows, 8), torch.randn(11, 8)] + ([torch.randn(11)] if with_bias else [])
    leaves = [leaf.double().requires_grad_() for leaf in leaves]
    labels = torch.randint(11, (rows,))
    bias = leaves[3] if with_bias else None
    ours = r_drop(*leaves[:3], bias, labels, label_smoothing=0.1, alpha=5.0)
    gradients = torch.autograd.grad(ours.loss, leaves)
    expected = reference(*leaves[:3], bias, labels, 0.1, 5.0)
    torch.testing.assert_close(ours.loss.detach(), expected.detach(), rtol=1e-5, atol=1e-5)
    for gradient, right in zip(gradients, torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(gradient, right, rtol=1e-4, atol=1e-5)


def test_two_equal_passes_cost_what_one_does():
    torch.manual_seed(0)
    hidden, weight, labels = torch.randn(5, 8), torch.randn(11, 8), torch.randint(11, (5,))
    both = r_drop(hidden, hidden, weight, None, labels, label_smoothing=0.1, alpha=5.0)
    one = loss.cross_entropy(hidden, weight, None, labels, label_smoothing=0.1)
    for ours, theirs in zip(both, one, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
