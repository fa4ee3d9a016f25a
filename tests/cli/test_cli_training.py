"""What `repose train`, `init` and `grid` print before and after training, as a newcomer sees it."""

import dataclasses
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest

from repose.config.experiment import Experiment, TrainingConfig
from repose.config.file import load
from repose.data import phrasebook
from repose.runs.next_steps import next_steps
from repose.saved_run.folder import RunFolder
from repose.saved_run.records import EndReason, EndRecord, Records, RunStatus
from repose.training.schedule import make_schedule

Run = Callable[..., tuple[int, str, str]]
TINY = (
    *("architecture.d_token=16", "architecture.num_heads=2", "architecture.head_dim=8", "architecture.d_ff=32"),
    *("tokenizer.vocab_size=300", "training.batch_size=600", "training.epochs=1", "decoding.max_extra_tokens=3"),
)
SETTINGS = [part for setting in TINY for part in ("--set", setting)]


@pytest.fixture
def corpus(tmp_path: Path) -> tuple[Path, Path]:
    for side, language in enumerate(("pt", "en")):
        lines = [pair[side] + "\n" for pair in phrasebook.read()["train"][:120]]
        (tmp_path / f"c.{language}").write_text("".join(lines), encoding="utf-8")
    return tmp_path / "c.pt", tmp_path / "c.en"


def test_a_training_that_ends_in_its_warm_up_is_said_to_learn_little(
    run: Run, corpus: tuple[Path, Path], tmp_path: Path
) -> None:
    file = tmp_path / "bare.toml"
    file.write_text('[corpus]\ntrain = ["c.pt", "c.en"]\n', encoding="utf-8")
    code, _, err = run("train", file, "--out", tmp_path / "bare", *SETTINGS, "--workers", 1)
    assert (code, "of the 4,000 updates over which its learning rate rises" in err) == (0, True)
    code, _, err = run("train", *corpus, "--out", tmp_path / "run", *SETTINGS, "--workers", 1)
    assert (code, "learning rate rises" in err) == (0, False)


def test_a_small_table_on_many_positions_is_told(run: Run, corpus: tuple[Path, Path], tmp_path: Path) -> None:
    """Which makes those of a sentence nearly alike."""
    policy = ("--set", "architecture.positions=policy", "--set", "architecture.max_length=2048")
    code, _, err = run("train", *corpus, "--out", tmp_path / "run", *SETTINGS, *policy, "--workers", 1)
    assert (code, "is enlarged to 2,048 positions" in err) == (0, True)
    few = load(None, overrides=["architecture.positions=policy", "architecture.max_length=256"]).experiment
    assert few.positions_warning is None
    longer = ["training.max_src_tokens=1024", "architecture.max_length=2048"]
    many = load(None, overrides=["architecture.positions=policy", *longer]).experiment
    assert many.positions_warning is None, "as many as sentences have"


@pytest.mark.parametrize("kind", ["inverse_sqrt", "linear"])
@pytest.mark.parametrize("updates", [None, 7, 8, 9, 40])
def test_it_is_said_where_half_of_the_peak_is_not_exceeded(updates: int | None, kind: Literal["linear"]) -> None:
    epochs = {"updates": updates} if updates is not None else {}
    config = TrainingConfig(schedule=kind, learning_rate=0.1, warmup_updates=16, **epochs)
    schedule = make_schedule(config, d_token=8, total_updates=updates)
    reached = updates is None or max(map(schedule, range(updates + 1))) > 0.05
    assert (config.warmup_warning(updates) is None) == reached
    assert dataclasses.replace(config, warmup_share=0.5).warmup_warning(updates) is None


def test_a_file_for_another_command_is_told_which(run: Run, corpus: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "my settings.toml"
    text = f'[corpus]\ntrain = ["{corpus[0]}", "{corpus[1]}"]\n'
    quoted = shlex.quote(str(file))
    file.write_text(text, encoding="utf-8")
    assert f"for `repose train --config {quoted}`\n" in run("grid", file, "--dry-run")[2]
    file.write_text(text + '[search.vary]\n"architecture.d_ff" = [8, 16]\n', encoding="utf-8")
    assert f"it has a table [search], for `repose search {quoted}`\n" in run("grid", file, "--dry-run")[2]
    file.write_text(text + '[grid]\npresets = ["reinforced"]\n', encoding="utf-8")
    _, _, err = run("train", file, "--out", tmp_path / "run", *SETTINGS, "--workers", 1)
    assert f"has a table [grid], which is for `repose grid {quoted}`: this training uses the other" in err


def test_what_to_try_next_can_be_pasted(run: Run, corpus: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "my runs" / "größe"
    code, shown, _ = run("train", *corpus, "--out", out, *SETTINGS, "--workers", 1)
    commands = [line.partition("repose ")[2] for line in shown.splitlines() if "repose " in line]
    assert (code, len(commands)) == (0, 5)
    assert all(str(out) in shlex.split(command) for command in commands)


@pytest.mark.parametrize(
    ("losses", "reason", "is_told"),
    [
        ([3.0, 2.5, 2.4], "epochs", True),
        ([3.0, 2.4, 2.5], "epochs", False),
        ([3.0, 2.5, 2.4], "patience", False),
        ([3.0], "updates", False),
        ([], "updates", False),
    ],
)
def test_a_training_that_was_best_at_its_end_may_be_longer(
    losses: list[float], reason: str, is_told: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    training = [{"kind": "valid", "update": n, "epoch": n, "tf_loss": loss} for n, loss in enumerate(losses)]
    end = EndRecord(status=RunStatus.DONE, reason=EndReason(reason), update=9, epoch=3, seconds=1.0, at="")
    config = SimpleNamespace(experiment=Experiment())
    monkeypatch.setattr(RunFolder, "records", lambda *_, **__: Records(tuple(training), end=end))
    monkeypatch.setattr(RunFolder, "config", lambda _: config)
    assert any(next_steps(tmp_path, {})) == is_told
    # chrF, where that chooses the model: the higher the better; not of every validation
    training = [{**record, "chrf": -record["tf_loss"], "tf_loss": 1.0} for record in training]
    training += [{"kind": "valid", "update": 9, "epoch": 9, "tf_loss": 1.0}]
    chosen = Experiment(training=TrainingConfig(best_by="chrf", bleu_every_epochs=1))
    monkeypatch.setattr(RunFolder, "config", lambda _: SimpleNamespace(experiment=chosen))
    assert any(next_steps(tmp_path, {})) == is_told


@pytest.mark.parametrize(
    ("total", "training", "said"),
    [
        (
            100,
            {"epochs": 25},
            "ended the training in epoch 4 of 25: without this limit, it would go on for about 21 min; for",
        ),
        (100, {"updates": 100}, "after 16 of 100 updates: without this limit, it would go on for about 21 min;"),
        (100, {"epochs": 25, "patience": 5}, "would go on for at most 21 min;"),
        (16, {"epochs": 4}, None),
        (None, {}, None),
    ],
)
def test_a_training_that_the_clock_cut_short_says_how_much_it_left_out(
    total: int | None, training: dict[str, int], said: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And not that it may be longer, which is the same advice."""
    valid = [{"kind": "valid", "update": 8 * n, "epoch": 2 * n, "tf_loss": 3.0 - n} for n in (1, 2)]
    place = {"update": 16, "epoch": 4, "seconds": 240.0, "total": total}
    end = EndRecord(status=RunStatus.DONE, reason=EndReason.HOURS, **place, at="")
    experiment = Experiment(training=TrainingConfig(max_hours=4 / 60, **training))
    config = SimpleNamespace(experiment=experiment)
    monkeypatch.setattr(RunFolder, "records", lambda *_, **__: Records(tuple(valid), end=end))
    monkeypatch.setattr(RunFolder, "config", lambda _: config)
    (sentence,) = next_steps(tmp_path, {"source_gain": 0.3})
    assert sentence.startswith("--minutes 4 ended the training") == (said is not None)
    assert (said or "may do better") in sentence
    if said is not None:
        assert sentence.endswith(f"or train this one further: repose train --from {tmp_path} --out ANOTHER")
        told = list(next_steps(tmp_path, {"source_gain": 0.1}))
        assert len(told) == 2
        assert "--from" not in told[0], "a model that ignores its source"


@pytest.mark.parametrize("reason", ["epochs", "patience"])
def test_a_model_that_ignores_its_source_is_the_last_word(
    reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    end = EndRecord(status=RunStatus.DONE, reason=EndReason(reason), update=9, epoch=3, seconds=1.0, at="")
    monkeypatch.setattr(RunFolder, "records", lambda *_, **__: Records((), end=end))
    monkeypatch.setattr(RunFolder, "config", lambda _: SimpleNamespace(experiment=Experiment()))
    *_, sentence = next_steps(tmp_path, {"source_gain": 0.1})
    assert sentence.startswith("WARNING: the model hardly reads its source (it predicts 0.10 nats")
    assert ("train longer" in sentence) == (reason == "epochs")


def test_what_somebody_new_gets_wrong_is_told_with_what_to_do(
    run: Run, corpus: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "four.tsv").write_text("1\tum\t2\tone\n", encoding="utf-8")
    for command, sentence in (
        (("train", *corpus), "name a new folder for the run, as in --out runs/mine"),
        (
            ("train", "my", "text.pt", corpus[1], "--out", "x"),
            "not all of them are there: in a shell, put quotes around names with spaces",
        ),
        (
            ("train", *corpus, "--out", "x", "--set", "training.epochs", "=", "3"),
            "write training.epochs=VALUE, without spaces",
        ),
        (("train", *corpus, "--out", "x", "--set", "dropout=0.2"), "is not a setting: write architecture.dropout=0.2"),
        (("train", *corpus, "--out", "x", "--set", "nosuch=0.2"), "is not a setting: write section.field=value"),
        (
            ("check", tmp_path / "four.tsv"),
            "4 columns instead of 2 (1: '1', 2: 'um', 3: '2', 4: 'one'): name both sides, with --src-field and",
        ),
    ):
        code, _, err = run(*command)
        assert (code > 0, sentence in err) == (True, True), err
    assert run("train", *corpus, "--print-config")[0] == 0, "which writes no run"


def test_two_files_are_asked_for(run: Run, tmp_path: Path) -> None:
    code, _, err = run("train", "a", "b", "--synthetic", "c", "--out", tmp_path / "run")
    assert (code, "--synthetic needs two aligned text files after it: sources and targets" in err) == (2, True)


def test_a_number_of_workers_is_refused_before_anything_is_written(
    run: Run, corpus: tuple[Path, Path], tmp_path: Path
) -> None:
    code, _, err = run("train", *corpus, "--out", tmp_path / "run", "--workers", 1000)
    assert (code, "workers = 1000, but it should be from 1 to" in err, "pairs read" in err) == (2, True, False)
    assert not (tmp_path / "run").exists()


def test_minutes_are_spoken_of_as_minutes(run: Run, corpus: tuple[Path, Path], tmp_path: Path) -> None:
    command = ("train", *corpus, "--out", tmp_path / "run", *SETTINGS, "--workers", 1)
    assert "--minutes should be more than 0, not -1\n" in run(*command, "--minutes", -1)[2]
    assert run(*command, "--minutes", 1)[0] == 0
    _, _, err = run(*command, "--minutes", 2)
    assert "was started with a limit of 1 min, not with a limit of 2 min: a time limit is part of a training" in err
    assert "pairs read" not in err, "the corpus was prepared before"
    assert "changed later; resume it as it was started, start again in another folder, or train" in err
    assert err.endswith(f"or train the weights further in one (--from {tmp_path / 'run'}, or start in Python)\n")
    _, _, err = run(*command, "--minutes", 2, "--set", "training.seed=1")
    assert "training.max_hours was 0.01667 (--minutes 1), is 0.03333 (--minutes 2)" in err
    _, _, err = run(*command, "--set", "training.seed=1")
    assert "training.max_hours was 0.01667 (--minutes 1), is not set" in err
    options = shlex.split(err.split("settings of that run (")[1].split(")")[0])
    assert run(*command, *options)[0] == 0, "they resume that run"


def test_the_recipe_says_what_it_sets_alone(run: Run, corpus: tuple[Path, Path], tmp_path: Path) -> None:
    over = ("--set", "training.r_drop=0", "--set", "tokenizer.vocab_size=300", "--print-config")
    _, _, err = run("train", *corpus, "--out", tmp_path / "run", *over)
    said = err.partition("which sets\n")[2]
    assert "dropout 0.3" in said
    assert "r_drop" not in said
    assert "tokenizer" not in said


def test_init_writes_paths_beside_the_file_from_anywhere(
    run: Run, corpus: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")
    assert run("init", *corpus, "--out", "../mine.toml")[0] == 0
    assert 'train = ["c.pt", "c.en"]' in (tmp_path / "mine.toml").read_text(encoding="utf-8")
