"""Dropout with cheap random numbers on a CPU."""

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

LEVELS = 1 << 16
"""Number of levels to which a CPU rounds a probability: it draws 16 random bits per element."""


class Dropout(nn.Dropout):
    """Dropout like `torch.nn.Dropout`: x · mask / (1 - p) with mask ~ Bernoulli(1 - p), elementwise, in training.

    On a CPU, torch's generator would draw one double per element. Here it only seeds another generator (SFC64), which
    draws 64 bits for four elements. p is rounded to a multiple of 2^-16, and the scale accordingly.
    """

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        if not self.training or self.p == 0.0 or x.device.type != "cpu":
            return F.dropout(x, self.p, self.training)
        return x * keep_factors(x.numel(), self.p, x.dtype).view(x.shape)


def keep_factors(number: int, p: float, dtype: torch.dtype) -> Float[Tensor, " number"]:
    """Return 0 for an element to drop, 1 / (1 - p) for an element to keep."""
    seed = int(torch.randint(2**63 - 1, (), device="cpu"))
    bits = np.random.SFC64(seed).random_raw(-(-number // 4)).view(np.uint16)[:number]
    dropped = round(p * LEVELS)
    if dropped == LEVELS:
        return torch.zeros(number, dtype=dtype, device="cpu")
    keep_mask = torch.from_numpy((bits >= dropped).view(np.uint8))
    return keep_mask.to(dtype).mul_(LEVELS / (LEVELS - dropped))
