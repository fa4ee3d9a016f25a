"""Positional encodings: the axis `positions`."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from repose.model.architecture import Positions
from repose.system.errors import DataError


def sinusoids(kind: Positions, length: int, width: int) -> Float[Tensor, "length width"]:
    """The fixed encodings, one row per position.

    interleaved: sin and cos of pos / 10000^(2i/d) in even and odd columns, pos from 0 (Vaswani et al. 3.5).
    halves: the same columns permuted, all sines before all cosines (TF tutorial).
    printed: arXiv 2410.04731 eq. 3 to the letter: pos i from 1, column j from 1, i / 10000^(2j/m) in *all* columns,
        sine for j <= m/2 and cosine beyond; its cosine half is constant to about 1e-5.
    """
    columns = torch.arange(width, dtype=torch.float64)
    positions = torch.arange(length, dtype=torch.float64)[:, None]
    match kind:
        case "interleaved":
            angles = positions * 10000.0 ** (-2 * (columns // 2) / width)
            is_sine = columns % 2 == 0
        case "halves":
            angles = positions * 10000.0 ** (-2 * (columns % (width // 2)) / width)
            is_sine = columns < width // 2
        case "printed":
            angles = (positions + 1) * 10000.0 ** (-2 * (columns + 1) / width)
            is_sine = columns < width // 2
        case _:
            raise AssertionError(f"{kind} is no fixed encoding")
    return torch.where(is_sine, angles.sin(), angles.cos()).float()


def upscale(table: Float[Tensor, "n d"], length: int, width: int) -> Float[Tensor, "length width"]:
    """A small table as an encoding of `length` positions, `width` numbers each (arXiv 2310.10930, 3.3).

    Each number becomes a block of length/n rows and width/d columns (the paper: 8 x 16 to 256 x 512, blocks of
    32 x 32), and then each becomes the mean of those at most half a block, rounded up, before and after it: in a block
    of 32, 33 numbers. Windows are cut at the edges of a row.

    Differs from the paper, which names the pooling and nothing else of it: over the first and the last position the
    table goes on with its slope for half a block, where windows cut there would make the first half block (16
    positions, a sentence) one and the same row. See docs/decisions/015-policy-table-at-its-edges.md.
    """
    rows = _pooling(len(table), length, goes_on=len(table) > 1)
    columns = _pooling(table.shape[1], width, goes_on=False)
    return (rows @ table.double() @ columns.T).float()


def _pooling(num: int, length: int, *, goes_on: bool) -> Float[Tensor, "length num"]:
    """Weights of `num` numbers, repeated in blocks to `length`, in the mean over each window."""
    half = math.ceil(length / num / 2) if length > num else 0
    windows = torch.arange(length)[:, None] + torch.arange(-half, half + 1)
    block = torch.eye(num, dtype=torch.float64)[windows.clamp(0, length - 1) * num // length]
    if not goes_on:
        inside = (windows >= 0) & (windows < length)
        return (block * inside[:, :, None]).sum(1) / inside.sum(1, keepdim=True)
    before, after = (torch.zeros(num, dtype=torch.float64) for _ in range(2))
    before[0], before[1], after[-1], after[-2] = 2, -1, 2, -1
    block[windows < 0], block[windows >= length] = before, after
    return block.mean(1)


class PositionalEncoding(nn.Module):
    """Rows of a position table for packed tokens; nothing for `rotary` and `none`.

    Learned positions (Vaswani et al. 3.5, table 3 row E) are one trained row per position up to `max_length`, a
    table for each stack. Fixed ones are a buffer that no checkpoint stores. Those of a policy are a buffer of the given
    table, kept with the weights.
    """

    table: Tensor

    def __init__(
        self, kind: Positions, *, max_length: int, width: int, table: Float[Tensor, "n d"] | None = None
    ) -> None:
        """`table`: for `policy`, of any size; without it room is left for the values of a checkpoint."""
        super().__init__()
        self.kind = kind
        self.max_length = max_length
        match kind:
            case "rotary" | "none":
                pass
            case "learned":
                self.table = nn.Parameter(torch.empty(max_length, width).normal_(std=1 / math.sqrt(width)))
            case "policy":
                full = torch.zeros(max_length, width) if table is None else upscale(table, max_length, width)
                self.register_buffer("table", full)
            case _:
                self.register_buffer("table", sinusoids(kind, max_length, width), persistent=False)

    def forward(self, positions: Int[Tensor, " R"], length: int) -> Float[Tensor, "R M"] | None:
        """Encodings of tokens at these positions (from 0), all below `length`; None for `rotary` and `none`.

        Raises DataError where `length` exceeds the table's.
        """
        if length > self.max_length:
            raise DataError(
                f"a sequence of {length} tokens is longer than the model's max_length of {self.max_length}: "
                "shorten it, or build the model with a larger max_length"
            )
        return None if self.kind in ("rotary", "none") else self.table.index_select(0, positions)


class Rotary(nn.Module):
    """Positions as rotations of self-attention's queries and keys (RoFormer, Su et al. 2021, arXiv 2104.09864, 3.2.2).

    In each head the numbers x_2i and x_(2i+1) of a query or key at position m are a point of the plane, which turns
    about zero by the angle m · 10000^(-2i/C), all from 0: as complex numbers,

        (x_2i + x_(2i+1) j) · e^(j m 10000^(-2i/C))

    so a score depends on contents and on the distance of their positions alone. Nothing is learned or stored.

    Differs from the paper, which does not name cross-attention: it has no distances, and nothing turns there.
    """

    table: Float[Tensor, "max_length half 2"]
    """Cosine and sine of each position's angles."""

    def __init__(self, *, max_length: int, head_dim: int) -> None:
        super().__init__()
        table = sinusoids("interleaved", max_length, head_dim).unflatten(1, (-1, 2)).flip(2)
        self.register_buffer("table", table.contiguous(), persistent=False)

    def forward(self, rows: Float[Tensor, "R HC"], positions: Int[Tensor, " R"] | int) -> Float[Tensor, "R HC"]:
        """Each head's queries or keys of tokens at these positions, or all at one; computed in fp32 at least."""
        wide = rows.to(torch.promote_types(rows.dtype, torch.float32))
        pairs = torch.view_as_complex(wide.unflatten(1, (-1, self.table.shape[1], 2)))
        turns = torch.view_as_complex(self.table[positions]).unsqueeze(-2)
        return torch.view_as_real(pairs * turns).flatten(1).to(rows.dtype)
