"""Forward and backward passes of one shape recorded once on a GPU and replayed, as CUDA graphs.

A pass of a small model is many hundreds of operations of a few microseconds, each of which takes the CPU longer to
start than the GPU to compute. A graph starts them all at once. It computes on the memory and the shapes that it was
recorded with, so there is one for each shape that parts come in (`TrainingTask.usual_part`).
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

MOST = 256
"""Shapes that are recorded; others are computed step by step."""

Run = Callable[[Any, Tensor], Tensor]
"""What is replayed: of a part, a named tuple of tensors and Nones, and one more tensor. All else that it reads or
writes has its place in memory for good."""


class _Recorded(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    out: Tensor


class Replays:
    """A function that is recorded for each shape of its part. One whose operations make the CPU wait cannot be."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._stream = torch.cuda.Stream()
        self._recorded: dict[object, _Recorded | None] = {}
        """None for a shape that was seen once: the first time, all that is made once is made."""
        self.works = True
        """Whether passes can be recorded, as far as is known."""

    @property
    def number(self) -> int:
        """Of shapes that are recorded."""
        return sum(recorded is not None for recorded in self._recorded.values())

    def __call__(self, part: Any, number: Tensor) -> Tensor:
        """What `run` returns, until the next call."""
        shape = tuple(None if x is None else x.shape for x in part)
        recorded = self._recorded.get(shape)
        if recorded is None and (not self.works or (shape not in self._recorded and len(self._recorded) >= MOST)):
            return self._run(part, number)
        if recorded is None and shape not in self._recorded:
            self._recorded[shape] = None
            return self._watched(part, number)
        if recorded is None:
            recorded = self._recorded[shape] = self._record(part, number)
        torch._foreach_copy_(recorded.inputs, _tensors(part, number))
        recorded.graph.replay()
        return recorded.out

    def _watched(self, part: Any, number: Tensor) -> Tensor:
        """Compute step by step, and find out whether an operation makes the CPU wait."""
        before = torch.cuda.get_sync_debug_mode()
        present = torch.cuda.current_stream()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                self._stream.wait_stream(present)
                with torch.cuda.stream(self._stream):  # where it is recorded: gradients are added on one stream
                    out = self._run(part, number)
                present.wait_stream(self._stream)
            finally:
                torch.cuda.set_sync_debug_mode(before)
        if any("synchronizing CUDA operation" in str(warning.message) for warning in told):
            self.works = False
        return out

    def _record(self, part: Any, number: Tensor) -> _Recorded:
        inputs = [tensor.clone() for tensor in _tensors(part, number)]
        remaining = iter(inputs)
        own_part = part._make(None if x is None else next(remaining) for x in part)
        graph = torch.cuda.CUDAGraph()
        pool = next((other.graph.pool() for other in self._recorded.values() if other is not None), None)
        with torch.cuda.graph(graph, pool=pool, stream=self._stream, capture_error_mode="thread_local"):
            out = self._run(own_part, inputs[-1])
        return _Recorded(graph, inputs, out)


def _tensors(part: Any, number: Tensor) -> list[Tensor]:
    return [*(cast(Tensor, x) for x in part if x is not None), number]
