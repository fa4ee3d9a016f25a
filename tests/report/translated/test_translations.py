"""Where the counts and lengths of a run come from, and what is said where they are missing."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repose.data.tokenizer import Tokenizer
from repose.report.collect import read_run
from repose.report.figures import decoding_of
from repose.report.translations import (
    hypotheses_of,
    lengths_of,
    settings_of,
    statistics_of,
    texts_of,
    write_statistics,
)
from repose.system.errors import DataError


def bare(folder: Path, out: Path) -> Path:
    """What `results/` keeps of a run."""
    out.mkdir()
    for name in ("config.json", "metrics.jsonl", "scores.test.json"):
        shutil.copy(folder / name, out / name)
    return out


def test_a_run_is_counted_from_its_texts(made: Any) -> None:
    run = read_run(made.add("one", wrong=0.3), None)
    sources, references = texts_of(run)
    assert (sources, references) == made.data().text("test")
    assert decoding_of(run) == "beam4"
    assert settings_of(run)["tok"] == "13a"
    assert len(hypotheses_of(run)) == len(references)
    assert run.scores is not None
    assert statistics_of(run).score() == run.scores["decoded"]["beam4"]["bleu"]["value"] < 90


def test_the_runs_own_beam_is_compared(made: Any) -> None:
    assert decoding_of(read_run(made.add("one", overrides=["decoding.beam_size=1"]), None)) == "greedy"
    other = read_run(made.add("two", overrides=["decoding.beam_size=8"]), None)
    assert decoding_of(other) == "beam4", "the last there is, where its own is missing"


def test_case_is_ignored_where_the_score_ignores_it(made: Any) -> None:
    _, references = made.data().text("test")
    shouted = [line.upper() for line in references]
    lower = read_run(made.add("one", hypotheses=shouted, lowercase=True), None)
    assert statistics_of(lower).score() == pytest.approx(100)
    assert statistics_of(read_run(made.add("two", hypotheses=shouted), None)).score() < 100


def test_a_translation_may_hold_a_carriage_return(made: Any) -> None:
    _, references = made.data().text("test")
    odd = [line.replace(" ", " \r ", 1) for line in references]
    assert hypotheses_of(read_run(made.add("one", hypotheses=odd), None)) == odd


def test_lengths_of_sources(made: Any) -> None:
    made.corpus("tales", longest=8, longest_test=20)
    run = read_run(made.add("one"), None)
    found, data = lengths_of(run), made.data()
    sources, _ = data.text("test")
    tokenizer = Tokenizer.load(data.tokenizer_path("src"))
    assert found.words.tolist() == [len(line.split()) for line in sources]
    assert found.tokens.tolist() == [len(tokenizer.encode(line)) for line in sources]
    assert found.longest_trained == 8 + 2, "START and END are counted, as in the tokens above"
    assert found.tokens.max() == 20 + 2
    corpus = dataclasses.replace(run.experiment.corpus, tag="gl")
    tagged = dataclasses.replace(run, experiment=dataclasses.replace(run.experiment, corpus=corpus))
    assert (lengths_of(tagged).tokens - found.tokens).tolist() == [1] * len(sources), "as the lengths of training are"


def test_stored_counts_stand_for_missing_texts(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made.add("one", wrong=0.3)
    out = bare(folder, tmp_path / "kept")
    assert write_statistics(folder, out) == out / "statistics.test.npz"
    whole, kept = read_run(folder, None), read_run(out, None)
    counted, lengths = statistics_of(whole), lengths_of(whole)
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "elsewhere"))
    np.testing.assert_array_equal(statistics_of(kept).bleu, counted.bleu)
    np.testing.assert_array_equal(statistics_of(kept).chrf, counted.chrf)
    np.testing.assert_array_equal(lengths_of(kept).tokens, lengths.tokens)
    np.testing.assert_array_equal(lengths_of(kept).words, lengths.words)
    assert lengths_of(kept).longest_trained == lengths.longest_trained
    with pytest.raises(DataError, match="is not in the cache"):
        texts_of(kept)


def test_stored_counts_hold_no_word(made: Any) -> None:
    """None of the corpus, nor of the translations, compressed or not."""
    path = write_statistics(made.add("one"))
    with np.load(path) as file:
        assert all(file[name].dtype.kind in "iu" for name in file.files)
    assert path.stat().st_size < 10_000


def test_what_is_missing_is_one_sentence(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made.add("one")
    kept = read_run(bare(folder, tmp_path / "kept"), None)
    with pytest.raises(DataError, match=r"translations \(hypotheses/test.beam4.txt\) cannot be read, or are not"):
        statistics_of(kept)
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "elsewhere"))
    for of in (statistics_of, lengths_of):
        with pytest.raises(DataError, match=r"test set is not in the cache .*`repose evaluate` on the run"):
            of(read_run(folder, None))
    with pytest.raises(DataError, match="test set is not in the cache"):
        write_statistics(folder)
    (folder / "scores.test.json").unlink()
    with pytest.raises(DataError, match="no scores"):
        write_statistics(folder)


def test_counts_that_do_not_give_the_recorded_score_are_refused(made: Any) -> None:
    folder = made.add("one", wrong=0.3)
    path = folder / "scores.test.json"
    scores = json.loads(path.read_text())
    scores["decoded"]["beam4"]["bleu"]["value"] += 0.01
    path.write_text(json.dumps(scores))
    with pytest.raises(DataError, match=r"score \d+\.\d\d BLEU but scores.test.json says"):
        statistics_of(read_run(folder, None))


@pytest.mark.parametrize("decoded", [{}, {"greedy": None}, {"beam4": {}}, {"beam4": {"bleu": {"value": 3.0}}}])
def test_scores_without_bleu_are_one_sentence(made: Any, decoded: Any) -> None:
    folder = made.add("one")
    (folder / "scores.test.json").write_text(json.dumps({"decoded": decoded}))
    with pytest.raises(DataError, match=r"scores.test.json has no BLEU with its signature"):
        statistics_of(read_run(folder, None))


def test_rewritten_translations_are_read_again(made: Any) -> None:
    folder = made.add("one", wrong=0.3)
    before = statistics_of(read_run(folder, None)).score()
    shutil.rmtree(folder)
    assert statistics_of(read_run(made.add("one", wrong=0.6), None)).score() < before
