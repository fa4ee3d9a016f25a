"""Token normalization against eq. 4-9 in loops, and its pitfalls."""

import pytest
import torch
from torch import Tensor

from repose.model.architecture import TokenNormKind
from repose.model.kernels.cache import Cache
from repose.model.kernels.packing import Packing
from repose.model.token_norm import TokenNorm, vocabulary_statistics, welford

EPS = 1e-6
LENGTHS = (5, 1, 3)


@pytest.fixture
def packing() -> Packing:
    return Packing(torch.arange(6)[None] < torch.tensor(LENGTHS)[:, None])


@pytest.fixture
def x(packing: Packing) -> Tensor:
    return packing.pack(torch.randn(*packing.mask.shape, 4, generator=torch.Generator().manual_seed(0)) * 3 + 5)


def columns_normalised(rows: Tensor) -> Tensor:
    """Eq. 5-7 for one sentence, one column and row at a time."""
    out = torch.empty_like(rows)
    n = len(rows)
    for j in range(rows.shape[1]):
        mean = sum(rows[i, j] for i in range(n)) / n
        var = sum((rows[i, j] - mean) ** 2 for i in range(n)) / n
        for i in range(n):
            out[i, j] = (rows[i, j] - mean) / (var + EPS) ** 0.5
    return out


def test_sentence_is_equation_5_over_real_tokens(x: Tensor, packing: Packing) -> None:
    out = packing.real(TokenNorm("sentence", eps=EPS, width=4)(x, packing))
    wanted = torch.cat([columns_normalised(sentence) for sentence in packing.real(x).split(LENGTHS)])
    torch.testing.assert_close(out, wanted, atol=1e-5, rtol=0)


def test_prefix_is_equation_5_over_each_prefix(x: Tensor, packing: Packing) -> None:
    out = packing.real(TokenNorm("prefix", eps=EPS, width=4)(x, packing))
    wanted = [columns_normalised(s[: t + 1])[t] for s in packing.real(x).split(LENGTHS) for t in range(len(s))]
    torch.testing.assert_close(out, torch.stack(wanted), atol=2e-5, rtol=0)


def test_prefix_is_zero_at_one_token_and_a_sign_at_two(x: Tensor, packing: Packing) -> None:
    out = TokenNorm("prefix", eps=EPS, width=4)(x, packing)
    assert out[0].abs().max() < 1e-4
    torch.testing.assert_close(out[1].abs(), torch.ones(4), atol=1e-4, rtol=0)


def test_prefix_continues_from_a_cache() -> None:
    norm, cache = TokenNorm("prefix", eps=EPS, width=4), Cache(torch.ones(2, 1, dtype=torch.bool))
    x = torch.randn(2, 6, 4) + 5
    full = Packing(torch.ones(2, 6, dtype=torch.bool))
    wanted = norm(full.pack(x), full).unflatten(0, (2, 6))
    out = [
        norm(x[:, a:b].flatten(0, 1), Packing(torch.ones(2, b - a, dtype=torch.bool)), cache=cache).unflatten(
            0, (2, b - a)
        )
        for a, b in ((0, 1), (1, 2), (2, 5), (5, 6))
    ]
    torch.testing.assert_close(torch.cat(out, dim=1), wanted, atol=1e-5, rtol=0)


def test_welford_does_not_cancel() -> None:
    """A mean 1,000 times the deviation: the difference of sums of squares loses all digits in fp32, this does not."""
    x = torch.randn(1, 200, 3, dtype=torch.float64) + 1000
    _, _, m2 = welford(
        x.float(),
        torch.ones(1, 200, dtype=torch.bool),
        torch.zeros(1, 1, 1),
        torch.zeros(1, 1, 3),
        torch.zeros(1, 1, 3),
    )
    wanted = x[0].var(dim=0, correction=0)
    torch.testing.assert_close((m2[0, -1] / 200).double(), wanted, rtol=1e-2, atol=0)
    naive = x.float().square().mean(dim=1) - x.float().mean(dim=1).square()
    assert (naive[0].double() - wanted).abs().max() > 10 * ((m2[0, -1] / 200).double() - wanted).abs().max()


def test_vocabulary_statistics_leave_out_padding(packing: Packing) -> None:
    table = torch.randn(9, 4) * 2 + 1
    ids = torch.tensor([3, 1, 8, 1, 2, 5, 4, 4, 6])
    out = TokenNorm("vocabulary", eps=EPS, width=4)(table[ids], packing, table=table)
    wanted = (table[ids] - table[1:].mean(0)) / (table[1:].var(0, correction=0) + EPS).sqrt()
    torch.testing.assert_close(out, wanted)
    table[0] = 1e6
    again = TokenNorm("vocabulary", eps=EPS, width=4)(table[ids], packing, table=table)
    torch.testing.assert_close(again, wanted)


@pytest.mark.parametrize("kind", ["sentence", "prefix"])
def test_a_single_token_is_finite_with_a_finite_gradient(kind: TokenNormKind) -> None:
    x = torch.randn(1, 4, requires_grad=True)
    out = TokenNorm(kind, eps=EPS, width=4)(x, Packing(torch.ones(1, 1, dtype=torch.bool)))
    out.sum().backward()
    assert torch.equal(out, torch.zeros_like(out))
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("kind", ["sentence", "prefix"])
def test_padding_does_not_count(kind: TokenNormKind, x: Tensor, packing: Packing) -> None:
    norm = TokenNorm(kind, eps=EPS, width=4)
    together = packing.real(norm(x, packing)).split(LENGTHS)
    for sentence, out in zip(packing.real(x).split(LENGTHS), together, strict=True):
        alone = norm(sentence, Packing(torch.ones(1, len(sentence), dtype=torch.bool)))
        torch.testing.assert_close(out, alone, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["sentence", "prefix"])
def test_gradient(kind: TokenNormKind, packing: Packing) -> None:
    x = packing.pack(torch.randn(*packing.mask.shape, 2, dtype=torch.float64)).requires_grad_()
    norm = TokenNorm(kind, eps=1e-2, width=2)
    assert torch.autograd.gradcheck(lambda y: norm(y, packing), (x,))


def test_running_statistics_are_of_the_updates_before(x: Tensor, packing: Packing) -> None:
    """Of real tokens alone (`packing` has spare rows), of all parts of an update together, a tenth at a time."""
    norm = TokenNorm("running", eps=EPS, width=4)
    x.requires_grad_()
    assert len(x) > packing.num_tokens
    before = norm(x, packing)
    torch.testing.assert_close(before, x / (1 + EPS) ** 0.5)
    norm(2 * x, packing)
    norm.eval()(100 * x, packing)  # a validation between two updates
    norm.train().fold(lambda sums: sums)
    seen = torch.cat([packing.real(x), 2 * packing.real(x)]).detach()
    mean, var = 0.1 * seen.mean(0), 0.9 + 0.1 * seen.var(0, correction=0)
    torch.testing.assert_close((norm.mean, norm.var), (mean, var))
    after = norm(x, packing)
    torch.testing.assert_close(after, (x - mean) / (var + EPS).sqrt())
    (gradient,) = torch.autograd.grad(after.sum(), x)
    torch.testing.assert_close(gradient, (var + EPS).rsqrt().expand_as(x))
    assert set(norm.state_dict()) == {"mean", "var"}


@pytest.mark.parametrize("packs", [True, False], ids=["cpu", "accelerator"])
def test_running_statistics_are_of_real_tokens_alone(packs: bool) -> None:
    """Whatever stands in spare rows or, where rows are positions, at the padding."""
    packing = Packing(torch.tensor([[True, True, True], [True, False, False]]))
    packing.packs = packs
    norm, x = TokenNorm("running", eps=EPS, width=2), torch.full((32 if packs else 6, 2), 1e3)
    real = torch.tensor([[1.0, 5.0], [2.0, 6.0], [3.0, 7.0], [4.0, 8.0]])
    x[:4] = real
    norm(x, packing)
    norm.fold(lambda sums: sums)
    wanted = 0.1 * real.mean(0), 0.9 + 0.1 * real.var(0, correction=0)
    torch.testing.assert_close((norm.mean, norm.var), wanted)


def test_workers_that_share_an_update_come_to_the_same_running_statistics(x: Tensor) -> None:
    def fed(*rows: Tensor) -> TokenNorm:
        norm = TokenNorm("running", eps=EPS, width=4)
        for part in rows:
            norm(part, Packing(torch.ones(1, len(part), dtype=torch.bool)))
        return norm

    whole, first, second, third = fed(x), fed(x[:5]), fed(x[5:7], x[7:]), fed()
    all_sums = torch.zeros(9, dtype=torch.float64)
    whole.fold(lambda sums: sums)
    first.fold(all_sums.add_)
    second.fold(all_sums.add_)
    for last in (third, first, second):  # as an exchange would leave it with each of them
        last.mean.zero_(), last.var.fill_(1)
        last.fold(lambda sums: all_sums + sums)
        torch.testing.assert_close((last.mean, last.var), (whole.mean, whole.var))


def test_running_statistics_stay_as_they_are_without_tokens() -> None:
    norm = TokenNorm("running", eps=EPS, width=4)
    before = torch.rand(4), torch.rand(4) + 0.5
    norm.mean.copy_(before[0])
    norm.var.copy_(before[1])
    norm.fold(lambda sums: sums)
    assert torch.equal(norm.mean, before[0])
    assert torch.equal(norm.var, before[1])


def test_running_statistics_do_not_cancel() -> None:
    """Of columns far from zero, for whose sums of squares fp32 has too few digits."""
    norm, x = TokenNorm("running", eps=EPS, width=3), torch.randn(2000, 3) + 1000
    norm(x, Packing(torch.ones(1, 2000, dtype=torch.bool)))
    norm.fold(lambda sums: sums)
    torch.testing.assert_close(norm.var.double(), 0.9 + 0.1 * x.double().var(0, correction=0), rtol=1e-5, atol=0)


def test_a_gpu_is_not_waited_for_to_take_statistics_on() -> None:
    """On a device that computes nothing, whoever asks for a number fails."""
    norm = TokenNorm("running", eps=EPS, width=4).to("meta")
    norm.fold(lambda sums: sums)


def test_it_has_no_parameters() -> None:
    assert not list(TokenNorm("sentence", eps=EPS, width=4).parameters())


def test_statistics_of_the_vocabulary_have_their_gradients() -> None:
    table = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: vocabulary_statistics(x, 1.5), (table,))
