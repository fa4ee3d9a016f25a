"""Each published architecture as a difference from Vaswani's, with its citation: a table of related work."""

import dataclasses
from types import MappingProxyType
from typing import NamedTuple

from repose.model.architecture import Architecture
from repose.system.errors import ConfigError, unknown

VASWANI = "Vaswani et al. 2017, arXiv 1706.03762"
TUTORIAL = "TensorFlow text tutorial 'Neural machine translation with a Transformer and Keras'"
REINFORCED = "Hsiao and Dutta 2024, arXiv 2410.04731"
ENHANCED = "Moon et al. 2023, arXiv 2310.10930"
PRE_LN = "Xiong et al. 2020, arXiv 2002.04745"
REALFORMER = "He et al. 2021, arXiv 2012.11747"
TUPE = "Ke et al. 2021, arXiv 2006.15595"
ROFORMER = "Su et al. 2021, arXiv 2104.09864"
ALIBI = "Press et al. 2022, arXiv 2108.12409"
T5 = "Raffel et al. 2020, arXiv 1910.10683"


class Preset(NamedTuple):
    """A named architecture, where it comes from, and how it differs in a sentence."""

    architecture: Architecture
    citation: str
    summary: str
    published_parameters: int | None = None
    """Total parameter count that the source states, at vocabularies 7,765/7,010."""


_replace = dataclasses.replace

_vaswani = Architecture()

# What the tutorial changes, whatever the sizes: the paper's two models share it.
_tutorial = _replace(
    _vaswani,
    positions="halves",
    initialisation="keras",
    tie_embeddings="none",
    attention_bias=True,
    output_bias=True,
    attention_dropout=0.1,
    attention_output_dropout=0.0,
    norm_eps=1e-3,
    max_length=2048,
)
_baseline = _replace(
    _tutorial, d_token=128, num_heads=8, head_dim=128, d_ff=512, num_encoder_layers=4, num_decoder_layers=4
)
_small = _replace(_tutorial, num_heads=4, head_dim=64, d_ff=256, num_encoder_layers=2, num_decoder_layers=2)
_none = _replace(_small, d_token=128)
_concat = _replace(_small, d_token=64, combine="concat")
_vocabulary = {"encoder_token_norm": "vocabulary", "decoder_token_norm": "vocabulary"}
_reinforced = _replace(_concat, values="tokens", **_vocabulary)
_lookahead = _replace(_reinforced, encoder_token_norm="sentence", decoder_token_norm="sentence")

# The Enhanced paper's Transformer: what it states, and for the rest the code that its settings are those of (PyTorch's
# habits: Kaiming's initial values, biases everywhere, no scale on embeddings, separate tables).
_original = _replace(
    _vaswani,
    embedding_scale="none",
    initialisation="kaiming",
    tie_embeddings="none",
    attention_bias=True,
    output_bias=True,
    dropout=0.2,
    attention_output_dropout=0.2,
    norm_eps=1e-12,
    max_length=256,
)
_full_norm = _replace(_original, input_norm="separate")

_ABLATION = "ablation of " + REINFORCED

PRESETS: MappingProxyType[str, Preset] = MappingProxyType(
    {
        "vaswani-base": Preset(_vaswani, VASWANI, "the Transformer, base"),
        "vaswani-big": Preset(
            _replace(_vaswani, d_token=1024, d_ff=4096, num_heads=16, dropout=0.3, attention_output_dropout=0.3),
            VASWANI,
            "the Transformer, big",
        ),
        "baseline": Preset(
            _baseline, f"{TUTORIAL}; {REINFORCED}", "the papers' baseline: the TF tutorial's Transformer", 10_184_162
        ),
        "baseline-printed": Preset(
            _replace(_baseline, positions="printed", embedding_scale="inverse_sqrt"),
            REINFORCED,
            "the baseline with eq. 3 and eq. 28 to the letter",
            10_184_162,
        ),
        "reinforced": Preset(
            _reinforced,
            REINFORCED,
            "reinforced position embedding, causal: columns normalised over the vocabulary",
            2_809_634,
        ),
        "reinforced-sentence": Preset(
            _replace(_reinforced, encoder_token_norm="sentence"),
            REINFORCED,
            "the source normalised per sentence (eq. 5), the target over the vocabulary",
            2_809_634,
        ),
        "reinforced-prefix": Preset(
            _replace(_reinforced, encoder_token_norm="sentence", decoder_token_norm="prefix"),
            REINFORCED,
            "the source normalised per sentence, the target over its prefix: closest in spirit",
            2_809_634,
        ),
        "reinforced-lookahead": Preset(
            _lookahead,
            REINFORCED,
            "what the paper must have run: eq. 5 on both sides; looks ahead, cannot translate",
            2_809_634,
        ),
        "reinforced-printed": Preset(
            _replace(_lookahead, positions="printed"), REINFORCED, "the same with eq. 3 to the letter", 2_809_634
        ),
        "ablation-none": Preset(_none, _ABLATION, "none of the three changes, at the reinforced model's size"),
        "ablation-concat": Preset(_concat, _ABLATION, "concatenated positions alone"),
        "ablation-norm": Preset(_replace(_none, **_vocabulary), _ABLATION, "token normalization alone"),
        "ablation-values": Preset(_replace(_none, values="tokens"), _ABLATION, "token embeddings as values alone"),
        "ablation-concat-norm": Preset(
            _replace(_concat, **_vocabulary), _ABLATION, "concatenated positions and token normalization"
        ),
        "ablation-concat-values": Preset(
            _replace(_concat, values="tokens"), _ABLATION, "concatenated positions and token embeddings as values"
        ),
        "ablation-norm-values": Preset(
            _replace(_none, values="tokens", **_vocabulary),
            _ABLATION,
            "token normalization and token embeddings as values",
        ),
        "original": Preset(_original, f"{VASWANI}; {ENHANCED}", "the Enhanced paper's original Transformer"),
        "full-norm": Preset(_full_norm, ENHANCED, "full layer normalization alone"),
        "weighted-residual": Preset(
            _replace(_original, residual_weight=4.0), ENHANCED, "weighted residual connection alone, k = 4"
        ),
        "policy-positions": Preset(
            _replace(_original, positions="policy"), ENHANCED, "positions learned by Soft Actor-Critic alone"
        ),
        "zero-diagonal": Preset(_replace(_original, self_score="zero"), ENHANCED, "zero masked self-attention alone"),
        "enhanced": Preset(
            _replace(_full_norm, residual_weight=4.0, positions="policy", self_score="zero"),
            ENHANCED,
            "the Enhanced Transformer: all four techniques",
        ),
        "post-ln": Preset(_original, PRE_LN, "layer norm after the residual sum: the same model as `original`"),
        "pre-ln": Preset(_replace(_original, norm="pre"), PRE_LN, "layer norm before each sublayer"),
        "realformer": Preset(
            _replace(_original, score_residual="previous_layer"), REALFORMER, "scores added to the next layer's"
        ),
        "tupe-a": Preset(
            _replace(_original, positions="untied"), TUPE, "positions meet positions, contents meet contents"
        ),
        "tupe-r": Preset(
            _replace(_original, positions="untied_relative"), TUPE, "the same with a number for each distance"
        ),
        "rotary": Preset(
            _replace(_original, positions="rotary"), ROFORMER, "queries and keys rotated by their positions"
        ),
        "alibi": Preset(_replace(_original, positions="alibi"), ALIBI, "scores that fall with the distance"),
        "t5-relative": Preset(_replace(_original, positions="t5"), T5, "a learned score for each distance"),
    }
)


def preset(name: str) -> Architecture:
    """The architecture of that name. Raises ConfigError, with the nearest names, where there is none."""
    if name not in PRESETS:
        raise ConfigError(unknown("preset", name, list(PRESETS)))
    return PRESETS[name].architecture


def difference(architecture: Architecture, base: Architecture = _vaswani) -> dict[str, tuple[object, object]]:
    """Fields in which two architectures differ: name -> (value in `base`, value here)."""
    pairs = ((f.name, getattr(base, f.name), getattr(architecture, f.name)) for f in dataclasses.fields(architecture))
    return {name: (ours, theirs) for name, ours, theirs in pairs if ours != theirs}
