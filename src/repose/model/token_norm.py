"""Token normalization: the columns of token embeddings brought to zero mean and unit variance.

arXiv 2410.04731, eq. 4-9: TN(X)_ij = (X_ij - mean_j) / sqrt(var_j), biased variance, over the n tokens of a sentence.
The paper leaves open what padding does, and what happens to a single token (0/0): here padding never counts, and an
epsilon is added to the variance.

Differs from the paper where the axes `encoder_token_norm` and `decoder_token_norm` name other tokens than `sentence`
does: see docs/decisions/002-token-norm-statistics.md.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, assert_never

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from repose.model.architecture import TokenNormKind
from repose.model.kernels.cache import Cache
from repose.model.kernels.packing import Packing

_SHARE = 0.1
"""Of an update in running statistics."""


class TokenNorm(nn.Module):
    """Normalises columns over the tokens that `kind` names. Has no parameters to learn.

    Where a column is constant over these tokens, as in a sentence of one, the result is 0, and gradients are up to
    1/sqrt(eps) times as large: a thousand times, with an eps of 1e-6.

    none: as it is.
    sentence: over the sentence's real tokens (eq. 5). In a decoder it sees the future: position t is fed
        statistics of tokens after t.
    prefix: over tokens 1..t for position t, by Welford's recurrence: causal, the closest to eq. 5 that can decode.
    vocabulary: over the rows of the embedding table (the paper's W_1 and W_2, whereas its "token embedding matrix" X_e
        has a row per token of the sentence), padding's excepted: causal, and a constant once training is over.
    running: over the tokens of the updates before this one, as batch normalization does once training is over (Ioffe
        and Szegedy 2015, arXiv 1502.03167): causal in training too, and a constant afterwards. `fold` ends an update.
    """

    mean: Tensor
    """Of `running`, kept with the weights: 0 before the first update."""
    var: Tensor
    """Likewise: 1 before the first update."""

    def __init__(self, kind: TokenNormKind, *, eps: float, width: int) -> None:
        """`width`: of the rows that it normalises."""
        super().__init__()
        self.kind = kind
        self.eps = eps
        if self.is_running:
            self.register_buffer("mean", torch.zeros(width))
            self.register_buffer("var", torch.ones(width))
        self._sums: Tensor | None = None
        """Of this update so far: the number of tokens, the sum of each column, and that of its squares, in float64.
        Made once and added to in place, so that a GPU can replay it."""

    def forward(
        self,
        x: Float[Tensor, "R M"],
        packing: Packing,
        *,
        table: Float[Tensor, "V M"] | None = None,
        scale: float = 1.0,
        cache: Cache | None = None,
    ) -> Float[Tensor, "R M"]:
        """For `vocabulary`, x are rows of `scale` times the embedding table; `cache` continues an earlier prefix."""
        match self.kind:
            case "none":
                return x
            case "vocabulary":
                assert table is not None, "vocabulary statistics are of an embedding table"
                make = partial(vocabulary_statistics, table, scale)
                mean, var = make() if cache is None else cache.once(self, make)
                return (x - mean) * (var + self.eps).rsqrt()
            case "running":
                if self.training:
                    rows, number = packing.without_padding(x.detach()).double(), packing.mask.sum().double()
                    if self._sums is None:
                        self._sums = rows.new_zeros(1 + 2 * rows.shape[1])
                    self._sums += torch.cat([number[None], rows.sum(0), rows.square().sum(0)])
                return (x - self.mean) * (self.var + self.eps).rsqrt()
            case "sentence":
                padded = packing.pad(x)
                mean, var = sentence_statistics(padded, packing.mask)
            case "prefix":
                padded = packing.pad(x)
                mean, var = self._prefix_statistics(padded, packing.mask, cache)
            case _:
                assert_never(self.kind)
        return packing.pack((padded - mean) * (var + self.eps).rsqrt())

    @property
    def is_running(self) -> bool:
        """Whether it has statistics that `fold` moves on after each update."""
        return self.kind == "running"

    @property
    def is_constant(self) -> bool:
        """Whether its statistics depend on no sentence once training is over, as `normalised_rows` takes them up."""
        return self.kind in ("none", "vocabulary", "running")

    def fold(self, add: Callable[[Tensor], Tensor]) -> None:
        """Take the tokens of an update into the running statistics, as a tenth of them (torch's `BatchNorm1d` takes as
        much); `add` sums a tensor over all workers."""
        if self._sums is None:  # a worker that has had no share of any update yet
            self._sums = torch.zeros(1 + 2 * len(self.mean), dtype=torch.float64, device=self.mean.device)
        sums = add(self._sums)
        share = _SHARE * (sums[0] > 0).to(self.mean.dtype)  # none of no tokens; a GPU is not waited for
        mean, square = (sums[1:] / sums[0].clamp(min=1)).chunk(2)
        self.mean.lerp_(mean.to(self.mean.dtype), share)
        self.var.lerp_((square - mean.square()).clamp(min=0).to(self.var.dtype), share)
        self._sums.zero_()

    def _prefix_statistics(self, x: Tensor, real: Tensor, cache: Cache | None) -> tuple[Tensor, Tensor]:
        state = cache.get(self) if cache is not None else None
        if state is None:
            state = (x.new_zeros(x.shape[0], 1, 1), *(x.new_zeros(x.shape[0], 1, x.shape[2]) for _ in range(2)))
        count, mean, m2 = welford(x, real, (state[0], state[1], state[2]))
        if cache is not None:
            cache.put(self, count[:, -1:], mean[:, -1:], m2[:, -1:])
        return mean, m2 / count.clamp(min=1)


def normalised_rows(norm: TokenNorm, table: Float[Tensor, "V M"], scale: float) -> Float[Tensor, "V M"]:
    """Rows of `scale` times the table, in float64, as a norm of tokens leaves them whose statistics are constants once
    training is over; others leave them as they are."""
    rows = table.double() * scale
    match norm.kind:
        case "vocabulary":
            mean, var = vocabulary_statistics(table.double(), scale)
        case "running":
            mean, var = norm.mean.double(), norm.var.double()
        case "none" | "sentence" | "prefix":
            return rows
        case _:
            assert_never(norm.kind)
    return (rows - mean) * (var + norm.eps).rsqrt()


def vocabulary_statistics(table: Float[Tensor, "V M"], scale: float) -> tuple[Float[Tensor, " M"], Float[Tensor, " M"]]:
    """Mean and biased variance of each column over the table's rows but padding's, times `scale`."""
    mean, var = _Columns.apply(table)  # type: ignore[no-untyped-call]
    return mean * scale, var * scale**2


class _Columns(torch.autograd.Function):
    """Mean m and biased variance v of a table's n rows from the second on, in few passes over it.

    dX_ij = dm_j / n + dv_j · 2 (X_ij - m_j) / n
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor) -> tuple[Tensor, Tensor]:
        rows = table[1:]
        mean = rows.mean(0)
        centred = rows - mean
        ctx.save_for_backward(centred)
        return mean, centred.square().mean(0)  # torch.var_mean takes many times as long over rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_mean: Tensor, grad_var: Tensor) -> Tensor:
        (centred,) = ctx.saved_tensors
        grad = centred.new_empty(len(centred) + 1, centred.shape[1])
        grad[0] = 0
        torch.addcmul(grad_mean / len(centred), centred, grad_var, value=2 / len(centred), out=grad[1:])
        return grad


def sentence_statistics(
    x: Float[Tensor, "B L M"], real: Bool[Tensor, "B L"]
) -> tuple[Float[Tensor, "B 1 M"], Float[Tensor, "B 1 M"]]:
    """Mean and biased variance of each column over each sentence's real tokens; x is zero at the padding."""
    weight = real[:, :, None]
    count = weight.sum(1, keepdim=True).clamp(min=1)
    mean = x.sum(1, keepdim=True) / count
    var = ((x - mean) * weight).square().sum(1, keepdim=True) / count
    return mean, var


def welford(
    x: Float[Tensor, "B L M"],
    real: Bool[Tensor, "B L"],
    state: tuple[Float[Tensor, "B 1 1"], Float[Tensor, "B 1 M"], Float[Tensor, "B 1 M"]],
) -> tuple[Float[Tensor, "B L 1"], Float[Tensor, "B L M"], Float[Tensor, "B L M"]]:
    """Running count, mean and sum of squared deviations M2 after each position, continuing from `state`.

    M2_t = M2_{t-1} + (x_t - mean_{t-1})(x_t - mean_t): a sum of non-negative terms, so that it does not cancel as a
    difference of sums of squares would. Positions that are not real leave the state as it was.
    """
    count0, mean0, m20 = state
    weight = real[:, :, None].to(x.dtype)
    count = count0 + weight.cumsum(1)
    mean = (mean0 * count0 + (x * weight).cumsum(1)) / count.clamp(min=1)
    before = torch.cat([mean0, mean[:, :-1]], dim=1)
    m2 = m20 + ((x - before) * (x - mean) * weight).cumsum(1)
    return count, mean, m2
