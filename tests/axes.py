"""The axes of `Architecture` and their values. New named values are included automatically."""

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
"""Maps the field of each axis with named values, or of two values, to these values."""
AXES: dict[str, tuple[Any, ...]] = {
    **NAMED,
    "attention_window": (None, 4),
    "residual_weight": (1.0, 4.0),
    "num_kv_heads": (None, 1),
}
"""`NAMED` and the numeric axes, with two values each."""
SIZES = frozenset(
    [
        *("d_token", "num_heads", "head_dim", "d_ff", "num_encoder_layers", "num_decoder_layers", "max_length"),
        *("norm_eps", "token_norm_eps", *DROPOUTS),
    ]
)
"""Fields that are not axes: any number is valid."""
DEFAULTS = {field.name: field.default for field in fields(Architecture)}
"""Default of each field."""


def architecture(rng: random.Random, axes: Mapping[str, Sequence[Any]], **fixed: Any) -> Architecture:
    """Return a valid architecture with the `fixed` values and random values of the other axes."""
    while True:
        try:
            return Architecture(**({name: rng.choice(values) for name, values in axes.items()} | fixed))
        except ValidationError:
            continue


def one_for_each_value(
    axes: Mapping[str, Sequence[Any]], allows: Callable[[Architecture], bool] = lambda _: True, **sizes: Any
) -> Iterator[Architecture]:
    """Yield, for each value of each axis, an architecture with this value that `allows` accepts.

    Other values are random, but the same in every process.
    """
    rng = random.Random(1)
    for axis, values in axes.items():
        for value in values:
            drawn = (architecture(rng, axes, **{axis: value}, **sizes) for _ in range(1000))
            yield next(a for a in drawn if allows(a))


def ids(axes: Mapping[str, Sequence[Any]], architectures: Iterable[Architecture]) -> list[str]:
    """Return test ids for `one_for_each_value`: the axis and value, and the other values that are not defaults."""
    named = []
    for (axis, value), a in zip(((x, v) for x, values in axes.items() for v in values), architectures, strict=True):
        others = [f"{name}={getattr(a, name)}" for name in axes if name != axis and getattr(a, name) != DEFAULTS[name]]
        named.append(" ".join([f"{axis}={value}", *others]))
    return named
