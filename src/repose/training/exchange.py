"""Exchange of gradients: how workers sum them, and which weights each worker updates."""

import os

import torch
import torch.distributed as dist
from torch import Tensor

from repose.training.distributed import World

_BLOCK = 16
"""Elements of the largest SIMD vector."""


class AllReduce:
    """Sums the flat gradients of all workers by one all-reduce of torch's process group; does nothing for a single
    worker. Each worker holds and updates all weights.

    DistributedDataParallel would overlap this with the backward pass. But it rebuilds its buckets after the first
    backward pass, which changes the order in which three or more workers sum, so a resumed run would differ in its last
    bits from an uninterrupted one.
    """

    local: Tensor
    """This worker's gradient, to which backward passes add."""
    gradient: Tensor
    """After `sum`: the sum over workers; may be `local` itself."""
    mine = slice(None)
    """The elements that this worker updates, and may read after `scale`."""

    def __init__(self, world: World, size: int) -> None:
        self._world, self._size = world, size
        self.local = self.gradient = torch.zeros(size, device=world.device)

    def sum(self) -> None:
        """Sum the workers' gradients."""
        self._world.add(self.gradient)

    def scale(self, factor: Tensor) -> None:
        """Multiply the sum by a number that is the same on all workers."""
        self.gradient *= factor

    def zeros(self) -> Tensor:
        """Return a flat tensor of zeros; each worker writes its part `mine`, and may read everything after `settle`."""
        return torch.zeros_like(self.local)

    def settle(self) -> None:
        """Wait until all workers have written their parts."""


class SharedMemory(AllReduce):
    """Workers on one machine write their gradients to shared memory; each sums one slice and updates the slice's
    weights, which are shared, too.

    This is faster than gloo's all-reduce, which sends everything through a socket. The memory has no name in a file
    system: it takes no space in /dev/shm, which is small in containers, and is freed with its last process.
    """

    def __init__(self, world: World, size: int) -> None:
        self._world, self._size = world, size
        self._slots = _shared(world, (world.size + 1) * size).view(world.size + 1, size)
        blocks = -(-size // _BLOCK)  # whole vectors, so that rounding does not depend on the slices
        self.mine = slice(*(rank * blocks // world.size * _BLOCK for rank in (world.rank, world.rank + 1)))
        self.local, self.gradient = self._slots[world.rank], self._slots[world.size]

    def sum(self) -> None:
        """Sum the workers' gradients, in the order of their ranks.

        No third barrier is needed: no worker touches `gradient` again before all have reached the next `sum`.
        """
        dist.barrier()
        first, second, *others = (slot[self.mine] for slot in self._slots[:-1])
        mine = torch.add(first, second, out=self.gradient[self.mine])
        for other in others:
            mine += other
        dist.barrier()

    def scale(self, factor: Tensor) -> None:
        """Multiply the sum, each worker its own slice, once all have read the values that the factor depends on."""
        dist.barrier()
        self.gradient[self.mine] *= factor

    def zeros(self) -> Tensor:
        return _shared(self._world, self._size)

    def settle(self) -> None:
        dist.barrier()


def make_exchange(world: World, size: int) -> AllReduce:
    """Return the fastest exchange of `size` elements for these workers."""
    if world.size > 1 and world.local and world.device.type == "cpu" and hasattr(os, "memfd_create"):
        return SharedMemory(world, size)
    return AllReduce(world, size)


def _shared(world: World, size: int) -> Tensor:
    """Return zeros in memory shared by all workers of this machine. The first one allocates it; the others open it by
    /proc."""
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
