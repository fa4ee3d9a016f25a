"""Padded batches with every kind of padding."""

import pytest
import torch

from repose.model.kernels.packing import Packing

MASKS = {
    "right": [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0]],
    "one long": [[1] * 8, [1, 1] + [0] * 6, [1] * 3 + [0] * 5, [1, 1, 1] + [0] * 5],
    "left and holes": [[0, 1, 0, 1], [0, 0, 0, 1], [1, 0, 1, 1]],
    "full": [[1, 1], [1, 1]],
    "empty row": [[0, 0], [1, 1]],
}


@pytest.fixture(params=MASKS.values(), ids=MASKS.keys())
def packing(request: pytest.FixtureRequest) -> Packing:
    return Packing(torch.tensor(request.param, dtype=torch.bool))
