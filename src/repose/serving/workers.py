"""Worker processes, seen from the front process: start them, have them translate batches, end them."""

import asyncio
import contextlib
import os
import pickle
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from typing import Any

from repose.decoding.translator import Translation
from repose.serving.messages import LENGTH, Batch, ModelToLoad, packed
from repose.system.helper import OWN_SESSION, helper_command


class WorkerLostError(Exception):
    """Raised if a worker has ended or could not be started."""


class Worker:
    """A started worker process with its models. It translates one batch at a time."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.engines: list[str] = []
        """Name of each model's engine."""

    @classmethod
    async def start(cls, models: Sequence[ModelToLoad]) -> "Worker":
        """Start a worker and wait until it has loaded its models.

        Raises ReposeError if it cannot load a model, WorkerLostError if it cannot be started or ends.
        """
        command = helper_command("repose.serving.process")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=environment, **OWN_SESSION)
        )
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await cls(await starting).end()
            raise
        except OSError as error:
            raise WorkerLostError(f"a translation worker could not be started: {error.strerror or error}") from error
        worker = cls(process)
        try:
            worker.engines = await worker._ask(list(models))
        except BaseException:
            await worker.end()
            raise
        return worker

    @property
    def pid(self) -> int:
        return self._process.pid

    async def translate(self, batch: Batch) -> list[Translation]:
        """Translate a batch.

        Raises ReposeError if decoding does, WorkerLostError if the worker has ended. After a WorkerLostError or a
        cancellation, the worker can only be ended.
        """
        answers: list[Translation] = await self._ask(batch)
        return answers

    async def _ask(self, message: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(packed(message))
            await self._process.stdin.drain()
            (length,) = LENGTH.unpack(await self._process.stdout.readexactly(LENGTH.size))
            answer = pickle.loads(await self._process.stdout.readexactly(length))
        # IncompleteReadError is an EOFError. uvloop raises RuntimeError for a pipe that it has closed.
        except (EOFError, OSError, RuntimeError, pickle.UnpicklingError) as error:
            raise WorkerLostError("a translation worker has ended") from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ended(self) -> None:
        """Wait until the process has ended."""
        await self._process.wait()

    async def end(self) -> None:
        """Kill the process, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()
