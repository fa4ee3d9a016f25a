"""Language modelling and parsing in the same training loop: stopped, resumed, distributed, continued."""

import dataclasses
import random
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from repose.config.experiment import DecodingConfig, TrainingConfig
from repose.data.text_blocks import Documents, write_blocks
from repose.data.tokenizer import Tokenizer
from repose.data.treebank import Tree, label_inventory, write_treebank
from repose.model.architecture import Architecture
from repose.model.presets import preset
from repose.saved_run.records import DataRecord
from repose.system.errors import CheckpointError
from repose.tasks import translation
from repose.tasks.base import position_table
from repose.tasks.registry import get_task
from repose.tasks.translation import TASK as TRANSLATION
from repose.training import loop
from repose.training.distributed import World
from repose.training.feed import round_up_size, to_device
from repose.training.job import TrainingJob
from repose.training.run import train
from repose.training.validation import validate

CPU = torch.device("cpu")
WORDS = ("red", "blue", "one", "two", "sun", "moon", "tree", "fish")
Make = Callable[..., TrainingJob]


def rhyme(draw: random.Random) -> list[str]:
    """Words in their order, from somewhere on: each says what follows."""
    begin = draw.randrange(8)
    return [WORDS[(begin + i) % 8] for i in range(draw.randint(2, 9))]


def chain(words: list[str]) -> Tree:
    """Each word hangs on the one after it, the last on ROOT; a colour's label is "colour"."""
    heads = (*range(2, len(words) + 1), 0)
    return Tree(tuple(words), heads, tuple("colour" if w in ("red", "blue") else "thing" for w in words))


@pytest.fixture(scope="module")
def jobs(lab: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Make]:
    folder = tmp_path_factory.mktemp("tasks")
    draw = random.Random(1)
    sentences = [rhyme(draw) for _ in range(60)]
    tokenizer = Tokenizer.train(list(WORDS), kind="wordlevel", vocab_size=20)
    tokenizer.save(folder / "tokenizer.json")
    labels = label_inventory(map(chain, sentences))
    for split, part in (("train", sentences[:37]), ("valid", sentences[37:])):
        (folder / f"{split}.txt").write_text("\n".join(map(" ".join, part)), encoding="utf-8")
        documents = Documents(folder / f"{split}.txt")
        write_blocks(documents, tokenizer, folder / "language_modelling" / split, max_tokens=6)
        write_treebank(map(chain, part), tokenizer, labels, folder / "parsing" / split, max_tokens=None)

    def make(task: str) -> Make:
        def job(architecture: Architecture = lab.tiny, **training: Any) -> TrainingJob:
            recipe: dict[str, Any] = {"batching": "tokens", "batch_size": 40, "warmup_updates": 10, "epochs": 3}
            return TrainingJob(
                task=get_task(task),
                architecture=architecture,
                training=TrainingConfig(**({"task": task} | recipe | training)),
                decoding=DecodingConfig(),
                train_data=folder / task / "train",
                valid_data=folder / task / "valid",
                src_tokenizer=folder / "tokenizer.json",
                tgt_tokenizer=folder / "tokenizer.json",
                run_id="0123456789ab",
                data=DataRecord(examples={}),
            )

        return job

    return {task: make(task) for task in ("language_modelling", "parsing")}


LEARNT = {"language_modelling": 0.6, "parsing": 0.8}
"""Share that is far beyond guessing. Where a rhyme ends cannot be known."""
both = pytest.mark.parametrize("task", ["language_modelling", "parsing"])


@both
def test_learns_and_leaves_a_model_that_measures_alike(
    lab: Any, jobs: dict[str, Make], tmp_path: Path, task: str
) -> None:
    recipe: dict[str, Any] = {"epochs": None, "updates": 100, "validate_every_updates": 1000}
    recipe |= {"schedule": "constant", "learning_rate": 0.02}
    job = dataclasses.replace(jobs[task](lab.still, **recipe), card="A card.", model_extra={"lang": "xx"})
    outcome = lab.go(job, tmp_path)
    assert outcome.metrics["tf_accuracy"] > LEARNT[task]
    loaded = get_task(task).load(tmp_path)
    assert (loaded.config["task"], loaded.config["lang"]) == (task, "xx")
    assert loaded.config["validation"] == dict(outcome.metrics)
    assert "A card." in (tmp_path / "model" / "README.md").read_text()
    assert loaded.tokenizers[0].digest == Tokenizer.load(job.src_tokenizer).digest
    examples, alone = job.task.open(job.valid_data), World(0, 1, CPU)
    figures = validate(loaded.model, job.task, examples, world=alone).figures(keras_batch=64)
    assert figures == outcome.metrics


@both
@pytest.mark.parametrize(
    "recipe", [{}, {"batching": "sentences", "batch_size": 8, "accumulation": 2, "clip_norm": 0.5}]
)
def test_resuming_changes_no_bit(
    lab: Any, jobs: dict[str, Make], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, recipe: dict[str, Any]
) -> None:
    monkeypatch.setattr(loop, "RECORD_EVERY", 4)
    job = jobs[task](**recipe)
    whole = lab.go(job, tmp_path / "whole")
    for stop_after in (1, 6):
        assert lab.go(job, tmp_path / "pieces", stop_after=stop_after).status == "stopped"
        torch.rand(stop_after)
    assert lab.go(job, tmp_path / "pieces", workers=None) == whole
    lab.assert_same_run(tmp_path / "whole", tmp_path / "pieces")


@pytest.mark.parametrize("task", [pytest.param("language_modelling", marks=pytest.mark.slow), "parsing"])
def test_two_workers_equal_one(lab: Any, jobs: dict[str, Make], tmp_path: Path, task: str) -> None:
    # Adam's usual epsilon would show rounding: see test_distributed.
    job = jobs[task](lab.still, adam_eps=0.1, accumulation=2, epochs=2)
    for workers in (1, 2):
        lab.go(job, tmp_path / str(workers), workers=workers)
    one, two = (lab.checkpoint(tmp_path / str(workers)) for workers in (1, 2))
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-4, atol=1e-6)
    for mine, theirs in zip(lab.figures(tmp_path / "1"), lab.figures(tmp_path / "2"), strict=True):
        assert mine.pop("kind") == theirs.pop("kind")
        assert mine == pytest.approx(theirs, rel=1e-5)


@both
def test_fine_tuning_starts_from_a_model_of_the_same_task(
    lab: Any, jobs: dict[str, Make], tmp_path: Path, task: str
) -> None:
    lab.go(jobs[task](epochs=1), tmp_path / "first")
    job = jobs[task](epochs=1, init_from=str(tmp_path / "first"))
    lab.go(job, tmp_path / "second", stop_after=1)  # whose learning rate is 0
    start = lab.checkpoint(tmp_path / "second")
    for name, tensor in lab.model(tmp_path / "first").items():
        assert torch.equal(start[f"model.{name}"], tensor)
    other = jobs["parsing" if task != "parsing" else "language_modelling"](init_from=str(tmp_path / "first"))
    with pytest.raises(CheckpointError, match=f"holds a model of '{task.replace('_', ' ')}'"):
        lab.go(other, tmp_path / "third")
    with pytest.raises(CheckpointError, match="but one of 'translation' is needed"):
        TRANSLATION.load(tmp_path / "first")


def test_a_parser_goes_on_with_its_own_labels_alone(lab: Any, jobs: dict[str, Make], tmp_path: Path) -> None:
    lab.go(jobs["parsing"](epochs=1), tmp_path / "first")
    tokenizer = Tokenizer.load(tmp_path / "first" / "model" / "tokenizer.json")
    trees = [chain(list(WORDS[:4])) for _ in range(8)]
    renamed = [dataclasses.replace(tree, labels=tuple(label.upper() for label in tree.labels)) for tree in trees]
    write_treebank(renamed, tokenizer, label_inventory(renamed), tmp_path / "other", max_tokens=None)
    job = jobs["parsing"](epochs=1, init_from=str(tmp_path / "first"))
    with pytest.raises(CheckpointError, match="other labels than the treebank"):
        lab.go(dataclasses.replace(job, train_data=tmp_path / "other"), tmp_path / "second")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_policys_positions_and_other_precisions_train(
    lab: Any, jobs: dict[str, Make], tmp_path: Path, precision: str
) -> None:
    a = dataclasses.replace(preset("policy-positions"), d_token=8, num_heads=2, head_dim=4, d_ff=16, max_length=32)
    a = dataclasses.replace(a, num_encoder_layers=1, num_decoder_layers=1)
    for task, make in jobs.items():
        job = dataclasses.replace(make(a, epochs=1, precision=precision), position_table=((0.5, 0.25), (0.0, 1.0)))
        assert lab.go(job, tmp_path / task).metrics["tf_loss"] > 0


@torch.no_grad()
def test_word_losses_by_hand(lab: Any, jobs: dict[str, Make]) -> None:
    job = jobs["parsing"](lab.still)
    task: Any = job.task
    model: Any = task.build(job).eval()
    bank = task.open(job.valid_data)
    batch = task.micro_batch(bank, np.arange(3), CPU)
    nll, correct = task.token_losses(model, batch)
    words = model.words(batch.src, batch.first)
    arcs, labels = model.arcs(words), words.packing.pad(model.labels(words, batch.heads.clamp(min=0)))
    expected, right = [], []
    for row in range(3):
        for word in range(1, int(bank.tgt_lengths[row]) + 1):
            head, label = int(batch.heads[row, word]), int(batch.labels[row, word])
            own = arcs[row, word][: int(bank.tgt_lengths[row]) + 1]
            expected.append(float(-own.log_softmax(0)[head] - labels[row, word].log_softmax(0)[label]))
            right.append(bool(own.argmax() == head and labels[row, word].argmax() == label))
    assert nll.tolist() == pytest.approx(expected, abs=1e-5)
    assert correct.tolist() == right
    sums = task.training_loss(model, batch, TrainingConfig())
    assert float(sums.loss) == pytest.approx(sum(expected), rel=1e-5)
    assert float(sums.correct) == sum(right)


@torch.no_grad()
def test_a_label_that_the_training_set_lacks_is_never_right_and_never_written(lab: Any, jobs: dict[str, Make]) -> None:
    job = jobs["parsing"](lab.still)
    task: Any = job.task
    model: Any = task.build(job).eval()
    bank = task.open(job.valid_data)
    batch = task.micro_batch(bank, np.arange(len(bank)), CPU)
    words = model.words(batch.src, batch.first)
    heads = model.arcs(words).argmax(2)
    names = words.packing.pad(model.labels(words, heads)).argmax(2)
    is_word = batch.first > 0
    assert (names[is_word] == 0).any(), "it predicts the others' label"
    _, correct = task.token_losses(model, batch._replace(heads=heads, labels=names))
    assert torch.equal(correct, names[is_word] > 0)
    assert all(label > 0 for parse in task.parse(model, bank) for label in parse.labels)


@torch.no_grad()
def test_token_losses_by_hand(lab: Any, jobs: dict[str, Make]) -> None:
    job = jobs["language_modelling"](lab.still)
    task: Any = job.task
    model: Any = task.build(job).eval()
    batch = task.micro_batch(task.open(job.valid_data), np.arange(4), CPU)
    logits = model(batch.ids)[batch.ids != 0]
    sums = task.training_loss(model, batch, TrainingConfig(label_smoothing=0.1))
    assert float(sums.loss) == pytest.approx(
        float(F.cross_entropy(logits, batch.labels, reduction="sum", label_smoothing=0.1)), rel=1e-5
    )
    assert float(sums.nll) == pytest.approx(float(task.token_losses(model, batch)[0].sum()), rel=1e-5)


@pytest.mark.parametrize("training", [{}, {"label_smoothing": 0.1}, {"r_drop": 1.0}], ids=str)
@pytest.mark.parametrize("name", ["translation", "language_modelling"])
def test_micro_batches_of_few_shapes_are_the_same(
    name: str, training: dict[str, Any], lab: Any, jobs: dict[str, Make]
) -> None:
    """Loss, figures and gradients, for each of several micro-batches that come in fewer shapes."""
    if "r_drop" in training and name != "translation":
        pytest.skip("there is no such training")
    job = (jobs | {"translation": lab.job})[name](lab.still, **training)
    task: Any = job.task
    model, examples, shapes = task.build(job), task.open(job.train_data), set()
    for start in range(0, 36, 6):
        found = []
        for make in (task.micro_batch, task.bucketed_micro_batch):
            model.zero_grad()
            batch = make(examples, np.arange(start, start + 6), CPU)
            sums = task.training_loss(model, batch, job.training)
            sums.loss.backward()
            found.append([*sums, *(p.grad for p in model.parameters() if p.grad is not None)])
        shapes.add(tuple(x.shape for x in batch if x is not None))
        assert len(found[0]) > 3
        for plain, filled in zip(*found, strict=True):
            torch.testing.assert_close(filled, plain, atol=1e-5, rtol=1e-5)
    assert task.allows_cuda_graphs
    assert len(shapes) < 4


def test_both_passes_of_r_drop_are_read_where_micro_batches_come_in_few_shapes(lab: Any) -> None:
    """Their dropout differs, so that they disagree."""
    job, losses = lab.job(), []
    model, examples = TRANSLATION.build(job).train(), TRANSLATION.open(job.train_data)
    batch = TRANSLATION.bucketed_micro_batch(examples, np.arange(6), CPU)
    for weight in (1e-9, 100.0):
        torch.manual_seed(0)
        config = dataclasses.replace(job.training, r_drop=weight)
        losses.append(float(TRANSLATION.training_loss(model, batch, config).loss.detach()))
    assert losses[1] > 1.1 * losses[0]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", ["language_modelling", "parsing"])
def test_other_tasks_train_on_a_gpu_as_on_the_cpu(
    name: str, device: str, lab: Any, jobs: dict[str, Make], tmp_path: Path
) -> None:
    """Without dropout, and with steps that do not follow the sign of each gradient (`test_gpu`)."""
    job = jobs[name](lab.still, epochs=4, adam_eps=0.1)
    for folder, its in (("usual", "cpu"), ("its", device)):
        train(job, tmp_path / folder, device=its, workers=1, progress="none")
    for mine, theirs in zip(lab.figures(tmp_path / "its"), lab.figures(tmp_path / "usual"), strict=True):
        assert mine.pop("kind") == theirs.pop("kind")
        assert mine == pytest.approx(theirs, rel=1e-3, abs=1e-3)


def test_arrays_go_to_devices_that_cannot_pin_memory() -> None:
    arrays = np.arange(6).reshape(2, 3), np.arange(4)
    assert [x.shape for x in to_device(arrays, torch.device("meta"))] == [(2, 3), (4,)]


def test_sizes_are_rounded_up_to_few() -> None:
    numbers = [round_up_size(size) for size in range(1, 1025)]
    assert all(size <= number < size + max(8, size / 4) for size, number in enumerate(numbers, 1))
    assert set(numbers) == {8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512} | {
        640,
        768,
        896,
        1024,
    }
    assert round_up_size(65, 70) == 70
    assert [round_up_size(size, finest=1) for size in (1, 2, 3, 8, 9, 64, 65)] == [1, 2, 3, 8, 10, 64, 80]


def test_word_dropout_hides_words_alone() -> None:
    ids = torch.tensor([[2, 5, 6, 7, 8, 3, 0, 0]] * 500)
    torch.manual_seed(0)
    hidden = translation._hide(ids, 0.25)
    assert torch.equal(hidden[:, [0, 5, 6, 7]], ids[:, [0, 5, 6, 7]])
    changed = hidden != ids
    assert (hidden[changed] == 1).all()
    assert changed[:, 1:5].float().mean() == pytest.approx(0.25, abs=0.03)
    assert translation._hide(ids, 0.0) is ids


def test_word_dropout_leaves_tags() -> None:
    ids = torch.tensor([[2, 4, 6, 7, 8, 3]] * 500)
    tagged = torch.arange(500) % 2 == 0
    torch.manual_seed(0)
    changed = translation._hide(ids, 0.25, tagged.long()) != ids
    assert not changed[tagged, 1].any()
    assert changed[~tagged, 1].float().mean() == pytest.approx(0.25, abs=0.06)
    assert changed[:, 2:5].float().mean() == pytest.approx(0.25, abs=0.03)


def test_word_dropout_hides_words_of_both_sides_in_both_passes(lab: Any) -> None:
    job, seen = lab.job(r_drop=1.0, word_dropout=0.5), list[torch.Tensor]()

    def hidden(src: torch.Tensor, tgt: torch.Tensor, _: object) -> None:
        seen.extend((src, tgt))
        raise InterruptedError

    tagged = torch.arange(37) % 2
    batch = TRANSLATION.micro_batch(TRANSLATION.open(job.train_data), np.arange(37), CPU)._replace(tagged=tagged)
    with pytest.raises(InterruptedError):
        TRANSLATION.training_loss(types.SimpleNamespace(hidden=hidden, output=None), batch, job.training)  # type: ignore[arg-type]
    for both, given in zip(seen, (batch.src, batch.tgt), strict=True):
        one, other = (ids == 1 for ids in both.chunk(2))
        assert one.any()
        assert (one != other).any()
        assert torch.equal(both.masked_fill(both == 1, 0), given.repeat(2, 1).masked_fill(both == 1, 0))
    assert (seen[0][:, 1] != 1)[tagged.repeat(2) == 1].all()
    assert (seen[0][:, 1] == 1).any()


def test_a_table_of_positions_is_on_the_cpu_whatever_a_program_has_as_default() -> None:
    with torch.device("meta"):
        table = position_table(types.SimpleNamespace(position_table=((1.0, 2.0),)))  # type: ignore[arg-type]
    assert table is not None
    assert table.tolist() == [[1.0, 2.0]]
