"""The encoder-decoder Transformer: two stacks and an output projection, built from an `Architecture`."""

from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple, assert_never

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from repose.model.architecture import Architecture
from repose.model.attention import record
from repose.model.initialisation import fresh
from repose.model.kernels.cache import Cache, Constants
from repose.model.kernels.linear import Linear, at_least_fp32
from repose.model.kernels.packing import Memory, Packing
from repose.model.stacks import Decoder, Encoder
from repose.system.errors import ConfigError, DataError


class AttentionMaps(NamedTuple):
    """Attention weights of a forward pass, one tensor (B, H, Q, K) per layer.

    Rows of padded queries are zero or meaningless.
    """

    encoder: list[Tensor]
    decoder: list[Tensor]
    cross: list[Tensor]


class Transformer(nn.Module):
    """The encoder-decoder Transformer (Vaswani et al. 2017, section 3), with the variations that `Architecture` names.

        memory = encoder(src)
        logits = decoder(tgt, memory) W + b

    The logits at target position t predict token t + 1. On a CPU, everything except attention runs on the real tokens
    alone, without padding (`kernels.packing`).
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        src_vocab_size: int,
        tgt_vocab_size: int,
        position_table: Float[Tensor, "n d"] | None = None,
    ) -> None:
        """Create the layers, with weights as torch draws them; `build` initialises them.

        `position_table`: the table of positions for `positions = policy`. Without it, the table is zero until a
        checkpoint is loaded.
        """
        super().__init__()
        a = architecture
        if a.tie_embeddings == "all" and src_vocab_size != tgt_vocab_size:
            raise ConfigError(
                f"tie_embeddings = 'all' needs one vocabulary for both sides, not {src_vocab_size} and "
                f"{tgt_vocab_size} tokens: train a shared tokenizer, or set tie_embeddings = 'output' or 'none'"
            )
        self.architecture = a
        self.src_vocab_size, self.tgt_vocab_size = src_vocab_size, tgt_vocab_size
        self.encoder = Encoder(a, src_vocab_size, position_table, causal=False)
        self.decoder = Decoder(a, tgt_vocab_size, position_table, causal=True)
        self.output = Linear(a.d_model, tgt_vocab_size, bias=a.output_bias)
        match a.tie_embeddings:
            case "all":
                self.output.weight = self.decoder.embedding.tokens.weight
                self.encoder.embedding.tokens.weight = self.decoder.embedding.tokens.weight
            case "output":
                self.output.weight = self.decoder.embedding.tokens.weight
            case "none":
                pass
            case _:
                assert_never(a.tie_embeddings)

    def forward(self, src: Int[Tensor, "B S"], tgt: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Return the logits of the token after each target token, in fp32; zeros at padding.

        `tgt` is the decoder's input. A batch may be empty, and a source or target may be padding alone. Raises
        DataError for a sequence longer than `max_length`, for unequal numbers of sources and targets, and for anything
        but two-dimensional tensors of integers.
        """
        rows, packing = self._decoded(src, tgt)
        logits = packing.pad(self.output(rows))[: len(tgt), : tgt.shape[1]]  # without what `never_empty` has added
        return at_least_fp32(logits)

    def hidden(
        self, src: Int[Tensor, "B S"], tgt: Int[Tensor, "B T"], cells: Int[Tensor, " N"] | None = None
    ) -> Float[Tensor, "N D"]:
        """Return the decoder's output, which `output` projects to logits, at the real target tokens.

        Rows follow the row-major order of `tgt != 0`. With `cells`, return the rows at these of the B·T cells instead.
        Raises DataError as `forward` does.
        """
        rows, packing = self._decoded(src, tgt)
        return packing.real(rows) if cells is None else packing.at(rows, cells)

    def _decoded(self, src: Tensor, tgt: Tensor) -> tuple[Tensor, Packing]:
        for name, ids in (("src", src), ("tgt", tgt)):
            if not isinstance(ids, Tensor) or ids.dim() != 2 or ids.is_floating_point():
                what = f"{ids.dtype} of shape {tuple(ids.shape)}" if isinstance(ids, Tensor) else type(ids).__name__
                raise DataError(f"{name} should be a tensor of int64 token ids, one row per sentence, not {what}")
        if len(src) != len(tgt):
            raise DataError(
                f"the numbers of sources and targets differ ({len(src)} and {len(tgt)}): give one target per source"
            )
        try:
            return self.decoder(tgt, self.encode(src))
        except IndexError as error:  # checked only after an error: checking before would make the CPU wait for the GPU.
            for name, ids, size in (("src", src, self.src_vocab_size), ("tgt", tgt, self.tgt_vocab_size)):
                if ids.numel() and (ids.min() < 0 or ids.max() >= size):
                    raise DataError(
                        f"{name} has token ids that are not among its vocabulary's: 0 to {size - 1}"
                    ) from error
            raise

    def encode(self, src: Int[Tensor, "B S"]) -> Memory:
        """Run the encoder. Decoding runs it once per sentence."""
        return self.encoder(src)

    def start(self, memory: Memory, constants: Constants | None = None) -> "DecodingState":
        """Return the state for decoding token by token from START, one row per sentence.

        `constants`: a dict to pass to every decoding while the weights stay the same, so that what is derived from the
        weights is computed once.
        """
        return DecodingState(memory, constants, keeps_tokens=self.architecture.looks_ahead)

    def step(self, tokens: Int[Tensor, " R"], state: "DecodingState") -> Float[Tensor, "R V"]:
        """Return the log-probabilities, in nats, of the token after `tokens`, one token per row; advance `state`.

        A model that looks ahead cannot use a cache, because each new token changes all earlier rows. It recomputes the
        whole prefix at every step, which costs a factor that grows with the length.
        """
        if not len(tokens):
            return self.output.weight.new_empty(0, self.tgt_vocab_size, dtype=torch.float32)
        if state.tokens is None:
            x = self.decoder.step(tokens, state.memory, state.cache)
            state.memory = None  # the cache now holds the memory's keys and values
        else:
            assert state.memory is not None
            state.tokens = torch.cat([state.tokens, tokens[:, None]], dim=1)
            rows, packing = self.decoder(state.tokens, state.memory)
            x = packing.pad(rows)[:, -1]
        return self.output(x).float().log_softmax(dim=1)

    def attention(self, src: Int[Tensor, "B S"], tgt: Int[Tensor, "B T"]) -> AttentionMaps:
        """Return the attention weights of a forward pass; `tgt` is the decoder's input."""
        with record(self) as recorded:
            self.hidden(src, tgt)

        def of_layers(pattern: str) -> list[Tensor]:
            return [calls[0] for name, calls in recorded.items() if fnmatchcase(name, pattern)]

        return AttentionMaps(
            encoder=of_layers("encoder.layers.*.self_attention"),
            decoder=of_layers("decoder.layers.*.self_attention"),
            cross=of_layers("decoder.layers.*.cross_attention"),
        )


class DecodingState:
    """The state of decoding a batch: the cache, or where no cache is valid, the tokens so far."""

    def __init__(self, memory: Memory, constants: Constants | None, *, keeps_tokens: bool) -> None:
        self.memory: Memory | None = memory
        self.cache = Cache(memory.packing.mask, constants)
        none = memory.packing.mask.new_empty(len(memory.packing.mask), 0, dtype=torch.long)
        self.tokens = none if keeps_tokens else None

    def select(self, rows: Int[Tensor, " R"]) -> None:
        """Replace row i by row `rows[i]`, for every i."""
        self.cache.select(rows)
        if self.tokens is not None:
            assert self.memory is not None
            self.tokens, self.memory = self.tokens[rows], self.memory.select(rows)


def build(
    architecture: Architecture,
    *,
    src_vocab_size: int,
    tgt_vocab_size: int,
    seed: int = 0,
    position_table: Float[Tensor, "n d"] | None = None,
) -> Transformer:
    """Build a freshly initialised model (`initialisation.fresh`). `position_table`: for `positions = policy`."""
    make = partial(Transformer, src_vocab_size=src_vocab_size, tgt_vocab_size=tgt_vocab_size)
    return fresh(make, architecture, src_vocab_size, tgt_vocab_size, seed=seed, position_table=position_table)
