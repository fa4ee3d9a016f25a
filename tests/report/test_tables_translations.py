"""What a report says besides the scores: how translations end, and that references are not written by people."""

import json
from pathlib import Path
from typing import Any

import pytest

from repose.report.build import build
from repose.report.collect import read_runs
from repose.report.run_set import RunSet
from repose.report.tables_scores import task_tables
from repose.report.tables_translations import endings_table, inflated_scores


def counted(folder: Path, looping: int, penalty: float) -> None:
    """Put into a run's scores what this version counts."""
    path = folder / "scores.test.json"
    scores = json.loads(path.read_text())
    for found in scores["decoded"].values():
        found["looping"] = looping
        found["bleu"]["brevity_penalty"] = penalty
    path.write_text(json.dumps(scores))


@pytest.fixture
def runs(make_run: Any, tmp_path: Path) -> RunSet:
    for seed, (looping, penalty) in enumerate([(3, 0.8), (5, 0.9)]):
        counted(make_run(f"a-s{seed}", [2.0], seed=seed), looping, penalty)
    return read_runs([tmp_path])


def test_endings_are_means_over_seeds(runs: RunSet) -> None:
    table = endings_table(runs)
    assert table is not None
    (row,) = table.rows
    shown = {column.name: cell.text for column, cell in zip(table.columns, row, strict=True)}
    assert shown["brevity penalty, beam 4"] == "0.850 ± 0.071"
    assert shown["loop, greedy"] == "4.0 ± 1.4"  # of 100 sentences
    assert shown["did not end, beam 4"] == "0.0 ± 0.0"


def test_the_longest_translations_are_not_the_best(make_run: Any, tmp_path: Path) -> None:
    for name, looping, penalty, preset in (
        ("a", 3, 0.8, "ablation-none"),
        ("b", 5, 0.9, "reinforced"),
        ("c", 3, 1, "reinforced-lookahead"),
    ):
        counted(make_run(f"{name}-s0", [2.0], preset=preset), looping, penalty)
    table = endings_table(read_runs([tmp_path]))
    assert table is not None
    names = [column.name for column in table.columns]
    place = names.index("brevity penalty, beam 4")
    assert not any(row[place].best for row in table.rows)
    best = [name for name, cell in zip(names, table.rows[0], strict=True) if cell.best]
    assert best == ["loop, greedy", "loop, beam 4"], "of shares the least is, where they differ: all ended"
    said = "This model looks ahead in training; it is never marked as the best."
    assert table.rows[2][place].notes == [said], "it translates without seeing anything"


def test_runs_of_earlier_versions_have_no_such_table(make_run: Any, tmp_path: Path) -> None:
    make_run("a-s0", [2.0])
    old = read_runs([tmp_path])
    assert endings_table(old) is None
    assert inflated_scores(old) == ()


def test_inflated_scores_are_a_warning(make_run: Any, tmp_path: Path) -> None:
    folder = make_run("a-s0", [2.0])
    scores = json.loads((folder / "scores.test.json").read_text())
    scores["decoded"]["greedy"]["bleu_detokenised"] = {"value": 2.9, "signature": "text:detokenised"}
    scores["references"] = {"tokenised": 90, "entities": 20}
    (folder / "scores.test.json").write_text(json.dumps(scores))
    (warning,) = [text for text in build(read_runs([tmp_path])).warnings if "tokenised" in text]
    assert warning.startswith("multi30k de-en: 90 of the 100 references look tokenised and 20 contain HTML entities")


def test_figures_of_another_task_are_explained_and_shares_are_in_percent() -> None:
    results = Path(__file__).parents[2] / "results" / "language-modelling-converged"
    (table,) = task_tables(read_runs([results]))
    names = [column.name for column in table.columns]
    (ahead,) = [row for row in table.rows if row[names.index("bits per token")].notes]
    stepwise, one_pass = (ahead[names.index(f"{way}bits per token")].notes for way in ("stepwise ", ""))
    assert stepwise == ["This model looks ahead in training; it is never marked as the best."]
    assert "measure nothing" in one_pass[0]
    assert "Stepwise: a sample, each token predicted by a pass that sees no later one" in table.caption
    place = [column.name for column in table.columns].index("tf accuracy")
    assert table.columns[place].unit == "%"
    assert all(1 < value < 100 for row in table.rows if (value := row[place].value) is not None)
