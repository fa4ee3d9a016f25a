"""A corpus's files, languages, number of pairs, and problems."""

import contextlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import chain, islice, product
from pathlib import Path
from typing import NamedTuple

from repose.config.experiment import TASK_SETTINGS, CorpusConfig, Experiment
from repose.data import corpora
from repose.data.check import check_corpus
from repose.data.findings import IN_TWO_SETS, CorpusCheck, Finding
from repose.data.language import (
    UNKNOWN,
    base_code,
    identify,
    is_language,
    languages_in_names,
    short_code,
    stated_code,
)
from repose.data.pairs import Pair, Row
from repose.data.readers import PairReader, kind_of, languages_of_files, unpacked
from repose.data.tables import BY_LANGUAGES, FIELDS, plain_name
from repose.data.tags import Taught
from repose.system.errors import ConfigError, DataError

SPLITS = ("train", "valid", "test")
PHRASEBOOK = "phrasebook"
_FURTHER = "also"


def files_of(corpus: CorpusConfig) -> dict[str, list[Path]]:
    """Return the files of each split; empty for the phrasebook, which ships with repose."""
    if corpus.name is None:
        if not corpus.train:
            raise ConfigError(
                "there is no corpus: give source and target files, or set corpus.name or corpus.train in the config"
            )
        return {split: [Path(p) for p in getattr(corpus, split)] for split in SPLITS if getattr(corpus, split)}
    if corpus.name == PHRASEBOOK:
        return {}
    folder, languages = corpora.locate(corpus.name), languages_of(corpus)
    files = {}
    for split in SPLITS[: 3 if corpus.test or takes_published_test(corpus) else 2]:
        own = getattr(corpus, split)
        names = [split, *(s.name for s in corpora.describe(corpus.name).splits if s.name.startswith(split))]
        published = ([folder / f"{name}.{language}" for language in languages] for name in names)
        paths = [Path(p) for p in own] or next((p for p in published if all(path.exists() for path in p)), [])
        if paths:
            files[split] = paths
    if "train" not in files:
        raise DataError(
            f"corpus {corpus.name} has no pair {languages[0]}-{languages[1]}: set corpus.src_lang and tgt_lang"
        )
    return files


def takes_published_test(corpus: CorpusConfig) -> bool:
    """Return whether to read a published corpus's test set; not for tuning, which asks for no test set."""
    return corpus.held_out_test != 0 or corpus.splits == "merged"


def languages_of(corpus: CorpusConfig) -> tuple[str, str]:
    """Return source and target language: from the settings, the catalogue, or the names of files."""
    src, tgt = corpus.src_lang, corpus.tgt_lang
    if corpus.name == PHRASEBOOK:
        if (base_code(src), base_code(tgt)) not in product(("pt", UNKNOWN), ("en", UNKNOWN)):
            raise ConfigError("the phrasebook is from Portuguese to English: leave corpus.src_lang and tgt_lang out")
        return "pt", "en"
    if UNKNOWN not in (src, tgt):
        return src, tgt
    if corpus.name is not None:
        pairs = corpora.describe(corpus.name).pairs
        return next((pair for pair in pairs if src in (UNKNOWN, pair[0]) and tgt in (UNKNOWN, pair[1])), (src, tgt))
    files, fields = [Path(path) for path in corpus.train], (corpus.src_field, corpus.tgt_field)
    named = languages_of_files(files, fields, (src, tgt))
    found = named[0] if src == UNKNOWN else src, named[1] if tgt == UNKNOWN else tgt
    return found if found[0] != found[1] else (src, tgt)  # ignore file names that contradict the settings


def with_languages(experiment: Experiment) -> Experiment:
    """Copy the languages that a file of pairs states to the settings, because the file may be moved one day."""
    corpus = experiment.corpus
    if not corpus.train or kind_of(Path(corpus.train[0])) == "text":
        return experiment
    src, tgt = (stated_code(language) or UNKNOWN for language in languages_of(corpus))  # a memory may state any text
    return replace(experiment, corpus=replace(corpus, src_lang=src, tgt_lang=tgt))


def is_pretokenized(corpus: CorpusConfig) -> bool:
    """Return whether the text is already tokenised, according to the settings or the catalogue."""
    named = corpus.name is not None and corpus.name != PHRASEBOOK
    return corpus.pretokenized or (named and corpora.describe(str(corpus.name)).tokenised)


class Part(NamedTuple):
    """A further corpus to train on."""

    name: str
    """Name of its texts in the prepared folder."""
    files: tuple[Path, ...]
    tag: str | None


def parts_of(corpus: CorpusConfig) -> list[Part]:
    """Return the further corpora and the synthetic pairs."""
    found = [Part(f"{_FURTHER}{i}", tuple(map(Path, one.train)), one.tag) for i, one in enumerate(corpus.also)]
    if corpus.synthetic:
        found.append(Part("synthetic", tuple(map(Path, corpus.synthetic)), corpus.synthetic_tag))
    return found


def languages_of_part(corpus: CorpusConfig, files: Sequence[Path]) -> Pair:
    """Return the languages that identify a further corpus's sides: those in its name, or else any source language and
    the main corpus's target language."""
    named = languages_in_names(files, (corpus.src_field, corpus.tgt_field))
    return (UNKNOWN, languages_of(corpus)[1]) if UNKNOWN in named else named


def taught_also(corpus: CorpusConfig) -> list[Taught]:
    """Return tags and languages of the further corpora, according to their file names. By default, the target language
    is that of the main corpus, or the tag in a model of several directions, and the source language is "und"."""
    own, found = languages_of(corpus)[1], []
    for part in parts_of(corpus):
        if part.name.startswith(_FURTHER):
            fields, read_in = (corpus.src_field, corpus.tgt_field), languages_of_part(corpus, part.files)
            src, tgt = languages_of_files(part.files, fields, read_in)
            if tgt == UNKNOWN:
                tgt = part.tag if part.tag is not None and corpus.tag == own else own
            found.append(Taught(part.tag, src, tgt))
    return list(dict.fromkeys(found))


def reader_of(corpus: CorpusConfig, files: Sequence[Path], name: str) -> PairReader:
    """Return a reader for the files of a split or part, by its name. Raises what `PairReader` raises, and ConfigError
    if the source side of a TMX file is unknown, or if the names of text files say that the target comes first."""
    languages = languages_of(corpus)
    if UNKNOWN in languages and name != "train" and kind_of(files[0]) == "tmx":
        raise ConfigError(
            f"{files[0]} is read in the languages of the corpus, which are unknown: name them with {BY_LANGUAGES}"
        )
    fields = corpus.src_field, corpus.tgt_field
    if name in SPLITS[1:]:
        _check_order(files, languages)
    if name != "train":
        fields = fields_for(files, fields, languages)
    if name.startswith(_FURTHER):
        languages = languages_of_part(corpus, files)
    return PairReader(files, src_field=fields[0], tgt_field=fields[1], languages=languages)


def fields_for(files: Sequence[Path], fields: Pair, languages: Pair) -> Pair:
    """Return the field names of further files, given the main files' `fields`: the same if present, or else the
    defaults."""

    def first(fields: Pair) -> Row | None:
        reader = PairReader(files, src_field=fields[0], tgt_field=fields[1], languages=languages)
        with contextlib.suppress(DataError):
            return next(reader.rows(), None)
        return None

    if fields == FIELDS or first(fields) is not None:
        return fields
    row = first(FIELDS)
    is_header = isinstance(row, tuple) and any(plain_name(cell) in map(plain_name, fields) for cell in row)
    return fields if row is None or is_header else FIELDS


def _check_order(files: Sequence[Path], languages: Pair) -> None:
    """Raise ConfigError for two text files whose names say that the target comes first."""
    endings = [unpacked(path).suffix[1:] for path in files if kind_of(path) == "text"]
    codes = [short_code(ending) for ending in endings if is_language(ending)]
    if len(set(codes)) == 2 and codes[::-1] == [*map(short_code, languages)]:
        src, tgt = languages
        raise ConfigError(
            f"{files[0]} and {files[1]} seem to be named the wrong way round, since the corpus is from {src} to {tgt}: "
            "name the source first"
        )


def num_training_pairs(corpus: CorpusConfig, *, at_most: int) -> int | None:
    """Count the usable training pairs, including further and synthetic ones, up to `at_most`.

    None if there are no files: for the corpus that ships with repose, and if none are named. Raises DataError.
    """
    if corpus.name == PHRASEBOOK or not (corpus.name or corpus.train):
        return None
    every = {"train": files_of(corpus)["train"], **{part.name: part.files for part in parts_of(corpus)}}
    pairs = chain.from_iterable(reader_of(corpus, paths, name) for name, paths in every.items())
    return sum(1 for _ in islice(pairs, at_most))


class SideOfCorpus(NamedTuple):
    """Where a corpus's training sources (or targets) come from, and their language."""

    place: str
    """A file, or a column or field of one."""
    language: str
    """Language code; "und" if unknown."""
    is_detected: bool
    """True if neither names nor settings state the language; if it is known, it was detected from the lines."""


def sides_of(corpus: CorpusConfig, detected: Pair) -> tuple[SideOfCorpus, SideOfCorpus]:
    """Return the source and target side of a corpus with files. Raises DataError."""
    places = reader_of(corpus, files_of(corpus)["train"], "train").sides
    src, tgt = (
        SideOfCorpus(place, found if named == UNKNOWN else named, named == UNKNOWN)
        for place, named, found in zip(places, languages_of(corpus), detected, strict=True)
    )
    return src, tgt


def direction_of(experiment: Experiment, check: CorpusCheck) -> str | None:
    """Say in which direction a model trained on these files translates; None without files."""
    corpus = experiment.corpus
    if not TASK_SETTINGS[experiment.training.task].translates or not files_of(corpus):
        return None
    sides = sides_of(corpus, check.detected)
    src, tgt = (
        side.place if side.language == UNKNOWN else f"{side.language} ({side.place}{', detected' * side.is_detected})"
        for side in sides
    )
    said = f"the model learns to translate {src} to {tgt}"
    if not any(side.is_detected for side in sides):
        return said
    codes = ["" if side.language == UNKNOWN else f"={side.language}" for side in sides]
    settings = " and ".join(f"corpus.{name}{code}" for name, code in zip(("src_lang", "tgt_lang"), codes, strict=True))
    return f"{said}; to store its languages with the model, which serving needs, start again and set {settings}"


class Example(NamedTuple):
    """A pair of a corpus to show."""

    place: str
    """ "line", "row" or "unit"."""
    number: int
    """From 1."""
    pair: Pair


def examples_of(corpus: CorpusConfig, num_pairs: int) -> list[Example]:
    """Return training pairs from the beginning, middle and end of the first `num_pairs`. Raises DataError."""
    reader = reader_of(corpus, files_of(corpus)["train"], "train")
    pairs = ((number, row) for number, row in enumerate(reader.rows(), 1) if not isinstance(row, str))
    chosen = (0, num_pairs // 2, num_pairs - 1)
    found = [found for place, found in enumerate(islice(pairs, num_pairs)) if place in chosen]
    return [Example(reader.places or "line", number + reader.counts.header_lines, pair) for number, pair in found]


def check_files(corpus: CorpusConfig) -> CorpusCheck:
    """Check all files of training and held-out pairs (`repose.data.check`).

    Raises DataError and ConfigError.
    """
    check = check_corpus(_readers(corpus), identify, languages_of(corpus))
    if corpus.splits == "given":
        return check
    # Sets that are merged may share sentences.
    return replace(check, findings=tuple(one for one in check.findings if one.kind not in IN_TWO_SETS))


def _readers(corpus: CorpusConfig) -> dict[str, PairReader]:
    """Return a reader for each set and part."""
    files: dict[str, Sequence[Path]] = {**files_of(corpus)}
    files |= {part.name: part.files for part in parts_of(corpus)} if files else {}
    return {name: reader_of(corpus, paths, name) for name, paths in files.items()}


class ProblemLine(NamedTuple):
    """A line with a problem."""

    finding: Finding
    number: int
    """Counted like `Finding.line`."""
    pair: Pair
    """Empty texts if the line is no pair."""


def problem_lines(corpus: CorpusConfig, check: CorpusCheck) -> Iterator[ProblemLine]:
    """Yield the lines that the findings of `check_files` are about, set by set and in order; a line with several
    problems comes as often. Raises DataError."""
    for name, reader in _readers(corpus).items():
        found: dict[int, list[Finding]] = defaultdict(list)
        for finding in check.findings:
            if finding.split == name and finding.lines is not None:
                for number in finding.lines.tolist():
                    found[number].append(finding)
        for place, row in enumerate(reader.rows() if found else (), 1):
            number = place + reader.counts.header_lines
            for finding in found.get(number, ()):
                yield ProblemLine(finding, number, ("", "") if isinstance(row, str) else row)


def shaping_settings(experiment: Experiment) -> str:
    """Return all settings that a prepared corpus depends on; runs with equal ones share it."""
    read = ("task", "max_src_tokens", "max_tgt_tokens", "long_pairs", "init_from")
    of_training = {name: getattr(experiment.training, name) for name in read}
    return json.dumps([asdict(experiment.corpus), asdict(experiment.tokenizer), of_training], sort_keys=True)
