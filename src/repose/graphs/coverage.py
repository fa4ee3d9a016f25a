"""Find the settings of an architecture that an export target does not support.

An export target has code of its own for each value of an axis. A new value is unsupported until that code is written
and the value is listed beside it (for graphs, in `stacks.COMPUTED`). Until then, `stacks.why_not` refuses it by name,
and only the engine `torch` can decode with it.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from typing import TypeAlias

from repose.model.architecture import DROPOUTS, Architecture

Listed: TypeAlias = Mapping[str, tuple[object, ...]]
"""Axes, each with the values that a target supports."""

SIZES_AND_TRAINING = frozenset(
    [
        *("initialisation", "max_length", "d_token", "num_heads", "head_dim", "d_ff"),
        *("num_encoder_layers", "num_decoder_layers", *DROPOUTS),
    ]
)
"""Fields that only change sizes, or only act in training."""


def not_listed(a: Architecture, listed: Listed, any_value: Collection[str]) -> Iterator[tuple[str, object]]:
    """Yield fields with a value that a target does not support, such as ("norm", "both"): values that are not listed;
    on axes that are not listed, all but the default. `any_value`: fields of which the target supports every value."""
    for field in fields(a):
        value, known = getattr(a, field.name), listed.get(field.name, (field.default,))
        if field.name not in any_value and value not in known:
            yield field.name, value
