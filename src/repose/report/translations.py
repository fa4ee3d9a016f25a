"""The translations of finished runs, and the texts that they are measured on.

Translations are in a run's directory, sources and references in the cache, in the prepared corpus. If either is
missing, as in `results/`, the counts in `statistics.<split>.npz` replace them (`write_statistics` writes it).
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from repose.data import corpora
from repose.data.dataset import PairDataset
from repose.data.tokenizer import Tokenizer
from repose.evaluation.sentence_statistics import (
    References,
    SentenceStatistics,
    SourceLengths,
    StoredStatistics,
    read_stored,
    write_stored,
)
from repose.report.collect import read_run
from repose.report.figures import decoding_of, decodings, score, scored, scored_with, signature
from repose.report.run_set import ReportRun
from repose.saved_run.folder import RunFolder
from repose.system.errors import CheckpointError, DataError
from repose.tasks.prepared import CorpusData

_SAME = 1e-6  # BLEU points; with a larger difference, translations and scores are from different evaluations


def settings_of(run: ReportRun) -> dict[str, str]:
    """Return the fields of the signature of a run's BLEU, such as `case` and `tok`. Raises DataError if it has none."""
    return scored_with(str(_decoded(run, decoding_of(run))["bleu"]["signature"]))


def texts_of(run: ReportRun) -> tuple[list[str], list[str]]:
    """Return the sources and references that a run was measured on. Raises DataError if they are not in the cache."""
    return _prepared(run).text(run.split)


def hypotheses_of(run: ReportRun) -> list[str]:
    """Return the translations that a run is compared by. Raises DataError if they are missing."""
    return _read_hypotheses(run.folder, run.split, decoding_of(run))


def statistics_of(run: ReportRun, decoding: str | None = None) -> SentenceStatistics:
    """Return the counts of a run's translations, from the texts or else from `statistics.<split>.npz`.

    `decoding`: by default, the one that the run is compared by.

    Raises DataError if both are missing, or if the counts do not give the BLEU in scores.<split>.json.
    """
    decoding = decoding or decoding_of(run)
    try:
        found = _counted(run, decoding)
    except DataError as missing:
        if not RunFolder(run.folder).statistics_file(run.split).exists():
            raise missing
        found = _stored(run, decoding)
    measured, recorded = found.score("bleu"), float(_decoded(run, decoding)["bleu"]["value"])
    if not abs(measured - recorded) <= _SAME:
        raise DataError(
            f"the translations score {measured:.2f} BLEU but scores.{run.split}.json says {recorded:.2f}: "
            "evaluate the run again, with one version of sacreBLEU"
        )
    return found


def lengths_of(run: ReportRun) -> SourceLengths:
    """Return the lengths of the sources that a run was measured on. Raises DataError as `statistics_of` does."""
    try:
        tagged = run.experiment.corpus.tag is not None
        return _measured_lengths(_prepared(run).folder, run.split, tagged)
    except DataError as missing:
        path = RunFolder(run.folder).statistics_file(run.split)
        if not path.exists():
            raise missing
    return read_stored(path).lengths


def write_statistics(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the counts of a finished run's translations to `statistics.<split>.npz`, in `out` or in its directory.

    All scored decodings are included, with about 13 kB each for 1,000 sentences. Raises DataError if the run has no
    scores, or if texts are missing.
    """
    folder = Path(folder)
    run = read_run(folder, None)
    if run.scores is None:
        raise DataError(f"{folder} has no scores of the {run.split} set: let the run finish, or evaluate it first")
    path = RunFolder(Path(out or folder)).statistics_file(run.split)
    counts = {decoding: statistics_of(run, decoding) for decoding in decodings(run)}
    write_stored(path, StoredStatistics(counts, lengths_of(run)))
    return path


def _decoded(run: ReportRun, decoding: str) -> Mapping[str, Any]:
    """Return the scores of a decoding. Raises DataError if they have no BLEU."""
    found = scored(run, decoding)
    if score(run, decoding, "bleu") is None or not signature(run, decoding, "bleu"):
        raise DataError(f"scores.{run.split}.json has no BLEU with its signature: evaluate the run again")
    return found


def _prepared(run: ReportRun) -> CorpusData:
    data = CorpusData(corpora.prepared_home() / run.config.data)
    if not data.has_text(run.split):
        raise DataError(
            f"the {run.split} set is not in the cache (prepared/{data.folder.name}): run `repose evaluate` on the run "
            "to prepare it again, or set REPOSE_HOME to the cache that has it"
        )
    return data


def _stored(run: ReportRun, decoding: str) -> SentenceStatistics:
    path = RunFolder(run.folder).statistics_file(run.split)
    decodings = read_stored(path).decodings
    if decoding not in decodings:
        raise DataError(f"{path.name} has no counts of {decoding}: make it again from the run's directory")
    return decodings[decoding]


def _read_hypotheses(folder: Path, split: str, decoding: str) -> list[str]:
    run = RunFolder(folder)
    try:
        return run.hypotheses(split, decoding)
    except CheckpointError as error:  # no folder in the message, so that runs with the same problem share a sentence
        name = run.hypotheses_file(split, decoding).relative_to(folder).as_posix()
        raise DataError(
            f"the translations ({name}) cannot be read, or are not those that were scored: evaluate the run again"
        ) from error


def _counted(run: ReportRun, decoding: str) -> SentenceStatistics:
    data, settings = _prepared(run), settings_of(run)
    try:
        stamp = RunFolder(run.folder).hypotheses_file(run.split, decoding).stat().st_mtime_ns
    except OSError:
        stamp = 0  # reading the file will say what is wrong
    references = _references(data.folder, run.split, settings["case"] == "lc", settings["tok"])
    return _count(run.folder, run.split, decoding, stamp, references)


@lru_cache(maxsize=1024)
def _count(folder: Path, split: str, decoding: str, _stamp: int, references: References) -> SentenceStatistics:
    """Count a run's translations; cached, as several tables need the counts. 0.2 MB per run with 1,000 sentences."""
    return references.statistics(_read_hypotheses(folder, split, decoding))


@lru_cache(maxsize=16)
def _references(data: Path, split: str, lowercase: bool, tokenize: str) -> References:
    return References(CorpusData(data).text(split)[1], lowercase=lowercase, tokenize=tokenize)


@lru_cache(maxsize=16)
def _measured_lengths(folder: Path, split: str, tagged: bool) -> SourceLengths:
    data = CorpusData(folder)
    sources, _ = data.text(split)
    ids = Tokenizer.load(data.tokenizer_path("src")).encode_batch(sources)
    return SourceLengths(
        words=np.array([len(line.split()) for line in sources], np.int64),
        tokens=np.array([len(one) + tagged for one in ids], np.int64),
        longest_trained=int(PairDataset.open(data.ids("train")).src_lengths.max()),
    )
