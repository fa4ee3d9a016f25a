"""The pictures of a report: which runs they show, and with which numbers."""

import math
import re
import sys
import xml.etree.ElementTree as ET
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from repose.plots.charts import DASHED
from repose.report.collect import read_runs
from repose.report.content import Picture, Table
from repose.report.pictures import pictures
from repose.system.errors import ConfigError

SLOW = {"a-s0": [3.0, 2.0, 1.5], "a-s1": [3.2, 2.2], "a-s2": [3.4, 2.4]}
MANY = [0.1 * number for number in range(1, 9)]


def drawn(tmp_path: Path) -> dict[str, Picture]:
    """Pictures of all runs made, by their ids; there are no two of one id."""
    found = pictures(read_runs([tmp_path]))
    by_id = {picture.id: picture for picture in found}
    assert len(by_id) == len(found)
    return by_id


def column(table: Table, name: str) -> list[str]:
    """What stands in a column."""
    (index,) = [index for index, head in enumerate(table.columns) if head.name == name]
    return [row[index].text for row in table.rows]


@pytest.fixture
def seeds(make_run: Any, tmp_path: Path) -> Path:
    """Where three seeds of a system are, of which one trained longer, and one of another."""
    for seed, (name, losses) in enumerate(SLOW.items()):
        make_run(name, losses, seed=seed, settings=["training.epochs=5"], seconds=[10.0 + seed] * len(losses))
    make_run("b", [2.5, 2.4], settings=["training.learning_rate=0.1"], valid_bleu=[1.0, 2.0], bleu=25.0)
    return tmp_path


def test_curves_are_means_over_those_that_got_so_far(seeds: Path) -> None:
    curves = drawn(seeds)["learning-curves"]
    assert curves.title == "Validation loss by epoch, multi30k de-en"
    # 3.2 ± 0.2: deviations of -0.2, 0 and 0.2, squared, summed and halved
    assert column(curves.numbers, "a") == ["3.200 ± 0.200", "2.200 ± 0.200", "1.500 (1)"]
    assert column(curves.numbers, "b") == ["2.500", "2.400", "–"]
    assert column(curves.numbers, "epoch") == ["1", "2", "3"]
    assert "a 1.50 at epoch 3, b 2.40 at epoch 2" in curves.description


def test_only_what_was_scored_has_a_bleu_curve(seeds: Path) -> None:
    bleu = drawn(seeds)["bleu-curves"]
    assert [head.name for head in bleu.numbers.columns] == ["epoch", "b"]
    assert column(bleu.numbers, "b") == ["1.0", "2.0"]


def test_times_are_medians_of_runs_and_means_over_them(seeds: Path) -> None:
    times = drawn(seeds)["time"]
    assert column(times.numbers, "time") == ["11.0 ± 1.0", "20.0"]
    assert "a 11.0 ± 1.0, b 20.0" in times.description


def test_scores_are_drawn_against_what_costs_differ(make_run: Any, seeds: Path) -> None:
    found = drawn(seeds)
    assert column(found["bleu-and-time"].numbers, "BLEU beam 4") == ["21.0 ± 0.0", "26.0"]
    assert "bleu-and-parameters" not in found  # all have the same
    make_run("large", [2.0], settings=["architecture.d_ff=1024"])
    assert len(drawn(seeds)["bleu-and-parameters"].numbers.rows) == 3


def test_what_looks_ahead_is_dashed_named_and_no_translator(make_run: Any, tmp_path: Path) -> None:
    make_run("a", [2.0, 1.9], seconds=[10.0, 10.0])
    make_run("b", [2.0, 1.9], settings=["architecture.d_ff=1024"])
    dashes = ",".join(f"{1.4 * part:g}" for part in DASHED[1])  # of lines 1.4 points wide
    assert dashes not in drawn(tmp_path)["learning-curves"].svg
    make_run("c", [0.9, 0.8], preset="reinforced-lookahead")
    found = drawn(tmp_path)
    assert dashes in found["learning-curves"].svg
    assert [head.name for head in found["learning-curves"].numbers.columns] == ["epoch", "a", "b", "c (looks ahead)"]
    assert column(found["time"].numbers, "system") == ["a", "b", "c"]
    assert column(found["bleu-and-time"].numbers, "system") == ["a", "b"]
    assert "looks ahead" not in found["bleu-and-time"].description
    assert "are left out" in found["bleu-and-time"].numbers.caption


def test_many_systems_have_a_picture_per_corpus_and_a_panel_each(make_run: Any, tmp_path: Path) -> None:
    for number, loss in enumerate(MANY):
        rate = [f"training.learning_rate={number + 1}"]
        make_run(f"system-{'abcdefgh'[number]}", [loss + 1, loss], settings=rate)
        if number < 2:
            make_run(f"other/system-{'abcdefgh'[number]}", [loss], settings=[*rate, "corpus.src_lang=fr"])
    found = drawn(tmp_path)
    assert {"learning-curves", "learning-curves-multi30k-de-en", "time", "time-multi30k-de-en"} <= set(found)
    assert found["learning-curves-multi30k-de-en"].title == "Validation loss by epoch, multi30k de-en"
    assert found["learning-curves"].title == "Validation loss by update, multi30k fr-en"  # there is but one epoch
    assert len(found["learning-curves-multi30k-de-en"].numbers.columns) == 1 + 8
    assert len(found["learning-curves"].numbers.columns) == 1 + 2
    assert len(re.findall(r"<clipPath", found["learning-curves-multi30k-de-en"].svg)) == 8
    assert "in grey" in found["learning-curves-multi30k-de-en"].numbers.caption


def test_corpora_of_nearly_one_name_have_pictures_of_their_own(make_run: Any, tmp_path: Path) -> None:
    for corpus in ("my talks", "my/talks"):
        for number in range(8):
            settings = [f"corpus.name={corpus}", f"training.learning_rate={number + 1}"]
            make_run(f"{corpus}/system-{'abcdefgh'[number]}", [2.0, 1.0], settings=settings)
    curves = {name for name in drawn(tmp_path) if name.startswith("learning-curves")}
    assert curves == {"learning-curves-my-talks-de-en", "learning-curves-my-talks-de-en-2"}


def test_corpora_are_panels_of_one_picture(make_run: Any, tmp_path: Path) -> None:
    for lang in ("de", "fr", "ja"):
        make_run(f"{lang}/a", [2.0, 1.5], settings=[f"corpus.src_lang={lang}"])
    curves = drawn(tmp_path)["learning-curves"]
    assert curves.title == "Validation loss by epoch"
    assert column(curves.numbers, "corpus") == [f"multi30k {lang}-en" for lang in ("de", "fr", "ja") for _ in range(2)]
    assert len(re.findall(r"<clipPath", curves.svg)) == 3


def test_a_run_that_diverged_has_no_figure_from_there_on(make_run: Any, tmp_path: Path) -> None:
    make_run("a-s0", [3.0, 2.0], seed=0)
    make_run("a-s1", [3.0, math.nan], seed=1)
    make_run("b", [math.inf, math.nan], settings=["training.learning_rate=0.9"])
    curves = drawn(tmp_path)["learning-curves"]
    assert [head.name for head in curves.numbers.columns] == ["epoch", "a"]
    assert column(curves.numbers, "a") == ["3.000 ± 0.000", "2.000 (1)"]


def test_a_long_training_is_a_small_picture_and_a_short_table(make_run: Any, tmp_path: Path) -> None:
    make_run("a", [1 + 1 / epoch for epoch in range(1, 1001)])
    curves = drawn(tmp_path)["learning-curves"]
    assert len(curves.svg) < 100_000
    assert len(curves.numbers.rows) <= 61
    assert [column(curves.numbers, "epoch")[place] for place in (0, -1)] == ["1", "1,000"]


def test_pictures_stand_alone_and_are_the_same_each_time(seeds: Path) -> None:
    first, second = drawn(seeds), drawn(seeds)
    for picture in first.values():
        root = ET.fromstring(picture.svg)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        links = [value for element in root.iter() for name, value in element.attrib.items() if "href" in name]
        assert all(link.startswith("#") for link in links)
        names = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert not names & {"text", "style", "script", "image", "metadata"}  # no font of the reader's is needed
        assert len(picture.svg) < 150_000
    assert first == second


def test_every_colour_is_one_that_the_page_chooses(seeds: Path) -> None:
    style = files("repose.report").joinpath("page.html").read_text(encoding="utf-8").partition("</style>")[0]
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6});", part)) for part in style.split(":root {")[1:3])
    assert light.keys() == dark.keys()
    for picture in drawn(seeds).values():
        colours = set(re.findall(r"(?:var\(--([\w-]+), )?(#[0-9a-f]{6})", picture.svg))
        assert colours
        assert all(light[name] == colour for name, colour in colours)  # "" where it is no variable


def test_letters_without_a_font_do_not_stop_a_report(
    make_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", lambda *_, **__: [])
    make_run("日本語-s0", [2.0, 1.0])
    assert column(drawn(tmp_path)["learning-curves"].numbers, "日本語") == ["2.000", "1.000"]


def test_nothing_to_draw(make_run: Any, tmp_path: Path) -> None:
    folder = make_run("a", [2.0], bleu=None)
    (folder / "metrics.jsonl").write_text('{"kind": "train", "update": 1, "epoch": 1, "loss": 9.0}\n')
    assert drawn(tmp_path) == {}


def test_without_matplotlib_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = ("matplotlib", "repose.plots", "repose.report.pictures")
    for name in [name for name in sys.modules if name.startswith(ours)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'repose-nmt\[plot\]'"):
        import_module("repose.report.pictures")
