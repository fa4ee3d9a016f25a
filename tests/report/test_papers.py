"""Tables of the papers beside ours: their layout, their numbers, our numbers, and how both are distinguished."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from repose.grids import published
from repose.report.collect import read_runs
from repose.report.content import Cell, Table
from repose.report.papers import published_tables
from repose.report.run_set import RunSet

PAIR = ("corpus.name=ted_hrlr", "tokenizer.kind=wordpiece", "tokenizer.vocab_size=8000")


def asked(folder: Path, *names: str) -> RunSet:
    return dataclasses.replace(read_runs([folder]), published=names)


def table_of(runs: RunSet, name: str) -> Table:
    tables, problems = published_tables(runs)
    assert problems == ()
    return next(table for table in tables if table.id == name)


def said(cell: Cell) -> str:
    return " ".join(cell.notes)


def texts(row: Sequence[Cell]) -> list[str]:
    return [cell.text for cell in row]


@pytest.fixture
def table_1(make_run: Any, tmp_path: Path) -> RunSet:
    """Baseline and causal model on gl-en (two of ten epochs), and on a pair that the paper does not have."""
    for pair in ("gl", "de"):
        languages = (*PAIR, f"corpus.src_lang={pair}", "corpus.tgt_lang=en")
        make_run(f"{pair}/baseline-s0", [5.0, 4.0], preset="baseline", small=False, settings=languages)
        make_run(f"{pair}/reinforced-s0", [4.5, 3.5], preset="reinforced", small=False, settings=languages)
    return asked(tmp_path, "reinforced/table-1")


def test_table_1_has_the_papers_columns_and_rows(table_1: RunSet) -> None:
    entry = published.load().find(published.PrintedTable, "reinforced/table-1")
    table = table_of(table_1, "reinforced-table-1")
    names = [column.name.replace("valid.", "validation").replace(" ", "_") for column in table.columns]
    assert names == ["corpus", "source", *(column.name for column in entry.columns[1:])]
    theirs = [row for row in table.rows if row[1].text == "paper"]
    assert [[row[0].text, *(cell.value for cell in row[2:])] for row in theirs] == [list(row) for row in entry.rows]
    assert "look" not in table.caption
    assert "each position sees the future" in said(theirs[0][1])


def test_the_papers_rows_stand_beside_some_of_ours(make_run: Any, tmp_path: Path) -> None:
    languages = (*PAIR, "corpus.src_lang=pt", "corpus.tgt_lang=en")
    make_run("own-s0", [5.0], preset="reinforced", settings=[*languages, "architecture.dropout=0.0"])
    assert published_tables(read_runs([tmp_path])) == ((), ())
    make_run("reinforced-s0", [5.0], preset="reinforced", small=False, settings=languages)
    assert [row[1].text for row in table_of(read_runs([tmp_path]), "reinforced-table-1").rows] == [
        "paper",
        "here: reinforced",
    ]


def test_our_rows_stand_below_theirs_in_their_unit(table_1: RunSet) -> None:
    table = table_of(table_1, "reinforced-table-1")
    index = next(i for i, row in enumerate(table.rows) if row[0].text == "gl_to_en")
    ours = table.rows[index + 1]
    # Losses are means of batch means: 0.4 above the validation loss in training, 0.1 below it in validation.
    assert texts(ours)[:4] == ["gl_to_en", "here: baseline, reinforced", "1,000", "100"]
    assert texts(ours)[4:] == ["2", "4.40", "3.90", "20.0", "2", "3.90", "3.40", "20.0"]
    assert table.rows[-1][0].text == "ted_hrlr de-en"


def test_our_rows_say_what_differs(table_1: RunSet) -> None:
    table = table_of(table_1, "reinforced-table-1")
    ours = {row[0].text: said(row[1]) for row in table.rows if row[1].text.startswith("here")}
    assert "Fewer epochs here" in ours["gl_to_en"]
    assert "The model here is causal" in ours["gl_to_en"]
    assert "not the paper's data" not in ours["gl_to_en"]
    assert "Tokens here" not in ours["gl_to_en"]
    assert "Sizes that differ" not in ours["gl_to_en"]
    assert "A corpus that the paper does not have." in ours["ted_hrlr de-en"]


def test_other_data_tokens_and_sizes_are_said(make_run: Any, tmp_path: Path) -> None:
    settings = ["corpus.name=phrasebook", "corpus.src_lang=gl", "tokenizer.vocab_size=4000"]
    make_run("baseline-s0", [5.0], preset="baseline", settings=settings)
    table = table_of(asked(tmp_path, "reinforced/table-1"), "reinforced-table-1")
    (ours,) = [row for row in table.rows if row[1].text.startswith("here")]
    note = said(ours[1])
    assert "but not the paper's data" in note
    assert "Tokens here (bpe, at most 4,000 tokens)" in note
    assert "d_token 16 (128)" in note
    assert texts(ours)[8:] == ["–"] * 4  # no proposed model


def test_a_model_that_looks_ahead_carries_its_warning_here_too(make_run: Any, tmp_path: Path) -> None:
    make_run("reinforced-lookahead-s0", [1.0], preset="reinforced-lookahead", settings=["corpus.src_lang=gl"])
    table = table_of(asked(tmp_path, "reinforced/table-1"), "reinforced-table-1")
    (ours,) = [row for row in table.rows if row[1].text.startswith("here")]
    assert all("measure nothing" in said(cell) for cell in ours[8:])
    assert "causal" not in said(ours[1])


def test_trials_are_means_by_epoch_with_their_number(make_run: Any, tmp_path: Path) -> None:
    for seed, losses in enumerate([[5.0, 4.0, 3.0], [5.2, 4.4]]):
        make_run(f"baseline-s{seed}", losses, seed=seed, preset="baseline", settings=["training.epochs=3"])
    runs = asked(tmp_path, "reinforced/pt_to_en/baseline/train_loss", "reinforced/pt_to_en/baseline/validation_loss")
    table = table_of(runs, "reinforced-curves-train-loss")
    assert [column.name for column in table.columns] == ["epoch", "baseline, paper", "baseline, here"]
    assert texts(table.rows[0]) == ["1", "6.60", "5.50 ± 0.14"]
    assert texts(table.rows[2])[2] == "3.40 (1)"
    assert texts(table.rows[9]) == ["10", "1.84 (4)", "–"]
    assert (table.rows[9][1].n, table.rows[0][2].n) == (4, 2)
    assert table_of(runs, "reinforced-curves-validation-loss").rows[1][2].value == pytest.approx(4.1)


def test_single_numbers_stand_beside_ours(make_run: Any, tmp_path: Path) -> None:
    for seed, seconds in enumerate([[10.0, 20.0, 60.0], [30.0, 30.0, 30.0]]):
        make_run(f"baseline-s{seed}", [3.0, 2.0, 1.0], seed=seed, preset="baseline", seconds=seconds)
    table = table_of(asked(tmp_path, "reinforced/pt_to_en/baseline/seconds_per_epoch"), "reinforced-numbers")
    (row,) = table.rows
    assert texts(row)[2:5] == ["4,297.79 ± 675.79", "baseline", "25.00 ± 7.07"]
    assert "the caption of Figure 3 the variance" in said(row[2])
    assert "Theirs are for pt to en, ours for multi30k de-en. Seconds are from different machines" in table.caption


@pytest.fixture
def enhanced(make_run: Any, tmp_path: Path) -> Path:
    for name, bleu in (("original", 10.0), ("pre-ln", 15.0), ("enhanced", 24.0)):
        for seed in range(2):
            make_run(f"{name}-s{seed}", [2.0], seed=seed, preset=name, bleu=bleu + seed)
    return tmp_path


def test_enhanced_table_1_has_both_kinds_of_bleu_and_their_gains(enhanced: Path) -> None:
    table = table_of(asked(enhanced, "enhanced/table-1"), "enhanced-table-1")
    rows = {row[0].text: texts(row) for row in table.rows}
    # Beam 4 is a point above greedy: 11.5 and 25.5 over two seeds; given the reference a quarter of greedy.
    assert rows["Original"][1:] == ["18.59 ± 5.43e(-2)", "0.00", "2", "11.5 ± 0.7", "0.0", "2.6 ± 0.2", "0.0"]
    assert rows["Enhanced Transformer"][3:6] == ["2", "25.5 ± 0.7", "121.7"]
    assert rows["RealFormer"][3:] == ["–"] * 5
    first = table.rows[0]
    assert "last 100 of 1,000 epochs" in said(first[1])
    assert "d_token 16 (512)" in said(first[3])
    assert "10 updates here; 1,000 epochs in the paper." in said(first[3])


def test_enhanced_table_2_is_by_direction(enhanced: Path, make_run: Any) -> None:
    for name in ("original", "enhanced"):
        make_run(
            f"ja/{name}-s0",
            [2.0],
            preset=name,
            bleu=0.2 if name == "original" else 9.0,
            settings=["corpus.src_lang=ja"],
        )
    table = table_of(asked(enhanced, "enhanced/table-2"), "enhanced-table-2")
    rows = {row[0].text: texts(row) for row in table.rows}
    assert rows["German to English"][4:8] == ["2", "11.5 ± 0.7", "25.5 ± 0.7", "121.7"]
    assert rows["Japanese to English"][4:7] == ["1", "1.2", "10.0"]
    assert rows["Japanese to English"][-1] == "–"  # no gain over a score below 1
    assert rows["Korean to English"][4:] == ["–"] * 7


def test_comparisons_are_of_the_enhanced_transformer(enhanced: Path) -> None:
    table = table_of(asked(enhanced, "enhanced/comparisons"), "enhanced-comparisons")
    assert texts(table.rows[1]) == ["Post layer normalization Transformer", "20.82", "54.5"]  # 25.5 over 16.5


def test_weights_are_systems_that_differ_in_the_weight_alone(make_run: Any, tmp_path: Path) -> None:
    for weight in (4, 1, 2):
        make_run(
            f"w{weight}-s0", [2.0 + weight], preset="original", settings=[f"architecture.residual_weight={weight}"]
        )
    make_run("enhanced-s0", [2.0], preset="enhanced")
    table = table_of(asked(tmp_path, "enhanced/best_residual_weight"), "enhanced-weights")
    assert [texts(row)[:3] for row in table.rows] == [
        ["1", "w1", ""],
        ["2", "w2", ""],
        ["4", "w4", "best of 2, 3, 4, 5"],
    ]


def test_systems_of_one_weight_are_no_comparison_of_weights(make_run: Any, tmp_path: Path) -> None:
    for rate in ("0.001", "0.002"):
        make_run(f"at-{rate}-s0", [2.0], preset="original", settings=[f"training.learning_rate={rate}"])
    tables, _ = published_tables(asked(tmp_path, "enhanced/best_residual_weight"))
    assert tables == ()


def test_what_nothing_here_stands_beside_is_shown_as_printed(enhanced: Path) -> None:
    table = table_of(asked(enhanced, "reinforced/setup"), "reinforced-setup")
    assert texts(table.rows[-1]) == ["parameters", "10,184,162", "2,809,634"]


def test_an_entry_that_does_not_exist_is_a_sentence(enhanced: Path) -> None:
    tables, problems = published_tables(asked(enhanced, "enhanced/table-9"))
    assert tables == ()
    (problem,) = problems
    assert "there is no entry 'enhanced/table-9': did you mean 'enhanced/table-" in problem


def test_unasked_only_what_fits_is_shown(enhanced: Path, make_run: Any, tmp_path: Path) -> None:
    found, _ = published_tables(asked(enhanced))
    assert [table.id for table in found] == ["enhanced-table-1"]
    other = make_run("elsewhere/plain-s0", [2.0])
    assert published_tables(read_runs([other])) == ((), ())
    make_run("ted/reinforced-s0", [2.0], preset="reinforced", settings=["corpus.src_lang=gl"])
    table = table_of(read_runs([tmp_path / "ted"]), "reinforced-table-1")
    assert [row[0].text for row in table.rows] == ["gl_to_en", "gl_to_en"]  # theirs and ours, no other row
