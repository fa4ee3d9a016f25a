"""The axes and sizes of a Transformer, with the rules that say which of them go together.

One skeleton, a few axes: each paper changes one *place* of the same encoder-decoder, so each place is a
field with named values, and a model is a value of this small frozen dataclass. The mathematics of each
value stands where it is computed, in the file named after the axis.
"""

from collections.abc import Iterator
from dataclasses import fields
from typing import Annotated, Literal, assert_never, get_args

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from repose.system.device import memory_bytes
from repose.system.errors import ConfigError

PositionsWithRows = Literal["interleaved", "halves", "printed", "learned", "policy"]
"""Those that `combine` adds to the token embeddings, or sets beside them."""
PositionsKind = Literal[PositionsWithRows, "rotary", "alibi", "t5", "untied", "untied_relative", "none"]
POSITIONS_WITH_ROWS = get_args(PositionsWithRows)
Combine = Literal["add", "concat"]
EmbeddingScale = Literal["sqrt", "inverse_sqrt", "none"]
TokenNormKind = Literal["none", "sentence", "prefix", "vocabulary", "running"]
TokenNormSite = Literal["tokens", "after_concat", "every_layer"]
Values = Literal["hidden", "tokens", "both"]
InputNorm = Literal["none", "sum", "separate"]
Norm = Literal["post", "pre", "both"]
NormKind = Literal["layer", "rms", "scale"]
FeedForwardKind = Literal["relu", "gelu", "geglu", "swiglu"]
QkNormKind = Literal["none", "l2"]
SelfScore = Literal["keep", "zero", "exclude", "zero_weights"]
ScoreResidual = Literal["none", "previous_layer"]
Initialisation = Literal["xavier", "keras", "fairseq", "kaiming"]
TieEmbeddings = Literal["all", "output", "none"]

GATED = ("geglu", "swiglu")
"""Feed-forward layers with a gate."""

Count = Annotated[int, Field(ge=1, le=1 << 53)]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
Layers = Annotated[int, Field(ge=1, le=1000)]
MaxLength = Annotated[int, Field(ge=1, le=1 << 20)]

MAX_PARAMETERS = 10**11
"""More are a slip of the keyboard, or meant to exhaust memory."""
BYTES_PER_WEIGHT = 4
"""fp32."""


@dataclass(frozen=True, kw_only=True, repr=False, config=ConfigDict(extra="forbid", use_attribute_docstrings=True))
class Architecture:
    """An encoder-decoder Transformer. The defaults are Vaswani et al. (2017), base.

    Making one raises pydantic.ValidationError (a ValueError) for an unknown value or field, and with one sentence for a
    combination of values that makes no sense.
    """

    positions: PositionsKind = "interleaved"
    """How the model knows the order of its tokens. Rows that `combine` adds: `interleaved` sinusoids; `halves`: sines,
    then cosines, as in the TensorFlow tutorial; `printed`: arXiv 2410.04731 eq. 3 to the letter; `learned` with the
    model; `policy`: learned before it by reinforcement (arXiv 2310.10930). `rotary`: queries and keys are turned
    (RoFormer, arXiv 2104.09864). `alibi`: scores fall with the distance (arXiv 2108.12409). `t5`: a learned number for
    each distance (arXiv 1910.10683). `untied`, `untied_relative`: positions have scores of their own (TUPE-A and
    TUPE-R, arXiv 2006.15595). Or `none`."""
    combine: Combine = "add"
    """How token embeddings and positions meet: `add`, or `concat`, side by side (arXiv 2410.04731)."""
    embedding_scale: EmbeddingScale = "sqrt"
    """Factor on token embeddings: `sqrt` of d_token; `inverse_sqrt`, divided by it (arXiv 2410.04731 eq. 18, 28 as
    printed); or `none`."""
    encoder_token_norm: TokenNormKind = "none"
    """Normalisation of the source token embeddings' columns: `none`; or over the `sentence` (arXiv 2410.04731), the
    `prefix` up to each token, the `vocabulary`, or the tokens of earlier updates (`running`)."""
    decoder_token_norm: TokenNormKind = "none"
    """The same for the target: `none`, `sentence`, which looks ahead and cannot translate, `prefix`, `vocabulary` or
    `running`."""
    token_norm_site: TokenNormSite = "tokens"
    """Where token norm applies: to the `tokens`; `after_concat`, to the concatenation; or before `every_layer`, to its
    token half."""
    values: Values = "hidden"
    """What attention's values are made of: the layer's `hidden` states; the normalised embeddings of the `tokens`
    (arXiv 2410.04731); or `both`: hidden states in the first half of the heads and token embeddings in the second."""
    input_norm: InputNorm = "none"
    """`none`; a layer norm of the `sum` of tokens and positions; or one of each, `separate` (full layer normalization,
    arXiv 2310.10930)."""
    norm: Norm = "post"
    """The norm: `post`, after the residual sum (Vaswani); `pre`, before the sublayer (Pre-LN, arXiv 2002.04745; a final
    norm per stack); or `both`."""
    norm_kind: NormKind = "layer"
    """What `norm` is: `layer` norm; `rms`, the row divided by its root mean square (RMSNorm, arXiv 1910.07467); or
    `scale`, the row brought to one learned length (ScaleNorm, arXiv 1910.05895). Others stay layer norms."""
    residual_weight: Positive = 1.0
    """k of the weighted residual connection F(x) + kx (arXiv 2310.10930: 4)."""
    feed_forward: FeedForwardKind = "relu"
    """What the feed-forward layer does with its hidden numbers: `relu`; `gelu`; or a product with those of a further
    projection, its gate, after GELU (`geglu`) or after Swish (`swiglu`, both arXiv 2002.05202). A gate costs half as
    many weights again: with a `d_ff` of two thirds, there are as many as without."""
    qk_norm: QkNormKind = "none"
    """Queries and keys: `none`, as they are; or `l2`, each of length 1 with a learned scale of their products (QK-norm,
    arXiv 2010.04245)."""
    self_score: SelfScore = "keep"
    """A token's attention to its own position: `keep` it; `zero` its score before the softmax (zero-masked
    self-attention, arXiv 2310.10930); `exclude` it; or `zero_weights`, its weight after the softmax."""
    score_residual: ScoreResidual = "none"
    """Whether attention adds the scores of the `previous_layer` to its own (RealFormer, arXiv 2012.11747), or
    `none`."""
    attention_window: Annotated[int, Field(ge=2)] | None = None
    """r of restricted self-attention (Vaswani, section 4): a token attends to r/2 tokens on each side ("none": to
    all)."""
    initialisation: Initialisation = "xavier"
    """How initial values are drawn: `xavier`; `keras`, as the TensorFlow tutorial's layers do; `fairseq`, as that
    toolkit does; or `kaiming`."""
    tie_embeddings: TieEmbeddings = "all"
    """What is one matrix: both embedding tables and the output projection (`all`); that of the target and the output
    projection (`output`); or `none`."""

    d_token: Count = 512
    """Width of a token embedding (m in arXiv 2410.04731). d_model is this, or twice this with `concat`."""
    num_heads: Count = 8
    """Attention heads."""
    num_kv_heads: Count | None = None
    """Heads of keys and values, each read by as many heads of queries as any other: grouped-query attention (arXiv
    2305.13245), or with one, multi-query attention (arXiv 1911.02150; "none": each head has its own)."""
    head_dim: Count = 64
    """Width of a head's queries, keys and values (r and q in arXiv 2410.04731)."""
    d_ff: Count = 2048
    """Hidden width of the feed-forward layers."""
    num_encoder_layers: Layers = 6
    """Encoder layers."""
    num_decoder_layers: Layers = 6
    """Decoder layers."""
    max_length: MaxLength = 1024
    """Longest sequence in tokens, START and END included; longer input is an error."""

    dropout: Probability = 0.1
    """Dropout on the embeddings' sum (or concatenation) and on the feed-forward layer's output."""
    attention_dropout: Probability = 0.0
    """Dropout on the attention weights."""
    attention_output_dropout: Probability = 0.1
    """Dropout on the attention sublayer's output, before the residual sum."""
    value_dropout: Probability = 0.0
    """Dropout on the token embeddings that attention takes values from; without effect where `values` are hidden
    states, which come from what `dropout` leaves of the embeddings."""
    attention_bias: bool = False
    """Whether the query, key, value and output projections of attention have biases."""
    output_bias: bool = False
    """Whether the projection to the target vocabulary has a bias."""
    norm_eps: Positive = 1e-5
    """Epsilon of layer normalization and of RMSNorm; the least length that ScaleNorm divides by."""
    token_norm_eps: Positive = 1e-6
    """Epsilon of token normalization."""

    def __repr__(self) -> str:
        """Whatever differs from Vaswani's base."""
        changed = ((f.name, getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) != f.default)
        return f"Architecture({', '.join(f'{name}={value!r}' for name, value in changed)})"

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise ConfigError(problem)
        self.check_size(max_bytes=BYTES_PER_WEIGHT * MAX_PARAMETERS)

    @property
    def has_dropout(self) -> bool:
        """Whether any dropout acts."""
        of_values = self.values != "hidden" and self.value_dropout
        return bool(self.dropout or self.attention_dropout or self.attention_output_dropout or of_values)

    @property
    def d_model(self) -> int:
        """Width of the residual stream."""
        match self.combine:
            case "add":
                return self.d_token
            case "concat":
                return 2 * self.d_token
            case _:
                assert_never(self.combine)

    @property
    def d_value(self) -> int:
        """Width of what attention's value projections read; with `both`, of what they read together."""
        match self.values:
            case "hidden":
                return self.d_model
            case "tokens":
                return self.d_token
            case "both":
                return self.d_model + self.d_token
            case _:
                assert_never(self.values)

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def looks_ahead(self) -> bool:
        """Whether a target position can see later target tokens: true of `sentence` in the decoder, and of it alone."""
        return self.decoder_token_norm == "sentence"

    def num_weights(self, *vocab_sizes: int) -> int:
        """About how many numbers a translation model holds, by arithmetic alone: to a few percent, but a tenth too many
        for a small model with fixed positions. A model of one stack holds fewer.

        `vocab_sizes`: of the source and the target; one for tasks with a single vocabulary; none: without embeddings.
        """
        inner, shared = self.num_heads * self.head_dim, self.kv_heads * self.head_dim
        values = shared * self.d_value // (2 if self.values == "both" else 1)
        attention = (2 * inner + shared) * self.d_model + values
        feed_forward = (3 if self.feed_forward in GATED else 2) * self.d_model * self.d_ff
        layers = self.num_encoder_layers * (attention + feed_forward)
        layers += self.num_decoder_layers * (2 * attention + feed_forward)
        sizes = vocab_sizes[:1] if self.tie_embeddings == "all" else vocab_sizes
        output = vocab_sizes[-1] * self.d_model if vocab_sizes and self.tie_embeddings == "none" else 0
        return layers + sum(sizes) * self.d_token + output + 2 * self._position_weights(inner)

    def _position_weights(self, inner: int) -> int:
        """Of one stack's positions; `inner`: the width of all heads."""
        match self.positions:
            case "rotary":
                return self.max_length * self.head_dim
            case "untied" | "untied_relative":
                return self.max_length * self.d_model + 2 * self.d_model * inner
            case "interleaved" | "halves" | "printed" | "learned" | "policy":
                return self.max_length * self.d_token
            case "alibi" | "t5" | "none":
                return 0
            case _:
                assert_never(self.positions)

    def check_size(self, *vocab_sizes: int, max_bytes: int | None = None) -> None:
        """Raises ConfigError where the weights alone would take more than `max_bytes` (default: this machine's memory).

        Before anything is allocated: a size of a billion would otherwise end in an error of torch, or with a machine
        that stands still.
        """
        max_bytes = memory_bytes() if max_bytes is None else max_bytes
        weights = self.num_weights(*vocab_sizes)
        if max_bytes is not None and (size := BYTES_PER_WEIGHT * weights) > max_bytes:
            raise ConfigError(
                f"this architecture has about {weights:.1e} weights, which take {size / 1e9:,.0f} GB of at most "
                f"{max_bytes / 1e9:,.0f}: lower its d_token, d_ff, heads, layers or max_length, or the vocabulary"
            )


DROPOUTS = tuple(field.name for field in fields(Architecture) if field.name.endswith("dropout"))
"""The fields that act in training alone."""


def _problems(a: Architecture) -> Iterator[str]:
    """Sentences about combinations that make no sense; the one place that refuses them."""
    kinds = {a.encoder_token_norm, a.decoder_token_norm} - {"none"}
    without_rows = a.positions not in POSITIONS_WITH_ROWS
    if a.combine == "concat" and a.tie_embeddings != "none":
        yield (
            f"tie_embeddings = {a.tie_embeddings!r} needs d_token = d_model, which combine = 'concat' doubles: "
            "set tie_embeddings = 'none' or combine = 'add'"
        )
    if a.combine == "concat" and without_rows:
        yield (
            f"combine = 'concat' has nothing to set beside the tokens when positions = {a.positions!r}: "
            "choose another positions value or combine = 'add'"
        )
    if a.norm == "pre" and a.residual_weight != 1.0:
        yield (
            f"residual_weight = {a.residual_weight} with norm = 'pre' multiplies the residual stream at every sublayer "
            "without bound: set residual_weight = 1.0 or norm = 'post'"
        )
    if a.input_norm == "separate" and without_rows:
        yield (
            f"input_norm = 'separate' brings tokens and positions to one scale, and positions = {a.positions!r} is no "
            "second: set input_norm = 'sum' or choose another positions value"
        )
    if a.token_norm_site != "tokens" and a.combine != "concat":
        yield (
            f"token_norm_site = {a.token_norm_site!r} speaks of the token half of a concatenation: "
            "set combine = 'concat' or token_norm_site = 'tokens'"
        )
    if a.token_norm_site != "tokens" and "vocabulary" in kinds:
        yield (
            f"token_norm_site = {a.token_norm_site!r} normalises no rows of the embedding table, so 'vocabulary' "
            "statistics do not apply: use 'sentence', 'prefix' or 'running', or token_norm_site = 'tokens'"
        )
    if a.token_norm_site != "tokens" and not kinds:
        yield (
            f"token_norm_site = {a.token_norm_site!r} has nothing to place while both token norms are 'none': "
            "set encoder_token_norm or decoder_token_norm, or token_norm_site = 'tokens'"
        )
    if a.num_heads % a.kv_heads > 0:
        yield (
            f"num_kv_heads = {a.num_kv_heads} does not divide num_heads = {a.num_heads}: each head of keys is read by "
            "as many heads of queries as any other"
        )
    if a.values == "both" and a.num_heads % 2 == 1:
        yield f"values = 'both' divides the heads into halves and needs an even num_heads, not {a.num_heads}"
    elif a.values == "both" and a.kv_heads % 2 == 1:
        yield f"values = 'both' divides the heads into halves and needs an even num_kv_heads, not {a.num_kv_heads}"
    if a.positions in ("interleaved", "halves", "printed") and a.d_token % 2 == 1:
        yield f"positions = {a.positions!r} pairs sines with cosines and needs an even d_token, not {a.d_token}"
    if a.positions == "rotary" and a.head_dim % 2 == 1:
        yield f"positions = 'rotary' turns pairs of numbers and needs an even head_dim, not {a.head_dim}"
