import pytest
import torch
from torch.nn import functional as F

from repose.training import loss as loss_module
from repose.training.loss import cross_entropy, token_losses


@pytest.fixture(params=["one chunk", "many chunks"])
def _chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "many chunks":
        monkeypatch.setattr(loss_module, "CPU_LOGITS", 40)  # 3 rows of 13 logits
        monkeypatch.setattr(loss_module, "CPU_NARROW_LOGITS", 40)


def draw(dtype: torch.dtype = torch.float32, *, rows: int = 17, bias: bool = True) -> list[torch.Tensor | None]:
    generator = torch.Generator().manual_seed(3)
    hidden, weight, offset = (
        torch.randn(shape, generator=generator, dtype=dtype, requires_grad=True)
        for shape in ((rows, 5), (13, 5), (13,))
    )
    return [hidden, weight, offset if bias else None, torch.randint(0, 13, (rows,), generator=generator)]


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
def test_equals_torch(smoothing: float, bias: bool) -> None:
    hidden, weight, offset, labels = draw(bias=bias)
    logits = F.linear(hidden, weight, offset)
    expected = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    inputs = [tensor for tensor in (hidden, weight, offset) if tensor is not None]
    wanted = torch.autograd.grad(expected, inputs)
    sums = cross_entropy(hidden, weight, offset, labels, label_smoothing=smoothing)
    found = torch.autograd.grad(3 * sums.loss, inputs)
    # Sums of about 60 nats in fp32.
    assert sums.loss.item() == pytest.approx(expected.item(), rel=2e-6)
    assert float(sums.nll) == pytest.approx(F.cross_entropy(logits, labels, reduction="sum").item(), rel=2e-6)
    assert int(sums.correct) == int((logits.argmax(1) == labels).sum())
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, 3 * theirs, rtol=1e-5, atol=5e-6)


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_gradient_is_that_of_the_loss(smoothing: float) -> None:
    hidden, weight, bias, labels = draw(torch.float64)
    assert torch.autograd.gradcheck(
        lambda h, w, b: cross_entropy(h, w, b, labels, label_smoothing=smoothing).loss, (hidden, weight, bias)
    )


def test_tied_weights_get_both_gradients() -> None:
    hidden, weight, _, labels = draw(rows=4)
    rows = weight[labels] + hidden.detach()  # the embedding is the projection
    expected = F.cross_entropy(rows @ weight.t(), labels, reduction="sum")
    (wanted,) = torch.autograd.grad(expected, [weight], retain_graph=True)
    (found,) = torch.autograd.grad(cross_entropy(rows, weight, None, labels).loss, [weight])
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("_chunks")
def test_token_losses() -> None:
    hidden, weight, bias, labels = draw()
    logits = F.linear(hidden, weight, bias)
    nll, correct = token_losses(hidden, weight, bias, labels)
    assert not nll.requires_grad
    torch.testing.assert_close(nll, F.cross_entropy(logits, labels, reduction="none"), rtol=1e-5, atol=1e-6)
    assert torch.equal(correct, logits.argmax(1) == labels)


def test_no_rows() -> None:
    hidden, weight, bias, labels = draw(rows=0)
    sums = cross_entropy(hidden, weight, bias, labels)
    sums.loss.backward()
    assert sums.loss.item() == 0.0
    assert torch.equal(weight.grad, torch.zeros_like(weight))
    assert len(token_losses(hidden, weight, bias, labels)[0]) == 0


def test_far_apart_logits_stay_finite() -> None:
    hidden = torch.tensor([[1e4], [-1e4]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0]], requires_grad=True)
    sums = cross_entropy(hidden, weight, None, torch.tensor([1, 1]))
    sums.loss.backward()
    assert sums.loss.item() == pytest.approx(2e4)
    assert int(sums.correct) == 1
    assert hidden.grad.tolist() == [[2.0], [0.0]]


def test_a_tie_is_a_miss() -> None:
    sums = cross_entropy(torch.zeros(3, 2), torch.zeros(4, 2), None, torch.tensor([0, 1, 3]))
    assert int(sums.correct) == 0
    assert float(sums.nll) == pytest.approx(3 * torch.log(torch.tensor(4.0)).item(), rel=1e-6)


def test_not_a_number_is_not_hidden() -> None:
    sums = cross_entropy(torch.full((2, 2), float("nan")), torch.zeros(4, 2), None, torch.tensor([0, 1]))
    assert torch.isnan(sums.loss)


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("block", [1, 30, 1 << 18])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_under_autocast(smoothing: float, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "CPU_BLOCK", block)
    hidden, weight, bias, labels = draw()
    expected = F.cross_entropy(F.linear(hidden, weight, bias), labels, label_smoothing=smoothing, reduction="sum")
    wanted = torch.autograd.grad(expected, (hidden, weight, bias))
    with torch.autocast("cpu", torch.bfloat16):
        sums = cross_entropy(hidden, weight, bias, labels, label_smoothing=smoothing)
    found = torch.autograd.grad(sums.loss, (hidden, weight, bias))
    # bf16 has 8 bits: logits of size 5 are off by up to 0.02.
    assert sums.loss.item() == pytest.approx(expected.item(), rel=1e-2)
    assert sums.loss.item() != expected.item()
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, rtol=0.0, atol=0.1)
