"""Searches: what their files say, which trials continue, and that a killed search ends like an undisturbed one."""

import dataclasses
import json
import math
import shlex
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from repose.cli.main import app
from repose.config.file import from_json, load
from repose.data.phrasebook import read
from repose.grids.cells import CellJob, CellState, CellStatus
from repose.grids.local import Share
from repose.runs.run import run
from repose.search import result
from repose.search.file import Search, read_search
from repose.search.run import Searcher, folder_of, held, prepare, reached
from repose.search.study import Spent, Study, Verdict
from repose.system.errors import BusyError, CheckpointError, ConfigError

pytest.importorskip("optuna")

FILE = """
[corpus]
train = ["train.tsv"]
valid = ["valid.tsv"]
test = ["test.tsv"]
[tokenizer]
vocab_size = 300
[architecture]
preset = "reinforced"
d_token = 8
num_heads = 1
head_dim = 8
d_ff = 8
num_encoder_layers = 1
num_decoder_layers = 1
[training]
epochs = 4
batch_size = 500
schedule = "linear"
learning_rate = 0.003
warmup_share = 0.1
bleu_sentences = 4
patience = 1
[decoding]
max_extra_tokens = 1
[search]
trials = 4
reduction = 2
"""
LISTS = '[search.vary]\n"tokenizer.vocab_size" = [270, 300]\n"architecture.dropout" = [0.1, 0.2]\n'
RATES = '[search.vary]\n"training.learning_rate" = {from = 0.001, to = 0.01, log = true}\n'

TOKENS = '[search.vary]\n"training.max_tgt_tokens" = {from = 20, to = 40}\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A search file beside a corpus of 60 sentence pairs of the phrasebook."""
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    for split, pairs in read().items():
        few = pairs[: 60 if split == "train" else 6]
        (tmp_path / f"{split}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in few), encoding="utf-8")

    def make(vary: str = LISTS, text: str = FILE) -> Path:
        (tmp_path / "try.toml").write_text(text + vary, encoding="utf-8")
        return tmp_path / "try.toml"

    return make


def train(job: CellJob, **_: Any) -> CellState:
    """The cell's process, in this one."""
    experiment = from_json(job.experiment)
    outcome = run(experiment, job.folder, device="cpu", workers=1, until_epoch=job.until_epoch, progress="none").outcome
    return CellState(status=CellStatus.DONE if outcome.status == "done" else CellStatus.STOPPED)


def imitated(figures: Callable[[dict[str, Any], int], float], asked: list[tuple[str, int]]) -> Callable[..., CellState]:
    """Writes the records of a training with these losses, and chrFs that grow as they fall, at once; `asked` is told
    trials and epochs."""

    def of_cell(job: CellJob, **_: Any) -> CellState:
        assert job.until_epoch is not None
        asked.append((job.name, job.until_epoch))
        job.folder.mkdir(parents=True, exist_ok=True)
        settings = json.loads(job.experiment)
        place = [{"kind": "valid", "update": 10 * e, "epoch": e} for e in range(1, job.until_epoch + 1)]
        data = {"kind": "data", "examples": {"train": 60}}
        losses = [figures(settings, p["epoch"]) for p in place]
        lines = [
            {**p, "tf_loss": loss, "chrf": 1 / loss, "wall": {"seconds": 2.0 * p["epoch"]}}
            for p, loss in zip(place, losses, strict=True)
        ]
        (job.folder / "metrics.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in [data, *lines]), encoding="utf-8"
        )
        return CellState(status=CellStatus.STOPPED)

    return of_cell


def searcher(found: Search, folder: Path, run_cell: Any, jobs: int = 1) -> Searcher:
    folder.mkdir(parents=True, exist_ok=True)
    return Searcher(found, Study(found, folder), folder, Share(jobs, 1), run_cell=run_cell)


def as_numbers(found: Search, folder: Path) -> dict[str, Any]:
    """A search's result without what depends on the clock."""
    content = result.to_json(result.result_of(found, Study(found, folder), folder))
    without = {**content, "trials": [{**trial, "seconds": 0} for trial in content["trials"]]}
    return {name: value for name, value in without.items() if name not in ("spent", "in_full", "whole_space")}


def test_a_file_says_what_is_searched(file: Callable[..., Path]) -> None:
    found = read_search(file())
    assert found.rungs == (1, 2, 4)
    for rungs in (3, 4, 10**12):  # more than there are epochs, and more than can be computed
        assert read_search(file(text=f"{FILE}rungs = {rungs}\n")).rungs == (1, 2, 4)
    assert (found.objective, found.combinations, found.trials) == ("chrf", 4, 4)
    experiment = found.experiment({"vocab_size": "270", "dropout": "0.2"})
    assert (experiment.tokenizer.vocab_size, experiment.architecture.dropout) == (270, 0.2)
    assert (experiment.training.patience, experiment.training.bleu_every_epochs) == (None, 1)
    assert found.overrides({"vocab_size": "270", "dropout": "0.2"}) == [
        "--set tokenizer.vocab_size=270",
        "--set architecture.dropout=0.2",
    ]


def test_losses_are_compared_where_the_tokens_are_the_same(file: Callable[..., Path]) -> None:
    found = read_search(file(RATES))
    assert (found.objective, found.combinations) == ("loss", None)
    rate = found.experiment({"learning_rate": 0.00123456}).training.learning_rate
    assert rate == 0.00123


def test_translations_are_compared_where_the_validation_losses_are_of_other_sentences(
    file: Callable[..., Path],
) -> None:
    assert read_search(file(TOKENS)).objective == "chrf"
    for setting in ('"training.long_pairs" = ["drop", "truncate"]', '"training.init_from" = ["none", "a"]'):
        assert read_search(file(f"[search.vary]\n{setting}\n")).objective == "chrf"


def test_a_range_draws_the_numbers_that_its_setting_takes(file: Callable[..., Path], tmp_path: Path) -> None:
    """However its ends are written."""
    vary = '[search.vary]\n"training.weight_decay" = {from = 0, to = 1}\n"training.clip_norm" = {from = 1, to = 2}\n'
    found = read_search(file(vary), trials=6)
    assert (found.trials, found.combinations) == (6, None)
    (tmp_path / "out").mkdir()
    study = Study(found, tmp_path / "out")
    drawn = [found.experiment(known.values).training for known in iter(study.take, None)]
    assert len({training.weight_decay for training in drawn} - {0.0, 1.0}) == 6
    assert len({training.clip_norm for training in drawn} - {1.0, 2.0}) > 2
    found = read_search(file('[search.vary]\n"training.warmup_updates" = {from = 1.0, to = 3.0}\n'), trials=6)
    assert (found.trials, found.combinations) == (3, 3)
    pairs = {"{from = 5, to = 9}": 5, "{from = 0.1, to = 0.9}": None}
    for written, number in pairs.items():
        assert read_search(file(f'[search.vary]\n"corpus.held_out_valid" = {written}\n')).combinations == number


def test_whole_numbers_are_drawn_by_optuna_and_none_twice(file: Callable[..., Path], tmp_path: Path) -> None:
    """Evenly by their logarithm where that is asked for; all of a few; the same ones again from the same seed."""

    def drawn(vary: str, trials: int, folder: str) -> list[dict[str, Any]]:
        found = read_search(file(f"[search.vary]\n{vary}"), trials=trials)
        assert searcher(found, tmp_path / folder, imitated(lambda *_: 1.0, [])).run()
        return [dict(known.values) for known in Study(found, tmp_path / folder).known()]

    wide = [one["d_ff"] for one in drawn('"architecture.d_ff" = {from = 8, to = 8000, log = true}\n', 10, "wide")]
    assert sum(d_ff < 256 for d_ff in wide) > 2  # half of them; evenly by their size it would be one in 32
    few = '"training.warmup_updates" = {from = 1, to = 3}\n"architecture.dropout" = [0.1, 0.2, 0.3]\n'
    once, again = drawn(few, 20, "once"), drawn(few, 20, "again")
    assert once == again
    assert len({tuple(one.values()) for one in once}) == len(once) == 9


def test_a_trial_that_a_kill_left_half_drawn_goes_on(file: Callable[..., Path], tmp_path: Path) -> None:
    found = read_search(file(RATES + '"training.warmup_updates" = {from = 1, to = 3}\n'), trials=2)
    (tmp_path / "out").mkdir()
    study = Study(found, tmp_path / "out")
    study._study.enqueue_trial({"learning_rate": 0.002, "warmup_updates": 2})
    study._study.ask({})
    known = Study(found, tmp_path / "out").take()
    assert known is not None
    assert found.shown(known.values) == {"learning_rate": "0.002", "warmup_updates": "2"}
    assert searcher(found, tmp_path / "out", imitated(lambda *_: 1.0, [])).run()


def test_a_search_that_an_earlier_version_drew_otherwise_is_refused(file: Callable[..., Path], tmp_path: Path) -> None:
    found = read_search(file('[search.vary]\n"training.weight_decay" = {from = 0, to = 1}\n'))
    (tmp_path / "out").mkdir()
    earlier = dataclasses.replace(found, ranges=(dataclasses.replace(found.ranges[0], low=0, high=1, is_whole=True),))
    Study(earlier, tmp_path / "out").take()
    with pytest.raises(CheckpointError, match="only whole numbers for weight_decay"):
        Study(found, tmp_path / "out")


@pytest.mark.parametrize(
    ("vary", "old", "new", "says"),
    [
        (LISTS, "reduction = 2", "reduction = 2\nobjective = 'loss'", "losses of different tokens"),
        (RATES, "d_token = 8", "d_token = 8\ndecoder_token_norm = 'sentence'", "looks ahead at"),
        (TOKENS, "reduction = 2", "reduction = 2\nobjective = 'loss'", "varies training.max_tgt_tokens"),
        (TOKENS, "epochs = 4", 'epochs = 4\ntask = "language_modelling"', "varies training.max_tgt_tokens"),
        (LISTS, "reduction = 2", "reduction = 1", "reduction should be a number from 2"),
        (LISTS, "epochs = 4", "updates = 4\nepochs = 'none'", "counts in epochs"),
        (LISTS, "epochs = 4", "epochs = 4\nmax_hours = 1", "leave training.max_hours out"),
        (LISTS, "reduction = 2", "rungz = 2", "did you mean 'rungs'"),
        ("", "", "", "searches nothing"),
        (LISTS, "epochs = 4", 'epochs = 4\ntask = "language_modelling"', "no translations to compare instead"),
        ('[search.vary]\n"training.patience" = [1, 2]', "", "", "cannot search training.patience"),
        ('[search.vary]\n"training.bleu_sentences" = [1, 2]', "", "", "cannot search training.bleu_sentences"),
        ('[search.vary]\n"tokenizer.lowercase" = [true, false]', "", "", "cannot search tokenizer.lowercase"),
        ('[search.vary]\n"decoding.beam_size" = [1, 4]', "", "", "beam_size, which does not change what trials"),
        ('[search.vary]\n"training.bleu_every_epochs" = [1, 2]', "", "", "cannot search training.bleu_every_epochs"),
        ('[search.vary]\n"training.learning_rate" = {from = 0.1, to = 0.01}', "", "", "should be a range"),
        ('[search.vary]\n"training.learning_rate" = {from = 0.1, to = inf, log = true}', "", "", "should be a range"),
        (f'[search.vary]\n"training.learning_rate" = {{from = 1, to = 1{"0" * 400}}}', "", "", "should be a range"),
        (LISTS, "reduction = 2", "reduction = 2\nobjective = ['loss']", "objective"),
        ('[search.vary]\n"training.rate" = {from = 0.01, to = 0.1}', "", "", "training.rate"),
        ('[search.vary]\n"training.seed" = {from = 0, to = 9}', "", "", r"the same seed, so set it in \[training\]"),
        ('[search.vary]\n"training.seed" = [0, 9]', "", "", r"the same seed, so set it in \[training\]"),
        ('[search.vary]\n"architecture.preset" = ["enhanced"]', "", "", r"or in \[\[search.systems\]\]"),
        ('[search.vary]\n"training.batch_size" = {from = 0.5, to = 8}', "", "", "takes whole numbers only"),
        ('[search.vary]\n"architecture.norm" = {from = 1, to = 8}', "", "", "is not a number: give a list"),
    ],
)
def test_what_cannot_be_searched(file: Callable[..., Path], vary: str, old: str, new: str, says: str) -> None:
    def first_trial() -> None:
        found = read_search(path)
        found.experiment({one.name: one.low for one in found.ranges})

    path = file(vary, FILE.replace(old, new) if old else FILE)
    with pytest.raises(ConfigError, match=says):
        first_trial()


def test_combinations_that_cannot_stand_are_drawn_last_and_fail(file: Callable[..., Path], tmp_path: Path) -> None:
    """Heads' rotary positions need an even width, which is refused where the experiment is made."""
    vary = '[search.vary]\n"architecture.positions" = ["rotary", "none"]\n"architecture.head_dim" = [7, 8]\n'
    text = FILE.replace('preset = "reinforced"', 'preset = "rotary"\ntie_embeddings = "none"')
    found = read_search(file(vary, text))
    assert found.example().architecture.head_dim == 8
    assert searcher(found, tmp_path / "out", imitated(lambda *_: 1.0, [])).run()
    trials = result.result_of(found, Study(found, tmp_path / "out"), tmp_path / "out").trials
    assert [t.state == "failed" for t in trials] == [False, False, False, True]
    assert found.shown(trials[-1].values) == {"positions": "rotary", "head_dim": "7"}
    assert "even head_dim" in trials[-1].message
    report = result.result_of(found, Study(found, tmp_path / "out"), tmp_path / "out")
    assert result.sentences(report, tmp_path)[0].startswith("Best of 3 trained trials (of 4 in all): ")
    trials = (dataclasses.replace(report.trials[0], state="running"), *report.trials[1:])
    said = result.sentences(dataclasses.replace(report, trials=trials), tmp_path)[0]
    assert said.startswith("Best so far of 3 trained trials (of 4 in all), 1 unfinished: ")
    fewer = read_search(file(vary, text), trials=3)
    assert searcher(fewer, tmp_path / "fewer", imitated(lambda *_: 1.0, [])).run()
    states = [t.state for t in result.result_of(fewer, Study(fewer, tmp_path / "fewer"), tmp_path / "fewer").trials]
    assert "failed" not in states


def test_no_trial_is_spent_on_numbers_of_a_range_that_cannot_stand(file: Callable[..., Path], tmp_path: Path) -> None:
    text = FILE.replace('preset = "reinforced"', 'preset = "rotary"\ntie_embeddings = "none"')
    found = read_search(file('[search.vary]\n"architecture.head_dim" = {from = 4, to = 40}\n', text), trials=8)
    (tmp_path / "out").mkdir()
    study = Study(found, tmp_path / "out")
    assert {known.values["head_dim"] % 2 for known in iter(study.take, None)} == {0}


@pytest.mark.parametrize("objective", ["loss", "chrf"])
def test_the_best_go_on_and_the_rest_end_at_their_rung(
    objective: str, file: Callable[..., Path], tmp_path: Path
) -> None:
    """The loss falls with the rate drawn, so that the order of the trials is known."""
    asked: list[tuple[str, int]] = []
    found = dataclasses.replace(read_search(file(RATES), trials=8), objective=objective)
    cell = imitated(lambda settings, epoch: 1 / (settings["training"]["learning_rate"] * epoch), asked)
    assert searcher(found, tmp_path / "out", cell).run()
    report = result.result_of(found, Study(found, tmp_path / "out"), tmp_path / "out")
    rates = {trial.number: float(found.shown(trial.values)["learning_rate"]) for trial in report.trials}
    assert report.best is not None
    assert (best := rates[report.best.number]) == max(rates.values())
    assert report.best.rungs[4] == pytest.approx(4 * best if objective == "chrf" else 1 / (4 * best))
    assert report.ranking[0] is report.best
    stopped = [trial for trial in report.trials if trial.state == "stopped"]
    assert stopped
    for trial in stopped:
        assert trial.verdict is not None
        assert trial.spent.epochs == trial.verdict.epochs == max(trial.rungs) < 4
        assert 1 < trial.verdict.rank <= trial.verdict.of
    assert report.spent.updates == sum(10 * trial.spent.epochs for trial in report.trials)
    assert report.in_full == result.Cost(updates=8 * 40, seconds=8 * 8.0)
    assert len(asked) == len(set(asked))
    result.write(report, tmp_path / "out")
    page = (tmp_path / "out" / "search.md").read_text(encoding="utf-8")
    assert "After 1 and 2 epochs a trial is compared" in page
    shorter = dataclasses.replace(report.search, rungs=(1, 4))
    short = result.markdown(dataclasses.replace(report, search=shorter), tmp_path / "out")
    assert "After 1 epoch a trial is compared" in short
    assert f"learning_rate {max(rates.values())}" in page
    assert "320 updates" in page


def test_one_goes_on_where_it_is_among_the_best_third_of_those_that_were_there(
    file: Callable[..., Path], tmp_path: Path
) -> None:
    text = FILE.replace("trials = 4", "trials = 9").replace("reduction = 2", "reduction = 3")
    study = Study(read_search(file(RATES, text)), tmp_path)
    losses = [5.0, 4.0, 6.0, 7.0, 4.5, 4.1, 4.05, math.nan]
    went_on = []
    for loss in losses:
        trial = study.take()
        assert trial is not None
        went_on.append(study.goes_on(trial.number, 1, loss, Spent()))
    assert went_on == [True, True, False, False, False, True, True, False]
    assert study.goes_on(0, 1, losses[0], Spent()), "asked again after a kill, the answer is that of before"


def test_one_that_a_kill_left_with_its_verdict_does_not_go_on(
    file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study(read_search(file(RATES)), tmp_path)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for _ in range(4):
        study.take()
    assert study.goes_on(0, 1, 1.0, Spent())
    with monkeypatch.context() as patch:
        patch.setattr(study._study, "tell", killed)
        with pytest.raises(KeyboardInterrupt):
            study.goes_on(1, 1, 2.0, Spent())
    for number in (2, 3):  # among four, it would be one of the best two
        study.goes_on(number, 1, 3.0, Spent())
    assert not study.goes_on(1, 1, 2.0, Spent())
    trial = study.known()[1]
    assert (trial.state, trial.verdict) == ("stopped", Verdict(epochs=1, rank=2, of=2))


@pytest.mark.parametrize("objective", ["loss", "chrf"])
def test_once_some_are_known_those_like_the_best_are_drawn(
    objective: str, file: Callable[..., Path], tmp_path: Path
) -> None:
    found = dataclasses.replace(read_search(file(RATES), trials=30), objective=objective)
    study, rates = Study(found, tmp_path), list[float]()
    while (trial := study.take()) is not None:
        rate = float(trial.values["learning_rate"])
        study.goes_on(trial.number, found.rungs[-1], rate if objective == "chrf" else -rate, Spent())
        rates.append(rate)
    assert len(rates) == 30
    assert sum(rate > 0.005 for rate in rates[15:]) > 10


def test_ranks_are_read_as_people_say_them() -> None:
    said = [result._ordinal(number) for number in (1, 2, 3, 4, 10, 11, 12, 13, 20, 21, 22, 101, 111)]
    ends = ["st", "nd", "rd", "th", "th", "th", "th", "th", "th", "st", "nd", "st", "th"]
    assert [word.lstrip("0123456789") for word in said] == ends


def test_lists_are_drawn_without_repetition(file: Callable[..., Path], tmp_path: Path) -> None:
    found = read_search(file(), overrides=["training.bleu_sentences=2"])
    found = dataclasses.replace(found, objective="loss")
    assert searcher(found, tmp_path / "out", imitated(lambda *_: 1.0, []), jobs=2).run()
    trials = result.result_of(found, Study(found, tmp_path / "out"), tmp_path / "out").trials
    assert {tuple(found.shown(trial.values).values()) for trial in trials} == {
        (size, dropout) for size in ("270", "300") for dropout in ("0.1", "0.2")
    }


def test_a_killed_search_ends_as_one_that_nobody_disturbed(file: Callable[..., Path], tmp_path: Path) -> None:
    """Real trainings: each is resumed from rung to rung, and neither before nor after a kill anything is done twice."""
    found = dataclasses.replace(read_search(file()), rungs=(1, 2), trials=3)
    assert searcher(found, tmp_path / "whole", train).run()
    calls: list[str] = []

    def dies(job: CellJob, **_: Any) -> CellState:
        calls.append(job.name)
        if len(calls) in (2, 4):
            raise KeyboardInterrupt
        return train(job)

    with pytest.raises(KeyboardInterrupt):
        searcher(found, tmp_path / "killed", dies).run()
    again = searcher(found, tmp_path / "killed", dies)
    with pytest.raises(KeyboardInterrupt):
        again.run()
    assert searcher(found, tmp_path / "killed", dies).run()
    assert as_numbers(found, tmp_path / "killed") == as_numbers(found, tmp_path / "whole")
    complete = folder_of(tmp_path / "whole", 0)
    assert reached(complete, "chrf").spent.epochs == 2
    assert not list(complete.glob("scores.*")), "the test set was looked at"


@pytest.mark.parametrize("at", [1, 4], ids=["first rung", "last rung"])
def test_a_kill_between_a_trials_figure_and_its_verdict_changes_nothing(
    at: int, file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read_search(file(RATES), trials=6)
    cell = imitated(lambda settings, epoch: 1 / (settings["training"]["learning_rate"] * epoch), [])
    assert searcher(found, tmp_path / "whole", cell).run()
    stopped = next(t.number for t in Study(found, tmp_path / "whole").known() if t.state == "stopped")
    killed = searcher(found, tmp_path / "killed", cell)
    tell = killed.study._study.tell

    def dies(number: int, *values: Any, **how: Any) -> None:
        if number == (0 if at == 4 else stopped):
            raise KeyboardInterrupt
        tell(number, *values, **how)

    monkeypatch.setattr(killed.study._study, "tell", dies)
    with pytest.raises(KeyboardInterrupt):
        killed.run()
    assert searcher(found, tmp_path / "killed", cell).run()
    assert as_numbers(found, tmp_path / "killed") == as_numbers(found, tmp_path / "whole")


def test_trials_that_fail_are_told_and_the_others_go_on(file: Callable[..., Path], tmp_path: Path) -> None:
    found = dataclasses.replace(read_search(file()), objective="loss")
    good = imitated(lambda *_: 1.0, [])

    def fails(job: CellJob, **how: Any) -> CellState:
        if job.name == "trial 1":
            return CellState(status=CellStatus.FAILED, message="the loss is no number")
        return good(job, **how)

    assert searcher(found, tmp_path / "out", fails).run()
    report = result.result_of(found, Study(found, tmp_path / "out"), tmp_path / "out")
    assert [result.why(trial) for trial in report.trials if trial.state == "failed"] == ["the loss is no number"]
    assert report.best is not None
    assert report.whole_space == result.Cost(updates=4 * 40, seconds=4 * 8.0)


@pytest.mark.parametrize(
    ("end", "sentence"),
    [({"exit_code": -9}, "its process was killed by signal 9"), ({"message": "the disk is full"}, "the disk is full")],
    ids=["killed", "full disk"],
)
def test_trials_that_a_signal_or_a_full_disk_ended_are_tried_again(
    end: dict[str, Any], sentence: str, file: Callable[..., Path], tmp_path: Path
) -> None:
    found = dataclasses.replace(read_search(file()), objective="loss")
    killed = searcher(
        found, tmp_path / "out", lambda *_, **__: CellState(status=CellStatus.FAILED, passing=True, **end)
    )
    said: list[str] = []
    killed.say = said.append
    assert not killed.run()
    assert {trial.state for trial in killed.study.known()} == {"running"}
    assert any(line.startswith(f"trial 0 ended: {sentence}") for line in said)
    again = searcher(found, tmp_path / "out", imitated(lambda *_: 1.0, []))
    assert again.run()
    assert "failed" not in {trial.state for trial in again.study.known()}


def test_the_command_ends_with_a_table_of_all_trials(file: Callable[..., Path], tmp_path: Path) -> None:
    """Of a search whose trials are done: the command draws none, trains none, and shows them."""
    path = file(RATES)
    searcher(read_search(path), tmp_path / "runs" / "try", imitated(lambda *_: 1.0, [])).run()
    done = CliRunner().invoke(app, ["search", str(path), "--out", str(tmp_path / "runs")])
    assert done.exit_code == 0
    assert "Best of 4 trials" in done.output
    content = json.loads((tmp_path / "runs" / "try" / "search.json").read_text(encoding="utf-8"))
    assert [trial["number"] for trial in content["trials"]] == [0, 1, 2, 3]
    assert content["best"] is not None
    assert "weights are those with the lowest loss" not in done.output, "which are compared"


@pytest.mark.parametrize(("objective", "best_by", "says"), [("chrf", "loss", True), ("chrf", "chrf", False)])
def test_a_figure_that_weights_are_not_kept_by_is_said_to_be_one(
    file: Callable[..., Path], tmp_path: Path, objective: str, best_by: str, says: bool
) -> None:
    search = read_search(file(RATES, FILE.replace("patience = 1", f"best_by = '{best_by}'")))
    searcher(search, tmp_path / "out", imitated(lambda *_: 1.0, [])).run()
    found = result.result_of(search, Study(search, tmp_path / "out"), tmp_path / "out")
    assert search.best_by == best_by
    judged = dataclasses.replace(found, search=dataclasses.replace(search, objective=objective))
    told = result.sentences(judged, tmp_path)
    assert any("weights are those with the lowest loss" in one for one in told) == says


def test_trials_of_changed_files_are_not_compared(file: Callable[..., Path], tmp_path: Path) -> None:
    """Also where the first trials were begun before it was known what they read."""
    path, out, train_file = file(RATES), tmp_path / "runs", tmp_path / "train.tsv"
    searcher(read_search(path), out / "try", imitated(lambda *_: 1.0, [])).run()
    whole, codes = train_file.read_text(encoding="utf-8"), []
    for text in (whole, whole[: whole.index("\n", 500) + 1], whole):
        train_file.write_text(text, encoding="utf-8")
        done = CliRunner().invoke(app, ["search", str(path), "--out", str(out)])
        codes.append(done.exit_code)
        assert ("holds trials that read other files" in str(done.exception)) is (text != whole)
    assert codes == [0, 1, 0]


def test_every_corpus_is_looked_at_however_many_combinations_there_are(file: Callable[..., Path]) -> None:
    many = ", ".join(f"{0.0001 * number:.4f}" for number in range(1, 1_102))
    corpora = '[search.vary.data]\none = {}\ntwo = {"corpus.split_seed" = 1}\n'
    search = read_search(file(f'{corpora}\n[search.vary]\n"architecture.dropout" = [{many}]\n'))
    assert [one.corpus.split_seed for one in search.examples()] == [0, 1]


def test_every_corpus_that_is_searched_is_known_by_its_data(file: Callable[..., Path], tmp_path: Path) -> None:
    more = tmp_path / "more.tsv"
    more.write_text("um gato\ta cat\n", encoding="utf-8")
    vary = (
        '[search.vary]\n"architecture.dropout" = [0.1, 0.2]\n[search.vary.data]\n'
        'without = {}\nwith = {"corpus.synthetic" = ["more.tsv"]}\nnone = {"corpus.train" = ["none.tsv"]}\n'
    )
    found = read_search(file(vary))
    before = prepare(found, lambda _: None)
    (tmp_path / "out").mkdir()
    Study(found, tmp_path / "out").check_data(before)
    Study(found, tmp_path / "out").check_data(before)
    more.write_text("um gato\ta cat\num homem\ta man\n", encoding="utf-8")
    after = prepare(found, lambda _: None)
    assert [before[corpus] == digests for corpus, digests in after.items()] == [True, False]
    Study(found, tmp_path / "out").check_data(after)  # no trial has begun
    Study(found, tmp_path / "out").take()
    with pytest.raises(CheckpointError, match="put the files of those trials back"):
        Study(found, tmp_path / "out").check_data(before)


def test_trials_are_compared_on_the_same_sentences(file: Callable[..., Path], tmp_path: Path) -> None:
    """A choice with a corpus of its own replaces the file's, validation set included."""
    text = (tmp_path / "train.tsv").read_text(encoding="utf-8") if file() else ""
    (tmp_path / "less.tsv").write_text("".join(text.splitlines(keepends=True)[:40]), encoding="utf-8")
    own = '[search.vary.data]\nall = {"corpus.train" = ["train.tsv"]%s}\nless = {"corpus.train" = ["less.tsv"]%s}\n'
    valid = ', "corpus.valid" = ["valid.tsv"]'
    assert len(prepare(read_search(file(own % (valid, valid))), lambda _: None)) == 2
    with pytest.raises(ConfigError, match="different validation sets, whose figures cannot be compared"):
        prepare(read_search(file(own % ("", ""))), lambda _: None)


def test_settings_for_elsewhere_are_words_of_a_shell_and_name_files_in_full(
    file: Callable[..., Path], tmp_path: Path
) -> None:
    found = read_search(file('[search.vary.data]\none = {"corpus.train" = ["a b.pt", "c.en"]}\n'))
    (words,) = found.overrides({"data": "one"})
    first, setting = shlex.split(words)
    assert first == "--set"
    assert setting == f"corpus.train={json.dumps([str(tmp_path / 'a b.pt'), str(tmp_path / 'c.en')])}"
    found = read_search(file('[search.vary.data]\none = {"corpus.also" = [{train = ["a.pt", "c.en"], tag = "c"}]}\n'))
    (words,) = found.overrides({"data": "one"})
    also = load(None, overrides=[shlex.split(words)[1]]).experiment.corpus.also
    assert [(one.train, one.tag) for one in also] == [((str(tmp_path / "a.pt"), str(tmp_path / "c.en")), "c")]


def test_what_a_trial_has_cost_is_known_without_its_folder(file: Callable[..., Path], tmp_path: Path) -> None:
    found, folder = read_search(file(RATES)), tmp_path / "out"
    searcher(found, folder, imitated(lambda *_: 1.0, [])).run()
    before = result.result_of(found, Study(found, folder), folder)
    shutil.rmtree(folder / "trial-001")
    after = result.result_of(found, Study(found, folder), folder)
    assert before.spent.updates > 0
    assert after == before


def test_a_file_without_a_search_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain.toml").write_text("[training]\nepochs = 3\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="has no table"):
        read_search(tmp_path / "plain.toml")


def test_a_folder_holds_one_search(file: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    Study(read_search(file()), tmp_path / "out")
    Study(read_search(file(), trials=3), tmp_path / "out")
    with pytest.raises(CheckpointError, match=r"other settings \(training\.batch_size\)"):
        Study(read_search(file(), overrides=["training.batch_size=400"]), tmp_path / "out")
    with pytest.raises(CheckpointError, match="objective"):
        Study(read_search(file(text=FILE.replace("trials = 4", "objective = 'bleu'"))), tmp_path / "out")
    (tmp_path / "out" / "search.db").write_bytes(b"no database" * 1000)
    with pytest.raises(CheckpointError, match="restore it"):
        Study(read_search(file()), tmp_path / "out")


@pytest.mark.parametrize("name", ["wh?at", "a%20b", "{x}", "a#b c"])
def test_the_database_lies_in_its_folder_whatever_that_is_called(
    name: str, file: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / name).mkdir()
    Study(read_search(file()), tmp_path / name)
    assert (tmp_path / name / "search.db").is_file()
    Study(read_search(file(), trials=3), tmp_path / name)
    assert not [path for path in tmp_path.iterdir() if path.is_file() and path.suffix not in (".toml", ".tsv")]


def test_one_process_searches_in_a_folder(tmp_path: Path) -> None:
    busy: list[bool] = []

    def other() -> None:
        try:
            with held(tmp_path):
                busy.append(False)
        except BusyError:
            busy.append(True)

    with held(tmp_path):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    other()
    assert busy == [True, False]


@pytest.mark.parametrize(
    ("vary", "override"), [(LISTS, "architecture.dropout=0.5"), (RATES, "training.learning_rate=1")]
)
def test_what_is_searched_cannot_be_set_for_all_trials(file: Callable[..., Path], vary: str, override: str) -> None:
    with pytest.raises(ConfigError, match=f"searches {override.partition('=')[0]}, which --set makes the same"):
        read_search(file(vary), overrides=[override])
    read_search(file(vary), overrides=["training.epochs=5"])
