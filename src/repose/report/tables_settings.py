"""Tables of the settings of runs (those in common, and those of each system), and of findings in their corpora."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, fields
from typing import TypeAlias

from repose.config.experiment import TASK_SETTINGS, DecodingConfig
from repose.config.run_id import measuring
from repose.data import advice
from repose.data.findings import Finding, known_findings
from repose.model.architecture import DROPOUTS
from repose.report.collect import ReportRun, RunSet
from repose.report.content import Cell, Column, Table
from repose.report.tables import captioned
from repose.runs.records import EndReason

Name: TypeAlias = tuple[str, str]
"""Section and name of a setting."""
ALL = "all"
_TOPICS = {
    "corpus": ("splits", "held_out_valid", "held_out_test", "pretokenized"),
    "batches": ("batching", "batch_size", "accumulation", "max_src_tokens", "max_tgt_tokens", "long_pairs"),
    "length of the training": ("epochs", "updates", "max_hours", "patience", "keep", "best_by", "average_checkpoints"),
    "learning rate": ("schedule", "learning_rate", "warmup_updates", "warmup_share", "schedule_width"),
    "optimiser": ("adam_beta1", "adam_beta2", "adam_eps", "weight_decay", "weight_decay_kind", "clip_norm"),
    "regularisation": (
        *("label_smoothing", *DROPOUTS, "r_drop", "bpe_dropout", "word_dropout"),
        *("corpus_temperature", "upsample"),
    ),
    "precision": ("precision",),
}
_TOPIC_OF = {name: topic for topic, names in _TOPICS.items() for name in names}
_RARE = (
    *("value_dropout", "r_drop", "bpe_dropout", "word_dropout", "best_by", "single_digits", "no_repeat_ngram_size"),
    *("corpus_temperature", "upsample"),
)
"""Settings that few trainings use. At their default they are off and shown as none."""
_OF_TRANSLATIONS = (
    *("bleu_every_epochs", "bleu_sentences", "bleu_mean_over"),
    *(field.name for field in fields(DecodingConfig) if field.name != "batch_size"),
)
"""Settings of training and decoding that control how sentences are translated."""
_OF_TRAINING = (*DROPOUTS, "initialisation")
"""Fields of the architecture that are settings of its training."""


def settings_table(runs: RunSet) -> Table:
    """Return the table of settings: common ones under "all", the sizes of each corpus under its name, then each
    system's own.

    A setting that is off (none) appears only if other systems have it on. The table covers finished runs, or all runs
    if none has finished.
    """
    of = [run for run in runs.runs if run.done] or list(runs.runs)
    settings = {run.folder: _settings(run) for run in of}
    names = list(dict.fromkeys(name for found in settings.values() for name in found))
    common = {name for name in names if len({settings[run.folder].get(name) for run in of}) == 1}
    lines = _by_topic(ALL, [(name, _shown(settings[of[0].folder].get(name))) for name in names if name in common])
    lines += _data(of)
    for group in dict.fromkeys(run.group for run in of):
        own = [run for run in of if run.group == group]
        lines += _by_topic(
            group,
            [
                (name, _values([(r.corpus, settings[r.folder].get(name)) for r in own]))
                for name in names
                if any(name in settings[r.folder] for r in own)
            ],
            keep=set(names) - common,
        )
    columns = [Column(name, numeric=False) for name in ("of", "what", "settings")]
    return captioned("settings", columns, [[Cell(text) for text in line] for line in lines])


def check_table(runs: RunSet) -> Table | None:
    """Return the table of findings in each corpus before training; None if there are none."""
    found: dict[tuple[str, Finding], None] = {}
    for run in runs.runs:
        data = run.records.data
        found |= dict.fromkeys((run.corpus, one) for one in known_findings(data.findings if data else ()))
    if not found:
        return None
    columns = [Column(name, numeric=False) for name in ("corpus", "found", "where")]
    rows = [(Cell(corpus), Cell(advice.what(one)), Cell(advice.where(one))) for corpus, one in found]
    return captioned("corpus-check", columns, rows)


def differences(runs: Sequence[ReportRun], others: Sequence[ReportRun]) -> str:
    """Return how two systems differ in training pairs and in settings of tokenizer, training and decoding, seeds aside;
    "" if they do not. Dropout and initialisation are included, because they only matter in training.

    An example is "learning_rate 0.008 against 0.004". The architecture is then not the only reason for different
    scores.
    """
    one, other = ([_settings_as_they_act(run) for run in side] for side in (runs, others))
    names = dict.fromkeys(name for found in (*one, *other) for name in found)
    cut_short = any(run.records.end and run.records.end.reason is EndReason.HOURS for run in (*runs, *others))
    not_the_method = frozenset.intersection(*(measuring(run.experiment.training) for run in (*runs, *others))) | {
        "seed"
    }
    parts = _other_pairs(runs, others)
    for section, name in names:
        of_training = section in ("tokenizer", "training", "decoding") or name in _OF_TRAINING
        if not of_training or name in not_the_method:
            continue
        if (section, name) == ("decoding", "batch_size") or (name == "max_hours" and not cut_short):
            continue
        mine, theirs = ({found.get((section, name)) for found in side} for side in (one, other))
        if mine != theirs:
            parts.append(f"{name} {_joined(mine)} against {_joined(theirs)}")
    return ", ".join(parts)


def _other_pairs(runs: Sequence[ReportRun], others: Sequence[ReportRun]) -> list[str]:
    """Return phrases on how the training data of two systems differs."""
    parts = []
    for name, what in (("also", "further corpora"), ("synthetic", "synthetic pairs")):
        mine: set[Hashable] = {bool(getattr(run.experiment.corpus, name)) for run in runs}
        theirs: set[Hashable] = {bool(getattr(run.experiment.corpus, name)) for run in others}
        if mine != theirs:
            parts.append(f"{what} {_joined(mine)} against {_joined(theirs)}")
    if not parts and any(_read_others(one, other) for one in runs for other in others):
        parts.append("other training pairs")
    return parts


def _read_others(one: ReportRun, other: ReportRun) -> bool:
    """Return whether two runs on the same corpus, with the same tokenizers, were trained on different pairs."""
    mine, theirs = one.config.digests, other.config.digests
    alike = all(mine.get(side) == theirs.get(side) for side in ("src", "tgt"))
    return one.corpus == other.corpus and alike and mine.get("train") != theirs.get("train")


def confounded(runs: Sequence[ReportRun], others: Sequence[ReportRun]) -> str:
    """Return a note if a system's training settings differ from those of the system it is compared with; else ""."""
    found = differences(runs, others)
    return f"Settings besides the architecture that differ from those of {others[0].group}: {found}." if found else ""


def mixed_code(runs: Sequence[ReportRun]) -> list[str]:
    """Return a sentence if runs on one corpus, by one version of the program, were started with different code. This
    easily goes unnoticed when trying out an equation, because settings do not show it."""
    begun: dict[tuple[str, str], dict[str, str]] = {}
    for run in runs:
        if code := run.config.versions.get("code"):
            begun.setdefault((run.corpus, run.config.versions.get("repose", "")), {}).setdefault(code, run.name)
    found = dict(code for codes in begun.values() if len(codes) > 1 for code in codes.items())
    if not found:
        return []
    unlike = [f"{code} (such as {name})" for code, name in found.items()]
    which = ", ".join(unlike[:-1]) + f" and {unlike[-1]}"
    return [
        f"repose/model or repose/training was changed between these runs, started with {which}: if the change "
        "alters what they compute, train the others again."
    ]


def _settings(run: ReportRun) -> dict[Name, Hashable]:
    """Return all settings to show, and versions; the seed and the corpus's paths are left out."""
    found: dict[Name, Hashable] = {}
    for section, values in (asdict(run.experiment) | {"versions": dict(run.config.versions)}).items():
        for name, value in values.items():
            if (section == "corpus" and name not in _TOPICS["corpus"]) or name == "seed":
                continue
            if name.startswith("plateau_") and run.experiment.training.schedule != "plateau":
                continue
            if name == "warmup_updates" and run.experiment.training.warmup_share is not None:
                continue  # warmup_share replaces it
            if _is_ignored(run, section, name):
                continue
            if name in _RARE and value == getattr(type(getattr(run.experiment, section)), name):
                value = None
            found[section, name] = value if isinstance(value, Hashable) else str(value)
    return found


def _is_ignored(run: ReportRun, section: str, name: str) -> bool:
    """Return whether a run's task does not use a setting."""
    task = TASK_SETTINGS[run.task]
    if section == "architecture":
        return name in task.lacks
    if name in TASK_SETTINGS["translation"].limits and section == "training":
        return name not in task.limits
    of_translation = name in _OF_TRANSLATIONS and section in ("training", "decoding")
    return f"{section}.{name}" in task.refuses or (of_translation and not task.translates)


def _settings_as_they_act(run: ReportRun) -> dict[Name, Hashable]:
    """Return the settings with the effective `schedule_width`: None stands for d_token, and schedules other than noam
    have no width."""
    training, architecture = run.experiment.training, run.experiment.architecture
    width = (training.schedule_width or architecture.d_token) if training.schedule == "noam" else None
    return _settings(run) | {("training", "schedule_width"): width}


def _by_topic(
    of: str, settings: Iterable[tuple[Name, str]], keep: set[Name] | None = None
) -> list[tuple[str, str, str]]:
    """Return a line for each topic, with the settings in `keep`, off or not; without `keep`, with those that are on."""
    topics: dict[str, list[str]] = {}
    for (section, name), shown in settings:
        if shown != _shown(None) if keep is None else (section, name) in keep:
            topic = section if section in ("versions", "decoding") else _TOPIC_OF.get(name, section)
            topics.setdefault(topic, []).append(f"{name} {shown}")
    return [(of, topic, ", ".join(parts)) for topic, parts in topics.items()]


def _data(runs: Sequence[ReportRun]) -> list[tuple[str, str, str]]:
    """Return lines on how each corpus was prepared; systems with a different preparation have lines of their own."""
    lines = []
    for corpus in dict.fromkeys(run.corpus for run in runs):
        prepared: dict[str, list[str]] = {}
        for run in (run for run in runs if run.corpus == corpus):
            groups = prepared.setdefault("; ".join(run.config.report), [])
            groups += [run.group] if run.group not in groups else []
        for text, groups in prepared.items():
            who = "" if len(prepared) == 1 else f" of {', '.join(groups)}"
            lines += [(corpus, f"data{who}", text)] if text else []
    return lines


def _values(found: Sequence[tuple[str, Hashable]]) -> str:
    """Format a value, or the value on each corpus if they differ."""
    if len({value for _, value in found}) == 1:
        return _shown(found[0][1])
    corpora = dict.fromkeys(corpus for corpus, _ in found)
    return "; ".join(
        f"{_joined({value for where, value in found if where == corpus})} on {corpus}" for corpus in corpora
    )


def _joined(values: set[Hashable]) -> str:
    return " or ".join(sorted(_shown(value) for value in values))


def _shown(value: Hashable) -> str:
    """Format a setting as in an experiment file, but without quotes."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
