"""The decoder without an encoder, over all axes: which tokens it sees."""

import dataclasses
from typing import Any

import pytest
import tests.axes
import torch
from torch import Tensor
from torch.nn import functional as F

from repose.model.architecture import Architecture
from repose.model.language_model import LanguageModel, build_language_model
from repose.model.presets import PRESETS, preset
from repose.system.errors import ConfigError, DataError

TINY: dict[str, Any] = {"d_token": 8, "num_heads": 2, "head_dim": 4, "d_ff": 16, "max_length": 16}
LAYERS: dict[str, Any] = {"num_encoder_layers": 1, "num_decoder_layers": 2}
AXES = {name: values for name, values in tests.axes.AXES.items() if name != "encoder_token_norm"}
IDS = torch.tensor([[2, 8, 9, 4, 5, 6, 7], [2, 6, 3, 0, 0, 0, 0], [2, 7, 7, 12, 3, 0, 0]])


DRAWN = list(tests.axes.one_for_each_value(AXES, **TINY, **LAYERS))


def make(a: Architecture) -> LanguageModel:
    table = torch.linspace(-1, 1, 4)[:, None] * torch.tensor([1.0, -1.0]) if a.positions == "policy" else None
    return build_language_model(a, vocab_size=20, position_table=table)


def moved_by_the_future(model: LanguageModel, ids: Tensor) -> float:
    """How far earlier logits move when a later token is another one. All changes are one batch."""
    places = range(1, ids.shape[1])
    changed = ids.repeat(len(places) + 1, 1, 1)
    for place in places:
        changed[place, :, place] = torch.where(ids[:, place] == 0, 0, 19)
    before, *after = model(changed.flatten(0, 1)).unflatten(0, changed.shape[:2])
    return max(float((x - before)[:, :place].abs().max()) for place, x in zip(places, after, strict=True))


def check(a: Architecture) -> None:
    model = make(a).double().eval()
    with torch.no_grad():
        moved, logits = moved_by_the_future(model, IDS), model(IDS)
        assert (moved > 1e-3) == a.looks_ahead, moved
        assert a.looks_ahead or moved < 1e-9
        for row, length in ((1, 3), (2, 5)):  # padding changes nothing
            torch.testing.assert_close(model(IDS[row : row + 1, :length])[0], logits[row, :length], rtol=0, atol=1e-9)
        torch.testing.assert_close(model.output(model.hidden(IDS)), logits[IDS != 0], rtol=0, atol=1e-9)
    model.train()
    F.cross_entropy(model(IDS)[IDS != 0], IDS[IDS != 0]).backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("architecture", DRAWN, ids=tests.axes.ids(AXES, DRAWN))
def test_sees_the_past_alone_but_for_the_printed_norm(architecture: Architecture) -> None:
    check(architecture)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset(name: str) -> None:
    check(dataclasses.replace(preset(name), **TINY, **LAYERS))


def test_has_no_part_of_the_encoders_and_no_cross_attention() -> None:
    a = dataclasses.replace(preset("reinforced"), **TINY, **LAYERS)
    names = [name for name, _ in make(a).named_parameters()]
    assert not [name for name in names if "encoder" in name or "cross" in name]
    other = dataclasses.replace(a, num_encoder_layers=5, encoder_token_norm="sentence")
    assert torch.equal(make(a).eval()(IDS), make(other).eval()(IDS))


@pytest.mark.parametrize("tie", ["all", "output"])
def test_tied_table(tie: str) -> None:
    a = dataclasses.replace(preset("vaswani-base"), **TINY, **LAYERS, tie_embeddings=tie)
    model = make(a)
    assert model.output.weight is model.decoder.embedding.tokens.weight


def test_what_cannot_be_read_or_built_is_told() -> None:
    a = dataclasses.replace(preset("reinforced"), **TINY, **LAYERS)
    with pytest.raises(DataError, match="max_length of 16"):
        make(a)(torch.full((1, 17), 4))
    with pytest.raises(ConfigError, match="position_table"):
        build_language_model(dataclasses.replace(preset("policy-positions"), **TINY), vocab_size=20)
