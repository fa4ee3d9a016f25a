"""What users see during training."""

from pathlib import Path
from typing import Any

import pytest

from repose.training.display import Lines, Live, Progress, ProgressKind, shown
from repose.training.journal import describe
from repose.training.run import train


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (Progress(340, 1360, seconds_left=722.0), "12 min left"),
        (Progress(340, 1360, seconds_left=722.0, may_end_earlier=True), "at most 12 min left"),
        (Progress(340, 1360, seconds_left=41.0), "41 s left"),
        (Progress(340, None, seconds_left=3600.0 * 3 + 290), "3.1 h left"),
        (Progress(340), ""),
    ],
)
def test_time_left_in_words(progress: Progress, words: str) -> None:
    assert progress.time_left == words


def test_lines_say_how_far_a_slow_training_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, said = [100.0], list[str]()
    monkeypatch.setattr("repose.training.display.time.monotonic", lambda: now[0])
    lines = Lines(said.append)
    lines.advance(Progress(1, 1360, seconds_left=700.0))
    now[0] += 31
    lines.advance(Progress(340, 1360, epoch=2, seconds_left=722.0))
    lines.advance(Progress(341, 1360, epoch=2, seconds_left=722.0))
    assert said == ["epoch 2, update 340 of 1,360, 12 min left"]


def test_no_gain_from_the_source_is_no_negative_zero() -> None:
    validation = {"kind": "valid", "epoch": 1, "update": 19, "source_gain": -0.001}
    assert describe(validation, Progress(19, 19)) == "epoch 1, update 19 of 19, validation: source_gain 0.00"


def test_the_line_that_moves_shows_the_epoch_of_the_last_update() -> None:
    live = Live()
    live.advance(Progress(700, 1360, epoch=6, seconds_left=60.0))
    task = live._progress.tasks[0]
    live.close()
    assert (task.fields["epoch"], task.completed, task.fields["left"]) == (6, 700, "60 s left")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("lines", ["translating: 25 % done, about 2 min left", "translating: 75 % done, about 31 s left"]),
        ("none", []),
    ],
)
def test_other_work_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, kind: ProgressKind, said: list[str]) -> None:
    now, heard = [100.0], list[str]()
    monkeypatch.setattr("repose.training.display.time.monotonic", lambda: now[0])
    with shown("translating", kind, heard.append) as show:
        for share, seconds in ((0.01, 1), (0.25, 30), (0.26, 1), (0.75, 61), (1.0, 60)):
            now[0] += seconds
            show(share)
    assert heard == said


def test_other_work_has_a_bar_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    now = [100.0]
    monkeypatch.setattr("repose.training.display.time.monotonic", lambda: now[0])
    with shown("translating", "live", pytest.fail) as show:
        for share in (0.25, 0.26):
            now[0] += 0.3
            show(share)
    err = capsys.readouterr().err
    assert "translating" in err
    assert "26 % done" in err
    assert "25 % done" not in err


def test_translations_are_shown_as_training_goes_on(
    lab: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def samples(model: Any, _: Any) -> list[tuple[str, str, str]]:
        assert not model.training
        return [("red sun", "SUN\x1b RED", "SUN RED")]

    how: dict[str, Any] = {"device": "cpu", "workers": 1}
    train(lab.job(), tmp_path / "a", progress="lines", samples=samples, **how)
    err = capfd.readouterr().err
    assert err.count("   source: red sun\n") == 1, "once a minute, however often it validates"
    assert "    model: SUN\\x1b RED\n" in err
    assert "of 15, validation" in err
    train(lab.job(), tmp_path / "b", progress="none", samples=samples, **how)
    assert "red sun" not in (tmp_path / "b" / "train.log").read_text()
    assert (tmp_path / "a" / "metrics.jsonl").read_text().count("\n") == (
        tmp_path / "b" / "metrics.jsonl"
    ).read_text().count("\n")
