"""`best` for log-probabilities of torch: reduced on their device, the few that are left brought to the CPU."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from repose.decoding.best import CHUNK, PAD, START, refuse_nan


@torch.no_grad()
def best_token(log_probs: Tensor) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """As in `best`."""
    num_columns = log_probs.shape[1]
    # First the chunk with the best, then the best in it: torch's max with indices is slow on a CPU.
    first = log_probs[:, :CHUNK].clone()
    first[:, PAD : START + 1 : START - PAD] = -math.inf
    maxima = [first.amax(1, keepdim=True)]
    whole = num_columns // CHUNK * CHUNK
    if whole > CHUNK:
        maxima.append(log_probs[:, CHUNK:whole].unflatten(1, (-1, CHUNK)).amax(2))
    if whole < num_columns and whole:
        maxima.append(log_probs[:, whole:].amax(1, keepdim=True))
    chunk = torch.cat(maxima, 1).argmax(1, keepdim=True)
    columns = (chunk * CHUNK + torch.arange(CHUNK, device=chunk.device)).clamp_(max=num_columns - 1)
    values = log_probs.gather(1, columns).masked_fill_((columns == PAD) | (columns == START), -math.inf)
    best, place = values.max(1)
    found = best.cpu().double().numpy()
    refuse_nan(found)
    return found, columns.gather(1, place[:, None])[:, 0].cpu().numpy()


@torch.no_grad()
def best_tokens(log_probs: Tensor, width: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """As in `best`; PAD and START take two places more."""
    width = min(width + 2, log_probs.shape[1])
    values, tokens = (x.cpu() for x in _topk(log_probs, min(width + 1, log_probs.shape[1])))
    refuse_nan(values.double().numpy())
    tied = (values[:, width - 1] == values[:, -1]) & (values[:, -1] > -math.inf)
    values = values[:, :width]
    if values.shape[1] < tokens.shape[1] and bool(tied.any()):
        # top-k took any of the tokens that equal its last: put the lowest ids in their places, in order
        last = values[tied, -1:]
        equal = log_probs[tied.to(log_probs.device)] == last.to(log_probs)
        ids = torch.arange(log_probs.shape[1], device=log_probs.device)
        lowest = torch.where(equal, ids, len(ids)).topk(width, largest=False, sorted=True).values.cpu()
        num_better = (values[tied] > last).sum(1, keepdim=True)
        place = torch.arange(width) - num_better
        tokens[tied, :width] = torch.where(place < 0, tokens[tied, :width], lowest.gather(1, place.clamp_min(0)))
    tokens, order = tokens[:, :width].sort(1)
    values = values.gather(1, order).double()
    return values.masked_fill_((tokens == PAD) | (tokens == START), -math.inf).numpy(), tokens.numpy()


def forbid(log_probs: Tensor, rows: NDArray[np.int64], tokens: NDArray[np.int64]) -> Tensor:
    """As in `best`."""
    log_probs, device = log_probs.clone(), log_probs.device
    log_probs[torch.from_numpy(rows).to(device), torch.tensor(tokens, device=device)] = -math.inf
    return log_probs


def _topk(log_probs: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Values and ids of `torch.topk`: the `width` best of a row lie in the `width` chunks with the best maxima."""
    num_rows, num_columns = log_probs.shape
    num_chunks = num_columns // CHUNK
    if num_chunks < 2 * width:
        return log_probs.topk(width)
    maxima = log_probs[:, : num_chunks * CHUNK].view(num_rows, num_chunks, CHUNK).amax(2)
    chunks = maxima.topk(width, sorted=False).indices
    inside = (chunks[:, :, None] * CHUNK + torch.arange(CHUNK, device=chunks.device)).flatten(1)
    rest = torch.arange(num_chunks * CHUNK, num_columns, device=chunks.device).expand(num_rows, -1)
    columns = torch.cat([inside, rest], 1)
    values, place = log_probs.gather(1, columns).topk(width)
    return values, columns.gather(1, place)
