"""Sentences that tell two systems apart."""

import shutil
from typing import Any

import numpy as np
import pytest

from repose.evaluation.metrics import chrf
from repose.report.sentences import chosen_sentences, samples, side_by_side
from repose.report.translations import hypotheses_of, write_statistics


def lines_of(made: Any) -> tuple[list[str], list[str]]:
    sources, references = made.data().text("test")
    return sources, references


def test_lines_that_the_grid_names_are_shown_as_every_system_translates_them(made: Any) -> None:
    sources, references = lines_of(made)
    for seed in (1, 0):
        made.add("base", hypotheses=[f"base {seed}: {line}" for line in references], seed=seed)
    good = made.add("good", hypotheses=references)
    wanted = [
        *[["4", "source", sources[3]], ["4", "reference", references[3]]],
        *[["4", "base", f"base 1: {references[3]}"], ["4", "good", references[3]]],
        *[["1", "source", sources[0]], ["1", "reference", references[0]]],
        *[["1", "base", f"base 1: {references[0]}"], ["1", "good", references[0]]],
    ]
    for sentences in ([4, 1, 999], {"tales": [4, 1, 999], "songs": [2]}):
        (table,) = chosen_sentences(made.runs(sentences=sentences))
        assert [[cell.text for cell in row] for row in table.rows] == wanted
        assert table.remarks == ["There is no line 999."]
    assert not chosen_sentences(made.runs())
    shutil.rmtree(good / "hypotheses")
    (table,) = chosen_sentences(made.runs(sentences=[4]))
    assert [row[1].text for row in table.rows] == ["source", "reference", "base"]
    assert "good" in table.remarks[0]


def test_a_report_on_one_system_shows_what_it_translates(made: Any) -> None:
    sources, references = lines_of(made)
    lines = [f"mine: {line}" for line in references]
    for seed, texts in ((0, lines), (1, references)):
        made.add("mine", hypotheses=texts, seed=seed)
    (table,) = samples(made.runs())
    assert len(table.rows) == 20
    places = [int(row[0].text) - 1 for row in table.rows]
    assert places[0] == 0
    assert places[-1] >= len(lines) * 2 // 3
    assert [[cell.text for cell in row[1:]] for row in table.rows] == [
        [sources[i], references[i], lines[i]] for i in places
    ]
    assert not samples(made.runs(sentences=[4])), "the grid has chosen"
    made.add("other", hypotheses=references)
    assert not samples(made.runs()), "two systems are shown side by side"
    made.corpus("songs", num_test=9).add("mine", corpus="songs")
    (table,) = samples(made.runs())
    assert len(table.rows) == 10, "all lines, and one of each length"


def test_the_largest_gains_and_losses_are_shown(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repose.report.sentences._EACH_WAY", 2)
    sources, references = lines_of(made)
    base, good = list(references), list(references)
    for i, worse in ((3, 0.2), (7, 0.9), (11, 0.5)):  # share of the characters that base has lost
        base[i] = references[i][int(worse * len(references[i])) :]
    good[20] = "?"
    made.add("base", hypotheses=base)
    made.add("good", hypotheses=good)
    (found,) = side_by_side(made.runs("base"))
    assert found.id == "sentences"
    assert found.systems == ("base", "good")
    assert [one.number for one in found.sentences] == [8, 12, 21], "one loss only, and none where both are alike"
    first, _, last = found.sentences
    assert (first.src, first.reference) == (sources[7], references[7])
    assert first.hypotheses == (base[7], references[7])
    assert first.scores == (pytest.approx(chrf([base[7]], [references[7]]).value), pytest.approx(100))
    assert last.hypotheses == (references[20], "?")


def test_seeds_are_averaged_and_the_typical_one_is_shown(made: Any) -> None:
    """Sentence 5 is bad in one seed of three, sentence 9 somewhat worse in all: of 5, most seeds say the same."""
    _, references = lines_of(made)
    for seed in range(3):
        made.add("good", hypotheses=references, seed=seed)
    for seed in range(3):
        lines = list(references)
        lines[5] = "?" if seed == 1 else references[5]
        lines[9] = references[9][: len(references[9]) // (2 + seed)]
        made.add("base", hypotheses=lines, seed=seed)
    runs = made.runs("base")
    (found,) = side_by_side(runs)
    assert [one.number for one in found.sentences] == [10]
    kept = [hypotheses_of(run)[9] for run in runs.done("base", "tales")]
    scores = [chrf([line], [references[9]]).value for line in kept]
    typical = int(np.abs(np.array(scores) - np.mean(scores)).argmin())
    assert found.sentences[0].hypotheses[0] == kept[typical]
    assert found.sentences[0].scores[0] == pytest.approx(scores[typical])
    assert "averaged over seeds" in found.caption
    assert "left out if the translations shown do not differ in the same direction" in found.caption


def test_the_baseline_stands_beside_the_best_other(made: Any) -> None:
    made.add("bad", wrong=0.6)
    made.add("base", wrong=0.4)
    made.add("good", wrong=0.2)
    made.add("cheat", wrong=0.0, overrides=["architecture.decoder_token_norm=sentence"])
    runs = made.runs("base")
    assert side_by_side(runs)[0].systems == ("base", "good")
    assert side_by_side(made.runs())[0].systems == ("bad", "good"), "no baseline: the first"
    (found,) = side_by_side(runs)
    assert len(found.sentences) == 10
    assert all(one.scores[1] > one.scores[0] for one in found.sentences[:5])
    assert all(one.scores[1] < one.scores[0] for one in found.sentences[5:])


def test_repeated_sentences_are_shown_once(made: Any) -> None:
    made.corpus("tales")
    for path in (made.folder.parent / "texts" / "tales").glob("test.*"):
        lines = path.read_text(encoding="utf-8").splitlines()
        path.write_text("".join(line + "\n" for line in [*lines[:2], lines[1], *lines[3:]]), encoding="utf-8")
    _, references = lines_of(made)
    bad = list(references)
    bad[1] = bad[2] = "?"
    made.add("base", hypotheses=bad)
    made.add("good", hypotheses=references)
    assert [one.number for one in side_by_side(made.runs("base"))[0].sentences] == [2]


def test_missing_texts_are_said(made: Any) -> None:
    for system in ("base", "good"):
        folder = made.add(system)
        write_statistics(folder)
        shutil.rmtree(folder / "hypotheses")
    (found,) = side_by_side(made.runs("base"))
    assert found.sentences == ()
    assert found.caption.startswith("No sentences can be shown: the translations (hypotheses/test.beam4.txt)")


def test_systems_that_say_the_same_are_said_to(made: Any) -> None:
    _, references = lines_of(made)
    for name in ("base", "good"):
        made.add(name, hypotheses=references)
    (found,) = side_by_side(made.runs("base"))
    assert (found.sentences, found.caption) == ((), "chrF does not distinguish base and good on any sentence.")


def test_one_system_has_nothing_beside_it(made: Any) -> None:
    made.add("base")
    assert side_by_side(made.runs()) == ()
