"""A decoder-only language model: it predicts each token of a text from the tokens before it."""

from functools import partial
from typing import assert_never

from jaxtyping import Float, Int
from torch import Tensor, nn

from repose.model.architecture import Architecture
from repose.model.initialisation import fresh
from repose.model.kernels.linear import Linear, at_least_fp32
from repose.model.stacks import Encoder


class LanguageModel(nn.Module):
    """A decoder-only Transformer for p(x_t | x_1 .. x_(t-1)), with the variations that `Architecture` names.

    It is Vaswani's decoder without cross-attention (Liu et al. 2018, arXiv 1801.10198): `num_decoder_layers` layers of
    causal self-attention and feed-forward, with `decoder_token_norm`. The encoder's fields (`num_encoder_layers`,
    `encoder_token_norm`) have no effect. With `tie_embeddings` `all` or `output`, the output projection is the
    embedding table. The logits at position t predict token t + 1.
    """

    def __init__(
        self, architecture: Architecture, *, vocab_size: int, position_table: Float[Tensor, "n d"] | None = None
    ) -> None:
        """`position_table`: as for `Transformer`."""
        super().__init__()
        a = architecture
        self.architecture, self.vocab_size = a, vocab_size
        self.decoder = Encoder(a, vocab_size, position_table, causal=True)
        self.output = Linear(a.d_model, vocab_size, bias=a.output_bias)
        match a.tie_embeddings:
            case "all" | "output":
                self.output.weight = self.decoder.embedding.tokens.weight
            case "none":
                pass
            case _:
                assert_never(a.tie_embeddings)

    def forward(self, ids: Int[Tensor, "B L"]) -> Float[Tensor, "B L V"]:
        """Return the logits of the token after each one, in fp32; zeros at padding.

        Raises DataError for a sequence longer than `max_length`.
        """
        memory = self.decoder(ids)
        logits = memory.packing.pad(self.output(memory.hidden))[: len(ids), : ids.shape[1]]  # as in `Transformer`
        return at_least_fp32(logits)

    def hidden(self, ids: Int[Tensor, "B L"], cells: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N D"]:
        """Return what `output` projects, at the real tokens in row-major order of `ids != 0`, or at these `cells`."""
        memory = self.decoder(ids)
        packing, rows = memory.packing, memory.hidden
        return packing.real(rows) if cells is None else packing.at(rows, cells)


def build_language_model(
    architecture: Architecture, *, vocab_size: int, seed: int = 0, position_table: Float[Tensor, "n d"] | None = None
) -> LanguageModel:
    """Build a freshly initialised model (`initialisation.fresh`)."""
    make = partial(LanguageModel, vocab_size=vocab_size)
    return fresh(make, architecture, vocab_size, seed=seed, position_table=position_table)
