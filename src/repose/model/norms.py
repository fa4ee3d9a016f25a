"""Norms of rows with learned weights: the axis `norm_kind`. (`token_norm.py` has the norms of token embeddings.)"""

import math
from typing import assert_never

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from repose.model.architecture import Architecture
from repose.model.kernels.beside import active
from repose.model.kernels.linear import at_least_fp32


class LayerNorm(nn.LayerNorm):
    """Layer normalization of each row (Ba et al. 2016, arXiv 1607.06450).

    (x - mean) / sqrt(variance + eps) * gain + bias
    """

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        if (beside := active()) is not None:
            return beside.layer_norm(x, self.weight, self.bias, self.eps)
        return super().forward(x)


class RMSNorm(nn.Module):
    """Root mean square normalization of each row (Zhang and Sennrich 2019, arXiv 1910.07467).

        x / sqrt(mean of x^2 + eps) * gain

    The mean is not subtracted, and there is no bias. Computed in fp32 at least.
    """

    def __init__(self, width: int, *, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        wide = at_least_fp32(x)
        return F.rms_norm(wide, self.weight.shape, self.weight.to(wide.dtype), self.eps).to(x.dtype)


class ScaleNorm(nn.Module):
    """Normalization of each row to one learned length (Nguyen and Salazar 2019, arXiv 1910.05895).

        g x / ||x||

    g is one number for all rows, sqrt(D) at first. A row shorter than `eps` is divided by `eps` instead, as in the
    authors' code. Computed in fp32 at least.
    """

    def __init__(self, width: int, *, eps: float) -> None:
        super().__init__()
        self.gain, self.width, self.eps = nn.Parameter(torch.tensor(math.sqrt(width))), width, eps

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        wide = at_least_fp32(x)
        return (self.gain * F.normalize(wide, dim=-1, eps=self.eps)).to(x.dtype)


def norm_of(a: Architecture) -> nn.Module:
    """Return a norm of the residual stream, for a sublayer or after the last layer."""
    match a.norm_kind:
        case "layer":
            return LayerNorm(a.d_model, eps=a.norm_eps)
        case "rms":
            return RMSNorm(a.d_model, eps=a.norm_eps)
        case "scale":
            return ScaleNorm(a.d_model, eps=a.norm_eps)
        case _:
            assert_never(a.norm_kind)
