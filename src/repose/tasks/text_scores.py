"""Language models measured: bits, in one pass over the text and token by token."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from repose.config.experiment import Experiment
from repose.data.batching import Permutation
from repose.data.text_blocks import TextBlocks, read_lines, write_blocks
from repose.data.tokenizer import Tokenizer
from repose.model.language_model import LanguageModel
from repose.saved_model import task_directory as task_model_dir
from repose.saved_model.task_directory import TaskModel
from repose.system.device import one_thread
from repose.tasks.corpus_data import CorpusData
from repose.tasks.language_modelling import LanguageModelling
from repose.tasks.scorer import Card, Decoding, Figure, figures_to_json, write_scores
from repose.tasks.task_scores import measure
from repose.training.distributed import World
from repose.training.loss import token_losses
from repose.training.validation import validate

SAMPLED_TOKENS = 2000
"""Tokens, at least, that are also predicted one by one: each takes a pass over its block up to there."""


class TextScores:
    """`Scorer` of language modelling."""

    def card(self, experiment: Experiment) -> Card:
        """Named by its language."""
        return Card(
            f"Language model, {experiment.corpus.tgt_lang}", "A language model", "repose evaluate THIS_FOLDER TEXT"
        )

    def model_extra(self, experiment: Experiment) -> Mapping[str, object]:
        """Language, and the longest block."""
        return {"lang": experiment.corpus.tgt_lang, "max_tokens": experiment.training.max_tgt_tokens}

    def of_run(self, experiment: Experiment, data: CorpusData, folder: Path, device: str) -> None:  # noqa: ARG002
        """On the test set, or without one on the validation set."""
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
        """On a text file, or on a set of the run's own corpus."""
        return measure(
            folder,
            files,
            split=split,
            device=device,
            what="a language model is measured on one text file",
            prepare=_prepare,
            score=lambda loaded, ids: _scores(loaded, ids, split, out),
        )


def _prepare(text: Path, loaded: TaskModel, folder: Path) -> None:
    write_blocks(read_lines(text), loaded.tokenizer, folder, max_tokens=int(loaded.config["max_tokens"]))


def _scores(loaded: TaskModel, ids: Path, split: str, out: Path | None) -> dict[str, Any]:
    assert isinstance(loaded.model, LanguageModel)
    blocks = TextBlocks.open(ids)
    with one_thread():
        figures = text_figures(loaded.model, loaded.tokenizer, blocks)
    scores = {
        "run_id": loaded.config.get("run_id"),
        "split": split,
        "task": "language_modelling",
        "parameters": sum(p.numel() for p in loaded.model.parameters()),
        "num_blocks": len(blocks),
        "num_tokens": int(blocks.tgt_lengths.sum()),
        "num_bytes": blocks.num_bytes,
        "figures": figures_to_json(figures),
        "looks_ahead": loaded.model.architecture.looks_ahead,
    }
    if out is not None:
        write_scores(scores, out, split)
    return scores


def text_figures(model: LanguageModel, tokenizer: Tokenizer, blocks: TextBlocks) -> dict[str, Figure]:
    """Figures of a model on a text, each token given the earlier ones of its block.

    `tf_loss`, `tf_accuracy`, `bits_per_token`, `perplexity` and, where the tokenizer keeps all of the text,
    `bits_per_byte` (comparable between tokenizers) are of every token, in one pass over each block.

    `stepwise_bits_per_token` is what the model can really do: token by token, each predicted by a pass that is given
    nothing but the tokens before it; of a sample of blocks with `SAMPLED_TOKENS` tokens. `sampled_bits_per_token` is
    that of one pass on the same tokens. They are equal, up to rounding, exactly if the model does not look ahead.
    """
    device = next(model.parameters()).device
    world = World(0, 1, device)
    whole = validate(model, blocks, keras_batch=1, world=world, task=LanguageModelling())
    bits = whole["tf_loss"] / math.log(2)
    figures = {
        "bits_per_token": Figure(bits, "bits per token"),
        "perplexity": Figure(math.exp(whole["tf_loss"]), "per token"),
        "tf_loss": Figure(whole["tf_loss"], "nats per token"),
        "tf_accuracy": Figure(whole["tf_accuracy"], "share of tokens"),
    }
    if tokenizer.lossless:
        figures["bits_per_byte"] = Figure(bits * int(blocks.tgt_lengths.sum()) / blocks.num_bytes, "bits per byte")
    together, alone = _on_sample(model, blocks, device)
    figures["sampled_bits_per_token"] = Figure(together, "bits per token")
    figures["stepwise_bits_per_token"] = Figure(alone, "bits per token")
    return figures


@torch.no_grad()
def _on_sample(model: LanguageModel, blocks: TextBlocks, device: torch.device) -> tuple[float, float]:
    """Bits per token in one pass and step by step. The sample is the same for every model of a text and tokenizer."""
    order = Permutation(len(blocks), "repose stepwise 1")
    together = alone = 0.0
    number = 0
    for place in range(len(blocks)):
        if number >= SAMPLED_TOKENS:
            break
        ids, labels = (torch.from_numpy(x).to(device) for x in blocks.batch(order(np.array([place]))))
        together += float(_nll(model, model.hidden(ids), labels).sum())
        alone += float(stepwise(model, ids[0], labels).sum())
        number += len(labels)
    return together / number / math.log(2), alone / number / math.log(2)


def stepwise(model: LanguageModel, ids: Tensor, labels: Tensor) -> Tensor:
    """-log p of each label, in nats, by a pass over nothing but the tokens up to it: (T,), as both inputs."""
    length = len(ids)
    rows = model.hidden(ids.expand(length, length).tril())
    last = torch.arange(1, length + 1, device=ids.device).cumsum(0) - 1
    return _nll(model, rows[last], labels)


def _nll(model: LanguageModel, hidden: Tensor, labels: Tensor) -> Tensor:
    return token_losses(hidden, model.output.weight, model.output.bias, labels)[0].double()
