"""Local (sliding-window) self-attention (Vaswani et al. 4): each token attends to its neighbourhood, in linear time.

A sentence is split into chunks of r // 2 tokens, the distance that attention reaches. The queries of a chunk attend to
the keys of the chunk before, of their own chunk and, unless causal, of the chunk after. This covers all keys that are
near enough. About two of every three scores computed are for such keys.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from repose.model.kernels.blocks import Block, make_block
from repose.model.kernels.packing import Packing
from repose.model.positions import Positions
from repose.model.scores import Reach


class LocalBlocks(Reach):
    """The blocks of a packing with itself, where position i attends to position j only if |i - j| <= r // 2.

    One block holds all chunks of all sentences: b = B · n of them, with w = r // 2 queries and 3 w keys each (2 w if
    causal).
    """

    blocks: list[Block]

    def __init__(
        self, packing: Packing, *, window: int, num_heads: int, causal: bool = False, positions: Positions | None = None
    ) -> None:
        """`window`: r. The other parameters are those of `Blocks`."""
        self._packing, self._positions, self.num_heads = packing, positions, num_heads
        self._width, self._chunks_after = window // 2, 0 if causal else 1
        self.num_sentences, self._length = packing.mask.shape
        self._num_chunks = -(-self._length // self._width)
        device, w = packing.mask.device, self._width
        real = self._chunks(packing.mask[:, :, None].float())
        real_keys = self._neighbourhoods(real).squeeze(3) > 0
        offsets = torch.arange(-w, w * (1 + self._chunks_after), device=device)
        distance = offsets - torch.arange(w, device=device)[:, None]
        near = (distance.abs() <= w) & ((distance <= 0) | (not causal))
        begin = torch.arange(self._num_chunks, device=device)[:, None] * w
        queries_at, keys_at = begin + torch.arange(w, device=device), (begin + offsets).clamp_(min=0)
        added = None if positions is None else positions.scores(queries_at, keys_at)
        sentences = torch.arange(self.num_sentences, device=device)
        allowed = (real_keys[:, :, None, :] & near).flatten(0, 1)
        self.blocks = [make_block(sentences, allowed, num_heads, added=added, own=distance == 0)]

    def turn(self, rows: Float[Tensor, "R HC"]) -> Float[Tensor, "R HC"]:
        """Return queries or keys as they enter the scores."""
        return rows if self._positions is None else self._positions.turn(rows, self._packing.columns)

    @property
    def queries(self) -> "ChunkLayout":
        """The layout of the chunks' queries: B*n*h matrices of w rows."""
        sizes = [(self._num_chunks * self.num_sentences * self.num_heads, self._width)]
        return ChunkLayout(sizes, self.num_heads, self._to_chunks, self._to_rows)

    def keys_of(self, groups: int) -> "ChunkLayout":
        """Return the layout of keys or values: B*n*g matrices of 3w rows, one for each group of heads."""
        length = self._width * (2 + self._chunks_after)
        to_neighbourhoods = partial(self._to_neighbourhoods, groups)
        sizes = [(self._num_chunks * self.num_sentences * groups, length)]
        return ChunkLayout(sizes, groups, to_neighbourhoods, self._to_rows)

    def _to_chunks(self, rows: Float[Tensor, "R HC"]) -> Tensor:
        return _of_heads(self._chunks(self._packing.pad(rows)), self.num_heads)

    def _to_rows(self, flat: Tensor) -> Float[Tensor, "R HC"]:
        grid = flat.view(self.num_sentences, self._num_chunks, self.num_heads, self._width, -1).transpose(2, 3)
        return self._packing.pack(grid.flatten(3).flatten(1, 2)[:, : self._length])

    def _to_neighbourhoods(self, num_heads: int, rows: Tensor) -> Tensor:
        return _of_heads(self._neighbourhoods(self._chunks(self._packing.pad(rows))), num_heads)

    def padded(self, scores: Sequence[Tensor]) -> Float[Tensor, "B H Q K"]:
        """Return what the block has for its queries and keys as one padded tensor, as in `Blocks`.

        Its size is quadratic in the length: for inspection only.
        """
        (chunks,) = scores
        chunks = chunks.unflatten(0, (self.num_sentences, self._num_chunks, self.num_heads)).transpose(1, 2)
        room = self._width * (self._num_chunks + 2)
        whole = chunks.new_zeros(*chunks.shape[:2], self._num_chunks, self._width, room)
        for number in range(self._num_chunks):
            begin = number * self._width  # of the neighbourhood, which starts one chunk before position 0
            whole[:, :, number, :, begin : begin + chunks.shape[-1]] = chunks[:, :, number]
        return whole.flatten(2, 3)[:, :, : self._length, self._width : self._width + self._length]

    def _chunks(self, padded: Float[Tensor, "B L X"]) -> Float[Tensor, "B n w X"]:
        rest = self._num_chunks * self._width - self._length
        return F.pad(padded, (0, 0, 0, rest)).unflatten(1, (self._num_chunks, self._width))

    def _neighbourhoods(self, chunks: Float[Tensor, "B n w X"]) -> Float[Tensor, "B n k X"]:
        after = self._chunks_after
        beyond = F.pad(chunks, (0, 0, 0, 0, 1, after))
        return torch.cat([beyond[:, i : i + self._num_chunks] for i in range(2 + after)], dim=2)


class ChunkLayout(NamedTuple):
    """The places of packed rows in one block of chunks, or of their neighbourhoods; methods as in `PaddedLayout`."""

    sizes: Sequence[tuple[int, int]]
    num_heads: int
    to_blocks: Callable[[Tensor], Tensor]
    to_rows: Callable[[Tensor], Tensor]

    def heads(self, rows: Float[Tensor, "R HC"]) -> Float[Tensor, "b h l C"]:
        return self.to_blocks(rows).view(-1, self.num_heads, self.sizes[0][1], rows.shape[1] // self.num_heads)

    def rows(self, heads: Float[Tensor, "b h l C"]) -> Float[Tensor, "R HC"]:
        return self.to_rows(heads.flatten(0, 2))


def _of_heads(grid: Float[Tensor, "B n l HC"], num_heads: int) -> Float[Tensor, "Bnhl c"]:
    return grid.unflatten(3, (num_heads, -1)).transpose(2, 3).flatten(0, 3)
