"""`best` for log-probabilities on a GPU: reduced there, the few that are left brought to the CPU."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from repose.decoding.best import refuse_nan
from repose.system.token_ids import PAD, START


@torch.no_grad()
def in_order(log_probs: Tensor, width: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """As `best._in_order`, with tensors of any device."""
    num_columns = log_probs.shape[1]
    width = min(width, num_columns)
    allowed = log_probs.clone()
    for token in (PAD, START):
        allowed[:, token] = -math.inf
    values, tokens = (x.cpu() for x in allowed.topk(min(width + 1, num_columns)))
    found = values.double().numpy()
    refuse_nan(found)
    tied = (values[:, width - 1] == values[:, -1]) & (width < num_columns)
    values, tokens = values[:, :width], tokens[:, :width]
    if bool(tied.any()):
        # top-k took any of the tokens that equal its last: put the lowest ids in their places, in order
        last = values[tied, -1:]
        equal = allowed[tied.to(allowed.device)] == last.to(allowed)
        ids = torch.arange(num_columns, device=allowed.device)
        lowest = torch.where(equal, ids, len(ids)).topk(width, largest=False, sorted=True).values.cpu()
        num_better = (values[tied] > last).sum(1, keepdim=True)
        place = torch.arange(width, device="cpu") - num_better
        tokens[tied] = torch.where(place < 0, tokens[tied], lowest.gather(1, place.clamp_min(0)))
    # Of equals, the lower id first.
    tokens, order = tokens.sort(dim=1)
    values, better = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values.double().numpy(), tokens.gather(1, better).numpy()
