"""`repose plot curves`: which runs form one curve, its name, and the numbers beside it."""

import json
import re
import statistics
from math import inf, isinf
from pathlib import Path
from typing import Any

import pytest

from repose.plots.charts import Point
from repose.report import pictures
from repose.report.collect import read_curves, read_runs
from repose.report.pictures import aggregate, plot_curves, points_of
from repose.report.tables_costs import best_and_last_table
from repose.system.errors import CheckpointError, ConfigError

RESULTS = Path(__file__).parents[2] / "results"

LOSSES = {"a-seed0": [3.0, 2.0, 1.5, 1.6], "a-seed1": [3.2, 2.2, 1.4], "a-seed2": [3.4, 2.1]}
OTHER = ["architecture.d_token=24"]


@pytest.fixture
def seeds(make_run: Any) -> list[Path]:
    settings = ["training.epochs=4"]
    return [make_run(name, losses, seed=n, settings=settings) for n, (name, losses) in enumerate(LOSSES.items())]


def table(folders: list[Path], out: Path, **options: Any) -> list[list[str]]:
    return plot_curves(folders, out / "out.svg", **options).rows


def test_seeds_become_mean_deviation_and_number(seeds: list[Path]) -> None:
    runs = read_curves(seeds)
    assert runs.groups == ("a",)
    points = aggregate([points_of(run, "valid", "tf_loss", "epoch") for run in runs.runs])
    for epoch, point in enumerate(points, start=1):
        values = [run[epoch - 1] for run in LOSSES.values() if len(run) >= epoch]
        mean = sum(values) / len(values)
        squares = sum((value - mean) ** 2 for value in values)
        assert (point.x, point.n) == (epoch, len(values))
        assert point.mean == pytest.approx(mean)
        assert point.deviation == (pytest.approx((squares / (len(values) - 1)) ** 0.5) if len(values) > 1 else None)
    assert [point.n for point in points] == [3, 3, 2, 1]
    training = aggregate([points_of(run, "epoch", "nll", "epoch") for run in runs.runs])
    assert [point.mean - 0.5 for point in training] == pytest.approx([point.mean for point in points])


def test_the_last_and_the_best_are_each_runs_own(seeds: list[Path], tmp_path: Path) -> None:
    best = [1.5, 1.4, 2.1]
    number = f"{statistics.fmean(best):.3f} ± {statistics.stdev(best):.3f}"
    assert table(seeds, tmp_path) == [["a (3 seeds)", "3", "2–4", "–", number]], "no mean of early and late ends"
    assert table(seeds[:1], tmp_path, metric="tf_accuracy")[0][3:] == ["0.385", "0.400"]
    assert table(seeds[:1], tmp_path, metric="tokens") == [["a", "1", "4", "2,400", "–"]]  # of the training alone


def test_a_run_that_diverged_has_no_figure_from_there_on(make_run: Any) -> None:
    runs = read_curves([make_run(f"a-{n}", losses, seed=n) for n, losses in enumerate(([3.0, inf], [2.0, 1.0]))])
    points = aggregate([points_of(run, "valid", "tf_loss", "epoch") for run in runs.runs])
    assert points[1] == Point(2, 1.0, None, 1)


def test_by_update_and_by_epoch(make_run: Any) -> None:
    folder = make_run("a", [3.0, 2.0])
    with (folder / "metrics.jsonl").open("a") as metrics:  # a second validation within the second epoch
        metrics.write(json.dumps({"kind": "valid", "update": 25, "epoch": 2, "tf_loss": 1.0}) + "\n")
    (run,) = read_curves([folder]).runs
    assert points_of(run, "valid", "tf_loss", "epoch") == {1: 3.0, 2: 2.0, 2.5: 1.0}
    assert list(points_of(run, "valid", "tf_loss", "update")) == [10, 20, 25]


def test_validations_within_epochs_are_drawn_by_update(make_run: Any, tmp_path: Path) -> None:
    """Of epochs of 19 updates, those after 30 and 60 are not at the end of the second and the fourth."""
    folder = make_run("a", [3.0])
    records = [{"kind": "epoch", "update": 19 * epoch, "epoch": epoch, "nll": 4.0} for epoch in (1, 2, 3)]
    records += [{"kind": "valid", "update": 30 * n, "epoch": 2 * n, "tf_loss": 4.0 - n} for n in (1, 2)]
    records.sort(key=lambda record: record["update"])
    end = {"status": "done", "reason": "epochs", "wall": {"seconds": 9.0, "at": ""}}
    records.append({"kind": "end", "update": 60, "epoch": 4, **end})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    runs = read_curves([folder])
    assert points_of(runs.runs[0], "valid", "tf_loss", "epoch") == {1.58: 3.0, 3.16: 2.0}
    plotted = plot_curves([folder], tmp_path / "out.svg")
    assert (plotted.header[2], plotted.rows[0][2]) == ("last update", "60")
    assert table([folder], tmp_path, by="epoch")[0][2] == "3.16"
    (curves,) = [picture for picture in pictures.pictures(runs) if picture.id == "learning-curves"]
    assert [row[0].text for row in curves.numbers.rows] == ["30", "60"]
    best_and_last = best_and_last_table(read_runs([folder]))
    assert best_and_last is not None
    assert best_and_last.title == "Best and last update"
    assert [cell.text for cell in best_and_last.rows[0][2:5]] == ["60", "2.000", "60"]


def test_the_number_of_seeds_is_said_where_it_is_that_of_all_corpora(make_run: Any, tmp_path: Path) -> None:
    folders = []
    for name, number_of_seeds in (("a", {"de": 2, "fr": 1}), ("b", {"de": 2, "fr": 2})):
        for lang, number in number_of_seeds.items():
            settings = [f"corpus.src_lang={lang}", *OTHER * (name == "b")]
            folders += [make_run(f"{lang}/{name}-s{n}", [2.0], seed=n, settings=settings) for n in range(number)]
    assert {row[0] for row in table(folders, tmp_path)} == {"a", "b (2 seeds)"}


def test_seeds_without_the_metric_are_not_counted(make_run: Any, tmp_path: Path) -> None:
    folders = [make_run(f"a-s{n}", [2.0], seed=n, valid_bleu=[20.0] * (n < 2)) for n in range(3)]
    named = {metric: table(folders, tmp_path, metric=metric)[0][:2] for metric in ("tf_loss", "bleu", "tokens")}
    all_three = ["a (3 seeds)", "3"]
    assert named == {"tf_loss": all_three, "bleu": ["a (2 seeds)", "2"], "tokens": all_three}


def test_a_copy_of_a_run_is_no_other_seed(make_run: Any, tmp_path: Path) -> None:
    folders = [make_run(name, [2.0], seed=n, run_id=f"id{n}") for name, n in (("a-s0", 0), ("a-s1", 1), ("copy", 1))]
    plotted = plot_curves(folders, tmp_path / "out.svg")
    assert [row[:2] for row in plotted.rows] == [["a (2 seeds)", "2"]]
    assert list(plotted.remarks) == ["copy is left out: it is the same run as a-s1 (id1)."]


def test_runs_that_share_a_seed_are_not_called_seeds(make_run: Any, tmp_path: Path) -> None:
    """As after a change of numerics, which only the run id shows."""
    plotted = plot_curves([make_run("a-before", [2.0]), make_run("a-after", [3.0])], tmp_path / "out.svg")
    assert plotted.rows[0][:2] == ["a-before (2 runs)", "2"]
    (remark,) = plotted.remarks
    assert remark.startswith("a-before and a-after are both seed 0 of a-before on ")


def test_what_failed_before_it_recorded_anything_is_left_out_and_named(
    make_run: Any, make_grid: Any, tmp_path: Path
) -> None:
    for seed in range(3):
        make_run(f"grid/mine-s{seed}", [2.0], seed=seed)
    cells = [(f"mine-s{n}", {"system": "mine"}, None, "failed" if n else "done", "no number") for n in range(3)]
    grid = make_grid("grid", cells)
    (grid / "mine-s1" / "metrics.jsonl").write_text('{"kind": "data"}\n')
    (grid / "mine-s2" / "metrics.jsonl").unlink()
    said = [f"mine-s{seed} is left out: it failed (no number)." for seed in (1, 2)]
    plotted = plot_curves([grid], tmp_path / "out.svg")
    assert (plotted.rows[0][1], list(plotted.remarks)) == ("1", said)
    (problem,) = read_curves([grid / "mine-s0", grid / "mine-s1"]).problems
    assert problem.startswith("mine-s1 is left out: ")


def test_runs_of_other_settings_are_other_curves(make_run: Any, tmp_path: Path) -> None:
    rates = {"slow-1": (1, 3.0, "0.1"), "fast-1": (1, 2.0, "0.2"), "slow-2": (2, 4.0, "0.1")}
    folders = [
        make_run(name, [loss], seed=seed, settings=[f"training.learning_rate={rate}"])
        for name, (seed, loss, rate) in rates.items()
    ]
    assert [row[:2] + row[3:4] for row in table(folders, tmp_path)] == [
        ["slow (2 seeds)", "2", "3.500 ± 0.707"],
        ["fast-1", "1", "2.000"],
    ]


NAMES = {
    "seed in the name": ("original-seed2", "original"),
    "s and its number": ("pre-ln-s0", "pre-ln"),
    "a name in s": ("models3", "models3"),
    "number in the name": ("original_2", "original_2"),
    "runs of other settings": ("mine_run2", "mine_run2"),
    "seed below": ("original/seed-2", "original"),
    "number below": ("original/3", "original"),
    "no seed": ("original", "original"),
}


@pytest.mark.parametrize(("folder", "label"), NAMES.values(), ids=NAMES.keys())
def test_a_run_is_called_by_its_folder(folder: str, label: str, make_run: Any) -> None:
    assert read_curves([make_run(folder, [1.0], settings=OTHER)]).groups == (label,)


def test_a_number_is_the_seeds_where_runs_differ_in_it_alone(make_run: Any) -> None:
    folders = [make_run(f"mine{n}", [1.0], seed=n, settings=OTHER) for n in (1, 2)]
    assert read_curves(folders).groups == ("mine",)
    assert read_curves(folders[1:]).groups == ("mine2",)
    other = make_run("mine3", [1.0], settings=["training.learning_rate=0.7"])
    assert read_curves([*folders, other]).groups == ("mine", "mine3")


def test_a_run_of_a_preset_is_called_by_the_preset_unless_two_would_be(make_run: Any) -> None:
    rates = {"x/one": "0.4", "x/two": "0.5", "y/two": "0.7"}
    folders = [
        make_run(name, [1.0], preset="reinforced", small=False, settings=[f"training.learning_rate={rate}"])
        for name, rate in rates.items()
    ]
    assert read_curves(folders[:1]).groups == ("reinforced",)
    assert read_curves(folders[:2]).groups == ("one", "two")
    assert read_curves(folders).groups == ("one", "x/two", "y/two")


def test_what_looks_ahead_says_so(make_run: Any, tmp_path: Path) -> None:
    run = make_run("a", [1.0], preset="reinforced-lookahead", settings=OTHER)
    assert table([run], tmp_path)[0][0] == "a (looks ahead)"


def test_corpora_are_panels(make_run: Any, tmp_path: Path) -> None:
    folders = [make_run(f"{lang}/a", [2.0], settings=[f"corpus.src_lang={lang}"]) for lang in ("de", "fr")]
    plotted = plot_curves(folders, tmp_path / "out.svg")
    assert plotted.header[:2] == ["model", "corpus"]
    assert [row[:2] for row in plotted.rows] == [["a", "multi30k de-en"], ["a", "multi30k fr-en"]]


def test_files_text_and_table(seeds: list[Path], make_run: Any, tmp_path: Path) -> None:
    other = make_run("b", [2.5, 2.4], settings=["training.learning_rate=0.1"])
    picture = plot_curves([*seeds, other, other], tmp_path / "out")
    assert [path.name for path in picture.files] == ["out.png", "out.svg", "out.json"]
    assert picture.files[0].read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    # Letters are outlines, which are as wide on every machine; what they spell stands in comments.
    drawn = picture.files[1].read_text(encoding="utf-8")
    assert "<text" not in drawn
    text = re.findall("<!-- (.*?) -->", drawn)
    for label in (
        "a (3 seeds)",
        "b",
        "validation",
        "training, dropout on",
        "± 1 standard deviation",
        "n = 2",
        "n = 1",
        "epoch",
    ):
        assert label in text
    assert "loss, nats per target token" in text
    curve = json.loads(picture.files[2].read_text())["curves"][0]
    assert curve["validation"][0] == {"x": 1, "mean": pytest.approx(3.2), "deviation": pytest.approx(0.2), "n": 3}
    assert curve["runs"] == list(map(str, seeds))
    assert len(picture.header) == 5
    assert picture.rows == [["a (3 seeds)", "3", "2–4", "–", "1.667 ± 0.379"], ["b", "1", "2", "2.400", "2.400"]]


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
    assert "training, dropout on" not in (tmp_path / "a.svg").read_text(encoding="utf-8")


def test_the_shipped_results_can_be_drawn(tmp_path: Path) -> None:
    results = Path(__file__).parents[2] / "results"
    picture = plot_curves([results / "demo"], tmp_path / "demo.png", metric="tf_accuracy", by="update")
    scores = json.loads((results / "demo" / "scores.test.json").read_text())["teacher_forced"]
    assert float(picture.rows[0][3]) == pytest.approx(scores["tf_accuracy"], abs=0.01)  # of another set


BAD = {
    "no figure": ({"metric": "epoch"}, ConfigError, "there is no metric 'epoch'"),
    "unknown metric": ({"metric": "tf_los"}, ConfigError, "did you mean 'tf_loss'"),
    "not measured": ({"metric": "bleu"}, ConfigError, "recorded no bleu: train with"),
    "unlike any": ({"metric": "qqqq"}, ConfigError, "known are .*tf_accuracy"),
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
    "no whole line": ("metrics.jsonl", '{"kind": "val', "recorded nothing yet"),
    "half a line": ("metrics.jsonl", '{"kind": "val\n', "metrics.jsonl is damaged"),
    "no records": ("metrics.jsonl", "3\n", "metrics.jsonl is damaged"),
    "other JSON": ("config.json", "[]", "config.json is damaged"),
}


@pytest.mark.parametrize(("name", "content", "sentence"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_runs_are_one_sentence(name: str, content: str | None, sentence: str, make_run: Any) -> None:
    folder = make_run("a", [1.0])
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(CheckpointError, match=sentence):
        read_curves([folder])


def test_a_file_and_a_missing_folder_are_no_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder, sentence in (("file", "not a run directory"), ("missing", "there is no folder")):
        with pytest.raises(CheckpointError, match=sentence):
            read_curves([tmp_path / folder])


def test_cells_of_a_grid_are_called_as_its_report_calls_them(make_run: Any, tmp_path: Path) -> None:
    """Though systems are tuned apart, so that settings alone would tell corpora's from each other."""
    cells, folders = [], []
    for corpus, dropout in (("fr", 0.1), ("az", 0.3)):
        for seed in (0, 1):
            settings = [f"corpus.src_lang={corpus}", f"architecture.dropout={dropout}"]
            folders.append(make_run(f"grid/{corpus}-plain-s{seed}", [2.0, 1.5], seed=seed, settings=settings))
            labels = {"corpus": corpus, "system": "plain"}
            cells.append({"name": folders[-1].name, "group": f"{corpus}-plain", "labels": labels, "seed": seed})
            cells[-1] |= {"folder": folders[-1].name, "status": "done", "run_id": f"id-of-grid/{folders[-1].name}"}
    grid = {"format": 1, "name": "grid", "about": "", "axes": {}, "report": {}, "cells": cells}
    (tmp_path / "grid" / "grid.json").write_text(json.dumps(grid), encoding="utf-8")
    runs = read_curves([tmp_path / "grid" / "grid.json", *reversed(folders)])  # as `grid/*`
    assert (runs.groups, [run.corpus for run in runs.runs]) == (("plain",), ["fr", "fr", "az", "az"])
    assert [run.seed for run in runs.runs] == [0, 1, 0, 1], "in the grid's order"
    (tmp_path / "grid" / "grid.json").write_text("{", encoding="utf-8")
    assert len(read_curves(folders).runs) == 4, "a damaged grid.json names nothing"


def test_losses_of_different_tasks_have_no_more_than_nats_in_common(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units: list[str] = []
    draw = pictures.draw_curves
    monkeypatch.setattr(
        pictures, "draw_curves", lambda panels, x, y, **rest: units.append(y) or draw(panels, x, y, **rest)
    )
    one, other = RESULTS / "lookahead-share" / "reinforced-s0", RESULTS / "parsing-small" / "reinforced-s0"
    for folders in ([one], [one, other]):
        plot_curves(folders, tmp_path / "out.svg")
    assert units == ["loss, nats per target token", "loss, nats"]


def test_systems_of_one_name_in_two_grids_are_no_seeds_of_each_other(make_run: Any, make_grid: Any) -> None:
    folders = []
    for place, rate in (("one", 0.1), ("two", 0.2)):
        folders.append(make_run(f"{place}/mine-s0", [2.0], settings=[f"training.learning_rate={rate}"]))
        make_grid(place, [("mine-s0", {"system": "mine"}, None, "done", "")])
    assert read_curves(folders).groups == ("one/mine", "two/mine")


def test_folders_of_runs_and_grids_are_looked_into(make_run: Any, make_grid: Any, tmp_path: Path) -> None:
    make_run("all/grid/mine-s0", [2.0])
    make_run("all/grid/mine-s1", [2.0], seed=1)
    cells = [(f"mine-s{seed}", {"system": "mine"}, None, "done", "") for seed in range(3)]
    make_grid("all/grid", cells)
    (tmp_path / "all/grid/report").mkdir()
    make_run("all/alone", [2.0], settings=OTHER)
    (tmp_path / "all/empty").mkdir()
    every = read_curves(sorted((tmp_path / "all").iterdir()))
    assert sorted(run.name for run in every.runs) == ["alone", "mine-s0", "mine-s1"]
    assert sorted(run.name for run in read_curves([tmp_path]).runs) == ["alone", "mine-s0", "mine-s1"]
    inside = [*(tmp_path / "all/grid").iterdir()]
    assert [run.name for run in read_curves(inside).runs] == ["mine-s0", "mine-s1"]
    with pytest.raises(CheckpointError, match="is not a run directory"):
        read_curves([tmp_path / "all/empty"])


def test_a_folder_that_is_not_there_is_said(make_run: Any, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"there is no folder .*gone"):
        read_curves([make_run("a-s0", [2.0]), tmp_path / "gone"])


def test_cells_that_lie_elsewhere_go_by_the_names_of_the_grid_that_was_named(make_run: Any, make_grid: Any) -> None:
    make_run("own/a-s0", [2.0])
    make_grid("own", [("a-s0", {"system": "a"}, None, "done", "")])
    other = make_grid("other", [("b-s0", {"system": "b"}, "../own/a-s0", "done", "")])
    assert read_curves([other]).groups == ("b",)


@pytest.mark.parametrize("metric", ["tf_loss", "nll", "tf_loss_keras"])
def test_of_a_diverged_model_a_loss_of_any_name_is_cut(metric: str) -> None:
    assert isinf(pictures._most("bleu"))
    assert not isinf(pictures._most(metric))
