"""This machine's devices, and requests for more than it has."""

from threading import Event, Thread

import pytest

from repose.system.device import available_cores, check_workers, find_device, memory_bytes, one_thread, own_defaults
from repose.system.errors import ConfigError


def test_memory_is_that_of_a_machine() -> None:
    size = memory_bytes()
    assert size is None or 1 << 28 < size < 1 << 50


def test_an_index_may_have_zeros_before_it() -> None:
    assert str(find_device("cpu:00")) == "cpu:0"


def test_numbers_of_workers() -> None:
    for number in (1, available_cores(), 64):
        check_workers(number)
    for number in (-1, 0, 99_999):
        with pytest.raises(ConfigError, match=f"workers = {number}, but it should be from 1 to"):
            check_workers(number)


def test_a_program_has_its_default_type_again_when_the_last_thread_needs_none() -> None:
    """The second begins while the first is within, and ends after it."""
    torch = pytest.importorskip("torch")
    usual, seen = torch.get_default_dtype(), []
    within = [Event(), Event(), Event()]

    def first() -> None:
        with own_defaults():
            within[0].set()
            within[1].wait(30)
        within[2].set()

    def second() -> None:
        within[0].wait(30)
        with own_defaults():
            within[1].set()
            within[2].wait(30)
            seen.append(torch.zeros(1).dtype)

    try:
        torch.set_default_dtype(torch.float64)
        threads = [Thread(target=first), Thread(target=second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (seen, torch.get_default_dtype()) == ([torch.float32], torch.float64)
    finally:
        torch.set_default_dtype(usual)


def test_threads_that_compute_with_one_at_once_leave_the_number_as_it_was() -> None:
    """The second begins while the first is within, and ends after it."""
    torch = pytest.importorskip("torch")
    usual, seen = torch.get_num_threads(), []
    within = [Event(), Event(), Event()]

    def first() -> None:
        with one_thread():
            within[0].set()
            within[1].wait(30)
            with one_thread():
                seen.append(torch.get_num_threads())
            seen.append(torch.get_num_threads())
        seen.append(torch.get_num_threads())
        within[2].set()

    def second() -> None:
        within[0].wait(30)
        with one_thread():
            within[1].set()
            within[2].wait(30)
            seen.append(torch.get_num_threads())
        seen.append(torch.get_num_threads())

    try:
        torch.set_num_threads(3)
        for threads in ([Thread(target=first), Thread(target=second)], [Thread(target=first)]):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert seen == [1, 1, 3, 1, 3, 1, 1, 3]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(usual)
