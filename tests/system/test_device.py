"""What this machine has, and what is more than it can be meant to run."""

import pytest

from repose.system.device import available_cores, check_workers, memory_bytes
from repose.system.errors import ConfigError


def test_memory_is_that_of_a_machine() -> None:
    size = memory_bytes()
    assert size is None or 1 << 28 < size < 1 << 50


def test_numbers_of_workers() -> None:
    for number in (1, available_cores(), 64):
        check_workers(number)
    check_workers(0, least=0)
    for number in (-1, 0, 99_999):
        with pytest.raises(ConfigError, match=f"workers = {number}, but it should be from 1 to"):
            check_workers(number)
