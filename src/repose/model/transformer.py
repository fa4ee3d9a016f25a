"""The skeleton: two stacks and an output projection, put together from an Architecture."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from repose.errors import ConfigError
from repose.model.architecture import Architecture, TokenNormKind
from repose.model.attention import record
from repose.model.bands import Bands
from repose.model.blocks import Blocks
from repose.model.cache import Cache, Constants
from repose.model.embedding import Embedding
from repose.model.initialisation import initialise
from repose.model.layers import DecoderLayer, EncoderLayer, LayerSizes
from repose.model.linear import Linear
from repose.model.memory import Memory
from repose.model.packing import Packing
from repose.model.position_bias import UntiedPositions
from repose.model.token_norm import TokenNorm

PAD = 0


class AttentionMaps(NamedTuple):
    """Attention weights per layer, each (B, H, Q, K), rows of padding zero or meaningless."""

    encoder: list[Tensor]
    decoder: list[Tensor]
    cross: list[Tensor]


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
        if self.window is not None:
            return Bands(
                packing,
                window=self.window,
                num_heads=self.num_heads,
                causal=self.causal,
                exclude_own=self.excludes_own,
                position_scores=self.position_scores,
            )
        return Blocks(
            packing,
            packing,
            num_heads=self.num_heads,
            causal=self.causal,
            exclude_own=self.excludes_own,
            position_scores=self.position_scores,
        )

    def between_layers(self, index: int, x: Tensor, packing: Packing, cache: Cache | None = None) -> Tensor:
        """The input of layer `index` > 0: with `every_layer`, its token half normalised, its position half as it is."""
        token_norm: TokenNorm = self.layer_token_norms[index - 1]  # type: ignore[assignment]
        if token_norm.kind == "none":
            return x
        tokens = token_norm(x[:, : self.d_token], packing, cache=cache)
        return torch.cat([tokens, x[:, self.d_token :]], dim=1)


class Encoder(Stack):
    """Source ids to memory."""

    def __init__(self, a: Architecture, vocab_size: int, position_table: Tensor | None) -> None:
        super().__init__(
            a, vocab_size, a.encoder_token_norm, a.num_encoder_layers, causal=False, position_table=position_table
        )
        self.layers = nn.ModuleList(EncoderLayer(_sizes(a)) for _ in range(a.num_encoder_layers))

    def forward(self, src: Int[Tensor, "B S"]) -> Memory:
        packing = Packing(src != PAD)
        x, values = self.embedding(src, packing)
        blocks = self.itself(packing)
        for index, layer in enumerate(self.layers):
            if index > 0:
                x = self.between_layers(index, x, packing)
            x = layer(x, values, blocks)
        x = self.final_norm(x)
        return Memory(x, x if values is None else values, packing)


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
        scores = None if self.position_scores is None else self._position_scores(self.position_scores, cache.length)
        for index, layer in enumerate(self.layers):
            if index > 0:
                x = self.between_layers(index, x, packing, cache)
            x = layer.step(x, values, memory, cache, scores)  # type: ignore[operator]
        cache.advance()
        return self.final_norm(x)

    def _position_scores(self, position_scores: UntiedPositions, at: int) -> Float[Tensor, "H K"]:
        """Scores of position `at` against those that it attends to."""
        first = 0 if self.window is None else max(0, at - self.window // 2)
        places = torch.arange(first, at + 1, device=position_scores.table.device)
        return position_scores(places[-1:], places)[:, 0]


class Transformer(nn.Module):
    """An encoder-decoder Transformer (Vaswani et al. 2017, section 3), varied in the places that `Architecture` names.

    Target position t predicts token t + 1. Computes on real tokens only: see `packing`.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        src_vocab_size: int,
        tgt_vocab_size: int,
        position_table: Float[Tensor, "n d"] | None = None,
    ) -> None:
        """`position_table`: for `positions = policy`; without it room is left for the values of a checkpoint."""
        super().__init__()
        a = architecture
        if a.tie_embeddings == "all" and src_vocab_size != tgt_vocab_size:
            raise ConfigError(
                f"tie_embeddings = 'all' needs one vocabulary for both sides, not {src_vocab_size} and "
                f"{tgt_vocab_size} tokens: train a shared tokenizer, or set tie_embeddings = 'output' or 'none'"
            )
        self.architecture = a
        self.src_vocab_size = src_vocab_size
        self.tgt_vocab_size = tgt_vocab_size
        self.encoder = Encoder(a, src_vocab_size, position_table)
        self.decoder = Decoder(a, tgt_vocab_size, position_table)
        self.output = Linear(a.d_model, tgt_vocab_size, bias=a.output_bias)
        if a.tie_embeddings in ("all", "output"):
            self.output.weight = self.decoder.embedding.tokens.weight
        if a.tie_embeddings == "all":
            self.encoder.embedding.tokens.weight = self.decoder.embedding.tokens.weight
        if a.positions == "policy":  # one buffer, stored once
            self.encoder.embedding.positions.table = self.decoder.embedding.positions.table

    def forward(self, src: Int[Tensor, "B S"], tgt: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Logits of the token after each target token, fp32, given source and decoder input; zeros at padding.

        Raises DataError for a sequence longer than `max_length`.
        """
        rows, packing = self.decoder(tgt, self.encode(src))
        logits = packing.pad(self.output(rows))
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def hidden(self, src: Int[Tensor, "B S"], tgt: Int[Tensor, "B T"]) -> Float[Tensor, "N D"]:
        """Decoder output at the real target tokens, in row-major order of `tgt != 0`: what `output` projects."""
        rows, packing = self.decoder(tgt, self.encode(src))
        return packing.real(rows)

    def encode(self, src: Int[Tensor, "B S"]) -> Memory:
        """The source, read once."""
        return self.encoder(src)

    def start(self, memory: Memory, constants: Constants | None = None) -> "DecodingState":
        """State for decoding token by token from START, one row per sentence.

        `constants`: a dict that is handed to each decoding as long as the weights stay as they are: what is derived
        from them is then made once.
        """
        return DecodingState(memory, constants, keeps_tokens=self.architecture.looks_ahead)

    def step(self, tokens: Int[Tensor, " R"], state: "DecodingState") -> Float[Tensor, "R V"]:
        """Log-probabilities, in nats, of what follows one more token per row; advances the state.

        An architecture that looks ahead has no valid cache (each new token changes all earlier rows): it decodes by
        recomputing the whole prefix, which costs a factor that grows with the length.
        """
        if state.tokens is None:
            x = self.decoder.step(tokens, state.memory, state.cache)
            state.memory = None  # from here on the cache holds its keys and values
        else:
            assert state.memory is not None
            state.tokens = torch.cat([state.tokens, tokens[:, None]], dim=1)
            rows, packing = self.decoder(state.tokens, state.memory)
            x = packing.pad(rows)[:, -1]
        return self.output(x).float().log_softmax(dim=1)

    def attention(self, src: Int[Tensor, "B S"], tgt: Int[Tensor, "B T"]) -> AttentionMaps:
        """Attention weights of a forward pass over source and decoder input."""
        with record(self) as recorded:
            self.hidden(src, tgt)
        maps = {name: calls[0] for name, calls in recorded.items()}
        kinds = ("encoder", "self_attention"), ("decoder", "self_attention"), ("decoder", "cross_attention")
        return AttentionMaps(
            *(
                [m for name, m in maps.items() if name.startswith(stack) and name.endswith(kind)]
                for stack, kind in kinds
            )
        )


class DecodingState:
    """Where decoding of a batch stands: the cache, or the tokens so far where no cache is valid."""

    def __init__(self, memory: Memory, constants: Constants | None, *, keeps_tokens: bool) -> None:
        self.memory: Memory | None = memory
        self.cache = Cache(memory.packing.mask, constants)
        self.tokens = (
            memory.packing.mask.new_empty(len(memory.packing.mask), 0, dtype=torch.long) if keeps_tokens else None
        )

    def select(self, rows: Int[Tensor, " R"]) -> None:
        """Makes row i what row `rows[i]` was."""
        self.cache.select(rows)
        if self.tokens is not None:
            assert self.memory is not None
            self.tokens, self.memory = self.tokens[rows], self.memory.select(rows)


def _sizes(a: Architecture) -> LayerSizes:
    return LayerSizes(
        d_model=a.d_model,
        d_value=a.d_value,
        num_heads=a.num_heads,
        head_dim=a.head_dim,
        d_ff=a.d_ff,
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


def build(
    architecture: Architecture,
    *,
    src_vocab_size: int,
    tgt_vocab_size: int,
    seed: int = 0,
    position_table: Float[Tensor, "n d"] | None = None,
) -> Transformer:
    """A freshly initialised model; the same seed gives the same weights. Leaves the global random state alone.

    `positions = policy` needs `position_table` (see `repose.model.positions.upscale`); raises ConfigError without.
    """
    if architecture.positions == "policy" and position_table is None:
        raise ConfigError("positions = 'policy' needs a position_table: read one with repose.positions_rl.table")
    sizes = {"src_vocab_size": src_vocab_size, "tgt_vocab_size": tgt_vocab_size}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Transformer(architecture, **sizes, position_table=position_table)
        initialise(model, architecture.initialisation)
    return model
