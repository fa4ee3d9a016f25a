"""What stands around every sublayer: dropout, the residual and a norm. The axes `norm`, `norm_kind` and
`residual_weight`."""

import math
from collections.abc import Callable
from typing import assert_never

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from repose.model.architecture import Architecture
from repose.model.kernels.beside import active
from repose.model.kernels.dropout import Dropout


class LayerNorm(nn.LayerNorm):
    """(x - mean) / sqrt(variance + eps) * gain + bias of each row (Ba et al. 2016, arXiv 1607.06450)."""

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        if (beside := active()) is not None:
            return beside.layer_norm(x, self.weight, self.bias, self.eps)
        return super().forward(x)


class ScaleNorm(nn.Module):
    """g x / ||x||, one learned length g for all rows (Nguyen and Salazar 2019, arXiv 1910.05895), sqrt(D) at first.

    A row shorter than `eps` is divided by that instead, as in the authors' code. Computed in fp32 at least.
    """

    def __init__(self, width: int, *, eps: float) -> None:
        super().__init__()
        self.gain, self.eps = nn.Parameter(torch.tensor(math.sqrt(width))), eps

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (self.gain * F.normalize(wide, dim=-1, eps=self.eps)).to(x.dtype)


def norm_of(a: Architecture) -> nn.Module:
    """A norm of the residual stream: of a sublayer, or of what the last layer gives."""
    match a.norm_kind:
        case "layer":
            return LayerNorm(a.d_model, eps=a.norm_eps)
        case "scale":
            return ScaleNorm(a.d_model, eps=a.norm_eps)
        case _:
            assert_never(a.norm_kind)


class Sublayer(nn.Module):
    """The residual connection around a sublayer F, with its norm.

    post: LN(k x + dropout(F(x)))     Vaswani et al. 3.1 (k = 1); arXiv 2310.10930 (k = 4)
    pre:  x + dropout(F(LN(x)))       Xiong et al. 2020; the stack ends in a norm of its own
    both: LN(k x + dropout(F(LN'(x))))   a reading of arXiv 2310.10930's full layer normalization: "add more
          normalization layers to the original Transformer"

    LN is layer norm, or what else `norm_kind` names (`norm_of`).
    """

    def __init__(self, a: Architecture, dropout: float) -> None:
        """`dropout`: on the sublayer's output."""
        super().__init__()
        self.norm = norm_of(a)
        self.dropout = Dropout(dropout)
        self.norm_before = norm_of(a) if a.norm == "both" else None
        self.placement = a.norm
        self.residual_weight = a.residual_weight

    def forward(
        self, x: Float[Tensor, "R D"], sublayer: Callable[[Float[Tensor, "R D"]], Float[Tensor, "R D"]]
    ) -> Float[Tensor, "R D"]:
        """Applies `sublayer` to x, inside the connection."""
        match self.placement:
            case "pre":
                return x + self.dropout(sublayer(self.norm(x)))
            case "post" | "both":
                residual = x if self.residual_weight == 1.0 else self.residual_weight * x
                branch = x if self.norm_before is None else self.norm_before(x)
                return self.norm(residual + self.dropout(sublayer(branch)))
            case _:
                assert_never(self.placement)
