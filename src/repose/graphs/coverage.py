"""Which architectures have graphs.

Graphs are written apart from the model, so a value that is new on an axis has none until it is written here and
listed in `COMPUTED`; until then torch alone decodes it.
"""

from collections.abc import Iterator, Mapping
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
    "self_score": ("keep", "zero", "exclude", "zero_weights"),
    "score_residual": ("none", "previous_layer"),
    "tie_embeddings": ("all", "output", "none"),
    "attention_bias": (False, True),
    "output_bias": (False, True),
}
"""Axis to its values that `repose.graphs` computes."""
_ANY_VALUE = frozenset(
    [
        *("residual_weight", "attention_window", "initialisation", "norm_eps", "token_norm_eps", "max_length"),
        *("d_token", "num_heads", "head_dim", "d_ff", "num_encoder_layers", "num_decoder_layers", *DROPOUTS),
    ]
)
"""Fields of which graphs compute every value, and those that act in training alone."""


def why_not(a: Architecture) -> str | None:
    """Why an architecture has no graphs; None where it has."""
    if a.looks_ahead:
        return "its decoder normalises over the whole target sentence, and so sees tokens that it is to predict"
    unknown = [f"{setting} is not among what repose.graphs computes" for setting in not_computed(a)]
    return "; ".join(unknown) or None


def not_computed(a: Architecture) -> Iterator[str]:
    """Settings that graphs do not know, such as "norm = 'both'": values that are not listed, and axes that are not."""
    for field in fields(a):
        value, known = getattr(a, field.name), COMPUTED.get(field.name, (field.default,))
        if field.name not in _ANY_VALUE and value not in known:
            yield f"{field.name} = {value!r}"
