"""The exchange of gradients: how workers add theirs up, and which weights each of them steps."""

import os

import torch
import torch.distributed as dist
from torch import Tensor

from repose.training.distributed import World

_BLOCK = 16
"""Elements of the largest vector that a processor computes with."""


class AllReduce:
    """The flat gradient of one worker, and that of all: one all-reduce of torch's process group, or nothing for one.
    Each worker holds all of the weights and steps them.

    DistributedDataParallel would overlap it with the backward pass. But it lays its buckets out anew after the first
    backward pass, and with them the order in which three workers or more sum: a resumed run would differ in its last
    bits from an uninterrupted one.
    """

    local: Tensor
    """What backward passes add to."""
    gradient: Tensor
    """The sum over workers, after `sum`; may be `local` itself."""
    mine = slice(None)
    """The elements that this worker steps, and may read after `scale`."""

    def __init__(self, world: World, size: int) -> None:
        self._world, self._size = world, size
        self.local = self.gradient = torch.zeros(size, device=world.device)

    def sum(self) -> None:
        """Sum the workers' gradients."""
        self._world.add(self.gradient)

    def scale(self, factor: Tensor) -> None:
        """Multiply the sum, by a number that is the same on all workers."""
        self.gradient *= factor

    def zeros(self) -> Tensor:
        """A flat tensor of which each worker writes `mine`, and may read all after `settle`."""
        return torch.zeros_like(self.local)

    def settle(self) -> None:
        """Wait until all workers have written theirs."""


class SharedMemory(AllReduce):
    """Workers of one machine write their gradients to memory that all of them see, and each sums one slice and steps
    its weights, which all of them see, too.

    Faster than gloo's all-reduce, which sends everything through a socket. The memory has no name in a
    file system: it needs no room in /dev/shm, which containers keep small, and is gone with its last process.
    """

    def __init__(self, world: World, size: int) -> None:
        self._world, self._size = world, size
        self._slots = _shared(world, (world.size + 1) * size).view(world.size + 1, size)
        blocks = -(-size // _BLOCK)  # whole vectors, so that an element's step does not depend on who takes it
        self.mine = slice(*(rank * blocks // world.size * _BLOCK for rank in (world.rank, world.rank + 1)))
        self.local, self.gradient = self._slots[world.rank], self._slots[world.size]

    def sum(self) -> None:
        """Sum the workers' gradients, in the order of their ranks.

        No third barrier is needed: a worker touches `gradient` again when all have come to the next `sum`.
        """
        dist.barrier()
        first, second, *others = (slot[self.mine] for slot in self._slots[:-1])
        mine = torch.add(first, second, out=self.gradient[self.mine])
        for other in others:
            mine += other
        dist.barrier()

    def scale(self, factor: Tensor) -> None:
        """Multiply the sum: each worker its slice, when all have read what they made the factor from."""
        dist.barrier()
        self.gradient[self.mine] *= factor

    def zeros(self) -> Tensor:
        return _shared(self._world, self._size)

    def settle(self) -> None:
        dist.barrier()


def make_exchange(world: World, size: int) -> AllReduce:
    """The fastest way for these workers to sum `size` elements."""
    if world.size > 1 and world.local and world.device.type == "cpu" and hasattr(os, "memfd_create"):
        return SharedMemory(world, size)
    return AllReduce(world, size)


def _shared(world: World, size: int) -> Tensor:
    """Zeros that all workers of this machine share. The first one makes them; /proc leads the others there."""
    place: list[str | None] = [None]
    descriptor = None
    if world.rank == 0:
        descriptor = os.memfd_create("gradients")
        os.ftruncate(descriptor, 4 * size)
        place = [f"/proc/{os.getpid()}/fd/{descriptor}"]
    dist.broadcast_object_list(place)
    assert place[0] is not None
    tensor = torch.from_file(place[0], shared=True, size=size, dtype=torch.float32)
    dist.barrier()
    if descriptor is not None:
        os.close(descriptor)
    return tensor
