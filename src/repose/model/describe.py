"""The cost of an architecture: parameters by part, training FLOPs per token, and memory."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from repose.model.architecture import BYTES_PER_WEIGHT, Architecture
from repose.model.transformer import Transformer

BYTES_PER_PARAMETER = 16
"""fp32: the weight, its gradient, and Adam's two moments."""
SENTENCES = 8
"""Number of sentence pairs in the batch that operations are counted for."""


@dataclass(frozen=True)
class Description:
    """Sizes and costs of a model, for given vocabularies and sentence length."""

    parts: dict[str, int]
    """Number of parameters by part. Tied matrices count once, in the first part that has them."""
    total: int
    """Number of all parameters."""
    training_flops: float
    """Floating-point operations of a training step per target token, forward and backward, counted by torch."""
    forward_flops: float
    """Floating-point operations of the forward pass per target token."""
    weights_bytes: int
    """Bytes of the weights, in fp32."""
    training_bytes: int
    """Bytes of weights, gradients and Adam's moments, in fp32, without activations."""


PARTS = {
    "source embedding": "encoder.embedding",
    "target embedding": "decoder.embedding",
    "encoder self-attention": "encoder.layers.*.self_attention",
    "encoder feed-forward": "encoder.layers.*.feed_forward",
    "decoder self-attention": "decoder.layers.*.self_attention",
    "decoder cross-attention": "decoder.layers.*.cross_attention",
    "decoder feed-forward": "decoder.layers.*.feed_forward",
    "positions in the encoder's scores": "encoder.position_scores",
    "positions in the decoder's scores": "decoder.position_scores",
    "output projection": "output",
}


def describe(architecture: Architecture, *, src_vocab_size: int, tgt_vocab_size: int, length: int = 16) -> Description:
    """Measure a model on a batch of `SENTENCES` sentence pairs of `length` tokens each.

    The batch is really computed, because packing depends on the ids. Raises ConfigError for vocabularies that cannot be
    tied, and for a model larger than this machine's memory.
    """
    architecture.check_size(src_vocab_size, tgt_vocab_size)
    model = Transformer(architecture, src_vocab_size=src_vocab_size, tgt_vocab_size=tgt_vocab_size).eval()
    total = sum(p.numel() for p in model.parameters())
    src, tgt = torch.ones(2, SENTENCES, length, dtype=torch.long)
    with sdpa_kernel(SDPBackend.MATH):  # plain matrix products, which torch can count on every device
        with FlopCounterMode(display=False) as forward:
            loss = model(src, tgt).sum()
        with FlopCounterMode(display=False) as backward:
            loss.backward()
    flops = forward.get_total_flops()
    return Description(
        parts=_parts(model),
        total=total,
        training_flops=(flops + backward.get_total_flops()) / (SENTENCES * length),
        forward_flops=flops / (SENTENCES * length),
        weights_bytes=BYTES_PER_WEIGHT * total,
        training_bytes=BYTES_PER_PARAMETER * total,
    )


def num_parameters(architecture: Architecture, vocab_size: int) -> int:
    """Return the number of parameters for source and target vocabularies of this size, without allocating anything."""
    with torch.device("meta"):
        model = Transformer(architecture, src_vocab_size=vocab_size, tgt_vocab_size=vocab_size)
    return sum(p.numel() for p in model.parameters())


def _parts(model: nn.Module) -> dict[str, int]:
    counts = dict.fromkeys([*PARTS, "norms", "other"], 0)
    for name, parameter in model.named_parameters():  # yields tied parameters once
        generic = ".".join("*" if piece.isdigit() else piece for piece in name.split("."))
        is_of_norm = any("norm" in piece for piece in generic.split("."))
        part = next((part for part, prefix in PARTS.items() if generic.startswith(prefix + ".")), None)
        counts[part or ("norms" if is_of_norm else "other")] += parameter.numel()
    return {part: count for part, count in counts.items() if count or not ("position" in part or part == "other")}
