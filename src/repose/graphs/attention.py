"""Attention in an ONNX graph, with folded weights; the same code for whole sentences, a step, and the memory.

Shapes: B sentences (or rows of a decoding), W queries of each, G groups of heads that share keys and values, I heads
of a group (G · I = H), K keys, c and e the widths of keys and values. `absorbed` (`kernels.absorption`): G = 1, and
keys and values are the tokens; otherwise G is `num_kv_heads`. A group's queries are W I rows: by query and then by
head where absorbed, by head and then by query elsewhere.
"""

from typing import NamedTuple, assert_never

import numpy as np
import torch

from repose.graphs.coverage import Listed
from repose.graphs.graph import Array, Graph, Value, array
from repose.model.architecture import POSITIONS_WITH_ROWS
from repose.model.attention import Attention
from repose.model.cached_attention import folded
from repose.model.kernels.linear import SideBySide
from repose.model.positions import DistancePositions, Positions, Rotary, UntiedPositions
from repose.model.qk_norm import EPS

OF_ATTENTION: Listed = {
    "positions": (*POSITIONS_WITH_ROWS, "rotary", "alibi", "t5", "untied", "untied_relative", "none"),
    "values": ("hidden", "tokens", "both"),
    "qk_norm": ("none", "l2"),
    "self_score": ("keep", "zero", "exclude", "zero_weights"),
    "score_residual": ("none", "previous_layer"),
    "attention_bias": (False, True),
}
"""Axes computed here, with the values that have a graph; part of `stacks.COMPUTED`."""


class Keys(NamedTuple):
    """Keys and values that queries attend to."""

    keys: Value
    """(B, G, c, K), transposed for the product."""
    values: Value
    """(B, G, K, e)."""


class Attended(NamedTuple):
    """The result of attention."""

    hidden: Value
    """(B, W, D), or (R, D) for a step's rows."""
    scores: Value
    """(B, G, W I, K), which the next layer may add to its own (RealFormer)."""
    weights: Value
    """(B, G, W I, K)."""


class GraphAttention:
    """One attention, with its projections as constants of a graph; the scale is folded into the query weights."""

    def __init__(self, graph: Graph, attention: Attention, positions: Positions | None) -> None:
        """`positions`: those of its stack for self-attention; None for cross-attention."""
        self._graph, self.scores = graph, attention.scores
        with torch.no_grad():
            projections = folded(attention)
        self.num_heads, self.is_absorbed = attention.num_heads, projections.is_absorbed
        self.groups = 1 if self.is_absorbed else attention.kv_heads
        self.inner = self.num_heads // self.groups
        self._query = _arrays(projections.query, projections.query_bias)
        self._output = _arrays(projections.output, projections.output_bias)
        key, value = attention.key, attention.value
        self._key = _arrays(key.weight, key.bias)
        values = [value.first, value.second] if isinstance(value, SideBySide) else [value]
        self._values = [_arrays(x.weight, x.bias) for x in values]
        self._gain = None if attention.qk_norm.gain is None else array(attention.qk_norm.gain)
        if isinstance(positions, Rotary):
            # Reorder each head's pairs into halves, in queries and keys alike: their products stay the same.
            self._query, self._key = (_halves(*x, attention.head_dim) for x in (self._query, self._key))

    def queries(self, x: Value, rows: Value | None = None, turns: "Turns | None" = None) -> Value:
        """Project queries and rotate them: (B, W, D) -> (B, G, W I, c). With `rows`, int64 [B], x is (B W, D)."""
        g, q = self._graph, self._graph.linear(x, *self._query)
        inner = (1, -1, self._width) if self.is_absorbed else (-1, self.num_heads, self._width)
        shape = g.ints(0, *inner) if rows is None else g.concatenated(rows, g.ints(*inner), axis=0)
        normed = self._normed_queries(g.reshaped(q, shape))
        if self.is_absorbed:
            return normed
        heads = g.transposed(normed, 0, 2, 1, 3)  # (B, H, W, c)
        heads = heads if turns is None else turns.of(g, heads)
        return heads if self.inner == 1 else g.reshaped(heads, (0, self.groups, -1, self._width))

    @property
    def _width(self) -> int:
        return len(self._query[0]) // self.num_heads

    def new_queries(self, x: Value) -> Value:
        """Project the queries of a step: (R, D) -> (R, G, I, c)."""
        g = self._graph
        grouped = g.reshaped(g.linear(x, *self._query), (0, self.groups, self.inner, self._width))
        return self._normed_queries(grouped)

    def _normed_queries(self, x: Value) -> Value:
        """Compute `model.qk_norm.QkNorm.queries` on (.., c)."""
        g = self._graph
        return x if self._gain is None else g.mul(g.unit(x, EPS), g.constant(self._gain))

    def _normed_keys(self, x: Value) -> Value:
        """Compute `model.qk_norm.QkNorm.keys` on (.., c)."""
        return x if self._gain is None else self._graph.unit(x, EPS)

    def read(self, x: Value, tokens: Value | None, turns: "Turns | None" = None) -> tuple[Value, Value, Value]:
        """Project a step's rows: (R, D) and (R, M) -> queries (R, G, I, c), and rows that `by_token` turns into keys
        and values. Queries and keys are rotated by their position.

        `tokens`: token embeddings, if values are computed from them.
        """
        g = self._graph
        if self.is_absorbed:
            return self.new_queries(x), x, tokens or x
        of_x = [self._query, self._key] if tokens else [self._query, self._key, *self._values]
        weight = np.concatenate([w for w, _ in of_x])
        bias = None if of_x[0][1] is None else np.concatenate([b for _, b in of_x if b is not None])
        counts = [self.num_heads, *[self.groups] * (len(of_x) - 1)]
        rows = g.reshaped(g.linear(x, weight, bias), (0, sum(counts), 1, self._width))  # all have the same width
        if turns is not None and self._gain is None:  # rotate queries and keys together
            turning, *rest = g.split(rows, [sum(counts[:2]), *counts[2:]], axis=1)
            queries, keys = g.split(turns.of(g, turning), counts[:2], axis=1)
        else:
            queries, keys, *rest = g.split(rows, counts, axis=1)
            queries, keys = self._normed_queries(queries), self._normed_keys(keys)
            if turns is not None:
                queries, keys = turns.of(g, queries), turns.of(g, keys)
        if self.inner > 1:
            queries = g.reshaped(queries, (0, self.groups, -1, self._width))
        values = g.reshaped(self._values_of(x, tokens), (0, self.groups, 1, -1)) if tokens else rest[0]
        return queries, keys, values

    def by_token(self, x: Value) -> Value:
        """Return the keys or values of a step's rows as (R, G, 1, c)."""
        return self._graph.reshaped(x, (0, 1, 1, -1)) if self.is_absorbed else x

    def keys_and_values(self, x: Value, tokens: Value | None) -> tuple[Value, Value]:
        """Project keys and values: (B, K, D) and (B, K, M) -> (B, G, K, c) and (B, G, K, e). `tokens`: as for
        `read`."""
        if self.is_absorbed:
            return self._by_group(x), self._by_group(tokens or x)
        keys = self._by_group(self._graph.linear(x, *self._key))
        return self._normed_keys(keys), self._by_group(self._values_of(x, tokens))

    def _values_of(self, x: Value, tokens: Value | None) -> Value:
        g = self._graph
        values_from = [tokens or x] if len(self._values) == 1 else [x, tokens or x]
        values = [g.linear(y, *weights) for y, weights in zip(values_from, self._values, strict=True)]
        return values[0] if len(values) == 1 else g.concatenated(*values, axis=-1)

    def of_queries(self, x: Value, length: Value, *, has_queries: bool) -> Value:
        """Reshape what is added to the scores of whole sentences, (.., 1 or H, W, K) or (W, K), to broadcast against
        (B, G, W I, K). `length`, (1,): that of the sentences. Without `has_queries`, W is 1."""
        if not has_queries or (self.inner == 1 and not self.is_absorbed):
            return x
        g = self._graph
        four = g.op("Expand", x, g.ints(1, self.num_heads, 1, 1))
        if not self.is_absorbed:
            return g.reshaped(four, g.concatenated(g.ints(0, self.groups, -1), length, axis=0))
        return g.reshaped(g.transposed(four, 0, 2, 1, 3), g.concatenated(g.ints(0, 1, -1), length, axis=0))

    def _by_group(self, x: Value) -> Value:
        """Split heads: (B, K, G c) -> (B, G, K, c)."""
        g = self._graph
        if self.groups == 1:
            return g.op("Unsqueeze", x, g.ints(1))
        return g.transposed(g.reshaped(x, (0, 0, self.groups, -1)), 0, 2, 1, 3)

    def __call__(
        self, queries: Value, keys: Keys, added: Value | None, before: Value | None, own: Value | None
    ) -> Attended:
        """Attend. `added`: position scores and the mask, added to the scores. `before`: the previous layer's scores.
        `own`, bool: True where a key is the query's own token. All broadcast against (B, G, W I, K). The hidden rows
        of the result are (B, G, W I, e)."""
        g = self._graph
        scores = g.matmul(queries, keys.keys)
        for more in (added, before if self.scores.adds_layer_before else None):
            scores = scores if more is None else g.add(scores, more)
        weights = self._weights(scores, own)
        return Attended(g.matmul(weights, keys.values), scores, weights)

    def _weights(self, scores: Value, own: Value | None) -> Value:
        """Compute `model.scores.Scores`."""
        g, kind = self._graph, self.scores.self_score
        match kind:
            case "keep":
                return g.softmax(scores)
            case "zero":
                assert own is not None
                return g.softmax(g.where(own, g.constant(0.0), scores))
            case "exclude":
                assert own is not None
                least = g.constant(np.finfo(np.float32).min)
                return g.where(own, g.constant(0.0), g.softmax(g.where(own, least, scores)))
            case "zero_weights":
                assert own is not None
                return g.where(own, g.constant(0.0), g.softmax(scores))
            case _:
                assert_never(kind)

    def joined(self, heads: Value, *, of_step: bool, one_query: bool = False) -> Value:
        """Join heads and project: (B, G, W I, e) -> (B, W, D), or (B W, D) if `of_step`. `one_query`: W is 1."""
        g, width = self._graph, self._output[0].shape[1]
        if not self.is_absorbed and not one_query:
            if self.inner > 1:
                heads = g.reshaped(heads, (0, self.num_heads, -1, width // self.num_heads))
            heads = g.transposed(heads, 0, 2, 1, 3)  # (B, W, H, e)
        return g.linear(g.reshaped(heads, (-1, width) if of_step else (0, -1, width)), *self._output)


def _halves(weight: Array, bias: Array | None, head_dim: int) -> tuple[Array, Array | None]:
    """Reorder a projection so that each head's pairs of numbers lie as two halves."""
    order = np.arange(len(weight)).reshape(-1, head_dim // 2, 2).transpose(0, 2, 1).ravel()
    return weight[order], None if bias is None else bias[order]


def _arrays(weight: torch.Tensor, bias: torch.Tensor | None) -> tuple[Array, Array | None]:
    return array(weight), None if bias is None else array(bias)


class At(NamedTuple):
    """Positions of the queries: all of a sentence's, or the one of a step."""

    end: Value
    """int64 (1,): for sentences, the number of positions; for a step, the position of the token that it reads."""
    is_step: bool

    def rows(self, g: Graph, table: Value, axis: int = 0) -> Value:
        """Return a table's rows at these positions: (n, ...), or (1, ...) for a step."""
        return g.rows(table, self.end, axis) if self.is_step else g.sliced(table, g.ints(0), self.end, axis)


class Turns(NamedTuple):
    """Rotations of queries and keys (`model.positions.Rotary`), computed once for all layers. Pairs lie as two
    halves."""

    cos: Value
    """(n, c): cosines of each position's angles, for both halves."""
    sin: Value
    """(n, c): sines, negated for the first half."""

    @classmethod
    def made(cls, g: Graph, positions: Positions, at: At) -> "Turns | None":
        """Return the rotations at these positions; None if positions are not rotary."""
        if not isinstance(positions, Rotary):
            if positions.turns:
                raise TypeError(f"{type(positions).__name__} turns queries and keys: write its graph here")
            return None
        cos, sin = (at.rows(g, g.constant(array(positions.table)[:, :, i])) for i in (0, 1))
        return cls(g.concatenated(cos, cos, axis=-1), g.concatenated(g.op("Neg", sin), sin, axis=-1))

    def of(self, g: Graph, x: Value) -> Value:
        """Rotate queries or keys (B, G, n, c) at these positions."""
        first, second = g.outputs_of("Split", 2, x, axis=-1, num_outputs=2)
        return g.add(g.mul(x, self.cos), g.mul(g.concatenated(second, first, axis=-1), self.sin))


class PositionScores:
    """The scores that positions add in self-attention."""

    def __init__(self, graph: Graph, positions: Positions) -> None:
        self._graph, self._farthest = graph, positions.farthest
        self._content: tuple[Array, Array] | None = None
        with torch.no_grad():
            if isinstance(positions, UntiedPositions):
                heads = (x.unflatten(-1, (positions.num_heads, -1)).transpose(0, 1) for x in positions.projected())
                queries, keys = map(array, heads)  # (H, L, C)
                self._content = queries, keys.transpose(0, 2, 1)
            elif type(positions).scores not in (Positions.scores, DistancePositions.scores):
                raise TypeError(f"{type(positions).__name__} has scores of its own: write their graph here")
            table = positions.of_distances(torch.arange(-self._farthest, self._farthest + 1)[None])
        self._table = None if table is None else array(table)[:, 0]  # (H, distances)

    def __call__(self, queries_at: Value, keys_at: Value, at: At, end: Value) -> Value | None:
        """Return scores (H, q, k) for positions int64 (q, 1) and (1, k), or None if positions add none.

        `at`: the query positions as `At`. `end`, (1,): one more than the last key's position; keys begin at 0.
        """
        g, far = self._graph, self._farthest
        scores = None
        if self._content is not None:
            queries, keys = (g.constant(x) for x in self._content)
            scores = g.matmul(at.rows(g, queries, 1), g.sliced(keys, g.ints(0), end, 2))
        if self._table is not None:
            distance = g.sub(keys_at, queries_at)
            near = g.op("Clip", distance, g.constant(-far, np.int64), g.constant(far, np.int64))
            more = g.rows(g.constant(self._table), g.add(near, g.constant(far, np.int64)), axis=1)
            scores = more if scores is None else g.add(scores, more)
        return scores
