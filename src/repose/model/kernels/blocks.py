"""Sentences of like length side by side: where packed queries meet packed keys.

The attention product is the only place that needs sentences as a padded batch. Padded to the longest of a random
batch, most of the scores are padding's; so on a CPU the batch is cut into blocks of like length, each padded
alone and small enough to stay in the cache. Elsewhere one block is all sentences.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from repose.model.kernels.packing import Packing, Places
from repose.model.positions import Positions
from repose.model.scores import Reach

SHORTEST = 0.8
"""A sentence shorter than this share of its block's longest begins a new block."""


class Block(NamedTuple):
    """b sentences of a batch, up to q queries and k keys long, for h heads."""

    sentences: Tensor
    """(b,): which of the batch."""
    bias: Float[Tensor, "bh q k"]
    """Added to the scores: -inf where a query may not attend to a key; elsewhere 0, or the scores of positions."""
    has_key: Float[Tensor, "bh q 1"] | None
    """0 for a query that may attend to nothing (its bias is finite), 1 for others; None if there is none such."""
    own: Bool[Tensor, "q k"] | None = None
    """In self-attention, which key is a query's own token: the diagonal of the scores."""


class Blocks(Reach):
    """Which queries of a batch meet which keys, and the way of packed rows to their blocks and back."""

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
        """`causal`: position t attends to positions up to t. Nothing attends to padding. `positions`: those of the
        stack, for its self-attention."""
        parts = _of_like_length(queries.mask)
        self._queries = _Layout(queries, parts, num_heads)
        self._keys = self._queries if keys is queries else _Layout(keys, parts, num_heads)
        self._packing, self._parts, self._positions = keys, parts, positions
        self.num_sentences, self.num_heads = len(queries.mask), num_heads
        device, layouts = queries.mask.device, (self._queries, self._keys)
        longest = [max((mask.shape[1] for mask in x.masks), default=0) for x in layouts]
        places = [torch.arange(length, device=device) for length in longest]
        added = None if positions is None else positions.scores(*places)
        self.blocks = []
        for sentences, real_queries, real_keys in zip(parts, self._queries.masks, self._keys.masks, strict=True):
            own = torch.eye(real_queries.shape[1], dtype=torch.bool, device=device)
            allowed = real_keys[:, None, :].expand(-1, real_queries.shape[1], -1)
            if causal:
                allowed = allowed.tril()
            here = None if added is None else added[:, : allowed.shape[1], : allowed.shape[2]]
            self.blocks.append(
                make_block(sentences, allowed, real_queries, num_heads, own if keys is queries else None, here)
            )

    def turn(self, rows: Float[Tensor, "R HC"]) -> Float[Tensor, "R HC"]:
        """Queries or keys as they enter the scores."""
        return rows if self._positions is None else self._positions.turn(rows, self._packing.columns)

    def split_queries(self, rows: Float[Tensor, "R HC"]) -> list[Tensor]:
        """Each block's queries, (b*h, q, c)."""
        return self._queries.split(rows)

    def split_keys(self, rows: Float[Tensor, "S HC"]) -> list[Tensor]:
        """Each block's keys or values, (b*h, k, c)."""
        return self._keys.split(rows)

    def split_tokens(self, rows: Float[Tensor, "S X"]) -> list[Tensor]:
        """Each block's rows of the keys' side for all heads at once, (b, k, X)."""
        return self._tokens.split(rows)

    @cached_property
    def _tokens(self) -> "_Layout":
        return _Layout(self._packing, self._parts, 1)

    def join_queries(self, blocks: Sequence[Tensor]) -> Float[Tensor, "R HC"]:
        """The inverse of `split_queries`."""
        return self._queries.join(blocks)

    def padded(self, scores: Sequence[Tensor]) -> Float[Tensor, "B H Q K"]:
        """What is said of queries and keys in each block, (b*h, q, k), as one tensor; zeros at the padding."""
        whole = scores[0].new_zeros(
            self.num_sentences, self.num_heads, *(max(x.shape[dim] for x in scores) for dim in (1, 2))
        )
        for block, x in zip(self.blocks, scores, strict=True):
            whole[block.sentences, :, : x.shape[1], : x.shape[2]] = x.unflatten(0, (-1, self.num_heads))
        return whole


class _Layout:
    """Where the rows of a packing stand in blocks: each block (b, h, l), one after the other."""

    def __init__(self, packing: Packing, parts: Sequence[Tensor], num_heads: int) -> None:
        device = packing.mask.device
        heads = torch.arange(num_heads, device=device)
        rows, real = [], []
        self.masks: list[Bool[Tensor, "b l"]] = []
        for sentences in parts:
            mask = packing.mask[sentences]
            used = mask.any(0).nonzero()
            length = int(used[-1]) + 1 if len(used) else 1
            mask = mask[:, :length]
            cells = packing.row_of_cell[sentences, :length]
            rows.append((cells[:, None, :] * num_heads + heads[:, None]).flatten())
            real.append(mask[:, None, :].expand(-1, num_heads, -1).flatten())
            self.masks.append(mask)
        self._num_heads = num_heads
        is_real, row_of_cell = torch.cat(real), torch.cat(rows)
        cells = is_real.nonzero().squeeze(1)
        spare = (packing.spare[:, None] * num_heads + heads).flatten()
        cell_of_row = torch.zeros(len(cells) + len(spare), dtype=torch.long, device=device)
        cell_of_row[row_of_cell[cells]] = cells
        self._to_blocks = Places(row_of_cell, (~is_real).nonzero().squeeze(1))
        self._to_rows = Places(cell_of_row, spare)
        self._sizes = [x.numel() for x in rows]

    def split(self, rows: Tensor) -> list[Tensor]:
        flat = self._to_blocks.move(rows.reshape(len(rows) * self._num_heads, -1), self._to_rows)
        return [
            x.view(len(mask) * self._num_heads, mask.shape[1], -1)
            for x, mask in zip(flat.split(self._sizes), self.masks, strict=True)
        ]

    def join(self, blocks: Sequence[Tensor]) -> Tensor:
        flat = torch.cat([x.flatten(0, 1) for x in blocks]) if len(blocks) > 1 else blocks[0].flatten(0, 1)
        return self._to_rows.move(flat, self._to_blocks).unflatten(0, (-1, self._num_heads)).flatten(1)


def make_block(
    sentences: Int[Tensor, " s"],
    allowed: Bool[Tensor, "b q k"],
    real_queries: Bool[Tensor, "b q"],
    num_heads: int,
    own: Bool[Tensor, "q k"] | None,
    added: Float[Tensor, "*n h q k"] | None,
) -> Block:
    """A block of b rows, of which s each begin again with the `added` scores of positions (b = s · n)."""
    some = allowed.any(2, keepdim=True)
    mask = torch.zeros(allowed.shape, device=allowed.device).masked_fill_(~allowed & some, -torch.inf)
    if added is None:
        bias = mask.repeat_interleave(num_heads, 0)
    else:
        heads = mask.view(len(sentences), *added.shape[:-3], 1, *added.shape[-2:])
        bias = (heads + added).flatten(0, -3)
    all_have_keys = not bool((real_queries[:, :, None] & ~some).any())
    has_key = None if all_have_keys else some.to(mask.dtype).repeat_interleave(num_heads, 0)
    return Block(sentences, bias, has_key, own)


def _of_like_length(mask: Bool[Tensor, "B L"]) -> list[Tensor]:
    """The sentences of each block."""
    if mask.device.type != "cpu":
        return [torch.arange(len(mask), device=mask.device)]
    lengths = (mask * torch.arange(1, mask.shape[1] + 1)).amax(1).tolist()
    parts: list[list[int]] = []
    for sentence in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if parts and lengths[sentence] >= SHORTEST * lengths[parts[-1][0]]:
            parts[-1].append(sentence)
        else:
            parts.append([sentence])
    return [torch.tensor(part) for part in parts]
