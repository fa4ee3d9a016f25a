"""`repose plot share`: how much of a gain in loss comes from looking ahead."""

import json
from pathlib import Path
from typing import Any

import pytest

from repose.report.share import _shares, plot_share
from repose.system.errors import ConfigError

NORM = {
    kind: [f"architecture.{side}_token_norm={kind}" for side in ("encoder", "decoder")]
    for kind in ("none", "vocabulary", "sentence")
}


@pytest.fixture
def runs(make_run: Any) -> list[Path]:
    """Plain, causal and looking ahead: two seeds of each."""
    losses = {
        "none": ([3.0, 2.0], [4.0, 3.0]),
        "vocabulary": ([2.8, 1.2], [3.8, 2.2]),
        "sentence": ([2.0, 0.4], [2.0, 1.4]),
    }
    return [
        make_run(f"{kind}-{seed}", each, seed=seed, settings=NORM[kind])
        for kind, of_seeds in losses.items()
        for seed, each in enumerate(of_seeds)
    ]


def test_the_share_is_of_each_seed(runs: list[Path], tmp_path: Path) -> None:
    plotted = plot_share(runs, tmp_path / "share.svg")
    assert [row[0] for row in plotted.rows] == ["1", "2"]
    # seed 0: 1 - 0.2 / 1.0, then 1 - 0.8 / 1.6; seed 1: 1 - 0.2 / 2.0, then the same
    assert [row[4] for row in plotted.rows] == ["85 %", "50 %"]
    numbers = json.loads((tmp_path / "share.json").read_text(encoding="utf-8"))
    assert [point["mean"] for point in numbers["share"]] == pytest.approx([0.85, 0.5])
    assert numbers["seeds"] == [0, 1]
    assert [row[5] for row in plotted.rows] == ["7", "0"]
    assert (tmp_path / "share.svg").exists()


def test_of_runs_with_the_same_seed_the_first_counts(runs: list[Path], make_run: Any, tmp_path: Path) -> None:
    again = make_run("again", [9.0, 9.0], seed=1, settings=NORM["none"])
    plotted = plot_share([*runs, again], tmp_path / "share.svg")
    assert [row[1] for row in plotted.rows] == ["3.500", "2.500"]
    assert [row[4] for row in plotted.rows] == ["85 %", "50 %"]
    assert plotted.remarks == ["again is left out: none-1 has the same settings and seed."]
    assert str(again) not in json.loads((tmp_path / "share.json").read_text(encoding="utf-8"))["runs"]


def test_an_epoch_whose_gain_is_not_clear_has_no_share(make_run: Any, tmp_path: Path) -> None:
    """The gains are 0.1 and 2 after the first epoch, -1 after the second, and 1 and 2 after the third."""
    losses = {
        "none": ([3.0, 2.0, 2.0], [4.0, 2.0, 3.0]),
        "vocabulary": ([2.9, 2.0, 1.5], [3.0, 2.0, 2.0]),
        "sentence": ([2.9, 3.0, 1.0], [2.0, 3.0, 1.0]),
    }
    runs = [
        make_run(f"{kind}-{seed}", each, seed=seed, settings=NORM[kind])
        for kind, of_seeds in losses.items()
        for seed, each in enumerate(of_seeds)
    ]
    plotted = plot_share(runs, tmp_path / "share.svg")
    assert [row[4:] for row in plotted.rows] == [["–", "–"], ["–", "–"], ["50 %", "0"]]
    assert plotted.remarks == []
    for run in runs:
        path = run / "metrics.jsonl"
        lines = [line for line in path.read_text().splitlines() if '"epoch": 3' not in line or '"end"' in line]
        path.write_text("".join(line + "\n" for line in lines))
    with pytest.raises(ConfigError, match="there is no share: at no epoch"):
        plot_share(runs, tmp_path / "share.svg")


def test_other_settings_are_named(runs: list[Path], tmp_path: Path) -> None:
    for path in (run / "config.json" for run in runs[2:4]):
        config = json.loads(path.read_text())
        config["experiment"]["training"]["learning_rate"] = 0.5
        path.write_text(json.dumps(config))
    (remark,) = plot_share(runs, tmp_path / "share.svg").remarks
    assert remark.startswith(
        "vocabulary: Settings besides the architecture that differ from those of none: learning_rate 0.5 against"
    )


def test_one_seed_has_no_deviation(runs: list[Path], tmp_path: Path) -> None:
    assert {row[5] for row in plot_share(runs[::2], tmp_path / "share.svg").rows} == {"–"}


def test_an_epoch_without_a_gain_has_no_share() -> None:
    assert _shares({1: 2.0, 2: 3.0}, {1: 1.5, 2: 2.5}, {1: 2.0, 2: 1.0}) == {2: 0.75}


def test_without_a_common_epoch_there_is_no_share(make_run: Any, tmp_path: Path) -> None:
    runs = [make_run(f"{kind}-0", [3.0], settings=NORM[kind]) for kind in NORM]
    path = runs[0] / "metrics.jsonl"
    path.write_text(path.read_text().replace('"epoch": 1', '"epoch": 9'))
    with pytest.raises(ConfigError, match="no validated epoch in common"):
        plot_share(runs, tmp_path / "share.svg")


def test_without_the_three_systems_there_is_no_share(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="three systems on one corpus"):
        plot_share(runs[:4], tmp_path / "share.svg")
