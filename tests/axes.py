"""The axes of `Architecture` and their values. New named values are included automatically."""

import contextlib
import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import ValidationError

from repose.model.architecture import DROPOUTS, Architecture

Value = TypeVar("Value")

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

    Other values are drawn (`pick`). A value or an axis that is added changes only draws that it takes part in: whoever
    adds it is not told of combinations of others that nobody has tried before.
    """
    for axis, values in axes.items():
        for value in values:
            drawn = (_drawn(axes, axis, value, number) for number in range(1000))
            yield next(a for a in _valid(drawn, sizes) if allows(a))


def pick(values: Sequence[Value], *place: object) -> Value:
    """Return one of the values, at random, but always the same at one place. If a value is added, it is still that one,
    or the added one."""
    return min(values, key=lambda value: hashlib.sha256(repr((*place, value)).encode()).digest())


def _drawn(axes: Mapping[str, Sequence[Any]], axis: str, value: object, number: int) -> dict[str, Any]:
    return {name: pick(values, axis, value, number, name) for name, values in axes.items()} | {axis: value}


def _valid(drawn: Iterable[dict[str, Any]], sizes: Mapping[str, Any]) -> Iterator[Architecture]:
    for one in drawn:
        with contextlib.suppress(ValidationError):
            yield Architecture(**one, **sizes)


def ids(axes: Mapping[str, Sequence[Any]], architectures: Iterable[Architecture]) -> list[str]:
    """Return test ids for `one_for_each_value`: the axis and value, and the other values that are not defaults."""
    named = []
    for (axis, value), a in zip(((x, v) for x, values in axes.items() for v in values), architectures, strict=True):
        others = [f"{name}={getattr(a, name)}" for name in axes if name != axis and getattr(a, name) != DEFAULTS[name]]
        named.append(" ".join([f"{axis}={value}", *others]))
    return named
