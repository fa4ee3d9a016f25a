"""Packing changes nothing: loss and gradients equal those of a model that computes the padded batch."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from repose.config.experiment import TrainingConfig
from repose.model.attention import Attention
from repose.model.presets import preset
from repose.model.transformer import Transformer, build
from repose.tasks.translation import TASK, PairBatch
from repose.training.distributed import World
from repose.training.feed import GlobalBatch
from repose.training.learner import Learner

VOCAB = 50
STILL = {"dropout": 0.0, "attention_dropout": 0.0, "attention_output_dropout": 0.0, "max_length": 64}


def unpacked(model: Transformer, src: Tensor, tgt: Tensor) -> Tensor:
    """Logits (B, T, V) of the tutorial's and the paper's models as one writes them without packing."""
    a = model.architecture

    def linear(x: Tensor, layer: Any) -> Tensor:
        return x @ layer.weight.T + layer.bias

    def norm(x: Tensor, layer: Any) -> Tensor:
        return F.layer_norm(x, layer.normalized_shape, layer.weight, layer.bias, layer.eps)

    def embed(ids: Tensor, stack: Any) -> tuple[Tensor, Tensor | None]:
        table = stack.embedding.tokens.weight * math.sqrt(a.d_token)
        if a.encoder_token_norm == "vocabulary":
            table = (table - table[1:].mean(0)) / (table[1:].var(0, correction=0) + a.token_norm_eps).sqrt()
        positions = stack.embedding.positions.table[: ids.shape[1]].expand(len(ids), -1, -1)
        if a.combine == "concat":
            return torch.cat([table[ids], positions], 2), table[ids] if a.values == "tokens" else None
        return table[ids] + positions, None

    def attend(layer: Attention, x: Tensor, y: Tensor, values: Tensor | None, allowed: Tensor) -> Tensor:
        def heads(z: Tensor) -> Tensor:
            return z.unflatten(2, (a.num_heads, a.head_dim)).transpose(1, 2)

        q, k = heads(linear(x, layer.query)), heads(linear(y, layer.key))
        v = heads(linear(y if values is None else values, layer.value))
        scores = (q @ k.transpose(2, 3) / math.sqrt(a.head_dim)).masked_fill(~allowed, -torch.inf)
        return linear((scores.softmax(3) @ v).transpose(1, 2).flatten(2), layer.output)

    def feed_forward(x: Tensor, layer: Any) -> Tensor:
        inner = linear(x, layer.feed_forward.inner).relu()
        return norm(x + linear(inner, layer.feed_forward.outer), layer.feed_forward_sublayer.norm)

    seen = (src != 0)[:, None, None]
    causal = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).tril()
    x, src_values = embed(src, model.encoder)
    for layer in model.encoder.layers:
        x = norm(x + attend(layer.self_attention, x, x, src_values, seen), layer.self_attention_sublayer.norm)
        x = feed_forward(x, layer)
    y, values = embed(tgt, model.decoder)
    for layer in model.decoder.layers:
        y = norm(y + attend(layer.self_attention, y, y, values, causal), layer.self_attention_sublayer.norm)
        y = norm(y + attend(layer.cross_attention, y, x, src_values, seen), layer.cross_attention_sublayer.norm)
        y = feed_forward(y, layer)
    return linear(y, model.output)


def ragged(number: int, lengths: Tensor) -> Tensor:
    ids = torch.randint(4, VOCAB, (number, int(lengths.max())), generator=torch.Generator().manual_seed(1))
    return ids * (torch.arange(ids.shape[1]) < lengths[:, None])


@pytest.mark.parametrize(
    ("name", "head_dim"), [("reinforced", 8), ("baseline", 8), ("baseline", 128), ("ablation-concat-values", 8)]
)
def test_loss_and_gradients_are_those_of_an_unpacked_model(name: str, head_dim: int) -> None:
    sizes = {"num_heads": 2, "head_dim": head_dim, "d_ff": 32, "num_encoder_layers": 2, "num_decoder_layers": 2}
    architecture = dataclasses.replace(preset(name), **sizes, **STILL)
    rng = np.random.default_rng(0)
    src = ragged(24, torch.from_numpy(rng.integers(2, 40, 24)))
    tgt = ragged(24, torch.from_numpy(rng.integers(1, 40, 24)))
    labels = torch.randint(4, VOCAB, (int((tgt != 0).sum()),), generator=torch.Generator().manual_seed(2))
    model = build(architecture, src_vocab_size=VOCAB, tgt_vocab_size=VOCAB, seed=3)
    plain = build(architecture, src_vocab_size=VOCAB, tgt_vocab_size=VOCAB, seed=3).double()
    wanted = F.cross_entropy(unpacked(plain, src, tgt)[tgt != 0], labels)
    wanted.backward()

    learner = Learner(TASK, model, TrainingConfig(), World(0, 1, torch.device("cpu")))
    learner.backward(GlobalBatch((PairBatch(src, tgt, labels),), len(src), len(labels), last=False), 0)
    assert learner.sums[0].item() / len(labels) == pytest.approx(wanted.item(), rel=1e-6)
    for (parameter_name, ours), theirs in zip(learner.model.named_parameters(), plain.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        scale = theirs.grad.abs().max().item()
        torch.testing.assert_close(
            ours.grad.double(),
            theirs.grad,
            rtol=0,
            atol=3e-6 * scale + 1e-9,
            msg=lambda m, n=parameter_name: f"{n}: {m}",
        )
