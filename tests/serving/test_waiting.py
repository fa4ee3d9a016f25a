"""Deadlines of requests, and clients that go away."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from repose.serving.waiting import Deadlines, GoneError, watched


def connection(*, lost: bool) -> Any:
    return SimpleNamespace(waiting=None, transport=SimpleNamespace(is_closing=lambda: lost))


async def _never() -> Any:
    return await asyncio.Event().wait()


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


def test_a_cancellation_from_outside_stays_one() -> None:
    async def test() -> None:
        deadlines = Deadlines()

        async def wait() -> None:
            with deadlines.within(5):
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
            with Deadlines().within(5) as waiting, watched({"state": {"connection": of}}, _never, waiting):
                await asyncio.sleep(5)

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        if not before:
            of.waiting.end(GoneError())
        with pytest.raises(GoneError):
            await task
        assert of.waiting is None

    asyncio.run(test())


def test_a_server_without_such_connections_is_asked() -> None:
    async def gone() -> Any:
        await asyncio.sleep(0.01)
        return {"type": "http.disconnect"}

    async def test() -> None:
        with pytest.raises(GoneError), Deadlines().within(5) as waiting, watched({"state": {}}, gone, waiting):
            await asyncio.sleep(5)
        with Deadlines().within(5) as waiting, watched({"state": {}}, _never, waiting):
            await asyncio.sleep(0)

    asyncio.run(test())
