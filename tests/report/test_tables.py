"""The numbers of a report: what is averaged, what is marked, and what is left out."""

import dataclasses
import json
import math
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from repose.model.describe import describe
from repose.report import figures
from repose.report.build import audited, build
from repose.report.collect import read_runs
from repose.report.content import Cell, Column, Table
from repose.report.differences import differences
from repose.report.papers import published_tables
from repose.report.pictures import pictures
from repose.report.run_set import RunSet
from repose.report.significance import significance_tables
from repose.report.significance_of_tasks import TaskFigure
from repose.report.tables import UNLIKE, spread
from repose.report.tables_costs import best_and_last_table, costs_table, equal_epochs_table
from repose.report.tables_scores import scores_table, task_column, task_tables, teacher_forced_table, variants_table
from repose.report.verdict import verdict
from repose.report.write import to_json
from repose.saved_run.records import Records
from repose.system.errors import CheckpointError

ONE = {"training.batch_size=100"}


def cells(table: Table, system: str) -> dict[str, Cell]:
    """A system's row by the names of the columns."""
    names = [column.name for column in table.columns]
    (row,) = [row for row in table.rows if row[names.index("system")].text == system]
    return dict(zip(names, row, strict=True))


COSTS = ("n", "parameters", "operations", "all operations", "time", "training and validation", "epochs", "updates")
COSTS += ("last epoch", "time so far")


@pytest.fixture
def three(make_run: Any, tmp_path: Path) -> RunSet:
    """Three seeds of one system, one run of another, and one that looks ahead."""
    for seed, (loss, bleu) in enumerate([(2.0, 20.0), (2.2, 23.0), (2.4, 21.0)]):
        make_run(f"causal-s{seed}", [3.0, loss], seed=seed, preset="reinforced", bleu=bleu)
    make_run("plain-s0", [3.1, 2.5], bleu=24.0)
    make_run("ahead-s0", [1.0, 0.1], preset="reinforced-lookahead", bleu=60.0)
    return read_runs([tmp_path])


def test_mean_and_deviation_are_those_of_the_seeds(three: RunSet) -> None:
    row = cells(scores_table(three), "causal")
    assert row["n"].text == "3"
    loss = row["valid. loss"]
    assert (loss.text, loss.n) == ("2.200 ± 0.200", 3)  # ((0.2² + 0 + 0.2²) / 2) ** 0.5
    assert (loss.value, loss.deviation) == (pytest.approx(2.2), pytest.approx(0.2))
    bleu = row["BLEU greedy"]
    mean, deviation = 64 / 3, ((4 / 3) ** 2 + (5 / 3) ** 2 + (1 / 3) ** 2) ** 0.5 / 2**0.5
    assert (bleu.value, bleu.deviation) == (pytest.approx(mean), pytest.approx(deviation))
    assert (bleu.text, row["BLEU beam 4"].text) == ("21.3 ± 1.5", "22.3 ± 1.5")


def test_a_single_run_has_no_deviation(three: RunSet) -> None:
    loss = cells(scores_table(three), "plain")["valid. loss"]
    assert (loss.text, loss.deviation, loss.n) == ("2.500", None, 1)
    assert spread([]) is None


def test_the_perplexity_is_a_mean_of_perplexities(three: RunSet) -> None:
    value = cells(scores_table(three), "causal")["perplexity"].value
    assert value == pytest.approx((math.exp(2.0) + math.exp(2.2) + math.exp(2.4)) / 3)
    assert value != pytest.approx(math.exp(2.2), abs=1e-3)


def test_train_loss_is_that_of_the_last_epoch_without_label_smoothing(three: RunSet) -> None:
    assert cells(scores_table(three), "plain")["train loss"].value == pytest.approx(3.0)


def test_the_best_is_marked_and_never_one_that_looks_ahead(three: RunSet) -> None:
    table = scores_table(three)
    ahead, causal, plain = (cells(table, name) for name in ("ahead", "causal", "plain"))
    assert ahead["valid. loss"].value == pytest.approx(0.1)
    assert [row["valid. loss"].best for row in (ahead, causal, plain)] == [False, True, False]
    assert [row["BLEU greedy"].best for row in (ahead, causal, plain)] == [False, False, True]
    assert not any(row["train loss"].best for row in (ahead, causal, plain))


def test_every_figure_but_costs_of_a_model_that_looks_ahead_carries_a_warning(three: RunSet) -> None:
    report = build(three)
    for table in (table for section in report.sections for table in section.tables if table.id != "runs"):
        names = [column.name for column in table.columns]
        for row in (row for row in table.rows if "system" in names and row[names.index("system")].text == "ahead"):
            warned = [
                cell for name, cell in zip(names, row, strict=True) if cell.value is not None and name not in COSTS
            ]
            costs = [cell for name, cell in zip(names, row, strict=True) if name in COSTS]
            assert (not warned) == (table.id == "costs")
            assert not any(cell.notes for cell in costs)
            assert all("looks ahead" in " ".join(cell.notes) for cell in warned), table.id
    assert "ahead: the decoder sees the tokens" in report.warnings[0]


def test_losses_of_other_tokens_are_not_compared(make_run: Any, tmp_path: Path) -> None:
    make_run("a-s0", [2.0], bleu=20.0, digests={"src": "s", "tgt": "one"}, settings=ONE)
    make_run("b-s0", [3.0], bleu=21.0, digests={"src": "s", "tgt": "two"})
    table = scores_table(read_runs([tmp_path]))
    row = cells(table, "a")
    assert not row["valid. loss"].best
    assert "different vocabularies" in row["valid. loss"].notes[0]
    assert cells(table, "b")["BLEU greedy"].best
    assert not cells(table, "b")["BLEU greedy"].notes


def test_test_and_validation_scores_of_a_system_have_no_mean(make_run: Any, tmp_path: Path) -> None:
    for seed in (0, 1):
        make_run(f"a-s{seed}", [2.0], seed=seed, bleu=20.0 + seed)
        make_run(f"b-s{seed}", [2.0], seed=seed, bleu=20.0 + seed, settings=ONE)
    (tmp_path / "a-s1/scores.test.json").rename(tmp_path / "a-s1/scores.valid.json")
    table = scores_table(read_runs([tmp_path]))
    a, b = (cells(table, system) for system in ("a", "b"))
    assert (a["BLEU greedy"].value, a["BLEU greedy"].text) == (None, "–")
    assert "on different sets: no mean is taken" in a["BLEU greedy"].notes[0]
    assert b["BLEU greedy"].value == 20.5
    assert a["valid. loss"].value == 2.0, "of the validation set of both"


UNLIKE_SCORES = {
    "case": ('"nrefs:1|case:mixed', '"nrefs:1|case:lc'),
    "tok": ("tok:13a", "tok:none"),
    "sentences": ('"num_sentences": 100', '"num_sentences": 99'),
}


@pytest.mark.parametrize(("before", "after"), UNLIKE_SCORES.values(), ids=UNLIKE_SCORES.keys())
def test_scores_of_unlike_kinds_are_not_compared(before: str, after: str, make_run: Any, tmp_path: Path) -> None:
    make_run("a-s0", [2.0], bleu=20.0, settings=ONE)
    other = make_run("b-s0", [3.0], bleu=30.0) / "scores.test.json"
    assert cells(scores_table(read_runs([tmp_path])), "b")["BLEU greedy"].best
    other.write_text(other.read_text().replace(before, after))
    runs = read_runs([tmp_path])
    assert not any(cells(scores_table(runs), name)["BLEU greedy"].best for name in ("a", "b"))
    assert "their scores cannot be compared" in verdict(runs)
    assert cells(scores_table(runs), "a")["valid. loss"].best


def test_a_system_whose_runs_were_scored_in_unlike_ways_says_so(make_run: Any, tmp_path: Path) -> None:
    """Though no other has a mean in that column; and no picture or paper's table has one, either."""
    make_run("a-s0", [2.0], bleu=20.0, preset="original")
    path = make_run("a-s1", [2.0], seed=1, bleu=60.0, preset="original") / "scores.test.json"
    path.write_text(path.read_text().replace("tok:13a", "tok:char"))
    make_run("b-s0", [2.0], bleu=60.0, preset="enhanced", settings=["architecture.d_ff=999"])
    runs = read_runs([tmp_path])
    cell = cells(scores_table(runs), "a")["BLEU beam 4"]
    assert (cell.text, cell.notes) == ("–", [UNLIKE])
    assert not [picture for picture in pictures(runs) if picture.id.startswith("bleu-and")]
    (table,) = (t for t in published_tables(dataclasses.replace(runs, published=("enhanced/table-1",)))[0] if t.rows)
    assert "40." not in " ".join(cell.text for row in table.rows for cell in row[3:])


def test_a_system_that_looks_ahead_keeps_no_other_from_being_the_best(make_run: Any, tmp_path: Path) -> None:
    make_run("a-s0", [2.0], bleu=20.0, settings=ONE)
    make_run("b-s0", [3.0], bleu=30.0)
    ahead = make_run("ahead-s0", [0.1], preset="reinforced-lookahead", bleu=60.0) / "scores.test.json"
    ahead.write_text(ahead.read_text().replace("tok:13a", "tok:none"))
    assert cells(scores_table(read_runs([tmp_path])), "b")["BLEU greedy"].best


def test_the_limit_in_hours_is_a_setting_of_trainings_that_it_ended(make_run: Any, tmp_path: Path) -> None:
    folders = [
        make_run(f"{name}-s0", [2.0], settings=[f"training.max_hours={hours}"]) for name, hours in (("a", 1), ("b", 2))
    ]
    for by_clock, said in ((False, ""), (True, "max_hours 2 against 1")):
        for path in (folder / "metrics.jsonl" for folder in folders if by_clock):
            path.write_text(path.read_text().replace('"epochs"', '"max_hours"'))
        one, other = read_runs([tmp_path]).runs
        assert differences([other], [one]) == said


def test_beams_of_other_widths_are_not_compared(make_run: Any, tmp_path: Path) -> None:
    make_run("a-s0", [2.0], bleu=20.0, settings=ONE)
    path = make_run("b-s0", [3.0], bleu=30.0) / "scores.test.json"
    path.write_text(path.read_text().replace("beam4", "beam12"))
    runs = read_runs([tmp_path])
    rows = [cells(scores_table(runs), name) for name in ("a", "b")]
    assert [(row["BLEU greedy"].best, row["BLEU beam"].best) for row in rows] == [(False, False), (True, False)]
    assert "their scores cannot be compared" in verdict(runs)


def test_equal_scores_are_both_the_best(make_run: Any, tmp_path: Path) -> None:
    make_run("a-s0", [2.0], bleu=20.01, settings=ONE)
    make_run("b-s0", [3.0], bleu=20.04)
    table = scores_table(read_runs([tmp_path]))
    assert not any(cells(table, name)["BLEU greedy"].best for name in ("a", "b")), "where nothing differs, none is"
    make_run("c-s0", [4.0], bleu=19.0, settings={"training.batch_size=200"})
    table = scores_table(read_runs([tmp_path]))
    assert [cells(table, name)["BLEU greedy"].best for name in ("a", "b", "c")] == [True, True, False]


def test_fewer_runs_than_the_row_has_are_said(make_run: Any, tmp_path: Path) -> None:
    make_run("a-s0", [2.0], bleu=20.0)
    folder = make_run("a-s1", [2.0], seed=1, bleu=22.0)
    scores = json.loads((folder / "scores.test.json").read_text())
    del scores["decoded"]["beam4"]
    (folder / "scores.test.json").write_text(json.dumps(scores))
    row = cells(scores_table(read_runs([tmp_path])), "a")
    assert (row["BLEU greedy"].text, row["BLEU beam 4"].text) == ("21.0 ± 1.4", "21.0 (1)")


def test_seconds_are_the_median_epoch_of_training_alone(make_run: Any) -> None:
    (run,) = read_runs([make_run("a-s0", [3.0, 2.0, 1.0], seconds=[30.0, 100.0, 20.0])]).runs
    assert figures.epoch_seconds(run) == pytest.approx([30.0, 100.0, 20.0])
    assert figures.seconds_per_epoch(run) == pytest.approx(30.0)
    assert figures.total_seconds(run) == pytest.approx(150.0 + 3 * 5.0)


def test_a_validation_within_an_epoch_takes_its_time_from_nothing_before_it(make_run: Any) -> None:
    """No record says when it began."""
    (run,) = read_runs([make_run("a-s0", [3.0])]).runs
    places = [("epoch", 10, 10.0), ("valid", 10, 15.0), ("valid", 15, 40.0), ("epoch", 20, 60.0), ("valid", 20, 65.0)]
    records = tuple({"kind": kind, "update": at, "epoch": 1, "wall": {"seconds": s}} for kind, at, s in places)
    assert figures.epoch_seconds(dataclasses.replace(run, records=Records(records))) == [10.0, 45.0]


def test_the_shipped_seconds_are_those_of_the_readme() -> None:
    results = Path(__file__).parents[2] / "results" / "multi30k-de-en"
    readme = (results / "README.md").read_text()
    (run,) = read_runs([results / "scaled-reinforced"]).runs
    seconds, count = figures.seconds_per_epoch(run), figures.parameters(run)
    assert seconds is not None
    assert count is not None
    assert f"| 2,242 updates | `reinforced` | {count:,.0f} | {seconds:.0f} |" in readme


def test_every_deviation_says_which_it_is() -> None:
    """With two or three seeds, that of the population is much smaller."""
    captions = files("repose.report").joinpath("captions.toml").read_text(encoding="utf-8")
    said = re.sub(r"\\\n\s*", "", captions)
    assert len(re.findall(r"standard deviation", said)) > 8
    assert re.findall(r".{20}standard deviation(?! \(n - 1\)).{20}", said) == []


def test_costs_are_those_of_describe_and_the_corpus(make_run: Any) -> None:
    runs = read_runs([make_run("a-s0", [3.0, 2.0])])
    expected = describe(runs.runs[0].experiment.architecture, src_vocab_size=50, tgt_vocab_size=40, length=6)
    row = cells(costs_table(runs), "a")
    assert row["parameters"].text == f"{expected.total:,}"
    assert row["operations"].value == pytest.approx(expected.training_flops / 1e6)
    assert row["all operations"].value == pytest.approx(expected.training_flops * 1200 / 1e12)  # 600 tokens per epoch
    assert (row["epochs"].text, row["updates"].text) == ("2", "20")
    assert (row["time"].value, row["training and validation"].value) == (20.0, 50.0)


def test_the_operations_of_a_training_whose_checkpoints_were_averaged(make_run: Any) -> None:
    """Its last record is of the mean."""
    folder = make_run("a-s0", [3.0, 2.0])
    before = figures.training_flops(read_runs([folder]).runs[0])
    end = {"kind": "model", "update": 20, "epoch": 2, "tf_loss": 1.9, "tf_accuracy": 0.5, "wall": {"seconds": 51.0}}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(end) + "\n")
    assert before is not None
    assert figures.training_flops(read_runs([folder]).runs[0]) == before


def test_the_second_pass_of_r_drop_counts(make_run: Any) -> None:
    (one,), (two,) = (
        read_runs([make_run(f"a{rate}-s0", [3.0], settings=[f"training.r_drop={rate}"])]).runs for rate in (0, 1)
    )
    for of in (figures.flops_per_token, figures.training_flops):
        assert of(two) == 2 * (of(one) or math.nan)


def test_counts_have_no_deviation_and_a_range_where_they_differ(make_run: Any, tmp_path: Path) -> None:
    make_run("a-s0", [3.0, 2.0, 1.0], settings=["training.epochs=3"])
    make_run("a-s1", [3.0, 2.0], seed=1, settings=["training.epochs=3"])
    table = costs_table(read_runs([tmp_path]))
    row = cells(table, "a")
    assert (row["epochs"].text, row["epochs"].value) == ("2–3", 2.5)
    assert "±" not in row["parameters"].text
    assert "different numbers of epochs" in row["epochs"].notes[0]


def test_at_equal_epochs_all_have_had_as_many_as_the_shortest(make_run: Any, tmp_path: Path) -> None:
    make_run("long-s0", [3.0, 2.0, 1.0], seconds=[7.0, 8.0, 9.0], valid_bleu=[1.0, 2.0, 3.0])
    make_run("short-s0", [2.5, 2.1], valid_bleu=[4.0, 5.0], settings=ONE)
    runs = read_runs([tmp_path])
    table = equal_epochs_table(runs)
    assert table is not None
    row = cells(table, "long")
    assert [row[name].value for name in ("epochs", "valid. loss", "train loss", "BLEU", "time so far")] == [
        2, 2.0, 2.5, 2.0, 15.0,
    ]  # fmt: skip
    assert row["valid. loss"].best
    assert not row["BLEU"].best
    (epochs,) = [section for section in build(runs).sections if section.title == "Epochs"]
    assert epochs.warnings == ("The systems have different numbers of epochs on multi30k de-en.",)


def test_the_best_epoch_is_each_runs_own(make_run: Any, tmp_path: Path) -> None:
    make_run("a-s0", [3.0, 1.0, 2.0], valid_bleu=[5.0, 6.0, 7.0])
    make_run("a-s1", [3.0, 2.0, 1.8], seed=1, valid_bleu=[9.0, 8.0, 7.0])
    table = best_and_last_table(read_runs([tmp_path]))
    assert table is not None
    row = cells(table, "a")
    assert (row["loss, last"].value, row["loss, best"].value) == (pytest.approx(1.9), pytest.approx(1.4))
    assert (row["best epoch"].text, row["last epoch"].text) == ("2–3", "3")
    assert (row["BLEU, last"].value, row["BLEU, best"].value) == (7.0, 8.0)


def test_the_loss_is_that_of_the_weights_that_are_kept(make_run: Any) -> None:
    (last,) = read_runs([make_run("a-s0", [3.0, 1.0, 2.0])]).runs
    (best,) = read_runs([make_run("b-s0", [3.0, 1.0, 2.0], settings=["training.keep=best"])]).runs
    assert (figures.valid_loss(last), figures.valid_loss(best)) == (2.0, 1.0)


def test_weights_that_are_chosen_by_chrf_are_the_first_of_the_highest(make_run: Any) -> None:
    settings = ["training.keep=best", "training.best_by=chrf", "training.bleu_every_epochs=1"]
    (run,) = read_runs([make_run("a-s0", [1.0, 3.0, 2.0], settings=settings)]).runs
    chrf = {1: 40.0, 2: 50.0, 3: 50.0}
    records = tuple(
        {**record, "chrf": chrf[record["epoch"]]} if record["kind"] == "valid" else record
        for record in run.records.training
    )
    assert figures.valid_loss(dataclasses.replace(run, records=Records(records))) == 3.0


def test_the_loss_of_an_average_is_said_to_be_of_its_last_validation(make_run: Any, tmp_path: Path) -> None:
    average = ["training.average_checkpoints=2", "training.keep=best"]
    make_run("average-s0", [1.5, 2.0], settings=average)
    table = scores_table(read_runs([tmp_path]))
    row = cells(table, "average")
    assert row["valid. loss"].value == 2.0
    assert row["valid. loss"].notes == ["Of the last validation; the model is an average of checkpoints."]
    assert not row["BLEU greedy"].notes
    said = "earlier tokens, {}of the last validation, where the model is an average of checkpoints. BLEU"
    assert said.format("") in table.caption
    make_run("best-s0", [1.5, 2.0], settings=["training.keep=best"])
    both = scores_table(read_runs([tmp_path])).caption
    assert said.format("of the best validation, whose weights are kept, or ") in both
    text = ["training.task=language_modelling", "corpus.name=none", "corpus.train=a/t.txt", "corpus.valid=a/v.txt"]
    scores = {"task": "language_modelling", "figures": {"bits": {"value": 5.0, "unit": "bits"}}, "looks_ahead": False}
    make_run("lm-s0", [1.5, 2.0], settings=[*average, *text], scores=scores)
    (table,) = task_tables(read_runs([tmp_path]))
    assert "weights that are kept, or of the last validation, where the model is an average" in table.caption


def test_the_loss_of_an_average_is_its_own_where_it_was_measured(make_run: Any, tmp_path: Path) -> None:
    make_run("average-s0", [1.5, 2.0], settings=["training.average_checkpoints=2", "training.keep=best"])
    found = read_runs([tmp_path])
    (run,) = found.runs
    measured = {"kind": "model", "update": 2, "epoch": 2, "tf_loss": 1.25}
    run = dataclasses.replace(run, records=Records((*run.records.training, measured)))
    row = cells(scores_table(dataclasses.replace(found, runs=(run,))), "average")
    assert row["valid. loss"].value == 1.25
    assert not row["valid. loss"].notes


def test_unfinished_runs_are_in_no_final_figure(make_run: Any, tmp_path: Path) -> None:
    make_run("a-s0", [2.0])
    make_run("a-s1", [9.0], seed=1, bleu=None)
    row = cells(scores_table(read_runs([tmp_path])), "a")
    assert (row["n"].text, row["valid. loss"].text) == ("1", "2.000")


def test_teacher_forced_bleu_stands_apart(three: RunSet) -> None:
    table = teacher_forced_table(three)
    assert table is not None
    assert cells(table, "plain")["tf BLEU, mean of sentences"].value == 6.0
    assert "nothing is translated" in table.caption
    assert not any("tf" in column.name for column in scores_table(three).columns)


def test_further_scores_have_a_table_of_their_own(make_run: Any, tmp_path: Path) -> None:
    folder = make_run("a-s0", [2.0])
    make_run("b-s0", [2.0], settings=ONE)
    assert variants_table(read_runs([tmp_path])) is None
    scores = json.loads((folder / "scores.test.json").read_text())
    scores["decoded"]["beam4"]["bleu_tok_none"] = {"value": 12.5, "signature": "tok:none"}
    (folder / "scores.test.json").write_text(json.dumps(scores))
    table = variants_table(read_runs([tmp_path]))
    assert table is not None
    assert [column.name for column in table.columns] == ["system", "n", "BLEU tok:none, beam 4"]
    assert [row[0].text for row in table.rows] == ["a"]


def test_other_tasks_have_their_own_figures(make_run: Any, tmp_path: Path) -> None:
    texts = ["training.task=language_modelling", "corpus.name=none", "corpus.train=a/t.txt", "corpus.valid=a/v.txt"]
    for seed, bits in enumerate((5.0, 6.0)):
        units = {"tf_loss": "nats per token", "bits_per_token": "bits per token", "uas": "%"}
        values = {"tf_loss": 4.0, "bits_per_token": bits, "uas": 80.0 + seed}
        figures_ = {name: {"value": values[name], "unit": unit} for name, unit in units.items()}
        scores = {"task": "language_modelling", "figures": figures_, "looks_ahead": False}
        make_run(f"lm-s{seed}", [2.0], seed=seed, scores=scores, settings=texts)
    make_run("mt-s0", [2.0])
    runs = read_runs([tmp_path])
    assert runs.tasks == ("language_modelling", "translation")
    (table,) = task_tables(runs)
    names = ["system", "n", "bits per token", "UAS", "train loss", "valid. loss", "tf loss"]  # what counts comes first
    assert [column.name for column in table.columns] == names
    assert [column.unit for column in table.columns][2:4] == ["", "%"]
    row = cells(table, "lm")
    assert (row["bits per token"].text, row["UAS"].text) == ("5.500 ± 0.707", "80.50 ± 0.71")
    assert [r[0].text for r in scores_table(runs).rows] == ["mt"]
    assert "Operations:" in costs_table(runs).caption
    assert "Operations:" not in costs_table(runs.of_task("language_modelling")).caption, "no such column"
    assert build(runs).sections[0].tables[1] == table


def test_systems_of_other_tasks_say_their_size_and_other_settings(make_run: Any, tmp_path: Path) -> None:
    texts = ["training.task=language_modelling", "corpus.name=none", "corpus.train=a/t.txt", "corpus.valid=a/v.txt"]
    for name, rate in (("a", 0.004), ("b", 0.008)):
        figures_ = {"bits_per_token": {"value": 5.0, "unit": "bits"}}
        scores = {"task": "language_modelling", "figures": figures_, "looks_ahead": False, "parameters": 1234}
        make_run(f"{name}-s0", [2.0], scores=scores, settings=[*texts, f"training.learning_rate={rate}"])
    runs = read_runs([tmp_path])  # without the model's file
    assert cells(costs_table(runs), "a")["parameters"].text == "1,234"
    (table,) = task_tables(runs)
    assert cells(table, "a")["system"].notes == []
    (note,) = cells(table, "b")["system"].notes
    assert "learning_rate 0.008 against 0.004" in note


def test_only_figures_that_count_no_tokens_are_compared_between_other_tokens(make_run: Any, tmp_path: Path) -> None:
    texts = ["training.task=language_modelling", "corpus.name=none", "corpus.train=a/t.txt", "corpus.valid=a/v.txt"]
    units = {"tf_accuracy": "share of tokens", "perplexity": "per token", "bits_per_byte": "bits per byte"}
    for name, other in (("a", ONE), ("b", set())):
        figures_ = {figure: {"value": 0.5 + (name == "b"), "unit": unit} for figure, unit in units.items()}
        scores = {"task": "language_modelling", "figures": figures_, "looks_ahead": False}
        digests = {"src": name, "tgt": name}
        make_run(f"{name}-s0", [2.0], scores=scores, settings=[*texts, *other], digests=digests)
    (table,) = task_tables(read_runs([tmp_path]))
    best = {(name, figure) for name in ("a", "b") for figure, cell in cells(table, name).items() if cell.best}
    assert best == {("a", "bits per byte")}


def test_a_failed_audit_is_a_warning_and_never_the_best(make_run: Any, tmp_path: Path) -> None:
    for name, loss in (("good-s0", 2.0), ("bad-s0", 1.0), ("ok-s0", 3.0)):
        settings = [f"training.batch_size={100 + round(loss)}"]
        (make_run(name, [loss], settings=settings) / "model").mkdir()
    runs = audited(read_runs([tmp_path]), lambda folder: ("padding",) if folder.name == "bad-s0" else ())
    table = scores_table(runs)
    bad = cells(table, "bad")["valid. loss"]
    assert not bad.best
    assert bad.notes[0].startswith("This model failed the audit (padding)")
    assert cells(table, "good")["valid. loss"].best
    assert build(runs).warnings[0].startswith("bad: failed the audit")
    said = " ".join(note for one in significance_tables(runs) for note in one.keys)
    assert "Left out of the tests: bad-s0; it failed the audit (padding)." in said
    ahead = audited(read_runs([tmp_path]), lambda _: ("causal (perturbation)",))
    assert all(run.looks_ahead for run in ahead.runs)


def test_a_model_that_cannot_be_audited_is_said_and_the_next_is_tried(make_run: Any, tmp_path: Path) -> None:
    for name, seed in (("a-s0", 0), ("a-s1", 1), ("b-s0", 0)):
        (make_run(name, [2.0], seed=seed, settings=sorted(ONE) if name[0] == "a" else ()) / "model").mkdir()

    def check(folder: Path) -> tuple[str, ...]:
        if folder.name != "a-s1":
            raise CheckpointError(f"{folder.name}/model has no config.json")
        return ("padding",)

    runs = audited(read_runs([tmp_path]), check)
    assert {run.name: run.failed_checks for run in runs.runs} == {
        "a-s0": ("padding",),
        "a-s1": ("padding",),
        "b-s0": (),
    }
    assert runs.problems == tuple(
        f"{name} is not audited: {name}/model has no config.json." for name in ("a-s0", "b-s0")
    )


def test_the_numbers_for_programs_have_every_run(three: RunSet) -> None:
    content = json.loads(json.dumps(to_json(build(three), three), allow_nan=False))
    assert [run["run_id"] for run in content["runs"]] == [run.run_id for run in three.runs]
    assert content["runs"][0]["figures"]["valid_loss"] == pytest.approx(0.1)
    table = content["tables"]["scores"]
    assert [column["name"] for column in table["columns"]][:2] == ["system", "n"]
    assert table["rows"][1][3] == {"text": "2.200 ± 0.200", "value": pytest.approx(2.2), "sd": pytest.approx(0.2), "n": 3, "notes": [], "best": True}  # fmt: skip  # noqa: E501
    assert "folder" not in content["runs"][0]


def test_a_table_is_of_corpora_where_there_are_several(make_run: Any, tmp_path: Path) -> None:
    make_run("a-s0", [2.0])
    make_run("b-s0", [2.0], settings=["corpus.src_lang=ja"])
    table = scores_table(read_runs([tmp_path]))
    assert [column.name for column in table.columns][:3] == ["corpus", "system", "n"]
    assert not any(cell.best for row in table.rows for cell in row)  # one system each


def test_keys_of_notes_go_on_after_z() -> None:
    rows = [[Cell("", notes=[str(number), "3"])] for number in range(27)]
    table = Table(id="t", title="", columns=[Column("x")], rows=rows, remarks=["the last", "0"])
    keys = list(table.keys.values())
    assert keys[:2] + keys[-3:] == ["a", "b", "z", "aa", "bb"]
    assert table.keys_of(rows[2][0]) == ["b", "d"]
    assert table.marked == set(keys[:-1])


def test_seeds_without_a_finite_figure_have_no_deviation_and_are_never_best(make_run: Any, tmp_path: Path) -> None:
    for seed, loss in enumerate((2.0, math.nan)):
        make_run(f"wild-s{seed}", [2.5, loss], seed=seed, preset="reinforced")
    make_run("tame-s0", [2.4, 2.2])
    runs = read_runs([tmp_path])
    wild, tame = (cells(scores_table(runs), system)["valid. loss"] for system in ("wild", "tame"))
    assert (wild.text, wild.deviation, wild.best, tame.best) == ("nan", None, False, False)
    epochs = best_and_last_table(runs)
    assert epochs is not None
    assert cells(epochs, "wild")["loss, best"].text == "2.250 ± 0.354"  # of the second seed its first epoch


@pytest.mark.parametrize(("name", "label"), [("las", "LAS"), ("bits_per_token", "bits per token"), ("ppl", "ppl")])
def test_tables_and_tests_call_a_figure_alike(name: str, label: str) -> None:
    assert task_column(name, "").name == TaskFigure(name, "").called == label


def test_an_infinite_perplexity_is_no_json_number(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = read_runs([make_run("a-s0", [2.0])])
    (run,) = runs.runs
    records = tuple({**record, "tf_loss": 1000.0} for record in run.records.training)
    runs = dataclasses.replace(runs, runs=(dataclasses.replace(run, records=Records(records)),))
    assert figures.perplexity(runs.runs[0]) == math.inf
    monkeypatch.setattr(figures, "valid_loss", lambda _run: math.nan)
    assert math.isnan(figures.perplexity(runs.runs[0]) or 0.0)
    assert (
        json.loads(json.dumps(to_json(build(runs), runs), allow_nan=False))["runs"][0]["figures"]["perplexity"] is None
    )
