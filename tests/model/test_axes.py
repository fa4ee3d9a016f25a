"""Every value of every axis has an effect: it gives another model than the axis's default."""

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import jaxtyping
import pytest
import torch
from pydantic import ValidationError
from tests.axes import AXES, DEFAULTS, NAMED, architecture, one_for_each_value
from tests.axes import SIZES as NO_AXES
from torch import nn

from repose.model.architecture import Architecture
from repose.model.language_model import build_language_model
from repose.model.transformer import Transformer, build

SIZES: dict[str, Any] = {"d_token": 8, "num_heads": 2, "head_dim": 4, "d_ff": 16, "max_length": 32}
SIZES |= {"num_encoder_layers": 2, "num_decoder_layers": 2}
IDS = torch.tensor([[2, 8, 9, 4, 5, 6, 7, 3], [2, 6, 3, 0, 0, 0, 0, 0]])
OTHERS = [(axis, value) for axis, values in AXES.items() for value in values if value != DEFAULTS[axis]]


def test_every_field_is_an_axis_or_a_size() -> None:
    """A new one that is a number goes into `AXES` of tests/axes.py, with a second value: or no test would try it."""
    assert sorted([*AXES, *NO_AXES]) == sorted(DEFAULTS)


def test_a_value_that_is_added_changes_only_the_draws_that_it_is_in() -> None:
    """Or whoever adds one would be told of combinations of others that fail, and look for the reason in the new one."""
    before = {**AXES, "feed_forward": tuple(kind for kind in AXES["feed_forward"] if kind != "swiglu")}
    drawn, known = (list(one_for_each_value(axes, **SIZES)) for axes in (AXES, before))
    kept = [a for a in drawn if a.feed_forward != "swiglu"]
    assert len(kept) > len(drawn) / 2
    assert [a for a in kept if a not in known] == []


def pairs(axis: str, value: object) -> Iterator[tuple[Architecture, Architecture]]:
    """Architectures that differ in this axis alone: the value, and the default."""
    rng = random.Random(0)
    while True:
        one = architecture(rng, AXES, **{axis: value}, **SIZES)
        try:
            yield one, dataclasses.replace(one, **{axis: DEFAULTS[axis]})
        except ValidationError:
            continue


def make(a: Architecture) -> Transformer:
    table = torch.linspace(-1, 1, 4)[:, None] * torch.tensor([1.0, -1.0]) if a.positions == "policy" else None
    return build(a, src_vocab_size=20, tgt_vocab_size=20, position_table=table).eval()


def make_language_model(a: Architecture) -> nn.Module:
    return build_language_model(a, vocab_size=20).eval()


def computed(model: nn.Module) -> torch.Tensor:
    return model(IDS, IDS) if isinstance(model, Transformer) else model(IDS)


def differ(one: Transformer, other: Transformer) -> bool:
    """In what they make of the same weights; and where the first has weights of its own, in what it makes of those."""
    generator = torch.Generator().manual_seed(1)

    def moved(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: t + 0.1 * torch.rand(t.shape, generator=generator) for name, t in state.items()}

    ours, theirs = moved(one.state_dict()), other.state_dict()
    shared = {name: t for name, t in ours.items() if name in theirs and theirs[name].shape == t.shape}
    one.load_state_dict(ours)
    other.load_state_dict({**moved(theirs), **shared})
    with torch.no_grad():
        before = one(IDS, IDS)
        if own := {name: t for name, t in ours.items() if name not in shared}:
            one.load_state_dict({**ours, **moved(own)})
            return not torch.allclose(one(IDS, IDS), before, atol=1e-4)
        return not torch.allclose(other(IDS, IDS), before, atol=1e-4)


def begin_differently(one: nn.Module, other: nn.Module) -> bool:
    """In the values of weights that have the same names."""
    theirs = other.state_dict()
    return any(not torch.equal(tensor, theirs[name]) for name, tensor in one.state_dict().items())


@pytest.mark.parametrize(("axis", "value"), OTHERS, ids=[f"{axis}-{value}" for axis, value in OTHERS])
def test_a_value_makes_another_model_than_the_default(axis: str, value: object) -> None:
    tried, how = islice(pairs(axis, value), 10), begin_differently if axis == "initialisation" else differ
    assert any(how(make(one), make(other)) for one, other in tried), (
        f"{axis} = {value!r} computes what the default does, whatever weights of its own it may have"
    )


@pytest.mark.parametrize("is_read", [False, True])
def test_weights_of_a_value_count_where_they_are_read_alone(is_read: bool) -> None:
    """Such as a gate that somebody has made and forgotten."""
    one, other = make(Architecture(**SIZES)), make(Architecture(**SIZES))
    layer = one.encoder.layers[0].feed_forward
    layer.gate = nn.Linear(8, 16)
    if is_read:
        layer.inner.register_forward_hook(lambda _, inputs, y: y * layer.gate(inputs[0]))
    assert differ(one, other) == is_read


@pytest.mark.parametrize("axis", [axis for axis, values in NAMED.items() if values != (False, True)])
@pytest.mark.parametrize("make", [make, make_language_model], ids=["translation", "language"])
def test_a_value_that_nobody_computes_makes_no_model(
    make: Callable[[Architecture], nn.Module], axis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an axis is decided by if and else, it would be computed as another value, and trained under its own name:
    decide it by `match`, with `assert_never` at the end."""
    if make is make_language_model and axis.startswith(("encoder", "decoder")):
        return  # one stack, which has one of the two
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # what tests alone have would refuse some
    a = Architecture(**SIZES)
    object.__setattr__(a, axis, "new")  # as if it were in the axis's Literal
    with pytest.raises(AssertionError, match="new"):
        computed(make(a))


@pytest.mark.parametrize("axis", NAMED)
@pytest.mark.parametrize(("number", "set_to"), [("residual_weight", 4.0), ("attention_window", 4)])
def test_a_number_is_refused_or_counts_beside_every_value(number: str, set_to: float, axis: str) -> None:
    """A value that ignores it needs a rule in `_problems`: two run ids would stand for one model."""
    for value in NAMED[axis]:
        rng, tried = random.Random(0), []
        for _ in range(200):
            drawn = {name: rng.choice(values) for name, values in AXES.items()} | {axis: value, number: set_to}
            with contextlib.suppress(ValidationError):
                one = Architecture(**drawn, **SIZES)
                tried.append((one, dataclasses.replace(one, **{number: DEFAULTS[number]})))
        found = any(differ(make(one), make(other)) for one, other in tried[:10])
        assert found or not tried, f"{number} is ignored where {axis} = {value!r}"
