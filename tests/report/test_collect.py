"""Which runs a report includes: found, distinguished, counted once, and reported if unusable."""

import json
import shutil
import statistics
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from repose.grids.cells import LOCK
from repose.report.build import build
from repose.report.collect import read_runs
from repose.report.figures import score
from repose.report.naming import _apart, folder_name
from repose.report.tables_costs import runs_table
from repose.report.tables_scores import scores_table
from repose.saved_run.folder import RunFolder
from repose.saved_run.records import EndReason, EndRecord, RunStatus
from repose.system.errors import CheckpointError, ConfigError
from repose.system.locks import locked_or_busy

RESULTS = Path(__file__).parents[2] / "results"


def names(runs: Any) -> list[tuple[str, str, str, int]]:
    return [(run.name, run.group, run.corpus, run.seed) for run in runs.runs]


def test_a_grid_says_what_its_cells_are(make_run: Any, make_grid: Any) -> None:
    cells = []
    for corpus in ("gl-en", "de-en"):
        for system in ("baseline", "reinforced"):
            cells.append((f"{corpus}-{system}-s0", {"corpus": corpus, "system": system}, None, "done", ""))
            make_run(f"grid/{corpus}-{system}-s0", [2.0], settings=[f"corpus.src_lang={corpus[:2]}"])
    hints = {"baseline": "baseline", "published": ["reinforced/table-1"]}
    runs = read_runs([make_grid("grid", cells, report=hints)])
    assert (runs.title, runs.about) == ("grid", ("what it answers",))
    assert (runs.groups, runs.corpora) == (("baseline", "reinforced"), ("gl-en", "de-en"))
    assert (runs.baseline, runs.published, runs.problems) == ("baseline", ("reinforced/table-1",), ())
    assert names(runs)[0] == ("gl-en-baseline-s0", "baseline", "gl-en", 0)
    assert [run.name for run in runs.of("reinforced", "de-en")] == ["de-en-reinforced-s0"]


BASELINES = {
    "a system": "reinforced-4 of 8/2",
    "as folders have it": "reinforced-4_of_8_2",
    "with its corpus": "de-en-reinforced-4 of 8/2",
    "both": "de-en-reinforced-4_of_8_2",
    "an axis's label": "reinforced",
}


@pytest.mark.parametrize("baseline", BASELINES.values(), ids=BASELINES.keys())
def test_a_grids_baseline_may_be_called_in_several_ways(baseline: str, make_run: Any, make_grid: Any) -> None:
    cells = []
    for system, weight in (("ablation-none", "1"), ("reinforced", "4 of 8/2")):
        labels = {"corpus": "de-en", "system": system, "weight": weight}
        cells.append((f"{system}-{weight[0]}-s0", labels, None, "done", ""))
        make_run(f"grid/{system}-{weight[0]}-s0", [2.0])
    runs = read_runs([make_grid("grid", cells, report={"baseline": baseline})])
    assert runs.groups == ("ablation-none-1", "reinforced-4 of 8/2")
    assert runs.baseline == "reinforced-4 of 8/2"


def test_the_baseline_is_the_one_of_its_grid_where_another_decoded_it_otherwise(make_run: Any, make_grid: Any) -> None:
    """They have one run id, of the training."""
    for place, beam in (("one", 4), ("two", 2)):
        settings = [f"decoding.beam_size={beam}"]
        make_run(f"{place}/plain-s0", [2.0], run_id="trained once", settings=settings)
        cells = [("plain-s0", {"system": "plain"}, None, "done", "")]
        if place == "one":
            make_run("one/other-s0", [2.0], preset="reinforced")
            cells.append(("other-s0", {"system": "other"}, None, "done", ""))
        grid = make_grid(place, cells, report={"baseline": "plain"})
    runs = read_runs([grid.with_name("one"), grid])
    assert (runs.groups, runs.baseline) == (("one/plain", "other", "two/plain"), "one/plain")


def test_a_baseline_that_is_left_out_is_the_run_that_was_decoded_like_it(make_run: Any, make_grid: Any) -> None:
    for place, beam in (("one", 4), ("two", 2), ("three", 2)):
        make_run(f"{place}/plain-s0", [2.0], run_id="trained once", settings=[f"decoding.beam_size={beam}"])
        report = {"baseline": "first"} if place == "three" else None
        system = "first" if place == "three" else "plain"
        grid = make_grid(place, [("plain-s0", {"system": system}, None, "done", "")], report=report)
    runs = read_runs([grid.with_name("one"), grid.with_name("two"), grid])
    assert (runs.groups, runs.baseline) == (("one/plain", "two/plain"), "two/plain")


def test_what_several_grids_say_alike_stands_once(make_run: Any, make_grid: Any, tmp_path: Path) -> None:
    for place, width in (("a/x", 16), ("b/x", 24)):
        make_run(f"{place}/plain-s0", [2.0], settings=[f"architecture.d_ff={width}"])
        cells = [("plain-s0", {"system": "plain"}, None, "done", "")]
        grid = make_grid(place, cells)
        (grid / "grid.json").write_text((grid / "grid.json").read_text().replace(f'"name": "{place}"', '"name": "x"'))
    runs = read_runs([tmp_path / "a", tmp_path / "b"])
    assert (runs.title, runs.about) == ("x", ("x: what it answers",))


def test_the_baseline_of_one_of_two_grids_whose_folders_have_one_name(make_run: Any, make_grid: Any) -> None:
    grids = []
    for place, rate in (("a/x", "0.1"), ("b/x", "0.2")):
        make_run(f"{place}/{rate}-s0", [2.0], settings=[f"training.learning_rate={rate}"])
        cells = [(f"{rate}-s0", {"system": "plain", "rate": rate}, None, "done", "")]
        grids.append(make_grid(place, cells, report={"baseline": "plain"} if place == "b/x" else {}))
    assert read_runs(grids).baseline == "plain-0.2"


def test_a_training_that_ended_while_its_rate_was_rising_is_said(make_run: Any) -> None:
    folder = make_run("short", [2.0, 1.9], settings=["training.warmup_updates=1000"])
    (problem,) = read_runs([folder]).problems
    assert problem.startswith("short: the training ends after 20 of the 1,000 updates over which its learning rate")
    assert not read_runs([make_run("long", [2.0, 1.9])]).problems


@pytest.mark.parametrize("requested", [None, "32"])
def test_a_baseline_is_found_in_the_grid_that_names_it(requested: str | None, make_run: Any, make_grid: Any) -> None:
    """Though its name is another one beside that of another grid, and no axis is called `system`."""
    grids = []
    for place, rate, widths in (("one", 0.1, (16, 32)), ("two", 0.2, (16,))):
        cells = []
        for width in widths:
            settings = [f"architecture.d_ff={width}", f"training.learning_rate={rate}"]
            make_run(f"{place}/{width}-s0", [2.0], settings=settings)
            cells.append((f"{width}-s0", {"d_ff": str(width)}, None, "done", ""))
        grids.append(make_grid(place, cells, report={"baseline": "16"} if place == "two" else {}))
    runs = read_runs(grids, baseline=requested)
    assert runs.groups == ("one/16", "32", "two/16")
    assert runs.baseline == (requested or "two/16")
    assert not runs.problems
    with pytest.raises(ConfigError, match="16"):  # which of the two?
        read_runs(grids, baseline="16")


def test_seeds_whose_settings_differ_are_one_system_and_it_is_said(make_run: Any, make_grid: Any) -> None:
    cells = []
    for seed, rate in ((0, 0.1), (1, 0.2), (2, 0.2)):
        make_run(f"grid/16-s{seed}", [2.0], seed=seed, settings=[f"training.learning_rate={rate}"])
        cells.append((f"16-s{seed}", {"d_ff": "16"}, None, "done", ""))
    runs = read_runs([make_grid("grid", cells, report={"baseline": "16"})])
    assert (runs.groups, runs.baseline) == (("16",), "16")
    assert not runs.problems
    assert "16-s0 and 16-s1 of 16 on multi30k de-en differ in more than their seed" in build(runs).warnings[0]


def test_one_system_under_two_names_has_all_its_seeds(make_run: Any, make_grid: Any) -> None:
    for seed in (0, 1):
        make_run(f"one/16-s{seed}", [2.0], seed=seed, run_id=f"run{seed}")
    make_run("two/narrow-s2", [2.0], seed=2, run_id="run2")
    one = make_grid("one", [(f"16-s{seed}", {"d_ff": "16"}, None, "done", "") for seed in (0, 1)])
    places = ("../one/16-s0", "../one/16-s1", None)
    cells = [(f"narrow-s{n}", {"width": "narrow"}, place, "done", "") for n, place in enumerate(places)]
    two = make_grid("two", cells, report={"baseline": "narrow"})
    runs = read_runs([one, two])
    assert [(run.group, run.seed) for run in runs.runs] == [("16", 0), ("16", 1), ("16", 2)]
    assert runs.baseline == "16"


def test_a_cell_of_another_grid_is_read_where_it_lies_and_counts_once(make_run: Any, make_grid: Any) -> None:
    make_run("first/reinforced-s0", [2.0])
    first = make_grid("first", [("reinforced-s0", {"system": "reinforced"}, None, "done", "")])
    there = ("reinforced-s0", {"system": "reinforced"}, "../first/reinforced-s0", "done", "")
    second = make_grid("second", [there])
    assert names(read_runs([second])) == [("reinforced-s0", "reinforced", "multi30k de-en", 0)]
    assert len(read_runs([first, second, first / "reinforced-s0"]).runs) == 1


def test_a_copied_run_counts_once_and_the_finished_one_is_taken(make_run: Any, tmp_path: Path) -> None:
    make_run("a/x-s0", [2.0, 1.5], bleu=None, run_id="same")
    done = make_run("b/x-s0", [2.0, 1.5], run_id="same")
    runs = read_runs([tmp_path])
    assert [(run.folder, run.done) for run in runs.runs] == [(done, True)]
    assert runs.problems == ()


def test_of_unfinished_copies_the_first_is_taken(make_run: Any, tmp_path: Path) -> None:
    folders = [make_run(f"{place}/x-s0", [2.0], bleu=None, run_id="same") for place in "ab"]
    assert [run.folder for run in read_runs([tmp_path]).runs] == folders[:1]


def test_of_several_grids_each_says_what_it_is_for(make_run: Any, make_grid: Any) -> None:
    grids = []
    for name in ("one", "two"):
        make_run(f"{name}/x-s0", [2.0], run_id=name)
        grids.append(make_grid(name, [("x-s0", {"system": name}, None, "done", "")]))
    assert read_runs(grids).about == ("one: what it answers", "two: what it answers")


def test_a_grid_that_two_paths_lead_to_counts_once(make_run: Any, make_grid: Any, tmp_path: Path) -> None:
    make_run("one/x-s0", [2.0])
    cells = [("x-s0", {"system": "x"}, None, "done", ""), ("y-s0", {"system": "y"}, None, "waiting", "")]
    runs = read_runs([tmp_path, make_grid("one", cells), tmp_path / "one" / ".." / "one"])
    assert (runs.title, runs.about, len(runs.missing)) == ("one", ("what it answers",), 1)


@pytest.mark.parametrize(
    ("folder", "alone", "of_several"),
    [
        ("original/s2", "original", "original"),
        ("bus1", "bus1", "bus"),
        ("original-seed2", "original", "original"),
        ("original/seed-2", "original", "original"),
        ("original/2", "original", "original"),
        ("original_2", "original_2", "original"),
        ("original-run3", "original-run3", "original"),
    ],
)
def test_a_folder_is_called_without_its_seed(folder: str, alone: str, of_several: str) -> None:
    assert [folder_name(Path(folder), several=several) for several in (False, True)] == [alone, of_several]


def test_a_run_that_counts_once_under_two_names_is_said(make_run: Any, make_grid: Any) -> None:
    make_run("first/reinforced-s0", [2.0])
    first = make_grid("first", [("reinforced-s0", {"system": "reinforced"}, None, "done", "")])
    there = ("reinforced-high-s0", {"system": "reinforced-high"}, "../first/reinforced-s0", "done", "")
    runs = read_runs([first, make_grid("second", [there])])
    assert [run.name for run in runs.runs] == ["reinforced-s0"]
    (problem,) = runs.problems
    assert problem == "reinforced-high-s0 is left out: it is the same run as reinforced-s0 (id-of-first/reinforced-s0)."


def test_one_training_by_one_worker_and_by_two_counts_as_two(make_run: Any, tmp_path: Path) -> None:
    """Their dropout masks differ, and so do their numbers."""
    make_run("alone/x-s0", [2.0], run_id="same")
    scores = make_run("two/x-s0", [2.1], run_id="same") / "scores.test.json"
    scores.write_text(json.dumps(json.loads(scores.read_text()) | {"run_id": "same-w2"}))
    make_run("unscored/x-s0", [2.0], run_id="same", bleu=None)
    assert [run.run_id for run in read_runs([tmp_path]).runs] == ["same", "same-w2"]


def test_one_training_on_two_test_sets_counts_as_two(make_run: Any, tmp_path: Path) -> None:
    for year in ("2016", "2017"):
        folder = make_run(f"{year}/x-s0", [2.0], run_id="same", settings=[f"corpus.test=[{year}.de,{year}.en]"])
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"data": year}))
    assert len(read_runs([tmp_path]).runs) == 2


def test_another_run_in_a_cells_place_is_left_out(make_run: Any, make_grid: Any) -> None:
    for seed in range(3):
        make_run(f"grid/x-s{seed}", [2.0], seed=seed, run_id=f"run{seed}")
    grid = make_grid("grid", [(f"x-s{seed}", {"system": "x"}, None, "done", "") for seed in range(3)])
    content = json.loads((grid / "grid.json").read_text())
    for cell, identity in zip(content["cells"], ("run0", "another", None), strict=True):
        cell["run_id"] = identity
    (grid / "grid.json").write_text(json.dumps(content))
    runs = read_runs([grid])
    assert [run.name for run in runs.runs] == ["x-s0"]
    assert runs.problems == (
        f"x-s1 is left out: {grid / 'x-s1'} holds run run1, the cell is run another.",
        f"x-s2 is left out: {grid / 'x-s2'} holds run run2, the grid does not know the cell's.",
    )


def test_scores_that_lie_with_a_failed_cell_are_not_its_own(make_run: Any, make_grid: Any) -> None:
    for seed in range(2):
        make_run(f"grid/x-s{seed}", [2.0], seed=seed)
    states = (("x-s0", "done", ""), ("x-s1", "failed", "it holds this training with other scores"))
    runs = read_runs([make_grid("grid", [(name, {"system": "x"}, None, *state) for name, *state in states])])
    assert [(run.name, run.status, run.done) for run in runs.runs] == [
        ("x-s0", "done", True),
        ("x-s1", "failed", False),
    ]
    assert runs.problems == (
        "x-s1 failed: it holds this training with other scores.",
        "x-s1 is trained, but its cell failed: it is in the learning curves, not in the final figures.",
    )


def test_runs_without_a_grid_are_grouped_by_their_settings(make_run: Any, tmp_path: Path) -> None:
    for seed in (0, 2, 10):
        make_run(f"original-s{seed}", [2.0], seed=seed)
    make_run("fast-s0", [2.0], settings=["training.warmup_updates=1"])
    runs = read_runs([tmp_path])
    assert [(run.name, run.group) for run in runs.runs] == [
        ("fast-s0", "fast"),
        ("original-s0", "original"),
        ("original-s2", "original"),
        ("original-s10", "original"),
    ]
    assert runs.title == tmp_path.name
    assert read_runs(sorted(tmp_path.iterdir())).title == tmp_path.name
    assert read_runs([tmp_path / "fast-s0"]).title == "fast-s0"


def test_a_system_on_two_corpora_is_one_system(make_run: Any, tmp_path: Path) -> None:
    make_run("de/reinforced-s0", [2.0])
    make_run("ja/reinforced-s0", [2.0], settings=["corpus.src_lang=ja", "training.batch_size=100"])
    runs = read_runs([tmp_path])
    assert (runs.groups, runs.corpora) == (("reinforced",), ("multi30k de-en", "multi30k ja-en"))
    assert [run.name for run in runs.runs] == ["de/reinforced-s0", "ja/reinforced-s0"]


def test_a_test_set_of_one_digest_is_one_set_by_name_or_by_files(make_run: Any, tmp_path: Path) -> None:
    """Without texts, as in results/. Runs on files need not state their languages."""
    by_files = [
        f"corpus.{split}=['multi30k/{split}.de', 'multi30k/{split}.en']" for split in ("train", "valid", "test")
    ]
    unnamed = ["corpus.name=none", "corpus.src_lang=und", "corpus.tgt_lang=und"]
    folders = [make_run("x-s0", [2.0]), make_run("y-s0", [2.0], settings=[*unnamed, *by_files])]

    def corpora(*digests: str | None) -> tuple[str, ...]:
        for number, (folder, digest) in enumerate(zip(folders, digests, strict=True)):
            config = json.loads((folder / "config.json").read_text()) | {"data": f"{number}", "test": digest}
            (folder / "config.json").write_text(json.dumps(config))
        return read_runs([tmp_path]).corpora

    assert corpora("a", "a") == ("multi30k de-en",)
    assert len(corpora("a", "b")) == len(corpora(None, None)) == 2


def test_systems_of_one_name_and_other_settings_are_kept_apart(make_run: Any, make_grid: Any) -> None:
    grids = []
    for name, batch in (("one", 100), ("two", 200)):
        make_run(f"{name}/reinforced-s0", [2.0], settings=[f"training.batch_size={batch}"])
        grids.append(make_grid(name, [("reinforced-s0", {"system": "reinforced"}, None, "done", "")]))
    assert read_runs(grids).groups == ("one/reinforced", "two/reinforced")


def test_a_system_with_a_cell_of_another_grid_is_kept_apart_as_one(make_run: Any, make_grid: Any) -> None:
    """Its runs are alike, wherever they lie, and whichever grid names them first."""
    label = {"system": "reinforced"}
    make_run("first/reinforced-s0", [2.0])
    make_run("second/reinforced-s1", [2.0], seed=1)
    make_run("third/reinforced-s0", [2.0], settings=["training.batch_size=100"])
    first = make_grid("first", [("reinforced-s0", label, None, "done", "")])
    cells = (("reinforced-s0", "../first/reinforced-s0"), ("reinforced-s1", None))
    second = make_grid("second", [(name, label, where, "done", "") for name, where in cells])
    third = make_grid("third", [("reinforced-s0", label, None, "done", "")])
    assert names(read_runs([second, third])) == [
        ("second/reinforced-s0", "second/reinforced", "multi30k de-en", 0),
        ("reinforced-s1", "second/reinforced", "multi30k de-en", 1),
        ("third/reinforced-s0", "third/reinforced", "multi30k de-en", 0),
    ]
    assert read_runs([first, second, third]).groups == ("first/reinforced", "third/reinforced")


def test_a_cell_of_another_grid_is_of_its_system_however_its_width_is_written(make_run: Any, make_grid: Any) -> None:
    make_run("first/reinforced-s0", [2.0], settings=["training.schedule_width=16"])
    make_run("second/reinforced-s1", [2.0], seed=1, settings=["training.schedule_width=none"])
    cells = [("reinforced-s0", "../first/reinforced-s0"), ("reinforced-s1", None)]
    second = make_grid("second", [(name, {"system": "reinforced"}, where, "done", "") for name, where in cells])
    assert read_runs([second]).groups == ("reinforced",)
    assert {run.experiment.training.schedule_width for run in read_runs([second]).runs} == {None}


def test_the_same_seed_of_unlike_data_is_said(make_run: Any, make_grid: Any) -> None:
    make_run("grid/x-s0", [2.0], digests={"train": "1"})
    make_run("grid/y-s0", [2.0], digests={"train": "2"})
    label = {"system": "x"}
    runs = read_runs([make_grid("grid", [("x-s0", label, None, "done", ""), ("y-s0", label, None, "done", "")])])
    assert not runs.problems
    assert "x-s0 and y-s0 are both seed 0 of x on multi30k de-en" in build(runs).warnings[0]


def test_scores_of_a_training_that_was_only_stopped_do_not_count(make_run: Any) -> None:
    """`repose evaluate RUN --out RUN` puts them there."""
    folder = make_run("x-s0", [2.0, 1.0])
    end = {
        "kind": "end",
        "update": 20,
        "epoch": 2,
        "status": "stopped",
        "reason": "SIGINT",
        "at": "",
        "wall": {"seconds": 9.0},
    }
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(end) + "\n")
    runs = read_runs([folder])
    assert [(run.done, run.status) for run in runs.runs] == [(False, "unfinished")]


def test_scores_of_a_training_whose_checkpoint_says_that_it_goes_on_do_not_count(make_run: Any) -> None:
    run = RunFolder(make_run("x-s0", [2.0, 1.0], settings=["training.epochs=3"]))
    run.metrics_file.write_text("".join(run.metrics_file.read_text().splitlines(keepends=True)[:-1]))
    run.state.mkdir()
    text = json.dumps({"done": None})
    head = {"state": text, "state_crc32": f"{zlib.crc32(text.encode()):08x}"}
    save_file({"weight": np.zeros(1, np.float32)}, run.checkpoint, metadata=head)
    assert [one.done for one in read_runs([run.path]).runs] == [False]


def test_what_is_unfinished_or_failed_is_said_and_the_rest_counts(
    make_run: Any, make_grid: Any, tmp_path: Path
) -> None:
    make_run("grid/x-s0", [2.0, 1.0])
    make_run("grid/x-s1", [2.0], seed=1, bleu=None, settings=["training.epochs=2"])
    make_run("grid/x-s2", [2.0], bleu=None)
    (tmp_path / "grid/x-s2/metrics.jsonl").write_text("")
    label = {"system": "x"}
    states = [
        ("x-s0", label, None, "done", ""),
        ("x-s1", label, None, "stopped", ""),
        ("x-s2", label, None, "running", ""),
        ("x-s3", label, None, "waiting", ""),
        ("x-s4", label, None, "failed", "the loss is no longer a finite number"),
    ]
    runs = read_runs([make_grid("grid", states)])
    assert [(run.name, run.status, run.done) for run in runs.runs] == [
        ("x-s0", "done", True),
        ("x-s1", "stopped", False),
    ]
    assert runs.problems == (
        "x-s4 failed: the loss is no longer a finite number.",
        "2 of 5 cells of grid have recorded nothing yet: x-s2, x-s3.",
        "x-s1 is unfinished (1 of 2 epochs): it is in the learning curves, not in the final figures.",
    )
    assert [run.name for run in runs.done("x", "multi30k de-en")] == ["x-s0"]
    report = build(runs)
    assert report.subtitle.startswith("1 finished run of 1 system on multi30k de-en, 1 failed, 3 unfinished;")
    assert report.warnings == (
        "The system has one finished seed: how much scores vary with the seed is unknown.",
        "1 of 5 cells failed: x-s4 (see Runs).",
        "3 of 5 cells are unfinished: x-s2, x-s3, x-s1 (see Runs).",
    )
    (row,) = scores_table(runs).rows
    said = "Not counted: x-s2 (unfinished), x-s3 (unfinished), x-s4 (failed), x-s1 (unfinished)."
    assert (row[1].text, row[1].notes) == ("1", [said])


def test_a_finished_cell_whose_folder_is_gone_is_missing(make_run: Any, make_grid: Any, tmp_path: Path) -> None:
    make_run("grid/x-s0", [2.0])
    folder = make_grid("grid", [(f"x-s{seed}", {"system": "x"}, None, "done", "") for seed in (0, 1)])
    runs = read_runs([folder])
    gone = f"x-s1 was finished, but {tmp_path}/grid/x-s1 is gone: put it back, or run the grid again."
    assert runs.problems == (gone,)
    report = build(runs)
    assert "1 missing" in report.subtitle
    assert "1 of 2 cells is missing: x-s1 (see Runs)." in report.warnings


def test_what_is_no_grid_is_in_the_title_and_what_is_unfinished_no_system(
    make_run: Any, make_grid: Any, tmp_path: Path
) -> None:
    make_run("all/grid/x-s0", [2.0])
    make_grid("all/grid", [("x-s0", {"system": "x"}, None, "done", "")])
    assert read_runs([tmp_path / "all"]).title == "all/grid"
    make_run("all/alone", [2.0], bleu=None, settings=["training.epochs=2"], preset="baseline")
    runs = read_runs([tmp_path / "all"])
    assert runs.title == "all"
    assert build(runs).subtitle.startswith("1 finished run of 1 system on ")


def test_a_cell_that_failed_before_it_recorded_anything_is_told_of_once(make_run: Any, make_grid: Any) -> None:
    cells = [(f"fr-x-s{seed}", {"corpus": "fr", "system": "x"}, None, "done", "") for seed in range(3)]
    for seed in range(3):
        make_run(f"grid/fr-x-s{seed}", [2.0], seed=seed)
    folder = make_grid("grid", [*cells[:1], (*cells[1][:3], "failed", "the loss is no number"), *cells[2:]])
    (folder / "fr-x-s1" / "metrics.jsonl").write_text('{"kind": "data"}\n')
    (folder / "fr-x-s2" / "metrics.jsonl").write_text("3\n")
    runs = read_runs([folder])
    assert runs.problems[0] == "fr-x-s1 failed: the loss is no number."
    assert [problem.partition(":")[0] for problem in runs.problems[1:]] == ["fr-x-s2 is left out"]
    assert build(runs).warnings[1:] == (
        "1 of 3 cells failed: fr-x-s1 (see Runs).",
        "1 of 3 cells is left out: fr-x-s2 (see Runs).",
    )
    (row,) = scores_table(runs).rows
    assert row[1].notes == ["Not counted: fr-x-s1 (failed), fr-x-s2 (left out)."]


def test_a_run_that_is_trained_but_not_scored_is_said_to_be(make_run: Any) -> None:
    folder = make_run("x-s0", [2.0, 1.0], bleu=None)
    (problem,) = read_runs([folder]).problems
    assert problem == (
        "x-s0 is trained, but not scored: run the same command again, which only scores it, or for a trial of a search "
        f"`repose evaluate {folder} --out {folder}`."
    )


def test_what_a_process_is_at_work_on_is_not_to_be_run_again(make_run: Any, make_grid: Any) -> None:
    """By its lock: a grid that was killed still records that its cells run."""
    for seed in range(4):
        make_run(f"grid/x-s{seed}", [2.0, 1.0][: 2 - seed % 2], seed=seed, bleu=None, settings=["training.epochs=2"])
    folder = make_grid("grid", [(f"x-s{seed}", {"system": "x"}, None, "running", "") for seed in range(4)])
    training = RunFolder(folder / "x-s1").lock_file
    with locked_or_busy(folder / "x-s0" / LOCK, "scores"), locked_or_busy(training, "trains"):
        runs = read_runs([folder])
        states = [row[5].text for row in runs_table(runs).rows]
    assert [problem.partition(":")[0] for problem in runs.problems] == [
        "x-s0 is trained, and is being scored.",
        "x-s1 is being trained (1 of 2 epochs)",
        "x-s2 is trained, but not scored",
        "x-s3 is unfinished (1 of 2 epochs)",
    ]
    assert states == [
        "trained, being scored (2 epochs)",
        "running (1 epoch)",
        "trained, not scored (2 epochs)",
        "stopped (1 epoch)",
    ]


def test_a_run_that_is_limited_by_updates_is_so_far_by_updates(make_run: Any) -> None:
    folder = make_run("x-s0", [2.0], bleu=None, settings=["training.epochs=2", "training.updates=1500"])
    (problem,) = read_runs([folder]).problems
    assert "(10 of 1,500 updates)" in problem
    end = EndRecord(status=RunStatus.STOPPED, reason=EndReason.STOP_AFTER, update=14, epoch=2, seconds=1.0, at="")
    with (folder / "metrics.jsonl").open("a") as metrics:
        metrics.write(json.dumps(end.to_json()) + "\n")
    (problem,) = read_runs([folder]).problems
    assert "(14 of 1,500 updates)" in problem, "though nothing was recorded after the tenth"


def test_a_record_that_was_half_written_is_left_out(make_run: Any) -> None:
    folder = make_run("x-s0", [2.0, 1.0], bleu=None)
    with (folder / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"kind": "train", "upd')
    (run,) = read_runs([folder]).runs
    assert [record["epoch"] for record in run.of_kind("valid")] == [1, 2]


DAMAGE = {
    "half the scores": ("scores.test.json", '{"decoded": {"gre', "scores.test.json is damaged: delete it"),
    "no scores": ("scores.test.json", "{}", "scores.test.json is damaged"),
    "half the settings": ("config.json", '{"experiment": {', "config.json is damaged"),
    "damaged records": ("metrics.jsonl", '{"kind":\n{"kind": "valid"}\n', "metrics.jsonl is damaged"),
    "another version": ("config.json", '{"experiment": {"training": {"magic": 1}}}', "written by a newer repose"),
}


@pytest.mark.parametrize(("file", "content", "sentence"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_run_is_left_out_with_a_sentence(
    file: str, content: str, sentence: str, make_run: Any, tmp_path: Path
) -> None:
    make_run("good-s0", [2.0])
    (make_run("bad-s0", [2.0]) / file).write_text(content)
    runs = read_runs([tmp_path])
    assert [run.name for run in runs.runs] == ["good-s0"]
    (problem,) = runs.problems
    assert problem.startswith("bad-s0 is left out: ")
    assert sentence in problem
    with pytest.raises(CheckpointError, match="no run has recorded anything"):
        read_runs([tmp_path / "bad-s0"])


GRIDS = {"another version": ('{"format": 7}', "has format 7, this repose reads 1"), "half": ('{"format"', "is damaged")}


@pytest.mark.parametrize(("content", "sentence"), GRIDS.values(), ids=GRIDS.keys())
def test_a_grid_that_cannot_be_read_is_said(content: str, sentence: str, make_run: Any, make_grid: Any) -> None:
    folder = make_grid("grid", [])
    (folder / "grid.json").write_text(content)
    runs = read_runs([folder, make_run("good-s0", [2.0])])
    assert [run.name for run in runs.runs] == ["good-s0"]
    assert sentence in runs.problems[0]


def test_nothing_and_unknown_names_are_one_sentence(make_run: Any, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"there is no folder .*missing"):
        read_runs([tmp_path / "missing"])
    with pytest.raises(CheckpointError, match="no run has recorded anything under"):
        read_runs([tmp_path])
    with pytest.raises(ConfigError, match="did you mean 'original'"):
        read_runs([make_run("original-s0", [2.0])], baseline="orignal")


def test_a_model_that_looks_ahead_is_known_by_its_architecture(make_run: Any) -> None:
    ahead = make_run("ahead-s0", [0.5], preset="reinforced-lookahead", bleu=None)
    causal = make_run("causal-s0", [2.0], preset="reinforced", bleu=None)
    assert [(run.looks_ahead, run.comparable) for run in read_runs([ahead, causal]).runs] == [
        (True, False),
        (False, True),
    ]


def test_scores_of_the_validation_set_are_called_so(make_run: Any) -> None:
    folder = make_run("x-s0", [2.0])
    shutil.move(folder / "scores.test.json", folder / "scores.valid.json")
    (run,) = read_runs([folder]).runs
    assert (run.split, run.done) == ("valid", True)


def test_the_shipped_results_are_read_as_their_summary_says() -> None:
    runs = read_runs([RESULTS / "enhanced-small"])
    summary = json.loads((RESULTS / "enhanced-small" / "summary.json").read_text())["de-en"]
    assert set(summary) == {run.group for run in runs.runs if run.corpus == "multi30k de-en"}
    for group, figures in summary.items():
        values = [score(run, None, "bleu") for run in runs.done(group, "multi30k de-en")]
        assert len(values) == figures["n"]
        assert statistics.fmean(v for v in values if v is not None) == pytest.approx(figures["bleu_beam4"]["mean"])


def test_folders_with_digits_that_are_no_numbers(make_run: Any) -> None:
    made = [make_run(f"runs/{name}", [2.0]) for name in ("10²", "s10", "s2")]
    found = read_runs([made[0].parent])
    assert len(found.runs) >= 1


def test_links_back_up_the_tree(make_run: Any) -> None:
    run = make_run("runs/one", [2.0])
    for name in ("latest", "best"):
        (run.parent / name).symlink_to(run.parent)
    assert len(read_runs([run.parent]).runs) == 1


def test_runs_whose_folders_have_one_name_twice_over_are_kept_apart(make_run: Any, tmp_path: Path) -> None:
    """As in copies of a folder of runs: by as many folders as tell them apart."""
    for place, width, bleu in (("A/runs", 16, 6.0), ("B/runs", 17, 89.0)):
        make_run(f"{place}/x", [2.0], bleu=bleu, settings=[f"architecture.d_ff={width}"])
    runs = read_runs([tmp_path / "A", tmp_path / "B"]).runs
    assert [run.group for run in runs] == [run.name for run in runs] == ["A/runs/x", "B/runs/x"]


def test_systems_of_grids_in_folders_of_one_name_are_kept_apart(make_run: Any, make_grid: Any, tmp_path: Path) -> None:
    for place, width in (("A/runs", 16), ("B/runs", 17)):
        make_run(f"{place}/narrow-s0", [2.0], settings=[f"architecture.d_ff={width}"])
        make_grid(place, [("narrow-s0", {"width": "narrow"}, None, "done", "")])
    runs = read_runs([tmp_path / "A" / "runs", tmp_path / "B" / "runs"]).runs
    assert {run.group for run in runs} == {"A/runs/narrow", "B/runs/narrow"}


def test_a_place_whose_name_is_the_end_of_another() -> None:
    places = [Path("/x/grid"), Path("/tmp/x/grid"), Path("/")]
    assert _apart(["a", "a", "a"], places) == ["/x/grid/a", "tmp/x/grid/a", "/a"]
