"""The corpus that a run was trained on, as it was then."""

import io
import zipfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repose.config.experiment import Experiment, TokenizerConfig
from repose.data.readers import TextPairs
from repose.data.splits import same_sentence
from repose.data.tags import MARK
from repose.runs.folder import SCORED_SPLITS, RunConfig, RunFolder
from repose.saved_model.directory import tokenizer_paths
from repose.system.errors import CheckpointError, DataError, WriteError
from repose.system.files import read_file, write_file
from repose.tasks.corpus import CorpusData, kept_corpus, prepare_corpus, published_text
from repose.tasks.corpus_files import PHRASEBOOK, SPLITS

TRAINED_ON_SHARE = 0.05
"""Share of a set's sources that a model was trained on, from which on it is said: "Thank you." may be in any two texts.
"""


def corpus_of(run: RunFolder, split: str) -> CorpusData:
    """The corpus that a run was trained on, prepared again where it is not in the cache any more; for one of its sets.

    Raises CheckpointError where the run is damaged, and DataError where the corpus's files have changed since, so that
    other sentences would be measured, or held out: those might have been trained on.
    """
    config = run.config()
    kept = kept_corpus(config.data)
    if kept is not None and _same_sets(kept, config, split):
        return kept
    data = prepare_corpus(_with_own_tokenizers(run, config.experiment))
    if _same_sets(data, config, split):
        return data
    raise DataError(
        "the corpus is not the one that this run was trained on, its files have changed: name files to measure it on"
    )


class TrainedOn(NamedTuple):
    """The sources that a model has learnt from, translations aside, and those that the model it began with had."""

    hashes: NDArray[np.uint64]
    """(N,), in order (`data.splits.same_sentence`)."""
    is_all: bool
    """Whether it is known of all models on the way."""

    @classmethod
    def of(cls, folder: Path) -> "TrainedOn":
        """As a run recorded it, or by its corpus in the cache; nothing is known of a model directory alone."""
        run, nothing = RunFolder(folder), cls(np.zeros(0, np.uint64), is_all=False)
        try:
            with np.load(io.BytesIO(read_file(run.trained_on_file)), allow_pickle=False) as arrays:
                return cls(arrays["hashes"].astype(np.uint64), bool(arrays["is_all"]))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            pass
        try:
            config = run.config()
            data = kept_corpus(config.data)
        except (CheckpointError, DataError, WriteError):
            return nothing
        return nothing if data is None else cls(_hashes(data), is_all=config.experiment.training.init_from is None)

    def counts(self, *sets: Iterable[str]) -> list[int]:
        """How many sources of each set are among them."""
        known = set(self.hashes.tolist())
        return [sum(same_sentence(source) in known for source in sources) for sources in sets]


def record_trained_on(run: RunFolder, data: CorpusData, start: str | None) -> None:
    """Keep what a run's model learns from, which began with the model `start`, where it is sentence pairs. Raises
    WriteError."""
    if run.trained_on_file.exists() or not data.has_text("train"):
        return
    before = TrainedOn(np.zeros(0, np.uint64), is_all=True) if start is None else TrainedOn.of(Path(start))
    content = io.BytesIO()
    np.savez(content, hashes=np.union1d(before.hashes, _hashes(data)), is_all=before.is_all)
    write_file(run.trained_on_file, content.getvalue())


def _hashes(data: CorpusData) -> NDArray[np.uint64]:
    """Of the sources of all pairs to train on, further and synthetic ones too, in order."""
    text = data.folder / "text"
    parts = sorted(path.stem for path in text.glob("*.src") if path.stem not in SCORED_SPLITS)
    sources = (source for part in parts for source, _ in TextPairs(text, part))
    return np.unique(np.fromiter((same_sentence(source.rpartition(MARK)[2]) for source in sources), np.uint64))


def _with_own_tokenizers(run: RunFolder, experiment: Experiment) -> Experiment:
    """With the model's copies of ready tokenizers: the files or the model that they came from may be gone."""
    if experiment.training.init_from is None and experiment.tokenizer.src_file is None:
        return experiment
    src, tgt = tokenizer_paths(run.path)
    return replace(
        experiment,
        tokenizer=TokenizerConfig(src_file=str(src), tgt_file=str(tgt)),
        training=replace(experiment.training, init_from=None),
    )


def _same_sets(data: CorpusData, config: RunConfig, split: str) -> bool:
    found = data.digests
    is_same = all(found[name] == config.digests.get(name, found[name]) for name in ("train", "valid"))
    return is_same and (split != "test" or config.test is None or config.test == data.test_digest)


def text_of_run(run: RunFolder, split: str) -> tuple[list[str], list[str]]:
    """Sources and references of a set: the run's own as in its training, or another of its published corpus. Raises
    what `corpus_of` and `published_text` raise."""
    corpus = run.config().experiment.corpus
    is_own = split in SPLITS or corpus.name in (None, PHRASEBOOK)
    return corpus_of(run, split).text(split) if is_own else published_text(corpus, split)
