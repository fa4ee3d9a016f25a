"""Which architectures CTranslate2 can express."""

from collections.abc import Mapping

from repose.graphs import coverage as graphs
from repose.model.architecture import Architecture

EXPRESSED: Mapping[str, tuple[object, ...]] = {
    "positions": ("interleaved", "halves", "printed", "learned", "policy", "rotary", "t5", "none"),
    "combine": ("add", "concat"),
    "embedding_scale": ("sqrt", "inverse_sqrt", "none"),
    "encoder_token_norm": ("none", "vocabulary", "running"),
    "decoder_token_norm": ("none", "vocabulary", "running"),
    "token_norm_site": ("tokens",),
    "values": ("hidden",),
    "input_norm": ("none", "sum", "separate"),
    "norm": ("post", "pre"),
    "norm_kind": ("layer", "rms", "scale"),
    "feed_forward": ("relu", "gelu", "geglu", "swiglu"),
    "attention_window": (None,),
    "qk_norm": ("none",),
    "self_score": ("keep",),
    "score_residual": ("none",),
    "tie_embeddings": ("all", "output", "none"),
    "attention_bias": (False, True),
    "output_bias": (False, True),
}
"""Axis to its values that `ctranslate2_spec.py` folds or that CTranslate2 has: a list of its own, so that a value that
is new in the graphs is refused here until it is folded. A test compares each with the model."""
ANY_VALUE = graphs.SIZES_AND_TRAINING | {"num_kv_heads", "residual_weight", "norm_eps", "token_norm_eps"}
"""Fields of which it can express every value."""
_OF_A_SENTENCE = "has statistics of each sentence, where CTranslate2 looks embeddings up in a table"
_OF_MORE = "normalises more than the tokens that CTranslate2 looks up"
_TOKENS = "has attention read token embeddings, where CTranslate2's reads hidden states"
_OWN = "changes a token's score of itself, which CTranslate2 always keeps"
_UNTIED = "adds scores of positions by themselves, for which CTranslate2 has no place"
_REASONS: Mapping[tuple[str, object], str] = {
    **{
        (f"{side}_token_norm", kind): _OF_A_SENTENCE
        for side in ("encoder", "decoder")
        for kind in ("sentence", "prefix")
    },
    **{("token_norm_site", site): _OF_MORE for site in ("after_concat", "every_layer")},
    **{("values", kind): _TOKENS for kind in ("tokens", "both")},
    **{("self_score", kind): _OWN for kind in ("zero", "exclude", "zero_weights")},
    **{("positions", kind): _UNTIED for kind in ("untied", "untied_relative")},
    ("positions", "alibi"): "lowers scores on both sides in the encoder, which CTranslate2 does in decoders alone",
    ("qk_norm", "l2"): "would be CTranslate2's norm of queries and keys, which this export does not write",
    ("score_residual", "previous_layer"): "hands scores on to the next layer, which CTranslate2's forget",
    ("input_norm", "sum"): "is a layer norm beside others, where CTranslate2 has one kind in all places",
    ("norm", "both"): "normalises before the sublayer and after the sum, where CTranslate2 has one of the two",
}
"""Why a value cannot be expressed, for those that somebody has looked at."""


def why_not(architecture: Architecture) -> str | None:
    """Why CTranslate2 cannot compute what a model of this architecture does, axis by axis; None where it can."""
    refused = list(graphs.not_listed(architecture, EXPRESSED, ANY_VALUE))
    if architecture.input_norm == "sum" and architecture.norm_kind != "layer":
        refused.append(("input_norm", "sum"))
    return "; ".join(f"{name} = {value!r} {_reason(name, value)}" for name, value in refused) or None


def _reason(name: str, value: object) -> str:
    if name == "attention_window":
        return "reaches to both sides, CTranslate2's window back alone"
    return _REASONS.get((name, value), "is not among what this export was written for")
