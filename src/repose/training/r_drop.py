"""R-Drop (Liang et al. 2021, arXiv 2106.14448): two passes with different dropout are to predict the same.

The loss of a token is the mean of both passes' cross-entropies plus alpha / 2 times the symmetric divergence
½ KL(p ‖ q) + ½ KL(q ‖ p) of their distributions: half of the paper's eq. 4, which adds the cross-entropies up, so that
losses compare with those of other trainings. Computed, like `repose.training.loss`, in chunks of rows together with
its gradients.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from repose.model.kernels.linear import matmul_nt
from repose.training.loss import LossWithGradients, TokenSums, rows_at_a_time


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
    """Sums over tokens for the hidden rows of two passes over the same tokens; `nll` and `correct` are both passes'
    means."""
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
        grad_weight, grad_bias = torch.zeros_like(weight), None if bias is None else torch.zeros_like(bias)
        with torch.autocast(kind, enabled=False):
            matrix, offset = weight.to(narrow), None if bias is None else bias.to(narrow)
            step = rows_at_a_time(len(labels), len(weight), first.device)
            for start in range(0, len(labels), step):
                rows = slice(start, start + step)
                hidden = [side[rows].to(narrow) for side in (first, second)]
                logs = [F.log_softmax(matmul_nt(side, matrix, offset).float(), 1) for side in hidden]
                losses, errors = _of_rows(logs[0], logs[1], labels[rows], label_smoothing, alpha)
                sums += losses
                for grad, side, error in zip(grads, hidden, errors, strict=True):
                    narrowed = error.to(narrow)
                    grad[rows] = narrowed @ matrix
                    grad_weight += narrowed.t() @ side
                    if grad_bias is not None:
                        grad_bias += error.sum(0)
        return LossWithGradients.keep(ctx, sums, *grads, grad_weight, grad_bias)


def _of_rows(
    log_p: Tensor, log_q: Tensor, labels: Tensor, label_smoothing: float, alpha: float
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Sums of loss, nll and correct over some rows, and the gradients of the loss with respect to both logits."""
    p, q, column = log_p.exp(), log_q.exp(), labels[:, None]
    difference = log_p - log_q
    from_p, from_q = (p * difference).sum(1, keepdim=True), -(q * difference).sum(1, keepdim=True)
    uniform = label_smoothing / log_p.shape[1]
    nll = -(log_p.gather(1, column) + log_q.gather(1, column)) / 2
    smooth = -(log_p.mean(1, keepdim=True) + log_q.mean(1, keepdim=True)) / 2
    loss = torch.lerp(nll, smooth, label_smoothing) + alpha / 4 * (from_p + from_q)
    correct = sum((side.argmax(1) == labels).sum(dtype=torch.float64) for side in (log_p, log_q)) / 2
    sums = torch.stack([loss.sum(dtype=torch.float64), nll.sum(dtype=torch.float64), torch.as_tensor(correct)])

    def error(p: Tensor, q: Tensor, difference: Tensor, divergence: Tensor) -> Tensor:
        """½ d cross-entropy + α/4 d (KL(p ‖ q) + KL(q ‖ p)), with respect to the logits of p."""
        gradient = (p - uniform) / 2 + alpha / 4 * (p * (difference - divergence) + p - q)
        return gradient.scatter_add_(1, column, gradient.new_full((), (label_smoothing - 1) / 2).expand_as(column))

    return sums, (error(p, q, difference, from_p), error(q, p, -difference, from_q))
