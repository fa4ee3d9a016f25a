"""What the corpora of a report are called: two of one name that are measured on other sentences are told apart."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repose.config.experiment import CorpusConfig
from repose.data.corpora import prepared_home
from repose.data.language import UNKNOWN

if TYPE_CHECKING:
    from repose.report.collect import ReportRun

_DRAWN_BY = ("train", "valid", "test", "splits", "held_out_valid", "held_out_test", "split_seed")
"""Settings that say which sentences are held out."""


def corpus_name(corpus: CorpusConfig) -> str:
    """What a corpus is called, with its languages: "multi30k de-en"; files go by their folder."""
    first = Path(corpus.train[0]) if corpus.train else Path("corpus")
    return _with_languages(corpus.name or first.parent.name or first.name, corpus)


def _file_name(corpus: CorpusConfig) -> str:
    """The name of its folder with that of its files: "recipes/food" of recipes/food.pt and recipes/food.en."""
    paths = [Path(path) for path in corpus.train]
    alike = len({path.stem for path in paths}) == 1
    name = paths[0].stem if alike else " ".join(path.name for path in paths)
    return _with_languages("/".join(filter(None, [paths[0].parent.name, name])), corpus)


def _with_languages(name: str, corpus: CorpusConfig) -> str:
    languages = [] if UNKNOWN in (corpus.src_lang, corpus.tgt_lang) else [f"{corpus.src_lang}-{corpus.tgt_lang}"]
    return " ".join([name, *languages])


def set_of(corpus: CorpusConfig, split: str) -> tuple[Any, ...]:
    """What decides which sentences a set has, as far as the settings know: its own files, or how it is drawn."""
    own: tuple[Any, ...] = getattr(corpus, split)
    if own and corpus.splits == "given":
        return own
    return corpus.name, *(getattr(corpus, name) for name in _DRAWN_BY)


def told_apart(runs: Sequence["ReportRun"]) -> list["ReportRun"]:
    """The runs; a corpus of which several sets are measured on goes by its files, and by what else differs."""
    firsts: list[ReportRun] = []  # the first run of each set
    places = []
    for run in runs:
        known = (i for i, first in enumerate(firsts) if _same_name(first, run) and _same_set(first, run))
        places.append(next(known, len(firsts)))
        firsts += [run] * (places[-1] == len(firsts))
    names = _names(firsts)
    return [replace(run, corpus=names[place]) for run, place in zip(runs, places, strict=True)]


def _same_name(one: "ReportRun", other: "ReportRun") -> bool:
    """Whether two runs' corpora are called alike, but for languages that only one of them says."""
    if one.corpus == other.corpus:
        return True
    corpora = [run.experiment.corpus for run in (one, other)]
    is_usual = all(run.corpus == corpus_name(corpus) for run, corpus in zip((one, other), corpora, strict=True))
    bare = [corpus_name(replace(corpus, src_lang=UNKNOWN, tgt_lang=UNKNOWN)) for corpus in corpora]
    return is_usual and bare[0] == bare[1] and bare[0] in (one.corpus, other.corpus)


def _same_set(one: "ReportRun", other: "ReportRun") -> bool:
    """Whether two runs are measured on the same sentences: by the texts where the cache has both, else by settings."""
    if one.config.data and one.config.data == other.config.data:
        return True
    texts = [_digest(prepared_home() / run.config.data / "text", run.split) for run in (one, other)]
    if None not in texts:
        return texts[0] == texts[1]
    sets = [set_of(run.experiment.corpus, run.split) for run in (one, other)]
    return sets[0] == sets[1]


@lru_cache(maxsize=1024)
def _digest(folder: Path, split: str) -> str | None:
    """Of both sides of a prepared set; None where it is not there."""
    try:
        texts = [(folder / f"{split}.{side}").read_bytes() for side in ("src", "tgt")]
    except OSError:
        return None
    return " ".join(hashlib.sha256(text).hexdigest() for text in texts)


def _names(firsts: Sequence["ReportRun"]) -> list[str]:
    """A name for each set, no two alike: the corpus's, its files', with the settings that differ, or a number."""
    corpora = [run.experiment.corpus for run in firsts]
    names = [run.corpus for run in firsts]
    for i in _shared(names):
        is_folder = corpora[i].train and firsts[i].corpus == corpus_name(corpora[i])
        names[i] = _file_name(corpora[i]) if is_folder else names[i]
    alike = {i: [corpora[j] for j, name in enumerate(names) if name == names[i]] for i in _shared(names)}
    for i, others in alike.items():
        names[i] = ", ".join([names[i], *_differences(corpora[i], others, firsts[i].split)])
    shared = _shared(names)
    return [f"{name} ({names[: i + 1].count(name)})" if i in shared else name for i, name in enumerate(names)]


def _shared(names: Sequence[str]) -> list[int]:
    """Places of names that stand there twice."""
    return [i for i, name in enumerate(names) if names.count(name) > 1]


def _differences(corpus: CorpusConfig, others: Sequence[CorpusConfig], split: str) -> list[str]:
    """Settings in which corpora differ, as one of them has them: those that decide which sentences the set has."""
    found = []
    have_files = all(getattr(other, split) and other.splits == "given" for other in others)
    for name in (split,) if have_files else _DRAWN_BY:
        if len({getattr(other, name) for other in others}) > 1:
            value = getattr(corpus, name)
            shown = " ".join(value) if isinstance(value, tuple) else str(value).replace("None", "none")
            found.append(f"{name} {shown or 'none'}")
    return found
