"""Padded batches with every kind of padding."""

from collections.abc import Callable

import pytest
import torch

from repose.model import attention, kernels
from repose.model.kernels.packing import Packing

MASKS = {
    "right": [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0]],
    "one long": [[1] * 8, [1, 1] + [0] * 6, [1] * 3 + [0] * 5, [1, 1, 1] + [0] * 5],
    "left and holes": [[0, 1, 0, 1], [0, 0, 0, 1], [1, 0, 1, 1]],
    "full": [[1, 1], [1, 1]],
    "empty row": [[0, 0], [1, 1]],
}


@pytest.fixture(params=MASKS.values(), ids=MASKS.keys())
def mask(request: pytest.FixtureRequest) -> torch.Tensor:
    return torch.tensor(request.param, dtype=torch.bool)


@pytest.fixture(params=[True, False], ids=["cpu", "accelerator"])
def packing(mask: torch.Tensor, request: pytest.FixtureRequest) -> Packing:
    made = Packing(mask)
    made.packs = request.param
    return made


@pytest.fixture
def on_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on, models compute as they do there: on all positions of a batch."""

    def switch() -> None:
        for module in (kernels.packing, kernels.blocks, attention):
            monkeypatch.setattr(module, "packs", lambda _: False)

    return switch
