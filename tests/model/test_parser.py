"""The biaffine head against its equations in loops, and the parser with all presets."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from repose.model.architecture import Architecture
from repose.model.parser import Parser, build_parser
from repose.model.presets import PRESETS, preset
from repose.system.errors import ConfigError

TINY: dict[str, Any] = {"d_token": 8, "num_heads": 2, "head_dim": 4, "d_ff": 16, "max_length": 16}
LAYERS: dict[str, Any] = {"num_encoder_layers": 2, "num_decoder_layers": 1}
# START, two words of two subwords and one of one, END; a sentence of one word.
SRC = torch.tensor([[2, 5, 6, 7, 8, 9, 3], [2, 9, 3, 0, 0, 0, 0]])
FIRST = torch.tensor([[0, 1, 3, 5], [0, 1, -1, -1]])
HEADS = torch.tensor([[0, 2, 0, 2], [0, 0, -1, -1]])
NUM_LABELS = 5


def make(a: Architecture) -> Parser:
    table = torch.linspace(-1, 1, 4)[:, None] * torch.tensor([1.0, -1.0]) if a.positions == "policy" else None
    return build_parser(a, vocab_size=20, num_labels=NUM_LABELS, position_table=table).double().eval()


def tiny(name: str, **changes: Any) -> Architecture:
    return dataclasses.replace(preset(name), **(TINY | LAYERS | changes))


def network(layer: torch.nn.Linear, x: Tensor) -> Tensor:
    assert layer.bias is not None
    return torch.stack([(layer.weight[k] @ x + layer.bias[k]).clamp(min=0) for k in range(len(layer.weight))])


@torch.no_grad()
def test_scores_are_those_of_dozat_and_manning() -> None:
    """Eq. 3-5 and 8-10, number by number."""
    model = make(tiny("ablation-none"))
    memory = model.encoder(SRC[:1])
    rows = [memory.packing.pad(memory.hidden)[0, int(column)] for column in FIRST[0]]
    words = model.words(SRC, FIRST)
    arcs, labels = model.arcs(words), words.packing.pad(model.labels(words, HEADS.clamp(min=0)))
    width = model.label_head.out_features
    tensor = model.label.weight.view(NUM_LABELS, width, width)  # U_l, heads' side first
    prior, bias = model.label_prior.weight, model.label_prior.bias
    for i in range(1, 4):
        d, d_label = network(model.arc_dependent, rows[i]), network(model.label_dependent, rows[i])
        for j in range(4):
            h = network(model.arc_head, rows[j])
            expected = float("-inf") if i == j else float(h @ (model.arc.weight @ d) + model.arc_prior.weight[0] @ h)
            assert arcs[0, i, j].item() == pytest.approx(expected, abs=1e-9)
        h_label = network(model.label_head, rows[int(HEADS[0, i])])
        for label in range(NUM_LABELS):
            bilinear = h_label @ tensor[label] @ d_label
            linear = prior[label, :width] @ h_label + prior[label, width:] @ d_label + bias[label]
            assert labels[0, i, label].item() == pytest.approx(float(bilinear + linear), abs=1e-9)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("norm", ["own", "prefix"])
def test_every_preset_is_finite_and_blind_to_padding(name: str, norm: str) -> None:
    a = tiny(name)
    if norm == "prefix":
        a = dataclasses.replace(a, encoder_token_norm="prefix", token_norm_site="tokens")
    model = make(a)
    with torch.no_grad():
        words = model.words(SRC, FIRST)
        arcs, labels = model.arcs(words), words.packing.pad(model.labels(words, HEADS.clamp(min=0)))
        assert arcs[1, 1, :2].tolist()[1] == float("-inf")
        assert torch.isinf(arcs[1, :2, 2:]).all()
        alone = model.words(SRC[1:, :3], FIRST[1:, :2])
        torch.testing.assert_close(model.arcs(alone)[0], arcs[1, :2, :2], rtol=0, atol=1e-9)
        alone_labels = alone.packing.pad(model.labels(alone, HEADS[1:, :2]))
        torch.testing.assert_close(alone_labels[0], labels[1, :2], rtol=0, atol=1e-9)
    model.train()
    words, is_word = model.words(SRC, FIRST), FIRST > 0
    loss = F.cross_entropy(model.arcs(words)[is_word], HEADS[is_word])
    labels = words.packing.pad(model.labels(words, HEADS.clamp(min=0)))[is_word]
    (loss + F.cross_entropy(labels, torch.ones(4, dtype=torch.long))).backward()  # type: ignore[no-untyped-call]
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), parameter_name


def test_a_word_is_its_first_subword() -> None:
    """Through the encoder others reach it; without layers' attention to them nothing but the first would."""
    model = make(tiny("ablation-none", attention_window=2, num_encoder_layers=1))
    with torch.no_grad():
        before = model.words(SRC[:1], FIRST[:1]).arc_head
        changed = SRC[:1].clone()
        changed[0, 2] = 11  # the second subword of word 1: next to the first ones of words 1 and 2, far from word 3's
        after = model.words(changed, FIRST[:1]).arc_head
    moved = (after - before).abs().amax(1)
    assert moved[3] == 0.0
    assert moved[1] > 0.0
    assert moved[2] > 0.0


def test_the_head_has_dropout() -> None:
    model = make(tiny("ablation-none", dropout=0.5)).train()
    model.encoder.eval()
    first, again = (model.words(SRC, FIRST).label_head for _ in range(2))
    assert not torch.equal(first, again)


def test_the_decoders_fields_mean_nothing() -> None:
    plain = make(tiny("ablation-none"))
    other = make(dataclasses.replace(tiny("ablation-none"), num_decoder_layers=4, decoder_token_norm="sentence"))
    assert torch.equal(plain.arcs(plain.words(SRC, FIRST)), other.arcs(other.words(SRC, FIRST)))
    assert not [name for name, _ in plain.named_parameters() if "decoder" in name or name == "output.weight"]


def test_a_policys_table_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="position_table"):
        build_parser(tiny("policy-positions"), vocab_size=20, num_labels=2)
