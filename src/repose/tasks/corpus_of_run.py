"""The corpus that a run was trained on, as it was then."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from repose.config.experiment import Experiment, TokenizerConfig
from repose.data.splits import same_sentence
from repose.data.tags import MARK
from repose.runs.folder import RunConfig, RunFolder
from repose.saved_model.directory import tokenizer_paths
from repose.system.errors import CheckpointError, DataError, WriteError
from repose.tasks.corpus import CorpusData, kept_corpus, prepare_corpus, text_of
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


def num_trained_on(folder: Path, *sets: Iterable[str]) -> list[int]:
    """How many sources of each set a run was trained on, translations aside; 0 where its text is not to be had from
    the cache, or the folder holds a model alone."""
    run = RunFolder(folder)
    try:
        data = kept_corpus(run.config().data)
    except (CheckpointError, DataError, WriteError):
        data = None
    if data is None or not data.has_text("train"):
        return [0] * len(sets)
    trained_on = {same_sentence(source.rpartition(MARK)[2]) for source in data.text("train")[0]}
    return [sum(same_sentence(source) in trained_on for source in sources) for sources in sets]


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
    """`text_of` a run's experiment, its own sets as they were in its training. Raises what `corpus_of` raises."""
    experiment = run.config().experiment
    is_own = split in SPLITS or experiment.corpus.name in (None, PHRASEBOOK)
    return corpus_of(run, split).text(split) if is_own else text_of(experiment, split)
