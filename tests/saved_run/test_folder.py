"""Run directories: what is written can be read, and damage is reported in one sentence."""

import dataclasses
import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import repose
from repose.config.experiment import Experiment, TrainingConfig
from repose.report.collect import read_run
from repose.saved_run.folder import RunConfig, RunFolder, about_model, unfinished
from repose.saved_run.records import DataRecord, EndReason, EndRecord, RunStatus, hardly_reads, parse
from repose.system.errors import CheckpointError, WriteError
from repose.system.files import sealed, write_json

DATA = DataRecord(
    examples={"train": 71, "valid": 8, "test": 12},
    tokens={"train": {"src": 2544, "tgt": 2170}},
    vocabulary={"src": 300, "tgt": 290},
    dropped={"train": {"source longer than 60 tokens": 1}},
)
END = EndRecord(
    status=RunStatus.STOPPED,
    reason=EndReason.SIGTERM,
    update=9,
    epoch=2,
    seconds=1.5,
    at="2026-11-22 02:43:12",
)
EPOCH = {"kind": "epoch", "update": 8, "epoch": 1, "nll": 5.3, "wall": {"seconds": 0.2}}
SCORES: dict[str, Any] = {
    "run_id": "0123456789ab",
    "num_sentences": 2,
    "decoded": {"greedy": {"bleu": {"value": 12.5, "signature": "x"}}},
}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A finished run, as far as a reader can tell."""
    found = RunFolder(tmp_path / "run")
    found.write_new_config(
        RunConfig(
            run_id="0123456789ab",
            experiment=Experiment(),
            digests={"train": "t"},
            data="d" * 16,
            report=("train: 71 pairs",),
            versions={"repose": "0.1.0"},
        )
    )
    lines = (DATA.to_json(), EPOCH, END.to_json())
    found.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found.write_scores("test", SCORES, {"greedy": ["first\r", "two\nlines"]})
    return found


def test_translations_of_an_earlier_evaluation_go_with_its_scores(run: RunFolder) -> None:
    run.hypotheses_file("test", "my.notes").write_text("mine")
    run.write_scores("valid", SCORES, {"greedy": ["a"]})
    run.write_scores("test", SCORES, {"beam2": ["first"], "beam12": ["first"]})
    run.write_scores("test", SCORES, {"beam4": ["first"]})
    names = {path.name for path in run.hypotheses_folder.iterdir()}
    assert names == {"valid.greedy.txt", "test.beam4.txt", "test.my.notes.txt"}
    for decoding in ("greedy", "beam4"):
        run.write_scores("[set] 1", SCORES, {decoding: ["a"]})
    assert {path.name for path in run.hypotheses_folder.glob("*set*")} == {"[set] 1.beam4.txt"}


def test_what_is_written_is_read(run: RunFolder) -> None:
    config, records = run.config(), run.records()
    assert (config.run_id, config.experiment, config.report) == ("0123456789ab", Experiment(), ("train: 71 pairs",))
    assert (records.data, records.end, records.training) == (DATA, END, (EPOCH,))
    assert records.status is RunStatus.STOPPED
    split, scores = run.main_scores() or ("", {})
    assert (split, {name: scores[name] for name in SCORES}) == ("test", SCORES)
    assert run.hypotheses("test", "greedy") == ["first\r", "two lines"]
    assert {path.name for path in run.path.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "scores.test.json",
        "hypotheses",
    }


def test_a_run_knows_that_equations_were_changed_since(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(versions: dict[str, str]) -> bool:
        config = dataclasses.replace(run.config(), versions=versions)
        write_json(run.config_file, sealed(config.to_json()))
        return run.has_other_code

    monkeypatch.setattr("repose.saved_run.folder.model_code", lambda: "now")
    assert of({"repose": repose.__version__, "code": "before"})
    assert not of({"repose": repose.__version__, "code": "now"})
    assert not of({"repose": "0.0.1", "code": "before"})  # another version, whose "Numerics" say what has changed
    assert not of({"repose": repose.__version__})
    run.config_file.write_text("{")
    assert not run.has_other_code


def test_a_line_that_was_not_written_to_its_end_is_left_out(run: RunFolder) -> None:
    with run.metrics_file.open("a") as file:
        file.write('{"kind": "epoch", "upd')
    assert run.records().training == (EPOCH,)


def test_a_run_that_has_only_begun(run: RunFolder) -> None:
    run.metrics_file.write_text(json.dumps(DATA.to_json()) + "\n")
    assert run.records(may_be_empty=True).data == DATA
    assert run.records(may_be_empty=True).status is RunStatus.UNFINISHED
    with pytest.raises(CheckpointError, match="has recorded nothing yet: let it train for an epoch first"):
        run.records()


NESTED = "[" * 100_000
BAD_JSON = ("", "{", "[]", "3", "null", '"x"', NESTED, "\x00" * 40, '{"a": "\ud800"')
DAMAGES: dict[str, tuple[str, tuple[str, ...], Callable[[RunFolder], object]]] = {
    "config.json": (
        "restore it, or choose another directory",
        (*BAD_JSON, "{}", '{"experiment": 3}', '{"experiment": {"training": 3}}', '{"experiment": {}, "digests": 3}'),
        RunFolder.config,
    ),
    "metrics.jsonl": (
        "restore it, or leave",
        tuple(
            text + "\n"
            for text in (
                *(text for text in BAD_JSON if text),
                "\x00" * 40 + json.dumps(EPOCH),
                '{"kind": "epoch"}',
                '{"kind": "epoch", "update": null, "epoch": 1}',
                '{"kind": "data", "pairs": 3}',
                '{"kind": "end", "status": "over", "reason": "epochs"}',
            )
        ),
        RunFolder.records,
    ),
    "scores.test.json": (
        "delete it, and run the same training command again",
        (*BAD_JSON, "{}", '{"decoded": 3}', '{"decoded": {}, "sha256": 3}'),
        lambda run: run.scores("test"),
    ),
}


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    ("name", "content"),
    [(name, content) for name, (_, contents, _) in DAMAGES.items() for content in contents],
    ids=lambda text: text[:30].strip() or "empty",
)
def test_damaged_files_are_one_sentence(run: RunFolder, name: str, content: str) -> None:
    remedy, _, read = DAMAGES[name]
    path = run.path / name
    path.write_bytes(content.encode("utf-8", errors="surrogatepass"))
    with pytest.raises(CheckpointError) as caught:
        read(run)
    sentence = str(caught.value)
    assert str(path) in sentence
    assert "\n" not in sentence
    assert remedy in sentence or "experiment" in sentence or "training" in sentence


def test_a_changed_byte_of_scores_or_translations_is_noticed(run: RunFolder) -> None:
    for path, read in (
        (run.hypotheses_file("test", "greedy"), lambda: run.hypotheses("test", "greedy")),
        (run.scores_file("test"), lambda: run.scores("test")),
    ):
        whole = path.read_bytes()
        path.write_bytes(whole.replace(b"12.5", b"13.5").replace(b"first", b"fist\n"))
        with pytest.raises(CheckpointError, match=r"run the same training command again"):
            read()
        path.unlink()
        path.write_bytes(whole)
        read()


def test_missing_files(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "none")
    assert not run.exists
    assert run.scores("test") is None is run.main_scores()
    assert run.num_parameters() is None
    with pytest.raises(CheckpointError, match=r"is not a run directory: it has no config\.json"):
        run.config()
    with pytest.raises(CheckpointError, match=r"is not a run directory: it has no metrics\.jsonl"):
        run.records()
    with pytest.raises(CheckpointError, match="cannot be read"):
        run.hypotheses("test", "greedy")


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match=r"file.scores\.test\.json cannot be written"):
        RunFolder(tmp_path / "file").write_scores("test", SCORES, {})


def test_reasons_are_sentences_once() -> None:
    training = TrainingConfig(epochs=3, patience=2, max_hours=1.5)
    assert [reason.describe(training) for reason in EndReason][1:7] == [
        "3 epochs",
        "1.5 hours",
        "no better validation loss in 2 validations",
        "--stop-after",
        "as many epochs as asked for",
        "SIGINT",
    ]
    assert EndReason.HOURS.describe(TrainingConfig(max_hours=1 / 60)) == "1 minute"
    assert EndReason.HOURS.describe(TrainingConfig(max_hours=0.5)) == "30 minutes"


def test_records_of_other_kinds_are_kept() -> None:
    text = json.dumps({"kind": "new", "update": 1, "epoch": 1})
    assert [record["kind"] for record in parse(text).training] == ["new"]


def test_records_that_changed_after_the_training_ended_are_damaged(run: RunFolder) -> None:
    begin = "".join(json.dumps(line) + "\n" for line in (DATA.to_json(), EPOCH))
    whole = begin + json.dumps(END.checked(zlib.crc32(begin.encode())).to_json()) + "\n"
    run.metrics_file.write_text(whole)
    assert run.records().status is RunStatus.STOPPED
    for old, new in (("5.3", "5.4"), ("71", "72"), ('"update": 9', '"update": 8')):
        run.metrics_file.write_text(whole.replace(old, new))
        with pytest.raises(CheckpointError, match="damaged"):
            run.records()


def test_scores_beside_records_without_an_end(run: RunFolder) -> None:
    """Of a training that is not over they are those of `repose evaluate --out`; a finished one has lost its end."""
    run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in (DATA.to_json(), EPOCH)))
    run.state.mkdir()
    for state in (None, {"done": "epochs"}, {}):
        if state is not None:
            with_state(run, **state)
        with pytest.raises(CheckpointError, match=r"metrics\.jsonl is damaged"):
            run.records()
    with_state(run, done=None)
    assert run.records().status is RunStatus.UNFINISHED
    assert (read_run(run.path, None).scores, read_run(run.path, None).status) == (None, "unfinished")
    run.checkpoint.write_bytes(b"\xff" * 20)
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl is damaged"):
        run.records()


def test_scores_name_their_run_where_a_training_has_recorded_something(run: RunFolder) -> None:
    assert run.other_run("fedcba987654", by_scores=True) == "0123456789ab"
    assert run.other_run("0123456789ab", by_scores=True) is None
    assert run.other_run("fedcba987654") is None
    run.metrics_file.unlink()
    assert run.other_run("fedcba987654", by_scores=True) is None, "those of `repose evaluate --out`"


def test_a_folder_with_a_file_that_no_run_writes_is_a_run_where_it_has_its_config(run: RunFolder) -> None:
    with_state(run, done=None)
    (run.path / "notes.txt").write_text("mine")
    assert run.other_file() is None
    run.config_file.unlink()
    assert run.other_file() == "notes.txt"
    (run.path / "notes.txt").unlink()
    for name in ("train.log", "trained-on.npz", "statistics.test.npz", ".config.json.1a.tmp"):
        (run.path / name).write_text("")
    assert run.other_file() is None


def test_settings_that_changed_are_damaged(run: RunFolder) -> None:
    text = run.config_file.read_text()
    run.config_file.write_text(text.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(CheckpointError, match="damaged"):
        run.config()


def with_state(run: RunFolder, **state: Any) -> None:
    """A model, and a checkpoint of a training that is over or not."""
    run.model.mkdir(exist_ok=True)
    run.state.mkdir(exist_ok=True)
    save_file({"weight": np.zeros((2, 3), np.float32)}, run.model / "model.safetensors", metadata={"format": "np"})
    text = json.dumps(state)
    head = {"state": text, "state_crc32": f"{zlib.crc32(text.encode()):08x}"}
    save_file({"weight": np.zeros(1, np.float32)}, run.checkpoint, metadata=head)


def test_what_is_known_of_a_model_by_its_run(run: RunFolder, tmp_path: Path) -> None:
    with_state(run, done=None)
    bleu = {"value": 21.5, "signature": "s"}
    run.write_scores("test", {"num_sentences": 9, "decoded": {"greedy": {"bleu": bleu, "unfinished": 1}}}, {})
    scores = {"split": "test", "num_sentences": 9, "decoded": {"greedy": {"bleu": bleu}}}
    assert about_model(run.model) == {"parameters": 6, "finished": False, "scores": scores}
    run.write_scores("test", {"num_sentences": 9, "trained_on": 7, "decoded": {"greedy": {"bleu": bleu}}}, {})
    warning = "The model was trained on 7 of these sources, so its scores may be too high."
    assert about_model(run.model)["scores"] == {**scores, "warning": warning}
    assert str(run.path) in str(unfinished(run.model))
    with_state(run, done="epochs")
    assert about_model(run.model)["finished"] is True
    assert unfinished(run.model) is None
    run.scores_file("test").write_text("{")
    assert about_model(run.model)["scores"] is None

    with_state(run, done=None, workers=3)
    assert run.workers == 3
    content = run.checkpoint.read_bytes()
    run.checkpoint.write_bytes(content.replace(b'workers\\": 3', b'workers\\": 4'))
    assert run.checkpoint.read_bytes() != content
    assert run.workers is None, "a changed state is none"
    run.checkpoint.write_bytes(content)
    (tmp_path / "best").symlink_to(run.model)
    assert unfinished(tmp_path / "best"), "by a link to it"
    shutil.copytree(run.model, run.path / "model of yesterday")
    assert unfinished(run.path / "model of yesterday") is None
    elsewhere = tmp_path / "large disk" / "model 17"
    elsewhere.parent.mkdir()
    run.model.rename(elsewhere)
    run.model.symlink_to(elsewhere)
    assert unfinished(run.model), "by a link, too"
    handed_on = tmp_path / "elsewhere"
    shutil.copytree(run.model, handed_on)
    assert about_model(handed_on) == {"parameters": 6, "finished": None, "scores": None}
    assert unfinished(handed_on) is None
    run.checkpoint.unlink()
    assert run.workers is None


@pytest.mark.parametrize(("penalty", "has_to_choose"), [(None, True), (0.6, False)])
def test_a_model_whose_search_is_not_chosen_may_still_change(
    run: RunFolder, penalty: float | None, has_to_choose: bool
) -> None:
    with_state(run, done="epochs")
    write_json(run.model / "config.json", {"format_version": 1, "decoding": {"length_penalty": penalty}})
    assert about_model(run.model)["finished"] is not has_to_choose
    assert ("is not chosen yet" in str(unfinished(run.model))) == has_to_choose


def test_no_gain_from_the_source_is_no_negative_zero() -> None:
    assert "predicts 0.00 nats" in hardly_reads(-0.001)
    assert "predicts -0.02 nats" in hardly_reads(-0.02)
