"""Dropout with cheap random numbers on a CPU."""

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

LEVELS = 1 << 16
"""Steps between which a probability is rounded on a CPU: 16 random bits an element."""


class Dropout(nn.Dropout):
    """x · mask / (1 - p) with mask ~ Bernoulli(1 - p), elementwise, in training; as `torch.nn.Dropout`.

    torch's generator draws one double a number. Here torch's generator seeds one
    (SFC64) that draws 64 bits for four numbers; p is rounded to a multiple of 2^-16, and so is the scale.
    """

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        if not self.training or self.p == 0.0 or x.device.type != "cpu":
            return F.dropout(x, self.p, self.training)
        return x * keep_factors(x.numel(), self.p, x.dtype).view(x.shape)


def keep_factors(number: int, p: float, dtype: torch.dtype) -> Float[Tensor, " number"]:
    """0 where an element is dropped, 1 / (1 - p) where it is kept."""
    seed = int(torch.randint(2**63 - 1, (), device="cpu"))
    bits = np.random.SFC64(seed).random_raw(-(-number // 4)).view(np.uint16)[:number]
    dropped = round(p * LEVELS)
    if dropped == LEVELS:
        return torch.zeros(number, dtype=dtype, device="cpu")
    keep_mask = torch.from_numpy((bits >= dropped).view(np.uint8))
    return keep_mask.to(dtype).mul_(LEVELS / (LEVELS - dropped))
