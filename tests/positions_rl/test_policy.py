"""Learning: what users type and see, what remains after an interruption, and where SAC converges for each reward."""

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gymnasium")
pytest.importorskip("stable_baselines3")

from repose.positions_rl import policy, rewards, table
from repose.positions_rl.policy import Settings, working_in
from repose.positions_rl.rewards import REWARDS, best_literal
from repose.system.errors import BusyError, CheckpointError, ConfigError
from repose.system.locks import locked_or_busy
from repose.system.terminal import Say

Run = Callable[..., tuple[int, str, str]]
TINY = Settings(shape=(3, 4), steps=320)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Checkpoints every 96 steps and an oracle that is cheap, except in trainings of full length."""
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr(policy, "CHECKPOINT_STEPS", 96)
        monkeypatch.setattr(policy, "RANDOM_STEPS", 64)
        monkeypatch.setattr(rewards, "ASCENT_STEPS", 20)


def silent(_: str) -> None:
    pass


def stop_at(word: str) -> Say:
    def say(sentence: str) -> None:
        if word in sentence:
            raise KeyboardInterrupt

    return say


@pytest.fixture
def run(run_repose: Run) -> Run:
    """Runs `repose positions learn` in this process: (exit code, stdout, stderr)."""
    return functools.partial(run_repose, "positions", "learn")


def test_a_folder_is_no_file_for_a_table(tmp_path: Path, run: Run) -> None:
    for out in (".", "..", str(tmp_path)):
        code, _, err = run("--out", out)
        assert code == 2
        assert "a folder: name a file" in err


def test_a_tiny_table_is_learned(tmp_path: Path, run: Run) -> None:
    arguments = ("--out", tmp_path / "t.json", "--shape", "3x4", "--steps", 200, "--seed", 4, "--reward", "literal")
    code, shown, err = run(*arguments)
    assert code == 0
    assert "step 96 of 200: score " in err
    assert "step 200 of 200: score " in err
    for name in ("random", "sinusoid", "learned", "gradient ascent"):
        assert name in shown
    found = table.read(tmp_path / "t.json")
    assert found.score == pytest.approx(REWARDS["literal"](found.values), abs=1e-6)
    assert found.provenance["command"].endswith("learn --reward literal --shape 3x4 --steps 200 --seed 4")
    assert set(found.provenance["versions"]) >= {"stable-baselines3", "gymnasium", "torch"}
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]

    code, again, err = run(*arguments)
    assert (code, again) == (0, shown)
    assert "already finished" in err
    code, _, err = run(*arguments, "--seed", 5)
    assert code == 2
    assert "was learned with other settings" in err


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = policy.learn(TINY, tmp_path / "whole.json", tmp_path / "whole.work", silent)
    parts = (TINY, tmp_path / "parts.json", tmp_path / "parts.work")
    for stop in ("step 96", "step 192"):
        with pytest.raises(KeyboardInterrupt):
            policy.learn(*parts, stop_at(stop))
        assert not parts[1].exists()
    said: list[str] = []
    resumed = policy.learn(*parts, said.append)
    assert said[0] == "resuming after step 192 of 320"
    assert resumed.digest == whole.digest
    assert (tmp_path / "parts.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
    assert not parts[2].exists()


def test_seeds_differ_and_nothing_is_left_among_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    learned = [
        policy.learn(Settings(shape=(3, 4), steps=160, seed=seed), tmp_path / f"{seed}.json", tmp_path / "w", silent)
        for seed in (0, 1)
    ]
    assert learned[0].digest != learned[1].digest
    assert list((tmp_path / "temporary").iterdir()) == []


def test_an_interruption_exits_3_and_the_same_command_resumes(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(sentence: str) -> None:
        print(sentence, file=sys.stderr)
        if sentence.startswith("step 96 "):
            raise KeyboardInterrupt  # what Ctrl-C does

    arguments = ("--out", tmp_path / "t.json", "--shape", "3x4", "--steps", 200)
    with monkeypatch.context() as patch:
        patch.setattr("repose.cli.positions.say", interrupt)
        code, _, err = run(*arguments)
    assert code == 3
    assert "stopped: the same command resumes" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.work"]
    code, _, err = run(*arguments)
    assert code == 0
    assert "resuming after step 96 of 200" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.json"]


@pytest.mark.usefixtures("locks_of_windows")
def test_the_work_folder_goes_though_its_lock_is_in_it(tmp_path: Path) -> None:
    with working_in(tmp_path / "w"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_other_settings_in_a_work_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        policy.learn(TINY, tmp_path / "t.json", tmp_path / "w", stop_at("step 96"))
    for other in (
        Settings(shape=(3, 4), steps=320, seed=1),
        Settings(shape=(4, 3), steps=320),
        Settings(shape=(3, 4), steps=640),
        Settings(shape=(3, 4), steps=320, reward="literal"),
    ):
        with pytest.raises(ConfigError, match="unfinished run with other settings"):
            policy.learn(other, tmp_path / "t.json", tmp_path / "w", silent)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a file that the library leaves open
def test_a_work_folder_that_is_damaged_or_anothers_is_refused(tmp_path: Path) -> None:
    work = tmp_path / "w"
    with pytest.raises(KeyboardInterrupt):
        policy.learn(TINY, tmp_path / "t.json", work, stop_at("step 96"))
    state = json.loads((work / "state.json").read_text())
    networks, replay = (work / state[name] for name in ("networks", "replay"))
    whole = replay.read_bytes()
    replay.write_bytes(b"cno_such_module\nAnything\n.")
    with pytest.raises(CheckpointError, match="is damaged: remove it"):
        policy.learn(TINY, tmp_path / "t.json", work, silent)
    replay.write_bytes(whole)
    networks.write_bytes(networks.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="is damaged: remove it"):
        policy.learn(TINY, tmp_path / "t.json", work, silent)
    (work / "state.json").write_text("{")
    with pytest.raises(CheckpointError, match="is damaged: remove it"):
        policy.learn(TINY, tmp_path / "t.json", work, silent)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").touch()
    with pytest.raises(ConfigError, match="holds something else"):
        policy.learn(TINY, tmp_path / "t.json", tmp_path / "thesis", silent)


def test_a_work_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    with (
        locked_or_busy(tmp_path / "w" / "lock", ""),
        pytest.raises(BusyError, match=r"process \d+ on .* is learning in"),
    ):
        policy.learn(TINY, tmp_path / "t.json", tmp_path / "w", silent)


def test_a_strangers_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("{}")
    with pytest.raises(ConfigError, match="is not a position table: name another file"):
        policy.learn(TINY, tmp_path / "notes.json", tmp_path / "w", silent)
    assert (tmp_path / "notes.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--reward", "sond"), "did you mean 'sound'?"),
        (("--shape", "8by16"), "'8by16' is not a shape"),
        (("--shape", "1x16"), "at least 2 positions"),
        (("--steps", "0"), "--steps must be at least 1"),
        (("--seed", "-1"), "--seed from 0 to 4294967295"),
        (("--seed", "4294967296"), "--seed from 0 to 4294967295"),
    ],
)
def test_wrong_usage_is_one_sentence(tmp_path: Path, run: Run, arguments: tuple[str, ...], sentence: str) -> None:
    code, _, err = run("--out", tmp_path / "t.json", *arguments)
    assert code == 2
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_missing_extra_is_one_sentence(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    code, _, err = run("--out", tmp_path / "t.json")
    assert code == 2
    assert "pip install 'repose-nmt[rl]'" in err


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(8, 16), (16, 8)])
def test_sac_on_the_literal_reward_makes_all_positions_equal(tmp_path: Path, shape: tuple[int, int]) -> None:
    found = policy.learn(Settings(shape=shape, reward="literal"), tmp_path / "t.json", tmp_path / "w", silent)
    assert found.score > 0.95 * best_literal(*shape)
    assert found.values.std(axis=0).mean() < 0.02  # of numbers in [-1, 1]
    assert np.abs(found.values).mean() > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(8, 16), (16, 8)])
def test_sac_on_the_sound_reward_comes_near_the_oracle(tmp_path: Path, shape: tuple[int, int]) -> None:
    found = policy.learn(Settings(shape=shape), tmp_path / "t.json", tmp_path / "w", silent)
    scores = found.provenance["scores"]
    assert found.score > scores["sinusoid"]
    assert scores["oracle"] > -0.02
    assert (found.score - scores["random"]) / (scores["oracle"] - scores["random"]) >= 0.9
