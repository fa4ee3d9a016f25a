"""R-Drop's loss and gradients against torch's own, written as in the paper."""

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
@pytest.mark.parametrize("rows", [1, 37, 64])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradients_are_those_of_the_formula(monkeypatch, with_bias, rows, smoothing):
    monkeypatch.setattr(loss, "CPU_LOGITS", 2 * 11 * 32)  # several chunks
    torch.manual_seed(0)
    leaves = [torch.randn(rows, 8), torch.randn(rows, 8), torch.randn(11, 8)] + ([torch.randn(11)] if with_bias else [])
    leaves = [leaf.double().requires_grad_() for leaf in leaves]
    labels = torch.randint(11, (rows,))
    bias = leaves[3] if with_bias else None
    ours = r_drop(*leaves[:3], bias, labels, label_smoothing=smoothing, alpha=5.0)
    gradients = torch.autograd.grad(ours.loss, leaves)
    expected = reference(*leaves[:3], bias, labels, smoothing, 5.0)
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


def test_a_tie_is_a_miss_and_nll_and_correct_are_means_of_both_passes():
    weight, labels = torch.eye(3), torch.tensor([0, 1, 2])
    sure, unsure = 4 * torch.eye(3), torch.zeros(3, 3)
    both = r_drop(sure, unsure, weight, None, labels, label_smoothing=0.1, alpha=1.0)
    each = [loss.cross_entropy(side, weight, None, labels) for side in (sure, unsure)]
    assert [float(one.correct) for one in each] == [3, 0]
    assert float(both.correct) == 1.5
    torch.testing.assert_close(both.nll, (each[0].nll + each[1].nll) / 2, rtol=1e-6, atol=1e-6)


def test_logits_far_apart_and_no_rows_at_all():
    weight, labels = torch.eye(3), torch.tensor([0, 1])
    far = torch.tensor([[300.0, 0, 0], [300.0, 0, 0]]).requires_grad_()
    near = torch.zeros(2, 3, requires_grad=True)
    sums = r_drop(far, near, weight, None, labels, label_smoothing=0.1, alpha=1.0)
    expected = reference(far, near, weight, None, labels, 0.1, 1.0)
    torch.testing.assert_close(sums.loss.float(), expected, rtol=1e-5, atol=1e-5)
    ours, theirs = (torch.autograd.grad(each, (far, near)) for each in (sums.loss, expected))
    for gradient, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(gradient, right, rtol=1e-5, atol=1e-5)
    none = r_drop(far[:0], near[:0], weight, None, labels[:0], label_smoothing=0.1, alpha=1.0)
    assert [each.item() for each in none] == [0, 0, 0]


@pytest.mark.parametrize("block", [1, 100, 1 << 18])
def test_under_autocast(monkeypatch, block):
    monkeypatch.setattr(loss, "CPU_NARROW_LOGITS", 2 * 11 * 32)  # several chunks
    monkeypatch.setattr(loss, "CPU_BLOCK", block)
    torch.manual_seed(0)
    leaves = [torch.randn(37, 8), torch.randn(37, 8), torch.randn(11, 8), torch.randn(11)]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    labels = torch.randint(11, (37,))
    with torch.autocast("cpu", torch.bfloat16):
        ours = r_drop(*leaves, labels, label_smoothing=0.1, alpha=1.0)
    expected = reference(*leaves, labels, 0.1, 1.0)
    assert ours.loss.item() == pytest.approx(expected.item(), rel=1e-2)
    gradients = zip(torch.autograd.grad(ours.loss, leaves), torch.autograd.grad(expected, leaves), strict=True)
    for gradient, right in gradients:
        torch.testing.assert_close(gradient, right, rtol=0, atol=0.15)
