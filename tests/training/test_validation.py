import types
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from repose.data.dataset import PairDataset
from repose.model.transformer import build
from repose.tasks.translation import TASK
from repose.training import validation
from repose.training.distributed import World
from repose.training.validation import PerExample, validate

ALONE = World(0, 1, torch.device("cpu"))


class OneOfTwo(World):
    """The first of two workers; the second one's sums come from outside."""

    def add(self, tensor: torch.Tensor) -> torch.Tensor:
        SUMS.append(tensor.clone())
        return tensor


SUMS: list[torch.Tensor] = []


def test_figures_are_those_of_each_sentence_alone(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "TOKENS_AT_A_TIME", 40)
    data = PairDataset.open(lab.valid)
    model = build(lab.tiny, src_vocab_size=12, tgt_vocab_size=12, seed=1).train()
    figures = validate(model, TASK, data, world=ALONE).figures(keras_batch=10)
    assert model.training
    model.eval()
    losses, hits = [], []
    for index in range(len(data)):
        src, tgt, labels = map(torch.from_numpy, data.batch(np.array([index])))
        logits = model(src, tgt)[0]
        losses.append(F.cross_entropy(logits, labels[0], reduction="none").detach().double())
        hits.append((logits.argmax(1) == labels[0]).double())
    assert figures["tf_loss"] == pytest.approx(float(torch.cat(losses).mean()), rel=1e-6)
    assert figures["tf_accuracy"] == pytest.approx(float(torch.cat(hits).mean()), rel=1e-12)
    # 23 sentences: two batches of 10, and one of 3 that weighs less.
    means = [float(torch.cat(losses[start : start + 10]).mean()) for start in (0, 10, 20)]
    assert figures["tf_loss_keras"] == pytest.approx(np.average(means, weights=[10, 10, 3]), rel=1e-6)


def test_source_gain_is_the_difference_of_two_losses(lab: Any) -> None:
    data = PairDataset.open(lab.valid)
    model = build(lab.tiny, src_vocab_size=12, tgt_vocab_size=12, seed=1).eval()
    figures = validate(model, TASK, data, world=ALONE).figures(keras_batch=10)
    (indices,) = validation._by_length(data)  # all in one batch
    batch = TASK.micro_batch(data, indices, ALONE.device)
    with torch.no_grad():
        right, wrong = (TASK.token_losses(model, p)[0].double().mean() for p in (batch, TASK.with_wrong_sources(batch)))
    assert figures["source_gain"] == pytest.approx(float(wrong - right), abs=1e-6)


def test_source_gain_is_of_the_examples_that_were_read_twice() -> None:
    numbers = [np.array(row, dtype=float) for row in ([1, 2, 3], [0, 1, 0], [1, 2, 4], [0, 5, 0])]
    nll, correct, tokens, other_nll = numbers
    few = PerExample(nll, correct, tokens.astype(int), other_nll, mismatched=np.array([False, True, False]))
    assert few.figures(3)["source_gain"] == (5 - 2) / 2


def test_of_a_large_set_a_share_of_all_lengths_is_read_with_other_sources(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "TOKENS_AT_A_TIME", 20)
    monkeypatch.setattr(validation, "MISMATCHED", 8)
    data = PairDataset.open(lab.valid)
    model = build(lab.tiny, src_vocab_size=12, tgt_vocab_size=12, seed=1)
    mismatched = validate(model, TASK, data, world=ALONE).mismatched
    assert mismatched.sum() == pytest.approx(len(data) / (len(data) // 8), abs=3)
    longer = np.maximum(data.src_lengths, data.tgt_lengths)
    assert longer[mismatched].max() > np.median(longer) > longer[mismatched].min()


def test_an_example_alone_in_its_batch_has_no_other_source(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "TOKENS_AT_A_TIME", 1)
    model = build(lab.tiny, src_vocab_size=12, tgt_vocab_size=12, seed=1)
    figures = validate(model, TASK, PairDataset.open(lab.valid), world=ALONE).figures(keras_batch=10)
    assert "source_gain" not in figures


def test_workers_share_the_set(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "TOKENS_AT_A_TIME", 40)
    data = PairDataset.open(lab.valid)
    model = build(lab.tiny, src_vocab_size=12, tgt_vocab_size=12, seed=1)
    SUMS.clear()
    for rank, size in ((0, 1), (0, 2), (1, 2)):
        validate(model, TASK, data, world=OneOfTwo(rank, size, torch.device("cpu")))
    whole, first, second = SUMS
    assert torch.equal(first + second, whole)
    assert torch.equal((first > 0) & (second > 0), torch.zeros_like(whole, dtype=torch.bool))
    assert (first[0] > 0).sum() == pytest.approx(len(data) / 2, abs=5)


@pytest.mark.parametrize("reverse", [False, True])
def test_no_batch_is_larger_than_the_budget(lab: Any, monkeypatch: pytest.MonkeyPatch, reverse: bool) -> None:
    monkeypatch.setattr(validation, "TOKENS_AT_A_TIME", 30)
    data: Any = PairDataset.open(lab.valid)
    if reverse:
        data = types.SimpleNamespace(src_lengths=data.tgt_lengths, tgt_lengths=data.src_lengths)
    batches = list(validation._by_length(data))
    assert sorted(np.concatenate(batches)) == list(range(len(data.src_lengths)))
    for indices in batches:
        longest = max(data.src_lengths[indices].max(), data.tgt_lengths[indices].max())
        assert longest * len(indices) <= 30
    longest_of = [max(data.src_lengths[i].max(), data.tgt_lengths[i].max()) for i in batches]
    assert longest_of == sorted(longest_of, reverse=True), "what does not fit fails at once"
