"""Which settings of an architecture a target that is written apart from the model does not know.

A value that is new on an axis has no graph until it is written. The file that has it then lists it, for
`stacks.COMPUTED`; until then `stacks.why_not` refuses it by name, and torch alone decodes it.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from typing import TypeAlias

from repose.model.architecture import DROPOUTS, Architecture

Listed: TypeAlias = Mapping[str, tuple[object, ...]]
"""Axis to those of its values that a target knows."""

SIZES_AND_TRAINING = frozenset(
    [
        *("initialisation", "max_length", "d_token", "num_heads", "head_dim", "d_ff"),
        *("num_encoder_layers", "num_decoder_layers", *DROPOUTS),
    ]
)
"""Fields that change nothing of what is computed but its size, and those that act in training alone."""


def not_listed(a: Architecture, listed: Listed, any_value: Collection[str]) -> Iterator[tuple[str, object]]:
    """Fields whose values a target does not know, such as ("norm", "both"): values that are not listed, and of axes
    that are not listed, all but the default. `any_value`: fields of which it knows every value."""
    for field in fields(a):
        value, known = getattr(a, field.name), listed.get(field.name, (field.default,))
        if field.name not in any_value and value not in known:
            yield field.name, value
