"""The settings of runs in a report, and what it says about systems that were trained differently."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repose.report.build import build
from repose.report.collect import read_runs
from repose.report.differences import mixed_code
from repose.report.tables_costs import runs_table
from repose.report.tables_scores import scores_table
from repose.report.tables_settings import check_table, settings_table
from repose.saved_run.records import DataRecord

FINDING = {"kind": "repeated", "split": "train", "count": 440, "of": 1000, "line": 12}


def lines(tmp_path: Path) -> dict[tuple[str, str], str]:
    return {(row[0].text, row[1].text): row[2].text for row in settings_table(read_runs([tmp_path])).rows}


def test_common_settings_stand_once_and_own_ones_with_their_system(make_run: Any, tmp_path: Path) -> None:
    for seed in (0, 1):
        make_run(f"plain-s{seed}", [2.0], seed=seed)
        make_run(f"fast-s{seed}", [2.0], seed=seed, settings=["training.learning_rate=0.5", "architecture.norm=pre"])
    found = lines(tmp_path)
    assert "batch_size" in found["all", "batches"]
    assert "beam_size 4, length_penalty 0.6" in found["all", "decoding"]
    assert found["all", "versions"] == "repose 0.1.0, torch 2.13.0"
    assert "1,000 pairs of 7,000 source" in found["multi30k de-en", "data"]
    assert found["fast", "learning rate"] == "learning_rate 0.5"
    assert found["fast", "architecture"] == "norm pre"
    assert found["plain", "architecture"] == "norm post"
    assert "learning_rate" not in found["all", "learning rate"]
    assert not any("seed" in text.split() for text in found.values())


def test_a_setting_may_differ_by_corpus_and_data_by_system(make_run: Any, make_grid: Any, tmp_path: Path) -> None:
    make_run("grid/x-de-s0", [2.0, 1.0])
    make_run("grid/x-fr-s0", [2.0], settings=["corpus.tgt_lang=fr"])
    make_run("grid/y-fr-s0", [2.0], settings=["corpus.tgt_lang=fr"], report=["train: 9 pairs"])
    places = [("x", "de"), ("x", "fr"), ("y", "fr")]
    make_grid("grid", [(f"{x}-{to}-s0", {"system": x, "corpus": to}, None, "done", "") for x, to in places])
    found = lines(tmp_path)
    assert found["x", "length of the training"] == "epochs 2 on de; 1 on fr"
    assert found["fr", "data of y"] == "train: 9 pairs"


def with_search(folder: Path, chosen: bool = True, **how: Any) -> None:
    """Record how a run was decoded, and whether that was chosen on the validation set."""
    scores = folder / "scores.test.json"
    found = {"decoding": how} | ({"decoding_chosen": []} if chosen else {})
    scores.write_text(json.dumps(json.loads(scores.read_text()) | found))


def test_a_search_that_was_chosen_is_shown_as_it_acted(make_run: Any, tmp_path: Path) -> None:
    """Seeds and systems may then have other length penalties, or forbid repeats, which greedy search does as well."""
    chosen = ["decoding.length_penalty=none"]
    with_search(make_run("plain-s0", [2.0], settings=chosen), length_penalty=1.0)
    with_search(make_run("wide-s0", [2.0], settings=[*chosen, "architecture.d_ff=24"]), length_penalty=1.0)
    assert "length_penalty 1 (chosen)" in lines(tmp_path)["all", "decoding"]
    assert scores_table(read_runs([tmp_path])).remarks == []
    other = make_run("plain-s1", [2.0], seed=1, settings=chosen)
    with_search(other, length_penalty=0.2, no_repeat_ngram_size=5)
    with_search(make_run("set-s0", [2.0], settings=["architecture.d_ff=32"]), chosen=False, length_penalty=0.6)
    found, table = lines(tmp_path), scores_table(read_runs([tmp_path]))
    own = "length_penalty 0.2 (chosen) or 1 (chosen) on multi30k de-en, no_repeat_ngram_size 5 (chosen) or none"
    assert found["plain", "decoding"].startswith(own)
    assert found["wide", "decoding"] == "length_penalty 1 (chosen), no_repeat_ngram_size none"
    assert found["set", "decoding"] == "length_penalty 0.6, no_repeat_ngram_size none"
    (remark,) = table.remarks
    assert remark.startswith(
        "On multi30k de-en, runs were not decoded alike: how to search was chosen for each by itself"
    )
    assert "(length_penalty 0.2 or 1, no_repeat_ngram_size 5 or none)" in remark
    notes = {row[0].text: row[0].notes for row in table.rows}
    assert notes["wide"] == [], "what is chosen in the same way is no other setting"
    assert "length_penalty 0.6 against chosen" in notes["set"][0]


def test_a_search_taken_from_the_model_before_is_shown_as_such(make_run: Any, tmp_path: Path) -> None:
    folder = make_run("plain-s0", [2.0], settings=["decoding.length_penalty=none"])
    assert "length_penalty chosen" in lines(tmp_path)["all", "decoding"], "it is not recorded how"
    with_search(folder, chosen=False, length_penalty=0.0)
    assert "length_penalty 0 (of the model before)" in lines(tmp_path)["all", "decoding"]
    other = ["decoding.length_penalty=none", "architecture.d_ff=24", "training.init_from=other"]
    with_search(make_run("tuned-s0", [2.0], settings=other), chosen=False, length_penalty=1.5)
    (remark,) = scores_table(read_runs([tmp_path])).remarks
    assert "for each by itself, on its validation set or that of the model it started from (" in remark


def test_repeats_that_were_forbidden_by_a_setting_were_not_chosen(make_run: Any, tmp_path: Path) -> None:
    forbids = ["decoding.length_penalty=none", "decoding.no_repeat_ngram_size=3"]
    with_search(make_run("plain-s0", [2.0], settings=forbids), length_penalty=1.0, no_repeat_ngram_size=3)
    assert "length_penalty 1 (chosen), no_repeat_ngram_size 3, " in lines(tmp_path)["all", "decoding"]


def test_systems_that_were_trained_on_their_test_set_are_warned_of(make_run: Any, tmp_path: Path) -> None:
    """As one that starts from a model whose training pairs had it."""
    for name, number in (("clean-s0", 0), ("tuned-s0", 60), ("tuned-s1", 60)):
        settings = ["architecture.d_ff=24"] * (number > 0)
        scores = make_run(name, [2.0], seed=int(name[-1]), settings=settings) / "scores.test.json"
        if number:
            found = {"trained_on": number, "num_sentences": 1000}
            scores.write_text(json.dumps(json.loads(scores.read_text()) | found))
    said = "On multi30k de-en, tuned was trained on 60 of the 1,000 test sources, so its scores may be too high."
    assert [text for text in build(read_runs([tmp_path])).warnings if "trained on" in text] == [said]


def test_runs_that_were_begun_with_unlike_code_are_told(make_run: Any, tmp_path: Path) -> None:
    for name, version, code in (
        ("x-s0", "1", "old"),
        ("x-s1", "1", "new"),
        ("y-s0", "1", "old"),
        ("z-s0", "2", "other"),
    ):
        config = make_run(name, [2.0], seed=int(name[-1])) / "config.json"
        versions = {"repose": version, "code": code}
        config.write_text(json.dumps(json.loads(config.read_text()) | {"versions": versions}))
    runs = read_runs([tmp_path]).runs
    assert mixed_code(runs) == [
        "repose/model or repose/training was changed between these runs, started with old (such as x-s0) and new (such "
        "as x-s1): if the change alters what they compute, train the others again."
    ]
    assert mixed_code([run for run in runs if run.name != "x-s1"]) == []  # another version says so itself
    assert mixed_code([replace(run, corpus=run.name) for run in runs]) == []  # nobody compares them


def test_scores_of_systems_that_were_trained_otherwise_carry_a_note(make_run: Any, tmp_path: Path) -> None:
    make_run("plain-s0", [2.0])
    make_run("deep-s0", [2.0], settings=["architecture.num_encoder_layers=2", "training.save_every_minutes=3"])
    make_run("fast-s0", [2.0], settings=["training.learning_rate=0.5", "tokenizer.vocab_size=77"])
    table = scores_table(read_runs([tmp_path], baseline="plain"))
    notes = {row[0].text: row[0].notes for row in table.rows}
    assert notes["plain"] == notes["deep"] == []
    (note,) = notes["fast"]
    assert note.startswith("Settings besides the architecture that differ from those of plain: vocab_size 77 against ")
    assert "learning_rate 0.5 against" in note


@pytest.mark.parametrize(
    ("settings", "note"),
    [
        (["architecture.dropout=0.3"], "dropout 0.3 against 0.1"),
        (["architecture.initialisation=fairseq"], "initialisation fairseq against keras"),
        (["architecture.d_token=32"], "schedule_width 32 against 16"),
        (["architecture.d_token=32", "training.schedule_width=16"], ""),
        (["training.schedule_width=16"], ""),
        (["training.schedule_width=64"], "schedule_width 64 against 16"),
    ],
)
def test_what_acts_in_training_is_noted_and_widths_as_they_act(
    settings: list[str], note: str, make_run: Any, tmp_path: Path
) -> None:
    noam = "training.schedule=noam"
    make_run("plain-s0", [2.0], settings=[noam])
    make_run("other-s0", [2.0], settings=[noam, *settings])
    notes = {row[0].text: row[0].notes for row in scores_table(read_runs([tmp_path], baseline="plain")).rows}
    assert notes["other"] == [f"Settings besides the architecture that differ from those of plain: {note}."] * bool(
        note
    )


@pytest.mark.parametrize("best_by", ["loss", "chrf"])
def test_sentences_that_are_translated_are_a_setting_where_weights_are_kept_by_chrf(
    best_by: str, make_run: Any, tmp_path: Path
) -> None:
    kept = [f"training.best_by={best_by}", "training.bleu_every_epochs=1"]
    for name, number in (("plain", 10), ("other", 20)):
        make_run(f"{name}-s0", [2.0], settings=[*kept, f"training.bleu_sentences={number}"])
    notes = {row[0].text: row[0].notes for row in scores_table(read_runs([tmp_path], baseline="plain")).rows}
    note = "Settings besides the architecture that differ from those of plain: bleu_sentences 20 against 10."
    assert notes["other"] == [note] * (best_by == "chrf")


def test_other_training_pairs_carry_a_note(make_run: Any, tmp_path: Path) -> None:
    same = {"src": "s", "tgt": "t", "train": "one"}
    make_run("plain-s0", [2.0], digests=same)
    make_run("deep-s0", [2.0], settings=["architecture.num_encoder_layers=2"], digests=same)
    layers = "architecture.num_decoder_layers"
    make_run("less-s0", [2.0], settings=[f"{layers}=2"], digests={**same, "train": "two"})
    make_run("cut-s0", [2.0], settings=[f"{layers}=3"], digests={"src": "s2", "tgt": "t2", "train": "three"})
    make_run("synthetic-s0", [2.0], settings=['corpus.synthetic=["s.src", "s.tgt"]'], digests={**same, "train": "four"})
    also = 'corpus.also=[{train=["c.pt", "c.en"], tag="c"}]'
    make_run("both-s0", [2.0], settings=[also], digests={**same, "train": "five"})
    notes = {row[0].text: row[0].notes for row in scores_table(read_runs([tmp_path], baseline="plain")).rows}
    beside = "Settings besides the architecture that differ from those of plain: "
    assert notes == {
        "plain": [],
        "deep": [],
        "less": [f"{beside}other training pairs."],
        "cut": [],  # other tokens of what may be the same text
        "synthetic": [f"{beside}synthetic pairs true against false."],
        "both": [f"{beside}further corpora true against false."],
    }


@pytest.mark.parametrize(("why", "noted"), [("max_hours", True), ("epochs", False)])
def test_hours_are_another_setting_where_they_ended_a_training(
    why: str, noted: bool, make_run: Any, tmp_path: Path
) -> None:
    for name, hours in (("long", 4), ("short", 2)):
        folder = make_run(f"{name}-s0", [2.0], settings=[f"training.max_hours={hours}"])
        path = folder / "metrics.jsonl"
        path.write_text(path.read_text().replace('"reason": "epochs"', f'"reason": "{why}"'))
    notes = {row[0].text: row[0].notes for row in scores_table(read_runs([tmp_path], baseline="long")).rows}
    assert (
        notes["short"]
        == ["Settings besides the architecture that differ from those of long: max_hours 2 against 4."] * noted
    )


def test_a_run_of_less_than_an_epoch_is_known_by_its_updates(make_run: Any, tmp_path: Path) -> None:
    folder = make_run("x-s0", [2.0])
    records = [line for line in (folder / "metrics.jsonl").read_text().splitlines() if '"epoch", "' not in line]
    (folder / "metrics.jsonl").write_text("\n".join(records) + "\n")
    table = runs_table(read_runs([tmp_path]))
    place = [column.name for column in table.columns].index("state")
    assert table.rows[0][place].text == "done (10 updates, in epoch 1)"


def with_findings(folder: Path, *findings: dict[str, Any]) -> None:
    """Enter them in the first record of a run."""
    path = folder / "metrics.jsonl"
    data = DataRecord(examples={"train": 1000}, findings=findings)
    path.write_text(json.dumps(data.to_json()) + "\n" + path.read_text().partition("\n")[2])


def test_findings_of_a_corpus_are_told_once(make_run: Any, tmp_path: Path) -> None:
    for name in ("a-s0", "a-s1"):
        with_findings(make_run(name, [2.0], seed=int(name[-1])), FINDING, {**FINDING, "kind": "of a later version"})
    table = check_table(read_runs([tmp_path]))
    assert table is not None
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["multi30k de-en", "Repetitions of an earlier pair", "440 training pairs (44 %; first line 12)"]
    ]


def test_without_findings_there_is_no_such_table(make_run: Any, tmp_path: Path) -> None:
    make_run("a-s0", [2.0])
    assert check_table(read_runs([tmp_path])) is None


def test_settings_that_a_task_does_not_use_are_left_out() -> None:
    results = Path(__file__).parents[2] / "results"
    for task, unused in (
        ("language-modelling", ("num_encoder_layers", "encoder_token_norm", "max_src_tokens")),
        ("parsing", ("num_decoder_layers", "decoder_token_norm", "max_tgt_tokens")),
    ):
        text = " ".join(row[2].text for row in settings_table(read_runs([results / f"{task}-small"])).rows)
        for name in (*unused, "beam_size", "length_penalty", "bleu_sentences", "sharing", "long_pairs"):
            assert f"{name} " not in text, (task, name)
        assert "num_heads " in text
        assert "batch_size " in text
