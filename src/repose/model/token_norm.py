"""Token normalization: each column of the token embeddings is brought to zero mean and unit variance.

    TN(X)_ij = (X_ij - mean_j) / sqrt(var_j)      arXiv 2410.04731, eq. 4-9

Mean and (biased) variance are taken over the n tokens of a sentence. The paper does not say what happens to padding or
to a sentence of one token (0/0). Here padding never counts, and an epsilon is added to the variance.

Differs from the paper where the axes `encoder_token_norm` and `decoder_token_norm` choose other tokens than those of
the sentence: see docs/decisions/002-token-norm-statistics.md.
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
"""Weight of one update in the running statistics."""


class TokenNorm(nn.Module):
    """Normalises each column over the tokens that `kind` names. It has no learned parameters.

        none        no normalisation
        sentence    over the sentence's real tokens (eq. 5). In a decoder it sees the future: the statistics at position
                    t include tokens after t
        prefix      over tokens 1..t for position t, by Welford's recurrence: causal, and the kind closest to eq. 5 that
                    can decode
        vocabulary  over the rows of the embedding table except padding's: causal, and constant after training. (The
                    table is the paper's W_1 and W_2; its "token embedding matrix" X_e has a row per token of a
                    sentence)
        running     over the tokens of earlier updates, as batch normalization does after training (Ioffe and Szegedy
                    2015, arXiv 1502.03167): causal in training too, and constant afterwards. `fold` ends an update

    If a column is constant over these tokens, as in a sentence of one token, the result is 0. Gradients then grow by up
    to 1/sqrt(eps): a factor of a thousand for an eps of 1e-6.
    """

    mean: Tensor
    """Mean of each column for `running`, stored with the weights; 0 before the first update."""
    var: Tensor
    """Variance of each column for `running`, stored with the weights; 1 before the first update."""

    def __init__(self, kind: TokenNormKind, *, eps: float, width: int) -> None:
        """`width`: the width of the rows to normalise."""
        super().__init__()
        self.kind = kind
        self.eps = eps
        if self.is_running:
            self.register_buffer("mean", torch.zeros(width))
            self.register_buffer("var", torch.ones(width))
        self._sums: Tensor | None = None
        """Number of tokens in this update so far, each column's sum, and each column's sum of squares, in float64.

        Created once and then added to in place, so that a GPU can replay the update.
        """

    def forward(
        self,
        x: Float[Tensor, "R M"],
        packing: Packing,
        *,
        table: Float[Tensor, "V M"] | None = None,
        scale: float = 1.0,
        cache: Cache | None = None,
    ) -> Float[Tensor, "R M"]:
        """Return the normalised rows.

        For `vocabulary`, x are rows of `scale` times the embedding `table`. For `prefix`, `cache` holds the statistics
        of the earlier tokens and is brought up to date.
        """
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
        """True if `fold` has to be called after each update."""
        return self.kind == "running"

    @property
    def is_constant(self) -> bool:
        """True if, after training, the statistics depend on no sentence, so that `normalised_rows` can apply them."""
        return self.kind in ("none", "vocabulary", "running")

    def fold(self, add: Callable[[Tensor], Tensor]) -> None:
        """Add the tokens of an update to the running statistics, with a weight of a tenth, as in torch's `BatchNorm1d`.

        `add` sums a tensor over all workers.
        """
        if self._sums is None:  # a worker that has not yet had a share of any update
            self._sums = torch.zeros(1 + 2 * len(self.mean), dtype=torch.float64, device=self.mean.device)
        sums = add(self._sums)
        share = _SHARE * (sums[0] > 0).to(self.mean.dtype)  # 0 without tokens; a tensor: no GPU is waited for
        mean, square = (sums[1:] / sums[0].clamp(min=1)).chunk(2)
        self.mean.lerp_(mean.to(self.mean.dtype), share)
        self.var.lerp_((square - mean.square()).clamp(min=0).to(self.var.dtype), share)
        self._sums.zero_()

    def _prefix_statistics(self, x: Tensor, real: Tensor, cache: Cache | None) -> tuple[Tensor, Tensor]:
        state = cache.get(self) if cache is not None else None
        if state is None:
            state = (x.new_zeros(x.shape[0], 1, 1), *(x.new_zeros(x.shape[0], 1, x.shape[2]) for _ in range(2)))
        count, mean, m2 = welford(x, real, *state)
        if cache is not None:
            cache.put(self, count[:, -1:], mean[:, -1:], m2[:, -1:])
        return mean, m2 / count.clamp(min=1)


def normalised_rows(norm: TokenNorm, table: Float[Tensor, "V M"], scale: float) -> Float[Tensor, "V M"]:
    """Return `scale` times the rows of the table, in float64, normalised as they are after training.

    Rows stay as they are for kinds whose statistics depend on the sentence.
    """
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
    """Return each column's mean and biased variance over `scale` times the table's rows, without padding's row."""
    mean, var = _Columns.apply(table)  # type: ignore[no-untyped-call]
    return mean * scale, var * scale**2


class _Columns(torch.autograd.Function):
    """Mean m and biased variance v of each column of a table over its n rows without the first, in few passes over it.

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
    """Return each column's mean and biased variance over each sentence's real tokens; x must be zero at padding."""
    weight = real[:, :, None]
    count = weight.sum(1, keepdim=True).clamp(min=1)
    mean = x.sum(1, keepdim=True) / count
    var = ((x - mean) * weight).square().sum(1, keepdim=True) / count
    return mean, var


def welford(
    x: Float[Tensor, "B L M"],
    real: Bool[Tensor, "B L"],
    count_before: Float[Tensor, "B 1 1"],
    mean_before: Float[Tensor, "B 1 M"],
    m2_before: Float[Tensor, "B 1 M"],
) -> tuple[Float[Tensor, "B L 1"], Float[Tensor, "B L M"], Float[Tensor, "B L M"]]:
    """Return the running count, mean and sum of squared deviations M2 after each position, continuing from those
    before the first one.

        M2_t = M2_{t-1} + (x_t - mean_{t-1})(x_t - mean_t)

    All terms are non-negative, so that the sum loses no precision by cancellation, as a difference of sums of squares
    would. Positions that are not real change nothing.
    """
    weight = real[:, :, None].to(x.dtype)
    count = count_before + weight.cumsum(1)
    mean = (mean_before * count_before + (x * weight).cumsum(1)) / count.clamp(min=1)
    previous = torch.cat([mean_before, mean[:, :-1]], dim=1)
    m2 = m2_before + ((x - previous) * (x - mean) * weight).cumsum(1)
    return count, mean, m2
