"""The layer types of Vaswani et al. (2017), Table 1: each as a module, with formulas for its operations and paths.

Every layer maps (B, n, d) to (B, n, d). Self-attention is this project's, over all tokens or restricted to a
neighbourhood of r tokens (position i attends to j if |i - j| <= r // 2). The other layers are torch.nn's. Each is the
layer alone, without residual connection, norm or feed-forward layer.

A multiplication and an addition count 2 operations, as in `flops.py`. Biases, softmax and tanh count 0.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from repose.grids.published import PrintedTable, load
from repose.model.architecture import Architecture
from repose.model.attention import Attention
from repose.model.kernels.blocks import Blocks
from repose.model.kernels.local import LocalBlocks
from repose.model.kernels.packing import Packing
from repose.model.positions import Positions

HEADS = 8
"""Number of heads in Vaswani et al. 3.2.2. The counts do not depend on it."""


class SelfAttention(nn.Module):
    """This project's multi-head self-attention."""

    def __init__(self, d: int, window: int | None) -> None:
        super().__init__()
        self.window = window
        a = Architecture(d_token=d, num_heads=HEADS, head_dim=d // HEADS, attention_bias=True)
        self.attention = Attention(a, Positions(a, causal=False))

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        rows = x.flatten(0, 1)
        return self.attention(rows, rows, rows, meetings(len(x), x.shape[1], self.window)).view_as(x)


@functools.cache
def meetings(sentences: int, length: int, window: int | None) -> Blocks | LocalBlocks:
    """Return which token attends to which. A model computes this once for all its layers."""
    packing = Packing(torch.ones(sentences, length, dtype=torch.bool))
    if window is None:
        return Blocks(packing, packing, num_heads=HEADS)
    return LocalBlocks(packing, window=window, num_heads=HEADS)


class Recurrent(nn.Module):
    """A recurrent layer that returns its outputs without its last state."""

    def __init__(self, recurrence: nn.RNNBase) -> None:
        super().__init__()
        self.recurrence = recurrence

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        return self.recurrence(x)[0]


class Convolutional(nn.Module):
    """Convolutions along the sequence, one after the other."""

    def __init__(self, **convolutions: nn.Module) -> None:
        super().__init__()
        for name, convolution in convolutions.items():
            self.add_module(name, convolution)

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        x = x.mT
        for convolution in self.children():
            x = convolution(x)
        return x.mT


def centred(d: int, k: int, *, groups: int = 1) -> nn.Conv1d:
    """Return a convolution in which position i sees i - k // 2 .. i + k // 2, for odd k."""
    return nn.Conv1d(d, d, k, padding="same", groups=groups)


def dilated(d: int, k: int, dilation: int) -> Convolutional:
    """Return a convolution in which position i sees i, i - dilation .. i - (k - 1) dilation, as in ByteNet's decoder.

    The paper cites ByteNet. Dilations 1, k, k², .. connect every position with all positions before it. Centred
    convolutions would not connect both ends, because signals that leave the sequence on their way are lost.
    """
    pad = nn.ZeroPad1d(((k - 1) * dilation, 0))
    return Convolutional(pad=pad, convolution=nn.Conv1d(d, d, k, dilation=dilation))


class Paper(NamedTuple):
    """The paper's entries for a layer. An empty string means that the paper says nothing."""

    operations: Mapping[str, str]
    """Operations by part. The paper leaves out the projections of self-attention."""
    sequential: str
    path: str


@dataclass(frozen=True, kw_only=True)
class LayerKind:
    """A layer type. Its size is k or r, or 0 if it has neither."""

    make: Callable[[int, int, int], nn.Module]
    """Makes the layer from d, the size and the number of layers below."""
    operations: Mapping[str, Callable[[int, int, int], int]]
    """Operations of each part, from n, d and the size."""
    hops: Callable[[int, int], int]
    """Hops of the longest path, from n and the size; `layer_types.py` defines a hop."""
    paper: Paper
    size: str = ""
    """Name of the size: k or r."""


def projections(n: int, d: int, _: int) -> int:
    """Return the operations of attention's query, key, value and output projections."""
    return 8 * n * d**2


def band_product(n: int, d: int, r: int) -> int:
    """Return the operations of scores and weighted means of values.

    They are computed in chunks of w = r // 2 queries with 3 w keys each. (2 w + 1 of the keys are near enough.)
    """
    w = r // 2
    return 4 * math.ceil(n / w) * w * 3 * w * d


def contiguous_hops(n: int, size: int) -> int:
    """Return the number of layers if each reaches size // 2 further."""
    return math.ceil((n - 1) / (size // 2))


def dilated_hops(n: int, k: int) -> int:
    """Return the number of layers until k^layers >= n; layer i, from 0, reaches (k - 1) k^i further."""
    return next(layers for layers in count(1) if k**layers >= n)


def _table_1(row: str, part: str, path: str | None = None) -> Paper:
    """Return a row of the table. `path`: the path in section 4, where it differs."""
    published = load().find(PrintedTable, "transformer/table-1")
    cells = next(cells for cells in published.rows if cells[0] == row)
    by_name = {column.name: str(cell) for column, cell in zip(published.columns, cells, strict=True)}
    names = ("complexity_per_layer", "sequential_operations", "maximum_path_length")
    operations, sequential, printed = (by_name[name] for name in names)
    return Paper({part: operations}, sequential, path or printed)


def _recurrent(make: Callable[[int], nn.RNNBase], matrices: int) -> LayerKind:
    return LayerKind(
        make=lambda d, _, __: Recurrent(make(d)),
        operations={"recurrence": lambda n, d, _: 2 * matrices * n * d**2},
        hops=lambda n, _: n - 1,
        paper=_table_1("recurrent", "recurrence"),
    )


def _convolution(n: int, d: int, k: int) -> int:
    return 2 * k * n * d**2


LAYER_KINDS = {
    "self-attention": LayerKind(
        make=lambda d, _, __: SelfAttention(d, None),
        operations={"product": lambda n, d, _: 4 * n**2 * d, "projections": projections},
        hops=lambda _, __: 1,
        paper=_table_1("self-attention", "product"),
    ),
    "self-attention (restricted)": LayerKind(
        make=lambda d, r, _: SelfAttention(d, r),
        operations={"product": band_product, "projections": projections},
        hops=contiguous_hops,
        paper=_table_1("self-attention (restricted)", "product"),
        size="r",
    ),
    "recurrent (RNN)": _recurrent(lambda d: nn.RNN(d, d, batch_first=True), 2),
    "recurrent (LSTM)": _recurrent(lambda d: nn.LSTM(d, d, batch_first=True), 8),
    "convolutional": LayerKind(
        make=lambda d, k, _: Convolutional(convolution=centred(d, k)),
        operations={"convolution": _convolution},
        hops=contiguous_hops,
        paper=_table_1("convolutional", "convolution", path="O(n/k)"),
        size="k",
    ),
    "convolutional (dilated)": LayerKind(
        make=lambda d, k, below: dilated(d, k, k**below),
        operations={"convolution": _convolution},
        hops=dilated_hops,
        paper=_table_1("convolutional", "convolution"),
        size="k",
    ),
    "convolutional (separable)": LayerKind(
        make=lambda d, k, _: Convolutional(depthwise=centred(d, k, groups=d), pointwise=centred(d, 1)),
        operations={"depthwise": lambda n, d, k: 2 * k * n * d, "pointwise": lambda n, d, _: 2 * n * d**2},
        hops=contiguous_hops,
        paper=Paper({"depthwise": "O(k · n · d)", "pointwise": "O(n · d^2)"}, "", ""),  # section 4, as one sum
        size="k",
    ),
}
