"""Parameters by part and FLOPs against hand counts."""

import pytest
import torch
from torch import nn

from repose.model.architecture import Architecture
from repose.model.describe import _parts, describe
from repose.model.presets import preset
from repose.model.transformer import Transformer


def test_parts_add_up_to_the_published_total() -> None:
    d = describe(preset("reinforced"), src_vocab_size=7765, tgt_vocab_size=7010, length=4)
    assert sum(d.parts.values()) == d.total == 2_809_634
    assert d.parts["source embedding"] == 7765 * 64
    assert d.parts["output projection"] == 7010 * 128 + 7010
    assert d.parts["norms"] == (2 * 2 + 2 * 3) * 2 * 128
    assert d.weights_bytes == 4 * d.total
    assert d.training_bytes == 16 * d.total


def test_a_tied_table_counts_once() -> None:
    d = describe(preset("vaswani-base"), src_vocab_size=100, tgt_vocab_size=100, length=4)
    assert (d.parts["source embedding"], d.parts["target embedding"], d.parts["output projection"]) == (51200, 0, 0)


def test_flops_are_two_per_weight_and_token_and_the_attention_products() -> None:
    d = describe(preset("reinforced"), src_vocab_size=7765, tgt_vocab_size=7010, length=16)
    embeddings = d.parts["source embedding"] + d.parts["target embedding"]
    biases_and_norms = 7010 + d.parts["norms"] + 2 * (2 + 4) * 256 * 3 // 2 + (2 + 4) * 128 + 4 * (256 + 128)
    products = 6 * 2 * 2 * 16 * 256  # six attentions, scores and values, H*C = 256, 16 keys
    assert d.forward_flops == pytest.approx(2 * (d.total - embeddings - biases_and_norms) + products, rel=1e-6)
    assert d.training_flops == pytest.approx(3 * d.forward_flops, rel=0.03)


def test_positions_in_the_scores_are_a_part_where_there_are_any() -> None:
    d = describe(preset("tupe-a"), src_vocab_size=100, tgt_vocab_size=100, length=4)
    own = 256 * 512 + 2 * 512 + 2 * (512 * 512 + 512)  # table, its norm, two projections
    assert [count for part, count in d.parts.items() if part.startswith("positions")] == [own, own]
    assert d.parts["norms"] == (6 * 2 + 6 * 3) * 2 * 512
    plain = describe(preset("original"), src_vocab_size=100, tgt_vocab_size=100, length=4)
    assert not [part for part in plain.parts if part.startswith("positions")]


def test_weights_of_no_part_that_is_known_are_not_called_norms() -> None:
    """Such as a weight of each sublayer, which a variant may add."""
    model = Transformer(Architecture(d_token=8, num_heads=2, head_dim=4), src_vocab_size=5, tgt_vocab_size=5)
    norms = _parts(model)["norms"]
    assert "other" not in _parts(model)
    model.encoder.layers[0].feed_forward_sublayer.alpha = nn.Parameter(torch.zeros(3))
    model.decoder.gain = nn.Parameter(torch.zeros(4))
    assert (_parts(model)["norms"], _parts(model)["other"]) == (norms, 7)
