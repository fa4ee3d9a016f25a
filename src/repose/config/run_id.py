"""The digest of what can move a training's numbers, shown with every score. Imports no torch."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from repose.config.experiment import Experiment, TrainingConfig
from repose.model.architecture import Architecture

NUMERICS_VERSION = 2
"""Raised by one whenever the same settings begin to give other numbers (see the CHANGELOG's "Numerics")."""

MEASURING = ("bleu_every_epochs", "bleu_sentences", "bleu_mean_over")
"""Fields of `training` that measure a training without moving it."""

NOT_IN_RUN_ID = frozenset({"save_every_minutes", *MEASURING, "init_from", "position_table"})
"""Fields of `training` that cannot move a training's numbers, or (the two files) only through a digest."""

ALWAYS_IN_RUN_ID = frozenset(
    {"positions", "combine", "embedding_scale", "encoder_token_norm", "decoder_token_norm", "token_norm_site"}
    | {"values", "norm", "residual_weight", "initialisation", "tie_embeddings", "d_token", "num_heads", "head_dim"}
    | {"d_ff", "num_encoder_layers", "num_decoder_layers", "max_length", "dropout", "attention_dropout"}
    | {"attention_output_dropout", "attention_bias", "output_bias", "norm_eps", "token_norm_eps"}
    | {"batching", "batch_size", "accumulation", "max_src_tokens", "max_tgt_tokens", "long_pairs", "epochs"}
    | {"updates", "max_hours", "seed", "schedule", "learning_rate", "warmup_updates", "warmup_share"}
    | {"schedule_width", "plateau_factor", "plateau_patience", "adam_beta1", "adam_beta2", "adam_eps"}
    | {"weight_decay", "weight_decay_kind", "label_smoothing", "clip_norm", "precision", "patience", "keep"}
    | {"average_checkpoints", "validate_every_updates"}
)
"""Fields of `architecture` and `training` that the first runs had. One that was added since, which they did without, is
in the id only where it is not at its default: a new axis leaves all ids as they were."""


def run_id(experiment: Experiment, digests: Mapping[str, str]) -> str:
    """Twelve hex digits that name what can move the numbers of a training.

    `digests` are those of the prepared data, of the tokenizers and, where `init_from` is set, of the initial
    weights under the key "init_from". They stand for the sections `corpus` and `tokenizer`, whose settings act
    only through the files they lead to, but for the tag of synthetic pairs, which corpora are mixed by. `architecture`
    and `training` (seed included) enter field by field, with `NUMERICS_VERSION`. `decoding` does not: it moves scores,
    not the trained weights, and is shown beside them; but for what `best_by` = "chrf" goes by.
    """
    assert experiment.training.init_from is None or "init_from" in digests, "initial weights need their digest"
    content = {"numerics": NUMERICS_VERSION, "digests": dict(digests), **settings_in_id(experiment)}
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def measuring(training: TrainingConfig) -> frozenset[str]:
    """Fields of `training` that do not move it: they say when it is saved, and when and how it is measured."""
    kept_by_loss = training.best_by == "loss"
    return frozenset({"save_every_minutes", *MEASURING} - (set() if kept_by_loss else {"bleu_sentences"}))


def differing_settings(one: Experiment, other: Experiment) -> list[str]:
    """Names of the settings ("training.seed") that make two runs of two experiments, apart from digests."""
    both, names = (settings_in_id(one), settings_in_id(other)), dict[str, None]()
    for section in both[0]:
        theirs, ours = (settings[section] for settings in both)
        for name in {**theirs, **ours}:
            if theirs.get(name) != ours.get(name):
                names[_STANDS_FOR.get(name, f"{section}.{name}")] = None
    return [name for name in names if setting(one, name) != setting(other, name)]


def setting(experiment: Experiment, name: str) -> Any:
    """The value of a setting such as "training.seed"."""
    section, _, field = name.partition(".")
    return getattr(getattr(experiment, section), field)


_STANDS_FOR = {
    "max_extra_tokens": "decoding.max_extra_tokens",
    "position_bias": "architecture.positions",
    "mixture": "corpus.synthetic_tag",
}
"""Which setting a name in `settings_in_id` is of, where it is not of its section or no field of it."""


def settings_in_id(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Settings of `architecture` and `training` as they are in the run's id."""
    training, architecture = _of_run(experiment.training), _of_run(experiment.architecture)
    if experiment.training.best_by != "loss":  # then what is translated, and how far, decides which weights are kept
        training["bleu_sentences"] = experiment.training.bleu_sentences
        training["max_extra_tokens"] = experiment.decoding.max_extra_tokens
    # "none" is another way to write d_token.
    training["schedule_width"] = training["schedule_width"] or experiment.architecture.d_token
    if architecture["positions"] in ("untied", "untied_relative"):  # once an axis of its own
        architecture |= {"positions": "none", "position_bias": architecture["positions"]}
    if experiment.training.corpus_temperature != 1 or experiment.training.upsample != 1:
        # Which pairs are read once an epoch, and that the length of the schedule is counted epoch by epoch.
        training["mixture"] = [2, experiment.corpus.synthetic_tag if experiment.corpus.synthetic else None]
    return {"architecture": architecture, "training": training}


def id_of_numbers(identity: str, workers: Sequence[int]) -> str:
    """A run's id as models and scores show it: with the numbers of workers that shared its batches, in order, where
    those were not one ("0123456789ab-w2"), since each worker draws dropout masks of its own (docs/decisions/025)."""
    return identity if set(workers) <= {1} else f"{identity}-w{'+'.join(map(str, workers))}"


def id_of_settings(shown: str) -> str:
    """The run's own id in what `id_of_numbers` made."""
    return shown.partition("-")[0]


def _of_run(section: Architecture | TrainingConfig) -> dict[str, Any]:
    """The fields of a section that are in the run's id."""
    defaults = {f.name: f.default for f in dataclasses.fields(section)}
    return {
        name: value
        for name, value in dataclasses.asdict(section).items()
        if name not in NOT_IN_RUN_ID and (name in ALWAYS_IN_RUN_ID or value != defaults[name])
    }
