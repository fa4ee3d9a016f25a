"""The first sentences of a report."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from repose.report.build import build
from repose.report.collect import read_runs
from repose.report.content import Column, Picture, Shows, Table
from repose.report.markdown import write_markdown
from repose.report.page import write_page
from repose.report.run_set import RunSet
from repose.report.significance import significance_tables
from repose.report.tables_scores import scores_table
from repose.report.verdict import main_picture, verdict
from repose.report.write import write


def picture(name: str, shows: Shows) -> Picture:
    numbers = Table(id=name, title=name, columns=[Column("x")], rows=[])
    svg = '<svg viewBox="0 0 1 1" style="">'
    return Picture(id=name, title=name, shows=shows, svg=svg, description=name, numbers=numbers)


def test_the_best_is_named_with_what_is_next_and_what_looks_ahead_is_not(make_run: Any, tmp_path: Path) -> None:
    for seed, bleu in enumerate((20.0, 22.0)):
        make_run(f"causal-s{seed}", [2.0], seed=seed, preset="reinforced", bleu=bleu)
    make_run("plain-s0", [2.5], bleu=24.0)
    make_run("ahead-s0", [0.1], preset="reinforced-lookahead", bleu=60.0)
    said = verdict(read_runs([tmp_path]))
    assert "plain has the best BLEU (beam 4) of 2 systems, 25.0 (one seed), 3.0 above causal" in said
    assert "ahead" not in said


def test_a_system_that_hardly_reads_its_source_is_no_base(make_run: Any, tmp_path: Path) -> None:
    """Also where the last validation of a system that reads it, whose weights are an earlier one's, is a poor one."""
    runs = [make_run("good-s0", [2.0, 3.0], bleu=20.0), make_run("deaf-s0", [4.0, 4.0], bleu=2.0, preset="reinforced")]
    for folder, first, last in zip(runs, (1.5, 0.05), (0.1, 0.15), strict=True):
        metrics = folder / "metrics.jsonl"
        records = [json.loads(line) for line in metrics.read_text().splitlines()]
        valid = [record for record in records if record["kind"] == "valid"]
        valid[0]["source_gain"], valid[1]["source_gain"] = first, last
        metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    said = verdict(read_runs([tmp_path]))
    assert "18.0 above deaf" in said
    told = "deaf hardly used its source (`source_gain`), so differences from it are no effect sizes."
    assert said.endswith(f". {told}")
    assert [row[0].notes for row in scores_table(read_runs([tmp_path])).rows] == [[told], []]
    alone = scores_table(read_runs([tmp_path / "deaf-s0"]))
    assert alone.rows[0][0].notes == ["deaf hardly used its source (`source_gain`)."]


def four(make_run: Any, **bleus: float) -> None:
    for width, (name, bleu) in enumerate(bleus.items(), start=16):
        make_run(f"{name}-s0", [2.0], bleu=bleu, settings=[f"architecture.d_ff={width}"])


def two_seeds(make_run: Any, **bleus: float) -> None:
    for width, (name, bleu) in enumerate(bleus.items(), start=16):
        for seed in range(2):
            make_run(f"{name}-s{seed}", [2.0], seed=seed, bleu=bleu + seed, settings=[f"architecture.d_ff={width}"])


def said_of(runs: RunSet) -> str:
    return verdict(runs, significance_tables(runs))


def test_what_the_tests_say_stands_beside_the_lead(make_run: Any, tmp_path: Path) -> None:
    """Of four systems, each is tested against the baseline, or against the first, alone."""
    two_seeds(make_run, a=20.0, b=21.0, c=23.0, d=29.0)
    runs = read_runs([tmp_path])
    (first,) = {p for pair, p in significance_tables(runs)[1].p_values.items() if "d" in pair}
    tested = f"d is 9.0 above a, p = {first:.3f} over seeds, and not tested over the test set."
    assert f"6.0 above c. No test compares the two; {tested}" in said_of(runs)
    tables = {table.id: table for table in significance_tables(replace(runs, baseline="c"))}
    (p,) = {p for pair, p in tables["seeds"].p_values.items() if "d" in pair}
    end = f"6.0 above c; p = {p:.3f} over seeds, and not tested over the test set."
    assert end in said_of(replace(runs, baseline="c"))
    assert said_of(replace(runs, baseline="c")).endswith(
        "Each p is corrected for the number of tests (see Significance)."
    )
    over_set = replace(tables["significance"], p_values={(runs.corpora[0], "d", "c"): 0.0001})
    assert "6.0 above c; p < 0.001 over the test set, and seeds are not tested." in verdict(runs, [over_set])
    both = verdict(runs, [over_set, tables["seeds"]])
    assert f"6.0 above c; p < 0.001 over the test set and p = {p:.3f} over seeds." in both
    assert "No test compares" in verdict(runs, [replace(over_set, id="significance-greedy")])


def test_two_single_runs_and_a_small_test_set(make_run: Any, tmp_path: Path) -> None:
    """Of single runs, the randomization's p is quoted, which does not depend on how many sentences there are."""
    four(make_run, a=20.0, b=21.0)
    runs = read_runs([tmp_path])
    tables = {table.id: table for table in significance_tables(runs)}
    pair, small = (runs.corpora[0], "b", "a"), frozenset(runs.corpora)
    bootstrap = replace(tables["significance"], p_values={pair: 0.045}, small_sets=small)
    said = "1.0 above a; p = {} over the test set, which is too small to rely on, and seeds are not tested."
    assert said.format("0.045") in verdict(runs, [bootstrap])
    exact = replace(bootstrap, id="approximate-randomization", p_values={pair: 0.076})
    assert "1.0 above a; p = 0.076 over the test set, and seeds are not tested." in verdict(runs, [bootstrap, exact])
    of_seeds = replace(bootstrap, id="seeds", p_values={pair: 0.5})
    assert "which is too small to rely on, and p = 0.500 over seeds." in verdict(runs, [bootstrap, of_seeds])


def test_the_lead_over_a_system_with_other_settings_is_said_to_be(make_run: Any, tmp_path: Path) -> None:
    make_run("plain-s0", [2.0], bleu=20.0)
    make_run("fast-s0", [2.0], bleu=22.0, preset="reinforced", settings=["training.learning_rate=0.5"])
    said = verdict(read_runs([tmp_path]))
    assert "2.0 above plain, but with other settings (learning_rate 0.5 against 1). No test" in said
    settings = ["training.learning_rate=0.5", "tokenizer.vocab_size=77", "training.batch_size=3", "training.r_drop=1"]
    make_run("other-s0", [2.0], bleu=24.0, settings=settings)
    assert "2.0 above fast, but with other settings (see Settings). No test" in verdict(read_runs([tmp_path]))


def test_one_seed_and_no_translations_are_no_test(make_run: Any, tmp_path: Path) -> None:
    four(make_run, a=20.0, b=21.0)
    assert said_of(read_runs([tmp_path])).endswith("1.0 above a. No test compares the two.")


def test_twins_are_tested_against_each_other_and_others_are_not(make_run: Any, tmp_path: Path) -> None:
    two_seeds(make_run, a=20.0, b=21.0, c=23.0, d=29.0)
    runs = read_runs([tmp_path])
    for twins, tested in (
        ({"c": "a", "d": "b"}, False),
        ({"a": "b", "c": "d"}, True),
        ({"a": "c", "b": "d"}, False),  # both are what others are tested against
        ({"d": "gone", "a": "c"}, True),  # against the baseline, then
    ):
        said = said_of(replace(runs, baseline=list(twins.values())[-1], twins=twins))
        assert ("No test compares the two" in said) != tested
        assert ("6.0 above c; p = " in said) == tested


def test_means_that_differ_by_less_than_is_shown(make_run: Any, tmp_path: Path) -> None:
    four(make_run, a=37.449, b=37.451)
    assert "b has the best BLEU (beam 4) of 2 systems, 38.5 (one seed), less than 0.1 above a." in verdict(
        read_runs([tmp_path])
    )


def test_the_beam_of_the_run_decides_and_not_the_widest(make_run: Any, tmp_path: Path) -> None:
    """By it the tests compare, too."""
    four(make_run, a=20.0, b=30.0)
    for name, value in (("a", 50.0), ("b", 10.0)):
        path = tmp_path / f"{name}-s0" / "scores.test.json"
        scores = json.loads(path.read_text())
        beam = scores["decoded"]["beam4"]
        scores["decoded"]["beam8"] = beam | {"bleu": beam["bleu"] | {"value": value}}
        path.write_text(json.dumps(scores))
    assert "b has the best BLEU (beam 4) of 2 systems, 31.0 (one seed), 10.0 above a." in verdict(read_runs([tmp_path]))


def test_no_number_is_not_the_best(tmp_path: Path) -> None:
    results = Path(__file__).parents[2] / "results/language-modelling-small"
    shutil.copytree(results, tmp_path / "runs")
    for path in (tmp_path / "runs").glob("ablation-norm-s*/scores.test.json"):
        scores = json.loads(path.read_text())
        scores["figures"]["bits_per_token"]["value"] = float("nan")
        path.write_text(json.dumps(scores))
    runs = read_runs([tmp_path / "runs"])
    said = verdict(runs)
    assert "nan" not in said
    assert "ablation-norm " not in said
    assert "the best bits per token of 4 systems that have one (5 in all), 6.035" in said
    write(build(runs), runs, tmp_path / "report", ["md"])
    assert "NaN" not in (tmp_path / "report/report.json").read_text(), "JSON has no such number"


def test_losses_of_other_tokens_and_no_scores_at_all(tmp_path: Path) -> None:
    results = Path(__file__).parents[2] / "results/language-modelling-small"
    for folder in results.glob("*-s0"):
        shutil.copytree(folder, tmp_path / "runs" / folder.name)
    path = tmp_path / "runs" / "ablation-norm-s0" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"digests": config["digests"] | {"tgt": "other"}}))
    said = verdict(read_runs([tmp_path / "runs"]))
    assert said.endswith("the systems count different tokens: their losses cannot be compared.")
    for path in (tmp_path / "runs").glob("*/scores.test.json"):
        scores = json.loads(path.read_text())
        scores["figures"]["bits_per_token"]["value"] = float("nan")
        path.write_text(json.dumps(scores))
    assert verdict(read_runs([tmp_path / "runs"])).endswith("no model has a score that can be compared.")


def test_equal_scores_are_shared(make_run: Any, tmp_path: Path) -> None:
    four(make_run, a=20.0, b=20.01)
    assert "b and a share the best BLEU (beam 4) of 2 systems, 21.0." in verdict(read_runs([tmp_path]))


def test_what_holds_of_several_corpora_is_said_once(make_run: Any, tmp_path: Path) -> None:
    for corpus in ("de", "fr"):
        language = f"corpus.src_lang={corpus}"
        for width, (name, bleu) in enumerate((("a", 20.0), ("b", 21.0)), start=16):
            settings = [f"architecture.d_ff={width}", language]
            for seed in range(2):
                make_run(f"{corpus}-{name}-s{seed}", [2.0], seed=seed, bleu=bleu + seed / 5, settings=settings)
    said = said_of(read_runs([tmp_path]))
    assert said.count("1.0 above") == said.count(" over seeds") == 2
    assert said.count("Significance") == 1
    assert said.endswith(". Each p is corrected for the number of tests (see Significance).")


def test_all_that_share_the_best_are_named(make_run: Any, tmp_path: Path) -> None:
    four(make_run, a=20.0, b=20.01, c=19.99, d=12.0)
    said = verdict(read_runs([tmp_path]))
    assert "b, a and c share the best BLEU (beam 4) of 4 systems, 21.0." in said
    shutil.rmtree(tmp_path / "d-s0")
    assert "all 3 systems have the same BLEU (beam 4), 21.0 (one seed)." in verdict(read_runs([tmp_path]))


def test_systems_that_do_not_translate_are_not_praised(make_run: Any, tmp_path: Path) -> None:
    for name, bleu, width in (("a", -0.9, 16), ("b", -0.5, 17)):
        make_run(f"{name}-s0", [2.0], bleu=bleu, chrf=12.0, settings=[f"architecture.d_ff={width}"])
    assert "no system translates: the best BLEU (beam 4) is 0.5 (one seed)." in verdict(read_runs([tmp_path]))
    shutil.rmtree(tmp_path / "b-s0")
    assert " does not translate: BLEU (beam 4) is 0.1 (one seed)." in verdict(read_runs([tmp_path]))


def test_translations_that_are_too_short_for_bleu_are_judged_by_chrf(make_run: Any, tmp_path: Path) -> None:
    for name, chrf, width in (("a", 50.0, 16), ("b", 60.0, 17), ("c", 12.0, 18)):
        make_run(f"{name}-s0", [2.0], bleu=-1.0, chrf=chrf, settings=[f"architecture.d_ff={width}"])
    make_run("d-s0", [2.0], bleu=20.0, settings=["architecture.d_ff=19"])
    assert "d has the best BLEU" in verdict(read_runs([tmp_path]))
    shutil.rmtree(tmp_path / "d-s0")
    said = verdict(read_runs([tmp_path]))
    assert "where no BLEU reaches 1, b has the best chrF (beam 4) of 3 systems, 61.0 (one seed), 10.0 above a" in said


def test_systems_without_a_beam_are_compared_by_greedy_search(make_run: Any, tmp_path: Path) -> None:
    four(make_run, a=20.0, b=30.0, c=40.0)
    path = tmp_path / "c-s0" / "scores.test.json"
    scores = json.loads(path.read_text())
    del scores["decoded"]["beam4"]
    path.write_text(json.dumps(scores))
    assert "c has the best BLEU (greedy) of 3 systems, 40.0 (one seed), 10.0 above b" in verdict(read_runs([tmp_path]))


def test_other_tasks_are_judged_by_what_they_are_tested_by() -> None:
    results = Path(__file__).parents[2] / "results"
    said = said_of(read_runs([results / "parsing-small"]))
    assert "ablation-concat-values has the best LAS of 7 systems, 67.57" in said
    tested = (
        "ablation-concat-values is 4.45 above ablation-none, p < 0.001 over seeds, and not tested over the test set."
    )
    assert f"above reinforced. No test compares the two; {tested}" in said
    said = said_of(read_runs([results / "language-modelling-small"]))
    assert "reinforced has the best bits per token of 5 systems, 6.035" in said, "but for the one that looks ahead"
    assert "0.095 below ablation-norm" in said, "less is better"


def test_one_system_has_its_figure(make_run: Any, tmp_path: Path) -> None:
    make_run("a-s0", [2.0], bleu=20.0)
    make_run("a-s1", [2.0], seed=1, bleu=22.0)
    assert "BLEU (beam 4) 22.0 ± 1.4 (2 seeds)" in verdict(read_runs([tmp_path]))


def test_nothing_finished_is_said(make_run: Any, tmp_path: Path) -> None:
    make_run("a-s0", [2.0], bleu=None)
    assert "No run is finished" in verdict(read_runs([tmp_path]))


def test_pages_begin_with_the_verdict_and_one_picture(make_run: Any, tmp_path: Path) -> None:
    make_run("a-s0", [2.0], bleu=20.0)
    make_run("b-s0", [2.0], preset="reinforced", bleu=22.0)
    runs = read_runs([tmp_path])
    pictures = (picture("learning-curves", Shows.CURVES), picture("bleu-and-parameters", Shows.SCORES_AND_SIZES))
    assert main_picture(pictures, runs) is pictures[1]
    assert main_picture(pictures, read_runs([tmp_path / "a-s0"])) is pictures[0], "one system is one point"
    assert main_picture([], runs) is None
    report = build(runs, pictures=pictures)
    for text in (write_markdown(report), write_page(report)):
        body = text.partition("<h1>")[2] or text
        places = [
            body.index(part) for part in ("has the best BLEU", "bleu-and-parameters", "Epochs", "learning-curves")
        ]
        assert places == sorted(places)
        assert body.index("bleu-and-parameters") < body.index("Contents" if "Contents" in body else "## Scores")


def test_the_verdict_leads_to_what_it_names(make_run: Any, tmp_path: Path) -> None:
    two_seeds(make_run, plain=20.0, wide=25.0)
    page = write_page(build(read_runs([tmp_path])))
    assert '(see <a href="#section-significance">Significance</a>)' in page
    assert 'id="section-significance"' in page


def test_no_heading_is_repeated(make_run: Any, tmp_path: Path) -> None:
    make_run("a-s0", [2.0], bleu=20.0)
    lines = write_markdown(build(read_runs([tmp_path]))).splitlines()
    heads = [line.lstrip("# ") for line in lines if line.startswith("#")]
    assert len(heads) == len(set(heads))


def test_a_share_of_warm_up_stands_alone(make_run: Any, tmp_path: Path) -> None:
    make_run("a-s0", [2.0], settings=["training.warmup_share=0.2"])
    text = write_markdown(build(read_runs([tmp_path])))
    assert "warmup\\_share 0.2" in text
    assert "warmup\\_updates" not in text


def test_five_corpora_are_all_told_and_of_six_two_are_left(make_run: Any, tmp_path: Path) -> None:
    for number, lang in enumerate(("de", "fr", "cs", "pt", "gl", "az"), start=1):
        make_run(f"{lang}/a", [2.0], settings=[f"corpus.src_lang={lang}"])
        said = verdict(read_runs([tmp_path]))
        assert said.count(" on multi30k ") == (number if number < 6 else 4)
    assert said.endswith("2 more corpora: see the scores.")


def test_inflated_scores_stand_beside_those_that_may_be_quoted(make_run: Any, tmp_path: Path) -> None:
    four(make_run, a=20.0, b=22.0)
    for name, value in (("a", 17.04), ("b", 18.06)):
        path = tmp_path / f"{name}-s0" / "scores.test.json"
        scores = json.loads(path.read_text())
        scores["decoded"]["beam4"]["bleu_detokenised"] = scores["decoded"]["beam4"]["bleu"] | {"value": value}
        path.write_text(json.dumps(scores))
    assert "23.0 (one seed), 2.0 above a (detokenised 18.1 and 17.0)." in verdict(read_runs([tmp_path]))
