"""What `repose train`, `init` and `grid` say before and after a training, as somebody new meets it."""

import dataclasses
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from repose.config.experiment import TrainingConfig
from repose.data import phrasebook
from repose.training.schedule import make_schedule

Run = Callable[..., tuple[int, str, str]]
TINY = (
    *("architecture.d_token=16", "architecture.num_heads=2", "architecture.head_dim=8", "architecture.d_ff=32"),
    *("tokenizer.vocab_size=300", "training.batch_size=600", "training.epochs=1", "decoding.max_extra_tokens=3"),
)
SETTINGS = [part for setting in TINY for part in ("--set", setting)]


@pytest.fixture
def run(run_repose: Run, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Run:
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path_factory.getbasetemp() / "repose-home"))
    return run_repose


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


@pytest.mark.parametrize("updates", [None, 7, 8, 9, 40])
def test_it_is_said_where_half_of_the_peak_is_not_exceeded(updates: int | None) -> None:
    config = TrainingConfig(schedule="inverse_sqrt", learning_rate=0.1, warmup_updates=16)
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
    assert f"has a table [grid], for `repose grid {quoted}`: its settings are trained here" in err


def test_what_to_try_next_can_be_pasted(run: Run, corpus: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "my runs" / "größe"
    code, shown, _ = run("train", *corpus, "--out", out, *SETTINGS, "--workers", 1)
    commands = [line.partition("repose ")[2] for line in shown.splitlines() if "repose " in line]
    assert (code, len(commands)) == (0, 5)
    assert all(str(out) in shlex.split(command) for command in commands)


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
    assert "(training.max_hours was 0.01667 (--minutes 1), is 0.03333 (--minutes 2))" in err


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
