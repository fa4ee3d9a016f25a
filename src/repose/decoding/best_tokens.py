"""The best tokens of each row of log-probabilities, of equals those with the lowest ids; never PAD or START."""

import math

import torch
from torch import Tensor

from repose.system.errors import ReposeError

PAD, START = 0, 2
_CHUNK = 64  # columns reduced together first: torch's top-k and its max with indices are slow on a CPU


def best_token(log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """The best token of each row that may be chosen, of equals that with the lowest id.

    (R, V) -> log-probabilities float64 and ids (R,), on the CPU.
    """
    num_columns = log_probs.shape[1]
    # First the chunk with the best, then the best in it: torch's max with indices is slow on a CPU.
    first = log_probs[:, :_CHUNK].clone()
    first[:, PAD : START + 1 : START - PAD] = -math.inf
    maxima = [first.amax(1, keepdim=True)]
    whole = num_columns // _CHUNK * _CHUNK
    if whole > _CHUNK:
        maxima.append(log_probs[:, _CHUNK:whole].unflatten(1, (-1, _CHUNK)).amax(2))
    if whole < num_columns and whole:
        maxima.append(log_probs[:, whole:].amax(1, keepdim=True))
    chunk = torch.cat(maxima, 1).argmax(1, keepdim=True)
    columns = (chunk * _CHUNK + torch.arange(_CHUNK, device=chunk.device)).clamp_(max=num_columns - 1)
    values = log_probs.gather(1, columns).masked_fill_((columns == PAD) | (columns == START), -math.inf)
    best, place = values.max(1)
    best, tokens = best.cpu().double(), columns.gather(1, place[:, None])[:, 0].cpu()
    _check(best)
    return best, tokens


def _check(log_probs: Tensor) -> None:
    if bool(log_probs.isnan().any()):
        raise ReposeError(
            "The model gave NaN as a log-probability: its training may have diverged; try an earlier checkpoint."
        )


def best_tokens(log_probs: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """At least the `width` best tokens of each row that may be chosen (fewer in a smaller vocabulary).

    (R, V) -> log-probabilities float64 and ids (R, W), on the CPU, in the order of the ids; PAD and START, which take
    two places more, are −inf. Which of equal tokens are taken is fixed: those with the lower ids.
    """
    width = min(width + 2, log_probs.shape[1])
    values, tokens = (found.cpu() for found in _topk(log_probs, min(width + 1, log_probs.shape[1])))
    _check(values)
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
    return values.masked_fill_((tokens == PAD) | (tokens == START), -math.inf), tokens


def _topk(log_probs: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Values and ids of `torch.topk`: the `width` best of a row lie in the `width` chunks with the best maxima."""
    num_rows, num_columns = log_probs.shape
    num_chunks = num_columns // _CHUNK
    if num_chunks < 2 * width:
        return log_probs.topk(width)
    maxima = log_probs[:, : num_chunks * _CHUNK].view(num_rows, num_chunks, _CHUNK).amax(2)
    chunks = maxima.topk(width, sorted=False).indices
    inside = (chunks[:, :, None] * _CHUNK + torch.arange(_CHUNK, device=chunks.device)).flatten(1)
    rest = torch.arange(num_chunks * _CHUNK, num_columns, device=chunks.device).expand(num_rows, -1)
    columns = torch.cat([inside, rest], 1)
    values, place = log_probs.gather(1, columns).topk(width)
    return values, columns.gather(1, place)
