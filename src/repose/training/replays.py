"""Record forward and backward passes as CUDA graphs, one per shape, and replay them.

A small model's pass consists of many hundreds of operations that take a few microseconds each, and the CPU takes longer
to launch one than the GPU takes to compute it. A graph launches all of them at once. A graph is tied to the memory and
shapes that it was recorded with, so there is one per shape of micro-batch (`TrainingTask.bucketed_micro_batch`).
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

MOST = 256
"""Maximum number of shapes to record; other shapes are computed without graphs."""

Run = Callable[[Any, Tensor], Tensor]
"""The function to replay. It takes a micro-batch, which is a named tuple of tensors and Nones, and one more tensor.
Everything else that it reads or writes must stay at the same place in memory."""


class _Recorded(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    out: Tensor


class Replays:
    """Recordings of one function, one per shape of micro-batch. A function that makes the CPU wait for the GPU cannot
    be recorded.

    All graphs share a pool of memory, somewhat larger than the largest graph needs. If memory runs out, existing graphs
    are still replayed, and other shapes are computed without graphs.
    """

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()
        self._recorded: dict[object, _Recorded] = {}
        self._seen: set[object] = set()
        """Shapes that were computed once without making the CPU wait, so that one-time work is done."""
        self._waits = 0
        self._most = MOST

    @property
    def works(self) -> bool:
        """False once a pass turned out to be impossible to record; a shape's first pass may wait for one-time work."""
        return self._waits < 2

    @property
    def number(self) -> int:
        """Number of recorded shapes."""
        return len(self._recorded)

    def __call__(self, run: Run, micro_batch: Any, number: Tensor) -> Tensor:
        """Return the result of `run`; it is valid until the next call."""
        shape = tuple(None if x is None else x.shape for x in micro_batch)
        recorded = self._recorded.get(shape)
        if recorded is None:
            if not self.works or len(self._recorded) >= self._most:
                return run(micro_batch, number)
            if shape not in self._seen:
                return self._watched(run, micro_batch, number, shape)
            try:
                recorded = self._recorded[shape] = self._record(run, micro_batch, number)
            except torch.OutOfMemoryError:  # nothing has been computed yet
                self._most = len(self._recorded)
                return run(micro_batch, number)
        torch._foreach_copy_(recorded.inputs, _tensors(micro_batch, number))
        recorded.graph.replay()
        return recorded.out

    def _watched(self, run: Run, micro_batch: Any, number: Tensor, shape: object) -> Tensor:
        """Compute without a graph, and find out whether an operation makes the CPU wait."""
        before = torch.cuda.get_sync_debug_mode()
        present = torch.cuda.current_stream()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                self._stream.wait_stream(present)
                with torch.cuda.stream(self._stream):  # gradients must be added on one stream
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
