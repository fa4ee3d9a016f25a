"""An experiment: corpus, tokenizer, architecture, training recipe and decoding, as frozen dataclasses.

Every setting is a field here, with its explanation and unit in the string below it. These strings are shown to users:
`repose.config.file` writes them into experiment files, and reads settings from TOML and the command line.
`repose.config.run_id` makes the digest of everything that can change a training's numbers. This module imports no
torch.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo
from pydantic.dataclasses import dataclass

from repose.data.language import checked_language
from repose.model.architecture import BYTES_PER_WEIGHT, MAX_PARAMETERS, Architecture, Count, Positive, Probability
from repose.model.presets import preset
from repose.system.errors import ConfigError, unknown
from repose.system.token_ids import MOST_TOKENS, check_tag

DEFAULT_PRESET = "reinforced"

MAX_BEAM_SIZE = 1000
"""The rows of a decoding batch grow with it: a wider beam is a typing error or an attempt to exhaust memory."""
MAX_LENGTH_PENALTY = 10.0
"""The largest alpha of GNMT's length penalty: useful values are below 1, and values far above 10 overflow a float."""
MAX_TRAINING_BATCH = 10**7
"""Target tokens, or sentences, of an update: more than any training uses. A larger number is a typing error, too."""
MAX_DECODING_BATCH = 10**5
"""Sentences decoded in one batch; limited for the same reasons."""
MAX_EXTRA_TOKENS = 10**5
"""Tokens that a translation may have beyond the source's length; limited for the same reasons."""
LENGTH_PENALTY = 0.6
"""The value of Wu et al. (2016) and Vaswani et al. (2017)."""
AtLeastZero = Annotated[int, Field(ge=0, le=1 << 53)]
VocabSize = Annotated[int, Field(ge=5, le=MOST_TOKENS)]  # four reserved tokens and one more
Seed = Annotated[int, Field(ge=0, le=2**64 - 1)]  # the seeds that torch's generators accept
Share = Annotated[float, Field(ge=0.0, le=1.0)]
NotNegative = Annotated[float, Field(ge=0.0)]
Files = tuple[str, ...]
ScheduleKind = Literal["noam", "inverse_sqrt", "linear", "constant", "plateau"]
Keep = Literal["last", "best"]


def _pairs_or_share(value: Any, info: ValidationInfo) -> int | float:
    """Raise one ConfigError for a value that is neither; pydantic alone would complain once per type."""
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    least = 0 if info.field_name == "held_out_test" else 1  # validation always needs at least one pair
    if (isinstance(number, int) and number >= least) or (isinstance(number, float) and 0.0 < number < 1.0):
        return number
    raise ConfigError(f"corpus.{info.field_name} should be a number of pairs (500) or a share (0.05), not {value!r}")


PairsOrShare = Annotated[int | float, BeforeValidator(_pairs_or_share)]
"""A number of sentence pairs, or, below 1, a share of all pairs."""


def _language(value: str, info: ValidationInfo) -> str:
    return checked_language(f"corpus.{info.field_name}", value)


Language = Annotated[str, AfterValidator(_language)]


@dataclasses.dataclass(frozen=True)
class TaskSettings:
    """How a task uses the settings of an experiment.

    Everything else about a task is in its module in `repose.tasks`.
    """

    limits: tuple[str, ...]
    """Fields of `training` that limit how much text the task's model reads."""
    translates: bool = False
    """Whether the task reads sentence pairs, with a vocabulary for each language, and writes translations."""
    predicts_tokens: bool = True
    """Whether the model predicts tokens that it also reads, so that a model that looks ahead sees what it should
    predict."""
    lacks: tuple[str, ...] = ()
    """Fields of the architecture that belong to a part that the task's model does not have."""
    refuses: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Settings (`section.field`) that the task does not use, and what to do if one is not at its default."""

    def looks_ahead(self, architecture: Architecture) -> bool:
        """Return whether a model of this architecture sees tokens that it should predict.

        Its losses then mean nothing.
        """
        return architecture.looks_ahead and self.predicts_tokens


_FOR_PAIRS = ("splits", "split_seed", "pretokenized", "src_field", "tgt_field")
_FOR_TRANSLATION = (
    *("corpus.tag", "corpus.also", "corpus.synthetic"),
    *("training.r_drop", "training.corpus_temperature", "training.upsample"),
    *("training.bpe_dropout", "training.word_dropout"),
)
_OF_PAIRS = {
    "corpus.name": "which names sentence pairs: set corpus.train and corpus.valid to files instead",
    "corpus.held_out_valid": "which is for sentence pairs: set corpus.valid to a file instead",
    "corpus.held_out_test": "which is for sentence pairs: set corpus.test to a file instead",
    **{f"corpus.{name}": "which is for sentence pairs: leave it out" for name in _FOR_PAIRS},
    "tokenizer.sharing": "which is for two languages: leave it out",
    "training.bleu_every_epochs": "which needs translations: leave it out",
    "training.best_by": "which needs translations: leave it out",
    **dict.fromkeys(_FOR_TRANSLATION, "which is for translation: leave it out"),
}
TASK_SETTINGS: Mapping[str, TaskSettings] = {
    "translation": TaskSettings(limits=("max_src_tokens", "max_tgt_tokens"), translates=True),
    "language_modelling": TaskSettings(
        limits=("max_tgt_tokens",),
        lacks=("num_encoder_layers", "encoder_token_norm"),
        refuses={**_OF_PAIRS, "training.long_pairs": "which is for sentence pairs: leave it out"},
    ),
    "parsing": TaskSettings(
        limits=("max_src_tokens",),
        lacks=("num_decoder_layers", "decoder_token_norm"),
        predicts_tokens=False,
        refuses={
            **_OF_PAIRS,
            "training.label_smoothing": "which is for tasks that predict tokens: set it to 0",
            "training.long_pairs": "which would cut trees: set training.long_pairs = 'drop'",
        },
    ),
}
"""The settings of every task that can be trained."""


def _known_task(name: str) -> str:
    if name not in TASK_SETTINGS:
        raise ConfigError(unknown("task", name, list(TASK_SETTINGS)))
    return name


TaskName: TypeAlias = Annotated[str, AfterValidator(_known_task)]

_CONFIG = ConfigDict(extra="forbid", use_attribute_docstrings=True)


Tag = Annotated[str, AfterValidator(check_tag)]
"""The name of a token put before the sources of a corpus (`repose.data.tags`)."""


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class FurtherCorpus:
    """A further corpus to train on: pairs of a related language, another domain, or another direction."""

    train: Files
    """Two aligned text files (source, target), one TSV or CSV file, or JSONL, Parquet or TMX files."""
    tag: Tag
    """Tag that the model reads before the sources; the target language if the directions differ."""


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class CorpusConfig:
    """Which sentence pairs to train on, and which to evaluate on."""

    name: str | None = None
    """Name of a corpus that repose fetches or ships, such as "phrasebook"; instead of `train`."""
    train: Files = ()
    """Training pairs: two aligned text files (source, target), one TSV or CSV file, or JSONL, Parquet or TMX files."""
    valid: Files = ()
    """Validation pairs, in the same form."""
    test: Files = ()
    """Test pairs, in the same form."""
    src_lang: Language = "und"
    """Source language (a code such as "pt", or its English name; "und": not stated)."""
    tgt_lang: Language = "und"
    """Target language, likewise."""
    src_field: str = "src"
    """Source sentences: the field in JSONL or Parquet ("translation.pt" if nested), the column of a TSV or CSV file
    (its name or, from 1, its number), or the language in TMX. If nothing has the default name, the field named after
    `src_lang`."""
    tgt_field: str = "tgt"
    """Target sentences, likewise."""
    splits: Literal["given", "merged"] = "given"
    """Use the corpus's own sets, or merge all of them and hold out a random part."""
    held_out_valid: PairsOrShare | None = None
    """Pairs to hold out for validation if there is no `valid`: a number, a share, or "none" for the default."""
    held_out_test: PairsOrShare | None = None
    """Pairs to hold out for testing if there is no `test` ("none": only if there is no `valid` either). 0: no test set,
    not even a published one; the validation set is scored instead."""
    split_seed: AtLeastZero = 0
    """Seed for holding out pairs; not the training's seed, so that all seeds are evaluated on the same sentences."""
    pretokenized: bool = False
    """Whether the text is already tokenised, so that BLEU is also shown with `tok:none` beside 13a."""
    tag: Tag | None = None
    """Tag that the model reads before this corpus's sources, if `also` has others ("none": no tag)."""
    also: tuple[FurtherCorpus, ...] = ()
    """Further corpora to train on, as {train = [files], tag = "pt"}; validation and test sets stay those of this
    corpus."""
    synthetic: Files = ()
    """Training pairs whose sources a model wrote (`repose backtranslate`), in the same form as `train`."""
    synthetic_tag: Tag | None = "BT"
    """Tag that the model reads before those sources ("none": no tag)."""

    def __post_init__(self) -> None:
        if self.name is not None and self.train:
            raise ConfigError(f"corpus.name = {self.name!r} and corpus.train are both set: keep one of them")
        if self.synthetic and self.synthetic_tag in (*(one.tag for one in self.also), self.tag or ""):
            raise ConfigError(f"corpus.synthetic_tag = {self.synthetic_tag!r} is another corpus's tag: choose another")

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that the source vocabulary needs, each once."""
        every = (self.tag, *(one.tag for one in self.also), self.synthetic_tag if self.synthetic else None)
        return tuple(dict.fromkeys(tag for tag in every if tag is not None))


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class TokenizerConfig:
    """How text becomes tokens: tokenizers trained on the training pairs, or ready ones."""

    kind: Literal["bpe", "unigram", "wordpiece", "wordlevel"] = "bpe"
    """Kind of tokenizer; `bpe` and `unigram` are lossless, `wordpiece` is that of arXiv 2410.04731."""
    vocab_size: VocabSize = 8000
    """Maximum tokens per vocabulary, including the four reserved ones."""
    sharing: Literal["separate", "shared"] = "separate"
    """One vocabulary per language, or one for both."""
    lowercase: bool = False
    """Whether to lower-case text; translations are then in lower case, too."""
    strip_accents: bool = False
    """Whether to strip accents; translations then have none, either."""
    single_digits: bool = False
    """Whether each digit is a token of its own, so that numbers can be copied."""
    min_frequency: Count = 1
    """How often a merge or a word must occur to enter the vocabulary."""
    src_file: str | None = None
    """A ready tokenizer.json for the source; the settings above are then ignored."""
    tgt_file: str | None = None
    """A ready tokenizer.json for the target."""

    def __post_init__(self) -> None:
        if (self.src_file is None) != (self.tgt_file is None):
            raise ConfigError("tokenizer.src_file and tokenizer.tgt_file go together: set both or neither")
        if self.src_file is None:
            return
        default = TokenizerConfig()
        for name in UNUSED_WITH_READY_TOKENIZER:
            value = getattr(self, name)
            if value != getattr(default, name):
                raise ConfigError(
                    f"tokenizer.{name} = {value!r} has no effect on the ready tokenizer of tokenizer.src_file: "
                    "remove one of the two settings"
                )
        if self.sharing == "shared" and self.src_file != self.tgt_file:
            raise ConfigError(
                "tokenizer.sharing = 'shared' needs one file as both tokenizer.src_file and tokenizer.tgt_file"
            )


UNUSED_WITH_READY_TOKENIZER = ("kind", "vocab_size", "lowercase", "strip_accents", "single_digits", "min_frequency")


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class TrainingConfig:
    """The recipe: task, batches, limits, learning rate, optimizer, regularisation, and which weights to keep."""

    task: TaskName = "translation"
    """The task: translation; language modelling, with the decoder only; or dependency parsing, with the encoder and a
    biaffine head (docs/tasks.md)."""
    batching: Literal["tokens", "sentences"] = "tokens"
    """Batches of similar lengths within a token budget, or of random sentences (arXiv 2410.04731)."""
    batch_size: Annotated[int, Field(ge=1, le=MAX_TRAINING_BATCH)] = 4096
    """Target tokens, or sentences, per update, over all workers."""
    accumulation: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of parts that a batch is computed in, one after the other, to save memory."""
    max_src_tokens: Annotated[int, Field(ge=3)] = 128
    """Longest source (or sentence to parse), in tokens, including START and END."""
    max_tgt_tokens: Annotated[int, Field(ge=2)] = 128
    """Longest target (or block of text), in decoder positions: tokens including START, or including END."""
    long_pairs: Literal["drop", "truncate"] = "drop"
    """What to do with longer pairs; either way, they are counted."""
    epochs: Count | None = 10
    """Stop after this many passes over the training pairs ("none": no such limit)."""
    updates: Count | None = None
    """Stop after this many optimizer steps."""
    max_hours: Positive | None = None
    """Stop after this many hours, summed over resumes. The first of the three limits ends the training."""
    seed: Seed = 0
    """Seed for initial values, order of batches, and dropout."""
    schedule: ScheduleKind = "noam"
    """Learning rate schedule; `noam` is that of Vaswani et al. (arXiv 2410.04731, eq. 15)."""
    learning_rate: Positive = 1.0
    """Factor of `noam`; peak of the other schedules."""
    warmup_updates: AtLeastZero = 4000
    """Number of updates over which the learning rate rises."""
    warmup_share: Share | None = None
    """Warm-up as a share of all updates, instead of `warmup_updates`."""
    schedule_width: Count | None = None
    """m in eq. 15, for `noam` ("none": d_token)."""
    plateau_factor: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.9
    """Factor on the learning rate when the validation loss stops falling, for `plateau`."""
    plateau_patience: Count = 10
    """Number of validations without a better loss before that factor applies."""
    plateau_threshold: Share = 0.0
    """Share by which a loss must fall below the best one to count as better, for `plateau`."""
    plateau_after_epochs: AtLeastZero = 0
    """Number of first epochs whose validations `plateau` ignores."""
    adam_beta1: Probability = 0.9
    """Adam's decay of the mean gradient."""
    adam_beta2: Probability = 0.98
    """Adam's decay of the mean squared gradient."""
    adam_eps: Positive = 1e-9
    """Adam's epsilon."""
    weight_decay: NotNegative = 0.0
    """Weight decay, on all weights, including biases and gains of norms."""
    weight_decay_kind: Literal["decoupled", "l2"] = "decoupled"
    """Decay of the weights themselves (AdamW), or added to the gradient (L2)."""
    label_smoothing: Probability = 0.0
    """Label smoothing: probability mass spread over the vocabulary."""
    r_drop: NotNegative = 0.0
    """Weight of R-Drop, which makes two passes with different dropout agree (Liang et al. 2021; 0: a single pass)."""
    bpe_dropout: Probability = 0.0
    """Probability of skipping a merge of the tokenizer, drawn anew in each epoch (Provilkov et al. 2020). Words then
    have more pieces, and updates more tokens than `batch_size`."""
    corpus_temperature: Annotated[float, Field(ge=1.0, le=100.0)] = 1.0
    """Temperature T for mixing several corpora, by tag: shares are size^(1/T) (Arivazhagan et al. 2019; 1: as they
    are)."""
    upsample: Annotated[int, Field(ge=1, le=1000)] = 1
    """How often an epoch reads each pair that is not synthetic."""
    word_dropout: Probability = 0.0
    """Word dropout: probability of reading a token as [UNK], on both sides (Sennrich and Zhang 2019)."""
    clip_norm: Positive | None = None
    """Maximum norm of the gradient ("none": no clipping)."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Precision of matrix products; weights and optimizer stay in fp32."""
    patience: Count | None = None
    """Early stopping: number of validations without a better figure before training stops ("none": off)."""
    keep: Keep = "last"
    """Which weights become the model: the last ones, or those of the best validation."""
    best_by: Literal["loss", "chrf"] = "loss"
    """The validation figure that `keep` and `patience` use: loss, or chrF of greedy translations."""
    average_checkpoints: Count = 1
    """Number of validations whose weights are averaged into the model (1: no averaging). With keep = "best", these are
    the best ones, and the single best one becomes the model if it validates better than the average."""
    validate_every_updates: Count | None = None
    """Number of updates between validations ("none": once per epoch)."""
    save_every_minutes: Positive = 10.0
    """Minutes between checkpoints for resuming."""
    bleu_every_epochs: Count | None = None
    """Number of epochs between translations of the validation set ("none": only at the end)."""
    bleu_sentences: Count | None = 1000
    """Number of its sentences to translate, from the first on ("none": all)."""
    bleu_mean_over: Count = 100
    """Number of last translations whose mean BLEU and deviation are added to the scores."""
    init_from: str | None = None
    """Model directory whose weights training starts from."""
    position_table: str | None = None
    """A table of `repose positions learn`, for architecture.positions = "policy" ("none": the one that ships)."""

    def __post_init__(self) -> None:
        if self.epochs is None and self.updates is None and self.max_hours is None:
            raise ConfigError("training would never stop: set training.epochs, training.updates or training.max_hours")
        if self.warmup_share is not None and self.epochs is None and self.updates is None:
            raise ConfigError(
                f"training.warmup_share = {self.warmup_share} is a share of an unknown number of updates: "
                "set training.epochs or training.updates, or use training.warmup_updates"
            )
        if self.schedule != "noam" and self.learning_rate >= 1.0:
            raise ConfigError(
                f"training.learning_rate = {self.learning_rate} is a factor that fits schedule = 'noam' only: "
                f"set a peak such as 5e-4 for schedule = {self.schedule!r}"
            )

    def warmup_warning(self, total_updates: int | None) -> str | None:
        """Return a warning if the training ends before its learning rate reaches the peak, else None."""
        is_shortened = self.schedule == "linear" and (self.updates, self.epochs) != (None, None)
        if self.warmup_share is not None or is_shortened or total_updates is None:
            return None
        if total_updates > self.warmup_updates // 2:
            return None
        return (
            f"the training ends after {total_updates:,} of the {self.warmup_updates:,} updates over which its learning "
            "rate rises (training.warmup_updates), and learns little: try --set training.warmup_share=0.1, or begin "
            "with an experiment file of `repose init`"
        )


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class DecodingConfig:
    """How to decode."""

    beam_size: Annotated[int, Field(ge=1, le=MAX_BEAM_SIZE)] = 4
    """Hypotheses kept per sentence (1: greedy search)."""
    length_penalty: Annotated[float, Field(ge=0.0, le=MAX_LENGTH_PENALTY)] | None = LENGTH_PENALTY
    """Alpha of GNMT's length penalty ((5 + length) / 6)^alpha (Wu et al. 2016, eq. 14). "none": choose it on the
    validation set after training, and also whether to search greedily or to forbid repeating any five tokens."""
    no_repeat_ngram_size: AtLeastZero = 0
    """A translation never repeats a sequence of this many tokens (Paulus et al. 2017; 0: off)."""
    max_extra_tokens: Annotated[int, Field(ge=0, le=MAX_EXTRA_TOKENS)] = 50
    """Maximum number of tokens that a translation may have more than its source (Vaswani et al., section 6.1)."""
    batch_size: Annotated[int, Field(ge=1, le=MAX_DECODING_BATCH)] = 64
    """Sentences to translate at a time; it changes only few translations, and only in int8."""


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class Experiment:
    """Everything that defines a training and its evaluation. The default architecture is `reinforced`.

    Sections may be given as tables: Experiment(corpus={"train": ["corpus.pt", "corpus.en"]}, training={"epochs": 5}).
    Settings that are left out have the papers' values, such as 4,000 updates of warm-up, which are too many for a small
    corpus. `repose.train` with `settings` starts from the recipe for the corpus's size instead. Raises
    pydantic.ValidationError (a ValueError) for an unknown value or field.
    """

    corpus: CorpusConfig = dataclasses.field(default_factory=CorpusConfig)
    tokenizer: TokenizerConfig = dataclasses.field(default_factory=TokenizerConfig)
    architecture: Architecture = dataclasses.field(default_factory=lambda: preset(DEFAULT_PRESET))
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    decoding: DecodingConfig = dataclasses.field(default_factory=DecodingConfig)

    def __post_init__(self) -> None:
        tokenizer, training, task = self.tokenizer, self.training, TASK_SETTINGS[self.training.task]
        for name, what_to_do in task.refuses.items():
            section, _, field = name.partition(".")
            values = getattr(self, section)
            if (value := getattr(values, field)) != getattr(type(values), field):
                raise ConfigError(f"training.task = {training.task!r} has no use for {name} = {value!r}, {what_to_do}")
        if tokenizer.src_file is None:
            vocab_sizes = [tokenizer.vocab_size] * (2 if task.translates else 1)
            self.architecture.check_size(*vocab_sizes, max_bytes=BYTES_PER_WEIGHT * MAX_PARAMETERS)
        if training.upsample > 1 and not (self.corpus.synthetic and self.corpus.synthetic_tag):
            raise ConfigError(
                f"training.upsample = {training.upsample} is for the pairs beside tagged synthetic ones: set "
                "corpus.synthetic and corpus.synthetic_tag, or leave it out"
            )
        if training.r_drop and not (self.architecture.has_dropout or training.word_dropout):
            raise ConfigError(
                f"training.r_drop = {training.r_drop:g} compares two passes, which are the same without dropout: set "
                "architecture.dropout or training.word_dropout, or training.r_drop = 0"
            )
        if training.bpe_dropout and tokenizer.src_file is None and tokenizer.kind != "bpe":
            raise ConfigError(
                f"training.bpe_dropout needs a tokenizer of kind 'bpe', not {tokenizer.kind!r}: "
                "set tokenizer.kind = 'bpe' or training.bpe_dropout = 0"
            )
        if training.corpus_temperature > 1 and not self.corpus.also:
            raise ConfigError(
                f"training.corpus_temperature = {training.corpus_temperature:g} is for several corpora: set "
                "corpus.also, or leave it out"
            )
        if training.corpus_temperature > 1 and self.corpus.synthetic and not self.corpus.synthetic_tag:
            raise ConfigError(
                f"training.corpus_temperature = {training.corpus_temperature:g} tells synthetic pairs from the corpus "
                "by their tag: set corpus.synthetic_tag, or leave one of them out"
            )
        one_file = tokenizer.src_file is not None and tokenizer.src_file == tokenizer.tgt_file
        two_vocabularies = task.translates and tokenizer.sharing == "separate" and not one_file
        if self.architecture.tie_embeddings == "all" and two_vocabularies:
            raise ConfigError(
                "architecture.tie_embeddings = 'all' needs one vocabulary for both languages: "
                "set tokenizer.sharing = 'shared', or tie_embeddings = 'output' or 'none'"
            )
        for name in task.limits:
            if getattr(training, name) > self.architecture.max_length:
                raise ConfigError(
                    f"training.{name} = {getattr(training, name)} is longer than the model reads: raise "
                    f"architecture.max_length ({self.architecture.max_length}) or lower training.{name}"
                )

    @property
    def looks_ahead(self) -> bool:
        """Whether the model sees tokens that it should predict, so that its losses mean nothing."""
        return TASK_SETTINGS[self.training.task].looks_ahead(self.architecture)

    @property
    def positions_warning(self) -> str | None:
        """A warning if the table of the policy's positions is enlarged far beyond what sentences need; None otherwise.

        It warns above the paper's 256 positions (arXiv 2310.10930, 3.3) and above twice the length limits of the
        training.
        """
        a, limits = self.architecture, (self.training.max_src_tokens, self.training.max_tgt_tokens)
        if a.positions != "policy" or a.max_length <= max(256, 2 * max(limits)):
            return None
        return (
            f"the table of architecture.positions = 'policy' is enlarged to {a.max_length:,} positions "
            "(architecture.max_length), so that those of a sentence are nearly alike: set it to 256, as in the paper, "
            "or to what sentences need"
        )


SECTIONS: Mapping[str, Any] = {field.name: field.type for field in dataclasses.fields(Experiment)}
"""The classes above, by the names of their sections."""

PATHS = frozenset(
    {"corpus.train", "corpus.valid", "corpus.test", "corpus.synthetic", "tokenizer.src_file", "tokenizer.tgt_file"}
    | {"training.init_from", "training.position_table"}
)
"""Settings that name files or folders."""
