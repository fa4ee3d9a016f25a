"""Blocks: sentences of similar length side by side, where packed queries meet packed keys.

Only the attention product needs sentences as a padded batch. If a random batch is padded to its longest sentence, most
scores are padding. So on a CPU, the batch is split into blocks of sentences of similar length. Each block is padded by
itself and is small enough to stay in the processor's cache. On an accelerator, one block holds all sentences; the
packed rows already have its layout.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from repose.model.kernels.packing import Packing, RowMap, packs
from repose.model.positions import Positions
from repose.model.scores import KeyMask, Reach

SHORTEST = 0.8
"""A sentence shorter than this share of its block's longest one begins a new block."""


@dataclass(kw_only=True)
class Block(KeyMask):
    """A block: b sentences of a batch, up to q queries and k keys long, for h heads."""

    sentences: Tensor
    """Indices in the batch, (b,)."""
    bias: Float[Tensor, "bh q k"]
    """Added to the scores: -inf where a query may not attend to a key; elsewhere 0, or the scores of positions."""
    has_key: Float[Tensor, "bh q 1"] | None
    """For a query without keys, the bias is finite."""
    own: Bool[Tensor, "q k"] | None


class Blocks(Reach):
    """Which queries of a batch meet which keys, with the mapping from packed rows to blocks and back."""

    blocks: list[Block]

    def __init__(
        self,
        queries: Packing,
        keys: Packing,
        *,
        num_heads: int,
        causal: bool = False,
        positions: Positions | None = None,
    ) -> None:
        """Compute the blocks. Nothing attends to padding.

        In self-attention, `keys` is `queries`. `causal`: position t attends only to positions up to t. `positions`: the
        stack's positions, for self-attention.
        """
        parts, device = _of_like_length(queries), queries.mask.device
        self.queries = _layout(queries, parts, num_heads)
        """The layout of the queries: b*h matrices of q rows for each block."""
        of_keys = self.queries if keys is queries else _layout(keys, parts, num_heads)
        self._of_keys = {num_heads: of_keys}
        self._packing, self._parts, self._positions = keys, parts, positions
        self.num_sentences, self.num_heads = len(queries.mask), num_heads
        of_positions = None
        if positions is not None:
            at = torch.arange(max(mask.shape[1] for mask in of_keys.masks), device=device)
            of_positions = positions.scores(at, at)
        self.blocks = []
        for sentences, real_queries, real_keys in zip(parts, self.queries.masks, of_keys.masks, strict=True):
            num_queries, num_keys = real_queries.shape[1], real_keys.shape[1]
            allowed = real_keys[:, None, :].expand(-1, num_queries, -1)
            if causal:
                allowed = allowed.tril()
            if keys is queries:
                added = None if of_positions is None else of_positions[:, :num_queries, :num_keys]
                own = torch.eye(num_queries, dtype=torch.bool, device=device)
                block = make_block(sentences, allowed, num_heads, added=added, own=own)
            else:
                block = make_block(sentences, allowed, num_heads, added=None, real_queries=real_queries)
            self.blocks.append(block)

    def turn(self, rows: Float[Tensor, "R HC"]) -> Float[Tensor, "R HC"]:
        """Return queries or keys as they enter the scores."""
        return rows if self._positions is None else self._positions.turn(rows, self._packing.columns)

    def keys_of(self, groups: int) -> "Layout":
        """Return the layout of keys or values: b*g matrices of k rows for each block, one for each group of heads."""
        if groups not in self._of_keys:
            self._of_keys[groups] = _layout(self._packing, self._parts, groups)
        return self._of_keys[groups]

    def padded(self, scores: Sequence[Tensor]) -> Float[Tensor, "B H Q K"]:
        """Return what each block has for its queries and keys, (b*h, q, k), as one padded tensor; zeros at padding."""
        whole = scores[0].new_zeros(
            self.num_sentences, self.num_heads, *(max(x.shape[dim] for x in scores) for dim in (1, 2))
        )
        for block, x in zip(self.blocks, scores, strict=True):
            whole[block.sentences, :, : x.shape[1], : x.shape[2]] = x.unflatten(0, (-1, self.num_heads))
        return whole


def split(flat: Float[Tensor, "n C"], sizes: Sequence[tuple[int, int]]) -> list[Tensor]:
    """Return each block's matrices, (b, l, C), from the rows that a layout's `to_blocks` returns."""
    parts = flat.split([b * length for b, length in sizes])
    return [part.view(b, length, -1) for part, (b, length) in zip(parts, sizes, strict=True)]


def join(blocks: Sequence[Tensor]) -> Float[Tensor, "n C"]:
    """Invert `split`."""
    return torch.cat([x.flatten(0, 1) for x in blocks]) if len(blocks) > 1 else blocks[0].flatten(0, 1)


class PackedLayout:
    """The places of packed rows in blocks of sentences, which follow one another; each block is (b, h, l)."""

    sizes: list[tuple[int, int]]
    """(b * h, l) for each block: so many matrices of l rows."""

    def __init__(self, packing: Packing, parts: Sequence[Tensor], num_heads: int) -> None:
        device = packing.mask.device
        heads = torch.arange(num_heads, device=device)
        # Each head's part of a packed row is a row by itself, number row · H + head; n places in blocks hold them.
        rows, real = [], []
        self.masks: list[Bool[Tensor, "b l"]] = []
        for sentences in parts:
            length = max(1, *(packing.lengths[i] for i in sentences.tolist()))
            mask = packing.mask[sentences, :length]
            packed_rows = packing.row_of_cell[sentences, :length]
            rows.append((packed_rows[:, None, :] * num_heads + heads[:, None]).flatten())  # from (b, h, l)
            real.append(mask[:, None, :].expand(-1, num_heads, -1).flatten())
            self.masks.append(mask)
        self._num_heads = num_heads
        is_real, row_of_place = torch.cat(real), torch.cat(rows)  # (n,)
        places = is_real.nonzero().squeeze(1)
        spare = (packing.spare[:, None] * num_heads + heads).flatten()
        place_of_row = torch.zeros(len(places) + len(spare), dtype=torch.long, device=device)  # (R H,)
        place_of_row[row_of_place[places]] = places
        self._map_to_blocks = RowMap(row_of_place, (~is_real).nonzero().squeeze(1))
        self._map_to_rows = RowMap(place_of_row, spare)
        self.sizes = [(len(mask) * num_heads, mask.shape[1]) for mask in self.masks]

    def to_blocks(self, rows: Float[Tensor, "R HC"]) -> Float[Tensor, "n C"]:
        """Return the rows of all blocks' matrices; zeros at padding."""
        return self._map_to_blocks.move(rows.reshape(len(rows) * self._num_heads, -1), self._map_to_rows)

    def to_rows(self, flat: Float[Tensor, "n C"]) -> Float[Tensor, "R HC"]:
        """Invert `to_blocks`, for queries."""
        moved = self._map_to_rows.move(flat, self._map_to_blocks)
        return moved.view(len(moved) // self._num_heads, -1)


class PaddedLayout:
    """The places of all positions of a batch in one block (B, h, L), where packing keeps the padding."""

    def __init__(self, packing: Packing, num_heads: int) -> None:
        (self._num_sentences, self._length), self._num_heads = packing.mask.shape, num_heads
        self.masks = [packing.mask]
        self.sizes = [(self._num_sentences * num_heads, self._length)]

    def heads(self, rows: Float[Tensor, "R HC"]) -> Float[Tensor, "B h L C"]:
        """Return the rows by head, without a copy."""
        return rows.view(self._num_sentences, self._length, self._num_heads, -1).transpose(1, 2)

    def rows(self, heads: Float[Tensor, "B h L C"]) -> Float[Tensor, "R HC"]:
        """Invert `heads`."""
        return heads.transpose(1, 2).flatten(2).flatten(0, 1)

    def to_blocks(self, rows: Float[Tensor, "R HC"]) -> Float[Tensor, "n C"]:
        return self.heads(rows).flatten(0, 2)

    def to_rows(self, flat: Float[Tensor, "n C"]) -> Float[Tensor, "R HC"]:
        return self.rows(flat.view(self._num_sentences, self._num_heads, self._length, -1))


Layout: TypeAlias = PackedLayout | PaddedLayout


def _layout(packing: Packing, parts: Sequence[Tensor], num_heads: int) -> Layout:
    return PackedLayout(packing, parts, num_heads) if packing.packs else PaddedLayout(packing, num_heads)


def make_block(
    sentences: Int[Tensor, " s"],
    allowed: Bool[Tensor, "b q k"],
    num_heads: int,
    *,
    added: Float[Tensor, "*n h q k"] | None,
    own: Bool[Tensor, "q k"] | None = None,
    real_queries: Bool[Tensor, "b q"] | None = None,
) -> Block:
    """Build a block of b rows: for each of the s sentences, n consecutive rows, to which `added` belongs (b = s · n).

    `added`: scores of positions. `own`: for self-attention, where every real token has at least one key, itself.
    `real_queries`: for cross-attention, where a query may have none.
    """
    some = allowed.any(2, keepdim=True)
    mask = torch.zeros(allowed.shape, dtype=torch.float32, device=allowed.device).masked_fill_(
        ~allowed & some, -torch.inf
    )
    if added is None:
        bias = mask[:, None].expand(-1, num_heads, -1, -1).flatten(0, 1)
    else:
        heads = mask.view(len(sentences), *added.shape[:-3], 1, *added.shape[-2:])
        bias = (heads + added).flatten(0, -3)
    has_key = None
    if real_queries is not None and _may_lack(real_queries, some):
        has_key = some.to(mask.dtype).repeat_interleave(num_heads, 0)
    return Block(sentences=sentences, bias=bias, has_key=has_key, own=own)


def _may_lack(real_queries: Bool[Tensor, "b q"], some: Bool[Tensor, "b q 1"]) -> bool:
    """Return whether a query may have no key; True on an accelerator, where checking would make the CPU wait."""
    return not packs(some.device) or bool((real_queries[:, :, None] & ~some).any())


def _of_like_length(packing: Packing) -> list[Tensor]:
    """Return the sentences of each block."""
    if not packing.packs:
        return [torch.arange(len(packing.mask), device=packing.mask.device)]
    lengths = packing.lengths
    parts: list[list[int]] = []
    for sentence in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if parts and lengths[sentence] >= SHORTEST * lengths[parts[-1][0]]:
            parts[-1].append(sentence)
        else:
            parts.append([sentence])
    return [torch.tensor(part, device="cpu") for part in parts]
