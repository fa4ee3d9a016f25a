"""The stacks: embedding and layers, put together from an Architecture."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from repose.model.architecture import Architecture, TokenNormKind
from repose.model.embedding import Embedding
from repose.model.kernels.blocks import Blocks
from repose.model.kernels.cache import Cache
from repose.model.kernels.local import Bands
from repose.model.kernels.packing import Packing
from repose.model.layers import DecoderLayer, EncoderLayer, LayerSizes
from repose.model.memory import Memory
from repose.model.position_bias import UntiedPositions
from repose.model.token_norm import TokenNorm

PAD = 0


class Stack(nn.Module):
    """What encoder and decoder share: an embedding, scores of positions for all layers' self-attention, later layers'
    token norm, and a last norm with `norm = pre`."""

    def __init__(
        self,
        a: Architecture,
        vocab_size: int,
        token_norm: TokenNormKind,
        num_layers: int,
        *,
        causal: bool,
        position_table: Tensor | None,
    ) -> None:
        super().__init__()
        self.embedding = Embedding(
            vocab_size,
            d_token=a.d_token,
            max_length=a.max_length,
            positions=a.positions,
            combine=a.combine,
            scale=a.embedding_scale,
            token_norm=token_norm,
            token_norm_site=a.token_norm_site,
            token_norm_eps=a.token_norm_eps,
            values=a.values,
            dropout=a.dropout,
            input_norm=a.input_norm,
            norm_eps=a.norm_eps,
            position_table=position_table,
        )
        self.causal, self.window, self.excludes_own = causal, a.attention_window, a.self_score == "exclude"
        self.position_scores = None
        if a.position_bias != "none":
            self.position_scores = UntiedPositions(
                a.position_bias,
                max_length=a.max_length,
                d_model=a.d_model,
                num_heads=a.num_heads,
                head_dim=a.head_dim,
                bias=a.attention_bias,
                eps=a.norm_eps,
                causal=causal,
            )
        self.d_token, self.num_heads = a.d_token, a.num_heads
        later = token_norm if a.token_norm_site == "every_layer" else "none"
        self.layer_token_norms = nn.ModuleList(TokenNorm(later, eps=a.token_norm_eps) for _ in range(num_layers - 1))
        self.final_norm = nn.LayerNorm(a.d_model, eps=a.norm_eps) if a.norm == "pre" else nn.Identity()

    def itself(self, packing: Packing) -> Blocks | Bands:
        """Where a sentence's tokens meet each other."""
        how: dict[str, Any] = {
            "num_heads": self.num_heads,
            "causal": self.causal,
            "exclude_own": self.excludes_own,
            "position_scores": self.position_scores,
        }
        return Blocks(packing, packing, **how) if self.window is None else Bands(packing, window=self.window, **how)

    def between_layers(self, index: int, x: Tensor, packing: Packing, cache: Cache | None = None) -> Tensor:
        """The input of layer `index` > 0: with `every_layer`, its token half normalised, its position half as it is."""
        token_norm: TokenNorm = self.layer_token_norms[index - 1]  # type: ignore[assignment]
        if token_norm.kind == "none":
            return x
        tokens = token_norm(x[:, : self.d_token], packing, cache=cache)
        return torch.cat([tokens, x[:, self.d_token :]], dim=1)


class SelfAttentionStack(Stack):
    """Ids to hidden states by self-attention and feed-forward layers alone: an encoder, or, `causal`, a decoder that
    has no memory to attend to."""

    def __init__(
        self,
        a: Architecture,
        vocab_size: int,
        token_norm: TokenNormKind,
        num_layers: int,
        *,
        causal: bool,
        position_table: Tensor | None,
    ) -> None:
        super().__init__(a, vocab_size, token_norm, num_layers, causal=causal, position_table=position_table)
        self.layers = nn.ModuleList(EncoderLayer(_sizes(a)) for _ in range(num_layers))

    def forward(self, ids: Int[Tensor, "B L"]) -> Memory:
        packing = Packing(ids != PAD)
        x, values = self.embedding(ids, packing)
        blocks = self.itself(packing)
        for index, layer in enumerate(self.layers):
            if index > 0:
                x = self.between_layers(index, x, packing)
            x = layer(x, values, blocks)
        x = self.final_norm(x)
        return Memory(x, x if values is None else values, packing)


class Encoder(SelfAttentionStack):
    """Source ids to memory."""

    def __init__(self, a: Architecture, vocab_size: int, position_table: Tensor | None) -> None:
        super().__init__(
            a, vocab_size, a.encoder_token_norm, a.num_encoder_layers, causal=False, position_table=position_table
        )


class Decoder(Stack):
    """Target ids and memory to the hidden states that predict each next token."""

    def __init__(self, a: Architecture, vocab_size: int, position_table: Tensor | None) -> None:
        super().__init__(
            a, vocab_size, a.decoder_token_norm, a.num_decoder_layers, causal=True, position_table=position_table
        )
        self.layers = nn.ModuleList(DecoderLayer(_sizes(a)) for _ in range(a.num_decoder_layers))

    def forward(self, tgt: Int[Tensor, "B T"], memory: Memory) -> tuple[Float[Tensor, "R D"], Packing]:
        """Packed rows of whole targets."""
        packing = Packing(tgt != PAD)
        x, values = self.embedding(tgt, packing)
        itself, across = self.itself(packing), Blocks(packing, memory.packing, num_heads=self.num_heads)
        for index, layer in enumerate(self.layers):
            if index > 0:
                x = self.between_layers(index, x, packing)
            x = layer(x, values, memory, itself, across)
        return self.final_norm(x), packing

    def step(self, tokens: Int[Tensor, " R"], memory: Memory | None, cache: Cache) -> Float[Tensor, "R D"]:
        """Rows of one more target token each, after those that the cache holds."""
        packing = Packing(torch.ones_like(tokens[:, None], dtype=torch.bool))
        x, values = self.embedding(tokens[:, None], packing, cache)
        scores = None if self.position_scores is None else self._position_scores(self.position_scores, cache)
        for index, layer in enumerate(self.layers):
            if index > 0:
                x = self.between_layers(index, x, packing, cache)
            x = layer.step(x, values, memory, cache, scores)  # type: ignore[operator]
        cache.advance()
        return self.final_norm(x)

    def _position_scores(self, position_scores: UntiedPositions, cache: Cache) -> Float[Tensor, "H K"]:
        """Scores of the position being read against those that it attends to."""
        at, projected = cache.length, cache.once(position_scores, position_scores.projected)
        first = 0 if self.window is None else max(0, at - self.window // 2)
        places = torch.arange(first, at + 1, device=position_scores.table.device)
        return position_scores(places[-1:], places, projected)[:, 0]


def _sizes(a: Architecture) -> LayerSizes:
    return LayerSizes(
        d_model=a.d_model,
        d_value=a.d_value,
        num_heads=a.num_heads,
        head_dim=a.head_dim,
        d_ff=a.d_ff,
        max_length=a.max_length,
        positions=a.positions,
        norm=a.norm,
        residual_weight=a.residual_weight,
        norm_eps=a.norm_eps,
        self_score=a.self_score,
        position_bias=a.position_bias,
        score_residual=a.score_residual,
        attention_window=a.attention_window,
        attention_bias=a.attention_bias,
        dropout=a.dropout,
        attention_dropout=a.attention_dropout,
        attention_output_dropout=a.attention_output_dropout,
    )
