"""The corpus that a run was trained on, as it was at the time."""

import io
import zipfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repose.config.experiment import Experiment, TokenizerConfig
from repose.data.pairs import TextPairs
from repose.data.splits import same_sentence
from repose.data.tags import MARK
from repose.saved_model.directory import tokenizer_paths
from repose.saved_run.folder import SCORED_SPLITS, RunConfig, RunFolder
from repose.system.errors import CheckpointError, DataError, WriteError
from repose.system.files import read_file, write_file
from repose.tasks.corpus import kept_corpus, prepare_corpus, published_text
from repose.tasks.corpus_files import PHRASEBOOK, SPLITS
from repose.tasks.prepared import CorpusData

TRAINED_ON_SHARE = 0.05
"""Report it if a model was trained on at least this share of a set's sources; "Thank you." may occur in any two texts.
"""


def corpus_of(run: RunFolder, split: str) -> CorpusData:
    """Return the corpus that a run was trained on, for one of its sets; prepare it again if it is no longer in the
    cache.

    Raises CheckpointError if the run is damaged, and DataError if the corpus's files have changed since: other
    sentences would be held out, which the model may have been trained on.
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
    """Hashes of the sources that a model was trained on, including those of its initial model."""

    hashes: NDArray[np.uint64]
    """(N,), sorted (`data.splits.same_sentence`)."""
    is_all: bool
    """False if the sources of an initial model are unknown."""

    @classmethod
    def of(cls, folder: Path) -> "TrainedOn":
        """Read what a run recorded, or its corpus in the cache; a model directory alone records nothing."""
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
        """Count the sources of each set that are among them."""
        known = set(self.hashes.tolist())
        return [sum(same_sentence(source) in known for source in sources) for sources in sets]


def record_trained_on(run: RunFolder, data: CorpusData, start: str | None) -> None:
    """Record which sources a run's model, which started from the model `start`, is trained on; for sentence pairs only.
    Raises WriteError."""
    if run.trained_on_file.exists() or not data.has_text("train"):
        return
    before = TrainedOn(np.zeros(0, np.uint64), is_all=True) if start is None else TrainedOn.of(Path(start))
    content = io.BytesIO()
    np.savez(content, hashes=np.union1d(before.hashes, _hashes(data)), is_all=before.is_all)
    write_file(run.trained_on_file, content.getvalue())


def _hashes(data: CorpusData) -> NDArray[np.uint64]:
    """Return the sorted hashes of all training sources, including further and synthetic pairs."""
    text = data.folder / "text"
    parts = sorted(path.stem for path in text.glob("*.src") if path.stem not in SCORED_SPLITS)
    sources = (source for part in parts for source, _ in TextPairs(text, part))
    return np.unique(np.fromiter((same_sentence(source.rpartition(MARK)[2]) for source in sources), np.uint64))


def _with_own_tokenizers(run: RunFolder, experiment: Experiment) -> Experiment:
    """Replace ready tokenizers by the model's copies, because the original files may be gone."""
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
    """Return sources and references of a set: the run's own set, or another one of its published corpus. Raises what
    `corpus_of` and `published_text` raise."""
    corpus = run.config().experiment.corpus
    is_own = split in SPLITS or corpus.name in (None, PHRASEBOOK)
    return corpus_of(run, split).text(split) if is_own else published_text(corpus, split)
