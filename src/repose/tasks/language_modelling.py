"""Language modelling: blocks of text, a decoder without an encoder, cross-entropy of the next token, scores in bits."""

import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from repose.config.experiment import Experiment, TrainingConfig
from repose.data.batching import Permutation
from repose.data.language import UNKNOWN, language_name
from repose.data.text_blocks import Documents, TextBlocks, write_blocks
from repose.evaluation.ratio import RatioStatistics
from repose.model.language_model import LanguageModel, build_language_model
from repose.saved_model.directory import TOKENIZER, ModelKind, SavedModel
from repose.system.device import one_thread
from repose.system.errors import CheckpointError
from repose.tasks.base import Card, Figure, position_table
from repose.tasks.corpus import one_file_per_set, one_tokenizer
from repose.tasks.file_task import FileTask, Measured
from repose.training.distributed import World
from repose.training.feed import bucketed_targets, to_device
from repose.training.job import TrainingJob
from repose.training.loss import TokenSums, cross_entropy, token_losses
from repose.training.validation import validate

SAMPLED_TOKENS = 2000
"""Minimum number of tokens that are also predicted one by one, each by a pass over its block up to there."""
_PASS_TOKENS = 1 << 14
"""Maximum tokens of one pass over several prefixes of a block, unless a single prefix is longer."""
_MOST_NATS = math.log(sys.float_info.max)
"""Above this, a perplexity overflows."""


class BlockBatch(NamedTuple):
    """Blocks as tensors."""

    ids: Tensor
    """(B, T): input ids."""
    labels: Tensor
    """(N,): the token after each real token of `ids`, in row-major order."""
    label_positions: Tensor | None = None
    """(N,): index in `ids.flatten()` of each label's position; None if each real token of `ids` has a label."""


class LanguageModellingTask(FileTask):
    """Language modelling on blocks of text (`repose.data.text_blocks`). Losses are per token, including END."""

    name = "language_modelling"
    kind = ModelKind(
        "language_modelling",
        {TOKENIZER: "vocab_size"},
        lambda architecture, config: LanguageModel(architecture, vocab_size=config["vocab_size"]),
    )
    file_kind = "text"
    allows_cuda_graphs = True
    look_ahead_warning = (
        "This model normalises over the whole block of a text and so sees the tokens that it has to predict: its "
        "teacher-forced figures do not measure language modelling."
    )

    def prepare(self, experiment: Experiment, folder: Path, workers: int) -> Iterator[str]:  # noqa: ARG002
        """Write the tokenizer, and the blocks of each set's text file."""
        files, max_tokens = one_file_per_set(experiment, self.file_kind), experiment.training.max_tgt_tokens
        tokenizer = one_tokenizer(experiment.tokenizer, Documents(files["train"]), folder)
        yield f"tokenizer: {tokenizer.kind}, {tokenizer.vocab_size:,} tokens"
        for split, path in files.items():
            yield f"{split}: {write_blocks(Documents(path), tokenizer, folder / split, max_tokens=max_tokens)}"

    def open(self, folder: Path) -> TextBlocks:
        return TextBlocks.open(folder)

    def micro_batch(self, examples: TextBlocks, indices: NDArray[np.int64], device: torch.device) -> BlockBatch:
        return BlockBatch(*to_device(examples.batch(indices), device))

    def bucketed_micro_batch(
        self, examples: TextBlocks, indices: NDArray[np.int64], device: torch.device
    ) -> BlockBatch:
        """Return the micro-batch with additional blocks of padding, padding at the ends, and spare labels."""
        ids, labels = examples.batch(indices)
        return BlockBatch(*to_device(bucketed_targets(ids, labels, examples.longest_tgt), device))

    def new_model(self, job: TrainingJob) -> LanguageModel:
        (tokenizer,) = self.tokenizers(job)
        size, table = tokenizer.vocab_size, position_table(job)
        return build_language_model(job.architecture, vocab_size=size, seed=job.training.seed, position_table=table)

    def training_loss(self, model: LanguageModel, batch: BlockBatch, config: TrainingConfig) -> TokenSums:
        hidden, output = model.hidden(batch.ids, batch.label_positions), model.output
        return cross_entropy(hidden, output.weight, output.bias, batch.labels, label_smoothing=config.label_smoothing)

    def token_losses(self, model: LanguageModel, batch: BlockBatch) -> tuple[Tensor, Tensor]:
        """Return every token's loss given the block's true earlier tokens, and whether it is predicted correctly."""
        return token_losses(model.hidden(batch.ids), model.output.weight, model.output.bias, batch.labels)

    def card(self, experiment: Experiment) -> Card:
        language = experiment.corpus.tgt_lang
        return Card(
            "Language model" if language == UNKNOWN else f"Language model, {language_name(language)}",
            "A language model",
            "repose evaluate FOLDER TEXT",
            languages=tuple({language} - {UNKNOWN}),
            limits=(
                "It says how probable a text of the kind that it was trained on is; it is not meant to write texts.",
            ),
        )

    def model_extra(self, experiment: Experiment) -> Mapping[str, object]:
        """Return the language and the longest block."""
        return {"lang": experiment.corpus.tgt_lang, "max_tokens": experiment.training.max_tgt_tokens}

    def write_ids(self, path: Path, loaded: SavedModel[LanguageModel], folder: Path) -> None:
        """Write a text in blocks of the length that the model was trained with."""
        max_tokens = loaded.config.get("max_tokens")
        if not isinstance(max_tokens, int) or not 1 <= max_tokens <= loaded.model.architecture.max_length:
            raise CheckpointError("config.json of the model has no usable max_tokens: save or copy the model again")
        write_blocks(Documents(path), loaded.tokenizers[0], folder, max_tokens=max_tokens)

    def measure(self, loaded: SavedModel[LanguageModel], ids: Path) -> Measured:
        """Evaluate a model on a text, each token given the earlier ones of its block.

        `tf_loss`, `tf_accuracy`, `bits_per_token`, `perplexity` and, if the tokenizer keeps all of the text,
        `bits_per_byte` (comparable between tokenizers) are over all tokens, in one pass per block. A perplexity that
        overflows (above 709 nats) is left out.

        `stepwise_bits_per_token` is the honest figure: each token is predicted by a pass that only gets the tokens
        before it, on a sample of blocks with `SAMPLED_TOKENS` tokens. `sampled_bits_per_token` is from one pass over
        the same tokens. Both are equal, up to rounding, exactly if the model does not look ahead.
        """
        model, blocks = loaded.model, self.open(ids)
        device = next(model.parameters()).device
        with one_thread():
            measured = validate(model, self, blocks, world=World(0, 1, device))
            one_pass, by_steps = _bits_of_sample(model, blocks, device)
        whole, num_tokens = measured.figures(keras_batch=1), int(blocks.tgt_lengths.sum())
        loss = whole["tf_loss"]
        bits = loss / math.log(2)
        figures = {"bits_per_token": Figure(bits, "bits per token")}
        if loss < _MOST_NATS:
            figures["perplexity"] = Figure(math.exp(loss), "per token")
        figures["tf_loss"] = Figure(loss, "nats per token")
        figures["tf_accuracy"] = Figure(whole["tf_accuracy"], "share of tokens")
        if loaded.tokenizers[0].lossless:
            figures["bits_per_byte"] = Figure(bits * num_tokens / blocks.num_bytes, "bits per byte")
        figures["sampled_bits_per_token"] = Figure(one_pass, "bits per token")
        figures["stepwise_bits_per_token"] = Figure(by_steps, "bits per token")
        counts = {"num_blocks": len(blocks), "num_tokens": num_tokens, "num_bytes": blocks.num_bytes}
        starts = blocks.document_starts
        bits_of, tokens_of = (np.add.reduceat(x, starts) for x in (measured.nll / math.log(2), measured.tokens))
        statistics = RatioStatistics("bits_per_token", "documents", bits_of, tokens_of.astype(np.float64))
        return Measured(counts, figures, {}, blocks.dropped, statistics)


@torch.no_grad()
def _bits_of_sample(model: LanguageModel, blocks: TextBlocks, device: torch.device) -> tuple[float, float]:
    """Return bits per token in one pass and step by step. The sample depends only on the text and the tokenizer."""
    order = Permutation(len(blocks), "repose stepwise 1")
    one_pass = by_steps = 0.0
    number = 0
    for place in range(len(blocks)):
        if number >= SAMPLED_TOKENS:
            break
        ids, labels = (torch.from_numpy(x).to(device) for x in blocks.batch(order(np.array([place]))))
        one_pass += float(_nll(model, model.hidden(ids), labels).sum())
        by_steps += float(stepwise(model, ids[0], labels).sum())
        number += len(labels)
    return one_pass / number / math.log(2), by_steps / number / math.log(2)


def stepwise(model: LanguageModel, ids: Tensor, labels: Tensor) -> Tensor:
    """Return -log p of each label (T,), in nats, each by a pass over only the tokens before it."""
    length, found = len(ids), list[Tensor]()
    num_rows = max(1, _PASS_TOKENS // length)  # all at once would take memory of order length²
    for begin in range(0, length, num_rows):
        end = min(begin + num_rows, length)
        rows = model.hidden(ids[:end].expand(end - begin, end).tril(begin))
        last = torch.arange(begin + 1, end + 1, device=ids.device).cumsum(0) - 1
        found.append(rows[last])
    return _nll(model, torch.cat(found), labels)


def _nll(model: LanguageModel, hidden: Tensor, labels: Tensor) -> Tensor:
    return (
        token_losses(hidden, model.output.weight, model.output.bias, labels)[0].cpu().double()
    )  # not all devices have double precision


TASK = LanguageModellingTask()
