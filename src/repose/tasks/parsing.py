"""Dependency parsing: trees, an encoder with a biaffine head, cross-entropy of heads and labels, attachment scores."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from repose.config.experiment import Experiment, TrainingConfig
from repose.data.language import UNKNOWN, language_name
from repose.data.treebank import Treebank, Trees, is_tree, label_inventory, write_treebank
from repose.evaluation.ratio import RatioStatistics
from repose.model.architecture import Architecture
from repose.model.parser import Parser, build_parser
from repose.saved_model.directory import TOKENIZER, ModelKind, SavedModel
from repose.system.device import one_thread
from repose.system.errors import CheckpointError, ConfigError, DataError, of_extra
from repose.system.terminal import counted
from repose.tasks.base import Card, Figure, position_table
from repose.tasks.corpus import one_file_per_set, one_tokenizer
from repose.tasks.file_task import FileTask, Measured
from repose.tasks.prepared import CorpusData
from repose.training.distributed import World
from repose.training.feed import to_device
from repose.training.job import TrainingJob
from repose.training.loss import TokenSums
from repose.training.validation import validate

SENTENCES_AT_A_TIME = 64


class TreeBatch(NamedTuple):
    """Sentences as tensors; the first word column is ROOT."""

    src: Tensor
    """(B, S): subword ids."""
    first: Tensor
    """(B, W): column of `src` with each word's first subword, -1 for padding."""
    heads: Tensor
    """(B, W): column of each word's head."""
    labels: Tensor
    """(B, W): index of each word's label."""


class Parse(NamedTuple):
    """A predicted tree: each word's head (0 is ROOT) and the index of its label."""

    sentence: int
    """Index in the treebank."""
    heads: list[int]
    labels: list[int]


def _parser(architecture: Architecture, config: Mapping[str, Any]) -> Parser:
    labels = config.get("labels")
    if not isinstance(labels, list) or not labels or not all(isinstance(label, str) for label in labels):
        raise ConfigError("it has no labels")
    return Parser(architecture, vocab_size=config["vocab_size"], num_labels=len(labels))


class ParsingTask(FileTask):
    """Parsing of dependency trees (`repose.data.treebank`). Losses are per word."""

    name = "parsing"
    kind = ModelKind("parsing", {TOKENIZER: "vocab_size"}, _parser)
    file_kind = "CoNLL-U"

    def prepare(self, experiment: Experiment, folder: Path, workers: int) -> Iterator[str]:  # noqa: ARG002
        """Write the tokenizer, the labels, and the trees of each set's CoNLL-U file."""
        trees = {split: Trees(path) for split, path in one_file_per_set(experiment, self.file_kind).items()}
        forms = chain.from_iterable(tree.forms for tree in trees["train"])
        tokenizer, labels = one_tokenizer(experiment.tokenizer, forms, folder), label_inventory(trees["train"])
        if len(labels) == 1:
            raise DataError(
                f"the trees of {trees['train'].path} have no labels: give a treebank with dependency relations"
            )
        yield f"tokenizer: {tokenizer.kind}, {tokenizer.vocab_size:,} tokens; {counted(len(labels) - 1, 'label')}"
        for split, of_split in trees.items():
            limit = experiment.training.max_src_tokens if split == "train" else None
            yield f"{split}: {write_treebank(of_split, tokenizer, labels, folder / split, max_tokens=limit)}"

    def open(self, folder: Path) -> Treebank:
        return Treebank.open(folder)

    def micro_batch(self, examples: Treebank, indices: NDArray[np.int64], device: torch.device) -> TreeBatch:
        return TreeBatch(*to_device(examples.batch(indices), device))

    def new_model(self, job: TrainingJob) -> Parser:
        (tokenizer,) = self.tokenizers(job)
        return build_parser(
            job.architecture,
            vocab_size=tokenizer.vocab_size,
            num_labels=len(self.open(job.train_data).labels),
            seed=job.training.seed,
            position_table=position_table(job),
        )

    def check_own_start(self, loaded: SavedModel[Parser], job: TrainingJob) -> None:
        """Raise CheckpointError unless the labels are the same: they are rows of the model's weights, sorted by
        name."""
        if loaded.config["labels"] != self.open(job.train_data).labels:
            raise CheckpointError(
                f"training.init_from = {job.training.init_from!r} has other labels than the treebank to train on: "
                "train on a treebank with the same labels, or leave init_from out"
            )

    def check_sets(self, experiment: Experiment, data: CorpusData) -> None:
        """Raise DataError for a sentence too long for the model: none may be left out of an evaluation."""
        limit = experiment.architecture.max_length
        for split in dict.fromkeys(("valid", data.measured)):
            longest = int(self.open(data.ids(split)).src_lengths.max(initial=0))
            if longest > limit:
                raise DataError(
                    f"a sentence of the {split} set has {longest} tokens, more than the model reads: "
                    f"raise architecture.max_length ({limit}), or leave the sentence out"
                )

    def training_loss(self, model: Parser, batch: TreeBatch, config: TrainingConfig) -> TokenSums:
        assert config.label_smoothing == 0.0, "Experiment refuses it"
        nll, correct = self.token_losses(model, batch)
        loss = nll.sum(dtype=torch.float64)
        return TokenSums(loss, loss.detach(), correct.sum().double())

    def token_losses(self, model: Parser, batch: TreeBatch) -> tuple[Tensor, Tensor]:
        """Return each word's -log p(head) - log p(label | head), over all words and ROOT, in nats (Dozat and Manning
        2017, 3.3: the losses are summed); and whether the most probable head, and the most probable label at the right
        head, are both right. This does not search for a tree."""
        words = model.words(batch.src, batch.first)
        arcs, labels = model.arcs(words), words.packing.pad(model.labels(words, batch.heads.clamp(min=0)))
        is_word = batch.first > 0  # 0 for ROOT
        arcs, labels, heads, names = arcs[is_word], labels[is_word], batch.heads[is_word], batch.labels[is_word]
        nll = F.cross_entropy(arcs, heads, reduction="none") + F.cross_entropy(labels, names, reduction="none")
        return nll, (arcs.argmax(1) == heads) & (labels.argmax(1) == names) & (names > 0)

    def write(self, folder: Path, model: Parser, job: TrainingJob, extra: Mapping[str, object]) -> None:
        """Write the model directory, with the names of the labels."""
        super().write(folder, model, job, {"labels": self.open(job.train_data).labels, **extra})

    def card(self, experiment: Experiment) -> Card:
        language = experiment.corpus.src_lang
        return Card(
            "Dependency parser" if language == UNKNOWN else f"Dependency parser, {language_name(language)}",
            "A dependency parser (the encoder's layers count, the decoder's do not)",
            "repose evaluate FOLDER TREES.conllu",
            languages=tuple({language} - {UNKNOWN}),
            limits=("It parses sentences like those of its treebank, and is meant to be compared with other parsers.",),
        )

    def model_extra(self, experiment: Experiment) -> Mapping[str, object]:
        return {"lang": experiment.corpus.src_lang}

    def write_ids(self, path: Path, loaded: SavedModel[Parser], folder: Path) -> None:
        """Write all trees, however long."""
        write_treebank(Trees(path), loaded.tokenizers[0], loaded.config["labels"], folder, max_tokens=None)

    def measure(self, loaded: SavedModel[Parser], ids: Path) -> Measured:
        """Return attachment scores over all words, including punctuation, on gold tokens. The hypotheses are the trees,
        one line per sentence with head:label for each word."""
        treebank = self.open(ids)
        with one_thread():
            parses = sorted(self.parse(loaded.model, treebank))
            world = World(0, 1, next(loaded.model.parameters()).device)
            whole = validate(loaded.model, self, treebank, world=world).figures(keras_batch=1)
        figures, (_, named) = attachment(parses, treebank), _right(parses, treebank)
        figures["tf_loss"] = Figure(whole["tf_loss"], "nats per word")
        figures["tf_accuracy"] = Figure(whole["tf_accuracy"], "share of words")
        counts = {"num_sentences": len(treebank), "num_words": int(treebank.tgt_lengths.sum())}
        names = treebank.labels
        lines = [" ".join(f"{h}:{names[n]}" for h, n in zip(p.heads, p.labels, strict=True)) for p in parses]
        sizes = treebank.tgt_lengths.astype(np.float64)
        starts = np.cumsum([0, *(len(p.heads) for p in parses[:-1])])
        of_sentence = np.add.reduceat(named.astype(np.float64), starts)
        statistics = RatioStatistics("las", "sentences", of_sentence, sizes, 100.0)
        return Measured(counts, figures, {"trees": lines}, statistics=statistics)

    @torch.no_grad()
    def parse(self, model: Parser, treebank: Treebank) -> Iterator[Parse]:
        """Yield each sentence's best tree by log p(head), with the best label on each arc; in arbitrary order."""
        model.eval()
        device = next(model.parameters()).device
        by_length = np.argsort(treebank.src_lengths, kind="stable")
        for indices in np.array_split(by_length, -(-len(by_length) // SENTENCES_AT_A_TIME)):
            batch = self.micro_batch(treebank, indices, device)
            words = model.words(batch.src, batch.first)
            scores = model.arcs(words).log_softmax(2).cpu().numpy()
            lengths = (batch.first >= 0).sum(1).tolist()
            trees = [best_tree(scores[row, :length, :length]) for row, length in enumerate(lengths)]
            heads = torch.zeros_like(batch.heads)
            for row, tree in enumerate(trees):
                heads[row, 1 : len(tree) + 1] = torch.tensor(tree, device=device)
            # Label 0 stands for labels that are not in the training set.
            labels = words.packing.pad(model.labels(words, heads))[:, :, 1:].argmax(2) + 1
            for index, tree, row in zip(indices.tolist(), trees, labels.tolist(), strict=True):
                yield Parse(index, tree, row[1 : len(tree) + 1])


def attachment(parses: Sequence[Parse], treebank: Treebank) -> dict[str, Figure]:
    """Return UAS and LAS: the percentage of words, including punctuation, with the right head, or head and full
    label."""
    right, named = _right(parses, treebank)
    unit = f"percent of {len(right):,} words"
    return {"uas": Figure(100 * float(right.mean()), unit), "las": Figure(100 * float(named.mean()), unit)}


def _right(parses: Sequence[Parse], treebank: Treebank) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return, for the words of all sentences in order, whether the head is right, and whether head and label are."""
    places: NDArray[np.int64] = np.array([p.sentence for p in parses])
    heads, labels = (treebank.columns.flat(name, places) for name in ("heads", "labels"))
    right = heads == np.concatenate([p.heads for p in parses])
    return right, right & (labels == np.concatenate([p.labels for p in parses]))


def best_tree(scores: NDArray[np.floating]) -> list[int]:
    """Return the tree with the greatest sum of `scores[word, head]`, (n + 1, n + 1), as the heads of words 1 .. n (0 is
    ROOT).

    This is a maximum spanning arborescence in which ROOT has exactly one child. Row 0 and the diagonal are ignored. If
    the words' best heads form a tree, it is the best one. Otherwise, Edmonds' algorithm (McDonald et al. 2005;
    networkx) finds the best arborescence. To get a single root, every arc from ROOT is made more expensive than any two
    trees can differ by (Stanojevic and Cohen 2021). Raises ConfigError without the library `networkx`.
    """
    n = len(scores) - 1
    exact = np.array(scores, dtype=np.float64)
    np.fill_diagonal(exact, -np.inf)
    greedy: list[int] = exact[1:].argmax(1).tolist()
    if is_tree(greedy):
        return greedy
    with of_extra("parsing", "finding trees needs the library networkx"):
        import networkx
    finite = exact[np.isfinite(exact)]
    cost = (finite.max() - finite.min() + 1.0) * (n + 1)
    graph = networkx.DiGraph()
    arcs = ((head, word) for word in range(1, n + 1) for head in range(n + 1) if head != word)
    graph.add_weighted_edges_from((head, word, exact[word, head] - cost * (head == 0)) for head, word in arcs)
    tree = networkx.maximum_spanning_arborescence(graph)
    heads = {word: head for head, word in tree.edges}
    return [heads[word] for word in range(1, n + 1)]


TASK = ParsingTask()
