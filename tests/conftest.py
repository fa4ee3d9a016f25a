"""Shapes are executed: every annotation of `repose.model` is checked at each call in the tests."""

import pytest
import torch
from jaxtyping import install_import_hook

install_import_hook("repose.model", "beartype.beartype")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tests run side by side, one core each."""
    torch.set_num_threads(1)
