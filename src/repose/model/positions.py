"""Positional encodings: the axis `positions`."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from repose.errors import DataError
from repose.model.architecture import Positions


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


class PositionalEncoding(nn.Module):
    """Rows of a position table for packed tokens; nothing for `none`.

    Learned positions (Vaswani et al. 3.5, table 3 row E) are one trained row per position up to `max_length`, a
    table for each stack. Fixed ones are a buffer that no checkpoint stores.
    """

    table: Tensor

    def __init__(self, kind: Positions, *, max_length: int, width: int) -> None:
        super().__init__()
        self.kind = kind
        self.max_length = max_length
        match kind:
            case "none":
                pass
            case "learned":
                self.table = nn.Parameter(torch.empty(max_length, width).normal_(std=1 / math.sqrt(width)))
            case _:
                self.register_buffer("table", sinusoids(kind, max_length, width), persistent=False)

    def forward(self, positions: Int[Tensor, " R"], length: int) -> Float[Tensor, "R M"] | None:
        """Encodings of tokens at these positions (from 0), all below `length`; None for `none`.

        Raises DataError where `length` exceeds the table's.
        """
        if length > self.max_length:
            raise DataError(
                f"a sequence of {length} tokens is longer than the model's max_length of {self.max_length}: "
                "shorten it, or build the model with a larger max_length"
            )
        return None if self.kind == "none" else self.table.index_select(0, positions)
