"""Express a model in CTranslate2's layers: whatever these lack is folded into their weights.

    embeddings    scale, token norm over the vocabulary or by running statistics, and layer norm of tokens are
                  functions of a row of the table, so the table has them done; layer norm of positions likewise
    concat        [E | P] = [E | 0] + [0 | P]: both tables padded with zeros, and added
    residual k    LN_ε(k x + F) = LN_(ε/k²)(x + F / k): outputs of sublayers ÷ k, ε ÷ k², and tables whose sum has a
                  norm of its own ÷ k
    norms         a ScaleNorm is an RMSNorm with gain g / sqrt(D); only the smallest rows are divided by other numbers
    PAD, START    never chosen: a bias of -10000 in the projection to the vocabulary
    positions     any table has a place, T5's scores and rotations have theirs; without any, a table of zeros

Computed in fp64 and rounded once. Tried with CTranslate2 4.8.5.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from repose.data.tokenizer import SPECIAL_TOKENS
from repose.graphs.coverage import SIZES_AND_TRAINING, Listed, not_listed
from repose.model.architecture import GATED, POSITIONS_WITH_ROWS, Architecture
from repose.model.embedding import Embedding
from repose.model.norms import RMSNorm, ScaleNorm
from repose.model.positions import FARTHEST, T5Positions
from repose.model.stacks import Stack
from repose.model.token_norm import normalised_rows
from repose.model.transformer import Transformer
from repose.system.errors import ConfigError
from repose.system.token_ids import PAD, START

_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "geglu": "GELU", "swiglu": "SWISH"}
"""CTranslate2's name for the activation of each kind of feed-forward layer."""
EXPRESSED: Listed = {
    "positions": (*POSITIONS_WITH_ROWS, "rotary", "t5", "none"),
    "combine": ("add", "concat"),
    "embedding_scale": ("sqrt", "inverse_sqrt", "none"),
    "encoder_token_norm": ("none", "vocabulary", "running"),
    "decoder_token_norm": ("none", "vocabulary", "running"),
    "token_norm_site": ("tokens",),
    "values": ("hidden",),
    "input_norm": ("none", "sum", "separate"),
    "norm": ("post", "pre"),
    "norm_kind": ("layer", "rms", "scale"),
    "feed_forward": tuple(_ACTIVATIONS),
    "attention_window": (None,),
    "qk_norm": ("none",),
    "self_score": ("keep",),
    "score_residual": ("none",),
    "tie_embeddings": ("all", "output", "none"),
    "attention_bias": (False, True),
    "output_bias": (False, True),
}
"""Axes with the values that CTranslate2 has or that are folded here. Other values are refused. A test compares each
listed value with the model."""
ANY_VALUE = SIZES_AND_TRAINING | {"num_kv_heads", "residual_weight", "norm_eps", "token_norm_eps"}
"""Fields of which CTranslate2 can express every value."""
_OF_A_SENTENCE = "has statistics of each sentence, but CTranslate2 looks embeddings up in a table"
_OF_MORE = "normalises more than the tokens that CTranslate2 looks up"
_TOKENS = "has attention read token embeddings, but CTranslate2's reads hidden states"
_OWN = "changes the score of a token with itself, which CTranslate2 always keeps"
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
    ("positions", "alibi"): "lowers scores on both sides in the encoder, which CTranslate2 does only in decoders",
    ("qk_norm", "l2"): "would be CTranslate2's norm of queries and keys, which this export does not write",
    ("score_residual", "previous_layer"): "hands scores on to the next layer, which CTranslate2's forget",
    ("input_norm", "sum"): "is a layer norm beside norms of another kind, but CTranslate2 has one kind in all places",
    ("norm", "both"): "normalises before the sublayer and after the sum, but CTranslate2 has only one of the two",
}
"""Why a value cannot be expressed, for the values that were examined."""

NEVER = -1e4
"""Bias of tokens that must never be chosen; it makes their probability 0 in fp32."""
_SMALL = 1e-12
"""Epsilon for norms without one, so that zeros are not divided by zero."""


def why_not(architecture: Architecture) -> str | None:
    """Return why CTranslate2 cannot express this architecture, axis by axis; None if it can."""
    refused = list(not_listed(architecture, EXPRESSED, ANY_VALUE))
    if architecture.input_norm == "sum" and architecture.norm_kind != "layer":
        refused.append(("input_norm", "sum"))
    return "; ".join(f"{name} = {value!r} {_reason(name, value)}" for name, value in refused) or None


def _reason(name: str, value: object) -> str:
    if name == "attention_window":
        return "reaches to both sides, CTranslate2's window only back"
    return _REASONS.get((name, value), "is not among what this export was written for")


@torch.no_grad()
def specification(model: Transformer, src_tokens: Sequence[str], tgt_tokens: Sequence[str]) -> Any:
    """Return CTranslate2's `TransformerSpec` of a model for which `why_not` is None.

    `src_tokens`, `tgt_tokens`: the text of each id, all different.
    """
    from ctranslate2.specs.common_spec import Activation
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec

    a = model.architecture
    how: dict[str, Any] = {
        "pre_norm": a.norm == "pre",
        "activation": Activation[_ACTIVATIONS[a.feed_forward]],
        "ffn_glu": a.feed_forward in GATED,
        "rms_norm": a.norm_kind != "layer",
        "layernorm_embedding": a.input_norm == "sum",
        "head_dim": a.head_dim,
    }
    if a.positions == "rotary":
        how |= {"rotary_dim": a.head_dim, "rotary_interleave": True}
    if a.positions == "t5":
        how |= {"relative_attention_bias": True}
    if a.num_kv_heads is not None:
        how |= {"num_heads_kv": a.num_kv_heads}
    encoder = TransformerEncoderSpec(a.num_encoder_layers, a.num_heads, **how)
    decoder = TransformerDecoderSpec(a.num_decoder_layers, a.num_heads, **how)
    _stack(encoder, encoder.embeddings[0], model.encoder, a)
    _stack(decoder, decoder.embeddings, model.decoder, a)
    _linear(decoder.projection, [model.output])
    decoder.projection.bias[[PAD, START]] = NEVER
    spec = TransformerSpec(encoder, decoder)
    spec.register_source_vocabulary(list(src_tokens))
    spec.register_target_vocabulary(list(tgt_tokens))
    _, unknown, start, end = SPECIAL_TOKENS
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = unknown, start, end
    spec.config.decoder_start_token = start
    spec.config.layer_norm_epsilon = _SMALL if a.norm_kind == "scale" else a.norm_eps / a.residual_weight**2
    return spec


def _stack(spec: Any, embeddings: Any, stack: Stack, a: Architecture) -> None:
    tokens, positions = _tables(stack.embedding, a)
    embeddings.weight, spec.scale_embeddings = _array(tokens), False
    if hasattr(spec, "position_encodings"):
        spec.position_encodings.encodings = _array(positions)
    if a.input_norm == "sum":
        _norm(spec.layernorm_embedding, stack.embedding.input_norms["sum"])
    if a.norm == "pre":
        _norm(spec.layer_norm, stack.final_norm)
    for layer, of_layer in zip(stack.layers, spec.layer, strict=True):
        if isinstance(stack.positions, T5Positions):
            of_layer.self_attention.relative_attention_bias = _array(stack.positions.distances.T)
            of_layer.self_attention.relative_attention_max_distance = np.dtype("int32").type(FARTHEST)
        _layer(of_layer, layer, a.residual_weight)


def _layer(spec: Any, layer: Any, k: float) -> None:
    """Fill in an encoder or decoder layer."""
    attention = layer.self_attention
    _linear(spec.self_attention.linear[0], [attention.query, attention.key, attention.value])
    _linear(spec.self_attention.linear[1], [attention.output], k)
    _norm(spec.self_attention.layer_norm, layer.self_attention_sublayer.norm)
    if hasattr(layer, "cross_attention"):
        attention = layer.cross_attention
        _linear(spec.attention.linear[0], [attention.query])
        _linear(spec.attention.linear[1], [attention.key, attention.value])
        _linear(spec.attention.linear[2], [attention.output], k)
        _norm(spec.attention.layer_norm, layer.cross_attention_sublayer.norm)
    if layer.feed_forward.gate is None:
        _linear(spec.ffn.linear_0, [layer.feed_forward.inner])
    else:
        _linear(spec.ffn.linear_0, [layer.feed_forward.gate])
        _linear(spec.ffn.linear_0_noact, [layer.feed_forward.inner])
    _linear(spec.ffn.linear_1, [layer.feed_forward.outer], k)
    _norm(spec.ffn.layer_norm, layer.feed_forward_sublayer.norm)


def _tables(embedding: Embedding, a: Architecture) -> tuple[Tensor, Tensor]:
    """Return the tables of tokens (V, D) and positions (L, D), whose rows CTranslate2 adds."""
    tokens = normalised_rows(embedding.token_norm, embedding.tokens.weight, embedding.scale)
    positions = embedding.positions.rows(torch.arange(a.max_length))
    positions = tokens.new_zeros(a.max_length, a.d_token) if positions is None else positions.double()
    if a.input_norm == "separate":
        tokens = _normalised(tokens, embedding.input_norms["tokens"])
        positions = _normalised(positions, embedding.input_norms["positions"])
    if a.combine == "concat":
        tokens, positions = F.pad(tokens, (0, a.d_token)), F.pad(positions, (a.d_token, 0))
    if a.input_norm == "sum":  # with the norm's only epsilon
        tokens, positions = tokens / a.residual_weight, positions / a.residual_weight
    return tokens, positions


def _normalised(rows: Tensor, norm: nn.Module | None) -> Tensor:
    norm = _layer_norm(norm)
    return F.layer_norm(rows, norm.normalized_shape, norm.weight.double(), norm.bias.double(), norm.eps)


def _norm(spec: Any, norm: Any) -> None:
    match norm:
        case RMSNorm():
            spec.gamma = _array(norm.weight)
        case ScaleNorm():
            spec.gamma = _array((norm.gain.double() / math.sqrt(norm.width)).repeat(norm.width))
        case _:
            norm = _layer_norm(norm)
            spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _layer_norm(norm: nn.Module | None) -> nn.LayerNorm:
    """Check that a norm is a LayerNorm. Raises ConfigError if not, as for a value listed in `EXPRESSED` too early."""
    if isinstance(norm, nn.LayerNorm) and norm.weight is not None and norm.bias is not None:
        return norm
    raise ConfigError(
        f"CTranslate2 has a layer norm with gain and bias where this model has {norm or 'nothing'}: fold it in "
        "exporting/ctranslate2_spec.py, or take its value out of EXPRESSED there"
    )


def _linear(spec: Any, layers: Sequence[nn.Linear], k: float = 1.0) -> None:
    """Stack projections of the same rows, divided by k."""
    biases: list[Tensor] = [
        layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias for layer in layers
    ]
    spec.weight = _array(torch.cat([layer.weight.double() for layer in layers]) / k)
    spec.bias = _array(torch.cat(biases).double() / k)


def _array(x: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(x.detach().cpu().numpy().astype(np.float32))
