"""Forward and backward passes of one shape recorded once on a GPU and replayed, as CUDA graphs.

A pass of a small model is many hundreds of operations of a few microseconds, each of which takes the CPU longer to
start than the GPU to compute. A graph starts them all at once. It computes on the memory and the shapes that it was
recorded with, so there is one for each shape that micro-batches come in (`TrainingTask.bucketed_micro_batch`).
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

MOST = 256
"""Shapes that are recorded; others are computed step by step."""

Run = Callable[[Any, Tensor], Tensor]
"""What is replayed: of a micro-batch, a named tuple of tensors and Nones, and one more tensor. All else that it reads
or writes has its place in memory for good."""


class _Recorded(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    out: Tensor


class Replays:
    """What one function was recorded as, for each shape of its micro-batch. A function whose operations make the CPU
    wait cannot be recorded.

    The graphs of all shapes share memory, which is kept: somewhat more than the largest of them needs. Where there is
    not enough, what is recorded by then goes on being replayed, and other shapes are computed step by step.
    """

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()
        self._recorded: dict[object, _Recorded] = {}
        self._seen: set[object] = set()
        """Shapes that were computed once without a wait: all that is made once is there."""
        self._waits = 0
        self._most = MOST

    @property
    def works(self) -> bool:
        """Whether passes can be recorded, as far as is known: a first pass may wait for what is made once."""
        return self._waits < 2

    @property
    def number(self) -> int:
        """Of shapes that are recorded."""
        return len(self._recorded)

    def __call__(self, run: Run, micro_batch: Any, number: Tensor) -> Tensor:
        """What `run` returns, until the next call."""
        shape = tuple(None if x is None else x.shape for x in micro_batch)
        recorded = self._recorded.get(shape)
        if recorded is None:
            if not self.works or len(self._recorded) >= self._most:
                return run(micro_batch, number)
            if shape not in self._seen:
                return self._watched(run, micro_batch, number, shape)
            try:
                recorded = self._recorded[shape] = self._record(run, micro_batch, number)
            except torch.OutOfMemoryError:  # nothing was computed
                self._most = len(self._recorded)
                return run(micro_batch, number)
        torch._foreach_copy_(recorded.inputs, _tensors(micro_batch, number))
        recorded.graph.replay()
        return recorded.out

    def _watched(self, run: Run, micro_batch: Any, number: Tensor, shape: object) -> Tensor:
        """Compute step by step, and find out whether an operation makes the CPU wait."""
        before = torch.cuda.get_sync_debug_mode()
        present = torch.cuda.current_stream()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                self._stream.wait_stream(present)
                with torch.cuda.stream(self._stream):  # where it is recorded: gradients are added on one stream
                    out = run(micro_batch, number)
                present.wait_stream(self._stream)
            finally:
                torch.cuda.set_sync_debug_mode(before)
        waits = False
        for warning in told:
            if "called a synchronizing CUDA operation" in str(warning.message):
                waits = True
            elif "Synchronization debug mode" not in str(warning.message):
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        if waits:
            self._waits += 1
        else:
            self._seen.add(shape)
        return out

    def _record(self, run: Run, micro_batch: Any, number: Tensor) -> _Recorded:
        inputs = [tensor.clone() for tensor in _tensors(micro_batch, number)]
        remaining = iter(inputs)
        own_batch = micro_batch._make(None if x is None else next(remaining) for x in micro_batch)
        graph = torch.cuda.CUDAGraph()
        pool = next((other.graph.pool() for other in self._recorded.values()), None)
        with torch.cuda.graph(graph, pool=pool, stream=self._stream, capture_error_mode="thread_local"):
            out = run(own_batch, inputs[-1])
        return _Recorded(graph, inputs, out)


def _tensors(micro_batch: Any, number: Tensor) -> list[Tensor]:
    return [*(cast(Tensor, x) for x in micro_batch if x is not None), number]
