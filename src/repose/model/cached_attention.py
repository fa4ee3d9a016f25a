"""Attention while decoding: one more token per row, with the keys and values of earlier tokens in a cache.

The cache has one of two forms, which are mathematically the same:

    per head   keys W_h^K y and values W_h^V e of every head h: H·C + H·C numbers per token; or if heads share them
               (`num_kv_heads`), once for each group: G·C + G·C
    absorbed   y and e themselves, once for all heads (`kernels.absorption`): D numbers per token, or D + M

If heads are wide, as in arXiv 2410.04731 and the tutorial that it follows (C = D/2 and C = D), `absorbed` takes fewer
operations and up to 16 times less memory, and reading that memory is what decoding waits for. If heads are narrow, it
takes more.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from repose.model.attention import Attention
from repose.model.kernels.cache import Cache
from repose.model.kernels.linear import Affine, Linear
from repose.model.kernels.packing import Memory
from repose.model.positions import Positions
from repose.model.scores import KeyMask, Reach


class Folded(NamedTuple):
    """The query and output projections as decoding uses them; the scale is in the query's."""

    is_absorbed: bool
    """True if keys and values are the tokens themselves (`kernels.absorption`)."""
    query: Float[Tensor, "Hc D"]
    query_bias: Float[Tensor, " Hc"] | None
    output: Float[Tensor, "D He"]
    output_bias: Float[Tensor, " D"] | None
    value_bias: Float[Tensor, " D"] | None
    """The part of `output_bias` that comes from the biases of absorbed values.

    It belongs to the output because a query's weights sum to one; a query without keys must not get it.
    """


def folded(attention: Attention) -> Folded:
    """Return an attention's projections for decoding, absorbed if that takes no more operations."""
    if not attention.absorbs(1.0):
        query, output = attention.query, attention.output
        bias = None if query.bias is None else query.bias * attention.scale
        return Folded(False, query.weight * attention.scale, bias, output.weight, output.bias, None)
    w_q, b_q, w_o, of_heads = attention.absorbed()
    if of_heads is None:  # then no projection has a bias
        return Folded(True, w_q, b_q, w_o, None, None)
    of_values = of_heads.sum(1)
    return Folded(True, w_q, b_q, w_o, of_values + attention.output.bias, of_values)


class StepReach(Reach):
    """The keys of self-attention in a decoding step (`Reach`): the row's tokens so far, the one being read included."""

    def __init__(self, cache: Cache, positions: Positions, window: int | None) -> None:
        """`window`: r of local attention."""
        self.at, self._positions = cache.length, positions
        self.first = 0 if window is None else max(0, self.at - window // 2)
        """Position of the earliest key."""
        keys_at = torch.arange(self.first, self.at + 1, device=cache.beams.sentences.device)
        self.bias = positions.scores(keys_at[-1:], keys_at, cache)
        """Scores of positions, (H, 1, K)."""
        self.blocks = [KeyMask(has_key=None, own=keys_at == self.at)]

    def turn(self, rows: Float[Tensor, "R HC"]) -> Float[Tensor, "R HC"]:
        """Return the queries or keys of the token being read as they enter the scores."""
        return self._positions.turn(rows, self.at)


class MemoryReach(Reach):
    """The keys of cross-attention in a decoding step (`Reach`): the tokens of the row's source."""

    def __init__(self, cache: Cache) -> None:
        self.bias = cache.src_bias
        self.blocks = [KeyMask(has_key=cache.has_source, own=None)]


class CachedAttention:
    """The projections of one attention as decoding uses them. The scale is in the query projection.

    Shapes: G is the number of groups of heads that share keys (1 for `absorbed`, H if no heads share). A row has
    I = H / G queries for each group.
    """

    def __init__(self, attention: Attention) -> None:
        query, key, value, projections = attention.query, attention.key, attention.value, folded(attention)
        self.is_absorbed, self._value_bias = projections.is_absorbed, projections.value_bias
        self.scores, self.qk_norm = attention.scores, attention.qk_norm
        self.num_heads, self.num_groups = attention.num_heads, 1 if self.is_absorbed else attention.kv_heads
        self.key, self.value = key, value
        self.query = Affine(projections.query, projections.query_bias, query)
        self.output = Affine(projections.output, projections.output_bias, attention.output)
        self._all: Affine | None = None
        """The query, key and value projections as one product, if all three read the same rows."""
        if not self.is_absorbed and isinstance(value, Linear) and query.in_features == value.in_features:
            weight, bias = torch.cat([projections.query, key.weight, value.weight]), projections.query_bias
            self._all = Affine(weight, None if bias is None else torch.cat([bias, key.bias, value.bias]), query)
            self._widths = [layer.out_features for layer in (query, key, value)]

    def self_attention(
        self, x: Float[Tensor, "R D"], values_from: Float[Tensor, "R M"], cache: Cache, reach: StepReach
    ) -> Float[Tensor, "R D"]:
        """Attend to the row's tokens so far, the one being read included."""
        if self.is_absorbed:
            query, key, value = self.query(x), x, values_from
        elif values_from is x and self._all is not None:
            query, key, value = self._all(x).split(self._widths, dim=1)
        else:
            query, key, value = self.query(x), self.key(x), self.value(values_from)
        query, key = self.qk_norm.queries(query), self.qk_norm.keys(key)
        query, key = reach.turn(query), reach.turn(key)  # keys are cached after turning
        if self.is_absorbed and value is key:
            (keys,) = cache.extend(self, self._groups(key))
            values = keys
        else:
            keys, values = cache.extend(self, self._groups(key), self._groups(value))
        if reach.first > 0:
            keys, values = keys[:, :, reach.first :], values[:, :, reach.first :]
        bias = None if reach.bias is None else reach.bias.view(1, self.num_groups, 1, -1, reach.bias.shape[-1])
        weights = self._weights(query[:, None], keys, bias, reach)
        return self.output(_heads(weights, values).flatten(1))

    def cross_attention(
        self, x: Float[Tensor, "R D"], memory: Memory | None, cache: Cache, reach: MemoryReach
    ) -> Float[Tensor, "R D"]:
        """Attend to the memory, which may be None once the cache holds its keys and values."""
        owner = Memory if self.is_absorbed else self  # absorbed heads of every layer read the same rows
        kept = cache.of_memory(owner, lambda: self._of_memory(memory))
        keys, values = kept[0], kept[-1]  # the same tensor where the memory is both
        queries = cache.beams.by_sentence(self.qk_norm.queries(self.query(x)))
        weights = self._weights(queries, keys, reach.bias, reach)
        out = self.output(cache.beams.to_rows(_heads(weights, values)))
        if cache.has_source is not None and self._value_bias is not None:
            without = 1 - cache.has_source[cache.beams.sentences].view(-1, 1).to(out.dtype)
            out = out - without * self._value_bias
        return out

    def _of_memory(self, memory: Memory | None) -> list[Float[Tensor, "N G S c"]]:
        assert memory is not None, "the first step of a cache needs the memory"
        rows = [memory.hidden] if memory.values is memory.hidden else [memory.hidden, memory.values]
        if not self.is_absorbed:
            rows = [self.qk_norm.keys(self.key(rows[0])), self.value(rows[-1])]
        return [self._groups(memory.packing.pad(x)).transpose(1, 2).contiguous() for x in rows]

    def _groups(self, x: Float[Tensor, "*N Gc"]) -> Float[Tensor, "*N G c"]:
        return x.unflatten(-1, (self.num_groups, -1))

    def _weights(
        self, queries: Float[Tensor, "N W Hc"], keys: Float[Tensor, "N G K c"], bias: Tensor | None, reach: Reach
    ) -> Float[Tensor, "N G W I K"]:
        """Return attention weights of W rows per sentence, with I heads per group; `bias` is added to the scores."""
        shape = (len(queries), queries.shape[1], self.num_groups, self.num_heads // self.num_groups)
        q = queries.view(*shape, -1).transpose(1, 2).flatten(2, 3)  # (N, G, W * I, c)
        scores = torch.bmm(q.flatten(0, 1), keys.flatten(0, 1).mT).view(shape[0], shape[2], shape[1], shape[3], -1)
        if bias is not None:
            scores = scores + bias
        return self.scores.weights([scores], reach)[0].to(q.dtype)


def cached(attention: Attention, cache: Cache) -> CachedAttention:
    """Return the attention as decoding with `cache` uses it, made at the first call."""
    return cache.once(attention, lambda: CachedAttention(attention))


def _heads(weights: Float[Tensor, "N G W I K"], values: Float[Tensor, "N G K e"]) -> Float[Tensor, "N W Hc"]:
    """Return each head's weighted mean of values, side by side; zeros where there is no key."""
    n, groups, rows, inner, _ = weights.shape
    heads = torch.bmm(weights.flatten(2, 3).flatten(0, 1), values.flatten(0, 1))
    return heads.view(n, groups, rows, inner, -1).transpose(1, 2).flatten(2)
