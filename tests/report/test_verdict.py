"""What a report says first."""

from pathlib import Path
from typing import Any

from repose.report.build import build
from repose.report.collect import read_runs
from repose.report.content import Column, Picture, Table
from repose.report.page import write_page
from repose.report.verdict import main_picture, verdict
from repose.report.write import write_markdown


def picture(name: str) -> Picture:
    numbers = Table(id=name, title=name, columns=[Column("x")], rows=[])
    return Picture(id=name, title=name, svg='<svg viewBox="0 0 1 1" style="">', description=name, numbers=numbers)


def test_the_best_is_named_with_what_is_next_and_what_looks_ahead_is_not(make_run: Any, tmp_path: Path) -> None:
    for seed, bleu in enumerate((20.0, 22.0)):
        make_run(f"causal-s{seed}", [2.0], seed=seed, preset="reinforced", bleu=bleu)
    make_run("plain-s0", [2.5], bleu=24.0)
    make_run("ahead-s0", [0.1], preset="reinforced-lookahead", bleu=60.0)
    said = verdict(read_runs([tmp_path]))
    assert "plain has the best BLEU (beam 4) of 2 systems, 25.0 (one seed), 3.0 above causal" in said
    assert "ahead" not in said


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
    pictures = (picture("curves-tf_loss"), picture("bleu-against-parameters"))
    assert main_picture(pictures, runs) is pictures[1]
    report = build(runs, pictures=pictures)
    for text in (write_markdown(report), write_page(report)):
        body = text.partition("<h1>")[2] or text
        places = [body.index(part) for part in ("has the best BLEU", "bleu-against-parameters", "curves-tf")]
        assert places == sorted(places)
        assert body.index("bleu-against-parameters") < body.index("Contents" if "Contents" in body else "## Scores")


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
