"""Batch the sentences of many requests for worker processes.

An idle worker gets whatever is waiting at once; under load the queue fills, so batches grow. A batch starts with the
sentence that has waited longest and adds the sentences closest to it in length. If a worker dies, each sentence of its
batch is translated again in a batch of its own. Each answer reaches its request once.
"""

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice

from repose.decoding.translator import Translation
from repose.serving.log import where
from repose.serving.messages import Batch, How, ModelChangedError, ModelToLoad
from repose.serving.metrics import Metrics
from repose.serving.refusals import busy, closing
from repose.serving.settings import Batching
from repose.serving.workers import Worker, WorkerLostError
from repose.system.errors import ReposeError

_ATTEMPTS = 3
_MOST_CONSIDERED = 2_048  # sentences from which a batch is chosen
_LONGEST_PAUSE = 30.0  # seconds between attempts to start a worker
_SHARE_WAITED = 0.5  # share of a batch's time that a worker may wait for a fuller one
_KEPT_OF_LATE = 0.95  # factor on `_of_late` after each batch
_FIRST_RATE = 2_000.0  # source tokens per second, until the rate is measured
_FAILURES = 3  # failed starts in a row after which requests without a worker are refused

ANSWERED_BY: ContextVar[float] = ContextVar("ANSWERED_BY", default=math.inf)
"""Deadline of the current request, on the clock of `time.monotonic`."""


class TranslationError(ReposeError):
    """Raised for a sentence that no worker could translate."""


@dataclass(eq=False, slots=True)
class _Job:
    """A sentence to translate."""

    how: How
    sentence: str
    num_tokens: int
    answer: "asyncio.Future[Translation]"
    arrived: float
    attempts: int = 0

    @property
    def queue(self) -> "How | _Job":
        """Name of its queue. A sentence that was tried before has a queue of its own, as it is translated alone."""
        return self if self.attempts else self.how


class Dispatcher:
    """Worker processes and their queue, for one set of models. Use it within one event loop."""

    def __init__(
        self,
        models: Sequence[ModelToLoad],
        workers: int,
        batching: Batching,
        metrics: Metrics,
        say: Callable[..., None] = lambda *_, **__: None,
        when_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`say(event, **facts)` is called when workers start and die. `when_changed` is called if a replacement worker
        finds that the files of a model have changed."""
        self._models, self._batching, self._metrics, self._say = list(models), batching, metrics, say
        self._when_changed = when_changed
        self._num_workers = workers
        self._workers: set[Worker] = set()
        self._ending: set[Worker] = set()
        self._slots: list[asyncio.Task[None]] = []
        self._queues: dict[How | _Job, dict[_Job, None]] = {}  # sentences that may share a batch, the oldest first
        self._idle: deque[asyncio.Future[list[_Job]]] = deque()
        self._requests = 0
        self._in_work = 0  # sentences
        self._queue_tokens = 0
        self._promises: dict[object, int] = {}  # tokens that each request still has to translate
        self._failures = 0  # failed starts since the last successful one
        self._rate = _FIRST_RATE
        self._is_woken = False
        self._of_late, self._wait_until = 0.0, 0.0
        self._first: asyncio.Future[None] | None = None
        self._empty = asyncio.Event()
        self._closed = False

    # Start and end

    async def start(self) -> None:
        """Start the workers and wait until one is ready. Raises ReposeError if the models cannot be loaded."""
        self._first = asyncio.get_running_loop().create_future()
        self._slots = [asyncio.create_task(self._keep_worker()) for _ in range(self._num_workers)]
        try:
            await self._first
        except BaseException:
            await self.close()
            raise

    @property
    def ready(self) -> bool:
        """Whether at least one worker is ready."""
        return bool(self._workers)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.pid for worker in self._workers]

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Count a request as in progress within the block, whatever it calls; `drain` waits for its end."""
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1
            self._say_if_empty()

    async def drain(self) -> None:
        """Wait until all sentences are translated and no request is in progress."""
        while self._in_work or self._queue_tokens or self._requests:
            self._empty.clear()
            await self._empty.wait()

    async def close(self) -> None:
        """End the workers. Sentences that are not yet translated fail, and so do later requests."""
        self._closed = True
        for slot in self._slots:
            slot.cancel()
        await asyncio.gather(*self._slots, return_exceptions=True)
        await asyncio.gather(*(worker.end() for worker in self._ending))
        self._fail_all(closing())
        self._queues.clear()

    def _fail_all(self, error: Exception) -> None:
        """Fail all waiting sentences. Their requests then take them out of the queue."""
        for queue in self._queues.values():
            for job in queue:
                _fail(job, error)

    # Methods for requests

    async def translate(
        self, how: How, sentences: Sequence[str], num_tokens: Sequence[int], *, num_cut: int = 0
    ) -> list[Translation]:
        """Translate sentences and return their answers in order. If cancelled, drop those that are still waiting.

        `num_tokens`: number of tokens of each sentence. `num_cut`: how many of the sentences were cut to fit.

        Raises RequestError if too much is waiting already, if no worker can be started, or after `close`; raises
        TranslationError if a sentence cannot be translated.
        """
        if not sentences:
            return []
        if self._closed:
            raise closing()
        self._check_ready()
        limit = self._batching.queue_tokens(self._num_workers)
        if self._queue_tokens and self._queue_tokens + sum(num_tokens) > limit:
            raise busy(self.seconds_to_wait())
        self._metrics.truncated.inc(num_cut)
        loop, now = asyncio.get_running_loop(), time.monotonic()
        jobs = [
            _Job(how, sentence, tokens, loop.create_future(), now)
            for sentence, tokens in zip(sentences, num_tokens, strict=True)
        ]
        for job in jobs:
            self._put(job)
        self._wake()
        try:
            return await asyncio.gather(*(job.answer for job in jobs))
        finally:
            dropped = [job for job in jobs if self._drop(job)]
            self._metrics.cancelled.inc(sum(job.answer.cancelled() for job in dropped))
            for job in jobs:
                job.answer.cancel()  # if another sentence has failed, nobody waits for the rest

    @contextlib.contextmanager
    def promised(self, tokens: int) -> Iterator[Callable[[int], None]]:
        """Announce that a request translates this many tokens within the block, in any number of calls of `translate`.

        Yields a function that the request calls with the number of tokens translated since its last call.

        Raises RequestError if the tokens would not be translated before the deadline. Requests take turns. So the work
        before this request is what waits already, and from each other request at most as many tokens as this one has.
        It is never more than the other requests have left in total.
        """
        self._check_ready()
        others = self._promises.values()
        before = min(self._queue_tokens + sum(min(left, tokens) for left in others), sum(others))
        if tokens and others and time.monotonic() + self._seconds_for(before + tokens) > ANSWERED_BY.get():
            raise busy(math.ceil(self._seconds_for(before)))
        promise = object()
        self._promises[promise] = tokens

        def translated(number: int) -> None:
            self._promises[promise] -= number

        try:
            yield translated
        finally:
            del self._promises[promise]

    def _check_ready(self) -> None:
        """Raise RequestError if there is no worker, and none is expected soon."""
        if not self._workers and self._failures >= _FAILURES:
            raise busy(math.ceil(_LONGEST_PAUSE))

    def seconds_to_wait(self) -> int:
        """Estimate the seconds until the queue is translated, from the recent speed."""
        return math.ceil(self._seconds_for(self._queue_tokens))

    def _seconds_for(self, tokens: int) -> float:
        return tokens / (self._rate * max(1, len(self._workers)))

    # The queue

    def _put(self, job: _Job) -> None:
        self._queues.setdefault(job.queue, {})[job] = None
        self._queue_tokens += job.num_tokens
        self._metrics.queue_tokens.inc(job.num_tokens)

    def _drop(self, job: _Job) -> bool:
        """Remove a sentence from the queue. Return whether it was there."""
        queue = self._queues.get(job.queue, {})
        if job not in queue:
            return False
        del queue[job]
        if not queue:
            del self._queues[job.queue]
        self._queue_tokens -= job.num_tokens
        self._metrics.queue_tokens.dec(job.num_tokens)
        self._say_if_empty()
        return True

    def _wake(self) -> None:
        """Give out batches after the event loop has read the requests that have already arrived."""
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._give_out)

    def _give_out(self) -> None:
        self._is_woken = False
        while self._queues and self._idle:
            if (wait := self._seconds_worth_waiting()) > 0:
                self._is_woken = True
                asyncio.get_running_loop().call_later(wait, self._give_out)
                return
            idle = self._idle.popleft()
            if not idle.done():  # else its worker has died
                idle.set_result(self._take())

    def _seconds_worth_waiting(self) -> float:
        """Return the seconds that a worker should wait for a fuller batch; at most 0.0 to start at once.

        Clients that were just answered often ask again soon. There is no point in waiting once a worker's share of the
        recent work is in the queue.
        """
        waiting = sum(map(len, self._queues.values()))
        self._of_late = max(waiting + self._in_work, self._of_late)
        share = min(self._of_late / self._num_workers, self._batching.max_batch_rows)
        return 0.0 if waiting >= share else self._wait_until - time.monotonic()

    def _take(self) -> list[_Job]:
        """Take a batch out of the queue: the oldest sentence, and the sentences closest to it in length. Of a request's
        sentences, which are of the same age, those that were tried before come first: one of them may fail them all."""

        def turn(queue: dict[_Job, None]) -> tuple[float, int]:
            oldest = next(iter(queue))
            return oldest.arrived, -oldest.attempts

        queue = min(self._queues.values(), key=turn)
        oldest, *others = islice(queue, _MOST_CONSIDERED)
        sharing = 1 + sum(not idle.done() for idle in self._idle)
        rows = min(self._batching.max_batch_rows, math.ceil(len(queue) / sharing))
        others.sort(key=lambda job: abs(job.num_tokens - oldest.num_tokens))
        batch, longest = [oldest], oldest.num_tokens
        for job in others:
            longest = max(longest, job.num_tokens)
            if len(batch) >= rows or longest * (len(batch) + 1) > self._batching.max_batch_tokens:
                break
            batch.append(job)
        for job in batch:
            self._drop(job)
        self._in_work += len(batch)
        return batch

    # The workers

    async def _keep_worker(self) -> None:
        """Run a worker, and start another one whenever it dies."""
        pause = 0.1
        while True:
            try:
                worker = await Worker.start(self._models)
            except Exception as error:  # after any error, this worker's slot must not be lost
                is_told = isinstance(error, ReposeError | WorkerLostError)
                self._say("worker_failed", kind=type(error).__name__, reason=str(error) if is_told else None)
                self._failures += 1
                if not self._workers and self._failures >= _FAILURES:
                    self._fail_all(busy(math.ceil(_LONGEST_PAUSE)))
                if self._first is not None and not self._first.done():
                    self._first.set_exception(ReposeError(str(error)) if is_told else error)
                elif isinstance(error, ModelChangedError):
                    self._when_changed()
                await asyncio.sleep(pause)
                pause = min(_LONGEST_PAUSE, 2 * pause)
                continue
            self._workers.add(worker)
            self._failures = 0
            self._metrics.workers.inc()
            self._say("worker_ready", pid=worker.pid, engines=worker.engines)
            if self._first is not None and not self._first.done():
                self._first.set_result(None)
            began = time.monotonic()
            try:
                await self._use(worker)
            finally:
                self._workers.discard(worker)
                self._metrics.workers.dec()
                self._ending.add(worker)
                await worker.end()
                self._ending.discard(worker)
            self._metrics.restarts.inc()
            self._say("worker_died", pid=worker.pid)
            pause = 0.1 if time.monotonic() - began > 10.0 else min(_LONGEST_PAUSE, 2 * pause)
            await asyncio.sleep(pause if pause > 0.2 else 0.0)

    async def _use(self, worker: Worker) -> None:
        """Have a worker translate batches until it dies."""
        while True:
            batch = await self._next(worker)
            if not batch:
                return
            try:
                alive = await self._translate(worker, batch)
            except asyncio.CancelledError:
                self._give_up(batch)
                raise
            self._has_left(batch)
            if not alive:
                return

    async def _next(self, worker: Worker) -> list[_Job]:
        """Wait for the next batch of a worker. Return an empty list if the worker dies meanwhile."""
        idle: asyncio.Future[list[_Job]] = asyncio.get_running_loop().create_future()
        self._idle.append(idle)
        ended = asyncio.create_task(worker.ended())
        ended.add_done_callback(lambda _: None if idle.done() else idle.set_result([]))
        self._wake()
        try:
            return await idle
        except asyncio.CancelledError:
            if idle.done() and not idle.cancelled():  # a batch was given out in the same turn: nobody else has it
                self._give_up(idle.result())
            raise
        finally:
            ended.cancel()

    def _give_up(self, jobs: Sequence[_Job]) -> None:
        for job in jobs:
            _fail(job, closing())
        self._has_left(jobs)

    def _has_left(self, jobs: Sequence[_Job]) -> None:
        self._in_work -= len(jobs)
        self._say_if_empty()

    async def _translate(self, worker: Worker, jobs: list[_Job]) -> bool:
        """Translate a batch. Return whether the worker is still alive."""
        began = time.monotonic()
        for job in jobs:
            self._metrics.queue_seconds.observe(began - job.arrived)
        try:
            async with asyncio.timeout(self._batching.batch_seconds):
                answers = await worker.translate(Batch(jobs[0].how, [job.sentence for job in jobs]))
        except ReposeError as error:
            self._again(jobs, TranslationError(str(error)))
            return True
        except Exception as error:  # after any error, no sentence may be lost
            if not isinstance(error, WorkerLostError | TimeoutError):
                self._say("worker_error", kind=type(error).__name__, where=where(error))
            self._again(jobs, TranslationError("a translation worker died on this text"))
            return False
        now = time.monotonic()
        rate = sum(job.num_tokens for job in jobs) / max(1e-6, now - began)
        self._rate += 0.1 * (rate - self._rate)
        for job, answer in zip(jobs, answers, strict=True):
            if not job.answer.done():
                job.answer.set_result(answer)
        self._record(answers)
        self._of_late *= _KEPT_OF_LATE
        self._wait_until = now + min(self._batching.max_wait, _SHARE_WAITED * (now - began))
        return True

    def _again(self, jobs: Sequence[_Job], error: TranslationError) -> None:
        """Put sentences back into the queue, each to be translated alone. Fail those that were tried too often."""
        for job in jobs:
            if job.answer.done():
                continue
            job.attempts += 1
            if job.attempts >= _ATTEMPTS:
                _fail(job, error)
            else:
                self._put(job)
        self._wake()

    def _record(self, answers: Sequence[Translation]) -> None:
        """Record a translated batch in the metrics."""
        metrics, tokens = self._metrics, [len(answer.src_tokens) for answer in answers]
        metrics.batch_rows.observe(len(answers))
        metrics.padded_share.observe(1.0 - sum(tokens) / max(1, len(tokens) * max(tokens)))
        metrics.tokens.labels("source").inc(sum(tokens))
        best = [answer.hypotheses[0] for answer in answers if answer.hypotheses]
        metrics.tokens.labels("target").inc(sum(len(one.tokens) + one.finished for one in best))
        metrics.truncated.inc(sum(answer.truncated for answer in answers))

    def _say_if_empty(self) -> None:
        if not self._in_work and not self._queue_tokens and not self._requests:
            self._empty.set()


def _fail(job: _Job, error: Exception) -> None:
    with contextlib.suppress(asyncio.InvalidStateError):
        job.answer.set_exception(error)
