"""A decoder without an encoder: each token of a text predicted from those before it."""

from functools import partial
from typing import assert_never

from jaxtyping import Float, Int
from torch import Tensor, nn

from repose.model.architecture import Architecture
from repose.model.initialisation import fresh
from repose.model.kernels.linear import Linear, at_least_fp32
from repose.model.stacks import Encoder


class LanguageModel(nn.Module):
    """p(x_t | x_1 .. x_(t-1)) by a decoder-only stack (Liu et al. 2018, arXiv 1801.10198: Vaswani's decoder without
    cross-attention), varied in the places that `Architecture` names.

    `num_decoder_layers` layers of causal self-attention and feed-forward, with `decoder_token_norm`. The encoder's
    fields (`num_encoder_layers`, `encoder_token_norm`) mean nothing here; `tie_embeddings` `all` and `output` both
    make the projection the embedding table. Position t predicts token t + 1.
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
        """Logits of the token after each one, fp32; zeros at the padding. Raises DataError beyond `max_length`."""
        rows = self.decoder(ids)
        logits = rows.packing.pad(self.output(rows.hidden))[: len(ids), : ids.shape[1]]
        return at_least_fp32(logits)

    def hidden(self, ids: Int[Tensor, "B L"], cells: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N D"]:
        """What `output` projects, at the real tokens, in row-major order of `ids != 0`, or at these `cells`."""
        memory = self.decoder(ids)
        packing, rows = memory.packing, memory.hidden
        return packing.real(rows) if cells is None else packing.at(rows, cells)


def build_language_model(
    architecture: Architecture, *, vocab_size: int, seed: int = 0, position_table: Float[Tensor, "n d"] | None = None
) -> LanguageModel:
    """A freshly initialised model (`initialisation.fresh`)."""
    make = partial(LanguageModel, vocab_size=vocab_size)
    return fresh(make, architecture, vocab_size, seed=seed, position_table=position_table)
