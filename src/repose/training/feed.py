"""What each update computes on: this worker's share of each global batch, as tensors."""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from repose.data.batching import Batches, share
from repose.training.distributed import World
from repose.training.job import Examples, TrainingTask
from repose.training.loss import SPARE


class Update(NamedTuple):
    """One global batch."""

    parts: tuple[Any, ...]
    """This worker's share in each accumulation part, as the task's tensors; None where it is empty."""
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


def usual(size: int, most: int = sys.maxsize, finest: int = 8) -> int:
    """The next of few numbers, the largest of which is `most` (at least `size`): multiples of `finest`, and above
    eight times that, four for each doubling."""
    step = max(finest, 1 << max(0, (size - 1).bit_length() - 3))
    return min(-(-size // step) * step, most)


def filled_up(array: NDArray[np.int64], shape: tuple[int, ...], value: int = 0) -> NDArray[np.int64]:
    """The array in a corner of one of that shape, the rest of which is `value`."""
    whole = np.full(shape, value, dtype=np.int64)
    whole[tuple(map(slice, array.shape))] = array
    return whole


def usual_targets(ids: NDArray[np.int64], labels: NDArray[np.int64], longest: int) -> list[NDArray[np.int64]]:
    """What a decoder reads (B, T), 0 as padding, filled up to a usual shape no longer than `longest`; the labels (N,)
    of its real tokens, with spare ones; and each label's place in the first, flat."""
    whole = filled_up(ids, (usual(len(ids), finest=1), usual(ids.shape[1], longest)))
    room = (usual(len(labels)),)
    return [whole, filled_up(labels, room, SPARE), filled_up(np.flatnonzero(whole), room)]


def is_replayed(task: TrainingTask, device: torch.device) -> bool:
    """Whether passes of that task are replayed there."""
    return device.type == "cuda" and task.can_replay


class Feed:
    """The updates of an epoch as one worker sees them."""

    def __init__(
        self,
        task: TrainingTask,
        sampler: Callable[[int], Examples],
        batches: Batches,
        *,
        world: World,
        num_parts: int,
    ) -> None:
        """`sampler`: the examples as each epoch reads them."""
        self._task, self._sampler, self._batches = task, sampler, batches
        self._world, self._num_parts = world, num_parts

    def epoch(self, epoch: int, start: int) -> Iterator[Update]:
        """The updates of one epoch, from batch `start` on."""
        examples = self._sampler(epoch)
        following: NDArray[np.int64] | None = None
        for indices in self._batches.epoch(epoch, start):
            if following is not None:
                yield self._update(examples, following, last=False)
            following = indices
        if following is not None:
            yield self._update(examples, following, last=True)

    def _update(self, examples: Examples, indices: NDArray[np.int64], *, last: bool) -> Update:
        lengths = examples.tgt_lengths[indices]
        rank, size, num_parts = self._world.rank, self._world.size, self._num_parts
        shares = (
            share(indices, lengths, rank=rank, world_size=size, part=part, num_parts=num_parts)
            for part in range(num_parts)
        )
        device = self._world.device
        make = self._task.usual_part if is_replayed(self._task, device) else self._task.part
        parts = (make(examples, own, device) if len(own) else None for own in shares)
        return Update(tuple(parts), len(indices), int(lengths.sum()), last)
