"""The corpus that a run was trained on, as it was then."""

from repose.runs.folder import RunConfig
from repose.system.errors import DataError
from repose.tasks.corpus import PHRASEBOOK, SPLITS, CorpusData, kept_corpus, prepare_corpus, text_of


def corpus_of(config: RunConfig, split: str) -> CorpusData:
    """The corpus that a run was trained on, prepared again where it is not in the cache any more; for one of its sets.

    Raises DataError where its files have changed since, so that other sentences would be measured, or held out: those
    might have been trained on.
    """
    kept = kept_corpus(config.data)
    if kept is not None and _same_sets(kept, config, split):
        return kept
    data = prepare_corpus(config.experiment)
    if _same_sets(data, config, split):
        return data
    raise DataError(
        "the corpus is not the one that this run was trained on, its files have changed: name files to measure it on"
    )


def _same_sets(data: CorpusData, config: RunConfig, split: str) -> bool:
    found = data.digests
    is_same = all(found[name] == config.digests.get(name, found[name]) for name in ("train", "valid"))
    return is_same and (split != "test" or config.test is None or config.test == data.test_digest)


def text_of_run(config: RunConfig, split: str) -> tuple[list[str], list[str]]:
    """`text_of` a run's experiment, its own sets as they were in its training. Raises what `corpus_of` raises."""
    is_own = split in SPLITS or config.experiment.corpus.name in (None, PHRASEBOOK)
    return corpus_of(config, split).text(split) if is_own else text_of(config.experiment, split)
