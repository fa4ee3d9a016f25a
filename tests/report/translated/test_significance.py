"""Who is tested against whom, and what the tables of the tests say."""

import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repose.evaluation.ratio import RatioStatistics, write_ratio
from repose.evaluation.sentence_statistics import SentenceStatistics
from repose.evaluation.significance import (
    SeedInterval,
    approximate_randomization,
    compare,
    holm,
    resample,
    resample_ratio,
    welch,
)
from repose.report import significance
from repose.report.collect import read_runs
from repose.report.content import Table
from repose.report.naming import _digest
from repose.report.pairs import OfSeeds, agree_cell
from repose.report.run_set import ReportRun
from repose.report.significance import significance_tables
from repose.report.translations import statistics_of, write_statistics
from repose.system.errors import ConfigError


@pytest.fixture(autouse=True)
def _few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of 20,000 resamples, and 10,000 trials of the approximate randomization, which take seconds."""
    monkeypatch.setattr(significance.testing, "NUM_RESAMPLES", 1000)
    monkeypatch.setattr(
        significance.testing, "approximate_randomization", partial(approximate_randomization, num_trials=100)
    )


def tables(made: Any, baseline: str | None = None) -> dict[str, Table]:
    return {table.id: table for table in significance_tables(made.runs(baseline))}


def names(table: Table) -> list[tuple[str, str]]:
    place = [column.name for column in table.columns].index("system")
    return [(row[place].text, row[place + 1].text) for row in table.rows]


def column(table: Table, name: str) -> list[Any]:
    place = [column.name for column in table.columns].index(name)
    return [row[place].value for row in table.rows]


def test_figures_are_those_of_the_tests(made: Any) -> None:
    for seed in range(3):
        made.add("base", wrong=0.3, seed=seed)
        made.add("good", wrong=0.2, seed=seed)
    made.add("same", wrong=0.3)
    found, runs = tables(made, "base"), made.runs()
    assert list(found) == ["significance", "seeds", "significance-chrf", "seeds-chrf", "significance-greedy"]
    assert found["significance"].title == "Differences in BLEU, over test sentences"
    assert found["significance-greedy"].title == "Differences in BLEU of greedy translations, over test sentences"
    assert column(found["significance-greedy"], "difference") == [0.0, 0.0, 0.0]  # of these, all are the references
    counts = {group: [statistics_of(run) for run in runs.done(group, "tales")] for group in runs.groups}
    pairs = [("good", "base"), ("same", "base"), ("same", "good")]
    for name, metric in (("significance", "bleu"), ("significance-chrf", "chrf")):
        table = found[name]
        assert names(table) == pairs
        sampled = {group: resample(of, metric, num_resamples=1000) for group, of in counts.items()}  # type: ignore[arg-type]
        expected = [compare(sampled[a], sampled[b]) for a, b in pairs]
        assert column(table, "difference") == [one.value for one in expected]
        assert column(table, "95 % from") == [one.low for one in expected]
        assert column(table, "to") == [one.high for one in expected]
        assert column(table, "p") == [one.p for one in expected]
        assert column(table, "p (Holm)") == holm([one.p for one in expected])
        assert column(table, "seeds") == [3, 1, 1]
        assert column(table, "seeds (against)") == [3, 3, 3]
        assert "1,000 resamples" in table.caption
        assert "3 comparisons" in table.caption
    scores = {group: [one.score() for one in of] for group, of in counts.items()}
    interval = welch(scores["good"], scores["base"])
    assert interval is not None
    seeds = found["seeds"]
    assert column(seeds, "95 % from") == [interval.low, None, None]
    assert column(seeds, "to") == [interval.high, None, None]
    assert column(seeds, "p") == column(seeds, "p (Holm)") == [interval.p, None, None]  # one comparison has two seeds
    assert "One comparison: nothing to correct for." in seeds.caption
    first = seeds.rows[0]
    assert (first[2].n, first[3].n) == (3, 3)
    assert first[2].deviation is not None
    assert seeds.rows[1][2].deviation is None
    assert "One seed on a side" in seeds.rows[1][-1].notes[0]


def test_a_small_p_is_noted_and_a_minus_is_one(made: Any) -> None:
    for system, wrong in (("base", 0.1), ("bad", 0.6), ("like", 0.1)):
        for seed in (0, 1):
            made.add(system, wrong=wrong, seed=seed)
    found = tables(made, "base")["significance"]
    bad, like, _ = found.rows
    assert bad[4].text.startswith("−")
    assert bad[-2].notes[0] == "At or below 0.05 after the correction."
    assert like[-2].value > 0.05  # type: ignore[operator]
    assert not like[-2].notes


def test_rows_say_whether_other_seeds_agree(made: Any) -> None:
    for system, wrong in (("base", 0.1), ("bad", 0.6), ("like", 0.1)):
        for seed in (0, 1, 2):
            made.add(system, wrong=wrong, seed=seed)
    made.add("once")
    found = tables(made, "base")
    for name in ("significance", "significance-chrf"):
        assert [row[-1].text for row in found[name].rows] == ["yes", "no", "–"]
    for row, agrees in zip(found["seeds"].rows[:2], (True, False), strict=True):
        low, high, p, corrected = (cell.value for cell in row[-4:])
        assert low is not None
        assert high is not None
        assert p is not None
        assert corrected is not None
        assert (low > 0 or high < 0) == (p < 0.05) == (corrected < 0.05) == agrees


@pytest.mark.parametrize(("p", "value", "wanted"), [(0.01, 0.5, "yes"), (0.06, 0.5, "no"), (0.01, -0.5, "no")])
def test_seeds_agree_where_they_differ_in_the_same_direction(p: float, value: float, wanted: str) -> None:
    found = OfSeeds(SeedInterval(1.0, 0.5, 1.5, 4.0, p), p)
    assert agree_cell(found, value).text == wanted
    corrected = OfSeeds(SeedInterval(1.0, 0.5, 1.5, 4.0, 0.01), 0.06)
    assert agree_cell(corrected, value).text == "no"


def test_what_seeds_say_is_corrected_for_the_number_of_rows(made: Any) -> None:
    """Of several systems that differ by chance alone, one whose own p is small does not agree any more."""
    for system in ("base", "a", "b", "c", "d"):
        for seed in (0, 1, 2):
            made.add(system, wrong=0.3, seed=seed)
    seeds = tables(made, "base")["seeds"]
    ps = column(seeds, "p")
    assert column(seeds, "p (Holm)") == holm(ps)
    assert holm(ps) != ps


def test_two_systems_that_do_not_translate_are_noted(made: Any) -> None:
    for seed in (0, 1):
        made.add("base", seed=seed)
        for system, word in (("dead", "tree"), ("mute", "on")):
            made.add(system, seed=seed, hypotheses=[word] * 81)
    for name in ("significance", "seeds"):
        table = tables(made, "base")[name]
        noted = {
            (row[0].text, row[1].text)
            for row in table.rows
            for cell in row
            if any("neither translates" in note for note in cell.notes)
        }
        assert noted == {("mute", "dead")}


def test_a_difference_of_systems_that_do_not_translate_is_not_marked(made: Any) -> None:
    """However sure it is: of two that repeat one word, one has the longer word."""
    _, references = made.data().text("test")
    for system, lines in (("base", references), ("dead", ["tree"] * 81), ("mute", ["on"] * 81)):
        for seed in (0, 1):
            made.add(system, seed=seed, hypotheses=[*lines[: 80 - seed], *["a"] * (1 + seed)])
    found = tables(made, "base")
    for name in ("significance-chrf", "seeds-chrf"):
        rows = {(row[0].text, row[1].text): row for row in found[name].rows}
        p = [one.name for one in found[name].columns].index("p (Holm)")
        assert all(row[p].value <= 0.05 for row in rows.values())
        assert {pair: row[p].notes != [] for pair, row in rows.items()} == {
            ("dead", "base"): True,
            ("mute", "base"): True,
            ("mute", "dead"): False,
        }
    *translating, neither = found["significance-chrf"].rows
    assert [row[-1].text for row in translating] == ["yes", "yes"]
    assert neither[-1].text == "–"
    assert neither[-1].notes == neither[4].notes, "which say why"


def test_systems_that_were_trained_otherwise_are_noted(made: Any) -> None:
    made.add("base")
    made.add("slow", overrides=["training.learning_rate=0.5"])
    made.add("wide", overrides=["architecture.d_ff=48", "training.save_every_minutes=3"])
    for table in tables(made, "base").values():
        rows = {(row[0].text, row[1].text): row[0].notes for row in table.rows}
        assert "learning_rate 0.5 against" in rows["slow", "base"][0]
        assert rows["wide", "base"] == []


def test_four_systems_are_tested_against_the_baseline(made: Any) -> None:
    for system in ("one", "two", "three", "four"):
        made.add(system)
        made.add(system, seed=1)
    assert names(tables(made, "two")["significance"]) == [("one", "two"), ("three", "two"), ("four", "two")]
    unnamed = tables(made)["significance"]
    assert names(unnamed) == [("two", "one"), ("three", "one"), ("four", "one")]
    assert "no baseline is named: systems are tested against the first, one." in " ".join(unnamed.keys)


def test_baselines_of_one_name_in_two_grids_are_no_twins(make_run: Any, make_grid: Any) -> None:
    grids = []
    for place, others, dropout in (("one", ("new", "other"), "0.1"), ("two", ("x", "y"), "0.2")):
        cells = []
        for width, system in enumerate(("plain", *others), start=16):
            settings = [f"architecture.dropout={dropout}", f"architecture.d_ff={width}"]
            make_run(f"{place}/{system}-s0", [2.0], settings=settings)
            cells.append((f"{system}-s0", {"system": system}, None, "done", ""))
        grids.append(make_grid(place, cells, report={"baseline": "plain"}))
    runs = read_runs(grids)
    assert (runs.baseline, runs.twins) == ("one/plain", {})
    with pytest.raises(ConfigError, match="may be one/plain or two/plain"):
        read_runs(grids, baseline="plain")


@pytest.mark.parametrize("asked", [False, True])
def test_each_group_is_tested_against_its_twin(made: Any, asked: bool) -> None:
    """Where the baseline is a system that the grid has at several widths; one without a twin against the first."""
    for width in ("16", "32"):
        for system in ("plain", "new"):
            made.add(system, width=width)
    made.add("new", width="64")
    runs = read_runs([made.runs("plain").runs[0].folder.parent], baseline="plain") if asked else made.runs("plain")
    found = {table.id: table for table in significance_tables(runs)}
    twins = [("new-16", "plain-16"), ("new-32", "plain-32"), ("new-64", "plain-16")]
    assert sorted(names(found["significance"])) == twins
    assert sorted(names(found["seeds"])) == twins
    against_one = read_runs([runs.runs[0].folder.parent], baseline="plain-32")
    assert {other for _, other in names(significance_tables(against_one)[0])} == {"plain-32"}


def test_single_runs_are_also_tested_by_randomization(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(significance.testing, "approximate_randomization", approximate_randomization)
    made.add("one", wrong=0.3)
    made.add("two", wrong=0.2)
    found, runs = tables(made, "one"), made.runs()
    table = found["approximate-randomization"]
    one, two = (statistics_of(run) for run in runs.runs)
    expected = approximate_randomization(two, one)
    assert names(table) == [("two", "one")]
    assert column(table, "p") == column(table, "p (Holm)") == [expected.p]
    assert "10,000 trials" in table.caption
    assert "nothing to correct" in table.caption
    made.add("two", wrong=0.2, seed=1)
    found = tables(made, "two")
    assert "approximate-randomization" not in found
    assert names(found["significance"]) == [("one", "two")], "the baseline is what others are held against"


def test_the_randomization_is_corrected_for_the_number_of_rows(made: Any) -> None:
    for system, wrong in (("one", 0.3), ("two", 0.2), ("three", 0.5)):
        made.add(system, wrong=wrong)
    table = tables(made)["approximate-randomization"]
    ps = column(table, "p")
    assert column(table, "p (Holm)") == holm(ps) != ps


def test_corpora_are_one_family_with_as_many_resamples_as_it_needs(made: Any) -> None:
    for corpus in ("tales", "songs"):
        for system in ("base", "a", "b", "c"):
            made.add(system, corpus=corpus)
        made.add("base", corpus=corpus, seed=1)
    found = tables(made, "base")["significance"]
    assert [row[0].text for row in found.rows] == ["tales"] * 3 + ["songs"] * 3
    assert "6 comparisons" in found.caption
    assert "1,200 resamples" in found.caption
    assert "No comparison has an interval" in tables(made, "base")["seeds"].caption
    assert column(found, "p (Holm)") == holm(column(found, "p"))


def test_what_looks_ahead_is_left_out(made: Any) -> None:
    made.add("base")
    made.add("good")
    made.add("cheat", wrong=0.0, overrides=["architecture.decoder_token_norm=sentence"])
    found = tables(made, "base")
    assert names(found["significance"]) == [("good", "base")]
    assert "tales-cheat-s0; its decoder looks ahead" in " ".join(found["significance"].keys)


def test_missing_translations_are_a_note(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for system in ("base", "one", "two"):
        folder = made.add(system)
    shutil.rmtree(folder / "hypotheses")
    found = tables(made, "base")["significance"]
    assert names(found) == [("one", "base")]
    assert "tales-two-s0; the translations (hypotheses/test.beam4.txt)" in " ".join(found.keys)
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "elsewhere"))
    only, seeds = significance_tables(made.runs("base"))
    assert only.rows == []
    assert seeds.id == "seeds"
    assert names(seeds) == [("one", "base"), ("two", "base"), ("two", "one")], "scores are enough"
    assert "No two systems" in only.caption
    assert "3 more" not in " ".join(only.keys)
    assert "not in the cache" in " ".join(only.keys)


def test_other_test_sets_and_other_ways_of_scoring_are_not_compared(made: Any) -> None:
    base = made.add("base")
    made.add("lower", lowercase=True)
    made.corpus("songs")
    folder = made.add("other", corpus="songs")
    made.cells[-1] |= {"group": "tales-other", "labels": {"system": "other", "corpus": "tales"}}
    made.add("good")
    found = tables(made, "base")["significance"]
    assert names(found) == [("good", "base")]
    assert len(made.runs().corpora) == 2
    write_statistics(folder)  # files that were written over, and are in the cache no longer
    config = json.loads((folder / "config.json").read_text())
    shutil.rmtree(made.prepared["songs",].folder)
    config["experiment"]["corpus"] = json.loads((base / "config.json").read_text())["experiment"]["corpus"]
    (folder / "config.json").write_text(json.dumps(config))
    _digest.cache_clear()
    found = tables(made, "base")["significance"]
    assert names(found) == [("good", "base")]
    said = " ".join(found.keys)
    assert "tales-lower-s0; it was scored with case:lc, tales-base-s0 with case:mixed" in said
    assert "songs-other-s0; its references are not those of tales-base-s0" in said


def test_beams_of_other_widths_are_not_compared(made: Any) -> None:
    folders = {name: made.add(name) for name in ("base", "good", "wide")}
    for path in (folders["wide"] / "scores.test.json", folders["wide"] / "hypotheses" / "test.beam4.txt"):
        path.with_name(path.name.replace("beam4", "beam12")).write_text(path.read_text().replace("beam4", "beam12"))
    found = tables(made)["significance"]
    assert names(found) == [("good", "base")]
    assert "tales-wide-s0; it was decoded with beam 12, tales-base-s0 with beam 4" in " ".join(found.keys)


def test_one_odd_run_leaves_out_itself(made: Any) -> None:
    """Not all others, though it is the first; and the baseline's way of scoring is what the others' has to be."""
    made.add("odd", lowercase=True)
    for system in ("base", "good"):
        made.add(system)
    for baseline in (None, "base"):
        found = tables(made, baseline)["significance"]
        assert names(found) == [("good", "base")]
        said = [key for key in found.keys if "case:lc" in key]
        assert len(said) == 1
        assert "tales-odd-s0; it was scored with case:lc, tales-base-s0 with case:mixed" in said[0]
    made.add("even", lowercase=True)
    assert names(tables(made, "odd")["significance"]) == [("even", "odd")]


def test_a_run_with_other_references_leaves_out_itself(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is the first of the baseline's."""
    for seed in range(3):
        made.add("base", seed=seed)
        made.add("good", seed=seed)

    def swapped(run: ReportRun, decoding: str | None = None) -> SentenceStatistics:
        found = statistics_of(run, decoding)
        return replace(found, bleu=found.bleu[::-1]) if run.name == "tales-base-s0" else found

    monkeypatch.setattr(significance, "statistics_of", swapped)
    found = tables(made, "base")["significance"]
    assert [row[place].text for row in found.rows for place in (2, 3)] == ["3", "2"], "seeds"
    assert found.remarks == ["Left out of the tests: tales-base-s0; its references are not those of tales-base-s1."]


def test_scores_without_chrf_are_tested_by_bleu_alone(made: Any) -> None:
    for system in ("base", "good"):
        folder = made.add(system)
    scores = json.loads((folder / "scores.test.json").read_text())
    for decoding in scores["decoded"].values():
        del decoding["chrf"]
    (folder / "scores.test.json").write_text(json.dumps(scores))
    assert list(tables(made, "base")) == ["significance", "seeds", "significance-greedy", "approximate-randomization"]


def test_a_remark_stands_once(made: Any) -> None:
    for system in ("a", "b", "c", "d"):
        made.add(system)
    keys = tables(made)["significance"].remarks
    assert sum("no baseline is named" in key for key in keys) == 1


def test_a_run_without_greedy_translations_is_left_out_alone(made: Any) -> None:
    folders = [made.add(system, seed=seed) for system in ("base", "good") for seed in (0, 1)]
    (folders[0] / "hypotheses" / "test.greedy.txt").unlink()
    found = tables(made, "base")
    greedy = found["significance-greedy"]
    assert names(greedy) == names(found["significance"]) == [("good", "base")]
    assert (column(greedy, "seeds"), column(greedy, "seeds (against)")) == ([2], [1])
    (said,) = greedy.remarks
    assert said.startswith(f"Left out of the tests of greedy translations: {folders[0].name}; ")
    assert column(found["significance"], "seeds (against)") == [2]
    scores = json.loads((folders[1] / "scores.test.json").read_text())
    del scores["decoded"]["greedy"]
    (folders[1] / "scores.test.json").write_text(json.dumps(scores))
    found = tables(made, "base")
    assert "significance-greedy" not in found, "nothing of base is left to resample"
    assert "seeds-greedy" not in found
    said = " ".join(found["significance"].remarks)
    assert (
        f"Left out of the tests of greedy translations: {folders[1].name}; it has no scores of greedy translations."
        in said
    )


def test_greedy_scores_are_tested_over_seeds() -> None:
    """The intervals and p of docs/findings-details.md, 3.1."""
    results = Path(__file__).parents[3] / "results" / "reinforced-multi30k"
    found = {table.id: table for table in significance_tables(read_runs([results]))}
    greedy = found["seeds-greedy"]
    assert names(greedy) == names(found["seeds"])
    assert greedy.title == "Differences in BLEU of greedy translations, over seeds"
    shown = {
        (row[0].text, row[1].text): [row[4].text, *(f"{cell.value:+.2f}" for cell in row[5:7]), f"{row[8].value:.3f}"]
        for row in greedy.rows
    }
    assert shown["reinforced", "baseline"] == ["+1.08", "+0.52", "+1.65", "0.010"]
    assert shown["ablation-none", "baseline"] == ["+0.09", "-0.38", "+0.57", "0.648"]
    assert shown["reinforced", "ablation-none"] == ["+0.99", "+0.40", "+1.58", "0.010"]


def test_chrf_is_tested_over_seeds() -> None:
    results = Path(__file__).parents[3] / "results" / "reinforced-multi30k"
    found = {table.id: table for table in significance_tables(read_runs([results]))}
    chrf = found["seeds-chrf"]
    assert names(chrf) == names(found["significance-chrf"])
    assert chrf.title == "Differences in chrF, over seeds"
    assert {column.unit for column in chrf.columns} >= {"chrF"}
    for row, by_sentences in zip(chrf.rows, found["significance-chrf"].rows, strict=True):
        assert row[5].value < row[4].value < row[6].value
        assert by_sentences[4].value == pytest.approx(row[4].value, abs=0.01)


def test_one_system_has_no_tests(made: Any) -> None:
    made.add("base")
    made.add("base", seed=1)
    assert significance_tables(made.runs()) == ()


def test_other_tasks_are_tested_over_seeds() -> None:
    """By the strictest figure in percent; what looks ahead is not tested where tokens are predicted."""
    results = Path(__file__).parents[3] / "results"
    (parsing,) = significance_tables(read_runs([results / "parsing-small"]))
    assert (parsing.id, parsing.title) == ("seeds-parsing", "Differences in LAS, parsing, over seeds")
    assert {against for _, against in names(parsing)} == {"ablation-none"}
    values = {
        system: [
            json.loads((results / f"parsing-small/{system}-s{seed}/scores.test.json").read_text())["figures"]["las"]
            for seed in range(3)
        ]
        for system in ("reinforced", "ablation-none")
    }
    wanted = welch(*([figure["value"] for figure in values[system]] for system in ("reinforced", "ablation-none")))
    assert wanted is not None
    row = [system for system, _ in names(parsing)].index("reinforced")
    assert column(parsing, "p")[row] == wanted.p
    assert column(parsing, "p (Holm)") == holm(column(parsing, "p"))
    (modelling,) = significance_tables(read_runs([results / "language-modelling-small"]))
    assert "reinforced-lookahead" not in {system for system, _ in names(modelling)}
    assert "reinforced" in {system for system, _ in names(modelling)}
    assert "its decoder looks ahead" in " ".join(modelling.keys)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Language models of two systems, two seeds each."""
    results = Path(__file__).parents[3] / "results/language-modelling-small"
    for system in ("ablation-none", "reinforced"):
        for seed in range(2):
            shutil.copytree(results / f"{system}-s{seed}", tmp_path / f"runs/{system}-s{seed}")
    grid = json.loads((results / "grid.json").read_text())
    grid["cells"] = [cell for cell in grid["cells"] if (tmp_path / "runs" / cell["name"]).exists()]
    grid["report"]["baseline"] = "ablation-none"
    (tmp_path / "runs/grid.json").write_text(json.dumps(grid))
    return tmp_path / "runs"


def rewrite(path: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def add_statistics(models: Path, system: str, seed: int, documents: int = 60) -> RatioStatistics:
    """Sums over documents that give the score of that run."""
    folder, rng = models / f"{system}-s{seed}", np.random.default_rng([len(system), seed])
    bits = json.loads((folder / "scores.test.json").read_text())["figures"]["bits_per_token"]["value"]
    sizes = np.arange(1.0, documents + 1)
    amounts = sizes * rng.uniform(0.9, 1.1, documents)
    found = RatioStatistics("bits_per_token", "documents", amounts * bits * sizes.sum() / amounts.sum(), sizes)
    write_ratio(folder / "statistics.test.npz", found)
    return found


def test_other_tasks_are_tested_over_documents(models: Path) -> None:
    sums = {
        system: [add_statistics(models, system, seed) for seed in range(2)]
        for system in ("ablation-none", "reinforced")
    }
    over_documents, over_seeds = significance_tables(read_runs([models]))
    assert (over_documents.id, over_seeds.id) == ("significance-language_modelling", "seeds-language_modelling")
    assert over_documents.title == "Differences in bits per token, language modelling, over documents"
    wanted = compare(*(resample_ratio(sums[system], num_resamples=1000) for system in ("reinforced", "ablation-none")))
    assert names(over_documents) == [("reinforced", "ablation-none")]
    shown = [column(over_documents, name) for name in ("difference", "95 % from", "to", "p", "p (Holm)")]
    assert [values[0] for values in shown] == [wanted.value, wanted.low, wanted.high, wanted.p, wanted.p]
    assert not over_documents.remarks
    damage = {
        "there is no statistics.test.npz": lambda path: path.unlink(),
        "statistics.test.npz is damaged": lambda path: path.write_bytes(b"x"),
        "does not give its bits per token": lambda path: write_ratio(path, replace(sums["reinforced"][0], scale=2.0)),
        "its documents are not those of ablation-none-s0": lambda _: add_statistics(models, "reinforced", 0, 61),
    }
    for reason, do in damage.items():
        add_statistics(models, "reinforced", 0)
        do(models / "reinforced-s0" / "statistics.test.npz")
        over_documents, over_seeds = significance_tables(read_runs([models]))
        (row,) = over_documents.rows
        assert [cell.text for cell in row[2:4]] == ["1", "2"], "seeds"
        (remark,) = over_documents.remarks
        assert remark.startswith("Left out of the tests: reinforced-s0; ")
        assert reason in remark
        assert not over_seeds.remarks
        assert [cell.text for cell in over_seeds.rows[0]][:2] == ["reinforced", "ablation-none"]


def test_a_baseline_without_sums_is_said(models: Path) -> None:
    for seed in range(2):
        add_statistics(models, "reinforced", seed)
    (over_seeds,) = significance_tables(read_runs([models]))
    assert over_seeds.id == "seeds-language_modelling"
    (remark,) = over_seeds.remarks
    assert "ablation-none-s0, ablation-none-s1; there is no statistics.test.npz" in remark


def test_a_system_without_sums_is_left_out_of_the_test_over_documents(models: Path) -> None:
    path = Path(__file__).parents[3] / "results/language-modelling-small/ablation-norm-s0"
    for system in ("ablation-none", "reinforced"):
        for seed in range(2):
            add_statistics(models, system, seed)
    over_documents, over_seeds = significance_tables(read_runs([models, path], baseline="ablation-none"))
    assert (len(over_documents.rows), len(over_seeds.rows)) == (1, 3)
    (remark,) = over_documents.remarks
    assert remark.startswith("Left out of the tests: ")
    assert remark.endswith("there is no statistics.test.npz: evaluate the run again.")


def test_what_is_said_of_few_documents(models: Path) -> None:
    for documents, tables in ((49, 2), (10, 2), (9, 1)):
        for system, seed in itertools.product(("ablation-none", "reinforced"), range(2)):
            add_statistics(models, system, seed, documents)
        found = significance_tables(read_runs([models]))
        assert len(found) == tables
        if tables == 2:
            (remark,) = found[0].remarks
            assert remark.endswith(
                f"has {documents} documents: with fewer than 50, the bootstrap calls too many differences significant."
            )


def test_few_sentences_are_said_and_fewer_are_not_tested(made: Any) -> None:
    for corpus, number in (("tales", 48), ("songs", 8)):  # and a line of each length
        made.corpus(corpus, num_test=number)
        for system in ("base", "good"):
            made.add(system, corpus=corpus)
    every = tables(made, "base")
    few = "with fewer than 50, the bootstrap"
    assert [name for name, one in every.items() if few in " ".join(one.keys)] == [
        "significance",
        "significance-chrf",
        "significance-greedy",
    ]
    found = every["significance"]
    assert names(found) == [("good", "base")]
    assert found.small_sets == {"tales"}
    assert names(every["significance-greedy"]) == [("good", "base")], "nor by greedy translations"
    said = " ".join(found.keys)
    assert "The test set of tales has 49 sentences: with fewer than 50, the bootstrap" in said
    assert "songs-base-s0, songs-good-s0; its test set of 9 sentences is too small to be resampled." in said
    assert "The test set of songs" not in said


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "30.1"])
def test_what_is_no_score_is_not_tested(made: Any, value: object) -> None:
    folders = {name: made.add(name) for name in ("base", "good", "broken")}
    rewrite(
        folders["broken"] / "scores.test.json", lambda s: [d["bleu"].update(value=value) for d in s["decoded"].values()]
    )
    found = tables(made, "base")
    assert names(found["significance"]) == names(found["seeds"]) == [("good", "base")]
    assert "tales-broken-s0; scores.test.json has no BLEU with its signature" in " ".join(found["significance"].keys)


def test_other_smoothing_is_another_way_of_scoring(made: Any) -> None:
    folders = {name: made.add(name) for name in ("base", "good", "smooth")}
    for path, old in (
        (folders["smooth"] / "scores.test.json", "smooth:exp"),
        (folders["good"] / "scores.test.json", "version:"),
    ):
        path.write_text(
            path.read_text().replace(old, {"smooth:exp": "smooth:floor[0.1]", "version:": "version:1."}[old])
        )
    found = tables(made, "base")["significance"]
    assert names(found) == [("good", "base")]
    assert "tales-smooth-s0; it was scored with smooth:floor[0.1], tales-base-s0 with smooth:exp" in " ".join(
        found.keys
    )


def test_parsers_of_other_test_sets_are_not_compared(tmp_path: Path) -> None:
    results = Path(__file__).parents[3] / "results/parsing-small"
    shutil.copytree(results, tmp_path / "runs")
    for path in (tmp_path / "runs").glob("reinforced-s*/scores.test.json"):
        rewrite(path, lambda scores: scores.update(num_words=1200, num_sentences=60))
    (found,) = significance_tables(read_runs([tmp_path / "runs"]))
    assert "reinforced" not in {system for system, _ in names(found)}
    assert "its test set is not that of" in " ".join(found.keys)


def test_a_figure_that_is_no_number_is_not_tested(models: Path) -> None:
    figures = models / "reinforced-s1/scores.test.json"
    rewrite(figures, lambda scores: scores["figures"]["bits_per_token"].update(value=float("inf")))
    (found,) = significance_tables(read_runs([models]))
    assert "reinforced-s1; its bits per token is inf" in " ".join(found.keys)


def test_losses_of_other_tokens_are_not_tested(models: Path) -> None:
    (found,) = significance_tables(read_runs([models]))
    assert (names(found), not found.remarks) == ([("reinforced", "ablation-none")], True)
    rewrite(models / "reinforced-s1/config.json", lambda config: config["digests"].update(tgt="other"))
    (found,) = significance_tables(read_runs([models]))
    assert "reinforced-s1; its tokens are not those of ablation-none-s0" in " ".join(found.keys)
    assert column(found, "p") == [None], "one seed is left"
    rewrite(models / "reinforced-s0/config.json", lambda config: config["digests"].update(tgt="other"))
    assert significance_tables(read_runs([models])) == ()


def test_validation_and_test_scores_are_not_tested(models: Path) -> None:
    (models / "reinforced-s1/scores.test.json").rename(models / "reinforced-s1/scores.valid.json")
    (found,) = significance_tables(read_runs([models]))
    assert "it was measured on the valid set, ablation-none-s0 on the test set" in " ".join(found.keys)
    assert column(found, "p") == [None]


def test_other_tasks_have_a_table_of_several_corpora(models: Path) -> None:
    shutil.copytree(models, models.with_name("others"))
    for path in models.with_name("others").rglob("grid.json"):
        rewrite(path, lambda grid: [cell["labels"].update(corpus="songs") for cell in grid["cells"]])
    for path in models.with_name("others").rglob("scores.test.json"):
        rewrite(path, lambda scores: scores.update(run_id=scores["run_id"] + " songs"))
    (found,) = significance_tables(read_runs([models.parent], baseline="ablation-none"))
    assert [column_.name for column_ in found.columns][:3] == ["corpus", "system", "against"]
    assert len(found.rows) == 2
    assert "2 comparisons" in found.caption
