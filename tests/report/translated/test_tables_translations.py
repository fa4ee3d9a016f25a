"""BLEU by length, from runs to tables."""

import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from repose.evaluation.metrics import bleu
from repose.evaluation.sentence_statistics import SourceLengths
from repose.report.content import Cell
from repose.report.run_set import ReportRun
from repose.report.tables import UNLIKE
from repose.report.tables_translations import length_tables
from repose.report.translations import hypotheses_of, lengths_of
from repose.system.errors import DataError


def said(cell: Cell) -> str:
    return " ".join(cell.notes)


def test_parts_longer_than_the_training_are_marked(made: Any) -> None:
    """Sources of training have 9 words at most, 11 tokens with START and END; those of the test up to 25."""
    made.corpus("tales", num_test=150, longest=9, longest_test=25)
    for seed in (0, 1):
        made.add("base", wrong=0.4, seed=seed)
        made.add("good", wrong=0.2, seed=seed)
    runs = made.runs("base")
    (table,) = length_tables(runs)
    assert table.id == "lengths"
    assert [column.name for column in table.columns] == ["system", "1–11", "12–20", "21–30"]
    assert "11 tokens" in table.caption
    sources, references = made.data().text("test")
    sizes, base, good = table.rows
    parts = [[i for i, line in enumerate(sources) if low <= len(line.split()) + 2 <= low + 9] for low in (2, 12, 21)]
    parts[1] = [i for i in parts[1] if len(sources[i].split()) + 2 <= 20]
    assert sum(map(len, parts)) == 151
    assert [cell.value for cell in sizes[1:]] == [len(part) for part in parts]
    for row, group in ((base, "base"), (good, "good")):
        for cell, part in zip(row[1:], parts, strict=True):
            values = [
                bleu([hypotheses_of(run)[i] for i in part], [references[i] for i in part]).value
                for run in runs.done(group, "tales")
            ]
            assert cell.value == pytest.approx(statistics.fmean(values), abs=1e-12)
            assert cell.deviation == pytest.approx(statistics.stdev(values), abs=1e-12)
            assert cell.n == 2
    assert [cell.best for cell in good[1:]] == [True] * 3
    assert not any(cell.best for cell in base[1:])
    assert ["Longer than every source" in said(cell) for cell in base[1:]] == [False, True, True]
    assert ["Fewer than 50" in said(cell) for cell in sizes[1:]] == [len(part) < 50 for part in parts]
    assert {len(part) < 50 for part in parts} == {True, False}, "both must occur"


def test_a_model_trained_on_longer_ones_is_not_marked(made: Any) -> None:
    made.corpus("tales", longest=20, longest_test=25)
    made.add("short", overrides=["training.max_src_tokens=10"])
    made.add("long")
    (table,) = length_tables(made.runs())
    assert [column.name for column in table.columns][1:] == ["1–10", "11–22", "23–30"]
    short, long = table.rows[1:]
    assert ["Longer" in said(cell) for cell in short[1:]] == [False, True, True]
    assert ["Longer" in said(cell) for cell in long[1:]] == [False, False, True]
    assert "10 or 22 tokens, by system" in table.caption


def test_nothing_is_longer_than_the_training(made: Any) -> None:
    made.add("one")
    (table,) = length_tables(made.runs())
    assert [column.name for column in table.columns][1:] == ["1–10", "11–20"]
    assert "No source is longer than the longest in training (11 tokens)" in table.caption
    assert not any(cell.best for row in table.rows for cell in row), "one system is not the best"


def test_words_are_counted_where_tokenizers_are_unknown(made: Any) -> None:
    config_file = made.add("one") / "config.json"
    config = json.loads(config_file.read_text(encoding="utf-8"))
    config_file.write_text(json.dumps({**config, "digests": {}}), encoding="utf-8")
    (table,) = length_tables(made.runs())
    assert [column.name for column in table.columns][1:] == ["1–10"]


def test_words_are_counted_where_tokenizers_differ(made: Any) -> None:
    made.corpus("tales", longest=9, longest_test=25)
    made.add("one")
    made.add("two", overrides=["tokenizer.kind=bpe", "tokenizer.vocab_size=300"])
    (table,) = length_tables(made.runs())
    assert [column.name for column in table.columns][1:] == ["1–10", "11–20", "21–30"]
    assert "by the length of their source in words" in table.caption
    assert not any("Longer" in note for note in table.keys)


def test_what_looks_ahead_is_never_best(made: Any) -> None:
    made.add("one", wrong=0.4)
    made.add("two", wrong=0.3)
    made.add("cheat", wrong=0.0, overrides=["architecture.decoder_token_norm=sentence"])
    (table,) = length_tables(made.runs())
    one, two, cheat = table.rows[1:]
    assert "looks ahead" in said(cheat[1])
    assert (one[1].best, two[1].best, cheat[1].best) == (False, True, False)
    assert cheat[1].value == pytest.approx(100)


def test_each_corpus_has_its_table(made: Any) -> None:
    made.add("one", corpus="tales")
    made.add("one", corpus="Songs 2")
    assert [table.id for table in length_tables(made.runs())] == ["lengths-tales", "lengths-songs-2"]
    made.add("one", corpus="songs_2")
    ids = [table.id for table in length_tables(made.runs())]
    assert ids == ["lengths-tales", "lengths-songs-2", "lengths-songs-2-2"], "one file each"


def test_missing_texts(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made.add("one")
    folder = made.add("two")
    (folder / "hypotheses" / "test.beam4.txt").unlink()
    (table,) = length_tables(made.runs())
    assert [row[0].text for row in table.rows] == ["test sentences", "one"]
    assert "tales-two-s0 is left out: the translations" in " ".join(table.keys)
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "elsewhere"))
    assert length_tables(made.runs()) == ()


def test_many_runs_without_lengths_are_three_names_and_a_number(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made.add("one")
    for seed in range(5):
        made.add("two", seed=seed)

    def lengths(run: ReportRun) -> SourceLengths:
        if run.group == "two":
            raise DataError("its corpus is gone")
        return lengths_of(run)

    monkeypatch.setattr("repose.report.tables_translations.lengths_of", lengths)
    (table,) = length_tables(made.runs())
    assert "Left out: tales-two-s0, tales-two-s1, tales-two-s2 and 2 more; its corpus is gone." in " ".join(table.keys)


def test_equal_scores_are_the_best_where_others_are_lower(made: Any) -> None:
    _, references = made.data().text("test")
    for name in ("one", "two"):
        made.add(name, hypotheses=references)
    (table,) = length_tables(made.runs())
    assert not any(cell.best for row in table.rows for cell in row)
    made.add("three", wrong=0.4)
    (table,) = length_tables(made.runs())
    assert [row[1].best for row in table.rows[1:]] == [True, True, False]


def test_scores_that_ignore_case_and_others_have_no_best(made: Any) -> None:
    made.add("one", wrong=0.4)
    made.add("two", wrong=0.2, lowercase=True)
    (table,) = length_tables(made.runs())
    assert not any(cell.best for row in table.rows for cell in row)


def test_runs_of_a_system_that_were_scored_differently_have_no_mean(made: Any) -> None:
    made.add("one", seed=0)
    made.add("one", seed=1, lowercase=True)
    made.add("two")
    (table,) = length_tables(made.runs())
    one, two = table.rows[1:]
    assert [cell.text for cell in one[1:]] == ["–"] * (len(one) - 1)
    assert UNLIKE in said(one[1])
    assert two[1].n == 1


def test_the_run_on_other_sentences_is_left_out_even_if_it_is_the_first(made: Any) -> None:
    for name in ("one", "two", "three"):
        made.add(name)
    own = lengths_of(made.runs().runs[1])
    other = dataclasses.replace(own, tokens=own.tokens[::-1], words=own.words[::-1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("repose.report.tables_translations.lengths_of", lambda run: other if run.group == "one" else own)
        (table,) = length_tables(made.runs())
    assert [row[0].text for row in table.rows] == ["test sentences", "two", "three"]
    assert "tales-one-s0 is left out: its test sentences are not those of most runs." in table.keys
