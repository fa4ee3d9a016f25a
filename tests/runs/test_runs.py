"""A small run from corpus to scores, with the recipe of the Enhanced paper."""

import json
import os
import random
import re
import shutil
import signal
import unicodedata
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import repose
from repose.cli.tables import evaluation_table, run_table
from repose.config.file import load
from repose.data.dataset import PairDataset
from repose.evaluation.metrics import bleu
from repose.positions_rl.table import default_table
from repose.positions_rl.table import write as write_table
from repose.report.collect import read_runs
from repose.runs import run as runs
from repose.runs.run import RunResult, run
from repose.saved_model import directory
from repose.saved_run.folder import RunConfig, RunFolder, about_model, unfinished
from repose.system.errors import BusyError, CheckpointError, ConfigError, DataError
from repose.system.files import sealed, write_json
from repose.system.locks import locked_or_busy
from repose.tasks.corpus import prepare_corpus
from repose.tasks.decoding_choice import DecodingChoice
from repose.tasks.prepared import CorpusData
from repose.training.distributed import Outer
from repose.training.loop import Trainer

WORDS = ("red", "blue", "one", "two", "sun", "moon", "tree", "fish")
SMALL = [
    "corpus.name=none",
    "corpus.held_out_valid=12",
    "decoding.max_extra_tokens=3",
    *(f"architecture.{name}" for name in ("d_token=32", "num_heads=1", "head_dim=32", "d_ff=32")),
    *(f"architecture.{name}" for name in ("num_encoder_layers=1", "num_decoder_layers=1", "max_length=64")),
    *(f"architecture.{name}=0" for name in ("dropout", "attention_output_dropout")),
    *(f"training.{name}" for name in ("max_src_tokens=64", "max_tgt_tokens=64", "batch_size=4", "learning_rate=0.01")),
    *(f"training.{name}" for name in ("epochs=4", "bleu_mean_over=3")),
]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Settings that name a corpus in two sets: pieces of a counting rhyme, and the same in capitals."""
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    lines = [" ".join((WORDS * 2)[begin : begin + length]) for begin in range(8) for length in range(4, 9)]
    random.Random(1).shuffle(lines)
    settings = []
    for split, part in (("train", lines[:30]), ("test", lines[30:])):
        (tmp_path / f"{split}.tsv").write_text("".join(f"{line}\t{line.upper()}\n" for line in part), encoding="utf-8")
        settings.append(f'corpus.{split}=["{tmp_path / split}.tsv"]')
    return settings


def small(corpus: list[str], *overrides: str) -> Any:
    return load("enhanced-table1-printed", overrides=[*SMALL, *corpus, *overrides]).experiment


def valid_records(folder: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [record for record in records if record["kind"] == "valid"]


def test_bleu_of_every_epoch_and_its_mean(
    corpus: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = small(corpus)
    whole = run(experiment, tmp_path / "whole", device="cpu", workers=1, progress="none")
    for stop_after in (11, None):
        pieces = run(experiment, tmp_path / "pieces", device="cpu", workers=1, stop_after=stop_after, progress="none")
    assert whole.scores["split"] == "valid"
    names = ("bleu", "tf_bleu", "tf_bleu_sentence_mean")
    records = valid_records(tmp_path / "whole")
    assert [record["epoch"] for record in records if all(name in record for name in names)] == [1, 2, 3, 4]
    # The last weights are the model: its scores are those of the last epoch, freely translated and forced.
    last, forced = records[-1], whole.scores["teacher_forced"]
    assert whole.scores["decoded"]["greedy"]["bleu"]["value"] == pytest.approx(last["bleu"], abs=1e-9)
    assert {name: forced[name] for name in names[1:]} == pytest.approx({name: last[name] for name in names[1:]})
    assert last["bleu"] != last["tf_bleu"] != last["tf_bleu_sentence_mean"] > 0.0
    readme = tmp_path / "whole" / "model" / "README.md"
    card = readme.read_text(encoding="utf-8")
    assert f"| greedy | BLEU | {last['bleu']:.2f} |" in card
    # Killed between its scores and its card: the same command writes it. What somebody has written stays.
    for text, after in ((card.replace("## Scores", "## Results"), card), (card + "mine\n", card + "mine\n")):
        readme.write_text(text, encoding="utf-8")
        run(experiment, tmp_path / "whole", device="cpu", workers=1, progress="none")
        assert readme.read_text(encoding="utf-8") == after
    means = whole.scores["over_validations"]
    assert (means["num_validations"], means["num_sentences"], means["last_epoch"]) == (3, 12, 4)
    for name in names:
        assert means[name]["mean"] == pytest.approx(sum(record[name] for record in records[1:]) / 3)
    # Stopping and going on changes none of it.
    assert pieces.outcome.status == "done"
    assert pieces.scores == whole.scores
    run_table(tmp_path / "whole", whole)
    shown = capsys.readouterr().out
    assert re.match(rf"finished in \d+ s: a model of [\d,]+ parameters, in {tmp_path}/whole/model\n", shown)
    assert "mean and deviation of 3 validations, epochs 2 to 4, 12 sentences" in shown
    forced_mean = f"{means['tf_bleu']['mean']:.2f} ± {means['tf_bleu']['sd']:.2f}"
    assert forced_mean not in shown
    evaluation_table(whole.scores, every=True)
    assert forced_mean in capsys.readouterr().out


def test_fewer_sentences_and_no_translations(corpus: list[str], tmp_path: Path) -> None:
    few = small(corpus, "training.bleu_sentences=3", "training.bleu_every_epochs=2")
    scores = run(few, tmp_path / "few", device="cpu", workers=1, progress="none").scores
    assert scores is not None
    assert scores["num_sentences"] == 12
    means = scores["over_validations"]
    assert (means["num_sentences"], means["num_validations"], means["first_epoch"]) == (3, 2, 2)
    hypotheses = (tmp_path / "few" / "hypotheses" / "valid.greedy.txt").read_text(encoding="utf-8").splitlines()
    references = prepare_corpus(few).text("valid")[1]
    expected = bleu(hypotheses[:3], references[:3], lowercase=True).value
    assert valid_records(tmp_path / "few")[-1]["bleu"] == pytest.approx(expected, abs=1e-9)
    assert expected != pytest.approx(scores["decoded"]["greedy"]["bleu"]["value"], abs=0.1)
    none = small(corpus, "training.bleu_every_epochs=none")
    scores = run(none, tmp_path / "none", device="cpu", workers=1, progress="none").scores
    assert scores is not None
    assert "over_validations" not in scores
    assert scores["run_id"] == json.loads((tmp_path / "few" / "scores.valid.json").read_text())["run_id"]


def test_a_position_table_is_read_where_positions_are_a_policys_and_nowhere_else(tmp_path: Path) -> None:
    shipped = runs._position_table(load(None, overrides=["architecture.positions=policy"]).experiment)
    assert shipped is not None
    assert shipped.digest == default_table().digest
    other = replace(shipped, values=shipped.values[::-1].copy())
    write_table(tmp_path / "mine.json", other)
    mine = f"training.position_table={tmp_path / 'mine.json'}"
    found = runs._position_table(load(None, overrides=["architecture.positions=policy", mine]).experiment)
    assert found is not None
    assert found.digest == other.digest != shipped.digest
    assert runs._position_table(load(None).experiment) is None
    with pytest.raises(ConfigError, match="remove it, or set positions"):
        runs._position_table(load(None, overrides=[mine]).experiment)
    start = ["architecture.positions=policy", "training.init_from=runs/mine", mine]
    with pytest.raises(ConfigError, match=r"no effect on the model of training\.init_from, which has a table"):
        runs._position_table(load(None, overrides=start).experiment)


def interrupted(name: str, after: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is interrupted as it begins."""

    def first(*arguments: Any, **named: Any) -> Any:
        os.kill(os.getpid(), getattr(signal, name))
        return after(*arguments, **named)

    return first


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGINT"])
def test_signals_while_preparing_and_scoring_stop_the_run(
    corpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    experiment = small(corpus, "training.bleu_every_epochs=none", "training.epochs=1")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)}

    def go() -> RunResult:
        return run(experiment, tmp_path / "run", device="cpu", workers=1, progress="none")

    for where, update in (("prepare_corpus", 0), ("_evaluated", 1)):
        with monkeypatch.context() as patch:
            patch.setattr(runs, where, interrupted(name, getattr(runs, where)))
            result = go()
        assert (result.outcome.status, result.outcome.reason, result.scores_if_any) == ("stopped", name, None)
        assert (result.outcome.update > 0) == bool(update)
    assert handlers == {number: signal.getsignal(number) for number in handlers}
    assert go().scores


def test_a_signal_in_the_last_moment_of_the_training_is_not_forgotten(
    corpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = small(corpus, "training.bleu_every_epochs=none", "training.epochs=1")
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_done", interrupted("SIGTERM", Trainer._done))
        result = run(experiment, tmp_path / "run", device="cpu", workers=1, progress="none")
    assert (result.outcome.status, result.scores_if_any) == ("stopped", None)


@pytest.mark.parametrize("damage", ["missing", "cut", "changed"])
def test_translations_that_are_not_there_any_more_are_made_again(
    corpus: list[str], tmp_path: Path, damage: str
) -> None:
    experiment = small(corpus, "training.bleu_every_epochs=none", "training.epochs=1")
    first = run(experiment, tmp_path / "run", device="cpu", workers=1, progress="none")
    path = tmp_path / "run" / "hypotheses" / "valid.greedy.txt"
    whole = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(whole[: len(whole) // 2] if damage == "cut" else b"x" + whole[1:])
    said: list[str] = []
    again = run(experiment, tmp_path / "run", device="cpu", workers=1, progress="none", say=said.append)
    assert path.read_bytes() == whole
    assert again.scores == first.scores
    assert any(
        "hypotheses has changed since it was scored: the model is evaluated again" in sentence for sentence in said
    )
    said.clear()
    run(experiment, tmp_path / "run", device="cpu", workers=1, progress="none", say=said.append)
    assert not any("hypotheses" in sentence for sentence in said)


def test_scores_of_a_half_trained_model_are_not_those_of_the_run(corpus: list[str], tmp_path: Path) -> None:
    experiment = small(corpus, "training.epochs=2")
    run(experiment, tmp_path / "run", device="cpu", workers=1, stop_after=3, progress="none")
    early = {"looks_ahead": False, "num_sentences": 10, "decoded": {}, "run_id": "early", "split": "valid"}
    RunFolder(tmp_path / "run").write_scores("valid", early, {"greedy": ["early"] * 10})
    done = run(experiment, tmp_path / "run", device="cpu", workers=1, progress="none")
    assert done.scores["run_id"] != "early"


def test_scores_that_were_taken_during_a_training_are_not_those_of_the_run(
    corpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = runs.train
    early = {"looks_ahead": False, "num_sentences": 10, "decoded": {}, "run_id": "early", "split": "valid"}

    def measured_meanwhile(*given: Any, **options: Any) -> Any:
        RunFolder(tmp_path / "run").write_scores("valid", early, {"greedy": ["early"] * 10})
        return train(*given, **options)

    monkeypatch.setattr(runs, "train", measured_meanwhile)
    done = run(small(corpus, "training.epochs=1"), tmp_path / "run", device="cpu", workers=1, progress="none")
    assert done.scores["run_id"] != "early"


def test_the_cache_can_be_cleared_during_a_training(
    corpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_repose: Callable[..., tuple[int, str, str]]
) -> None:
    train, said = runs.train, []

    def cleared_before(*given: Any, **options: Any) -> Any:
        said.append(run_repose("cache", "--clear")[2])
        return train(*given, **options)

    monkeypatch.setattr(runs, "train", cleared_before)
    done = run(small(corpus, "training.epochs=1"), tmp_path / "run", device="cpu", workers=1, progress="none")
    assert done.scores
    assert "1 prepared corpus stays, since it is in use" in said[0]


def test_a_run_that_is_to_be_measured_otherwise_is_refused(corpus: list[str], tmp_path: Path) -> None:
    run(small(corpus, "training.epochs=1"), tmp_path / "run", device="cpu", workers=1, progress="none")
    other = small(corpus, "training.epochs=1", "decoding.beam_size=2")
    with pytest.raises(CheckpointError, match=r"with decoding\.beam_size = 1, not 2: choose another"):
        run(other, tmp_path / "run", device="cpu", workers=1, progress="none")
    further = small(corpus, "training.epochs=1", f"training.init_from={tmp_path / 'run'}")
    with pytest.raises(CheckpointError, match=r"init_from was not set, is .* or the settings of that run$"):
        run(further, tmp_path / "run", device="cpu", workers=1, progress="none")


def test_settings_that_only_measure_are_no_others_when_it_goes_on(corpus: list[str], tmp_path: Path) -> None:
    begun = small(corpus, "training.epochs=1", "training.bleu_every_epochs=none")
    run(begun, tmp_path / "run", device="cpu", workers=1, progress="none", stop_after=1)
    again = small(corpus, "training.epochs=1", "training.bleu_every_epochs=1")
    with pytest.raises(CheckpointError, match=r"with training\.bleu_every_epochs = none, not 1: choose another folder"):
        run(again, tmp_path / "run", device="cpu", workers=1, progress="none")
    oftener = small(
        corpus, "training.epochs=1", "training.bleu_every_epochs=none", "training.save_every_minutes=0.0001"
    )
    assert run(oftener, tmp_path / "run", device="cpu", workers=1, progress="none").scores


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("corpus.tgt_lang=en", r"corpus\.src_lang = '\w+', not 'xx'"),
        ("corpus.pretokenized=true", "corpus.pretokenized = False, not True"),
    ],
)
def test_what_is_said_of_the_corpus_stays_when_it_goes_on(
    setting: str, said: str, corpus: list[str], tmp_path: Path
) -> None:
    run(small(corpus, "training.epochs=1"), tmp_path / "run", device="cpu", workers=1, progress="none", stop_after=1)
    other = small(corpus, "training.epochs=1", setting, *["corpus.src_lang=xx"] * ("lang" in setting))
    with pytest.raises(CheckpointError, match=f"holds this training with {said}: choose another folder, or that value"):
        run(other, tmp_path / "run", device="cpu", workers=1, progress="none")


def test_a_run_goes_on_in_its_languages_where_files_do_not_name_them(corpus: list[str], tmp_path: Path) -> None:
    lines = [line.split("\t") for line in (tmp_path / "train.tsv").read_text(encoding="utf-8").splitlines()]
    for side, language in enumerate(("pt", "en")):
        (tmp_path / f"c.{language}").write_text("".join(f"{line[side]}\n" for line in lines), encoding="utf-8")
    unnamed = ["training.epochs=1", "corpus.splits=given", "corpus.src_lang=und", "corpus.tgt_lang=und"]
    named = f'corpus.train=["{tmp_path / "c.pt"}", "{tmp_path / "c.en"}"]'
    out, how = tmp_path / "run", {"device": "cpu", "workers": 1, "progress": "none"}
    run(small(corpus, *unnamed, named), out, **how, stop_after=1)
    assert run(small(corpus, *unnamed), out, **how).scores
    told = json.loads((out / "model" / "config.json").read_text(encoding="utf-8"))
    assert (told["src_lang"], told["tgt_lang"]) == ("pt", "en")


def test_files_that_were_edited_since_the_training_began_are_said_to_have_changed(
    corpus: list[str], tmp_path: Path
) -> None:
    run(small(corpus, "training.epochs=1"), tmp_path / "run", device="cpu", workers=1, progress="none", stop_after=1)
    with (tmp_path / "train.tsv").open("a", encoding="utf-8") as file:
        file.write("\n".join(f"one moon {n}\tONE MOON {n}" for n in range(9)) + "\n")
    with pytest.raises(
        CheckpointError, match=r"the files of the corpus have changed since the training in .*run began"
    ):
        run(small(corpus, "training.epochs=1"), tmp_path / "run", device="cpu", workers=1, progress="none")


def test_of_two_that_begin_in_one_folder_one_has_it(
    corpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one begins between the first one's look for a run and its config.json."""
    write = RunFolder.write_new_config

    def late(folder: RunFolder, config: Any) -> bool:
        monkeypatch.setattr(RunFolder, "write_new_config", write)
        second = small(corpus, "training.epochs=1", "training.seed=2")
        run(second, tmp_path / "run", device="cpu", workers=1, progress="none", stop_after=1)
        return write(folder, config)

    monkeypatch.setattr(RunFolder, "write_new_config", late)
    with pytest.raises(CheckpointError, match=r"training\.seed was 2, is 0"):
        run(small(corpus, "training.epochs=1"), tmp_path / "run", device="cpu", workers=1, progress="none")
    assert RunFolder(tmp_path / "run").config().experiment.training.seed == 2
    assert not list((tmp_path / "run").glob(".config*")), "no temporary file stays"


def test_who_would_train_for_longer_is_told_how(corpus: list[str], tmp_path: Path) -> None:
    run(small(corpus, "training.epochs=1"), tmp_path / "run", device="cpu", workers=1, progress="none")
    how = f"; to train its weights further, do so in another folder (--from {tmp_path / 'run'}, or start in Python)"
    for settings, is_told in ((["training.epochs=2"], True), (["training.epochs=2", "training.seed=1"], False)):
        with pytest.raises(CheckpointError) as caught:
            run(small(corpus, *settings), tmp_path / "run", device="cpu", workers=1, progress="none")
        assert str(caught.value).endswith(how) == is_told


def test_settings_are_named_as_they_make_another_run(corpus: list[str], tmp_path: Path) -> None:
    """With chrF, what is translated decides which weights are kept; a width that is written out makes none."""
    by_chrf = ["training.epochs=1", "training.best_by=chrf", "training.bleu_every_epochs=1"]
    run(small(corpus, *by_chrf), tmp_path / "run", device="cpu", workers=1, progress="none", stop_after=1)
    width = small(corpus).architecture.d_token
    other = ["decoding.max_extra_tokens=20", "training.bleu_sentences=5", f"training.schedule_width={width}"]
    with pytest.raises(CheckpointError) as caught:
        run(small(corpus, *by_chrf, *other), tmp_path / "run", device="cpu", workers=1, progress="none")
    named = str(caught.value).partition("(")[2].partition("): choose another folder")[0]
    assert (
        re.sub(r"\d+|not set", "N", named)
        == "training.bleu_sentences was N, is N, decoding.max_extra_tokens was N, is N"
    )


def test_what_makes_no_other_run_is_not_named_as_a_difference(corpus: list[str], tmp_path: Path) -> None:
    run(small(corpus, "training.epochs=1"), tmp_path / "run", device="cpu", workers=1, progress="none", stop_after=1)
    measured = ["training.save_every_minutes=3", "training.bleu_every_epochs=1", "training.bleu_sentences=5"]
    other = small(corpus, "training.epochs=1", "training.seed=1", *measured)
    with pytest.raises(CheckpointError, match=r"\(training\.seed was 0, is 1\)"):
        run(other, tmp_path / "run", device="cpu", workers=1, progress="none")


def rewrite(folder: RunFolder, config: RunConfig) -> None:
    write_json(folder.config_file, sealed(config.to_json()))


def test_what_else_a_run_read_is_said_to_differ(corpus: list[str], tmp_path: Path) -> None:
    run(small(corpus, "training.epochs=1"), tmp_path / "run", device="cpu", workers=1, progress="none", stop_after=1)
    folder = RunFolder(tmp_path / "run")
    config = folder.config()
    shutil.rmtree(folder.state)  # which knows whose it is
    digests = {**config.digests, "src": "x", "init_from": "y"}
    rewrite(folder, replace(config, run_id="0123456789ab", digests=digests))
    with pytest.raises(CheckpointError, match=r"\(another tokenizer, other weights in training\.init_from\)"):
        run(small(corpus, "training.epochs=1"), tmp_path / "run", device="cpu", workers=1, progress="none")


@pytest.mark.parametrize("kept", ["state", "model", "scores.valid.json"])
def test_a_run_that_lost_its_config_is_not_taken_for_another(kept: str, corpus: list[str], tmp_path: Path) -> None:
    """And the command that it was begun with makes it whole again, where its model is there."""
    experiment, folder = small(corpus, "training.epochs=1"), RunFolder(tmp_path / "run")
    whole = run(experiment, folder.path, device="cpu", workers=2 if kept == "model" else 1, progress="none")
    folder.config_file.unlink()
    for name in {"state", "model"} - {kept}:
        shutil.rmtree(folder.path / name)
    if kept != "scores.valid.json":
        folder.scores_file("valid").unlink()
    with pytest.raises(CheckpointError, match=f"has no config.json, but holds what run {whole.run_id} trained, and"):
        run(small(corpus, "training.epochs=1", "training.seed=9"), folder.path, device="cpu", workers=1)
    assert not folder.exists, "the wrong one would stay"
    if kept == "model":
        assert run(experiment, folder.path, device="cpu", progress="none").scores == whole.scores
        assert folder.config().run_id == whole.run_id


def test_the_config_of_another_run_is_noticed_by_who_reads_it(corpus: list[str], tmp_path: Path) -> None:
    experiment, folder = small(corpus, "training.epochs=1"), RunFolder(tmp_path / "run")
    run(experiment, folder.path, device="cpu", workers=1, progress="none")
    rewrite(folder, replace(folder.config(), run_id="0123456789ab"))
    sentence = "config.json belongs to run 0123456789ab, but "
    with pytest.raises(CheckpointError, match=sentence):
        repose.evaluate(folder.path, split="valid")
    with pytest.raises(CheckpointError, match=sentence):
        read_runs([folder.path])
    with pytest.raises(CheckpointError, match=sentence):
        run(experiment, folder.path, device="cpu", workers=1)


@pytest.mark.parametrize(("damage", "has_state"), [("missing", True), ("damaged", True), ("damaged", False)])
def test_records_that_a_training_cannot_go_on_with_are_said_before_the_corpus_is_read(
    damage: str, has_state: bool, corpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What to do then is for who trains; and the scores of the run that was there stay."""
    experiment, folder = small(corpus, "training.epochs=1"), RunFolder(tmp_path / "run")
    run(experiment, folder.path, device="cpu", workers=1, progress="none")
    if not has_state:
        shutil.rmtree(folder.state)
    if damage == "missing":
        folder.metrics_file.unlink()
    else:
        folder.metrics_file.write_text(folder.metrics_file.read_text().replace("epoch", "epooh"))
    monkeypatch.setattr(runs, "prepare_corpus", lambda *_, **__: pytest.fail("the corpus is read"))
    said = f"{folder.metrics_file} is {damage}: restore it, or train in a new run directory"
    with pytest.raises(CheckpointError, match=f"^{re.escape(said)}$"):
        run(experiment, folder.path, device="cpu", workers=1, progress="none")
    assert folder.main_scores() is not None


def test_a_folder_in_which_another_process_trains_is_said_before_the_corpus_is_read(
    corpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "prepare_corpus", lambda *_, **__: pytest.fail("the corpus is read"))
    with (
        locked_or_busy(RunFolder(tmp_path).lock_file, "is training"),
        pytest.raises(BusyError, match=f"process {os.getpid()} on .* is training in"),
    ):
        run(load(None, overrides=corpus).experiment, tmp_path, progress="none")


def test_under_a_launcher_all_processes_learn_that_another_trains_there(
    corpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the lock is taken: if the first one ended before, others would wait for it."""
    monkeypatch.setattr(runs, "outer_launcher", lambda: Outer(0, 2, 0, "n1", 29500))
    monkeypatch.setattr(runs, "prepare_corpus", Mock(side_effect=DataError("the corpus is read")))
    with locked_or_busy(RunFolder(tmp_path).lock_file, "is training"), pytest.raises(DataError, match="is read"):
        run(load(None, overrides=corpus).experiment, tmp_path, progress="none")


def test_the_same_data_in_another_place_of_the_cache_is_the_same(corpus: list[str], tmp_path: Path) -> None:
    """As when a later version names its folders in another way."""
    run(small(corpus, "training.epochs=1"), tmp_path / "run", device="cpu", workers=1, progress="none", stop_after=1)
    folder = RunFolder(tmp_path / "run")
    config = folder.config()
    again = small(corpus, "training.epochs=1")
    rewrite(folder, replace(config, data="0" * 16, test="of another test set"))
    with pytest.raises(CheckpointError, match="another test set"):
        run(again, tmp_path / "run", device="cpu", workers=1, progress="none")
    rewrite(folder, replace(config, data="0" * 16, test="of this test set"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CorpusData, "test_digest", "of this test set")
        assert run(again, tmp_path / "run", device="cpu", workers=1, progress="none").scores


def test_the_first_record_holds_the_numbers_of_the_corpus(corpus: list[str], tmp_path: Path) -> None:
    experiment = small(corpus, "training.bleu_every_epochs=none", "training.epochs=1", "training.max_src_tokens=9")
    run(experiment, tmp_path / "run", device="cpu", workers=1, progress="none")
    data = prepare_corpus(experiment)
    train, valid = PairDataset.open(data.ids("train")), PairDataset.open(data.ids("valid"))
    record = RunFolder(tmp_path / "run").records().data
    assert record is not None
    assert record.examples == {"train": len(train), "valid": len(valid)}
    assert record.tokens["train"] == {"src": train.counts.src_tokens, "tgt": train.counts.tgt_tokens}
    assert record.vocabulary.keys() == {"src", "tgt"}
    assert record.truncated.get("train", {}) == train.counts.truncated
    assert record.dropped.get("train", {}) == train.counts.dropped
    assert record.dropped | record.truncated


def test_a_stop_before_the_first_update_is_refused_before_anything_is_written(
    corpus: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="stop_after = -1"):
        run(small(corpus), tmp_path / "run", stop_after=-1, progress="none")
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(("best_by", "differs"), [("chrf", True), ("loss", False)])
def test_what_translations_are_held_against_is_in_the_run_id(
    best_by: str, differs: bool, corpus: list[str], tmp_path: Path
) -> None:
    """Pairs too long for the model are dropped, but translated and scored at each validation."""
    valid, (long, *_) = (tmp_path / "train.tsv").read_text().splitlines()[:5], [f"{'red ' * 90}\tRED\n"] * 2
    digests = []
    for name, lines in (("one", valid), ("two", [long.strip(), *valid])):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{line}\n" for line in lines))
        settings = [*SMALL, *corpus, f'corpus.valid=["{tmp_path / name}.tsv"]', f"training.best_by={best_by}"]
        experiment = load("enhanced-table1", overrides=[*settings, "training.long_pairs=drop"]).experiment
        digests.append(runs.digests_of(experiment, prepare_corpus(experiment)))
    assert (digests[0] != digests[1]) == differs


def test_the_characters_that_translations_are_made_from_are_in_the_run_id(corpus: list[str], tmp_path: Path) -> None:
    """The same sentences to validate on, which one model reads with accents of their own, and the other without."""
    lines = [f"cafe\u0301 {word}\t{word.upper()}\n" for word in ("red", "big", "old", "new", "sad", "odd")]
    (tmp_path / "valid.tsv").write_text("".join(lines), encoding="utf-8")
    digests = []
    for form in ("NFC", "NFD"):
        path = tmp_path / f"{form}.tsv"
        path.write_text(unicodedata.normalize(form, "".join(lines)), encoding="utf-8")
        sets = [f'corpus.train=["{path}"]', f'corpus.valid=["{tmp_path / "valid.tsv"}"]', "training.best_by=chrf"]
        experiment = load("enhanced-table1", overrides=[*SMALL, *corpus, *sets]).experiment
        digests.append(runs.digests_of(experiment, prepare_corpus(experiment))["valid_text"])
    assert digests[0] != digests[1]


def test_how_to_search_is_chosen_on_the_validation_set(corpus: list[str], tmp_path: Path) -> None:
    settings = [*SMALL, *corpus, "decoding.length_penalty=none", "training.best_by=chrf", "training.keep=best"]
    experiment = load("enhanced-table1", overrides=settings).experiment
    result = run(experiment, tmp_path / "run", device="cpu", workers=1, progress="none")
    trials = result.scores["decoding_chosen"]
    tried = [(t["beam_size"], t["length_penalty"], t["no_repeat_ngram_size"]) for t in trials]
    assert tried[:-2] == [(1, 0.0, 0), (4, 0.2, 0), (4, 0.6, 0), (4, 1.0, 0), (4, 1.5, 0)]
    assert [(beam_size, no_repeat) for beam_size, _, no_repeat in tried[-2:]] == [(1, 5), (4, 5)]
    with repose.load(tmp_path / "run") as translator:
        settings = DecodingChoice.from_json(trials).settings
        assert {name: getattr(translator, name) for name in settings} == settings
    assert result.scores["decoding"]["length_penalty"] == translator.length_penalty
    again = run(experiment, tmp_path / "run", device="cpu", workers=1, progress="none")
    assert again.scores == result.scores
    model = tmp_path / "run" / "model"
    assert (unfinished(model), about_model(model)["finished"]) == (None, True)
    directory.change_config(model, {"decoding": asdict(experiment.decoding)})  # as before the choice
    assert "is not chosen yet" in str(unfinished(model))
    assert about_model(model)["finished"] is False
