"""A dependency parser: the encoder with a deep biaffine head (Dozat and Manning 2017, arXiv 1611.01734)."""

from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from repose.model.architecture import Architecture
from repose.model.initialisation import fresh
from repose.model.kernels.dropout import Dropout
from repose.model.kernels.linear import Linear, at_least_fp32
from repose.model.kernels.packing import Packing
from repose.model.stacks import Encoder


class WordStates(NamedTuple):
    """Packed rows of ROOT and the words, in their roles as dependents and as heads."""

    arc_dependent: Float[Tensor, "R A"]
    arc_head: Float[Tensor, "R A"]
    label_dependent: Float[Tensor, "R E"]
    label_head: Float[Tensor, "R E"]
    packing: Packing
    """Where the rows belong. Its mask (B, W) is True at ROOT, in column 0, and at each word."""


class Parser(nn.Module):
    """A dependency parser: it scores a head and a label for each word of a sentence.

    The encoder reads START, the words' subwords and END. A word is represented by the row of its first subword, ROOT by
    the row of START. Four networks x -> ReLU(x W + b), each with dropout, turn a row into a dependent d and a head h
    for arcs (d_model wide), and into d' and h' for labels (half as wide; eq. 4-5). For word i, head j and label l:

        arc_ij    = d_i U h_j + u · h_j                          (eq. 8-9: a bilinear product, and a prior of each head)
        label_ijl = d'_i U_l h'_j + w_l · [h'_j | d'_i] + b_l    (eq. 3, 10)

    Differs from the paper: the encoder is this project's, not a bidirectional LSTM over words with tags and character
    embeddings; the widths of the networks follow d_model (500 and 100 in the paper), and their dropout is `dropout`
    (1/3 in the paper); a word's score as its own head is -inf.

    The decoder's fields (`num_decoder_layers`, `decoder_token_norm`, `tie_embeddings`, `output_bias`) have no effect.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        vocab_size: int,
        num_labels: int,
        position_table: Float[Tensor, "n d"] | None = None,
    ) -> None:
        """`position_table`: as for `Transformer`."""
        super().__init__()
        a = architecture
        self.architecture, self.vocab_size, self.num_labels = a, vocab_size, num_labels
        self.encoder = Encoder(a, vocab_size, position_table, causal=False)
        arc, label = a.d_model, max(1, a.d_model // 2)
        self.arc_dependent, self.arc_head = Linear(a.d_model, arc), Linear(a.d_model, arc)
        self.label_dependent, self.label_head = Linear(a.d_model, label), Linear(a.d_model, label)
        self.dropout = Dropout(a.dropout)
        self.arc = Linear(arc, arc, bias=False)
        self.arc_prior = Linear(arc, 1, bias=False)
        self.label = Linear(label, num_labels * label, bias=False)
        self.label_prior = Linear(2 * label, num_labels)

    def words(self, src: Int[Tensor, "B S"], first: Int[Tensor, "B W"]) -> WordStates:
        """Encode ROOT and the words.

        `first`: the column in `src` of the first subword of ROOT and each word; -1 for padding. Raises DataError for a
        sentence longer than `max_length`.
        """
        memory = self.encoder(src)
        packing = Packing(first >= 0)
        cells = memory.packing.row_of_cell.gather(1, first.clamp(min=0))
        rows = memory.hidden.index_select(0, packing.pack(cells))
        networks = (self.arc_dependent, self.arc_head, self.label_dependent, self.label_head)
        a, b, c, d = (self.dropout(F.relu(network(rows))) for network in networks)
        return WordStates(a, b, c, d, packing)

    def arcs(self, words: WordStates) -> Float[Tensor, "B W W"]:
        """Return scores [b, i, j] of j as the head of i, in fp32; -inf where j is i, or not in the sentence."""
        pad = words.packing.pad
        heads = pad(words.arc_head)
        scores = pad(self.arc(words.arc_dependent)) @ heads.mT + self.arc_prior(heads).mT
        own = torch.eye(scores.shape[1], dtype=torch.bool, device=scores.device)
        return at_least_fp32(scores).masked_fill(~words.packing.mask[:, None, :] | own, -torch.inf)

    def labels(self, words: WordStates, heads: Int[Tensor, "B W"]) -> Float[Tensor, "R X"]:
        """Return scores [r, l] of label l for the arc to the word of packed row r from its head in `heads`, in fp32."""
        pad, pack = words.packing.pad, words.packing.pack
        width = words.label_head.shape[1]
        chosen = pack(pad(words.label_head).gather(1, heads[:, :, None].expand(-1, -1, width)))
        products = self.label(words.label_dependent).unflatten(1, (self.num_labels, width)) @ chosen[:, :, None]
        scores = products.squeeze(2) + self.label_prior(torch.cat([chosen, words.label_dependent], dim=1))
        return at_least_fp32(scores)


def build_parser(
    architecture: Architecture,
    *,
    vocab_size: int,
    num_labels: int,
    seed: int = 0,
    position_table: Float[Tensor, "n d"] | None = None,
) -> Parser:
    """Build a freshly initialised parser (`initialisation.fresh`)."""
    make = partial(Parser, vocab_size=vocab_size, num_labels=num_labels)
    return fresh(make, architecture, vocab_size, seed=seed, position_table=position_table)
