"""Which keys a query may attend to. True = may attend, in every mask of this project."""

import torch
from jaxtyping import Bool
from torch import Tensor


def key_mask(real: Bool[Tensor, "B K"]) -> Bool[Tensor, "B 1 1 K"]:
    """Every query may attend to every real token, and to no padding."""
    return real[:, None, None, :]


def causal_mask(num_queries: int, num_keys: int, device: torch.device) -> Bool[Tensor, "Q K"]:
    """The last `num_queries` of `num_keys` positions, each of which may attend to itself and what precedes it.

    Vaswani et al. 3.1: predictions for position i depend only on positions before i.
    Differs from arXiv 2410.04731: its eq. 13 adds +infinity where j > i, which would attend to the future only;
    read as -infinity.
    """
    ones = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
    return ones.tril(num_keys - num_queries)
