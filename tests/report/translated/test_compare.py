"""Two systems compared from Python."""

import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import repose
from repose.report.build import build
from repose.report.significance import significance_tables
from repose.system.errors import CheckpointError, ConfigError, DataError


def test_figures_are_those_of_the_report(made: Any) -> None:
    folders = {
        system: [made.add(system, wrong=wrong, seed=seed) for seed in range(3)]
        for system, wrong in (("base", 0.3), ("good", 0.2))
    }
    tables = {table.id: table for table in significance_tables(made.runs("base"))}
    found = repose.compare(folders["good"], list(map(str, folders["base"])))
    (row,) = tables["significance"].rows
    sentences = found.sentences
    assert (sentences.value, sentences.p) == (row[4].value, row[7].value)
    (row,) = tables["seeds"].rows
    assert found.seeds is not None
    assert (found.seeds.value, found.seeds.p) == (row[4].value, row[7].value)
    assert (len(found.scores), len(found.other_scores), found.metric) == (3, 3, "bleu")
    assert found.safe == (max(sentences.p, found.seeds.p) <= 0.05)
    back = repose.compare(folders["base"], folders["good"], metric="chrf")
    assert back.sentences.value < 0
    greedy = repose.compare(folders["good"], folders["base"], decoding="greedy")
    assert greedy.sentences.value == 0.0, "all are the references"
    assert greedy.decoding == "greedy"
    alone = repose.compare(folders["good"][0], folders["base"][0])
    assert (alone.seeds, alone.safe) == (None, False)
    assert alone.notes == ()
    fast = made.add("fast", overrides=["training.learning_rate=0.25", "training.schedule=constant"])
    bad = made.add("bad", wrong=1.0)
    notes = repose.compare(fast, folders["base"][0]).notes
    assert notes[0].startswith("Settings besides the architecture that differ from those of tales-base-s0: ")
    assert "learning_rate 0.25 against" in notes[0]
    assert "below 1 BLEU" in repose.compare(bad, made.add("worse", wrong=1.0)).notes[0]
    for folder, code in ((folders["base"][0], "a" * 12), (folders["good"][0], "b" * 12)):
        config = json.loads((folder / "config.json").read_text())
        config["versions"] = {"repose": "0.1.0", "code": code}
        (folder / "config.json").write_text(json.dumps(config))
    (note,) = repose.compare(folders["good"][0], folders["base"][0]).notes
    assert note.startswith("repose/model or repose/training was changed between these runs, started with bbbbbbbbbbbb ")


def test_a_base_that_hardly_reads_its_source_is_told(made: Any) -> None:
    base, good = made.add("base", wrong=0.5), made.add("good")
    for folder, gain in ((base, 0.05), (good, 0.5)):
        valid = {"kind": "valid", "update": 9, "epoch": 1, "tf_loss": 2.0, "source_gain": gain}
        epoch, *rest = (folder / "metrics.jsonl").read_text().splitlines()
        (folder / "metrics.jsonl").write_text("\n".join([epoch, json.dumps(valid), *rest]) + "\n")
    (note,) = repose.compare(good, base).notes
    said = " hardly used its source (`source_gain`), so differences from it are no effect sizes."
    assert note == "tales-base-s0" + said
    row = next(table for table in significance_tables(made.runs("base")) if table.id == "significance").rows[0]
    assert [list(cell.notes) for cell in row[:2]] == [[], ["base" + said]]


def test_searches_that_were_chosen_apart_are_told(made: Any) -> None:
    chosen = ["decoding.length_penalty=none"]
    for folder, penalty in (
        (base := made.add("base", overrides=chosen), 1.0),
        (good := made.add("good", overrides=chosen), 0.2),
    ):
        scores = json.loads((folder / "scores.test.json").read_text()) | {"decoding": {"length_penalty": penalty}}
        (folder / "scores.test.json").write_text(json.dumps(scores | {"decoding_chosen": []}))
    scores = json.loads((good / "scores.test.json").read_text()) | {"trained_on": 7}
    (good / "scores.test.json").write_text(json.dumps(scores))
    note, trained = repose.compare(good, base).notes
    assert "tales-good-s0 was trained on 7 of the " in trained
    assert note.startswith("On tales, runs were not decoded alike: ")
    assert "(length_penalty 0.2 or 1)" in note
    assert repose.compare(good, base, decoding="greedy").notes == (trained,), "greedy search has no length penalty"


def test_two_sides_that_are_seeds_of_one_system_are_told(made: Any) -> None:
    same = ["architecture.d_ff=24"]
    one, two = (
        [made.add(name, seed=seed, overrides=same) for seed in seeds] for name, seeds in (("a", (0, 1)), ("b", (2,)))
    )
    said = (
        "tales-a-s0 and tales-b-s2 have the same settings on tales, seeds aside: what differs between them is chance."
    )
    assert repose.compare(one, two).notes == (said,)
    assert build(made.runs("a")).warnings[0] == said.replace("tales-a-s0 and tales-b-s2", "a and b")
    config = json.loads((two[0] / "config.json").read_text())
    (two[0] / "config.json").write_text(json.dumps(config | {"digests": config["digests"] | {"train": "other pairs"}}))
    (note,) = repose.compare(one, two).notes
    assert note.endswith(": other training pairs.")


def test_two_sides_that_the_clock_ended_elsewhere_are_not_said_to_be_one_system(made: Any) -> None:
    one, two = (made.add(name, seed=seed, overrides=["architecture.d_ff=24"]) for seed, name in enumerate("ab"))
    records = (one / "metrics.jsonl").read_text().replace('"epochs"', '"max_hours"')
    (one / "metrics.jsonl").write_text(records)
    for update, notes in ((9, 1), (99, 0)):
        (two / "metrics.jsonl").write_text(records.replace('"update": 9,', f'"update": {update},'))
        assert len(repose.compare(one, two).notes) == notes


def test_settings_of_a_beam_do_not_matter_to_greedy_search(made: Any) -> None:
    settings = ["decoding.length_penalty=0.2", "decoding.no_repeat_ngram_size=3"]
    base, good = made.add("base"), made.add("good", wrong=0.3, overrides=settings)
    said = "Settings besides the architecture that differ from those of tales-base-s0: "
    (note,) = repose.compare(good, base).notes
    assert note == said + "length_penalty 0.2 against 0.6, no_repeat_ngram_size 3 against none."
    (note,) = repose.compare(good, base, decoding="greedy").notes
    assert note == said + "no_repeat_ngram_size 3 against none."
    tables = {table.id: table.rows[0][0].notes for table in significance_tables(made.runs("base"))}
    assert "length_penalty" in tables["significance"][0]
    assert "length_penalty" not in tables["significance-greedy"][0]


def test_no_difference_is_safe_where_neither_translates(made: Any) -> None:
    _, references = made.data().text("test")
    base, dead, mute = (
        [made.add(system, seed=seed, hypotheses=[*lines[: 80 - seed], *["a"] * (1 + seed)]) for seed in (0, 1)]
        for system, lines in (("base", references), ("dead", ["tree"] * 81), ("mute", ["on"] * 81))
    )
    found = repose.compare(dead, mute, metric="chrf")
    assert found.seeds is not None
    assert max(found.sentences.p, found.seeds.p) <= 0.05
    assert (found.neither_translates, found.safe) == (True, False)
    found = repose.compare(base, mute, metric="chrf")
    assert (found.neither_translates, found.safe) == (False, True)


def test_what_cannot_be_compared_is_told(made: Any) -> None:
    base, good = made.add("base"), made.add("good")
    other = made.corpus("news").add("base", corpus="news")
    low = made.add("low", lowercase=True)
    wide = made.add("wide", seed=1, overrides=["architecture.d_ff=24"])
    for runs, kind, says in (
        ((base, []), ConfigError, "other names no run"),
        ((base, None), ConfigError, "other names no run"),
        ((base, [good, str(good)]), ConfigError, "other names .*good-s0 twice: name it once"),
        ((base, base.parent), CheckpointError, "is not a run directory: name the directories of the runs themselves"),
        (([base, wide], good), DataError, "base-s0 and .*wide-s1 differ in more than their seed"),
        ((base, base), ConfigError, "base-s0 is on both sides"),
        ((base, other), DataError, "the runs are of several corpora, .*news"),
        ((base, low), DataError, "low-s0; it was scored with case:lc"),
    ):
        with pytest.raises(kind, match=says):
            repose.compare(*runs)
    with pytest.raises(ConfigError, match="metric 'ter'"):
        repose.compare(base, good, metric="ter")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="decoding is 'beam9': these runs can be compared by beam4 or greedy"):
        repose.compare(base, good, decoding="beam9")
    (good / "state").mkdir()
    state = json.dumps({"done": None})
    head = {"state": state, "state_crc32": f"{zlib.crc32(state.encode()):08x}"}
    save_file({"weight": np.zeros(1, np.float32)}, good / "state" / "last.safetensors", metadata=head)
    with pytest.raises(DataError, match=r"good-s0 is not finished: let it finish first$"):
        repose.compare(base, good)
    (good / "state" / "last.safetensors").unlink()
    (good / "hypotheses" / "test.beam4.txt").unlink()
    with pytest.raises(DataError, match="good-s0; "):
        repose.compare(base, good)


def without(folder: Path, decoding: str) -> Path:
    """A run whose translations of one search were never made."""
    path = folder / "scores.test.json"
    scores = json.loads(path.read_text())
    del scores["decoded"][decoding]
    path.write_text(json.dumps(scores))
    return folder


def test_the_decoding_of_a_comparison_can_be_given_back(made: Any) -> None:
    pair = [made.add("base"), made.add("good")]
    greedy = [without(made.add(name), "beam4") for name in ("one", "two")]
    for runs, decodings in ((pair, (None, "beam4", "greedy")), (greedy, (None, "greedy"))):
        for decoding in decodings:
            found = repose.compare(*runs, decoding=decoding)
            assert found.decoding == (decoding or decodings[1])
            assert repose.compare(*runs, decoding=found.decoding) == found
    mixed = repose.compare(pair[0], greedy[0], decoding="greedy")
    assert mixed == repose.compare(pair[0], pair[1], decoding="greedy"), "whichever search the runs are compared by"
    with pytest.raises(DataError, match="it was decoded with greedy search, tales-base-s0 with beam 4"):
        repose.compare(pair[0], greedy[0])
    with pytest.raises(DataError, match="good-s0; it has no scores by greedy search"):
        repose.compare(pair[0], without(pair[1], "greedy"), decoding="greedy")


def test_a_copy_of_a_run_is_not_compared_with_it(made: Any) -> None:
    folder = made.add("base")
    copy = folder.parent / "copies" / folder.name
    shutil.copytree(folder, copy)
    with pytest.raises(DataError, match="two hold the same run"):
        repose.compare(folder, copy)
