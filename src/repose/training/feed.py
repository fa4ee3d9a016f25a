"""What each update computes on: this worker's share of each global batch, as tensors."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from repose.data.batching import Batches, share
from repose.training.distributed import World
from repose.training.job import Examples, TrainingTask


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
    """Arrays as tensors; to an accelerator without waiting."""
    for tensor in map(torch.from_numpy, arrays):
        yield tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


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
        parts = (self._task.part(examples, own, self._world.device) if len(own) else None for own in shares)
        return Update(tuple(parts), len(indices), int(lengths.sum()), last)
