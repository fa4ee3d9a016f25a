"""The axes of `Architecture` and their values, for tests over all of them: what is added there is in these tests."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import ValidationError

from repose.model.architecture import DROPOUTS, Architecture

NAMED: dict[str, tuple[Any, ...]] = {
    name: (False, True) if kind is bool else get_args(kind)
    for name, kind in get_type_hints(Architecture).items()
    if kind is bool or get_origin(kind) is Literal
}
"""Every axis with named values, or with two, by the name of its field."""
AXES: dict[str, tuple[Any, ...]] = {
    **NAMED,
    "attention_window": (None, 4),
    "residual_weight": (1.0, 4.0),
    "num_kv_heads": (None, 1),
}
"""These, and the axes that are numbers, with two values of each."""
SIZES = frozenset(
    [
        *("d_token", "num_heads", "head_dim", "d_ff", "num_encoder_layers", "num_decoder_layers", "max_length"),
        *("norm_eps", "token_norm_eps", *DROPOUTS),
    ]
)
"""Fields that are no axes: any number will do."""
DEFAULTS = {field.name: field.default for field in fields(Architecture)}
"""Of all fields."""


def architecture(rng: random.Random, axes: Mapping[str, Sequence[Any]], **fixed: Any) -> Architecture:
    """One with these values, and drawn ones of the other axes, such that no rule refuses it."""
    while True:
        try:
            return Architecture(**({name: rng.choice(values) for name, values in axes.items()} | fixed))
        except ValidationError:
            continue


def one_for_each_value(
    axes: Mapping[str, Sequence[Any]], allows: Callable[[Architecture], bool] = lambda _: True, **sizes: Any
) -> Iterator[Architecture]:
    """For each value of each axis an architecture that has it and that `allows` is true of, its other values drawn, the
    same in every process."""
    rng = random.Random(1)
    for axis, values in axes.items():
        for value in values:
            drawn = (architecture(rng, axes, **{axis: value}, **sizes) for _ in range(1000))
            yield next(a for a in drawn if allows(a))


def ids(axes: Mapping[str, Sequence[Any]], architectures: Iterable[Architecture]) -> list[str]:
    """For the tests of `one_for_each_value`, what to look at where one fails: the value, and which others were drawn
    that are no defaults."""
    named = []
    for (axis, value), a in zip(((x, v) for x, values in axes.items() for v in values), architectures, strict=True):
        others = [f"{name}={getattr(a, name)}" for name in axes if name != axis and getattr(a, name) != DEFAULTS[name]]
        named.append(" ".join([f"{axis}={value}", *others]))
    return named
