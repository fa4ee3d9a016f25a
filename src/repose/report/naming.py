"""Name the runs, systems and corpora of a report, and find the system that the others are tested against.

Names are unique: equal ones are distinguished by settings, by files, or by the folders they are in. A run counts once,
even if it is found several times.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from repose.config.experiment import CorpusConfig
from repose.data.corpora import prepared_home
from repose.data.language import UNKNOWN
from repose.grids.file import CORPUS, SYSTEM
from repose.grids.grid import folder_label
from repose.model.presets import exact_preset_name
from repose.report.run_set import ReportRun
from repose.system.errors import ConfigError, unknown

_DRAWN_BY = ("train", "valid", "test", "splits", "held_out_valid", "held_out_test", "split_seed")
"""Settings that decide which sentences are held out."""
_SEED = r"(?:[-_. ]?seed|(?:^|[-_. ])s)[-_. ]?\d+"
_NUMBER = rf"(?:{_SEED}|(?:[-_. ]?(?:run|trial))?[-_. ]?\d+)"
_NOT_TWINS_BY = (SYSTEM, CORPUS)
"""Axes on which twins may have different labels. Each corpus is tested separately anyway."""


# Corpora: two of the same name that are measured on different sentences get different names.


def corpus_name(corpus: CorpusConfig) -> str:
    """Return a corpus's name with its languages: "multi30k de-en". A corpus of files is named after their folder."""
    first = Path(corpus.train[0]) if corpus.train else Path("corpus")
    return _with_languages(corpus.name or first.parent.name or first.name, corpus)


def _file_name(corpus: CorpusConfig) -> str:
    """Return the name of the folder with that of the files: "recipes/food" for recipes/food.pt and recipes/food.en."""
    paths = [Path(path) for path in corpus.train]
    alike = len({path.stem for path in paths}) == 1
    name = paths[0].stem if alike else " ".join(path.name for path in paths)
    return _with_languages("/".join(filter(None, [paths[0].parent.name, name])), corpus)


def _with_languages(name: str, corpus: CorpusConfig) -> str:
    languages = dict.fromkeys((corpus.src_lang, corpus.tgt_lang))  # a text in one language names it once
    return name if UNKNOWN in languages else f"{name} {'-'.join(languages)}"


def set_of(corpus: CorpusConfig, split: str) -> tuple[Any, ...]:
    """Return what decides which sentences a set has, as far as settings tell: its own files, or how it is drawn."""
    own: tuple[Any, ...] = getattr(corpus, split)
    if own and corpus.splits == "given":
        return own
    return corpus.name, *(getattr(corpus, name) for name in _DRAWN_BY)


def corpora_apart(runs: Sequence[ReportRun]) -> list[ReportRun]:
    """Return the runs with a different corpus name for each set that they are measured on. If a corpus has several such
    sets, its files, and other settings that differ, become part of the names."""
    firsts: list[ReportRun] = []  # the first run of each set
    places = []
    for run in runs:
        known = (i for i, first in enumerate(firsts) if _same_name(first, run) and _same_set(first, run))
        places.append(next(known, len(firsts)))
        firsts += [run] * (places[-1] == len(firsts))
    names = _corpus_names(firsts)
    return [replace(run, corpus=names[place]) for run, place in zip(runs, places, strict=True)]


def _same_name(one: ReportRun, other: ReportRun) -> bool:
    """Return whether two runs' corpora have the same name, apart from languages that only one of them states."""
    if one.corpus == other.corpus:
        return True
    corpora = [run.experiment.corpus for run in (one, other)]
    is_usual = all(run.corpus == corpus_name(corpus) for run, corpus in zip((one, other), corpora, strict=True))
    bare = [corpus_name(replace(corpus, src_lang=UNKNOWN, tgt_lang=UNKNOWN)) for corpus in corpora]
    return is_usual and bare[0] == bare[1] and bare[0] in (one.corpus, other.corpus)


def _same_set(one: ReportRun, other: ReportRun) -> bool:
    """Return whether two runs are measured on the same sentences: by their digest if it is recorded and the same, by
    texts if the cache has both, else by settings."""
    if one.config.data and one.config.data == other.config.data:
        return True
    if one.split == other.split == "test" and one.config.test is not None and one.config.test == other.config.test:
        return True
    texts = [_digest(prepared_home() / run.config.data / "text", run.split) for run in (one, other)]
    if None not in texts:
        return texts[0] == texts[1]
    sets = [set_of(run.experiment.corpus, run.split) for run in (one, other)]
    return sets[0] == sets[1]


@lru_cache(maxsize=1024)
def _digest(folder: Path, split: str) -> str | None:
    """Return a digest of both sides of a prepared set; None if it is not there."""
    try:
        texts = [(folder / f"{split}.{side}").read_bytes() for side in ("src", "tgt")]
    except OSError:
        return None
    return " ".join(hashlib.sha256(text).hexdigest() for text in texts)


def _corpus_names(firsts: Sequence[ReportRun]) -> list[str]:
    """Return a unique name for each set: the corpus's name, else that of its files, with the settings that differ or a
    number if needed."""
    corpora = [run.experiment.corpus for run in firsts]
    names = [run.corpus for run in firsts]
    for i in _shared(names):
        is_folder = corpora[i].train and firsts[i].corpus == corpus_name(corpora[i])
        names[i] = _file_name(corpora[i]) if is_folder else names[i]
    alike = {i: [corpora[j] for j, name in enumerate(names) if name == names[i]] for i in _shared(names)}
    for i, others in alike.items():
        names[i] = ", ".join([names[i], *_corpus_differences(corpora[i], others, firsts[i].split)])
    return _numbered(names)


def _shared(names: Sequence[str]) -> list[int]:
    """Return the positions of names that occur more than once."""
    return [i for i, name in enumerate(names) if names.count(name) > 1]


def _numbered(names: Sequence[str]) -> list[str]:
    """Return the names, with a number after those that occur more than once."""
    return [f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name for i, name in enumerate(names)]


def _corpus_differences(corpus: CorpusConfig, others: Sequence[CorpusConfig], split: str) -> list[str]:
    """Return those of a corpus's settings that decide which sentences the set has and differ among `others`."""
    found = []
    have_files = all(getattr(other, split) and other.splits == "given" for other in others)
    for name in (split,) if have_files else _DRAWN_BY:
        if len(values := {getattr(other, name) for other in others}) > 1:
            value = getattr(corpus, name)
            shown = _files(value, values) if isinstance(value, tuple) else str(value).replace("None", "none")
            found.append(f"{name} {shown or 'none'}")
    return found


def _files(paths: tuple[str, ...], among: Iterable[tuple[str, ...]]) -> str:
    """Return the names of files, with their folders only if other files of `among` have the same names."""
    short = {value: tuple(Path(path).name for path in value) for value in among}
    return " ".join(short[paths] if len(set(short.values())) == len(short) else paths)


# Runs and systems: one report may have those of several grids and folders.


def grouped(runs: Sequence[ReportRun]) -> list[ReportRun]:
    """Group runs without a grid: runs of one corpus with equal settings, seed aside, are a group. Groups of the same
    name on several corpora are one system."""
    names: dict[Path, str] = {}
    for corpus in dict.fromkeys(run.corpus for run in runs):
        groups: dict[str, list[ReportRun]] = {}
        for run in runs:
            if run.corpus == corpus:
                groups.setdefault(_settings(run), []).append(run)
        for name, group in zip(_group_names(list(groups.values())), groups.values(), strict=True):
            names |= {run.folder: name for run in group}
    return [replace(run, group=names[run.folder]) for run in runs]


def _group_names(groups: Sequence[Sequence[ReportRun]]) -> list[str]:
    """Return the name of each group: its preset, else its first folder without the seed. If two names would be equal,
    use the folders for all groups, and keep the seed in those that would still be equal."""
    runs = [group[0] for group in groups]
    folders = [folder_name(group[0].folder, several=len({run.seed for run in group}) > 1) for group in groups]
    names = [preset_of(run) or name for run, name in zip(runs, folders, strict=True)]
    if len(set(names)) == len(names):
        return names
    names = [name if folders.count(name) == 1 else run.folder.name for name, run in zip(folders, runs, strict=True)]
    return _apart(names, [run.place for run in runs])


def _apart(names: Sequence[str], places: Sequence[Path]) -> list[str]:
    """Return the names, with their folders added to those that occur more than once."""
    found = list(names)
    for i in _shared(names):
        alike = [place for name, place in zip(names, places, strict=True) if name == names[i]]
        found[i] = f"{_known(places[i], alike)}/{names[i]}"
    return _numbered(found)


def _known(place: Path, places: Iterable[Path]) -> str:
    """Return as many of a folder's last path components as distinguish it from the others."""
    others = set(places) - {place}
    tails = (place.parts[-depth:] for depth in range(1, len(place.parts)))
    known = next((tail for tail in tails if all(other.parts[-len(tail) :] != tail for other in others)), None)
    return place.as_posix().rstrip("/") if known is None else "/".join(known)


def preset_of(run: ReportRun) -> str | None:
    """Return the preset that equals a run's architecture in every field, as systems may differ only in dropout; or
    None."""
    return exact_preset_name(run.experiment.architecture)


def folder_name(folder: Path, *, several: bool) -> str:
    """Return a folder's name without its seed: `original` for original-seed2 and original/seed-2, and for original_2
    too if it is one of several seeds."""
    whole = folder.absolute()
    if re.fullmatch(_NUMBER, whole.name, re.IGNORECASE):
        return whole.parent.name
    return re.sub((_NUMBER if several else _SEED) + "$", "", whole.name, flags=re.IGNORECASE) or whole.name


def once(runs: Sequence[ReportRun], problems: list[str]) -> list[ReportRun]:
    """Return each training once: of two directories of the same run, the finished one, else the first.

    Runs with different test sets are different trainings, although their ids are equal. So are runs with different
    numbers of workers, which only the scores record. A duplicate that has another name is reported as left out.
    """
    found: dict[str, list[ReportRun]] = {}
    for run in runs:
        found.setdefault(_identity(run), []).append(run)
    kept: list[ReportRun] = []
    joined: dict[tuple[str, str, str], str] = {}  # group, corpus, settings of a dropped run -> its new group
    for alike in found.values():
        done = {run.run_id: run for run in reversed(alike) if run.done}
        own = [run for run in alike if done.get(run.run_id) is run] or alike[:1]
        for run in alike:
            twin = done.get(run.run_id, own[0])
            if run.name != twin.name:
                problems.append(f"{run.name} is left out: it is the same run as {twin.name} ({twin.run_id}).")
                joined.setdefault((run.group, run.corpus, _settings(run)), twin.group)
        kept += own
    return [replace(run, group=joined.get((run.group, run.corpus, _settings(run)), run.group)) for run in kept]


def _identity(run: ReportRun) -> str:
    """Return what two directories of the same run, decoded in the same way, have in common."""
    identity = run.config.run_id or str(run.folder)
    return json.dumps([identity, run.config.data, run.seed, asdict(run.experiment.decoding)])


def systems_apart(runs: Sequence[ReportRun]) -> list[ReportRun]:
    """Return the runs with the grid's folder added to the name of each system whose settings differ between grids.
    Systems with the same settings in several grids get the first grid's folder."""
    runs = _written_alike(runs)
    places: dict[tuple[str, str], dict[str, Path]] = {}
    for run in runs:
        places.setdefault((run.group, run.corpus), {}).setdefault(_settings(run), run.place)
    unlike = {group for (group, _), found in places.items() if len(set(found.values())) > 1}

    def apart(run: ReportRun) -> ReportRun:
        if run.group not in unlike:
            return run
        every = [place for (group, _), found in places.items() if group == run.group for place in found.values()]
        return replace(run, group=f"{_known(places[run.group, run.corpus][_settings(run)], every)}/{run.group}")

    return list(map(apart, runs))


def _written_alike(runs: Sequence[ReportRun]) -> list[ReportRun]:
    """Return the runs with a `schedule_width` of d_token replaced by None, which means d_token, if another run of the
    group has None: a cell may be a run of another grid that wrote the number out."""
    none = {run.group for run in runs if run.experiment.training.schedule_width is None}
    alike = []
    for run in runs:
        experiment = run.experiment
        if run.group in none and experiment.training.schedule_width == experiment.architecture.d_token:
            training = replace(experiment.training, schedule_width=None)
            run = replace(run, experiment=replace(experiment, training=training))
        alike.append(run)
    return alike


def _settings(run: ReportRun) -> str:
    """Return all settings but the seed, as JSON."""
    experiment = asdict(run.experiment)
    return json.dumps({**experiment, "training": {**experiment["training"], "seed": None}}, sort_keys=True)


def names_apart(runs: Sequence[ReportRun]) -> list[ReportRun]:
    """Return the runs, with their folders added to names that occur more than once."""
    names = _apart([run.name for run in runs], [run.place for run in runs])
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]


# The baseline. If the grid varies something besides the system, the baseline is a system of several groups. Each other
# group is then tested against its twin among them: the group with the same labels, apart from the system.


def find_baseline(
    requested: str | None,
    named: str | None,
    before: Sequence[ReportRun],
    runs: Sequence[ReportRun],
    problems: list[str],
) -> tuple[str | None, Mapping[str, str]]:
    """Return the group that is the baseline, as `requested` or else as a grid has `named` it, and the twins of other
    groups if the baseline is a system of several groups.

    `before`: the runs with the names that their groups had before they were renamed, or merged with groups of other
    grids. Raises ConfigError if the requested name is unknown or ambiguous.
    """
    wanted = named if requested is None else requested
    groups = list(dict.fromkeys(run.group for run in runs))
    if wanted is None or wanted in groups:
        return wanted, {}
    now = {run.folder: run.group for run in runs}
    twin = {_identity(run): run.group for run in reversed(runs)}  # of a run that is left out because it is there twice
    renamed = [(run, group) for run in before if (group := now.get(run.folder) or twin.get(_identity(run)))]
    found = list(dict.fromkeys(group for run, group in renamed if wanted in _names_of_group(run)))
    of_system = list(dict.fromkeys(group for run, group in renamed if wanted == run.labels.get(SYSTEM)))
    twins = _twins(of_system, runs)
    if requested is not None and len(found) > 1 and not twins:
        raise ConfigError(f"--baseline {requested} may be {' or '.join(found)}: name one of them")
    if found:
        return found[0], twins
    if requested is not None:
        raise ConfigError(unknown("system", requested, groups))
    problems.append(f"The grid's baseline {named} has no run here: the first system stands in for it.")
    return None, {}


def _names_of_group(run: ReportRun) -> list[str | None]:
    """Return the names by which users may call a run's group: in full, with the corpus in front, or only its system."""
    names = (run.group, f"{run.corpus}-{run.group}")
    return [*names, *map(folder_label, names), run.labels.get(SYSTEM)]


def _twins(bases: Sequence[str], runs: Sequence[ReportRun]) -> dict[str, str]:
    """Map each group outside `bases` to its twin: the base that has the same labels, system and corpus aside. Empty
    unless there are several bases."""
    if len(bases) < 2:
        return {}
    labels: dict[str, dict[str, str]] = {}
    for run in runs:
        labels[run.group] = {axis: label for axis, label in run.labels.items() if axis not in _NOT_TWINS_BY}
    if len({frozenset(labels[base].items()) for base in bases}) < len(bases):
        return {}  # the bases differ in something without a label, such as their grid
    others = [group for group in labels if group not in bases]
    return {group: base for group in others for base in bases if labels[base] == labels[group]}
