"""Training and evaluating from Python."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import repose
from repose.config.file import load, to_toml
from repose.runs.run import RunResult
from repose.saved_run.folder import RunFolder
from repose.saved_run.records import EndReason, RunStatus
from repose.system.errors import BusyError, ConfigError, DataError
from repose.training.job import Outcome
from repose.training.loop import Trainer

WORDS = ("red", "blue", "one", "two", "sun", "moon", "tree", "fish")
SMALL: dict[str, Any] = {
    **{f"architecture.{name}": 32 for name in ("d_token", "head_dim", "d_ff", "max_length")},
    **{f"architecture.{name}": 1 for name in ("num_heads", "num_encoder_layers", "num_decoder_layers")},
    **{f"training.{name}": 32 for name in ("max_src_tokens", "max_tgt_tokens")},
    "training.batch_size": 64,
    "training.epochs": 1,
    "decoding.length_penalty": 1.0,
    "tokenizer.vocab_size": 300,
}


def quiet(_: str) -> None:
    pass


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    lines = [" ".join((WORDS * 2)[begin : begin + length]) for begin in range(8) for length in range(4, 9)]
    random.Random(1).shuffle(lines)
    (tmp_path / "pairs.tsv").write_text("".join(f"{line}\t{line.upper()}\n" for line in lines), encoding="utf-8")
    return tmp_path / "pairs.tsv"


def train(corpus: Any, out: Path, **options: Any) -> repose.RunResult:
    return repose.train(
        corpus, out=out, **{"settings": SMALL, "workers": 1, "progress": "none", "say": quiet, **options}
    )


def test_trained_measured_and_used(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("repose.runs.arguments.multiplies_in_bf16", lambda: True)
    said: list[str] = []
    test = corpus.with_name("test.tsv")
    test.write_text("".join(corpus.read_text(encoding="utf-8").splitlines(keepends=True)[-8:]), encoding="utf-8")
    first = train(str(corpus), tmp_path / "run", stop_after=1, say=said.append, test=test)
    assert first.outcome.status == "stopped"
    with pytest.raises(repose.ReposeError, match="run has no scores until its training is over: train there again"):
        assert first.scores
    assert any("the recipe little-data" in sentence for sentence in said)
    assert any("training.precision=bf16" in sentence for sentence in said)
    result = train(str(corpus), tmp_path / "run", test=[str(test)])
    assert result.outcome.status == "done"
    assert capsys.readouterr() == ("", "")
    scores = repose.evaluate(tmp_path / "run", say=quiet)
    assert scores["decoded"] == result.scores["decoded"]
    of_files = repose.evaluate(str(tmp_path / "run" / "model"), test, beam_sizes=[1], out=tmp_path / "scores")
    assert of_files["decoded"]["greedy"] == scores["decoded"]["greedy"]
    assert (tmp_path / "scores" / "scores.test.json").exists()
    translator: Any = repose.load(tmp_path / "run")
    assert len(translator.translate(["red blue one two"])) == 1
    with pytest.raises(ConfigError, match=r"is an object of the class Translator, but .*: save it to one first"):
        repose.evaluate(translator)


def test_what_is_given_are_settings(corpus: Path, tmp_path: Path) -> None:
    given = {**SMALL, "training.patience": None, "corpus.src_lang": "pt", "training.seed": 3}
    train(corpus, tmp_path / "a", settings=given, preset="baseline", valid=corpus, stop_after=1)
    (tmp_path / "own.toml").write_text('[training]\nseed = 3\n[corpus]\ntrain = ["pairs.tsv"]\n', encoding="utf-8")
    train(None, tmp_path / "b", config=tmp_path / "own.toml", stop_after=1)
    a, b = (RunFolder(tmp_path / name).config().experiment for name in "ab")
    assert (a.training.seed, a.training.patience, a.corpus.src_lang, a.corpus.valid) == (3, None, "pt", (str(corpus),))
    assert (b.training.seed, b.corpus.train, b.training.r_drop) == (3, (str(corpus),), 0.0)
    assert a.architecture.values == "hidden"


def test_a_whole_experiment(corpus: Path, tmp_path: Path) -> None:
    overrides = [f"{name}={to_toml(value)}" for name, value in SMALL.items()]
    experiment = load("default", train=[corpus], overrides=overrides).experiment
    result = train(experiment, tmp_path / "run", settings=None, stop_after=1)
    assert RunFolder(tmp_path / "run").config().experiment == experiment
    assert result.outcome.update == 1
    with pytest.raises(ConfigError, match="an Experiment has all settings"):
        train(experiment, tmp_path / "other")


@pytest.mark.parametrize(
    ("corpus_", "options", "error", "sentence"),
    [
        ("missing.tsv", {}, DataError, "there is no file"),
        (["O gato.", "O cão.", "Oi."], {}, ConfigError, "these are 3 files, and not all of them are there"),
        ("pairs.tsv", {"start": "run"}, ConfigError, "run holds the model to start from"),
        (None, {}, ConfigError, "there is no corpus"),
        ("pairs.tsv", {"settings": {"training.epoch": 1}}, ConfigError, "epoch"),
        ("pairs.tsv", {"config": "nosuch"}, ConfigError, "nosuch"),
        ("pairs.tsv", {"out": "."}, ConfigError, "and no run"),
        ("pairs.tsv", {"out": None}, ConfigError, "out is None, but must be the path"),
        ("pairs.tsv", {"progress": "bar"}, ConfigError, "there is no progress 'bar'"),
        ("pairs.tsv", {"stop_after": "5"}, ConfigError, "stop_after = '5'"),
        (3, {}, ConfigError, "int names none: write them to one"),
        ({"src": ["a"]}, {}, ConfigError, "dict names none"),
        ([("O gato.", "The cat.")], {}, ConfigError, "tuple names none"),
        ([], {}, ConfigError, "a list of files is empty"),
        ("pairs.tsv", {"valid": []}, ConfigError, "a list of files is empty"),
        ("pairs.tsv", {"out": "a\0b"}, ConfigError, "must be the path of a folder"),
        ("pairs.tsv", {"out": "a\ud800"}, ConfigError, "must be the path of a folder"),
        ("pairs.tsv", {"say": None}, ConfigError, "say is a function"),
        ("pairs.tsv", {"stop": True}, ConfigError, r"stop a threading\.Event"),
    ],
)
def test_wrong_input(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, corpus_: Any, options: Any, error: type[Exception], sentence: str
) -> None:
    monkeypatch.chdir(corpus.parent)
    with pytest.raises(error, match=sentence):
        train(corpus_, **{"out": Path("run"), **options})


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["training.epochs=5"], "settings are by name"),
        ({"corpus.valid": ["pairs.tsv"]}, "valid and the setting corpus.valid say the same"),
    ],
)
def test_wrong_settings(corpus: Path, tmp_path: Path, settings: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        train(corpus, tmp_path / "run", settings=settings, valid=corpus)


def test_values_of_settings_may_be_numpys_and_paths(corpus: Path, tmp_path: Path) -> None:
    given = {**SMALL, "training.seed": np.int64(3), "training.learning_rate": np.float32(0.5)}
    given |= {"corpus.valid": np.array([str(corpus)])}
    train(str(corpus), tmp_path / "run", settings=given, stop_after=1, workers=np.int64(1))
    experiment = RunFolder(tmp_path / "run").config().experiment
    assert (experiment.training.seed, experiment.corpus.valid) == (3, (str(corpus),))
    assert experiment.training.learning_rate == 0.5


def test_a_setting_is_given_once(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"settings name training\.seed twice"):
        train(corpus, tmp_path / "run", settings={"training.seed": 3, "training": {"seed": 4}})


def test_files_may_come_from_an_iterator_and_be_anything_with_a_path(corpus: Path, tmp_path: Path) -> None:
    class Place:
        def __fspath__(self) -> str:
            return str(tmp_path / "run")

    out: Any = Place()
    result = train(corpus.parent.glob("pairs.*"), out, stop_after=1)
    assert result.folder == tmp_path / "run"
    for folder in (result, [result]):
        with pytest.raises(
            repose.CheckpointError, match="run is a run without a model: if its training is not finished"
        ):
            repose.load(folder)


def test_no_files_are_not_the_files_of_the_run(corpus: Path, tmp_path: Path) -> None:
    train(corpus, tmp_path / "run", stop_after=1)
    with pytest.raises(ConfigError, match="a list of files is empty"):
        repose.evaluate(tmp_path / "run", [])


def test_an_architecture_is_a_setting(corpus: Path, tmp_path: Path) -> None:
    sizes = {name.partition(".")[2]: value for name, value in SMALL.items() if name.startswith("architecture.")}
    wanted = replace(repose.presets()["pre-ln"], **sizes, tie_embeddings="none")
    others = {name: value for name, value in SMALL.items() if not name.startswith("architecture.")}
    train(corpus, tmp_path / "run", settings={**others, "architecture": wanted}, stop_after=1)
    assert RunFolder(tmp_path / "run").config().experiment.architecture == wanted


def test_settings_may_be_in_tables(corpus: Path, tmp_path: Path) -> None:
    train(corpus, tmp_path / "run", settings={**SMALL, "training": {"seed": 4}}, stop_after=1)
    assert RunFolder(tmp_path / "run").config().experiment.training.seed == 4


def test_lines_of_progress_are_said(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    result = train(corpus, tmp_path / "run", progress="lines", say=said.append)
    assert any(sentence.startswith("epoch 1") for sentence in said)
    assert any("reference:" in sentence for sentence in said)
    assert capsys.readouterr() == ("", "")
    assert RunFolder(result.folder).records().of_kind("valid")


def test_another_thread_stops_a_training_that_hears_no_signals(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, results = threading.Event(), list[repose.RunResult]()
    update = Trainer._update

    def updated(self: Trainer, *arguments: Any) -> Any:
        update(self, *arguments)
        stop.set()

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_update", updated)
        thread = threading.Thread(target=lambda: results.append(train(corpus, tmp_path / "run", stop=stop)))
        thread.start()
        thread.join()
    (result,) = results
    assert (result.outcome.status, result.outcome.reason, result.scores_if_any) == ("stopped", "stop", None)
    assert 1 <= result.outcome.update <= 2
    assert train(corpus, tmp_path / "run").outcome.status == "done"


def test_a_memory_that_was_moved_goes_on(corpus: Path, tmp_path: Path) -> None:
    pairs = [line.split("\t") for line in corpus.read_text(encoding="utf-8").splitlines()]
    variants = '<tuv xml:lang="gl"><seg>{}</seg></tuv><tuv xml:lang="en"><seg>{}</seg></tuv>'
    units = "".join(f"<tu>{variants.format(*pair)}</tu>" for pair in pairs)
    memory = tmp_path / "a.tmx"
    memory.write_text(f'<tmx><header srclang="gl"/><body>{units}</body></tmx>', encoding="utf-8")
    train(memory, tmp_path / "run", stop_after=1)
    train(memory.rename(tmp_path / "b.tmx"), tmp_path / "run")
    assert repose.load(tmp_path / "run").config["src_lang"] == "gl"


def test_one_beam_size_is_a_list(corpus: Path, tmp_path: Path) -> None:
    size: Any = 4
    with pytest.raises(ConfigError, match=r"beam_sizes is 4: give a list, as in \[4\]"):
        repose.evaluate(tmp_path, corpus, beam_sizes=size)


def test_files_in_a_set_have_no_order(tmp_path: Path) -> None:
    files: Any = {"a.pt", "a.en"}
    with pytest.raises(ConfigError, match="source first, not a set, which has no order"):
        repose.train(files, out=tmp_path / "run")


def test_several_models_are_an_ensemble(corpus: Path, tmp_path: Path) -> None:
    run = train(corpus, tmp_path / "run").folder
    alone, together = (repose.evaluate(model, corpus, beam_sizes=[1], say=quiet) for model in (run, [run, run]))
    assert together["decoded"]["greedy"]["bleu"] == alone["decoded"]["greedy"]["bleu"]
    with pytest.raises(ConfigError, match="model is None, but must be"):
        repose.evaluate([run, None], corpus)  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="name a model"):
        repose.evaluate([], corpus)
    with pytest.raises(ConfigError, match="model is None, but must be"):
        repose.evaluate(None, corpus)  # type: ignore[arg-type]


def test_split_of_a_run_is_no_path(corpus: Path, tmp_path: Path) -> None:
    train(corpus, tmp_path / "run", stop_after=1)
    with pytest.raises(ConfigError, match="leave slashes out"):
        repose.evaluate(tmp_path / "run", split="a/b")
    with pytest.raises(ConfigError, match="split is 3"):
        repose.evaluate(tmp_path / "run", split=3)  # type: ignore[arg-type]


def test_ctrl_c_ends_a_loop_over_trainings(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the training saves its state first, which the next call goes on from."""
    update = Trainer._update

    def interrupted(self: Trainer, *arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return update(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_update", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(corpus, tmp_path / "run")
    assert train(corpus, tmp_path / "run").outcome.status == "done"


def test_the_callers_random_numbers_stay(corpus: Path, tmp_path: Path) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    train(corpus, tmp_path / "run", stop_after=1)
    assert torch.equal(torch.rand(3), expected)


def test_a_script_with_several_workers_needs_no_main_guard(corpus: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import repose\nprint('begun')\nresult = repose.train({str(corpus)!r}, out={str(tmp_path / 'run')!r}, "
        f"settings={SMALL!r}, workers=2, progress='none', stop_after=1)\n"
        "import sys; assert sys.modules['__main__'].__file__ == __file__\nprint(result.outcome.status)\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "begun\nstopped\n"), done.stderr


def tensors(run: repose.RunResult) -> dict[str, torch.Tensor]:
    return load_file(run.folder / "model" / "model.safetensors")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("mode", ["no_grad", "inference_mode", "autocast", "float64"])
def test_what_a_program_has_set_of_torch_moves_no_weight(
    corpus: Path, tmp_path: Path, mode: str, precision: str
) -> None:
    settings = {**SMALL, "training.precision": precision}
    wanted = tensors(train(corpus, tmp_path / "plain", settings=settings))
    within = {"autocast": lambda: torch.autocast("cpu", torch.bfloat16), "float64": contextlib.nullcontext}
    with within.get(mode, lambda: getattr(torch, mode)())():
        torch.set_default_dtype(torch.float64 if mode == "float64" else torch.float32)
        try:
            found = tensors(train(corpus, tmp_path / mode, settings=settings))
            assert torch.get_default_dtype() == (torch.float64 if mode == "float64" else torch.float32)
        finally:
            torch.set_default_dtype(torch.float32)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_one_process_trains_one_model_at_a_time(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout's random numbers are torch's own, which all threads draw from."""
    update, said = Trainer._update, list[str]()

    def updated(self: Trainer, *arguments: Any) -> Any:
        if not said:
            said.append("")
            thread = threading.Thread(target=begin)
            thread.start()
            thread.join()
        return update(self, *arguments)

    def begin() -> None:
        try:
            train(corpus, tmp_path / "second")
        except BusyError as error:
            said.append(str(error))

    monkeypatch.setattr(Trainer, "_update", updated)
    train(corpus, tmp_path / "first", stop_after=1)
    assert said[1].startswith("another thread of this process is training")
    assert train(corpus, tmp_path / "second").outcome.status == "done"


def test_models_built_in_several_threads_are_those_of_their_seeds() -> None:
    def build() -> torch.Tensor:
        model = repose.build("baseline", src_vocab_size=50, tgt_vocab_size=50, seed=3)
        return torch.cat([weights.detach().flatten() for weights in model.parameters()])

    wanted = build()
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(found, wanted) for found in pool.map(lambda _: build(), range(8)))


@pytest.mark.parametrize("more", [{}, {"training.average_checkpoints": 2}], ids=["best", "mean"])
def test_figures_of_a_run_are_those_of_its_model(corpus: Path, tmp_path: Path, more: dict[str, Any]) -> None:
    """Not of a later validation, which was worse."""
    settings = {**SMALL, "training.epochs": 5, "training.keep": "best", "training.warmup_updates": 2, **more}
    settings["training.learning_rate"] = 0.3
    result = train(corpus, tmp_path / "run", settings=settings)
    losses = [record["tf_loss"] for record in result.records if record["kind"] == "valid"]
    assert min(losses) < losses[-1], "or this shows nothing"
    again = train(corpus, tmp_path / "run", settings=settings)
    (tmp_path / "run" / "state" / "last.pt").unlink(missing_ok=True)
    shutil.rmtree(tmp_path / "run" / "state")  # as `repose cache` does
    cleared = train(corpus, tmp_path / "run", settings=settings)
    for found in (result, again, cleared):
        assert found.outcome.metrics == repose.load(found.folder).config["validation"]
        assert repr(found).startswith(f"RunResult('{found.folder}', done at update {found.outcome.update}, scores of")


def test_a_result_names_its_figures(tmp_path: Path) -> None:
    outcome = Outcome(RunStatus.DONE, EndReason.EPOCHS, 7, {})
    scores: dict[str, dict[str, Any]] = {
        "translation": {"split": "test", "decoded": {"greedy": {}, "beam4": {}}},
        "parsing": {"split": "test", "task": "parsing", "figures": {"uas": {}, "las": {}}},
    }
    said = {task: repr(RunResult(tmp_path, outcome, "0123456789ab", found)) for task, found in scores.items()}
    assert said["translation"].endswith("done at update 7, scores of greedy, beam4)")
    assert said["parsing"].endswith("done at update 7, scores of uas, las)")


def test_a_run_without_a_test_set_is_measured_on_what_it_was_scored_on(corpus: Path, tmp_path: Path) -> None:
    result = train(corpus, tmp_path / "run", valid=corpus)
    assert repose.evaluate(result, say=quiet)["split"] == result.scores["split"] == "valid"


def test_files_of_an_experiment_are_those_of_where_it_began(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = load(
        "default", train=[corpus], overrides=[f"{name}={to_toml(value)}" for name, value in SMALL.items()]
    ).experiment
    made = replace(made, corpus=replace(made.corpus, name=None, train=("pairs.tsv",), valid=("pairs.tsv",)))
    train(made, tmp_path / "run", settings=None, stop_after=1)
    stored = RunFolder(tmp_path / "run").config().experiment.corpus
    assert (stored.train, stored.valid) == ((str(corpus),), (str(corpus),))
    also = [{"train": [corpus], "tag": "x"}]
    train(corpus, tmp_path / "two", settings={**SMALL, "corpus.also": also, "corpus.tag": "y"}, stop_after=1)
    for value in ({1, 2}, torch.ones(2), object()):
        with pytest.raises(ConfigError, match=r"the setting training\.seed is .*: give a number"):
            train(corpus, tmp_path / "three", settings={"training.seed": value})


def test_fine_tuning_reads_sentences_as_long_as_the_first_training_allowed(corpus: Path, tmp_path: Path) -> None:
    """Not only as long as those that it met."""
    first = train(corpus, tmp_path / "first")
    longer = tmp_path / "longer.tsv"
    lines = [" ".join((WORDS * 4)[n : n + 14]) for n in range(8)] + [" ".join(WORDS[::-1] * 2)[n:] for n in range(8)]
    longer.write_text("".join(f"{line}\t{line.upper()}\n" for line in lines), encoding="utf-8")
    tuned = train(longer, tmp_path / "tuned", settings={"training.epochs": 1}, start=first.folder)
    assert RunFolder(tuned.folder).config().experiment.training.max_src_tokens == SMALL["training.max_src_tokens"]
    alone = train(longer, tmp_path / "alone", settings={"training.epochs": 1}, start=first.folder / "model")
    assert RunFolder(alone.folder).config().experiment.training.max_src_tokens == SMALL["architecture.max_length"]
