"""The digest of everything that can change a training's numbers, shown with every score. Imports no torch."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from repose.config.experiment import Experiment, TrainingConfig
from repose.model.architecture import Architecture

NUMERICS_VERSION = 2
"""Increased by one whenever the same settings begin to give other numbers (see the CHANGELOG's "Numerics")."""

MEASURING = ("bleu_every_epochs", "bleu_sentences", "bleu_mean_over")
"""Fields of `training` that affect how a training is measured, but not the training itself."""

NOT_IN_RUN_ID = frozenset({"save_every_minutes", *MEASURING, "init_from", "position_table"})
"""Fields of `training` that cannot change a training's numbers, or (the two files) only through their digests."""

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
"""Fields of `architecture` and `training` that existed from the first version on. A field that was added later is in
the id only if it is not at its default, so that a new setting leaves all ids as they were."""


def run_id(experiment: Experiment, digests: Mapping[str, str]) -> str:
    """Return twelve hex digits that identify everything that can change the numbers of a training.

    `digests` are those of the prepared data, of the tokenizers and, if `init_from` is set, of the initial weights under
    the key "init_from". They stand for the sections `corpus` and `tokenizer`, whose settings act only through the
    resulting files. The exception is the tag of synthetic pairs, which matters when corpora are mixed. `architecture`
    and `training` (seed included) enter field by field, with `NUMERICS_VERSION`. `decoding` does not enter, since it
    changes only scores, and is shown with them; the exception is what `best_by` = "chrf" depends on.
    """
    assert experiment.training.init_from is None or "init_from" in digests, "initial weights need their digest"
    content = {"numerics": NUMERICS_VERSION, "digests": dict(digests), **settings_in_id(experiment)}
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def measuring(training: TrainingConfig) -> frozenset[str]:
    """Return the fields of `training` that do not change it: when it is saved, and when and how it is measured."""
    fields = frozenset({"save_every_minutes", *MEASURING})
    return fields if training.best_by == "loss" else fields - {"bleu_sentences"}


def differing_settings(one: Experiment, other: Experiment) -> list[str]:
    """Return the names of the settings ("training.seed") by which two runs differ, apart from digests."""
    of_one, of_other = settings_in_id(one), settings_in_id(other)
    names = [
        _STANDS_FOR.get(name, f"{section}.{name}")
        for section in of_one
        for name in of_one[section] | of_other[section]
        if of_one[section].get(name) != of_other[section].get(name)
    ]
    return [name for name in dict.fromkeys(names) if setting(one, name) != setting(other, name)]


def setting(experiment: Experiment, name: str) -> Any:
    """Return the value of a setting such as "training.seed"."""
    section, _, field = name.partition(".")
    return getattr(getattr(experiment, section), field)


_STANDS_FOR = {
    "max_extra_tokens": "decoding.max_extra_tokens",
    "position_bias": "architecture.positions",
    "mixture": "corpus.synthetic_tag",
}
"""The setting behind a name in `settings_in_id`, if the name is not a field of its section."""


def settings_in_id(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Return the settings of `architecture` and `training` that enter the run's id."""
    training, architecture = _of_run(experiment.training), _of_run(experiment.architecture)
    if experiment.training.best_by != "loss":  # then translations decide which weights are kept
        training["bleu_sentences"] = experiment.training.bleu_sentences
        training["max_extra_tokens"] = experiment.decoding.max_extra_tokens
    # "none" means d_token.
    training["schedule_width"] = training["schedule_width"] or experiment.architecture.d_token
    if architecture["positions"] in ("untied", "untied_relative"):  # a field of its own in earlier versions
        architecture |= {"positions": "none", "position_bias": architecture["positions"]}
    if experiment.training.corpus_temperature != 1 or experiment.training.upsample != 1:
        # Changes which pairs an epoch reads, and that the schedule's length is counted epoch by epoch.
        training["mixture"] = [2, experiment.corpus.synthetic_tag if experiment.corpus.synthetic else None]
    return {"architecture": architecture, "training": training}


def id_of_numbers(identity: str, workers: Sequence[int]) -> str:
    """Return a run's id as models and scores show it, with the numbers of workers that shared its batches, in order.

    The numbers are left out if there was always one worker. Otherwise they matter ("0123456789ab-w2"), since each
    worker draws its own dropout masks (docs/decisions/025).
    """
    return identity if set(workers) <= {1} else f"{identity}-w{'+'.join(map(str, workers))}"


def id_of_settings(shown: str) -> str:
    """Return the run's own id from the result of `id_of_numbers`."""
    return shown.partition("-")[0]


def _of_run(section: Architecture | TrainingConfig) -> dict[str, Any]:
    """Return the fields of a section that are in the run's id."""
    defaults = {f.name: f.default for f in dataclasses.fields(section)}
    return {
        name: value
        for name, value in dataclasses.asdict(section).items()
        if name not in NOT_IN_RUN_ID and (name in ALWAYS_IN_RUN_ID or value != defaults[name])
    }
