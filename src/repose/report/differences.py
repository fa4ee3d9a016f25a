"""How runs differ in more than their seed, and systems in more than their architecture."""

import json
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict
from itertools import combinations

from repose.config.run_id import measuring, settings_in_id
from repose.model.architecture import DROPOUTS
from repose.report.content import listed
from repose.report.run_set import ReportRun
from repose.report.tables_settings import Name, chosen_search, joined, shown_settings
from repose.saved_run.records import EndReason
from repose.tasks.corpus import SET_NAMES

_OF_TRAINING = (*DROPOUTS, "initialisation")
"""Fields of the architecture that are settings of its training."""
_OF_BEAM = frozenset({"beam_size", "length_penalty"})
"""Settings of decoding that greedy search does not have."""


def unlike(runs: Sequence[ReportRun]) -> list[str]:
    """Return sentences about systems whose runs differ in more than their seed, or share a seed."""
    seen: dict[tuple[str, str, int], ReportRun] = {}
    problems = []
    for run in runs:
        other = seen.setdefault((run.group, run.corpus, run.seed), run)
        if other is not run:
            problems.append(
                f"{other.name} and {run.name} are both seed {run.seed} of {run.group} on {run.corpus}, but differ in "
                "data, settings or numerics (their run ids differ): the mean is over both."
            )
    methods: dict[tuple[str, str], dict[str, ReportRun]] = {}
    for run in runs:
        methods.setdefault((run.group, run.corpus), {}).setdefault(method_of(run), run)
    for (group, corpus), found in methods.items():
        if len(found) > 1 and len({run.seed for run in found.values()}) > 1:
            one, other, *_ = found.values()
            problems.append(
                f"{one.name} and {other.name} of {group} on {corpus} differ in more than their seed: the mean and the "
                "deviation are over both."
            )
    return problems


def method_of(run: ReportRun) -> str:
    """Return, as JSON, all settings that affect the trained weights, except the seed and the corpus's files."""
    settings = settings_in_id(run.experiment)
    settings["training"]["seed"] = None
    return json.dumps(settings, sort_keys=True)


def same_systems(runs: Sequence[ReportRun]) -> list[str]:
    """Return a sentence for each two systems on a corpus that differ in nothing but their seeds, by settings, data and
    code."""
    found: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        found.setdefault((run.group, run.corpus), set()).add(_all_but_seed(run))
    return [
        f"{one} and {other} have the same settings on {corpus}, seeds aside: what differs between them is chance."
        for (one, corpus), (other, its) in combinations(found, 2)
        if corpus == its and len(found[one, corpus]) == 1 and found[one, corpus] == found[other, its]
    ]


def _all_but_seed(run: ReportRun) -> str:
    """Return, as JSON, all that decides a run's scores, except the seed: its length, too, if that was the machine's."""
    versions = [run.config.versions.get(name) for name in ("repose", "code")]
    decoding, length = asdict(run.experiment.decoding), run.records.updates if _is_cut_short(run) else None
    return json.dumps([method_of(run), decoding, dict(run.config.digests), versions, length], sort_keys=True)


def _is_cut_short(run: ReportRun) -> bool:
    """Return whether a training ended by the clock, so that a faster machine would have trained longer."""
    return run.records.end is not None and run.records.end.reason is EndReason.HOURS


def differences(runs: Sequence[ReportRun], others: Sequence[ReportRun], *, greedy: bool = False) -> str:
    """Return how two systems differ in training pairs and in settings of tokenizer, training and decoding, seeds aside;
    "" if they do not. Dropout and initialisation are included, because they only matter in training. `greedy`: the
    systems are compared by greedy search, to which settings of a beam do not matter.

    An example is "learning_rate 0.008 against 0.004". The architecture is then not the only reason for different
    scores.
    """
    one, other = ([_settings_as_they_act(run) for run in side] for side in (runs, others))
    names = dict.fromkeys(name for found in (*one, *other) for name in found)
    cut_short = any(map(_is_cut_short, (*runs, *others)))
    ignored = frozenset.intersection(*(measuring(run.experiment.training) for run in (*runs, *others)))
    ignored |= {"seed"} if cut_short else {"seed", "max_hours"}
    ignored |= _OF_BEAM if greedy else frozenset()
    parts = _other_pairs(runs, others)
    for section, name in names:
        of_training = section in ("tokenizer", "training", "decoding") or name in _OF_TRAINING
        if not of_training or name in ignored or (section, name) == ("decoding", "batch_size"):
            continue
        mine, theirs = ({found.get((section, name)) for found in side} for side in (one, other))
        if mine != theirs:
            parts.append(f"{name} {joined(mine)} against {joined(theirs)}")
    return ", ".join(parts)


def _other_pairs(runs: Sequence[ReportRun], others: Sequence[ReportRun]) -> list[str]:
    """Return phrases on how the training data of two systems differs."""
    parts = []
    for name, what in (("also", "further corpora"), ("synthetic", "synthetic pairs")):
        mine, theirs = ({bool(getattr(run.experiment.corpus, name)) for run in side} for side in (runs, others))
        if mine != theirs:
            parts.append(f"{what} {joined(mine)} against {joined(theirs)}")
    if not parts and any(_read_others(one, other) for one in runs for other in others):
        parts.append("other training pairs")
    return parts


def _read_others(one: ReportRun, other: ReportRun) -> bool:
    """Return whether two runs on a corpus, with the same tokenizers, were trained on different pairs."""
    mine, theirs = one.config.digests, other.config.digests
    alike = all(mine.get(side) == theirs.get(side) for side in ("src", "tgt"))
    return alike and mine.get("train") != theirs.get("train")


def confounded(runs: Sequence[ReportRun], others: Sequence[ReportRun], *, greedy: bool = False) -> str:
    """Return a note if a system's training settings differ from those of the system it is compared with; else "".
    `greedy`: as in `differences`."""
    found = differences(runs, others, greedy=greedy)
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
    which = listed([f"{code} (such as {name})" for code, name in found.items()])
    return [
        f"repose/model or repose/training was changed between these runs, started with {which}: if the change "
        "alters what they compute, train the others again."
    ]


def unlike_searches(runs: Sequence[ReportRun], *, greedy: bool = False) -> list[str]:
    """Return a sentence for each corpus whose runs were not decoded alike because their settings left open how.
    `greedy`: as in `differences`."""
    sentences = []
    for corpus in dict.fromkeys(run.corpus for run in runs):
        here = [run for run in runs if run.corpus == corpus]
        found = [chosen for run in here if (chosen := chosen_search(run))]
        tuned = any(run.experiment.training.init_from is not None for run in here)
        names = dict.fromkeys(name for chosen in found for name in chosen if not (greedy and name[1] in _OF_BEAM))
        values = {name: {chosen.get(name) for chosen in found} for name in names}
        unlike = [f"{name[1]} {joined(values[name])}" for name in names if len(values[name]) > 1]
        if unlike:
            where = f"on its validation set{' or that of the model it started from' * tuned}"
            sentences.append(
                f"On {corpus}, runs were not decoded alike: how to search was chosen for each by itself, {where} "
                f"({', '.join(unlike).replace(' (chosen)', '')})."
            )
    return sentences


def trained_on_their_test(runs: Sequence[ReportRun]) -> list[str]:
    """Return sentences about systems that were trained on many sources of the set that they are scored on, as by an
    initial model with other data."""
    found: dict[tuple[str, str, int, int], dict[str, None]] = {}
    for run in runs:
        if number := (run.scores or {}).get("trained_on"):
            of = (run.scores or {})["num_sentences"]
            found.setdefault((run.corpus, run.split, number, of), {})[run.group] = None
    return [
        f"On {corpus}, {listed(list(systems))} {'was' if len(systems) == 1 else 'were'} trained on {number:,} of the "
        f"{of:,} {SET_NAMES[split]} sources, so {'its' if len(systems) == 1 else 'their'} scores may be too high."
        for (corpus, split, number, of), systems in found.items()
    ]


def without_source(systems: Iterable[tuple[str, Sequence[ReportRun]]], *, alone: bool = False) -> str:
    """Say which systems hardly read their source, and so, unless it is `alone`, are no base to measure others by; "" if
    all read it."""
    found = [name for name, runs in systems if all(run.hardly_reads for run in runs)]
    if not found:
        return ""
    of, them = ("its", "it") if len(found) == 1 else ("their", "them")
    so = "" if alone else f", so differences from {them} are no effect sizes"
    return f"{listed(found)} hardly used {of} source (`source_gain`){so}."


def _settings_as_they_act(run: ReportRun) -> dict[Name, Hashable]:
    """Return the settings with the effective `schedule_width`: None stands for d_token, and schedules other than noam
    have no width. What a run chose on its validation set is no setting."""
    training, architecture = run.experiment.training, run.experiment.architecture
    width = (training.schedule_width or architecture.d_token) if training.schedule == "noam" else None
    asked: dict[Name, Hashable] = {}
    if chosen_search(run):
        forbids = run.experiment.decoding.no_repeat_ngram_size or None
        asked = {("decoding", "length_penalty"): "chosen", ("decoding", "no_repeat_ngram_size"): forbids}
    return shown_settings(run) | {("training", "schedule_width"): width} | asked
