"""Corpora of tasks without sentence pairs: what `prepare_corpus` makes of a text or a treebank.

Both tokenizer files hold the same tokenizer. `train/`, `valid/` and, where there is one, `test/` hold whole sets:
nothing of what is measured on is left out.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from repose.config.experiment import CorpusConfig, Experiment, TokenizerConfig
from repose.data.text_blocks import read_lines, write_blocks
from repose.data.tokenizer import Tokenizer
from repose.data.treebank import Trees, label_inventory, write_treebank
from repose.system.errors import ConfigError
from repose.tasks.corpus_splits import SPLITS


def build_text(experiment: Experiment, folder: Path, workers: int) -> Iterator[str]:  # noqa: ARG001
    """Tokenizer and blocks of a text file per set, for language modelling; yields sentences about them."""
    files, max_tokens = _files(experiment), experiment.training.max_tgt_tokens
    tokenizer = _tokenizer(experiment.tokenizer, read_lines(files["train"]), folder)
    yield f"tokenizer: {tokenizer.kind}, {tokenizer.vocab_size:,} tokens"
    for split, path in files.items():
        yield f"{split}: {write_blocks(read_lines(path), tokenizer, folder / split, max_tokens=max_tokens)}"


def build_treebank(experiment: Experiment, folder: Path, workers: int) -> Iterator[str]:  # noqa: ARG001
    """Tokenizer, labels and trees of a CoNLL-U file per set, for parsing; yields sentences about them."""
    files = _files(experiment)
    trees = {split: Trees(path) for split, path in files.items()}
    forms = chain.from_iterable(tree.forms for tree in trees["train"])
    tokenizer, labels = _tokenizer(experiment.tokenizer, forms, folder), label_inventory(trees["train"])
    yield f"tokenizer: {tokenizer.kind}, {tokenizer.vocab_size:,} tokens; {len(labels) - 1} labels"
    for split, found in trees.items():
        limit = experiment.training.max_src_tokens if split == "train" else None
        yield f"{split}: {write_treebank(found, tokenizer, labels, folder / split, max_tokens=limit)}"


def _files(experiment: Experiment) -> dict[str, Path]:
    """The one file of each set."""
    corpus, task = experiment.corpus, experiment.training.task
    what = {"parsing": "CoNLL-U", "language_modelling": "text"}[task]
    for split in SPLITS:
        paths = getattr(corpus, split)
        if len(paths) > 1 or (not paths and split != "test"):
            raise ConfigError(
                f"training.task = {task!r} takes one {what} file as corpus.{split}, not {len(paths)}: "
                f"set corpus.{split} to it"
            )
    if corpus.splits != CorpusConfig().splits:
        raise ConfigError(f"corpus.splits = {corpus.splits!r} is for sentence pairs: leave it out")
    return {split: Path(path) for split in SPLITS for path in getattr(corpus, split)}


def train_tokenizer(config: TokenizerConfig, lines: Iterable[str]) -> Tokenizer:
    """One tokenizer, trained as its settings say."""
    return Tokenizer.train(
        lines,
        kind=config.kind,
        vocab_size=config.vocab_size,
        lowercase=config.lowercase,
        strip_accents=config.strip_accents,
        min_frequency=config.min_frequency,
    )


def _tokenizer(config: TokenizerConfig, lines: Iterable[str], folder: Path) -> Tokenizer:
    """One tokenizer, trained or ready, in both of its places."""
    if config.src_file != config.tgt_file:
        raise ConfigError("this task has one tokenizer: set tokenizer.src_file and tokenizer.tgt_file to the same file")
    tokenizer = train_tokenizer(config, lines) if config.src_file is None else Tokenizer.load(Path(config.src_file))
    for side in ("src", "tgt"):
        tokenizer.save(folder / f"tokenizer.{side}.json")
    return tokenizer
