"""The encoder and the decoder: embedding, layers and final norm, built from an `Architecture`."""

from typing import assert_never

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from repose.model.architecture import Architecture, TokenNormKind
from repose.model.cached_attention import MemoryReach, StepReach
from repose.model.embedding import Embedding, values_from
from repose.model.kernels.blocks import Blocks
from repose.model.kernels.cache import Cache
from repose.model.kernels.local import LocalBlocks
from repose.model.kernels.packing import Memory, Packing
from repose.model.layers import DecoderLayer, EncoderLayer
from repose.model.norms import norm_of
from repose.model.positions import Positions, positions_of
from repose.model.token_norm import TokenNorm
from repose.system.token_ids import PAD


def never_empty(ids: Int[Tensor, "B L"]) -> Int[Tensor, "B_1 L_1"]:
    """Return the ids with at least one row and one column, padded if need be: torch reduces badly over nothing."""
    missing = [max(0, 1 - size) for size in ids.shape]
    return F.pad(ids, (0, missing[1], 0, missing[0])) if any(missing) else ids


class Stack(nn.Module):
    """The parts that encoder and decoder share: embedding, positions, layers, and token norms between the layers.

    With `norm = pre`, a final norm follows the last layer.
    """

    layer_class: type[EncoderLayer] | type[DecoderLayer]

    def __init__(self, a: Architecture, vocab_size: int, position_table: Tensor | None, *, causal: bool) -> None:
        """`causal`: use the decoder's number of layers and token norm; otherwise, the encoder's."""
        super().__init__()
        token_norm = a.decoder_token_norm if causal else a.encoder_token_norm
        num_layers = a.num_decoder_layers if causal else a.num_encoder_layers
        self.embedding = Embedding(a, vocab_size, token_norm)
        positions = positions_of(a, causal=causal, table=position_table)
        self.position_scores = None if positions.has_rows else positions
        if positions.has_rows:  # so that the module is registered in one place only
            self.embedding.positions = positions
        self.causal, self.window, self.values = causal, a.attention_window, a.values
        self.d_token, self.num_heads = a.d_token, a.num_heads
        later = _later_token_norm(a, token_norm)
        self.layer_token_norms = nn.ModuleList(
            TokenNorm(later, eps=a.token_norm_eps, width=a.d_token) for _ in range(num_layers - 1)
        )
        self.final_norm = _final_norm(a)
        self.layers = nn.ModuleList(self.layer_class(a, positions) for _ in range(num_layers))

    @property
    def positions(self) -> Positions:
        """The positional encoding of this stack."""
        return self.embedding.positions if self.position_scores is None else self.position_scores

    def self_blocks(self, packing: Packing) -> Blocks | LocalBlocks:
        """Return the blocks in which the tokens of each sentence attend to each other.

        With `attention_window`, attention is local, unless the window covers the longest sentence and so restricts
        nothing.
        """
        heads, causal, positions = self.num_heads, self.causal, self.positions
        if self.window is None or self.window // 2 >= packing.mask.shape[1] - 1:
            return Blocks(packing, packing, num_heads=heads, causal=causal, positions=positions)
        return LocalBlocks(packing, window=self.window, num_heads=heads, causal=causal, positions=positions)

    def between_layers(
        self, x: Float[Tensor, "R D"], index: int, packing: Packing, cache: Cache | None = None
    ) -> Float[Tensor, "R D"]:
        """Return the input of layer `index`, given the output of the layer before.

        With `token_norm_site = every_layer`, its token half is normalised; the position half stays as it is. (The
        embedding does this for the first layer.)
        """
        norm = self.layer_token_norms[index - 1] if index > 0 else None
        if not isinstance(norm, TokenNorm) or norm.kind == "none":
            return x
        tokens = norm(x[:, : self.d_token], packing, cache=cache)
        return torch.cat([tokens, x[:, self.d_token :]], dim=1)


def _later_token_norm(a: Architecture, first: TokenNormKind) -> TokenNormKind:
    """Return the token norm between layers; `first` is the token norm of the embeddings."""
    match a.token_norm_site:
        case "every_layer":
            return first
        case "tokens" | "after_concat":
            return "none"
        case _:
            assert_never(a.token_norm_site)


def _final_norm(a: Architecture) -> nn.Module:
    """Return the norm after the last layer: Pre-LN needs one, because its residual stream is not normalised."""
    match a.norm:
        case "pre":
            return norm_of(a)
        case "post" | "both":
            return nn.Identity()
        case _:
            assert_never(a.norm)


class Encoder(Stack):
    """The encoder: token ids to memory, by layers of self-attention and feed-forward.

    With `causal`, it is the stack of a decoder-only model.
    """

    layer_class = EncoderLayer

    def forward(self, ids: Int[Tensor, "B L"]) -> Memory:
        ids = never_empty(ids)
        packing = Packing(ids != PAD)
        x, tokens = self.embedding(ids, packing)
        blocks = self.self_blocks(packing)
        for index, layer in enumerate(self.layers):
            x = layer(self.between_layers(x, index, packing), tokens, blocks)
        x = self.final_norm(x)
        return Memory(x, values_from(self.values, x, tokens), packing)


class Decoder(Stack):
    """The decoder: target ids and memory to the hidden states that predict each next token."""

    layer_class = DecoderLayer

    def forward(self, tgt: Int[Tensor, "B T"], memory: Memory) -> tuple[Float[Tensor, "R D"], Packing]:
        """Return the packed rows of whole targets, and their packing."""
        tgt = never_empty(tgt)
        packing = Packing(tgt != PAD)
        x, tokens = self.embedding(tgt, packing)
        to_self, to_memory = self.self_blocks(packing), Blocks(packing, memory.packing, num_heads=self.num_heads)
        for index, layer in enumerate(self.layers):
            x = layer(self.between_layers(x, index, packing), tokens, memory, to_self, to_memory)
        return self.final_norm(x), packing

    def step(self, ids: Int[Tensor, " R"], memory: Memory | None, cache: Cache) -> Float[Tensor, "R D"]:
        """Return the hidden state of one more target token per row; earlier tokens are in the cache."""
        packing = Packing(torch.ones_like(ids[:, None], dtype=torch.bool))
        x, tokens = self.embedding(ids[:, None], packing, cache)
        to_self, to_memory = StepReach(cache, self.positions, self.window), MemoryReach(cache)
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, DecoderLayer)
            x = layer.step(self.between_layers(x, index, packing, cache), tokens, memory, cache, to_self, to_memory)
        cache.length += 1
        return self.final_norm(x)
