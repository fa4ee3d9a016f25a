"""Real tokens as rows: everything but the attention product is computed on them alone, never on padding.

A padded batch (B, L) of a random draw of sentences is half padding. Projections, feed-forward layers, norms,
logits and loss act on each token by itself, so they run on the N real tokens as one (N, width) matrix; only the
attention product needs sentences side by side, and is padded just around it.
"""

from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor


class Packing:
    """Which positions of a padded batch are real tokens, and the way there and back.

    `pad(pack(x))` is x with zeros at the padding; `pack(pad(rows))` is rows.
    """

    def __init__(self, mask: Bool[Tensor, "B L"]) -> None:
        self.mask = mask
        self.rows: Int[Tensor, " N"] = mask.flatten().nonzero().squeeze(1)
        self.is_full = self.rows.numel() == mask.numel()

    @property
    def columns(self) -> Int[Tensor, " N"]:
        """Position in its sentence (from 0) of each packed row."""
        return self.rows % self.mask.shape[1]

    def pack(self, padded: Tensor) -> Tensor:
        """(B, L, ...) -> (N, ...)."""
        flat = padded.flatten(0, 1)
        return flat if self.is_full else _pack(flat, self.rows)

    def pad(self, packed: Tensor) -> Tensor:
        """(N, ...) -> (B, L, ...), zeros at the padding."""
        flat = packed if self.is_full else _pad(packed, self.rows, self.mask.numel())
        return flat.unflatten(0, self.mask.shape)


# Each is the other's gradient. Autograd's own gradient of indexing adds into zeros row by row, because rows
# could repeat; these rows never do, so a plain copy will do.


class _Pack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, flat: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.num_rows = flat.shape[0]
        return flat.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        return _pad(grad, rows, ctx.num_rows), None


class _Pad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packed: Tensor, rows: Tensor, num_rows: int) -> Tensor:
        ctx.save_for_backward(rows)
        return packed.new_zeros(num_rows, *packed.shape[1:]).index_copy_(0, rows, packed)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (rows,) = ctx.saved_tensors
        return _pack(grad, rows), None, None


def _pack(flat: Tensor, rows: Tensor) -> Tensor:
    return _Pack.apply(flat, rows)  # type: ignore[no-untyped-call]


def _pad(packed: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    return _Pad.apply(packed, rows, num_rows)  # type: ignore[no-untyped-call]
