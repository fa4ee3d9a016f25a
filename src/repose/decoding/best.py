"""The best tokens of each row of log-probabilities: of equals those with the lowest ids; never PAD or START.

Log-probabilities are a numpy array, which may be written to, or a tensor of torch, which is reduced on its device; what
is found is numpy's.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repose.system.errors import ReposeError

PAD, START, END = 0, 2, 3
CHUNK = 64
"""Columns that are reduced together first."""


def best_token(log_probs: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The best token of each row that may be chosen.

    (R, V) -> log-probabilities and ids (R,). Raises ReposeError where a log-probability is no number.
    """
    if not isinstance(log_probs, np.ndarray):
        from repose.decoding.best_torch import best_token as on_device

        return on_device(log_probs)
    _forbid_special(log_probs)
    ids = log_probs.argmax(1)  # of NaN and numbers, NaN
    values = log_probs[np.arange(len(ids)), ids].astype(np.float64)
    refuse_nan(values)
    return values, ids


def best_tokens(log_probs: Any, width: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """At least the `width` best tokens of each row that may be chosen (fewer in a smaller vocabulary).

    (R, V) -> log-probabilities and ids (R, W), in the order of the ids; −inf for PAD and START. Which of equal tokens
    are taken is fixed: those with the lower ids. Raises ReposeError where one of the best is no number.
    """
    if not isinstance(log_probs, np.ndarray):
        from repose.decoding.best_torch import best_tokens as on_device

        return on_device(log_probs, width)
    _forbid_special(log_probs)
    num_columns = log_probs.shape[1]
    width = min(width, num_columns)
    columns = _columns_with_the_best(log_probs, min(width + 1, num_columns))
    values = np.take_along_axis(log_probs, columns, 1)
    if width < num_columns:
        last, beyond = (np.sort(values, axis=1)[:, ::-1][:, [width - 1, width]]).T
        tied = (last == beyond) & (last > -math.inf)
        columns = np.take_along_axis(columns, np.argpartition(-values, width - 1, axis=1)[:, :width], 1)
        for row in tied.nonzero()[0].tolist():
            columns[row] = np.argsort(-log_probs[row], kind="stable")[:width]
    columns.sort(axis=1)
    values = np.take_along_axis(log_probs, columns, 1).astype(np.float64)
    refuse_nan(values)
    return values, columns


def forbid(log_probs: Any, rows: NDArray[np.int64], tokens: NDArray[np.int64]) -> Any:
    """−inf at these places; a numpy array is changed, a tensor copied."""
    if isinstance(log_probs, np.ndarray):
        log_probs[rows, tokens] = -math.inf
        return log_probs
    from repose.decoding.best_torch import forbid as on_device

    return on_device(log_probs, rows, tokens)


def refuse_nan(log_probs: NDArray[Any]) -> None:
    """Raise ReposeError where a log-probability is no number."""
    if np.isnan(log_probs).any():
        raise ReposeError(
            "the model gave NaN as a log-probability: its training may have diverged, so try an earlier checkpoint"
        )


def _forbid_special(log_probs: NDArray[Any]) -> None:
    log_probs[:, PAD : START + 1 : START - PAD] = -math.inf


def _columns_with_the_best(log_probs: NDArray[Any], width: int) -> NDArray[np.int64]:
    """Columns (R, width) of the best of each row: they lie in the `width` chunks with the best maxima."""
    num_rows, num_columns = log_probs.shape
    num_chunks = num_columns // CHUNK
    if num_chunks < 2 * width:
        refuse_nan(log_probs)
        return np.argpartition(-log_probs, width - 1, axis=1)[:, :width]
    whole = log_probs[:, : num_chunks * CHUNK].reshape(num_rows, num_chunks, CHUNK)
    maxima = whole.max(2)
    refuse_nan(maxima)  # which would count as the least of all
    chunks = np.argpartition(-maxima, width - 1, axis=1)[:, :width]
    inside = (chunks[:, :, None] * CHUNK + np.arange(CHUNK)).reshape(num_rows, -1)
    rest = np.broadcast_to(np.arange(num_chunks * CHUNK, num_columns), (num_rows, num_columns % CHUNK))
    columns = np.concatenate([inside, rest], 1)
    values = np.take_along_axis(log_probs, columns, 1)
    refuse_nan(values)
    return np.take_along_axis(columns, np.argpartition(-values, width - 1, axis=1)[:, :width], 1)
