"""Find the best tokens of each row of log-probabilities. Ties go to the lowest ids; PAD and START are never chosen.

Log-probabilities are a numpy array or a torch tensor. A tensor on a CPU is read as an array; on another device, it is
reduced there. The functions leave their input unchanged in the end. Only a tensor needs torch, so torch is imported
only where a tensor is read.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from repose.system.errors import ReposeError
from repose.system.token_ids import PAD, START

if TYPE_CHECKING:
    from torch import Tensor


def best_token(log_probs: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the best token of each row.

    (R, V) -> log-probabilities and ids (R,). Raises ReposeError if a log-probability is NaN.
    """
    values, tokens = _in_order(log_probs, 1)
    return values[:, 0], tokens[:, 0]


def best_tokens(log_probs: Any, width: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return at least the `width` best tokens of each row (fewer if the vocabulary is smaller).

    (R, V) -> log-probabilities and ids (R, W), ordered by id; −inf for tokens that may not be chosen. Raises
    ReposeError if one of the best is NaN.
    """
    values, tokens = _in_order(log_probs, width)
    by_id = tokens.argsort(axis=1)
    values, tokens = picked(by_id, values, tokens)
    return values, tokens


def picked(columns: NDArray[np.int64], *arrays: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Pick these columns (N, W) from each row of arrays of one shape (N, C). Same as numpy's `take_along_axis`, which
    takes ten times as long for a few numbers."""
    flat = columns + np.arange(len(columns))[:, None] * arrays[0].shape[1]
    return tuple(array.ravel().take(flat) for array in arrays)


def forbid(log_probs: Any, rows: NDArray[np.int64], tokens: NDArray[np.int64]) -> Any:
    """Return a copy with −inf at these places."""
    if isinstance(log_probs, np.ndarray):
        changed = log_probs.copy()
        changed[rows, tokens] = -math.inf
        return changed
    import torch

    changed = log_probs.clone()
    changed[tuple(torch.tensor(x, device=changed.device) for x in (rows, tokens))] = -math.inf
    return changed


def mean_of_probabilities(log_probs: Sequence[Any]) -> Any:
    """Return the logarithm of the mean of several models' probabilities: (R, V) each -> (R, V)."""
    if not any(isinstance(x, np.ndarray) for x in log_probs):
        import torch

        return torch.stack(list(log_probs)).logsumexp(0) - math.log(len(log_probs))
    arrays = [as_array(x) for x in log_probs]
    largest = np.maximum.reduce(arrays)  # subtracted first: otherwise rare tokens would underflow to impossible
    largest[largest == -math.inf] = 0.0
    total = np.zeros_like(largest)
    for array in arrays:
        total += np.exp(array - largest)
    with np.errstate(divide="ignore"):  # the logarithm of 0, where every model gives −inf
        return np.log(total) + (largest - math.log(len(arrays)))


def as_array(log_probs: Any) -> NDArray[np.float32]:
    """Return log-probabilities as a numpy array."""
    return log_probs if isinstance(log_probs, np.ndarray) else log_probs.detach().cpu().numpy()


def refuse_nan(log_probs: NDArray[Any]) -> None:
    """Raise ReposeError if a log-probability is NaN."""
    if np.isnan(log_probs).any():
        raise ReposeError(
            "the model gave NaN as a log-probability: its training may have diverged, so try an earlier checkpoint"
        )


def _in_order(log_probs: Any, width: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return log-probabilities and ids of the `width` best tokens of each row, best first, (R, width); −inf where a row
    has no more."""
    if not isinstance(log_probs, np.ndarray):
        if log_probs.device.type != "cpu":
            return in_order_on_device(log_probs, width)
        log_probs = as_array(log_probs)
    special = [PAD, START]
    hidden, rows = log_probs[:, special], np.arange(len(log_probs))
    log_probs[:, special] = -math.inf
    width = min(width, log_probs.shape[1])
    tokens = np.empty((len(rows), width), dtype=np.int64)
    values = np.empty((len(rows), width), dtype=log_probs.dtype)
    for place in range(width):  # one argmax per place: it runs at memory speed, and ties go to the first
        best = log_probs.argmax(1)
        tokens[:, place], values[:, place] = best, log_probs[rows, best]
        log_probs[rows, best] = -math.inf
    # In reverse order, because a row of −inf gives the same token again.
    for place in reversed(range(width)):
        log_probs[rows, tokens[:, place]] = values[:, place]
    log_probs[:, special] = hidden
    refuse_nan(values)
    return values.astype(np.float64), tokens


def in_order_on_device(log_probs: "Tensor", width: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Compute `_in_order` on the tensor's own device; only the best tokens are copied to the CPU."""
    import torch

    with torch.no_grad():
        num_columns = log_probs.shape[1]
        width = min(width, num_columns)
        allowed = log_probs.clone()
        for token in (PAD, START):
            allowed[:, token] = -math.inf
        values, tokens = (x.cpu() for x in allowed.topk(min(width + 1, num_columns)))
        refuse_nan(values.double().numpy())
        tied = (values[:, width - 1] == values[:, -1]) & (width < num_columns)
        values, tokens = values[:, :width], tokens[:, :width]
        if bool(tied.any()):
            # top-k picks any of the tokens that tie with its last: replace them by the lowest ids, in order
            last = values[tied, -1:]
            equal = allowed[tied.to(allowed.device)] == last.to(allowed)
            ids = torch.arange(num_columns, device=allowed.device)
            lowest = torch.where(equal, ids, len(ids)).topk(width, largest=False, sorted=True).values.cpu()
            num_better = (values[tied] > last).sum(1, keepdim=True)
            nth = torch.arange(width, device="cpu") - num_better  # index among ties, from 0; negative for better tokens
            tokens[tied] = torch.where(nth < 0, tokens[tied], lowest.gather(1, nth.clamp_min(0)))
        # Among ties, the lower id comes first.
        tokens, order = tokens.sort(dim=1)
        values, better = values.gather(1, order).sort(dim=1, descending=True, stable=True)
        return values.double().numpy(), tokens.gather(1, better).numpy()
