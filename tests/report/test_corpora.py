"""Corpora of the same name with different test sentences are distinguished, and not ranked together."""

import json
from pathlib import Path
from typing import Any

import pytest

from repose.report.collect import read_runs
from repose.report.tables_scores import scores_table
from repose.report.verdict import verdict

FOOD = ("corpus.name=none", "corpus.train=[/w/food.pt,/w/food.en]", "corpus.src_lang=und")
C = ("corpus.name=none", "corpus.train=[/w/c.pt,/w/c.en]", "corpus.src_lang=und")


def make(make_run: Any, name: str, settings: tuple[str, ...], data: str, **more: Any) -> Path:
    """A run whose corpus was prepared under this key."""
    folder: Path = make_run(name, [2.0], settings=settings, **more)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"data": data}))
    return folder


def write_set(home: Path, data: str, text: str) -> None:
    folder = home / "prepared" / data / "text"
    folder.mkdir(parents=True)
    for side in ("src", "tgt"):
        (folder / f"test.{side}").write_text(text)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


OTHERS = {
    "other files": (FOOD, ("w/c", "w/food")),
    "drawn otherwise": ((*C, "corpus.split_seed=1"), ("w/c, split_seed 0", "w/c, split_seed 1")),
    "a test set": (
        (*C, "corpus.test=[/w/t.pt,/w/t.en]"),
        ("w/c, test none", "w/c, test t.pt t.en"),
    ),
}


@pytest.mark.parametrize(("other", "corpora"), OTHERS.values(), ids=OTHERS.keys())
def test_two_corpora_in_one_folder_are_two(
    other: tuple[str, ...], corpora: tuple[str, ...], make_run: Any, tmp_path: Path
) -> None:
    make(make_run, "runs/a-s0", C, "one", bleu=2.2)
    make(make_run, "runs/b-s0", other, "two", bleu=26.9)
    runs = read_runs([tmp_path / "runs"])
    assert runs.corpora == corpora
    assert not any(cell.best for row in scores_table(runs).rows for cell in row)
    assert "the best" not in verdict(runs)


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_run_that_says_its_languages_and_one_that_does_not(first: str, make_run: Any, tmp_path: Path) -> None:
    """As where one was trained on from a model, which has said them."""
    test, own = "corpus.test=[/w/t.pt,/w/t.en]", ("corpus.src_lang=pt", "corpus.tgt_lang=en")
    none = ("corpus.src_lang=und", "corpus.tgt_lang=und")
    make(make_run, "runs/a-s0", (*C, test, *(own if first == "a" else none)), "one", bleu=2.2)
    make(make_run, "runs/b-s0", (*C, test, *(none if first == "a" else own)), "two", bleu=26.9)
    runs = read_runs([tmp_path / "runs"])
    assert runs.corpora == (("w pt-en",) if first == "a" else ("w",))
    assert "b has the best BLEU" in verdict(runs)


def test_test_sets_with_files_of_their_own_go_by_those(make_run: Any, tmp_path: Path) -> None:
    """Not by what was trained on, which other runs on the same set were not."""
    for name, settings, test in (("a", C, "t"), ("b", FOOD, "t"), ("c", C, "u")):
        make(make_run, f"runs/{name}-s0", (*settings, f"corpus.test=[/w/{test}.pt,/w/{test}.en]"), name, bleu=2.2)
    assert [run.corpus for run in read_runs([tmp_path / "runs"]).runs] == [
        "w/c, test t.pt t.en",
        "w/c, test t.pt t.en",
        "w/c, test u.pt u.en",
    ]


def test_files_of_one_name_go_by_their_folders(make_run: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        make(make_run, f"runs/{name}-s0", (*C, f"corpus.test=[/{name}/t.pt,/{name}/t.en]"), name, bleu=2.2)
    assert read_runs([tmp_path / "runs"]).corpora == ("w/c, test /a/t.pt /a/t.en", "w/c, test /b/t.pt /b/t.en")


def test_runs_of_one_set_are_of_one_corpus_however_they_are_tokenised(make_run: Any, tmp_path: Path) -> None:
    make(make_run, "runs/a-s0", C, "one", bleu=2.2)
    make(make_run, "runs/b-s0", (*C, "tokenizer.vocab_size=99"), "two", bleu=26.9)
    runs = read_runs([tmp_path / "runs"])
    assert runs.corpora == ("w",)
    assert "b has the best BLEU" in verdict(runs)


def test_the_texts_say_it_where_the_cache_has_them(make_run: Any, tmp_path: Path, home: Path) -> None:
    """Files that were moved are the same; files that were written over are not."""
    moved = ("corpus.name=none", "corpus.train=[/elsewhere/w/c.pt,/elsewhere/w/c.en]", "corpus.src_lang=und")
    for name, settings, data, text in (("a", C, "1", "x\n"), ("b", moved, "2", "x\n"), ("c", C, "3", "y\n")):
        make(make_run, f"runs/{name}-s0", settings, data)
        write_set(home, data, text)
    runs = read_runs([tmp_path / "runs"])
    assert [(run.name, run.corpus) for run in runs.runs] == [
        ("a-s0", "w/c (1)"),
        ("b-s0", "w/c (1)"),
        ("c-s0", "w/c (2)"),
    ]


def test_losses_on_unlike_validation_sets_are_not_ranked(make_run: Any, tmp_path: Path) -> None:
    test = "corpus.test=[/w/t.pt,/w/t.en]"
    make(make_run, "runs/a-s0", (*C, test), "one", bleu=2.2)
    make(make_run, "runs/b-s0", (*FOOD, test), "two", bleu=26.9)
    runs = read_runs([tmp_path / "runs"])
    assert runs.corpora == ("w",)
    table = scores_table(runs)
    best = {table.columns[i].name for row in table.rows for i, cell in enumerate(row) if cell.best}
    assert best == {"BLEU greedy", "BLEU beam 4"}, "chrF does not differ"


def test_a_text_in_one_language_is_called_by_it_once(make_run: Any, tmp_path: Path) -> None:
    make_run("a-s0", [2.0], settings=["corpus.src_lang=en"])
    assert read_runs([tmp_path]).corpora == ("multi30k en",)
