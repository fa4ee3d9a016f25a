"""What each update computes on: this worker's share of each global batch, as tensors."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from repose.data.batching import Batches, share
from repose.training.distributed import World
from repose.training.job import Examples, TrainingTask
from repose.training.loss import SPARE

T = TypeVar("T")
_AHEAD = 2
"""Batches that a thread makes for a GPU before they are asked for."""


class GlobalBatch(NamedTuple):
    """What one update learns from: the examples of all workers, of which this worker has its share."""

    micro_batches: tuple[Any, ...]
    """This worker's share of it, as the task's tensors, in as many micro-batches as gradients are accumulated over;
    None where one is empty."""
    sentences: int
    """Of the global batch."""
    tokens: int
    """Target tokens of the global batch, or what else the task's loss is a sum over."""
    last: bool
    """Whether it ends the epoch."""


def to_device(arrays: Iterable[NDArray[np.int64]], device: torch.device) -> Iterator[Tensor]:
    """Arrays as tensors; to an accelerator in one copy, and to a GPU of CUDA without waiting."""
    if device.type == "cpu":
        yield from map(torch.from_numpy, arrays)
        return
    arrays = list(arrays)
    flat = torch.from_numpy(np.concatenate([array.ravel() for array in arrays]))
    if device.type == "cuda":  # others cannot pin memory
        flat = flat.pin_memory()
    parts = flat.to(device, non_blocking=device.type == "cuda").split([array.size for array in arrays])
    for array, part in zip(arrays, parts, strict=True):
        yield part.view(array.shape)


def round_up_size(size: int, most: int = sys.maxsize, finest: int = 8) -> int:
    """The size rounded up to one of few, the largest of which is `most` (at least `size`): multiples of `finest`, and
    above eight times that, four for each doubling."""
    step = max(finest, 1 << max(0, (size - 1).bit_length() - 3))
    return min(-(-size // step) * step, most)


def pad_to(array: NDArray[np.int64], shape: tuple[int, ...], value: int = 0) -> NDArray[np.int64]:
    """The array in a corner of one of that shape, the rest of which is `value`."""
    whole = np.full(shape, value, dtype=np.int64)
    whole[tuple(map(slice, array.shape))] = array
    return whole


def bucketed_targets(ids: NDArray[np.int64], labels: NDArray[np.int64], longest: int) -> list[NDArray[np.int64]]:
    """What a decoder reads (B, T), 0 as padding, padded to one of few shapes no longer than `longest`; the labels (N,)
    of its real tokens, with spare ones; and each label's position in the first, flattened."""
    whole = pad_to(ids, (round_up_size(len(ids), finest=1), round_up_size(ids.shape[1], longest)))
    room = (round_up_size(len(labels)),)
    return [whole, pad_to(labels, room, SPARE), pad_to(np.flatnonzero(whole), room)]


def is_replayed(task: TrainingTask, device: torch.device) -> bool:
    """Whether passes of that task are replayed there."""
    return device.type == "cuda" and task.allows_cuda_graphs


def ahead(makers: Iterable[Callable[[], T]], initializer: Callable[[], object]) -> Iterator[T]:
    """What each of the makers returns, in their order; a thread calls up to `_AHEAD` before they are asked for."""
    with ThreadPoolExecutor(1, initializer=initializer) as thread:
        made: deque[Future[T]] = deque()
        for make in makers:
            made.append(thread.submit(make))
            if len(made) > _AHEAD:
                yield made.popleft().result()
        while made:
            yield made.popleft().result()


class Feed:
    """The global batches of an epoch as one worker sees them."""

    def __init__(
        self,
        task: TrainingTask,
        sampler: Callable[[int], Examples],
        batches: Batches,
        *,
        world: World,
        num_micro_batches: int,
    ) -> None:
        """`sampler`: the examples as each epoch reads them. `num_micro_batches`: those that make up one update."""
        self._task, self._sampler, self._batches = task, sampler, batches
        self._world, self._num_micro_batches = world, num_micro_batches

    def epoch(self, epoch: int, start: int) -> Iterator[GlobalBatch]:
        """The global batches of one epoch, from batch `start` on; for a GPU, a thread makes them ahead of their use."""
        device, makers = self._world.device, self._makers(epoch, start)
        if device.type == "cuda":
            return ahead(makers, partial(torch.cuda.set_device, device))
        return (make() for make in makers)

    def _makers(self, epoch: int, start: int) -> Iterator[Callable[[], GlobalBatch]]:
        make = partial(self._global_batch, self._sampler(epoch))
        following: NDArray[np.int64] | None = None
        for indices in self._batches.epoch(epoch, start):
            if following is not None:
                yield partial(make, following, last=False)
            following = indices
        if following is not None:
            yield partial(make, following, last=True)

    def _global_batch(self, examples: Examples, indices: NDArray[np.int64], *, last: bool) -> GlobalBatch:
        lengths = examples.tgt_lengths[indices]
        rank, size, number = self._world.rank, self._world.size, self._num_micro_batches
        shares = (
            share(indices, lengths, rank=rank, world_size=size, micro_batch=place, num_micro_batches=number)
            for place in range(number)
        )
        device = self._world.device
        make = self._task.bucketed_micro_batch if is_replayed(self._task, device) else self._task.micro_batch
        micro_batches = (make(examples, own, device) if len(own) else None for own in shares)
        return GlobalBatch(tuple(micro_batches), len(indices), int(lengths.sum()), last)
