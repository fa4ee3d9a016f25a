"""Floating-point operations of the matrix products of a Transformer, counted from its sizes.

A product of (a, b) with (b, c) counts 2abc: a multiplication and an addition each. Norms, softmax, dropout, embedding
look-ups and the optimizer count nothing, so that FLOPs over the time of equally many FLOPs of plain matrix products
says how near an implementation comes to a machine that does nothing else. Padding counts nothing either. With
D = d_model, W = heads x head width, Z = what value projections read (d_value), F = d_ff, V = target vocabulary:

    per source token and encoder layer   2W(3D + Z) projections, 4DF feed-forward
    per source token and decoder layer   2W(D + Z)  keys and values of cross-attention
    per target token and decoder layer   2W(3D + Z) self-attention, 4WD queries and output of cross-attention, 4DF
    per query that attends to one key    4W         scores and mixture, in each layer
    per target token                     2DV        logits
"""

from collections.abc import Iterable
from typing import NamedTuple

from repose.model.architecture import GATED, Architecture

TRAINING_OVER_FORWARD = 3
"""The backward pass multiplies every matrix twice more: for the gradient of its input and for that of the weight."""


class Flops(NamedTuple):
    """Operations by kind of part, as the complexity table of Vaswani et al. (2017) tells them apart."""

    projections: float
    """Queries, keys, values and outputs of attention: linear in the sentence, quadratic in the widths."""
    attention: float
    """Scores and mixtures: quadratic in the sentence, linear in the width."""
    feed_forward: float
    """Linear in the sentence, quadratic in the widths."""
    logits: float
    """Linear in the sentence, in the width and in the vocabulary."""

    @property
    def total(self) -> float:
        """All parts."""
        return sum(self)

    def times(self, factor: float) -> "Flops":
        """The same work `factor` times over."""
        return Flops(*(factor * part for part in self))

    def plus(self, other: "Flops") -> "Flops":
        """The work of both."""
        return Flops(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def _projections(a: Architecture) -> int:
    """Of a feed-forward layer."""
    return 3 if a.feed_forward in GATED else 2


def encoder(a: Architecture, src_length: int) -> Flops:
    """One source of that many tokens through the encoder."""
    width = a.num_heads * a.head_dim
    per_layer = Flops(
        projections=src_length * 2 * width * (3 * a.d_model + a.d_value),
        attention=src_length**2 * 4 * width,
        feed_forward=src_length * 2 * _projections(a) * a.d_model * a.d_ff,
        logits=0,
    )
    return per_layer.times(a.num_encoder_layers)


def memory(a: Architecture, src_length: int) -> Flops:
    """Keys and values of one source for every cross-attention."""
    per_layer = src_length * 2 * a.num_heads * a.head_dim * (a.d_model + a.d_value)
    return Flops(per_layer * a.num_decoder_layers, 0, 0, 0)


def decoder(a: Architecture, src_length: int, tgt_length: int, self_pairs: int, vocab_size: int) -> Flops:
    """`tgt_length` target tokens through the decoder and its logits, the memory's keys and values being there.

    `self_pairs`: pairs of target query and target key that meet in self-attention: half a square where each token
    comes after the last, the whole one where a mask is laid over it.
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
    """One pair of a training step: forward and backward, self-attention over the whole masked square."""
    forward = encoder(a, src_length).plus(memory(a, src_length))
    return forward.plus(decoder(a, src_length, tgt_length, tgt_length**2, vocab_size)).times(TRAINING_OVER_FORWARD)


def decoding(a: Architecture, src_length: int, new_tokens: int, beam: int, vocab_size: int) -> Flops:
    """One sentence decoded with a cache: encoder and memory once, then `new_tokens` steps that each see one key more.

    Keys and values of every head are kept, as everyone does; this project multiplies less where heads are wide
    (`repose.model.cached_attention`), so its share of a ceiling says how long it takes, not how busy it is.
    All hypotheses of a beam begin with the same START, so the first step is that of one; the others are of `beam`.
    """
    once = encoder(a, src_length).plus(memory(a, src_length))
    first = decoder(a, src_length, 1, 1, vocab_size)
    later_pairs = new_tokens * (new_tokens + 1) // 2 - 1
    later = decoder(a, src_length, new_tokens - 1, later_pairs, vocab_size)
    return once.plus(first).plus(later.times(beam))


def mean_decoding(a: Architecture, src_lengths: Iterable[int], new_tokens: int, beam: int, vocab_size: int) -> float:
    """FLOPs per decoded sentence over sources of these true lengths, START and END counted."""
    totals = [decoding(a, length, new_tokens, beam, vocab_size).total for length in src_lengths]
    return sum(totals) / len(totals)
