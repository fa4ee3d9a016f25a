"""Packing: the real tokens of a batch as rows, so that only the attention product is computed on padding.

A padded batch (B, L) of randomly drawn sentences is half padding. Projections, feed-forward layers, norms, logits and
loss treat each token by itself. So they run on the N real tokens as one matrix (R, width). Only the attention product
needs sentences side by side (`blocks.py`).

This holds for a CPU. On an accelerator (`packs`), every position of the batch is a row, padding included.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

ROWS = 32
"""The number of rows is a multiple of this, or of a larger power of two if there are many (`_rounded`), except in a
step of decoding. Matrix libraries compile and keep a kernel of half a megabyte for each shape. With arbitrary numbers
of rows they would compile at almost every step, which costs more than the product."""
_FEW = 256
"""A batch without padding and with fewer rows is not rounded up: there are few such shapes, and soon all have a
kernel."""


def packs(device: torch.device) -> bool:
    """Return whether packing leaves padding out on this device: only on a CPU.

    An accelerator starts an operation on few rows no faster than one on many. To learn which rows are real, it would
    have to wait for the CPU. And it can only replay steps whose shapes do not depend on the padding
    (`repose.training.replays`).
    """
    return device.type == "cpu"


class RowMap(NamedTuple):
    """The origin of each row of a new tensor."""

    rows: Int[Tensor, " R"]
    """Indices of rows in the old tensor."""
    holes: Int[Tensor, " Z"]
    """Indices of rows in the new tensor that are zero instead."""

    def move(self, x: Tensor, back: "RowMap") -> Tensor:
        """Return the moved rows, (S, ...) -> (R, ...).

        `back` maps every row that is not a hole back to its origin; it is also the map of the gradient.
        """
        return _Move.apply(x, self, back)  # type: ignore[no-untyped-call]


class Packing:
    """Which positions of a padded batch are real tokens, and the maps to packed rows and back.

    A packed tensor has R >= `num_tokens` rows: the real tokens in row-major order, then a few spare rows. Spare rows
    never affect a result, a statistic or a gradient. Where packing keeps the padding (`packs` is False), R = B·L, and
    the same is true of the rows of padding.
    """

    def __init__(self, mask: Bool[Tensor, "B L"]) -> None:
        self.mask = mask
        self.packs = packs(mask.device)

    @cached_property
    def _cells(self) -> Int[Tensor, " N"]:
        return self.mask.flatten().nonzero().squeeze(1)

    @cached_property
    def num_tokens(self) -> int:
        """Number of real tokens."""
        return self._cells.numel()

    @cached_property
    def is_full(self) -> bool:
        """True if rows are exactly the positions, without spare rows. Packing then only changes the shape."""
        fits = self.mask.shape[1] == 1 or self.num_tokens < _FEW or self.num_tokens == _rounded(self.num_tokens)
        return fits and self.num_tokens == self.mask.numel()

    @cached_property
    def lengths(self) -> list[int]:
        """Number of positions of each sentence up to its last real one."""
        return (self.mask * torch.arange(1, self.mask.shape[1] + 1, device=self.mask.device)).amax(1).tolist()

    @cached_property
    def row_of_cell(self) -> Int[Tensor, "B L"]:
        """Row of each real position. (Padding also has some row.)"""
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

    @cached_property
    def columns(self) -> Int[Tensor, " R"]:
        """Position of each row in its sentence, from 0; 0 for spare rows."""
        if not self.packs:
            return torch.arange(self.mask.shape[1], device=self.mask.device).repeat(len(self.mask))
        return self._pack.rows % self.mask.shape[1]

    @property
    def spare(self) -> Int[Tensor, " Z"]:
        """Indices of the spare rows."""
        return self._pack.holes

    def pack(self, padded: Tensor) -> Tensor:
        """Return packed rows, (B, L, ...) -> (R, ...); zeros in spare rows."""
        flat = padded.flatten(0, 1)
        return flat if not self.packs or self.is_full else self._pack.move(flat, self._pad)

    def pad(self, packed: Tensor) -> Tensor:
        """Return a padded tensor, (R, ...) -> (B, L, ...); zeros at padding."""
        if not self.packs:
            return self.without_padding(packed).unflatten(0, self.mask.shape)
        flat = packed if self.is_full else self._pad.move(packed, self._pack)
        return flat.unflatten(0, self.mask.shape)

    def without_padding(self, rows: Tensor) -> Tensor:
        """Return rows that can be summed over real tokens: padding is set to zero, or spare rows are left out."""
        if self.packs:
            return self.real(rows)
        return rows.masked_fill(~self.mask.flatten().view(-1, *[1] * (rows.dim() - 1)), 0)

    def real(self, packed: Tensor) -> Tensor:
        """Return the real tokens alone, (R, ...) -> (N, ...)."""
        return packed[: self.num_tokens] if self.packs else packed.index_select(0, self._cells)

    def at(self, packed: Tensor, cells: Int[Tensor, " n"]) -> Tensor:
        """Return the rows of these cells of the B·L, (R, ...) -> (n, ...). Cells may repeat."""
        return packed.index_select(0, self.row_of_cell.flatten()[cells] if self.packs else cells)


def _rounded(num_tokens: int) -> int:
    """Return the number of rows for these tokens: the next multiple of `ROWS`, or at most 1/32 more than tokens."""
    multiple = max(ROWS, 1 << max(num_tokens.bit_length() - 6, 0))
    return max(-(-num_tokens // multiple), 1) * multiple


@dataclass(frozen=True)
class Memory:
    """The encoder's output for the decoder: packed rows of source tokens."""

    hidden: Float[Tensor, "R D"]
    """Output of the last encoder layer, from which cross-attention takes its keys."""
    values: Float[Tensor, "R M"]
    """The rows from which cross-attention takes its values: `hidden`, the normalised source token embeddings, or both
    side by side."""
    packing: Packing
    """Where the rows belong. Its mask (B, S) is True at real source tokens."""

    def select(self, rows: Tensor) -> "Memory":
        """Return the memory of the sentences `rows`, which may repeat."""
        packing = Packing(self.packing.mask[rows])
        hidden, values = (packing.pack(self.packing.pad(x)[rows]) for x in (self.hidden, self.values))
        return Memory(hidden, values, packing)


class _Move(torch.autograd.Function):
    """Copies rows. Its gradient is a copy as well.

    Autograd's own gradient of indexing adds rows one by one into zeros, because an index may repeat. Here, none does.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: RowMap, back: RowMap) -> Tensor:
        ctx.there, ctx.back = there, back
        moved = x.index_select(0, there.rows)
        return moved.index_fill_(0, there.holes, 0) if there.holes.numel() else moved

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.back.move(grad, ctx.there), None, None
