"""From token ids to the first layer's input: the axes `combine` and `embedding_scale`, and the first token norm."""

import math
from typing import NamedTuple, assert_never

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from repose.model.architecture import Architecture, EmbeddingScale, TokenNormKind, Values
from repose.model.kernels.beside import active
from repose.model.kernels.cache import Cache
from repose.model.kernels.dropout import Dropout
from repose.model.kernels.packing import Packing
from repose.model.norms import LayerNorm
from repose.model.positions import Positions
from repose.model.token_norm import TokenNorm
from repose.system.errors import DataError


class Embedded(NamedTuple):
    """The input of a stack's layers."""

    hidden: Float[Tensor, "R D"]
    """The first layer's input, after dropout."""
    tokens: Float[Tensor, "R M"] | None
    """The token embeddings from which attention takes values, in every layer; None if it takes hidden states only."""


def scale_factor(scale: EmbeddingScale, width: int) -> float:
    """Return the factor on token embeddings of this width.

    sqrt           sqrt(width)      Vaswani et al. 3.4
    inverse_sqrt   1 / sqrt(width)  arXiv 2410.04731 eq. 18 and 28 as printed (the tutorial multiplies)
    none           1
    """
    match scale:
        case "sqrt":
            return math.sqrt(width)
        case "inverse_sqrt":
            return 1 / math.sqrt(width)
        case "none":
            return 1.0
        case _:
            assert_never(scale)


def values_from(kind: Values, hidden: Float[Tensor, "R D"], tokens: Float[Tensor, "R M"] | None) -> Tensor:
    """Return what the value projections read: `hidden` (R, D), `tokens` (R, M), or with `both` the two side by side."""
    match kind:
        case "hidden":
            return hidden
        case "tokens":
            assert tokens is not None
            return tokens
        case "both":
            assert tokens is not None
            return torch.cat([hidden, tokens], dim=1)
        case _:
            assert_never(kind)


class _Table(nn.Embedding):
    """The embedding table, one row of M numbers for each token."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:  # on the meta device, torch would import its compiler just to draw nothing
            super().reset_parameters()

    def forward(self, ids: Int[Tensor, "*N"]) -> Float[Tensor, "*N M"]:
        if (beside := active()) is not None:
            return beside.embedding(ids, self.weight)
        return super().forward(ids)


class Embedding(nn.Module):
    """Token embeddings, scaled, normalised and combined with positions P. TN is token norm, LN is layer norm.

        E = scale * table[ids];  E' = TN(E)
        add:     hidden = E' + P
        concat:  hidden = [E' | P]     (arXiv 2410.04731 eq. 10-11)
        values = E'  (before positions and `dropout`, after a dropout of their own)

    The axis `input_norm` is the full layer normalization of arXiv 2310.10930, 3.1: "a normalization layer is added in
    front of the original Transformer" and "makes the distributions of input embedding and positional encoding similar".

        separate: LN(E') and LN(P) take the place of E' and P, each with its own gain and bias
        sum:      LN(hidden)

    With `after_concat`, TN normalises both halves of the concatenation. With `every_layer`, this class normalises the
    first layer's input, and the stacks that of the later layers.

    The introduction of arXiv 2410.04731 says that its Fig. 1 (b) shows the concatenation and (c) the normalisation. We
    follow the caption and eq. 8-11, which have it the other way round: normalised first, then concatenated.
    """

    def __init__(self, a: Architecture, vocab_size: int, token_norm: TokenNormKind) -> None:
        super().__init__()
        # No padding_idx: as in Keras, the row of padding is initialised and kept like any other. It is never read.
        self.tokens = _Table(vocab_size, a.d_token)
        self.positions = Positions(a, causal=False)  # does nothing, until the stack puts positions with rows here
        width = a.d_model if a.token_norm_site == "after_concat" else a.d_token
        self.token_norm = TokenNorm(token_norm, eps=a.token_norm_eps, width=width)
        self.input_norms = nn.ModuleDict(_input_norms(a))
        self.dropout, self.value_dropout = Dropout(a.dropout), Dropout(a.value_dropout)
        self.scale = scale_factor(a.embedding_scale, a.d_token)
        self.combine, self.site, self.values = a.combine, a.token_norm_site, a.values
        self.max_length = a.max_length

    def forward(self, ids: Int[Tensor, "B L"], packing: Packing, cache: Cache | None = None) -> Embedded:
        """Embed the real tokens, in the packing's order. With a cache, positions continue from the cache's length.

        Raises DataError for a sequence longer than `max_length`.
        """
        offset = 0 if cache is None else cache.length
        if ids.shape[1] + offset > self.max_length:
            raise DataError(
                f"a sequence of {ids.shape[1] + offset} tokens is longer than the model's max_length of "
                f"{self.max_length}: shorten it, or build the model with a larger max_length"
            )
        tokens = self.tokens(packing.pack(ids)) * self.scale
        positions = self.positions.rows(packing.columns + offset)
        match self.site:
            case "after_concat":
                assert positions is not None, "checked by Architecture"
                hidden = self.token_norm(self._combine(tokens, positions), packing, cache=cache)
                tokens = hidden[:, : tokens.shape[1]]
            case "tokens" | "every_layer":
                tokens = self.token_norm(tokens, packing, table=self.tokens.weight, scale=self.scale, cache=cache)
                hidden = self._combine(tokens, positions)
            case _:
                assert_never(self.site)
        hidden = self._normalised("sum", hidden)
        return Embedded(self.dropout(hidden), None if self.values == "hidden" else self.value_dropout(tokens))

    def _combine(self, tokens: Tensor, positions: Tensor | None) -> Tensor:
        tokens = self._normalised("tokens", tokens)
        if positions is None:
            return tokens
        positions = self._normalised("positions", positions)
        match self.combine:
            case "add":
                return tokens + positions
            case "concat":
                return torch.cat([tokens, positions], dim=1)
            case _:
                assert_never(self.combine)

    def _normalised(self, what: str, x: Tensor) -> Tensor:
        return self.input_norms[what](x) if what in self.input_norms else x


def _input_norms(a: Architecture) -> dict[str, nn.Module]:
    """Return the norms of `input_norm`, each under the name of what it normalises."""
    match a.input_norm:
        case "none":
            return {}
        case "separate":
            return {name: LayerNorm(a.d_token, eps=a.norm_eps) for name in ("tokens", "positions")}
        case "sum":
            return {"sum": LayerNorm(a.d_model, eps=a.norm_eps)}
        case _:
            assert_never(a.input_norm)
