"""R-Drop (Liang et al. 2021, arXiv 2106.14448): two passes with different dropout should predict the same.

A token's loss is the mean of both passes' cross-entropies plus alpha / 2 times the symmetric divergence
½ KL(p ‖ q) + ½ KL(q ‖ p) of their distributions. This is half of the paper's eq. 4, which adds up the cross-entropies,
so losses can be compared with those of other trainings. Like `repose.training.loss`, it computes chunks of rows
together with their gradients.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from repose.model.kernels.linear import matmul_nt
from repose.training.loss import (
    SPARE,
    LossWithGradients,
    TokenSums,
    WeightGradient,
    filled,
    in_blocks,
    rows_at_a_time,
    without_spare,
)


def r_drop(
    first: Float[Tensor, "N D"],
    second: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, "V"] | None,
    labels: Int[Tensor, "N"],
    *,
    label_smoothing: float,
    alpha: float,
) -> TokenSums:
    """Return sums over tokens for the hidden rows of two passes over the same tokens; `nll` and `correct` are means
    over both passes. Rows with the label `SPARE` are ignored."""
    loss, nll, correct = _RDrop.apply(first, second, weight, bias, labels, label_smoothing, alpha)  # type: ignore[no-untyped-call]
    return TokenSums(loss, nll, correct)


class _RDrop(LossWithGradients):
    @staticmethod
    def forward(
        ctx: Any,
        first: Tensor,
        second: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        label_smoothing: float,
        alpha: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        kind = first.device.type
        narrow = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
        sums = torch.zeros(3, dtype=torch.float64, device=first.device)
        grads = [torch.empty_like(first), torch.empty_like(second)]
        grad_weight = WeightGradient(weight, narrow)
        grad_bias = None if bias is None else torch.zeros_like(bias)
        with torch.autocast(kind, enabled=False):
            matrix, offset = weight.to(narrow), None if bias is None else bias.to(narrow)
            step = rows_at_a_time(len(labels), 2 * len(weight), matrix)
            for start in range(0, len(labels), step):
                rows = slice(start, min(start + step, len(labels)))
                label, number = filled(labels[rows], SPARE), rows.stop - start
                hidden = torch.cat([filled(side[rows].to(narrow)) for side in (first, second)])
                logits = matmul_nt(hidden, matrix, offset)
                for block, wide in in_blocks(logits.view(2, len(label), -1)):
                    losses, error = _of_rows(wide, label[block], label_smoothing, alpha)
                    sums += losses
                    if grad_bias is not None:
                        grad_bias += error.sum((0, 1))
                    wide.copy_(error)
                error = logits
                for grad, part in zip(grads, matmul_nt(error, matrix.t()).view(2, len(label), -1), strict=True):
                    grad[rows] = part[:number]
                grad_weight.add(error, hidden)
        return LossWithGradients.keep(ctx, sums, *grads, grad_weight.value, grad_bias)


def _of_rows(
    logits: Float[Tensor, "2 R V"], label: Int[Tensor, "R"], label_smoothing: float, alpha: float
) -> tuple[Float[Tensor, "3"], Float[Tensor, "2 R V"]]:
    """Return sums of loss, nll and correct, and the gradients of the loss with respect to both passes' logits. Rows
    with the label `SPARE` are ignored and get zero gradients. Most of the time goes to memory access, so `logits` is
    overwritten, and nothing is read more often than necessary."""
    labels = label.clamp(min=0)[None, :, None].expand(2, -1, -1)
    difference = logits[0] - logits[1]
    of_label = logits.gather(2, labels)
    others = logits.scatter_(2, labels, -torch.inf).amax(2, keepdim=True)
    logits.scatter_(2, labels, of_label)
    mean = logits.mean(2, keepdim=True) if label_smoothing else None
    p = torch.softmax(logits, 2, out=logits)
    # max p = exp(max - log Z), so that log Z needs no second pass over the exponentials.
    log_z = torch.maximum(of_label, others) - p.amax(2, keepdim=True).log()
    nll, correct = log_z - of_label, of_label > others
    loss = (nll if mean is None else torch.lerp(nll, log_z - mean, label_smoothing)).mean(0)
    # log p - log q = difference - shift, and so both divergences are dot products.
    shift = log_z[0] - log_z[1]
    from_p = torch.linalg.vecdot(p[0], difference)[:, None] - shift
    from_q = shift - torch.linalg.vecdot(p[1], difference)[:, None]
    quarter = alpha / 4
    loss += quarter * (from_p + from_q)
    means = (loss, nll.mean(0), correct.mean(0, dtype=torch.float64))
    sums = torch.stack([without_spare(each, label[:, None]).sum(dtype=torch.float64) for each in means])
    # For p (q likewise): (p - target) / 2 + α/4 (p (log p - log q - KL(p ‖ q)) + p - q).
    error = torch.empty_like(p)
    difference *= quarter
    torch.add(difference, 0.5 + quarter * (1 - shift - from_p), out=error[0])
    torch.sub(0.5 + quarter * (1 + shift - from_q), difference, out=error[1])
    error *= p
    error[0].sub_(p[1], alpha=quarter)
    error[1].sub_(p[0], alpha=quarter)
    if label_smoothing:
        error -= label_smoothing / (2 * p.shape[2])
    error.scatter_add_(2, labels, error.new_full((), (label_smoothing - 1) / 2).expand_as(labels))
    return sums, without_spare(error, label[:, None])
