"""Learning curves: what is aggregated, what it is called, and what is drawn."""

import json
import statistics
import xml.etree.ElementTree as ET
from math import inf
from pathlib import Path
from typing import Any

import pytest

from repose.model.presets import preset
from repose.plots.learning_curves import Point, curves, read_run, summaries
from repose.plots.pictures import plot_curves
from repose.system.errors import CheckpointError, ConfigError

LOSSES = {"a-seed0": [3.0, 2.0, 1.5, 1.6], "a-seed1": [3.2, 2.2, 1.4], "a-seed2": [3.4, 2.1]}


def losses(values: list[float]) -> list[tuple[str, int, dict[str, float]]]:
    """Validation losses by epoch, training losses half a nat above them."""
    return [
        record
        for epoch, value in enumerate(values, start=1)
        for record in (
            ("train", epoch, {"loss": 9.0, "nll": 9.0}),
            ("epoch", epoch, {"loss": value + 1, "nll": value + 0.5, "learning_rate": 1e-3}),
            ("valid", epoch, {"tf_loss": value, "tf_accuracy": 1 / (1 + value)}),
        )
    ]


@pytest.fixture
def seeds(make_run: Any) -> list[Path]:
    return [make_run(name, losses(values), seed=seed) for seed, (name, values) in enumerate(LOSSES.items())]


def test_seeds_become_mean_deviation_and_number(seeds: list[Path]) -> None:
    (curve,) = curves([read_run(folder) for folder in seeds], "tf_loss")
    assert curve.label == "a"
    assert curve.runs == tuple(seeds)
    for epoch, point in enumerate(curve.validation, start=1):
        values = [run[epoch - 1] for run in LOSSES.values() if len(run) >= epoch]
        mean = sum(values) / len(values)
        squares = sum((value - mean) ** 2 for value in values)
        deviation = (squares / (len(values) - 1)) ** 0.5 if len(values) > 1 else 0.0
        assert (point.x, point.n) == (epoch, len(values))
        assert (point.mean, point.deviation) == pytest.approx((mean, deviation))
    assert [point.n for point in curve.validation] == [3, 3, 2, 1]
    assert [point.mean - 0.5 for point in curve.training] == pytest.approx([point.mean for point in curve.validation])


def test_the_last_and_the_best_are_each_runs_own(seeds: list[Path]) -> None:
    (line,) = summaries([read_run(folder) for folder in seeds], "tf_loss")
    ends, best = [1.6, 1.4, 2.1], [1.5, 1.4, 2.0 + 0.1]
    assert (line.num_runs, line.last_x) == (3, "2–4")
    assert line.last == pytest.approx((statistics.fmean(ends), statistics.stdev(ends)))
    assert line.best == pytest.approx((statistics.fmean(best), statistics.stdev(best)))
    (accuracy,) = summaries([read_run(seeds[0])], "tf_accuracy")
    assert accuracy.best == pytest.approx((1 / 2.5, 0.0))
    (rate,) = summaries([read_run(seeds[0])], "learning_rate")  # recorded of the training alone
    assert (rate.last[0], rate.best) == (1e-3, None)


def test_a_run_that_diverged_is_drawn_with_the_others(make_run: Any) -> None:
    runs = [make_run(f"a-{seed}", losses(values), seed=seed) for seed, values in enumerate(([3.0, inf], [2.0, 1.0]))]
    (curve,) = curves([read_run(folder) for folder in runs], "tf_loss")
    assert curve.validation[1] == Point(2, inf, 0.0, 2)


def test_by_update_and_by_epoch(make_run: Any) -> None:
    run = make_run("a", losses([3.0, 2.0]))
    with (run / "metrics.jsonl").open("a") as metrics:  # a second validation within the second epoch
        metrics.write(json.dumps({"kind": "valid", "update": 25, "epoch": 2, "tf_loss": 1.0}) + "\n")
    (by_epoch,) = curves([read_run(run)], "tf_loss")
    (by_update,) = curves([read_run(run)], "tf_loss", "update")
    assert by_epoch.validation == (Point(1, 3.0, 0.0, 1), Point(2, 1.0, 0.0, 1))
    assert [point.x for point in by_update.validation] == [10, 20, 25]


def test_runs_of_other_settings_are_other_curves(make_run: Any) -> None:
    runs = [
        make_run("slow-1", losses([3.0]), seed=1, learning_rate=0.1),
        make_run("fast-1", losses([2.0]), seed=1, learning_rate=0.2),
        make_run("slow-2", losses([4.0]), seed=2, learning_rate=0.1),
    ]
    found = curves([read_run(folder) for folder in runs], "tf_loss")
    assert [(curve.label, curve.validation[0].mean, curve.validation[0].n) for curve in found] == [
        ("slow", 3.5, 2),
        ("fast", 2.0, 1),
    ]


def with_architecture(folder: Path, **axes: object) -> Path:
    config = json.loads((folder / "config.json").read_text())
    config["experiment"]["architecture"] = axes
    (folder / "config.json").write_text(json.dumps(config))
    return folder


NAMES = {
    "seed in the name": ("original-seed2", "original"),
    "s and its number": ("pre-ln-s0", "pre-ln"),
    "a name in s": ("models3", "models"),
    "number in the name": ("original_2", "original"),
    "seed below": ("original/seed-2", "original"),
    "number below": ("original/3", "original"),
    "no seed": ("original", "original"),
}


@pytest.mark.parametrize(("folder", "label"), NAMES.values(), ids=NAMES.keys())
def test_a_run_is_called_by_its_folder(folder: str, label: str, make_run: Any) -> None:
    run = with_architecture(make_run(folder, losses([1.0])), d_token=24)
    assert curves([read_run(run)], "tf_loss")[0].label == label


def test_a_run_of_a_preset_is_called_by_the_preset_unless_two_would_be(make_run: Any) -> None:
    base = {"d_token": 128, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2, "d_ff": 256}
    axes = {name: getattr(preset("ablation-none"), name) for name in preset("ablation-none").__dataclass_fields__}
    assert axes | base == axes
    first = with_architecture(make_run("x/one", losses([1.0])), **axes)
    second = with_architecture(make_run("x/two", losses([1.0]), learning_rate=0.5), **axes)
    third = with_architecture(make_run("y/two", losses([1.0]), learning_rate=0.7), **axes)
    runs = [read_run(folder) for folder in (first, second, third)]
    assert [curve.label for curve in curves(runs[:1], "tf_loss")] == ["ablation-none"]
    assert [curve.label for curve in curves(runs[:2], "tf_loss")] == ["one", "two"]
    assert [curve.label for curve in curves(runs, "tf_loss")] == [str(folder) for folder in (first, second, third)]


def test_what_looks_ahead_says_so(make_run: Any) -> None:
    run = with_architecture(make_run("a", losses([1.0])), decoder_token_norm="sentence", encoder_token_norm="none")
    assert curves([read_run(run)], "tf_loss")[0].label == "a (looks ahead)"


def test_files_text_and_table(seeds: list[Path], make_run: Any, tmp_path: Path) -> None:
    other = make_run("b", losses([2.5, 2.4]), learning_rate=0.1)
    picture = plot_curves([*seeds, other, other], tmp_path / "out")
    assert [path.name for path in picture.files] == ["out.png", "out.svg", "out.json"]
    assert picture.files[0].read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    text = list(ET.parse(picture.files[1]).getroot().itertext())
    for label in ("a (3 seeds)", "b", "validation", "training, dropout on", "n = 2", "n = 1", "epoch"):
        assert label in text
    assert "tf_loss, nats per target token" in text
    content = json.loads(picture.files[2].read_text())
    assert content["curves"][0]["validation"][0] == {
        "x": 1,
        "mean": pytest.approx(3.2),
        "deviation": pytest.approx(0.2),
        "n": 3,
    }
    assert len(picture.header) == 5
    assert picture.rows[0] == ["a", "3", "2–4", "1.7 ± 0.36", "1.667 ± 0.38"]
    assert picture.rows[1] == ["b", "1", "2", "2.4", "2.4"]


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_same_picture_is_the_same_bytes_and_the_only_file(suffix: str, seeds: list[Path], tmp_path: Path) -> None:
    found = []
    for name in ("a", "b"):
        out = tmp_path / name / f"p.{suffix}"
        plot_curves(seeds, out)
        assert sorted(path.name for path in out.parent.iterdir()) == sorted(["p.json", f"p.{suffix}"])
        found.append(out.read_bytes())
    assert found[0] == found[1]


def test_without_training_figures(seeds: list[Path], tmp_path: Path) -> None:
    plot_curves(seeds, tmp_path / "a.svg", training=False)
    assert "training, dropout on" not in list(ET.parse(tmp_path / "a.svg").getroot().itertext())


def test_the_shipped_results_can_be_drawn(tmp_path: Path) -> None:
    results = Path(__file__).parents[2] / "results"
    picture = plot_curves([results / "demo"], tmp_path / "demo.png", metric="tf_accuracy", by="update")
    scores = json.loads((results / "demo" / "scores.test.json").read_text())["teacher_forced"]
    assert float(picture.rows[0][3]) == pytest.approx(scores["tf_accuracy"], abs=0.01)  # of another set


BAD = {
    "unknown metric": ({"metric": "tf_los"}, ConfigError, "did you mean 'tf_loss'"),
    "not measured": ({"metric": "bleu"}, ConfigError, "known are .*tf_accuracy"),
    "unknown axis": ({"by": "epochs"}, ConfigError, "did you mean 'epoch'"),
    "suffix": ({"out": Path("a.gif")}, ConfigError, "not .gif"),
}


@pytest.mark.parametrize(("change", "error", "sentence"), BAD.values(), ids=BAD.keys())
def test_wrong_settings_are_one_sentence(
    change: dict[str, Any], error: type[Exception], sentence: str, seeds: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(error, match=sentence):
        plot_curves(seeds, **({"out": tmp_path / "a"} | change))


DAMAGE = {
    "no metrics": ("metrics.jsonl", None, "it has no metrics.jsonl"),
    "no config": ("config.json", None, "it has no config.json"),
    "nothing recorded": ("metrics.jsonl", "", "recorded nothing yet"),
    "half a line": ("metrics.jsonl", '{"kind": "val', "recorded nothing yet"),
    "no records": ("metrics.jsonl", "3\n", "metrics.jsonl is damaged"),
    "other JSON": ("config.json", "[]", "config.json is damaged"),
}


@pytest.mark.parametrize(("name", "content", "sentence"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_runs_are_one_sentence(name: str, content: str | None, sentence: str, make_run: Any) -> None:
    folder = make_run("a", losses([1.0]))
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(CheckpointError, match=sentence):
        read_run(folder)


def test_a_file_and_a_missing_folder_are_no_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "missing"):
        with pytest.raises(CheckpointError, match="no run directory"):
            read_run(folder)
