"""Input of each update: this worker's share of each global batch, as tensors."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain, pairwise
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
"""Number of batches that a thread prepares in advance for a GPU."""


class GlobalBatch(NamedTuple):
    """The batch of one update: the examples of all workers, of which this worker has a share."""

    micro_batches: tuple[Any, ...]
    """This worker's share as the task's tensors, in as many micro-batches as gradients are accumulated over; None for
    an empty one."""
    sentences: int
    """Sentences of the global batch."""
    tokens: int
    """Target tokens of the global batch, or whatever else the task's loss sums over."""
    last: bool
    """True for the last batch of an epoch."""


def to_device(arrays: Iterable[NDArray[np.int64]], device: torch.device) -> Iterator[Tensor]:
    """Convert arrays to tensors on the device; to an accelerator in a single copy, with CUDA without waiting for it."""
    if device.type == "cpu":
        yield from map(torch.from_numpy, arrays)
        return
    arrays = list(arrays)
    flat = torch.from_numpy(np.concatenate([array.ravel() for array in arrays]))
    if device.type == "cuda":  # other devices cannot pin memory
        flat = flat.pin_memory()
    parts = flat.to(device, non_blocking=device.type == "cuda").split([array.size for array in arrays])
    for array, part in zip(arrays, parts, strict=True):
        yield part.view(array.shape)


def round_up_size(size: int, most: int = sys.maxsize, finest: int = 8) -> int:
    """Round a size up to one of few sizes: multiples of `finest`; above eight times `finest`, four per doubling; at
    most `most`, which is at least `size`."""
    step = max(finest, 1 << max(0, (size - 1).bit_length() - 3))
    return min(-(-size // step) * step, most)


def pad_to(array: NDArray[np.int64], shape: tuple[int, ...], value: int = 0) -> NDArray[np.int64]:
    """Pad an array to a shape with `value`, at the end of each axis."""
    whole = np.full(shape, value, dtype=np.int64)
    whole[tuple(map(slice, array.shape))] = array
    return whole


def bucketed_targets(ids: NDArray[np.int64], labels: NDArray[np.int64], longest: int) -> list[NDArray[np.int64]]:
    """Return, padded to one of few shapes: decoder input (B, T) with 0 as padding, no longer than `longest`; the labels
    (N,) of its real tokens, followed by spare ones; and each label's index in the flattened decoder input."""
    whole = pad_to(ids, (round_up_size(len(ids), finest=1), round_up_size(ids.shape[1], longest)))
    room = (round_up_size(len(labels)),)
    return [whole, pad_to(labels, room, SPARE), pad_to(np.flatnonzero(whole), room)]


def is_replayed(task: TrainingTask, device: torch.device) -> bool:
    """Return whether a task's passes are replayed as CUDA graphs on this device."""
    return device.type == "cuda" and task.allows_cuda_graphs


def ahead(makers: Iterable[Callable[[], T]], initializer: Callable[[], object]) -> Iterator[T]:
    """Yield each maker's result in order; a thread runs up to `_AHEAD` makers in advance."""
    with ThreadPoolExecutor(1, initializer=initializer) as thread:
        made: deque[Future[T]] = deque()
        for make in makers:
            made.append(thread.submit(make))
            if len(made) > _AHEAD:
                yield made.popleft().result()
        while made:
            yield made.popleft().result()


class Feed:
    """Yields an epoch's global batches, with one worker's share of each."""

    def __init__(
        self,
        task: TrainingTask,
        sampler: Callable[[int], Examples],
        batches: Batches,
        *,
        world: World,
        num_micro_batches: int,
    ) -> None:
        """`sampler`: returns the examples as a given epoch reads them. `num_micro_batches`: micro-batches per
        update."""
        self._task, self._sampler, self._batches = task, sampler, batches
        self._world, self._num_micro_batches = world, num_micro_batches

    def epoch(self, epoch: int, start: int) -> Iterator[GlobalBatch]:
        """Yield the global batches of one epoch, from batch `start` on; for a GPU, a thread prepares them in
        advance."""
        device, makers = self._world.device, self._makers(epoch, start)
        if device.type == "cuda":
            return ahead(makers, partial(torch.cuda.set_device, device))
        return (make() for make in makers)

    def _makers(self, epoch: int, start: int) -> Iterator[Callable[[], GlobalBatch]]:
        make = partial(self._global_batch, self._sampler(epoch))
        end: list[NDArray[np.int64] | None] = [None]
        for indices, following in pairwise(chain(self._batches.epoch(epoch, start), end)):
            yield partial(make, indices, last=following is None)

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
