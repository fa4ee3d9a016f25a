"""Count the floating-point operations of a Transformer's matrix products from its sizes.

A product of (a, b) with (b, c) counts 2abc, for one multiplication and one addition each. Norms, softmax, dropout,
embedding look-ups and the optimizer count 0, and so does padding. So these FLOPs, compared with a machine's rate for
plain matrix products, show how close an implementation comes to doing only products. With D = d_model, W = heads x head
width, Z = width of what value projections read (d_value), F = d_ff, V = target vocabulary:

    per source token and encoder layer   2W(3D + Z) projections, 4DF feed-forward
    per source token and decoder layer   2W(D + Z)  keys and values of cross-attention
    per target token and decoder layer   2W(3D + Z) self-attention, 4WD queries and output of cross-attention, 4DF
    per query that attends to one key    4W         scores and weighted mean of values, in each layer
    per target token                     2DV        logits
"""

from collections.abc import Iterable
from typing import NamedTuple

from repose.model.architecture import GATED, Architecture

TRAINING_OVER_FORWARD = 3
"""The backward pass has two products for each of the forward pass: the gradients of its input and of its weight."""


class Flops(NamedTuple):
    """Operations by part, with the parts that the complexity table of Vaswani et al. (2017) distinguishes."""

    projections: float
    """Queries, keys, values and outputs of attention: linear in the sentence, quadratic in the widths."""
    attention: float
    """Scores and weighted means of values: quadratic in the sentence, linear in the width."""
    feed_forward: float
    """Feed-forward layers: linear in the sentence, quadratic in the widths."""
    logits: float
    """Output projection: linear in the sentence, in the width and in the vocabulary."""

    @property
    def total(self) -> float:
        """Sum of all parts."""
        return sum(self)

    def times(self, factor: float) -> "Flops":
        """Return the operations of doing this `factor` times."""
        return Flops(*(factor * part for part in self))

    def plus(self, other: "Flops") -> "Flops":
        """Return the operations of both."""
        return Flops(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def _projections(a: Architecture) -> int:
    """Return the number of projections in a feed-forward layer."""
    return 3 if a.feed_forward in GATED else 2


def encoder(a: Architecture, src_length: int) -> Flops:
    """Return the operations of the encoder for one source of this many tokens."""
    width = a.num_heads * a.head_dim
    per_layer = Flops(
        projections=src_length * 2 * width * (3 * a.d_model + a.d_value),
        attention=src_length**2 * 4 * width,
        feed_forward=src_length * 2 * _projections(a) * a.d_model * a.d_ff,
        logits=0,
    )
    return per_layer.times(a.num_encoder_layers)


def memory(a: Architecture, src_length: int) -> Flops:
    """Return the operations for the keys and values of one source in every cross-attention."""
    per_layer = src_length * 2 * a.num_heads * a.head_dim * (a.d_model + a.d_value)
    return Flops(per_layer * a.num_decoder_layers, 0, 0, 0)


def decoder(a: Architecture, src_length: int, tgt_length: int, self_pairs: int, vocab_size: int) -> Flops:
    """Return the operations of the decoder and its logits for `tgt_length` target tokens, without `memory`.

    `self_pairs`: pairs of target query and target key in self-attention: half of the square when decoding token by
    token, the whole square when a mask is applied to it.
    """
    width = a.num_heads * a.head_dim
    per_layer = Flops(
        projections=tgt_length * (2 * width * (3 * a.d_model + a.d_value) + 4 * width * a.d_model),
        attention=4 * width * (self_pairs + tgt_length * src_length),
        feed_forward=tgt_length * 2 * _projections(a) * a.d_model * a.d_ff,
        logits=0,
    )
    return per_layer.times(a.num_decoder_layers).plus(Flops(0, 0, 0, tgt_length * 2 * a.d_model * vocab_size))


def training(a: Architecture, src_length: int, tgt_length: int, vocab_size: int) -> Flops:
    """Return the operations of one pair in a training step: forward and backward, with the whole masked square."""
    forward = encoder(a, src_length).plus(memory(a, src_length))
    return forward.plus(decoder(a, src_length, tgt_length, tgt_length**2, vocab_size)).times(TRAINING_OVER_FORWARD)


def decoding(a: Architecture, src_length: int, new_tokens: int, beam: int, vocab_size: int) -> Flops:
    """Return the operations of decoding one sentence with a cache: encoder and memory once, then `new_tokens` steps.

    Each step sees one key more than the one before. The cache is assumed to hold keys and values of every head, as is
    usual. If heads are wide, this project computes less (`repose.model.cached_attention`), so its share of a ceiling
    says how long it takes, not how busy it is. All hypotheses of a beam begin with the same START, so the first step
    counts one row; the later ones count `beam` rows.
    """
    once = encoder(a, src_length).plus(memory(a, src_length))
    first = decoder(a, src_length, 1, 1, vocab_size)
    later_pairs = new_tokens * (new_tokens + 1) // 2 - 1
    later = decoder(a, src_length, new_tokens - 1, later_pairs, vocab_size)
    return once.plus(first).plus(later.times(beam))


def mean_decoding(a: Architecture, src_lengths: Iterable[int], new_tokens: int, beam: int, vocab_size: int) -> float:
    """Return the mean FLOPs per decoded sentence over sources of these lengths, START and END included."""
    totals = [decoding(a, length, new_tokens, beam, vocab_size).total for length in src_lengths]
    return sum(totals) / len(totals)
