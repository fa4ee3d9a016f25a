"""Deadlines of requests, and clients that go away."""

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from repose.serving import waiting as waiting_module
from repose.serving.waiting import Deadlines, GoneError, watched


def connection(*, lost: bool) -> Any:
    return SimpleNamespace(waiting=None, transport=SimpleNamespace(is_closing=lambda: lost))


def test_each_wait_ends_with_its_own_deadline_and_what_is_done_in_time_is_left_alone() -> None:
    async def test() -> None:
        deadlines, ended = Deadlines(), []

        async def wait(seconds: float) -> None:
            with pytest.raises(TimeoutError), deadlines.within(seconds):
                await asyncio.sleep(5)
            ended.append(seconds)
            await asyncio.sleep(0)  # no cancellation is left over

        waits = [asyncio.create_task(wait(seconds)) for seconds in (0.2, 0.01, 0.1)]
        with deadlines.within(1.0):
            await asyncio.sleep(0)
        await asyncio.gather(*waits)
        assert ended == [0.01, 0.1, 0.2]

    asyncio.run(test())
    asyncio.run(test())


@pytest.mark.parametrize("ended", [False, True])
def test_a_cancellation_from_outside_stays_one(*, ended: bool) -> None:
    """Also beside an end of its own."""

    async def test() -> None:
        async def wait() -> None:
            with Deadlines().within(5) as waiting:
                if ended:
                    waiting.end(GoneError())
                await asyncio.sleep(5)

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(test())


@pytest.mark.parametrize("before", [True, False])
def test_a_client_that_goes_ends_its_wait(*, before: bool) -> None:
    async def test() -> None:
        of = connection(lost=before)

        async def wait() -> None:
            with Deadlines().within(5) as waiting, watched(of, waiting):
                await asyncio.sleep(5)

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        if not before:
            of.waiting.end(GoneError())
        with pytest.raises(GoneError):
            await task
        assert of.waiting is None

    asyncio.run(test())


def test_of_two_ends_the_first_counts() -> None:
    async def wait() -> None:
        with Deadlines().within(5) as waiting:
            waiting.end(GoneError())
            waiting.end(TimeoutError())
            await asyncio.sleep(5)

    async def test() -> None:
        with pytest.raises(GoneError):
            await wait()
        await asyncio.sleep(0)  # no cancellation is left over

    asyncio.run(test())


def test_an_error_of_what_was_done_stays_one() -> None:
    async def wait() -> None:
        with Deadlines().within(5) as waiting:
            waiting.end(GoneError())
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(5)
            raise ValueError("of its own")

    async def test() -> None:
        with pytest.raises(ValueError, match="of its own"):
            await wait()
        await asyncio.sleep(0)  # no cancellation is left over

    asyncio.run(test())


def test_a_deadline_is_of_its_context_and_the_clock_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_module, "_PRECISION", 0.0)

    async def test() -> None:
        deadlines = Deadlines()
        for _ in range(2):
            with deadlines.within(0):
                pass
            for _ in range(9):
                await asyncio.sleep(0)  # it passes, and nobody waits any more
            with pytest.raises(TimeoutError), deadlines.within(0):
                await asyncio.sleep(5)

    asyncio.run(test())
