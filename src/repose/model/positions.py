"""Positional encodings: how a model knows the order of its tokens. The axis `positions`, one class for each value.

Each stack has one `Positions` object, which can act in four places: rows that are added to the token embeddings or
concatenated with them (`rows`), rotations of queries and keys (`turn`), terms added to the scores (`scores`), and the
scale on products of queries and keys (`scale`). A new kind of positions is a subclass that overrides what it changes,
and a `case` in `positions_of`. If its scores depend on distances alone, it is a subclass of `DistancePositions`.
"""

import functools
import math
from collections.abc import Sequence
from typing import assert_never

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from repose.model.architecture import Architecture, PositionsKind
from repose.model.kernels.cache import Cache
from repose.model.kernels.linear import Linear, at_least_fp32
from repose.model.norms import LayerNorm

NUM_BUCKETS = 32
"""Number of buckets: the classes of distances that T5 and TUPE-R distinguish."""
FARTHEST = 128
"""Distance in tokens from which on all distances share one bucket (T5)."""


class Positions(nn.Module):
    """The positions of a stack. This base class is the value `none`: the stack does not know the order of its tokens.

    Positions count from 0. Those beyond `max_length` belong to padding and may give any finite result.
    """

    def __init__(self, a: Architecture, *, causal: bool) -> None:
        """`causal`: True if the stack's self-attention sees earlier tokens only."""
        super().__init__()
        self.farthest = a.max_length - 1
        """The largest distance of two tokens, in tokens, or one from which on `of_distances` gives the same scores."""

    def rows(self, at: Int[Tensor, " R"]) -> Float[Tensor, "R M"] | None:
        """Return the rows for tokens at these positions, for `combine` to add or concatenate; None for nothing."""
        return None

    def turn(self, rows: Float[Tensor, "R HC"], at: Int[Tensor, " R"] | int) -> Float[Tensor, "R HC"]:
        """Return self-attention's queries or keys at these positions (or all at one), as they enter the scores."""
        return rows

    def scores(
        self, queries_at: Int[Tensor, "*n q"], keys_at: Int[Tensor, "*n k"], cache: Cache | None = None
    ) -> Float[Tensor, "*n H q k"] | None:
        """Return what is added to the scores of self-attention, in every layer of the stack; None for nothing.

        `cache`: while decoding, keeps what is computed from the weights alone, so that it is computed once.
        """
        return None

    def of_distances(self, distance: Int[Tensor, "*n q k"]) -> Float[Tensor, "*n H q k"] | None:
        """Return the part of the scores that depends on the distance j - i alone, for query i and key j; None for
        nothing. Graphs hold a table of it."""
        return None

    def scale(self, head_dim: int) -> float:
        """Return the factor on products of self-attention's queries and keys; 1/sqrt(C) here."""
        return head_dim**-0.5

    def tables(self) -> Sequence[nn.Parameter]:
        """Return the weights that have one row for each position, to be initialised like token embeddings."""
        return ()

    @property
    def turns(self) -> bool:
        """True if `turn` changes anything."""
        return type(self).turn is not Positions.turn

    @property
    def has_rows(self) -> bool:
        """True if `rows` returns rows."""
        return type(self).rows is not Positions.rows


class TablePositions(Positions):
    """Positions as the rows of a table (`interleaved`, `halves`, `printed`, `learned`, `policy`).

    interleaved, halves, printed   fixed (`sinusoids`); a buffer that no checkpoint stores
    learned                        one trained row for each position up to `max_length`, a table for each stack
                                   (Vaswani et al. 3.5, table 3 row E)
    policy                         the given table, upscaled (`upscale`); a buffer that is stored with the weights
    """

    table: Tensor

    def __init__(self, a: Architecture, *, causal: bool, table: Float[Tensor, "n d"] | None = None) -> None:
        """`table`: for `policy`, of any size. Without it, the buffer is zero until a checkpoint is loaded."""
        super().__init__(a, causal=causal)
        length, width = a.max_length, a.d_token
        match a.positions:
            case "learned":
                self.table = nn.Parameter(torch.empty(length, width).normal_(std=1 / math.sqrt(width)))
            case "policy":
                full = torch.zeros(length, width) if table is None else upscale(table, length, width)
                self.register_buffer("table", full)
            case _:
                self.register_buffer("table", sinusoids(a.positions, length, width), persistent=False)

    def rows(self, at: Int[Tensor, " R"]) -> Float[Tensor, "R M"]:
        """Return the table's rows at these positions."""
        return self.table.index_select(0, at)

    def tables(self) -> Sequence[nn.Parameter]:
        """Return the table if it is learned."""
        return (self.table,) if isinstance(self.table, nn.Parameter) else ()


class Rotary(Positions):
    """Positions as rotations of self-attention's queries and keys (RoFormer, Su et al. 2021, arXiv 2104.09864, 3.2.2).

    In each head, the numbers x_2i and x_(2i+1) of a query or key at position m are a point in the plane. It is rotated
    about the origin by the angle m · 10000^(-2i/C), with m and i from 0. In complex numbers:

        (x_2i + x_(2i+1) j) · e^(j m 10000^(-2i/C))

    So a score depends only on the contents and on the distance between positions. Nothing is learned or stored.

    Differs from the paper, which does not mention cross-attention: two sentences have no distance, so nothing turns
    there.
    """

    table: Float[Tensor, "max_length half 2"]
    """Cosine and sine of each position's angles."""

    def __init__(self, a: Architecture, *, causal: bool) -> None:
        super().__init__(a, causal=causal)
        table = sinusoids("interleaved", a.max_length, a.head_dim).unflatten(1, (-1, 2)).flip(2)
        self.register_buffer("table", table.contiguous(), persistent=False)

    def turn(self, rows: Float[Tensor, "R HC"], at: Int[Tensor, " R"] | int) -> Float[Tensor, "R HC"]:
        """Return each head's queries or keys, rotated. Computed in fp32 at least."""
        wide = at_least_fp32(rows)
        pairs = torch.view_as_complex(wide.unflatten(1, (-1, self.table.shape[1], 2)))
        turns = torch.view_as_complex(self.table[at].to(wide.dtype)).unsqueeze(-2)
        return torch.view_as_real(pairs * turns).flatten(1).to(rows.dtype)


class DistancePositions(Positions):
    """Positions as scores of distances alone: score_ij + b_h(j - i). A subclass computes b in `of_distances`."""

    def scores(
        self, queries_at: Int[Tensor, "*n q"], keys_at: Int[Tensor, "*n k"], cache: Cache | None = None
    ) -> Float[Tensor, "*n H q k"] | None:
        """Return b_h(j - i)."""
        return self.of_distances(keys_at[..., None, :] - queries_at[..., :, None])


class Alibi(DistancePositions):
    """Attention with linear biases (ALiBi, Press et al. 2022, arXiv 2108.12409, section 3): score_ij - m_h |i - j|.

    The slope m_h is fixed, one number for each head: 2^(-8h/H), h from 1, if H is a power of two. Otherwise, the first
    n slopes are those of n heads, where n is the next lower power of two, and the rest are every other slope of 2n
    heads, as in the authors' code. Nothing is learned or stored.

    Differs from the paper, which has decoders only: in an encoder, scores fall with the distance on both sides alike.
    """

    slopes: Float[Tensor, " H"]

    def __init__(self, a: Architecture, *, causal: bool) -> None:
        super().__init__(a, causal=causal)
        num = 2 ** int(math.log2(a.num_heads))
        slopes = [2 ** (-8 * h / num) for h in range(1, num + 1)]
        slopes += [2 ** (-4 * h / num) for h in range(1, 2 * num, 2)]
        self.register_buffer("slopes", torch.tensor(slopes[: a.num_heads]), persistent=False)

    def of_distances(self, distance: Int[Tensor, "*n q k"]) -> Float[Tensor, "*n H q k"]:
        """Return -m_h |i - j|."""
        return -self.slopes[:, None, None] * distance.abs()[..., None, :, :]


class T5Positions(DistancePositions):
    """Relative position bias (T5, Raffel et al. 2020, arXiv 1910.10683, section 2.1): score_ij + b_h(j - i).

    b is one learned number for each head and bucket of distances (`buckets`). It is zero at first, and the layers of a
    stack share it.

    Differs from the paper: products of queries and keys are scaled by 1/sqrt(C). T5 draws smaller initial queries
    instead.
    """

    def __init__(self, a: Architecture, *, causal: bool) -> None:
        super().__init__(a, causal=causal)
        self.causal, self.farthest = causal, FARTHEST
        self.distances = nn.Parameter(torch.zeros(a.num_heads, NUM_BUCKETS))

    def of_distances(self, distance: Int[Tensor, "*n q k"]) -> Float[Tensor, "*n H q k"]:
        """Return b_h(j - i)."""
        return by_bucket(self.distances, distance, causal=self.causal)


class UntiedPositions(Positions):
    """Untied positions (TUPE, Ke et al. 2021, arXiv 2006.15595, eq. 10-11): positions and contents score separately.

        score_ij = (x_i W^Q)·(x_j W^K) / sqrt(2C) + (p_i U^Q)·(p_j U^K) / sqrt(2C)   [+ b_(j-i) for `untied_relative`]

    This class computes the terms without x, for each head. All layers of a stack share them. p_i is a learned row of
    d_model numbers, after a layer norm of its own (which is in the authors' code but not in the text). b is one number
    for each head and bucket of distances, zero at first. Both products are scaled by 1/sqrt(2C), so that their sum has
    the usual variance.

    Differs from the paper: the paper trains an encoder with a [CLS] token, whose position is untied from the rest; a
    translation has no such token. In a decoder, which sees no later token, all buckets are for earlier ones, as in T5.
    Cross-attention scores contents only, as in Vaswani et al.
    """

    def __init__(self, a: Architecture, *, causal: bool) -> None:
        super().__init__(a, causal=causal)
        width = a.num_heads * a.head_dim
        self.table = nn.Parameter(torch.empty(a.max_length, a.d_model).normal_(std=1 / math.sqrt(a.d_model)))
        self.norm = LayerNorm(a.d_model, eps=a.norm_eps)
        self.query = Linear(a.d_model, width, bias=a.attention_bias)
        self.key = Linear(a.d_model, width, bias=a.attention_bias)
        self.num_heads, self.head_dim, self.causal, self.farthest = a.num_heads, a.head_dim, causal, FARTHEST
        relative = a.positions == "untied_relative"
        self.distances = nn.Parameter(torch.zeros(a.num_heads, NUM_BUCKETS)) if relative else None

    def scores(
        self, queries_at: Int[Tensor, "*n q"], keys_at: Int[Tensor, "*n k"], cache: Cache | None = None
    ) -> Float[Tensor, "*n {self.num_heads} q k"]:
        """Return the scores of positions against positions."""
        with torch.autocast(self.table.device.type, enabled=False):
            last = len(self.table) - 1
            queries_at, keys_at = queries_at.clamp(max=last), keys_at.clamp(max=last)
            if cache is None:
                queries, keys = self.projected(_longest(queries_at, keys_at))
            else:
                queries, keys = cache.once(self, self.projected)
            scores = self._heads(F.embedding(queries_at, queries)) @ self._heads(F.embedding(keys_at, keys)).mT
            more = self.of_distances(keys_at[..., None, :] - queries_at[..., :, None])
            return scores if more is None else scores + more

    def of_distances(self, distance: Int[Tensor, "*n q k"]) -> Float[Tensor, "*n H q k"] | None:
        """Return b_h(j - i) for `untied_relative`."""
        return None if self.distances is None else by_bucket(self.distances, distance, causal=self.causal)

    def projected(self, length: int | None = None) -> tuple[Float[Tensor, "L HC"], Float[Tensor, "L HC"]]:
        """Project the first `length` positions (None: all) to queries, scaled, and to keys."""
        rows = self.norm(self.table[:length])
        return self.query(rows) * self.scale(self.head_dim), self.key(rows)

    def scale(self, head_dim: int) -> float:
        """Return 1/sqrt(2C), since two products are added."""
        return (2 * head_dim) ** -0.5

    def tables(self) -> Sequence[nn.Parameter]:
        """Return p."""
        return (self.table,)

    def _heads(self, x: Float[Tensor, "*n l HC"]) -> Float[Tensor, "*n H l C"]:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(-3, -2)


def _longest(queries_at: Tensor, keys_at: Tensor) -> int | None:
    """Return how many positions are used; None on an accelerator, where the CPU would have to wait for the number."""
    return int(max(queries_at.max(), keys_at.max())) + 1 if queries_at.device.type == "cpu" else None


def positions_of(a: Architecture, *, causal: bool, table: Float[Tensor, "n d"] | None = None) -> Positions:
    """Return the positions of a stack. `table`: as for `TablePositions`."""
    match a.positions:
        case "interleaved" | "halves" | "printed" | "learned" | "policy":
            return TablePositions(a, causal=causal, table=table)
        case "rotary":
            return Rotary(a, causal=causal)
        case "alibi":
            return Alibi(a, causal=causal)
        case "t5":
            return T5Positions(a, causal=causal)
        case "untied" | "untied_relative":
            return UntiedPositions(a, causal=causal)
        case "none":
            return Positions(a, causal=causal)
        case _:
            assert_never(a.positions)


def sinusoids(kind: PositionsKind, length: int, width: int) -> Float[Tensor, "length width"]:
    """Return a fixed encoding, one row per position.

    interleaved: sin and cos of pos / 10000^(2i/d) in even and odd columns, pos from 0 (Vaswani et al. 3.5)
    halves:      the same columns in another order: all sines before all cosines (TF tutorial)
    printed:     arXiv 2410.04731 eq. 3 exactly as printed: i / 10000^(2j/m) in *all* columns, with pos i and
                 column j from 1; sine for j <= m/2, cosine beyond. The exponents of the cosines go from 1 to 2, so
                 that they hardly differ from 1: by less than 5e-5 in 128 positions of width 64.
    """
    if (shape := torch.empty(length, width)).is_meta:  # torch would import its compiler just to compute nothing
        return shape
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
    """Scale a small table up to `length` positions of `width` numbers, and smooth it (arXiv 2310.10930, 3.3).

    First, each number becomes a block of length/n rows and width/d columns. From 8 x 16 to 256 x 512, the blocks are 32
    x 32; this is how we read the paper's "16 x 8" and "512 x 256". Then each number becomes the mean of its neighbours
    up to half a block (rounded up) before and after it: of 33 numbers for a block of 32. Within a row, windows are cut
    off at the edges.

    Differs from the paper, which names the pooling but gives no details: before the first position and after the last
    one, the table continues with its slope for half a block. If windows were cut off there, all positions of the first
    half block (16 positions, the length of a sentence) would have the same row. See
    docs/decisions/015-policy-table-at-its-edges.md.
    """
    rows = _pooling(len(table), length, goes_on=len(table) > 1)
    columns = _pooling(table.shape[1], width, goes_on=False)
    return (rows @ table.double() @ columns.T).float()


def _pooling(num: int, length: int, *, goes_on: bool) -> Float[Tensor, "length num"]:
    """Return the matrix that repeats `num` numbers in blocks up to `length`, then takes the mean over each window.

    `goes_on`: extrapolate beyond both ends instead of cutting windows off.
    """
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


def by_bucket(
    weights: Float[Tensor, "H buckets"], distance: Int[Tensor, "*n q k"], *, causal: bool
) -> Float[Tensor, "*n H q k"]:
    """Return, for each head, query and key, the weight of the bucket that their distance is in."""
    # Not by indexing: several threads would sum its gradient in varying order, and each run would have other bits.
    return F.embedding(buckets(distance, causal=causal), weights.T).movedim(-1, -3)


def buckets(distance: Int[Tensor, "*x"], *, causal: bool) -> Int[Tensor, "*x"]:
    """Return the bucket, out of `NUM_BUCKETS`, of each distance j - i, as in T5 (Raffel et al. 2020, section 2.1).

    Half of the buckets of a side hold one distance each; the sizes of the others grow with the logarithm of the
    distance, up to `FARTHEST`. Without `causal`, each side has half of all buckets. With it, the earlier side has all
    of them.
    """
    num = NUM_BUCKETS if causal else NUM_BUCKETS // 2
    side = torch.zeros_like(distance) if causal else (distance > 0) * num
    size = (-distance).clamp(min=0) if causal else distance.abs()
    return side + _bucket_of_size(num, distance.device)[size.clamp(max=FARTHEST)]


@functools.cache
def _bucket_of_size(num: int, device: torch.device) -> Int[Tensor, "sizes"]:
    """Return the bucket, out of `num`, of each distance from 0 to `FARTHEST`.

    Computed on the CPU, because mps has no double precision.
    """
    with torch.inference_mode(False):
        size, exact = torch.arange(FARTHEST + 1, device="cpu"), num // 2
        steps = (size.clamp(min=exact).double() / exact).log() / math.log(FARTHEST / exact) * (num - exact)
        far = (exact + (steps + 1e-9).long()).clamp(max=num - 1)
        return torch.where(size < exact, size, far).to(device, non_blocking=True)
