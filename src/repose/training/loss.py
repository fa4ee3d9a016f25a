"""Masked cross-entropy in nats, computed in chunks of rows, so that the tensor of all logits never exists.

The decoder's output at the real target tokens comes as packed rows (N, D); padding has no row, and so does not affect
the loss. Logits are more than a third of the reinforced model's operations, and by far its largest tensor. So each
chunk's logits are turned into probabilities, into the loss, and into the gradients of the hidden rows, the projection
and its bias, while they are in the processor's cache.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from repose.model.kernels.linear import matmul_nt
from repose.model.kernels.packing import ROWS

CPU_LOGITS = 1 << 21
"""Maximum logits per chunk on a CPU: 8 MiB in fp32, which stays in the cache (64 to 256 rows are equally fast)."""
CPU_NARROW_LOGITS = 1 << 23
"""Maximum logits per chunk in bf16: 16 MiB; fewer, larger products are faster, and only blocks must stay in the
cache."""
CPU_BLOCK = 1 << 18
"""Maximum logits converted at a time on a CPU: 1 MiB in fp32, which stays in a core's own cache."""
ACCELERATOR_LOGITS = 1 << 26
"""Maximum logits per chunk on an accelerator: few large products, 256 MiB in fp32."""


SPARE = -1
"""Label of rows that are only padding."""


class TokenSums(NamedTuple):
    """Sums over the target tokens of a batch, as scalar tensors."""

    loss: Tensor
    """The label-smoothed cross-entropy, in nats, which is minimised."""
    nll: Tensor
    """The cross-entropy without smoothing, in nats; no gradient."""
    correct: Tensor
    """Number of tokens whose label is the single most probable token (ties do not count); no gradient."""


def cross_entropy(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, "V"] | None,
    labels: Int[Tensor, "N"],
    *,
    label_smoothing: float = 0.0,
) -> TokenSums:
    """Return sums over tokens of the loss of softmax(hidden weightᵀ + bias) against `labels`.

    With smoothing e, a token's loss is -(1 - e) log p(label) - e / V · Σ_v log p(v) (Szegedy et al. 2016,
    section 7; Vaswani et al. 2017, section 5.4), torch's own `label_smoothing`. Under autocast the matrix products
    are computed in its dtype and everything else in fp32. The gradient is computed together with the loss, so a
    backward pass costs two multiplications by a scalar. Rows with the label `SPARE` are ignored.
    """
    loss, nll, correct = _CrossEntropy.apply(hidden, weight, bias, labels, label_smoothing)  # type: ignore[no-untyped-call]
    return TokenSums(loss, nll, correct)


@torch.no_grad()
def token_losses(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, "V"] | None,
    labels: Int[Tensor, "N"],
) -> tuple[Float[Tensor, "N"], Bool[Tensor, "N"]]:
    """Return each token's negative log-likelihood in nats, and whether its label is the single most probable token."""
    losses = torch.cat([hidden.new_zeros(0, 3), *(chunk.losses for chunk in _chunks(hidden, weight, bias, labels))])
    return losses[:, 1], losses[:, 2] > 0


class _Chunk(NamedTuple):
    rows: slice
    hidden: Tensor
    """The chunk's rows, then rows of zeros."""
    error: Tensor
    """Gradient of the loss with respect to the logits, (rows of `hidden`, V), in their dtype; zero in rows of zeros."""
    losses: Tensor
    """(rows, 3): each row's loss, nll, and whether its label is the single most probable token (1 or 0)."""
    grad_bias: Tensor
    """Sum of the rows of `error` before rounding, (V,)."""


def _chunks(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, label_smoothing: float = 0.0
) -> Iterator[_Chunk]:
    """Yield chunks of rows with their losses. A chunk has a multiple of `ROWS` rows, filled up with zeros."""
    num_rows = len(labels)
    step = rows_at_a_time(num_rows, len(weight), hidden)
    for start in range(0, num_rows, step):
        rows = slice(start, min(start + step, num_rows))
        part, label = filled(hidden[rows]), filled(labels[rows], SPARE)[:, None]
        logits = matmul_nt(part, weight, bias)
        losses, grad_bias = [], []
        for block, wide in in_blocks(logits):
            losses.append(_to_error(wide, label[block].clamp(min=0), label_smoothing))
            without_spare(wide, label[block])
            grad_bias.append(wide.sum(0))
        real_losses = without_spare(torch.cat(losses), label)[: rows.stop - start]
        yield _Chunk(rows, part, logits, real_losses, torch.stack(grad_bias).sum(0))


def _to_error(logits: Float[Tensor, "R V"], label: Int[Tensor, "R 1"], label_smoothing: float) -> Float[Tensor, "R 3"]:
    """Return each row's loss, nll and hit; overwrite `logits` with the gradients of these losses.

    With logits z, p = softmax(z), log p(v) = z_v - log Z, and smoothing e:

        loss = -(1 - e) log p(label) - e / V · Σ_v log p(v) = (1 - e) (log Z - z_label) + e (log Z - mean of z)
        d loss / d z_v = p(v) - (1 - e) [v = label] - e / V
    """
    of_label, top = logits.gather(1, label), logits.amax(1, keepdim=True)
    mean = logits.mean(1, keepdim=True) if label_smoothing else None
    torch.softmax(logits, 1, out=logits)
    p_label = logits.gather(1, label)
    error = logits.scatter_add_(1, label, logits.new_full((), -1.0).expand_as(label))
    p_others = error.amax(1, keepdim=True)  # the label's own, p - 1, is never above zero
    # max p = exp(top - log Z), so that log Z needs no second pass over the exponentials.
    log_z = top - torch.maximum(p_label, p_others).log()
    nll = loss = log_z - of_label
    if mean is not None:
        loss = torch.lerp(nll, log_z - mean, label_smoothing)
        error.sub_(label_smoothing / error.shape[1])
        error.scatter_add_(1, label, error.new_full((), label_smoothing).expand_as(label))
    return torch.cat([loss, nll, p_label > p_others], dim=1)


def in_blocks(logits: Float[Tensor, "*A R V"]) -> Iterator[tuple[slice, Float[Tensor, "*A r V"]]]:
    """Yield a chunk's logits in at least fp32; in-place changes to them are copied back to `logits`.

    On a CPU, narrower logits come a few rows at a time, so that their fp32 copies stay in a core's own cache.
    """
    rows, wide = logits.shape[-2], torch.promote_types(logits.dtype, torch.float32)
    if wide == logits.dtype:
        yield slice(0, rows), logits
        return
    step = max(CPU_BLOCK * rows // logits.numel(), 1) if logits.device.type == "cpu" else rows
    copies = logits.new_empty((*logits.shape[:-2], min(step, rows), logits.shape[-1]), dtype=wide)  # reused
    for start in range(0, rows, step):
        block = slice(start, start + step)
        narrow = logits[..., block, :]
        copy = copies[..., : narrow.shape[-2], :]
        yield block, copy.copy_(narrow)
        narrow.copy_(copy)


def rows_at_a_time(num_rows: int, num_classes: int, hidden: Tensor) -> int:
    """Return the rows per chunk: a multiple of `ROWS`, at least one. `hidden` tells device and dtype."""
    limit = ACCELERATOR_LOGITS
    if hidden.device.type == "cpu":
        limit = CPU_NARROW_LOGITS if hidden.element_size() < 4 else CPU_LOGITS
    num_chunks = -(-num_rows * num_classes // limit)
    return -(-num_rows // (max(num_chunks, 1) * ROWS)) * ROWS or 1


def without_spare(x: Float[Tensor, "*A R X"], label: Int[Tensor, "R 1"]) -> Float[Tensor, "*A R X"]:
    """Set the rows with the label `SPARE`, which come last, to zero in place; return `x`."""
    if x.device.type != "cpu":  # to know their number, the CPU would have to wait
        return x.masked_fill_(label == SPARE, 0)
    x[..., int((label != SPARE).sum()) :, :] = 0
    return x


def filled(x: Tensor, value: int = 0) -> Tensor:
    """Append rows of `value` up to a multiple of `ROWS` rows."""
    missing = -len(x) % ROWS
    return torch.cat([x, x.new_full((missing, *x.shape[1:]), value)]) if missing else x


class WeightGradient:
    """Sums the gradient of the projection's weight over chunks, in the weight's dtype; products are in `narrow`."""

    def __init__(self, weight: Float[Tensor, "V D"], narrow: torch.dtype) -> None:
        self._weight = weight
        self._is_transposed = narrow == weight.dtype  # faster in fp32, slower in bf16
        self._sum: Tensor | None = None

    def add(self, error: Float[Tensor, "R V"], hidden: Float[Tensor, "R D"]) -> None:
        """Add a chunk's gradient."""
        first, second = (hidden, error) if self._is_transposed else (error, hidden)
        product = matmul_nt(first.t(), second.t())
        self._sum = product.to(self._weight.dtype) if self._sum is None else self._sum.add_(product)

    @property
    def value(self) -> Float[Tensor, "V D"]:
        """The gradient of all chunks."""
        if self._sum is None:
            return torch.zeros_like(self._weight)
        return self._sum.t().contiguous() if self._is_transposed else self._sum


class LossWithGradients(torch.autograd.Function):
    """A loss that is computed together with its gradients. Only its first inputs have gradients."""

    @staticmethod
    def keep(ctx: Any, sums: Tensor, *gradients: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return loss, nll and correct from `forward`, and save the loss's gradients."""
        ctx.save_for_backward(*gradients)
        loss, nll, correct = (each.clone() for each in sums.unbind())
        ctx.mark_non_differentiable(nll, correct)
        return loss, nll, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        # New tensors, so that a second backward pass through a retained graph finds the saved ones unchanged.
        saved = ctx.saved_tensors
        gradients = [None if tensor is None else tensor * grad_loss.to(tensor.dtype) for tensor in saved]
        return (*gradients, *[None] * (len(ctx.needs_input_grad) - len(saved)))


class _CrossEntropy(LossWithGradients):
    """Computes the loss and its gradients in one pass over the chunks."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, label_smoothing: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        kind = hidden.device.type
        narrow = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
        with torch.autocast(kind, enabled=False):
            matrix = weight.to(narrow)
            offset = None if bias is None else bias.to(narrow)
            grad_rows = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
            grad_weight = WeightGradient(weight, narrow) if ctx.needs_input_grad[1] else None
            grad_bias = torch.zeros_like(bias) if bias is not None and ctx.needs_input_grad[2] else None
            # Sums in double precision, so that the reported loss does not depend on the number of workers.
            sums = torch.zeros(3, dtype=torch.float64, device=hidden.device)
            for chunk in _chunks(hidden.to(narrow), matrix, offset, labels, label_smoothing):
                sums += chunk.losses.sum(0, dtype=torch.float64)
                if grad_bias is not None:
                    grad_bias += chunk.grad_bias
                if grad_rows is not None:
                    grad_rows[chunk.rows] = matmul_nt(chunk.error, matrix.t())[: len(chunk.losses)]
                if grad_weight is not None:
                    grad_weight.add(chunk.error, chunk.hidden)
        of_weight = None if grad_weight is None else grad_weight.value
        return LossWithGradients.keep(ctx, sums, grad_rows, of_weight, grad_bias)
