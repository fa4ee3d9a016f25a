"""Attention of one more token per row, for decoding.

What a token is to later ones is kept in the cache, in one of two forms of the same mathematics:

    apart     keys W_h^K y and values W_h^V e of every head h: H·C + H·C numbers a token
    together  y and e themselves, once for all heads (`together.py`): D numbers a token, or D + M

Where heads are wide, as in arXiv 2410.04731 and the tutorial that it follows (C = D/2 and C = D), `together` takes
fewer operations and up to 16 times less memory, which is what decoding waits for. Where they are narrow it takes more.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from repose.model.architecture import ScoreResidual, SelfScore
from repose.model.kernels.absorption import cost, together
from repose.model.kernels.cache import Cache
from repose.model.kernels.linear import Affine, Linear
from repose.model.memory import Memory
from repose.model.positions import Rotary


class Stepper:
    """The projections of one attention as decoding uses them; the scale 1/sqrt(C) is in the queries'.

    Shapes: G = H groups of heads that share keys for `apart`, 1 for `together`; a row has H/G queries of each.
    """

    def __init__(
        self,
        query: Linear,
        key: Linear,
        value: Linear,
        output: Linear,
        num_heads: int,
        *,
        scale: float,
        own_score: SelfScore = "keep",
        score_residual: ScoreResidual = "none",
        rotary: Rotary | None = None,
    ) -> None:
        d_model, d_value, head_dim = query.in_features, value.in_features, query.out_features // num_heads
        # Together, scores are short of what is the same for all keys, weights must sum to one, and no key turns.
        plain = own_score == "keep" and rotary is None
        self.together = plain and cost(d_model, d_value, head_dim) <= 1
        self.own_score, self.score_residual, self.rotary = own_score, score_residual, rotary
        self.num_heads, self.num_groups = num_heads, 1 if self.together else num_heads
        self.key, self.value = key, value
        if self.together:
            w_q, b_q, w_o, value_bias = together(query, key, value, output, num_heads, scale)
            bias = None if value_bias is None else value_bias.sum(1)
            if bias is not None and output.bias is not None:
                bias = bias + output.bias
            self.query, self.output = Affine(w_q, b_q, query), Affine(w_o, bias, output)
            return
        w_q, b_q = query.weight * scale, None if query.bias is None else query.bias * scale
        self.query, self.output = Affine(w_q, b_q, query), Affine(output.weight, output.bias, output)
        if d_model == d_value:
            bias = None if b_q is None else torch.cat([b_q, key.bias, value.bias])
            self._all = Affine(torch.cat([w_q, key.weight, value.weight]), bias, query)

    def itself(
        self,
        x: Float[Tensor, "R D"],
        values_from: Float[Tensor, "R M"] | None,
        cache: Cache,
        *,
        window: int | None,
        position_scores: Float[Tensor, "H K"] | None,
    ) -> Float[Tensor, "R D"]:
        """Attention to itself and the row's tokens so far, the last K of them that `window` leaves; `values_from` None
        means x."""
        values_from = x if values_from is None else values_from
        if self.together:
            query, key, value = self.query(x), x, values_from
        elif values_from is x:
            query, key, value = self._all(x).chunk(3, dim=1)
        else:
            query, key, value = self.query(x), self.key(x), self.value(values_from)
        if self.rotary is not None:  # keys are kept turned
            query, key = (self.rotary(rows, cache.length) for rows in (query, key))
        same = self.together and value is key
        kept = cache.extend(self, *(self._groups(y) for y in ((key,) if same else (key, value))))
        if window is not None:
            kept = tuple(y[:, :, -(window // 2 + 1) :] for y in kept)
        bias = None if position_scores is None else position_scores.view(1, self.num_groups, 1, -1, kept[0].shape[2])
        scores, values = self._scores(query[:, None], kept[0], bias, "itself", cache), kept[-1]
        match self.own_score:
            case "zero":
                scores = torch.cat([scores[..., :-1], torch.zeros_like(scores[..., -1:])], dim=-1)
            case "exclude":
                scores, values = scores[..., :-1], values[:, :, :-1]
            case "keep" | "zero_weights":
                pass
        weights = scores.softmax(dim=-1)
        if self.own_score == "zero_weights":
            weights, values = weights[..., :-1], values[:, :, :-1]
        return self.output(_heads(weights, values).flatten(1))

    def across(self, x: Float[Tensor, "R D"], memory: Memory | None, cache: Cache) -> Float[Tensor, "R D"]:
        """Attention to the memory, which may be None once the cache has what is kept of it."""
        owner = Memory if self.together else self  # what is kept together is the same for every layer
        kept = cache.get_memory(owner)
        if kept is None:
            assert memory is not None, "the first step of a cache needs the memory"
            kept = cache.put_memory(owner, *self._of_memory(memory))
        queries = cache.beams.gather(self.query(x))
        scores = self._scores(queries, kept[0], None, "across", cache)
        if cache.src_bias is not None:
            scores = scores + cache.src_bias[:, :, None]
        return self.output(cache.beams.scatter(_heads(scores.softmax(dim=-1), kept[-1])))

    def _of_memory(self, memory: Memory) -> list[Float[Tensor, "N G S c"]]:
        kept = [memory.hidden] if memory.values is memory.hidden else [memory.hidden, memory.values]
        if not self.together:
            kept = [self.key(kept[0]), self.value(kept[-1])]
        return [self._groups(memory.packing.pad(x)).transpose(1, 2).contiguous() for x in kept]

    def _groups(self, x: Float[Tensor, "*N Gc"]) -> Float[Tensor, "*N G c"]:
        return x.unflatten(-1, (self.num_groups, -1))

    def _scores(
        self,
        queries: Float[Tensor, "N W Hc"],
        keys: Float[Tensor, "N G K c"],
        bias: Float[Tensor, "1 G 1 I K"] | None,
        chain: str,
        cache: Cache,
    ) -> Float[Tensor, "N G W I K"]:
        """Scores of W rows a sentence, each with I = H / G heads a group, before any mask."""
        shape = (len(queries), queries.shape[1], self.num_groups, self.num_heads // self.num_groups)
        q = queries.view(*shape, -1).transpose(1, 2).flatten(2, 3)  # (N, G, W * I, c)
        scores = torch.bmm(q.flatten(0, 1), keys.flatten(0, 1).mT).view(shape[0], shape[2], shape[1], shape[3], -1)
        if bias is not None:
            scores = scores + bias
        if self.score_residual == "previous_layer":
            if chain in cache.scores:
                scores = scores + cache.scores[chain]
            cache.scores[chain] = scores
        return scores


def _heads(weights: Float[Tensor, "N G W I K"], values: Float[Tensor, "N G K e"]) -> Float[Tensor, "N W Hc"]:
    """Each head's mean of values, side by side; zeros where there is no key."""
    n, groups, rows, inner, _ = weights.shape
    heads = torch.bmm(weights.flatten(2, 3).flatten(0, 1), values.flatten(0, 1))
    return heads.view(n, groups, rows, inner, -1).transpose(1, 2).flatten(2)
