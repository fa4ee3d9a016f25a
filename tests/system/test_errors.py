"""Errors and what is told of them."""

import pytest

from repose.system.errors import OUT_OF_MEMORY, user_message


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        RuntimeError("CUDA error: out of memory"),
    ],
)
def test_memory_that_runs_out_is_one_sentence(error: Exception) -> None:
    assert user_message(error) == (OUT_OF_MEMORY, 1)
