"""Packing: real tokens as rows, so that everything but the attention product is computed on no padding.

A padded batch (B, L) of a random draw of sentences is half padding. Projections, feed-forward layers, norms,
logits and loss act on each token alone, so they run on the N real tokens as one (R, width) matrix; only the
attention product needs sentences side by side (`blocks.py`).

That is so on a CPU. On an accelerator (`packs`), every position of the batch is a row, padding too.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

ROWS = 32
"""Rows come in multiples of this, or of a larger power of two where there are many (`_rounded`), except in a step of
decoding. Matrix libraries compile and keep a kernel for each shape, of half a megabyte; with any number of rows they
would compile at almost every step, which costs more than the product."""
_FEW = 256
"""With fewer rows, those without padding are left as they are: kernels of so few shapes are soon all kept."""


def packs(device: torch.device) -> bool:
    """Whether padding is left out there. An accelerator takes as long to begin an operation on few rows as one on many;
    to know which rows are real would make it wait for the CPU; and it can only replay steps whose shapes do not depend
    on what is padding (`repose.training.replays`)."""
    return device.type == "cpu"


class RowMap(NamedTuple):
    """Where each row of a new tensor comes from."""

    rows: Int[Tensor, " R"]
    """Rows of the old tensor."""
    holes: Int[Tensor, " Z"]
    """Rows of the new one that are zero instead."""

    def move(self, x: Tensor, back: "RowMap") -> Tensor:
        """(S, ...) -> (R, ...); `back` leads every row that is no hole to its origin, and so is the gradient."""
        return _Move.apply(x, self, back)  # type: ignore[no-untyped-call]


class Packing:
    """Which positions of a padded batch are real tokens, and the way there and back.

    A packed tensor has R >= `num_tokens` rows: the real tokens in row-major order, and a few spare ones at the end.
    What is computed on spare rows reaches nothing: no result, no statistic, no gradient. Where nothing `packs`, the
    rows are all positions, R = B·L, and it is what is computed on padding that reaches nothing.
    """

    def __init__(self, mask: Bool[Tensor, "B L"]) -> None:
        self.mask = mask
        self.packs = packs(mask.device)

    @cached_property
    def _cells(self) -> Int[Tensor, " N"]:
        return self.mask.flatten().nonzero().squeeze(1)

    @cached_property
    def num_tokens(self) -> int:
        """Real ones."""
        return self._cells.numel()

    @cached_property
    def is_full(self) -> bool:
        """Whether rows are positions, without spare ones: packing is then a change of shape."""
        fits = self.mask.shape[1] == 1 or self.num_tokens < _FEW or self.num_tokens == _rounded(self.num_tokens)
        return fits and self.num_tokens == self.mask.numel()

    @cached_property
    def lengths(self) -> list[int]:
        """Positions of each sentence up to its last real one."""
        return (self.mask * torch.arange(1, self.mask.shape[1] + 1, device=self.mask.device)).amax(1).tolist()

    @cached_property
    def row_of_cell(self) -> Int[Tensor, "B L"]:
        """Row of each real position; padding has some row, too."""
        if not self.packs:
            return torch.arange(self.mask.numel(), device=self.mask.device).view_as(self.mask)
        return (self.mask.flatten().cumsum(0) - 1).clamp_(min=0).view_as(self.mask)

    @cached_property
    def _pack(self) -> RowMap:
        num_rows = self.num_tokens if self.is_full else _rounded(self.num_tokens)
        spare = torch.arange(self.num_tokens, num_rows, device=self.mask.device)
        return RowMap(torch.cat([self._cells, torch.zeros_like(spare)]), spare)

    @cached_property
    def _pad(self) -> RowMap:
        return RowMap(self.row_of_cell.flatten(), (~self.mask.flatten()).nonzero().squeeze(1))

    @property
    def columns(self) -> Int[Tensor, " R"]:
        """Position in its sentence (from 0) of each row; 0 for spare rows."""
        if not self.packs:
            return torch.arange(self.mask.shape[1], device=self.mask.device).repeat(len(self.mask))
        return self._pack.rows % self.mask.shape[1]

    @property
    def spare(self) -> Int[Tensor, " Z"]:
        """The spare rows."""
        return self._pack.holes

    def pack(self, padded: Tensor) -> Tensor:
        """(B, L, ...) -> (R, ...), zeros in spare rows."""
        flat = padded.flatten(0, 1)
        return flat if not self.packs or self.is_full else self._pack.move(flat, self._pad)

    def pad(self, packed: Tensor) -> Tensor:
        """(R, ...) -> (B, L, ...), zeros at the padding."""
        if not self.packs:
            return self.without_padding(packed).unflatten(0, self.mask.shape)
        flat = packed if self.is_full else self._pad.move(packed, self._pack)
        return flat.unflatten(0, self.mask.shape)

    def without_padding(self, rows: Tensor) -> Tensor:
        """(R, ...), zeros where they are padding, or with no spare rows: sums over them are over the real tokens."""
        if self.packs:
            return self.real(rows)
        return rows.masked_fill(~self.mask.flatten().view(-1, *[1] * (rows.dim() - 1)), 0)

    def real(self, packed: Tensor) -> Tensor:
        """(R, ...) -> (N, ...): the real tokens alone."""
        return packed[: self.num_tokens] if self.packs else packed.index_select(0, self._cells)

    def at(self, packed: Tensor, cells: Int[Tensor, " n"]) -> Tensor:
        """(R, ...) -> (n, ...): the rows of these of the B·L positions, which may repeat."""
        return packed.index_select(0, self.row_of_cell.flatten()[cells] if self.packs else cells)


def _rounded(num_tokens: int) -> int:
    """The rows of so many tokens: at most a thirty-second more than there are, or up to the next multiple of `ROWS`."""
    multiple = max(ROWS, 1 << max(num_tokens.bit_length() - 6, 0))
    return max(-(-num_tokens // multiple), 1) * multiple


@dataclass(frozen=True)
class Memory:
    """What the encoder hands to the decoder: packed rows of source tokens."""

    hidden: Float[Tensor, "R D"]
    """Output of the last encoder layer: the keys of cross-attention."""
    values: Float[Tensor, "R M"]
    """What cross-attention takes its values from: `hidden`, the normalised source token embeddings, or both, side by
    side."""
    packing: Packing
    """Where the rows belong; its mask (B, S) is True at real source tokens."""

    def select(self, rows: Tensor) -> "Memory":
        """The memory of the sentences `rows`, which may repeat."""
        packing = Packing(self.packing.mask[rows])
        hidden, values = (packing.pack(self.packing.pad(x)[rows]) for x in (self.hidden, self.values))
        return Memory(hidden, values, packing)


class _Move(torch.autograd.Function):
    """Copies rows. Autograd's own gradient of indexing adds into zeros row by row, because rows could repeat; these
    never do, so the gradient is a copy too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: RowMap, back: RowMap) -> Tensor:
        ctx.there, ctx.back = there, back
        moved = x.index_select(0, there.rows)
        return moved.index_fill_(0, there.holes, 0) if there.holes.numel() else moved

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.back.move(grad, ctx.there), None, None
