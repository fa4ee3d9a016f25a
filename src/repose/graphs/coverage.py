"""Which architectures have graphs.

Graphs are written apart from the model, so a value that is new on an axis has none until it is written here and
listed in `COMPUTED`; until then torch alone decodes it.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields

from repose.model.architecture import DROPOUTS, Architecture

COMPUTED: Mapping[str, tuple[object, ...]] = {
    "positions": (
        *("interleaved", "halves", "printed", "learned", "policy", "rotary", "alibi", "t5", "untied"),
        *("untied_relative", "none"),
    ),
    "combine": ("add", "concat"),
    "embedding_scale": ("sqrt", "inverse_sqrt", "none"),
    "encoder_token_norm": ("none", "sentence", "prefix", "vocabulary", "running"),
    "decoder_token_norm": ("none", "prefix", "vocabulary", "running"),
    "token_norm_site": ("tokens", "after_concat", "every_layer"),
    "values": ("hidden", "tokens", "both"),
    "input_norm": ("none", "sum", "separate"),
    "norm": ("post", "pre", "both"),
    "norm_kind": ("layer", "rms", "scale"),
    "feed_forward": ("relu", "gelu", "geglu", "swiglu"),
    "qk_norm": ("none", "l2"),
    "self_score": ("keep", "zero", "exclude", "zero_weights"),
    "score_residual": ("none", "previous_layer"),
    "tie_embeddings": ("all", "output", "none"),
    "attention_bias": (False, True),
    "output_bias": (False, True),
}
"""Axis to its values that `repose.graphs` computes."""
SIZES_AND_TRAINING = frozenset(
    [
        *("initialisation", "max_length", "d_token", "num_heads", "head_dim", "d_ff"),
        *("num_encoder_layers", "num_decoder_layers", *DROPOUTS),
    ]
)
"""Fields that change nothing of what is computed but its size, and those that act in training alone."""
_ANY_VALUE = SIZES_AND_TRAINING | {
    *("num_kv_heads", "residual_weight", "attention_window", "norm_eps", "token_norm_eps"),
}
"""Fields of which graphs compute every value."""


def why_not(a: Architecture) -> str | None:
    """Why an architecture has no graphs; None where it has."""
    if a.looks_ahead:
        return "its decoder normalises over the whole target sentence, and so sees tokens that it is to predict"
    unlisted = not_listed(a, COMPUTED, _ANY_VALUE)
    return "; ".join(f"{name} = {x!r} is not among what repose.graphs computes" for name, x in unlisted) or None


def not_listed(
    a: Architecture, listed: Mapping[str, tuple[object, ...]], any_value: Collection[str]
) -> Iterator[tuple[str, object]]:
    """Fields whose values a target does not know, such as ("norm", "both"): values that are not listed, and of axes
    that are not listed, all but the default. `any_value`: fields of which it knows every value."""
    for field in fields(a):
        value, known = getattr(a, field.name), listed.get(field.name, (field.default,))
        if field.name not in any_value and value not in known:
            yield field.name, value
