"""Worker processes and their queue: no request is lost, mixed up or answered twice, whichever process dies."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from stub_server import samples, served

from repose.serving.dispatcher import ANSWERED_BY, Dispatcher, TranslationError
from repose.serving.messages import How, ModelToLoad
from repose.serving.metrics import Metrics
from repose.serving.refusals import RequestError
from repose.serving.settings import Batching
from repose.serving.texts import in_turn
from repose.serving.workers import Worker
from repose.system.errors import ReposeError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

HOW = How(0)


@pytest.fixture(autouse=True)
def _workers_find_the_stub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])


def with_dispatcher(
    test: Callable[[Dispatcher], Awaitable[Any]],
    *,
    paths: tuple[str, ...] = ("one",),
    workers: int = 1,
    metrics: Metrics | None = None,
    **batching: Any,
) -> Any:
    async def run() -> Any:
        models = [ModelToLoad("stub_translator:load", path, {}) for path in paths]
        dispatcher = Dispatcher(models, workers, Batching(**batching), metrics or Metrics())
        await dispatcher.start()
        try:
            async with asyncio.timeout(20):
                return await test(dispatcher)
        finally:
            await dispatcher.close()

    return asyncio.run(run())


async def say(dispatcher: Dispatcher, *sentences: str, how: How = HOW) -> list[str]:
    answers = await dispatcher.translate(how, sentences, [len(sentence) for sentence in sentences])
    return [answer.text for answer in answers]


def test_a_lone_sentence_is_not_kept_waiting_and_many_share_batches() -> None:
    metrics = Metrics()

    async def test(dispatcher: Dispatcher) -> None:
        assert await say(dispatcher) == []
        assert await say(dispatcher, "batch") == ["1"]
        many = [say(dispatcher, f"text {i}", "batch") for i in range(200)]
        found = await asyncio.gather(*many)
        assert [texts[0] for texts in found] == [f"TEXT {i}" for i in range(200)]
        assert max(int(texts[1]) for texts in found) == 16

    with_dispatcher(test, max_batch_rows=16, metrics=metrics)
    assert samples(metrics)["repose_batch_rows_sum"] == 401
    assert samples(metrics)["repose_batch_rows_count"] < 60
    assert samples(metrics)["repose_queue_tokens"] == 0


def test_a_batch_has_so_many_tokens_and_sentences_of_like_length() -> None:
    async def test(dispatcher: Dispatcher) -> list[list[str]]:
        first = asyncio.create_task(say(dispatcher, "slow"))
        await asyncio.sleep(0.1)  # all of these wait for the worker
        mixed = ["a", "b" * 90, "batch", "c" * 91, "d", "e" * 92, "batch"]
        found = await asyncio.gather(
            *(say(dispatcher, sentence) for sentence in mixed), say(dispatcher, "batch", "f" * 60)
        )
        await first
        return found

    found = with_dispatcher(test, max_batch_tokens=300)
    assert [found[2], found[6], found[7][:1]] == [["5"]] * 3, "the short ones together"


def test_requests_of_other_models_and_searches_do_not_share() -> None:
    async def test(dispatcher: Dispatcher) -> None:
        asked = [How(0), How(1), How(1, "gl", 4, 3), How(0, None, 2)]
        found = await asyncio.gather(*(say(dispatcher, "batch", "model", "how", how=how) for how in asked))
        assert found == [
            ["3", "one", "None None"], ["3", "two", "None None"], ["3", "two", "4 gl"], ["3", "one", "2 None"]
        ]  # fmt: skip
        (answer,) = await dispatcher.translate(asked[2], ["a"], [1])
        assert [one.text for one in answer.hypotheses] == ["A", "A", "A"]

    with_dispatcher(test, paths=("one", "two"))


def test_what_is_not_waited_for_any_more_is_not_translated(tmp_path: Path) -> None:
    metrics = Metrics()

    async def test(dispatcher: Dispatcher) -> None:
        (tmp_path / "hold").touch()
        first = asyncio.create_task(say(dispatcher, "slow"))
        while not (tmp_path / "held").exists():
            await asyncio.sleep(0.005)
        gone = asyncio.create_task(say(dispatcher, "die", "die"))
        await asyncio.sleep(0)
        assert samples(metrics)["repose_queue_tokens"] == 6
        gone.cancel()
        await asyncio.wait([gone])
        (tmp_path / "held").unlink()
        assert await first == ["SLOW"]
        await dispatcher.drain()

    with_dispatcher(test, paths=(str(tmp_path),), metrics=metrics)
    assert samples(metrics)["repose_cancelled_total"] == 2
    assert samples(metrics)["repose_worker_restarts_total"] == 0


def test_a_request_may_come_back_to_a_dispatcher_that_drains() -> None:
    """As one does whose sentences without markup are translated before those with it."""

    async def test(dispatcher: Dispatcher) -> None:
        begun, seen = asyncio.Event(), list[str]()

        async def request() -> None:
            with dispatcher.in_use():
                seen.extend(await say(dispatcher, "a"))
                begun.set()
                await asyncio.sleep(0.2)  # at work on its text
                seen.extend(await say(dispatcher, "b"))

        task = asyncio.create_task(request())
        await begun.wait()
        await dispatcher.drain()
        assert seen == ["A", "B"]
        await dispatcher.close()
        await task
        with pytest.raises(RequestError, match="closing"):
            await say(dispatcher, "c")

    with_dispatcher(test)


@pytest.mark.parametrize("turns", range(5))
def test_what_a_dispatcher_that_closes_has_just_given_out_fails(turns: int) -> None:
    """In whatever turn of the event loop it closes."""

    async def test(dispatcher: Dispatcher) -> None:
        task = asyncio.create_task(say(dispatcher, "slow"))
        for _ in range(turns):
            await asyncio.sleep(0)
        await dispatcher.close()
        with pytest.raises(RequestError, match="closing"):
            async with asyncio.timeout(5):
                await task

    with_dispatcher(test)


def test_too_long_a_queue_is_refused_with_the_time_to_come_back() -> None:
    async def test(dispatcher: Dispatcher) -> None:
        first = asyncio.create_task(say(dispatcher, "slow"))
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(say(dispatcher, "a" * 50))
        await asyncio.sleep(0)
        with pytest.raises(RequestError) as refused:
            await say(dispatcher, "b" * 51)
        assert refused.value.status == 503
        assert int(refused.value.headers["Retry-After"]) >= 1
        assert [await waiting, await first] == [["A" * 50], ["SLOW"]]
        assert await say(dispatcher, "c" * 500) == ["C" * 500], "alone it is taken, however long"

    with_dispatcher(test, max_queue_tokens=100)


def test_workers_killed_under_load_lose_nothing() -> None:
    metrics = Metrics()

    async def test(dispatcher: Dispatcher) -> None:
        async def client(number: int) -> None:
            for turn in range(5):
                assert await say(dispatcher, f"{number} says {turn}", f"and {number}") == [
                    f"{number} SAYS {turn}", f"AND {number}"
                ]  # fmt: skip

        clients = [asyncio.create_task(client(number)) for number in range(200)]
        for killed in range(2):
            await asyncio.sleep(0.05)
            while not dispatcher.pids:
                await asyncio.sleep(0.005)
            os.kill(dispatcher.pids[0], signal.SIGKILL)
            while samples(metrics)["repose_worker_restarts_total"] == killed:
                await asyncio.sleep(0.005)
        await asyncio.gather(*clients)

    with_dispatcher(test, workers=2, metrics=metrics)


@pytest.mark.parametrize("word", ["die", "fail"])
def test_a_text_that_no_worker_survives_fails_alone(word: str) -> None:
    async def test(dispatcher: Dispatcher) -> None:
        first = asyncio.create_task(say(dispatcher, "slow"))
        await asyncio.sleep(0.1)
        found = await asyncio.gather(
            *(say(dispatcher, text) for text in ("a", word, "b")), say(dispatcher, "c", word), say(dispatcher, "d"),
            return_exceptions=True,
        )  # fmt: skip
        assert [await first, found[0], found[2], found[4]] == [["SLOW"], ["A"], ["B"], ["D"]]
        assert isinstance(found[1], TranslationError)
        assert isinstance(found[3], TranslationError)

    with_dispatcher(test, workers=2)


def test_a_request_with_a_text_that_cannot_be_translated_fails_before_the_rest_of_it_is() -> None:
    metrics = Metrics()

    async def test(dispatcher: Dispatcher) -> None:
        with pytest.raises(TranslationError):
            await say(dispatcher, "fail", *(f"text {i}" for i in range(40)))

    with_dispatcher(test, metrics=metrics, max_batch_rows=2)
    assert samples(metrics)["repose_batch_rows_sum"] < 10


def test_a_worker_that_does_not_answer_is_given_up() -> None:
    async def test(dispatcher: Dispatcher) -> None:
        with pytest.raises(TranslationError):
            await say(dispatcher, "slow")
        assert await say(dispatcher, "a") == ["A"]

    with_dispatcher(test, batch_seconds=0.1)


def test_sentences_that_are_cut_are_counted() -> None:
    metrics = Metrics()
    model = served("pt", "en")

    async def test(dispatcher: Dispatcher) -> None:
        texts = ["word " * 30, "short", "word " * 40]
        answers = await in_turn(dispatcher, model, HOW, texts)
        assert [answer.truncated for answer in answers] == [True, False, True]

    with_dispatcher(test, metrics=metrics)
    assert samples(metrics)["repose_truncated_total"] == 2


def test_an_idle_worker_that_dies_is_replaced() -> None:
    async def test(dispatcher: Dispatcher) -> None:
        (before,) = dispatcher.pids
        os.kill(before, signal.SIGKILL)
        while dispatcher.pids in ([before], []):
            await asyncio.sleep(0.01)
        assert await say(dispatcher, "a") == ["A"]

    with_dispatcher(test)


def test_a_model_that_cannot_be_loaded_is_said_at_the_start() -> None:
    async def test(_: Dispatcher) -> None:
        raise AssertionError

    with pytest.raises(ReposeError, match="missing does not exist"):
        with_dispatcher(test, paths=("one", "missing"))


def test_what_would_be_answered_too_late_is_refused_before_any_of_it_is_translated() -> None:
    """Requests take turns: a small one does not wait for the whole of a large one."""

    async def test(dispatcher: Dispatcher) -> None:
        dispatcher._rate = 100.0  # tokens a second
        ANSWERED_BY.set(time.monotonic() + 30.0)
        with dispatcher.promised(10**9):  # alone it is tried, whatever it takes
            with dispatcher.promised(1400), dispatcher.promised(10):
                pass
            with pytest.raises(RequestError) as caught, dispatcher.promised(1600):
                pass
            assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "16"})
        with dispatcher.promised(1000) as translated:
            with dispatcher.promised(1900):
                pass
            with pytest.raises(RequestError), dispatcher.promised(2100):
                pass
            translated(900)
            with dispatcher.promised(2100):
                pass
        with contextlib.ExitStack() as equals:
            for _ in range(9):
                equals.enter_context(dispatcher.promised(300))
            with pytest.raises(RequestError), dispatcher.promised(300):
                pass
            dispatcher._queue_tokens = 2000  # of these requests: they do not count twice
            with dispatcher.promised(200):
                pass
            dispatcher._queue_tokens = 0
        ANSWERED_BY.set(time.monotonic() + 600.0)
        with dispatcher.promised(1000), dispatcher.promised(50_000):
            pass
        assert not dispatcher._promises

    with_dispatcher(test)


def test_a_worker_that_does_not_start_is_tried_again_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def no_worker(*_: Any) -> Worker:
        raise ReposeError("model.safetensors is damaged")

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 11:
            raise asyncio.CancelledError

    monkeypatch.setattr(Worker, "start", no_worker)
    monkeypatch.setattr(asyncio, "sleep", noted)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(Dispatcher([], 1, Batching(), Metrics())._keep_worker())
    assert pauses == [*(0.1 * 2**n for n in range(9)), 30.0, 30.0]


def test_without_a_worker_that_could_be_started_nobody_is_kept_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []

    async def no_worker(*_: Any) -> Worker:
        raise ReposeError("model.safetensors is damaged")

    async def test(dispatcher: Dispatcher) -> None:
        dispatcher._say = lambda event, **facts: told.append((event, facts))
        (tmp_path / "hold").touch()
        waiting = [asyncio.create_task(say(dispatcher, word)) for word in ("slow", "a")]
        while not (tmp_path / "held").exists():
            await asyncio.sleep(0.005)
        monkeypatch.setattr(Worker, "start", no_worker)
        os.kill(dispatcher.pids[0], signal.SIGKILL)
        for one in waiting:
            with pytest.raises(RequestError) as caught:
                await one
            assert caught.value.status == 503
        for again in (say(dispatcher, "b"), in_turn(dispatcher, served("a", "b"), HOW, ["b"])):
            with pytest.raises(RequestError):
                await again
        assert samples(dispatcher._metrics)["repose_queue_tokens"] == 0
        monkeypatch.undo()

    with_dispatcher(test, paths=(str(tmp_path),))
    assert ("worker_failed", {"kind": "ReposeError", "reason": "model.safetensors is damaged"}) in told
