"""The dropout, residual connection and norm around a sublayer: the axes `norm` and `residual_weight`."""

from collections.abc import Callable
from typing import assert_never

from jaxtyping import Float
from torch import Tensor, nn

from repose.model.architecture import Architecture
from repose.model.kernels.dropout import Dropout
from repose.model.norms import norm_of


class Sublayer(nn.Module):
    """The residual connection around a sublayer F, with its norm LN. k is `residual_weight`.

        post: LN(k x + dropout(F(x)))        Vaswani et al. 3.1 (k = 1); arXiv 2310.10930 (k = 4)
        pre:  x + dropout(F(LN(x)))          Xiong et al. 2020; the stack ends in a norm of its own
        both: LN(k x + dropout(F(LN'(x))))   our reading of arXiv 2310.10930's full layer normalization: "add more
              normalization layers to the original Transformer"

    LN is layer norm, or the norm that the axis `norm_kind` names (`norm_of`).
    """

    def __init__(self, a: Architecture, dropout: float) -> None:
        """`dropout`: the dropout rate of the sublayer's output."""
        super().__init__()
        self.norm = norm_of(a)
        self.dropout = Dropout(dropout)
        self.norm_before = norm_of(a) if a.norm == "both" else None
        self.placement = a.norm
        self.residual_weight = a.residual_weight

    def forward(
        self, x: Float[Tensor, "R D"], sublayer: Callable[[Float[Tensor, "R D"]], Float[Tensor, "R D"]]
    ) -> Float[Tensor, "R D"]:
        """Apply `sublayer` to x, with the residual connection and the norm."""
        match self.placement:
            case "pre":
                return x + self.dropout(sublayer(self.norm(x)))
            case "post" | "both":
                residual = x if self.residual_weight == 1.0 else self.residual_weight * x
                branch = x if self.norm_before is None else self.norm_before(x)
                return self.norm(residual + self.dropout(sublayer(branch)))
            case _:
                assert_never(self.placement)
