"""Parsers measured: attachment of every word, punctuation included, on gold tokens."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from repose.config.experiment import Experiment
from repose.data.treebank import Treebank, Trees, write_treebank
from repose.decoding.trees import best_tree
from repose.model.parser import Parser
from repose.saved_model import task_directory as task_model_dir
from repose.saved_model.task_directory import TaskModel
from repose.system.device import one_thread
from repose.tasks.corpus_data import CorpusData
from repose.tasks.parsing import Parsing, TreePart
from repose.tasks.scorer import Card, Decoding, Figure, figures_to_json, write_scores
from repose.tasks.task_scores import measure
from repose.training.distributed import World
from repose.training.validation import validate

SENTENCES_AT_A_TIME = 64


class Parse(NamedTuple):
    """The tree found for a sentence: of each word its head, 0 being ROOT, and the number of its label."""

    sentence: int
    """Place in the treebank."""
    heads: list[int]
    labels: list[int]


class TreeScores:
    """`Scorer` of parsing."""

    def card(self, experiment: Experiment) -> Card:
        """Named by its language."""
        return Card(
            f"Dependency parser, {experiment.corpus.src_lang}",
            "A dependency parser (the encoder's layers count, the decoder's do not)",
            "repose evaluate THIS_FOLDER TREES.conllu",
        )

    def model_extra(self, experiment: Experiment) -> Mapping[str, object]:
        """Language."""
        return {"lang": experiment.corpus.src_lang}

    def of_run(self, experiment: Experiment, data: CorpusData, folder: Path, device: str) -> None:  # noqa: ARG002
        """On the test set, or without one on the validation set; the trees lie beside the scores."""
        _scores(task_model_dir.load(folder, device), data.ids(data.measured), data.measured, folder)

    def of_model(
        self,
        folder: Path,
        files: Sequence[Path] | None,
        *,
        split: str,
        out: Path | None,
        device: str,
        decoding: Decoding,  # noqa: ARG002
    ) -> dict[str, Any]:
        """On a CoNLL-U file, or on a set of the run's own corpus."""
        return measure(
            folder,
            files,
            split=split,
            device=device,
            what="a parser is measured on one CoNLL-U file",
            prepare=_prepare,
            score=lambda loaded, ids: _scores(loaded, ids, split, out),
        )


def _prepare(trees: Path, loaded: TaskModel, folder: Path) -> None:
    write_treebank(Trees(trees), loaded.tokenizer, loaded.config["labels"], folder, max_tokens=None)


def _scores(loaded: TaskModel, ids: Path, split: str, out: Path | None) -> dict[str, Any]:
    assert isinstance(loaded.model, Parser)
    treebank = Treebank.open(ids)
    with one_thread():
        parses = sorted(parse(loaded.model, treebank))
        world = World(0, 1, next(loaded.model.parameters()).device)
        whole = validate(loaded.model, treebank, keras_batch=1, world=world, task=Parsing())
    figures = attachment(parses, treebank)
    figures["tf_loss"] = Figure(whole["tf_loss"], "nats per word")
    figures["tf_accuracy"] = Figure(whole["tf_accuracy"], "share of words")
    scores = {
        "run_id": loaded.config.get("run_id"),
        "split": split,
        "task": "parsing",
        "parameters": sum(p.numel() for p in loaded.model.parameters()),
        "num_sentences": len(treebank),
        "num_words": int(treebank.tgt_lengths.sum()),
        "figures": figures_to_json(figures),
        "looks_ahead": False,  # it reads whole sentences, and predicts none of their words
    }
    if out is not None:
        write_scores(scores, out, split)
        _write_trees(parses, treebank.labels, out / "hypotheses", split)
    return scores


@torch.no_grad()
def parse(model: Parser, treebank: Treebank) -> Iterator[Parse]:
    """The best tree of each sentence by log p(head), and on its arcs the best labels; in no order."""
    model.eval()
    device, task = next(model.parameters()).device, Parsing()
    by_length = np.argsort(treebank.src_lengths, kind="stable")
    for indices in np.array_split(by_length, -(-len(by_length) // SENTENCES_AT_A_TIME)):
        part: TreePart = task.part(treebank, indices, device)
        words = model.words(part.src, part.first)
        scores = model.arcs(words).log_softmax(2).cpu().numpy()
        lengths = (part.first >= 0).sum(1).tolist()
        trees = [best_tree(scores[row, :length, :length]) for row, length in enumerate(lengths)]
        heads = torch.zeros_like(part.heads)
        for row, tree in enumerate(trees):
            heads[row, 1 : len(tree) + 1] = torch.tensor(tree, device=device)
        # Label 0 stands for labels unknown to training.
        labels = words.packing.pad(model.labels(words, heads))[:, :, 1:].argmax(2) + 1
        for index, tree, row in zip(indices.tolist(), trees, labels.tolist(), strict=True):
            yield Parse(index, tree, row[1 : len(tree) + 1])


def attachment(parses: Sequence[Parse], treebank: Treebank) -> dict[str, Figure]:
    """UAS and LAS: percent of words whose head, or head and full label, is right; punctuation counts as any word."""
    places: NDArray[np.int64] = np.array([p.sentence for p in parses])
    heads, labels = (treebank.columns.flat(name, places) for name in ("heads", "labels"))
    right = heads == np.concatenate([p.heads for p in parses])
    named = right & (labels == np.concatenate([p.labels for p in parses]))
    unit = f"percent of {len(heads):,} words"
    return {"uas": Figure(100 * float(right.mean()), unit), "las": Figure(100 * float(named.mean()), unit)}


def _write_trees(parses: Sequence[Parse], names: Sequence[str], folder: Path, split: str) -> None:
    """A line per sentence, head:label for each word."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = (" ".join(f"{h}:{names[n]}" for h, n in zip(p.heads, p.labels, strict=True)) for p in parses)
    (folder / f"{split}.trees.txt").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
