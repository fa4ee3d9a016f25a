"""Tables of the settings of runs (those in common, and those of each system), and of findings in their corpora."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import TypeAlias

from repose.config.experiment import TASK_SETTINGS, DecodingConfig
from repose.data import advice
from repose.data.findings import Finding, known_findings
from repose.model.architecture import DROPOUTS
from repose.report.content import Cell, Column, Table
from repose.report.run_set import ReportRun, RunSet
from repose.report.tables import captioned

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


def settings_table(runs: RunSet) -> Table:
    """Return the table of settings: common ones under "all", the sizes of each corpus under its name, then each
    system's own.

    A setting that is off (none) appears only if other systems have it on. The table covers finished runs, or all runs
    if none has finished.
    """
    of = [run for run in runs.runs if run.done] or list(runs.runs)
    settings = {run.folder: shown_settings(run) for run in of}
    names = list(dict.fromkeys(name for found in settings.values() for name in found))
    common = {name for name in names if len({settings[run.folder].get(name) for run in of}) == 1}
    shared = {name: _shown(settings[of[0].folder].get(name)) for name in names if name in common}
    lines = _by_topic(ALL, {name: shown for name, shown in shared.items() if shown != _shown(None)})
    lines += _data(of)
    for group in dict.fromkeys(run.group for run in of):
        own = [run for run in of if run.group == group]
        unlike = [name for name in names if name not in common and any(name in settings[run.folder] for run in own)]
        found = {name: _values([(run.corpus, settings[run.folder].get(name)) for run in own]) for name in unlike}
        lines += _by_topic(group, found)
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


def shown_settings(run: ReportRun) -> dict[Name, Hashable]:
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
    return found | chosen_search(run)


def chosen_search(run: ReportRun) -> dict[Name, Hashable]:
    """Return how a run was decoded where that was chosen at the end of its training (`length_penalty = "none"`): on the
    validation set, or as the model that it started from was. Empty where its settings say all."""
    if not run.translates or run.experiment.decoding.length_penalty is not None:
        return {}
    how, is_chosen = (run.scores or {}).get("decoding"), "decoding_chosen" in (run.scores or {})
    if not isinstance(how, Mapping):
        return {("decoding", "length_penalty"): "chosen"}
    by = "chosen" if is_chosen else "of the model before"
    found: dict[Name, Hashable] = {("decoding", "length_penalty"): f"{_shown(how.get('length_penalty'))} ({by})"}
    if not (is_chosen and run.experiment.decoding.no_repeat_ngram_size):  # which forbids repeats in every search tried
        forbids = how.get("no_repeat_ngram_size")
        found["decoding", "no_repeat_ngram_size"] = f"{_shown(forbids)} ({by})" if forbids else None
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


def _by_topic(of: str, settings: Mapping[Name, str]) -> list[tuple[str, str, str]]:
    """Return a line for each topic, with its settings."""
    topics: dict[str, list[str]] = {}
    for (section, name), shown in settings.items():
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
        f"{joined({value for where, value in found if where == corpus})} on {corpus}" for corpus in corpora
    )


def joined(values: Iterable[Hashable]) -> str:
    """Return the values of a setting as in a sentence: "0.1 or none"."""
    return " or ".join(sorted(_shown(value) for value in values))


def _shown(value: Hashable) -> str:
    """Format a setting as in an experiment file, but without quotes."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
