"""Trainings from start to end: stopped, resumed, killed, finished."""

import dataclasses
import json
import math
import os
import random
import re
import shutil
import signal
import socket
import sys
import threading
import types
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file, save_file

from repose.config.experiment import TrainingConfig
from repose.data.prepare import LengthLimits, prepare
from repose.data.tokenizer import Tokenizer
from repose.saved_model import directory as model_dir
from repose.saved_run.folder import RunFolder
from repose.system import files
from repose.system.errors import (
    BusyError,
    CheckpointError,
    ConfigError,
    DeviceError,
    MissingExtraError,
    ReposeError,
    WriteError,
)
from repose.tasks.translation import TASK
from repose.training import advice, checkpoint, clock, distributed, loop
from repose.training.checkpoint import CheckpointWriter, read_state, save
from repose.training.display import Display
from repose.training.distributed import World
from repose.training.run import train
from repose.training.state import State


@pytest.fixture(autouse=True)
def _short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "RECORD_EVERY", 4)


def test_learns_and_leaves_a_model(lab: Any, tmp_path: Path) -> None:
    job = dataclasses.replace(lab.job(epochs=12, learning_rate=8.0), card="A card.", model_extra={"languages": "xx-yy"})
    outcome = lab.go(job, tmp_path)
    assert (outcome.status, outcome.update, outcome.reason) == ("done", 60, "epochs")
    epochs, valid = lab.records(tmp_path, "epoch"), lab.records(tmp_path, "valid")
    assert [record["update"] for record in epochs] == [record["update"] for record in valid] == list(range(5, 61, 5))
    assert [record["epoch"] for record in epochs] == list(range(1, 13))
    assert valid[-1]["tf_loss"] < 0.9 * valid[0]["tf_loss"]
    assert outcome.metrics["tf_loss"] == valid[-1]["tf_loss"]
    loaded = TASK.load(tmp_path / "model")
    assert loaded.config["run_id"] == job.run_id
    assert loaded.config["languages"] == "xx-yy"
    assert loaded.config["validation"] == dict(outcome.metrics)
    assert "A card." in (tmp_path / "model" / "README.md").read_text()
    final = lab.checkpoint(tmp_path)
    for name, tensor in lab.model(tmp_path).items():
        assert torch.equal(tensor, final[f"model.{name}"])


def test_starting_does_not_load_torchs_compiler(lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither to train nor to load what was trained: it takes a second, and is asked nothing."""
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)
    lab.go(lab.job(epochs=1), tmp_path)
    TASK.load(tmp_path / "model")


def test_training_figures(lab: Any, tmp_path: Path) -> None:
    """An epoch's figures are means over its windows' tokens; the learning rate is that of the last update."""
    lab.go(lab.job(epochs=1, warmup_updates=4, learning_rate=0.5), tmp_path)
    window, epoch = lab.records(tmp_path, "train", "epoch")
    assert (window["update"], epoch["update"]) == (4, 5)
    assert window["learning_rate"] == pytest.approx(0.5 * 8**-0.5 * 3 * 4**-1.5)
    assert epoch["learning_rate"] == pytest.approx(0.5 * 8**-0.5 * 4**-0.5)
    assert 0 < window["tokens"] < epoch["tokens"]
    assert epoch["loss"] == epoch["nll"] != epoch["loss_keras"]
    assert math.log(12) * 0.8 < epoch["loss"] < math.log(12) * 1.5
    assert 0 <= epoch["tf_accuracy"] < 1


def test_windows_of_figures_do_not_depend_on_how_often_workers_meet(
    lab: Any, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU is waited for once in some updates, which need not divide a window."""
    begin = loop.Trainer.__init__

    def rarely(self: loop.Trainer, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        self.synchronise_every = 3

    def killed(self: loop.Learner, batch: Any, update: int) -> None:
        if update == 7:  # the last one was not waited for
            raise KeyboardInterrupt
        backward(self, batch, update)

    backward = loop.Learner.backward
    monkeypatch.setattr(loop.Trainer, "__init__", rarely)
    monkeypatch.setattr(CheckpointWriter, "is_due", True)
    with monkeypatch.context() as patch:
        patch.setattr(loop.Learner, "backward", killed)
        with pytest.raises(KeyboardInterrupt):
            lab.go(lab.job(), tmp_path)
    lab.go(lab.job(), tmp_path)
    for ours, theirs in zip(lab.records(tmp_path, "train"), lab.records(whole, "train"), strict=True):
        assert ours.pop("kind") == theirs.pop("kind")
        assert ours == pytest.approx(theirs, rel=1e-12)  # added up in another order


def test_figures_begin_anew_with_each_epoch_and_each_window(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "RECORD_EVERY", 5)  # an epoch
    lab.go(lab.job(epochs=2), tmp_path / "one")
    windows, epochs = (lab.records(tmp_path / "one", kind) for kind in ("train", "epoch"))
    for name in ("loss", "loss_keras", "nll", "tf_accuracy"):
        assert [one[name] for one in windows] == [one[name] for one in epochs]
    monkeypatch.setattr(loop, "RECORD_EVERY", 10)  # two of them, of as many tokens
    lab.go(lab.job(epochs=2), tmp_path / "two")
    (both,) = lab.records(tmp_path / "two", "train")
    first, second = (one["loss"] for one in epochs)
    assert first != second
    assert both["loss"] == pytest.approx((first + second) / 2)


def test_smoothing_reports_both_losses(lab: Any, tmp_path: Path) -> None:
    lab.go(lab.job(epochs=1, label_smoothing=0.2), tmp_path)
    (epoch,) = lab.records(tmp_path, "epoch")
    assert epoch["loss"] != epoch["nll"]


@pytest.fixture(scope="module")
def whole(lab: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 15 updates that nothing interrupts."""
    run_dir = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "RECORD_EVERY", 4)
        assert lab.go(lab.job(), run_dir).update == 15
    return run_dir


@pytest.mark.parametrize("stops", [[1, 1, 1], [4], [5, 5], [7, 1, 6], [14], [15]])
def test_resuming_changes_no_bit(lab: Any, whole: Path, tmp_path: Path, stops: list[int]) -> None:
    for number, stop_after in enumerate(stops):
        outcome = lab.go(lab.job(), tmp_path, stop_after=stop_after)
        assert outcome.update == sum(stops[: number + 1])
        assert outcome.status == ("done" if outcome.update == 15 else "stopped")
        torch.rand(number)
    assert lab.go(lab.job(), tmp_path, workers=None).status == "done"
    lab.assert_same_run(whole, tmp_path)


def test_a_trial_stops_once_its_epoch_is_validated(lab: Any, whole: Path, tmp_path: Path) -> None:
    assert lab.go(lab.job(), tmp_path, until_epoch=2).status == "stopped"
    assert lab.go(lab.job(), tmp_path, until_epoch=2).update == 10
    assert [record["epoch"] for record in lab.records(tmp_path, "valid")] == [1, 2]
    assert lab.go(lab.job(), tmp_path, until_epoch=3).status == "done"
    lab.assert_same_run(whole, tmp_path)


@pytest.mark.parametrize(
    "batching",
    [
        {"batching": "tokens", "batch_size": 40},
        {"accumulation": 3, "clip_norm": 0.5},
        {"r_drop": 5.0, "word_dropout": 0.1, "schedule": "linear", "learning_rate": 1e-3},
    ],
)
def test_resuming_other_recipes(lab: Any, tmp_path: Path, batching: dict[str, Any]) -> None:
    job = lab.job(epochs=None, updates=17, validate_every_updates=4, precision="bf16", **batching)
    lab.go(job, tmp_path / "whole")
    for _ in range(4):
        lab.go(job, tmp_path / "pieces", stop_after=5)
    lab.assert_same_run(tmp_path / "whole", tmp_path / "pieces")
    assert [record["update"] for record in lab.records(tmp_path / "whole", "valid")] == [4, 8, 12, 16, 17]


@pytest.mark.parametrize(("workers", "stop_after"), [(1, 6), (2, 9)])
def test_resuming_draws_the_same_pieces(lab: Any, tmp_path: Path, workers: int, stop_after: int) -> None:
    words = ("red", "blue", "one", "two", "sun", "moon", "tree", "fish")
    lines = [" ".join(random.Random(i).sample(words, 5)) for i in range(40)]
    pairs = [(line, line[::-1]) for line in lines]
    tokenizer = Tokenizer.train([text for pair in pairs for text in pair], kind="bpe", vocab_size=300)
    tokenizer.save(tmp_path / "bpe.json")
    data = tmp_path / "data"
    prepare(pairs, (tokenizer, tokenizer), data, LengthLimits(60, 60, "drop"), workers=1)
    architecture = dataclasses.replace(lab.tiny, max_length=64)
    job = dataclasses.replace(
        lab.job(architecture, bpe_dropout=0.2, max_src_tokens=60, max_tgt_tokens=60),
        **dict.fromkeys(("train_data", "valid_data"), data),
        **dict.fromkeys(("src_tokenizer", "tgt_tokenizer"), tmp_path / "bpe.json"),
    )
    lab.go(job, tmp_path / "whole", workers=workers)
    for _ in range(18 // stop_after):
        lab.go(job, tmp_path / "pieces", workers=workers, stop_after=stop_after)
    lab.assert_same_run(tmp_path / "whole", tmp_path / "pieces")
    tokens = [record["tokens"] for record in lab.records(tmp_path / "whole", "epoch")]
    assert tokens[1] - tokens[0] != tokens[2] - tokens[1]


def test_records_after_the_checkpoint_are_dropped(lab: Any, whole: Path, tmp_path: Path) -> None:
    """As if the process had been killed some time after its last checkpoint, in the middle of a line."""
    lab.go(lab.job(), tmp_path, stop_after=6)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "update": 8, "wall": {"seconds": 1}}\n{"kind": "tra')
    lab.go(lab.job(), tmp_path)
    lab.assert_same_run(whole, tmp_path)


def test_files_of_a_writer_that_was_killed_are_cleared_away(lab: Any, tmp_path: Path) -> None:
    lab.go(lab.job(), tmp_path, stop_after=1)
    halves = ("config.json", "model/README.md", "hypotheses/test.greedy.txt", "state/last.safetensors")
    names = [str(Path(half).parent / f".{Path(half).name}.1a.tmp") for half in halves]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("half")
    (tmp_path / "mine.tmp").write_text("whole")
    lab.go(lab.job(), tmp_path, stop_after=1)
    assert [name for name in (*names, "mine.tmp") if (tmp_path / name).exists()] == ["mine.tmp"]


def test_finished_run_answers_at_once(lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = lab.go(lab.job(), tmp_path)
    monkeypatch.setattr(loop, "Trainer", None)
    written = (tmp_path / "metrics.jsonl").stat().st_mtime_ns
    assert lab.go(lab.job(), tmp_path) == first
    assert (tmp_path / "metrics.jsonl").stat().st_mtime_ns == written


def test_a_finished_run_without_state_answers_under_torchrun_too(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = lab.go(lab.job(), tmp_path)
    shutil.rmtree(tmp_path / "state")
    records = (tmp_path / "metrics.jsonl").read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))
    again = lab.go(lab.job(), tmp_path)
    assert (again.status, again.update) == (first.status, first.update)
    assert (tmp_path / "metrics.jsonl").read_bytes() == records
    with pytest.raises(ConfigError, match="workers is 2, but a launcher has started 1 of them"):
        lab.go(lab.job(), tmp_path, workers=2)


def test_the_first_update_says_nothing_of_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = types.SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(clock, "time", types.SimpleNamespace(monotonic=lambda: now.seconds))
    timed = clock.Clock(0.0, update=0, max_hours=120 / 3600)
    state, config = types.SimpleNamespace(update=0), types.SimpleNamespace(patience=None)
    trainer: Any = types.SimpleNamespace(clock=timed, state=state, config=config, total=100_000, _epoch=lambda: 1)
    left, seconds, totals = [], [], []
    for state.update, now.seconds in ((0, 5.0), (1, 10.0), (2, 10.25), (10, 12.25)):
        left.append(timed.updates_left(state.update))
        trainer.end = state.update + left[-1]
        progress = loop.Trainer._progress(trainer)
        seconds.append(progress.seconds_left)
        totals.append(progress.of_total)
    assert left == pytest.approx([math.inf, math.inf, 439, 431])  # a quarter of a second each, 120 seconds in all
    assert seconds == pytest.approx([115, 110, 109.75, 107.75])
    assert totals == [" of 100,000"] * 2 + [" of about 441"] * 2
    trainer.total = 50
    assert loop.Trainer._progress(trainer).seconds_left == pytest.approx(10.0), "what people see is of the same speed"
    assert loop.Trainer._progress(trainer).of_total == " of 50", "the clock would allow more"
    assert clock.Clock(100.0, update=50, max_hours=200 / 3600).updates_left(50) == pytest.approx(50), "when resumed"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP"])
def test_signals_stop_after_the_update(
    lab: Any, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    step = loop.Learner.backward

    def interrupted(self: Any, update: Any, number: int) -> None:
        if number == 6:
            os.kill(os.getpid(), getattr(signal, name))
        step(self, update, number)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Learner, "backward", interrupted)
        outcome = lab.go(lab.job(), tmp_path)
    assert (outcome.status, outcome.reason, outcome.update) == ("stopped", name, 7)
    assert {number: signal.getsignal(number) for number in handlers} == handlers
    lab.go(lab.job(), tmp_path)
    lab.assert_same_run(whole, tmp_path)


def test_trains_outside_the_main_thread(lab: Any, whole: Path, tmp_path: Path) -> None:
    thread = threading.Thread(target=lab.go, args=(lab.job(), tmp_path))
    thread.start()
    thread.join()
    lab.assert_same_run(whole, tmp_path)


def test_busy_run_directory(lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def second(*_: Any) -> dict[str, float]:
        with monkeypatch.context() as patch:
            patch.setattr("repose.training.run._TRAINING", threading.Lock())  # another process has its own
            with pytest.raises(BusyError, match=f"process {os.getpid()} on .* is training in"):
                lab.go(lab.job(), tmp_path)
        return {"refused": 1.0}

    outcome = lab.go(lab.job(epochs=1, bleu_every_epochs=1), tmp_path, evaluate=second)
    assert outcome.metrics["refused"] == 1.0


def test_further_figures_of_the_validation_set(lab: Any, tmp_path: Path) -> None:
    def bleu(model: Any, job: Any) -> dict[str, float]:
        assert job.run_id == lab.job().run_id
        assert not model.training
        assert not torch.is_grad_enabled()
        return {"bleu": 12.5}

    outcome = lab.go(lab.job(epochs=3, bleu_every_epochs=2), tmp_path, evaluate=bleu)
    assert ["bleu" in record for record in lab.records(tmp_path, "valid")] == [False, True, False]
    assert "bleu" not in outcome.metrics


def test_what_is_looked_at_between_updates_does_not_change_the_training(lab: Any, tmp_path: Path) -> None:
    """Dropout is on again after translations of the validation set, and after those that are shown."""

    def evaluate(model: Any, _: Any) -> dict[str, float]:
        assert not model.training
        return {"bleu": 1.0}

    job = lab.job(epochs=2, bleu_every_epochs=1)
    lab.go(lab.job(epochs=2), tmp_path / "plain")
    lab.go(job, tmp_path / "translated", evaluate=evaluate)
    how: dict[str, Any] = {"device": "cpu", "workers": 1, "progress": "lines"}
    train(lab.job(epochs=2), tmp_path / "shown", samples=lambda *_: [("a", "b", "c")], **how)
    plain, *others = (lab.checkpoint(tmp_path / name) for name in ("plain", "translated", "shown"))
    for other in others:
        assert all(torch.equal(other[name], tensor) for name, tensor in plain.items())


@pytest.mark.parametrize("stops", [[], [14, 7, 9], [10, 20]])
def test_translations_come_after_so_many_epochs_whenever_validations_are(
    lab: Any, tmp_path: Path, stops: list[int]
) -> None:
    """Epochs of five updates, two of which translate; validations at updates 7, 14, 21, 28, 35 and 40."""
    job = lab.job(epochs=8, bleu_every_epochs=2, validate_every_updates=7)
    for stop_after in (*stops, None):
        lab.go(job, tmp_path, stop_after=stop_after, evaluate=lambda *_: {"bleu": 1.0})
    translated = [record["update"] for record in lab.records(tmp_path, "valid") if "bleu" in record]
    assert translated == [14, 21, 35, 40]


def test_a_gradient_that_is_no_number_is_not_followed(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backward = loop.Learner.backward

    def overflowing(self: Any, batch: Any, update: int) -> None:
        backward(self, batch, update)
        self.norm = torch.tensor(math.inf if update == 3 else 1.0)

    monkeypatch.setattr(loop.Learner, "backward", overflowing)
    with pytest.raises(loop.DivergenceError, match="the gradient is no longer a finite number after update 3: "):
        lab.go(lab.job(), tmp_path)


def test_diverging_stops_and_keeps_the_last_checkpoint(lab: Any, tmp_path: Path) -> None:
    job = lab.job(learning_rate=1e30, warmup_updates=10)
    lab.go(job, tmp_path, stop_after=1)  # whose learning rate is 0
    before = (tmp_path / "state" / "last.safetensors").read_bytes()
    with pytest.raises(ReposeError, match=r"no longer a finite number.*learning_rate.*warmup_updates.*clip_norm"):
        lab.go(job, tmp_path)
    assert (tmp_path / "state" / "last.safetensors").read_bytes() == before
    assert all(tensor.isfinite().all() for tensor in lab.checkpoint(tmp_path).values())
    assert "failed: the " in (tmp_path / "train.log").read_text().splitlines()[-1]
    with pytest.raises(ReposeError, match=r"raise training\.warmup_share \(0\.5\), or"):
        lab.go(lab.job(learning_rate=1e30, warmup_share=0.5), tmp_path / "share")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("keep", ["best", "last"])
def test_a_validation_that_is_no_number_displaces_nothing(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str, workers: int
) -> None:
    """As where a step leads to weights too large for their products: training's own losses were finite until then."""
    job = lab.job(lab.still, keep=keep, average_checkpoints=2, learning_rate=1.0)
    lab.go(job, tmp_path, stop_after=6, workers=workers)
    left = [tmp_path / "state" / name for name in ("last.safetensors", "weights-00000005.safetensors")]
    before = [path.read_bytes() for path in (*left, tmp_path / "model" / "model.safetensors")]
    step = loop.Learner.step

    def leap(self: Any, rate: float) -> None:
        step(self, rate if self._steps < 9 else 1e38)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Learner, "step", leap)
        message = (
            r"validation loss is no longer a finite number after update 10: .*; the model of earlier validations is"
        )
        with pytest.raises(ReposeError, match=message):
            lab.go(job, tmp_path, workers=None)
    assert [path.read_bytes() for path in (*left, tmp_path / "model" / "model.safetensors")] == before
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text()
    assert TASK.load(tmp_path / "model").config["updates"] == [5]
    assert lab.go(job, tmp_path, workers=None).status == "done"


def test_early_stopping(lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([3.0, 2.0, 2.5, 2.0, 1.0])
    monkeypatch.setattr(loop.Trainer, "_figures", lambda *_: {"tf_loss": next(losses)})
    outcome = lab.go(lab.job(epochs=9, patience=2), tmp_path)
    assert (outcome.status, outcome.update) == ("done", 20)
    assert outcome.reason == "patience"


@pytest.mark.parametrize("workers", [1, 2])
def test_the_best_by_chrf_is_kept(lab: Any, tmp_path: Path, workers: int) -> None:
    values = iter([10.0, 30.0, 20.0, 25.0, 99.0])
    job = lab.job(epochs=9, patience=2, keep="best", best_by="chrf")
    outcome = lab.go(job, tmp_path, workers=workers, evaluate=lambda *_: {"chrf": next(values)})
    assert (outcome.reason, outcome.update) == ("patience", 20)
    assert json.loads((tmp_path / "model" / "config.json").read_text())["updates"] == [10]


def test_early_stopping_counts_over_resumes(lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([3.0, 2.0, 2.5, 2.0, 1.0])
    monkeypatch.setattr(loop.Trainer, "_figures", lambda *_: {"tf_loss": next(losses)})
    for _ in range(3):
        outcome = lab.go(lab.job(epochs=9, patience=2), tmp_path, stop_after=7)
    assert (outcome.status, outcome.update) == ("done", 20)


@pytest.mark.parametrize("best_by", ["loss", "chrf"])
def test_plateau_lowers_the_learning_rate(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, best_by: str
) -> None:
    """By the loss, whatever models are chosen by."""
    losses, scores = iter([3.0, 4.0, 4.0, 2.0]), iter([10.0, 20.0, 30.0, 40.0])
    monkeypatch.setattr(loop.Trainer, "_figures", lambda *_: {"tf_loss": next(losses)})
    recipe = {"schedule": "plateau", "learning_rate": 0.01, "plateau_patience": 1, "plateau_factor": 0.1}
    job = lab.job(epochs=4, warmup_updates=5, best_by=best_by, keep="best", **recipe)
    for _ in range(4):
        lab.go(job, tmp_path, stop_after=6, evaluate=lambda *_: {"chrf": next(scores)})
    # The first validation is at the warm-up's end, and does not count; the second is the best so far.
    rates = [record["learning_rate"] for record in lab.records(tmp_path, "epoch")]
    assert rates == pytest.approx([0.008, 0.01, 0.01, 0.001])


def test_plateau_does_not_look_at_the_first_epochs(lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two validations an epoch, none of them better than the one before; those of the third epoch count first."""
    losses = iter(range(1, 9))
    monkeypatch.setattr(loop.Trainer, "_figures", lambda *_: {"tf_loss": float(next(losses))})
    recipe = {"schedule": "plateau", "learning_rate": 0.01, "plateau_patience": 1, "plateau_factor": 0.1}
    job = lab.job(epochs=4, warmup_updates=0, plateau_after_epochs=2, validate_every_updates=3, **recipe)
    for _ in range(4):
        lab.go(job, tmp_path, stop_after=6)
    # At updates 3 to 18; that at 12 is the best so far, the next two are not.
    rates = [record["learning_rate"] for record in lab.records(tmp_path, "epoch")]
    assert rates == pytest.approx([0.01, 0.01, 0.01, 0.0001])


def test_plateau_has_a_threshold(lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([3.0, 2.9, 2.0])
    monkeypatch.setattr(loop.Trainer, "_figures", lambda *_: {"tf_loss": next(losses)})
    recipe = {"schedule": "plateau", "learning_rate": 0.01, "plateau_patience": 1, "plateau_factor": 0.1}
    lab.go(lab.job(epochs=3, warmup_updates=0, plateau_threshold=0.1, **recipe), tmp_path)
    rates = [record["learning_rate"] for record in lab.records(tmp_path, "epoch")]
    assert rates == pytest.approx([0.01, 0.01, 0.001])


def edit_state(run_dir: Path, **changes: Any) -> State:
    """Change what a checkpoint says; returns what it said."""
    path = run_dir / "state" / "last.safetensors"
    state = read_state(path, "0123456789ab")
    save(path, load_file(path), dataclasses.replace(state, **changes))
    return state


def test_a_run_that_moves_from_gpus_to_processors_shares_out_anew(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker was a GPU there, and its threads those of another machine; on the same kind of device, both stay."""
    monkeypatch.setattr(distributed, "MIN_TOKENS_PER_WORKER", 1)
    monkeypatch.setattr(distributed, "available_cores", lambda: 2)
    job = lab.job(epochs=3)
    lab.go(job, tmp_path, stop_after=2)
    path = tmp_path / "state" / "last.safetensors"
    assert read_state(path, "0123456789ab").device == "cpu"
    edit_state(tmp_path, threads=3)
    lab.go(job, tmp_path, workers=None, stop_after=1)
    assert (read_state(path, "0123456789ab").workers, read_state(path, "0123456789ab").threads) == (1, 3)
    edit_state(tmp_path, device="cuda")
    lab.go(job, tmp_path, workers=None, stop_after=1)
    state = read_state(path, "0123456789ab")
    assert (state.workers, state.threads, state.device) == (2, 1, "cpu")


def test_a_training_without_time_makes_one_update(lab: Any, tmp_path: Path) -> None:
    job = lab.job(epochs=None, max_hours=1e-9)
    outcome = lab.go(job, tmp_path, stop_after=30)  # at the latest
    assert (outcome.status, outcome.reason, outcome.update) == ("done", "max_hours", 1)
    assert [record["update"] for record in RunFolder(tmp_path).records().of_kind("valid")] == [1]
    assert TASK.load(tmp_path / "model").config["updates"] == [1]
    assert lab.go(job, tmp_path) == outcome


def test_a_clock_that_ends_the_training_while_its_rate_rises_is_named(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_CLOCK_KNOWN", 3)
    monkeypatch.setattr(advice, "FEW_EPOCHS", 0)
    sentence = "updates over which its learning rate rises, so it learns little: try --set training.warmup_updates="
    for name, told, changes in (
        ("alone", True, {"epochs": None}),
        ("beside epochs", True, {"epochs": 10**7}),
        ("a linear schedule, which it shortens", False, {"epochs": 10**7, "schedule": "linear", "learning_rate": 0.01}),
        ("a short warm-up", False, {"epochs": None, "warmup_updates": 2}),
    ):
        job = lab.job(**{"max_hours": 1 / 60, "warmup_updates": 10**7, **changes})
        lab.go(job, tmp_path / name, stop_after=4)
        log = (tmp_path / name / "train.log").read_text()
        assert (log.count("the time limit ends the training after about") == 1, sentence in log) == (told, told), name


@pytest.mark.parametrize(
    ("told", "changes"),
    [
        (True, {"max_hours": 1 / 60}),
        (True, {"max_hours": 1 / 60, "epochs": 10**7}),
        (False, {"max_hours": 1 / 60, "r_drop": 0.0}),
        (False, {"max_hours": 10_000.0}),
        (False, {"epochs": 1, "max_hours": 1 / 6}),
        (False, {"epochs": 1, "max_hours": None}),
    ],
)
def test_a_clock_that_ends_a_training_with_r_drop_early_is_named(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool, changes: dict[str, Any]
) -> None:
    monkeypatch.setattr(loop, "_CLOCK_KNOWN", 3)
    monkeypatch.setattr(advice, "FEW_EPOCHS", 1_000_000)  # of a few updates
    lab.go(lab.job(**{"epochs": None, "r_drop": 1.0, "warmup_updates": 2, **changes}), tmp_path, stop_after=4)
    log = (tmp_path / "train.log").read_text()
    assert ("in this time without R-Drop" in log, "(try --set training.r_drop=0, or" in log) == (told, told)


@pytest.mark.parametrize(
    ("told", "changes"),
    [
        (True, {"max_hours": 1 / 60, "epochs": 10**7}),
        (False, {"max_hours": 1 / 60, "epochs": None}),  # nothing else was planned
        (False, {"max_hours": 10_000.0, "epochs": 10**7}),
        (False, {"max_hours": 1 / 60, "epochs": 1}),
    ],
)
def test_a_clock_that_leaves_few_of_the_epochs_is_named(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool, changes: dict[str, Any]
) -> None:
    monkeypatch.setattr(loop, "_CLOCK_KNOWN", 3)
    monkeypatch.setattr(advice, "FEW_EPOCHS", 1_000_000)  # of a few updates
    lab.go(lab.job(**{"max_hours": 1 / 60, "warmup_updates": 2, **changes}), tmp_path, stop_after=4)
    log = (tmp_path / "train.log").read_text()
    assert ("of 10,000,000 epochs: give it more time" in log) == told
    assert ("the time limit ends the training after about" in log) == told


def test_a_linear_schedule_ends_where_the_clock_ends_the_training(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock.Clock, "updates_left", lambda _, update: 10.0 - update)
    limits = {"epochs": None, "updates": 1000, "max_hours": 1.0}
    lab.go(lab.job(**limits, schedule="linear", warmup_updates=2, learning_rate=0.01), tmp_path, stop_after=8)
    rates = [record["learning_rate"] for record in lab.records(tmp_path, "train")]
    assert rates == pytest.approx([0.01 * (10 - update) / 8 for update in (3, 7)])


@pytest.mark.parametrize(("by_clock", "epochs"), [(True, 10**7), (False, 1)])
def test_progress_counts_the_updates_that_the_clock_allows(
    lab: Any, tmp_path: Path, by_clock: bool, epochs: int
) -> None:
    lab.go(lab.job(epochs=epochs, max_hours=0.1, validate_every_updates=2), tmp_path, stop_after=4)
    found = re.findall(r"update 4 of (about )?([\d,]+), training", (tmp_path / "train.log").read_text())
    ((about, total),) = found
    assert (bool(about), int(total.replace(",", "")) < 10**7) == (by_clock, True)


def test_half_of_the_planned_epochs_are_not_few() -> None:
    few = advice.leaves_few_epochs(TrainingConfig(), epochs=2.6, planned=20.0)
    assert few == "the time limit ends the training after about 3 of 20 epochs: give it more time for a better model"
    less = advice.leaves_few_epochs(TrainingConfig(), epochs=0.31, planned=1.0)
    assert less == "the time limit ends the training after about 0.31 of 1 epoch: give it more time for a better model"
    assert "about 0.031 of 0.4 epochs" in str(advice.leaves_few_epochs(TrainingConfig(), epochs=0.031, planned=0.4))
    assert advice.leaves_few_epochs(TrainingConfig(), epochs=2.6, planned=5.0) is None
    assert advice.leaves_few_epochs(TrainingConfig(), epochs=12.0, planned=40.0) is None


def test_a_finished_training_with_damaged_records_is_no_outcome_under_any_launcher(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.go(lab.job(epochs=1), tmp_path)
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"epoch"', '"epocj"', 1))
    with pytest.raises(CheckpointError):
        lab.go(lab.job(epochs=1), tmp_path)
    launched = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        launched["MASTER_PORT"] = str(free.getsockname()[1])
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CheckpointError):
        lab.go(lab.job(epochs=1), tmp_path, workers=None)


def test_max_hours_is_summed_over_resumes(lab: Any, tmp_path: Path) -> None:
    job = lab.job(epochs=None, max_hours=1.0)
    lab.go(job, tmp_path, stop_after=7)
    assert 0 < edit_state(tmp_path, seconds=3600.5).seconds < 3600
    outcome = lab.go(job, tmp_path, stop_after=30)  # at the latest
    assert (outcome.status, outcome.reason, outcome.update) == ("done", "max_hours", 7)
    assert [record["update"] for record in lab.records(tmp_path, "valid")] == [5, 7]
    assert lab.go(job, tmp_path) == outcome


@pytest.mark.parametrize(
    ("keep", "number", "kept", "updates"),
    [
        ("best", 2, [True, True, False, True], [10, 20]),
        ("best", 1, [True, True, False, False], [10]),
        ("last", 2, [True, True, True, True], [15, 20]),
    ],
)
def test_snapshots_are_the_best_or_the_last(keep: Any, number: int, kept: list[bool], updates: list[int]) -> None:
    state, found = State("0123456789ab", workers=1, threads=1), []
    for state.update, cost in ((5, 2.0), (10, 1.0), (15, 3.0), (20, 1.0)):
        found.append(state.add_snapshot(cost, keep=keep, number=number))
    assert (found, state.snapshot_updates) == (kept, updates)


def test_numbers_of_workers_count_from_the_first_update_on() -> None:
    state = State("0123456789ab", workers=0, threads=0)
    for update, workers, numbers in ((0, 2, (2,)), (0, 1, (1,)), (3, 1, (1,)), (3, 2, (1, 2)), (7, 2, (1, 2))):
        state.update = update
        state.share_out(workers, threads=1)
        assert (state.workers, state.all_workers) == (workers, numbers)


def test_another_number_of_workers_is_said(lab: Any, tmp_path: Path) -> None:
    lab.go(lab.job(), tmp_path, stop_after=7)
    edit_state(tmp_path, workers=2, all_workers=[2])
    assert lab.go(lab.job(), tmp_path, workers=1).status == "done"
    log = (tmp_path / "train.log").read_text()
    assert "going on with 1 worker instead of 2: dropout masks differ from here on" in log
    assert model_dir.read_config(tmp_path)["run_id"] == "0123456789ab-w2+1", (
        "scores are told apart from those of one worker"
    )


def weights_by_update(lab: Any, job: Any, folder: Path, updates: list[int]) -> list[dict[str, torch.Tensor]]:
    found = []
    for update in updates:
        lab.go(job, folder, stop_after=update - (updates[len(found) - 1] if found else 0))
        found.append(lab.checkpoint(folder))
    return found


@pytest.mark.parametrize(
    ("keep", "of_mean", "kept"),
    [("last", 9.0, [10, 15]), ("best", 0.5, [5, 10]), ("best", 1.5, [5]), ("best", math.nan, [5])],
    ids=["last", "best", "worse than the best", "no number"],
)
def test_model_is_the_average_of_validations(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str, of_mean: float, kept: list[int]
) -> None:
    """With keep = "best" only where the mean validates no worse than the best alone."""
    plain = weights_by_update(lab, lab.job(), tmp_path / "plain", kept)
    losses = iter([1.0, 2.0, 3.0, of_mean, 1.0])
    monkeypatch.setattr(loop.Trainer, "_figures", lambda *_: {"tf_loss": next(losses)})
    job = lab.job(keep=keep, average_checkpoints=2)
    for _ in range(3):
        lab.go(job, tmp_path / "run", stop_after=6)
    mean = {name: sum(one[name].double() for one in plain) / len(plain) for name in plain[0]}
    for name, tensor in lab.model(tmp_path / "run").items():
        torch.testing.assert_close(tensor.double(), mean[f"model.{name}"], rtol=1e-7, atol=1e-9)
    state = tmp_path / "run" / "state"
    for name in ("weights-00000099.safetensors", f".last.safetensors.{'0' * 8}.tmp"):  # as after a kill at the very end
        (state / name).touch()
    lab.go(job, tmp_path / "run")
    names = ["last.safetensors", *(f"weights-{update:08d}.safetensors" for update in kept)]
    assert sorted(path.name for path in state.glob("*.safetensors*")) == names
    config = model_dir.read_config(tmp_path / "run")
    assert config["updates"] == kept
    loss = 1.0 if len(kept) == 1 else of_mean
    assert config["validation"] == {"tf_loss": loss}
    (of_model,) = RunFolder(tmp_path / "run").records().of_kind("model")
    assert of_model["tf_loss"] == loss


def test_the_recorded_validation_of_an_average_is_its_own(lab: Any, tmp_path: Path) -> None:
    job = lab.job(keep="best", average_checkpoints=2)
    lab.go(job, tmp_path, stop_after=11)
    assert "validation" not in model_dir.read_config(tmp_path)  # not measured yet
    lab.go(job, tmp_path)
    recorded = model_dir.read_config(tmp_path)["validation"]
    model, valid = job.task.load(tmp_path).model, job.task.open(job.valid_data)
    figures = loop.validate(model, job.task, valid, world=World(0, 1, torch.device("cpu"))).figures(keras_batch=64)
    assert recorded["tf_loss"] == pytest.approx(figures["tf_loss"], abs=1e-6)
    assert recorded["tf_accuracy"] == figures["tf_accuracy"]


@pytest.mark.parametrize("keep", ["best", "last"])
def test_only_weights_that_the_average_needs_stay_on_disk(lab: Any, tmp_path: Path, keep: str) -> None:
    lab.go(lab.job(epochs=5, keep=keep, average_checkpoints=2), tmp_path, stop_after=20)
    kept = read_state(tmp_path / "state" / "last.safetensors", lab.job().run_id).snapshot_updates
    assert len(kept) == 2
    names = ["last.safetensors", *(f"weights-{update:08d}.safetensors" for update in sorted(kept))]
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == names


def test_averaging_does_not_disturb_the_training(lab: Any, whole: Path, tmp_path: Path) -> None:
    lab.go(lab.job(average_checkpoints=2), tmp_path)
    for name, tensor in lab.checkpoint(whole).items():
        assert torch.equal(lab.checkpoint(tmp_path)[name], tensor), name


def test_a_checkpoint_is_on_disk_before_it_takes_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, flushed = tmp_path / "last.safetensors", []
    monkeypatch.setattr(files, "_flush", lambda path: flushed.append((path, place.exists())))
    save(place, {"x": torch.zeros(2)}, State("0123456789ab", workers=1, threads=1))
    (temporary, was_there), (folder, is_there) = flushed
    assert (temporary.suffix, was_there) == (".tmp", False)
    assert (folder, is_there) == (tmp_path, True)


def test_a_checkpoint_is_due_so_many_minutes_after_the_last(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = types.SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(checkpoint, "time", types.SimpleNamespace(monotonic=lambda: now.seconds))
    run, state = RunFolder(tmp_path), State("0123456789ab", workers=1, threads=1)
    run.state.mkdir()
    others: Any = [types.SimpleNamespace(tensors=dict), state, types.SimpleNamespace(seconds=7.0)]
    journal: Any = types.SimpleNamespace(sync=lambda: (0, 0))
    writer = CheckpointWriter(lab.job(save_every_minutes=2.0), run, *others, journal)
    due = []
    for now.seconds in (1119.0, 1121.0, 1240.0, 1242.0):
        due.append(writer.is_due)
        if writer.is_due:
            writer.save()
    assert due == [False, True, False, True]
    assert read_state(run.checkpoint, "0123456789ab").seconds == 7.0


def test_checkpoint_of_another_version(lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.go(lab.job(), tmp_path, stop_after=1)
    monkeypatch.setattr(checkpoint, "FORMAT", "repose training state 3")
    with pytest.raises(CheckpointError, match="is not a checkpoint of this version: train in a new run directory"):
        lab.go(lab.job(), tmp_path)


def test_checkpoint_of_another_run(lab: Any, tmp_path: Path) -> None:
    lab.go(lab.job(), tmp_path, stop_after=1)
    with pytest.raises(CheckpointError, match="belongs to run 0123456789ab, not to fedcba987654"):
        lab.go(lab.job(run_id="fedcba987654"), tmp_path)
    wider = dataclasses.replace(lab.tiny, d_ff=24)
    with pytest.raises(CheckpointError, match="another architecture"):
        lab.go(lab.job(wider), tmp_path)


@pytest.mark.parametrize("damage", ["cut", "noise", "empty", "foreign"])
def test_damaged_checkpoint(lab: Any, tmp_path: Path, damage: str) -> None:
    lab.go(lab.job(), tmp_path, stop_after=1)
    path = tmp_path / "state" / "last.safetensors"
    content = path.read_bytes()
    damaged = {"cut": content[: len(content) // 2], "noise": b"\x99" * 100, "empty": b""}
    if damage == "foreign":
        save_file({"x": torch.zeros(1)}, path)
    else:
        path.write_bytes(damaged[damage])
    with pytest.raises(CheckpointError) as caught:
        lab.go(lab.job(), tmp_path)
    assert str(path) in str(caught.value)


def test_a_changed_byte_of_a_checkpoint_is_refused(lab: Any, tmp_path: Path) -> None:
    """Wherever it is: in the header, in the state, in the weights."""
    lab.go(lab.job(keep="best", average_checkpoints=2), tmp_path, stop_after=6)
    (snapshot,) = (tmp_path / "state").glob("weights-*")
    for path in (tmp_path / "state" / "last.safetensors", snapshot):
        whole, tensors = path.read_bytes(), load_file(path)
        places = torch.randint(9, len(whole), (25,), generator=torch.Generator().manual_seed(1)).tolist()
        for place in (*places, whole.index(b'\\"epoch\\": 1') + 11, len(whole) - 1):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(CheckpointError) as caught:
                read_all(path, tensors)
            assert str(path) in str(caught.value)
            assert "\n" not in str(caught.value)
        path.write_bytes(whole)
    assert lab.go(lab.job(keep="best", average_checkpoints=2), tmp_path).status == "done"


def read_all(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    read_state(path, "0123456789ab")
    checkpoint.load(path, {name: torch.empty_like(tensor) for name, tensor in tensors.items()})


METRICS_DAMAGES = {
    "missing": lambda _: None,
    "empty": lambda _: b"",
    "cut": lambda content: content[: len(content) // 2],
    "a digit": lambda content: content.replace(b'"tf_loss": 2', b'"tf_loss": 1'),
    "NUL": lambda content: content[:100] + b"\0" * 20 + content[120:],
}


@pytest.mark.parametrize("damage", METRICS_DAMAGES.values(), ids=METRICS_DAMAGES.keys())
def test_damaged_records_are_one_sentence_at_the_start(lab: Any, tmp_path: Path, damage: Any) -> None:
    lab.go(lab.job(), tmp_path, stop_after=6)
    metrics = tmp_path / "metrics.jsonl"
    before = damage(metrics.read_bytes())
    assert before != metrics.read_bytes()
    metrics.unlink()
    if before is not None:
        metrics.write_bytes(before)
    what = "missing" if before is None else "damaged"
    with pytest.raises(
        CheckpointError, match=rf"metrics\.jsonl is {what}: restore it, or train in a new run directory$"
    ):
        lab.go(lab.job(), tmp_path)
    assert (metrics.read_bytes() if metrics.exists() else None) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_named_with_its_path(lab: Any, tmp_path: Path) -> None:
    (tmp_path / "train.log").symlink_to("/dev/full")
    with pytest.raises(WriteError, match=r"train\.log cannot be written \(No space left on device\)"):
        lab.go(lab.job(), tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match=r"file.state cannot be written \(Not a directory\)"):
        lab.go(lab.job(), tmp_path / "file")


@pytest.mark.parametrize("stop_after", [0, -1])
def test_a_stop_before_the_first_update_is_refused(lab: Any, tmp_path: Path, stop_after: int) -> None:
    with pytest.raises(ConfigError, match=f"stop_after = {stop_after}, but a training can stop after 1 update"):
        lab.go(lab.job(), tmp_path, stop_after=stop_after)
    assert not list(tmp_path.iterdir())


def test_full_disk_stops_with_a_sentence(lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.go(lab.job(), tmp_path, stop_after=3)
    before = (tmp_path / "state" / "last.safetensors").read_bytes()

    def full(_tensors: Any, path: Path, _metadata: Any) -> None:
        path.write_bytes(b"the beginning of a file")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", full)
        with pytest.raises(WriteError, match=r"cannot be written \(No space left on device\).*last whole checkpoint"):
            lab.go(lab.job(), tmp_path, stop_after=1)
    assert (tmp_path / "state" / "last.safetensors").read_bytes() == before
    assert not list((tmp_path / "state").glob("*.tmp"))


def test_fine_tuning_starts_from_a_model(lab: Any, tmp_path: Path) -> None:
    lab.go(lab.job(), tmp_path / "first")
    job = lab.job(epochs=1, init_from=str(tmp_path / "first" / "model"))
    lab.go(job, tmp_path / "second", stop_after=1)  # whose learning rate is 0
    start = lab.checkpoint(tmp_path / "second")
    for name, tensor in lab.model(tmp_path / "first").items():
        assert torch.equal(start[f"model.{name}"], tensor)
    wider = dataclasses.replace(lab.tiny, d_ff=24)
    with pytest.raises(CheckpointError, match="another architecture"):
        lab.go(lab.job(wider, init_from=str(tmp_path / "first")), tmp_path / "third")
    drier = dataclasses.replace(lab.tiny, dropout=0.4)
    built: Any = TASK.build(lab.job(drier, init_from=str(tmp_path / "first")))
    assert built.architecture == drier
    assert all(torch.equal(built.state_dict()[name], tensor) for name, tensor in lab.model(tmp_path / "first").items())
    mixed = dataclasses.replace(job, src_tokenizer=job.tgt_tokenizer)
    with pytest.raises(CheckpointError, match="other tokenizers"):
        lab.go(mixed, tmp_path / "fourth")


def test_devices_and_workers_that_are_not_there(lab: Any, tmp_path: Path) -> None:
    with pytest.raises(DeviceError):
        train(lab.job(), tmp_path, device="tpu", progress="none")
    with pytest.raises(DeviceError):
        train(lab.job(), tmp_path, device="cuda:99", progress="none")
    with pytest.raises(ConfigError, match="workers = 0"):
        train(lab.job(), tmp_path, device="cpu", workers=0, progress="none")


def test_progress_goes_to_stderr_and_the_log(lab: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for progress in ("lines", "live"):
        train(lab.job(epochs=1), tmp_path / progress, device="cpu", workers=1, progress=progress)
        out, err = capfd.readouterr()
        assert out == ""
        assert "validation: tf_loss" in err
        assert "done at update 5 (1 epoch)" in err
        log = (tmp_path / progress / "train.log").read_text()
        assert "starting run 0123456789ab at update 0, 1 worker of 1 thread on cpu" in log
        assert "epoch 1, update 5 of 5, validation: tf_loss" in log


def test_the_first_record_is_about_the_data_and_the_last_about_the_end(lab: Any, tmp_path: Path) -> None:
    job = lab.job()
    for stop_after, status, reason, update, epoch in (
        (4, "stopped", "stop_after", 4, 1),
        (5, "stopped", "stop_after", 9, 2),
        (None, "done", "epochs", 15, 3),
    ):
        lab.go(job, tmp_path, stop_after=stop_after)
        lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
        assert lines[0] == job.data.to_json()
        assert lines[0].keys() == {"kind", "examples", "tokens", "vocabulary", "dropped", "truncated", "findings"}
        assert lines[-1] == {
            **{"kind": "end", "status": status, "reason": reason, "update": update, "epoch": epoch, "total": 15},
            "wall": lines[-1]["wall"],
        }
        assert lines[-1]["wall"].keys() == {"seconds", "at", "crc32"}
        assert all(list(line)[:3] == ["kind", "update", "epoch"] for line in lines[1:-1])
        assert not any(line["kind"] in ("data", "end") for line in lines[1:-1])


@pytest.mark.parametrize(("updates", "total"), [(7, 7), (100, 10)])
def test_the_nearer_of_two_limits_is_the_total(lab: Any, tmp_path: Path, updates: int, total: int) -> None:
    lab.go(lab.job(epochs=2, updates=updates), tmp_path, stop_after=1)
    end = RunFolder(tmp_path).records(may_be_empty=True).end
    assert end is not None
    assert end.total == total


class Board:
    """Stands in for TensorBoard, which need not be installed."""

    scalars: ClassVar[list[tuple[str, float, int]]] = []

    def __init__(self, folder: str, purge_step: int) -> None:
        assert Path(folder).name == "tensorboard"
        self.scalars[:] = [scalar for scalar in self.scalars if scalar[2] < purge_step]

    def add_scalar(self, name: str, value: float, update: int) -> None:
        self.scalars.append((name, value, update))

    def close(self) -> None:
        self.scalars.append(("closed", 0.0, 0))


def test_tensorboard(lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Board
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    outcome = lab.go(lab.job(epochs=1), tmp_path, tensorboard=True)
    assert ("valid/tf_loss", outcome.metrics["tf_loss"], 5) in Board.scalars
    assert Board.scalars[-1][0] == "closed"
    lab.go(lab.job(epochs=3), tmp_path / "again", tensorboard=True, stop_after=7)
    told = [(name, step) for name, _, step in Board.scalars if name != "closed"]
    lab.go(lab.job(epochs=3), tmp_path / "again", tensorboard=True)
    assert [(name, step) for name, _, step in Board.scalars if name != "closed"][: len(told)] == told
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'repose-nmt\[tensorboard\]'"):
        lab.go(lab.job(epochs=1), tmp_path / "without", tensorboard=True)


def test_a_terminal_is_given_back_where_a_training_cannot_begin(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live display hides the cursor."""
    closed = []

    class Watched(Display):
        def close(self) -> None:
            closed.append(self)

    monkeypatch.setattr("repose.training.run.make_display", lambda *_: Watched())
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtraError):
        lab.go(lab.job(epochs=1), tmp_path, tensorboard=True)
    assert len(closed) == 1


def test_a_model_that_ignores_its_source_is_named(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    gains = iter([0.0, 0.0, 0.0, 0.0, 0.1, 0.5, 0.19])
    monkeypatch.setattr(loop.Trainer, "_figures", lambda *_: {"tf_loss": 1.0, "source_gain": next(gains)})
    job = lab.job(epochs=7)
    train(job, tmp_path, device="cpu", workers=1, progress="lines")
    said = [line for line in capfd.readouterr().err.splitlines() if "hardly reads its source" in line]
    assert len(said) == 2  # early, and at the end
    assert "0.10 nats" in said[0]
    assert "0.19 nats" in said[1]
    assert "train longer, try a learning rate below" in said[0]
    assert "architecture" not in said[0]  # its initial values are Keras', with which norms elsewhere gained nothing


def test_no_lower_rate_is_advised_while_it_still_rises(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop.Trainer, "_figures", lambda *_: {"tf_loss": 1.0, "source_gain": 0.1})
    lab.go(lab.job(epochs=1, warmup_updates=1000), tmp_path)
    log = (tmp_path / "train.log").read_text()
    assert "train longer, try fewer tokens per update, or add pairs" in log


def test_no_longer_training_is_advised_where_patience_ended_it(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop.Trainer, "_figures", lambda *_: {"tf_loss": 1.0, "source_gain": 0.1})
    lab.go(lab.job(epochs=4, patience=1), tmp_path)
    log = (tmp_path / "train.log").read_text()
    assert "with another): try a learning rate below" in log


@pytest.mark.parametrize(
    ("norm", "initialisation", "is_advised"),
    [
        *[("post", "xavier", True), ("post", "fairseq", True), ("post", "kaiming", False), ("post", "keras", False)],
        *[("pre", "xavier", False), ("both", "xavier", False)],
    ],
)
def test_other_norms_and_initial_values_are_advised_where_they_are_known_to_help(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, norm: Any, initialisation: Any, is_advised: bool
) -> None:
    """docs/transformer-tiny.md, "Initial values and the place of norms"."""
    monkeypatch.setattr(loop.Trainer, "_figures", lambda *_: {"tf_loss": 1.0, "source_gain": 0.1})
    lab.go(
        lab.job(dataclasses.replace(lab.tiny, norm=norm, initialisation=initialisation), epochs=1, warmup_updates=2),
        tmp_path,
    )
    log = (tmp_path / "train.log").read_text()
    assert "hardly reads its source" in log
    advice = "train longer, set architecture.initialisation = 'keras' or architecture.norm = 'pre', try a learning"
    assert (advice in log, "set architecture" in log) == (is_advised, is_advised)
