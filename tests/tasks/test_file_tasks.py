"""Language modelling and parsing from files to scores."""

import json
import math
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from repose.cli.main import app
from repose.cli.tables import evaluation_table, run_table
from repose.config.file import load
from repose.data.treebank import Treebank
from repose.evaluation.ratio import read_ratio
from repose.model.language_model import LanguageModel
from repose.runs.fine_tuning import FINE_TUNING, settings_of
from repose.runs.run import run
from repose.saved_run.folder import RunFolder
from repose.system.errors import CheckpointError, ConfigError, DataError
from repose.tasks.base import EvaluationOptions, Figure
from repose.tasks.corpus import prepare_corpus
from repose.tasks.language_modelling import stepwise
from repose.tasks.parsing import TASK as PARSING
from repose.tasks.parsing import Parse, attachment
from repose.tasks.registry import get_task, task_of_model

WORDS = ("red", "blue", "one", "two", "sun", "moon", "tree", "fish")
SMALL = [
    *(f"architecture.{name}" for name in ("d_token=8", "num_heads=2", "head_dim=8", "d_ff=16", "max_length=64")),
    *(f"architecture.{name}" for name in ("num_encoder_layers=1", "num_decoder_layers=1", "dropout=0")),
    *(f"training.{name}" for name in ("max_src_tokens=64", "max_tgt_tokens=16", "batch_size=60", "learning_rate=0.02")),
    *(f"training.{name}" for name in ("epochs=none", "updates=40", "schedule=constant", "warmup_updates=5")),
    "tokenizer.vocab_size=300",
]
TASKS = ("language_modelling", "parsing")


def scored(folder: Path, files: list[Path] | None, out: Path | None = None) -> dict[str, Any]:
    """What `repose evaluate` comes to."""
    return task_of_model(folder).score_model(folder, files, "test", out, EvaluationOptions((1,)))


def conllu(words: list[str]) -> str:
    rows = []
    for number, word in enumerate(words, 1):
        head, label = (number + 1, "dep") if number < len(words) else (0, "root")
        rows.append(f"{number}\t{word}\t_\t_\t_\t_\t{head}\t{label}\t_\t_")
    return "\n".join(rows) + "\n\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text and a treebank of counting rhymes, in three sets each."""
    folder = tmp_path_factory.mktemp("tasks")
    draw = random.Random(1)
    rhymes = [(WORDS * 3)[begin : begin + draw.randint(3, 12)] for begin in range(8) for _ in range(6)]
    draw.shuffle(rhymes)
    for split, part in (("train", rhymes[:30]), ("valid", rhymes[30:38]), ("test", rhymes[38:])):
        (folder / f"{split}.txt").write_text("".join(" ".join(words) + "\n" for words in part), encoding="utf-8")
        (folder / f"{split}.conllu").write_text("".join(conllu(list(words)) for words in part), encoding="utf-8")
    return folder


def settings(home: Path, task: str, *more: str) -> list[str]:
    ending = {"language_modelling": "txt", "parsing": "conllu"}[task]
    files = [f'corpus.{split}=["{home / split}.{ending}"]' for split in ("train", "valid", "test")]
    return [*SMALL, *files, f"training.task={task}", *more]


def made(home: Path, task: str, folder: Path, *more: str) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPOSE_HOME", str(home / "home"))
        experiment = load(None, overrides=settings(home, task, *more)).experiment
        result = run(experiment, folder, device="cpu", workers=1, progress="none")
    assert result.outcome.status == "done"
    return result.scores


@pytest.fixture(scope="module")
def runs(home: Path) -> dict[str, Path]:
    torch.set_num_threads(1)
    for task in TASKS:
        made(home, task, home / task)
    return {task: home / task for task in TASKS}


def scores_of(folder: Path) -> dict[str, Any]:
    scores = dict(RunFolder(folder).scores("test") or {})
    assert scores.pop("sha256")
    return scores


@pytest.mark.parametrize("task", TASKS)
def test_scores_say_what_they_are(runs: dict[str, Path], task: str) -> None:
    scores = scores_of(runs[task])
    assert (scores["task"], scores["split"], scores["looks_ahead"]) == (task, "test", False)
    assert scores["run_id"] == json.loads((runs[task] / "config.json").read_text())["run_id"]
    assert scores["parameters"] == sum(p.numel() for p in get_task(task).load(runs[task]).model.parameters())
    for figure in scores["figures"].values():
        assert set(figure) == {"value", "unit"}
    named = {"language_modelling": "bits_per_token", "parsing": "las"}[task]
    assert named in scores["figures"]
    sums = read_ratio(RunFolder(runs[task]).statistics_file("test"))
    assert (sums.figure, sums.value) == (named, pytest.approx(scores["figures"][named]["value"]))
    texts = (runs[task].parent / "test.txt").read_text(encoding="utf-8").splitlines()
    assert (len(sums), sums.units) == (len(texts), {"language_modelling": "documents", "parsing": "sentences"}[task])
    if task == "parsing":
        assert sums.sizes.tolist() == [len(text.split()) for text in texts]
        assert not (sums.amounts % 1).any()
    else:
        assert sums.sizes.sum() == scores["num_tokens"]


@pytest.mark.parametrize(("task", "lang"), [("language_modelling", "tgt_lang"), ("parsing", "src_lang")])
def test_training_goes_on_from_a_model(home: Path, task: str, lang: str, tmp_path: Path) -> None:
    """With its language and the length of its blocks, in the recipe that ships."""
    made(home, task, tmp_path / "first", f"corpus.{lang}=eo", "training.updates=2")
    ending = settings(home, task)[len(SMALL) :]
    more = [word for word in ending if not word.startswith("training.task")]
    loaded = load(FINE_TUNING, model=settings_of(tmp_path / "first"), overrides=[*more, "training.updates=2"])
    result = run(loaded.experiment, tmp_path / "second", device="cpu", workers=1, progress="none")
    assert result.outcome.status == "done"
    first, second = (json.loads((tmp_path / name / "model/config.json").read_text()) for name in ("first", "second"))
    assert second["lang"] == "eo"
    assert second.get("max_tokens") == first.get("max_tokens") == (16 if task == "language_modelling" else None)


@pytest.mark.parametrize("task", TASKS)
def test_a_model_is_loaded_and_measured_again(
    home: Path, runs: dict[str, Path], task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPOSE_HOME", str(home / "home"))
    ending = {"language_modelling": "txt", "parsing": "conllu"}[task]
    own = scored(runs[task], None, out=tmp_path)
    on_file = scored(runs[task] / "model", [home / f"test.{ending}"])
    assert own == on_file == scores_of(runs[task]) == scores_of(tmp_path)
    with pytest.raises(DataError, match="name one"):
        scored(runs[task], [home / "a", home / "b"])
    options = EvaluationOptions(ensemble=(runs[task],))
    with pytest.raises(ConfigError, match="an ensemble translates"):
        task_of_model(runs[task]).score_model(runs[task], None, "test", None, options)


def test_the_cache_can_be_cleared_while_a_model_is_measured(
    runs: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_repose: Callable[..., tuple[int, str, str]],
) -> None:
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path))
    task = task_of_model(runs["parsing"])
    measure = task.measure

    def cleared_before(*given: Any) -> Any:
        assert "1 prepared corpus stays, since it is in use" in run_repose("cache", "--clear")[2]
        return measure(*given)

    monkeypatch.setattr(task, "measure", cleared_before)
    assert scored(runs["parsing"], None) == scores_of(runs["parsing"])


def test_a_tree_that_the_model_cannot_read_is_told_before_training(home: Path, tmp_path: Path) -> None:
    long = tmp_path / "long.conllu"
    long.write_text(conllu(["one", "two"]) + conllu(["sun"] * 40), encoding="utf-8")
    limits = ("architecture.max_length=32", "training.max_src_tokens=32", "training.max_tgt_tokens=32")
    for split in ("valid", "test"):
        with pytest.raises(DataError, match=f"a sentence of the {split} set has 42 tokens, more than the model reads"):
            made(home, "parsing", tmp_path / split, *limits, f'corpus.{split}=["{long}"]')
        assert not (tmp_path / split / "metrics.jsonl").exists()


def test_a_treebank_without_labels_is_told_before_training(home: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.conllu"
    bare.write_text("".join(conllu(["one", "two"]).replace("dep", "_").replace("root", "_")), encoding="utf-8")
    with pytest.raises(DataError, match=r"the trees of .*bare\.conllu have no labels"):
        made(home, "parsing", tmp_path / "run", f'corpus.train=["{bare}"]')


def test_bits(home: Path, runs: dict[str, Path]) -> None:
    scores = scores_of(runs["language_modelling"])
    value = {name: figure["value"] for name, figure in scores["figures"].items()}
    num_bytes = len((home / "test.txt").read_bytes())
    assert scores["num_bytes"] == num_bytes
    assert value["bits_per_token"] == pytest.approx(value["tf_loss"] / math.log(2))
    assert value["perplexity"] == pytest.approx(2 ** value["bits_per_token"])
    assert value["bits_per_byte"] == pytest.approx(value["bits_per_token"] * scores["num_tokens"] / num_bytes)
    # The test set is smaller than a sample: the figures of one pass are of the same tokens.
    assert value["sampled_bits_per_token"] == pytest.approx(value["bits_per_token"], rel=1e-6)


def test_a_perplexity_too_large_for_a_number_is_left_out(home: Path, runs: dict[str, Path], tmp_path: Path) -> None:
    task = get_task("language_modelling")
    loaded, ids = task.load(runs["language_modelling"]), tmp_path / "ids"
    task.write_ids(home / "test.txt", loaded, ids)
    with torch.no_grad():
        loaded.model.output.weight *= 1e4
    figures = task.measure(loaded, ids).figures
    assert figures["tf_loss"].value > 710
    assert "perplexity" not in figures
    assert all(math.isfinite(figure.value) for figure in figures.values())


@pytest.mark.parametrize("kind", ["none", "prefix", "vocabulary", "sentence"])
def test_one_pass_equals_step_by_step_but_for_the_printed_norm(
    home: Path, runs: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    """What looks ahead is far better in one pass than it can be step by step."""
    if kind == "vocabulary":
        scores = scores_of(runs["language_modelling"])
    else:
        norm = f"architecture.decoder_token_norm={kind}"
        updates = 120 if kind == "sentence" else 2  # learning to look takes a while
        scores = made(home, "language_modelling", tmp_path / kind, norm, f"training.updates={updates}")
    figures = {name: figure["value"] for name, figure in scores["figures"].items()}
    together, alone = figures["sampled_bits_per_token"], figures["stepwise_bits_per_token"]
    assert scores["looks_ahead"] == (kind == "sentence")
    if kind == "sentence":
        assert alone > together + 0.5
    else:
        assert alone == pytest.approx(together, abs=1e-4)


@torch.no_grad()
def test_a_step_sees_nothing_but_its_prefix(runs: dict[str, Path]) -> None:
    model = get_task("language_modelling").load(runs["language_modelling"]).model
    assert isinstance(model, LanguageModel)
    ids, labels = torch.tensor([2, 7, 9, 8]), torch.tensor([7, 9, 8, 3])
    found = stepwise(model, ids, labels)
    for t in range(4):
        log_probs = model(ids[None, : t + 1])[0, t].log_softmax(0)
        assert found[t].item() == pytest.approx(-log_probs[labels[t]].item(), abs=1e-5)


@torch.no_grad()
def test_a_long_block_is_predicted_step_by_step_in_bounded_memory(
    runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = get_task("language_modelling").load(runs["language_modelling"]).model
    assert isinstance(model, LanguageModel)
    ids = torch.randint(4, 12, (40,), generator=torch.manual_seed(1))
    whole, sizes, hidden = stepwise(model, ids, ids.roll(-1)), list[int](), model.hidden
    monkeypatch.setattr("repose.tasks.language_modelling._PASS_TOKENS", 200)
    monkeypatch.setattr(model, "hidden", lambda rows: sizes.append(rows.numel()) or hidden(rows))
    assert stepwise(model, ids, ids.roll(-1)).tolist() == pytest.approx(whole.tolist(), abs=1e-5)
    assert max(sizes) <= 200


def test_what_is_left_out_of_a_text_is_counted(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("repose.data.text_blocks.MAX_LINE_BYTES", 100)
    (tmp_path / "some.txt").write_text("red blue\n" + "red " * 100 + "\nsun moon\n", encoding="utf-8")
    scores = scored(runs["language_modelling"], [tmp_path / "some.txt"])
    assert scores["dropped"] == {"longer than 100 bytes": 1}
    evaluation_table(scores)
    assert "left out: 1 document (longer than 100 bytes: 1)" in capsys.readouterr().out


@pytest.mark.parametrize("task", TASKS)
def test_a_file_without_anything_to_measure_is_named(runs: dict[str, Path], task: str, tmp_path: Path) -> None:
    (tmp_path / "blank.txt").write_text("\n\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"nothing to measure in .*blank\.txt"):
        scored(runs[task], [tmp_path / "blank.txt"])


def test_bits_per_byte_need_a_tokenizer_that_keeps_the_text(home: Path, tmp_path: Path) -> None:
    lossy = ("tokenizer.kind=wordlevel", "tokenizer.vocab_size=20", "training.updates=2")
    assert "bits_per_byte" not in made(home, "language_modelling", tmp_path / "run", *lossy)["figures"]


def test_attachment_by_hand(home: Path, runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPOSE_HOME", str(home / "home"))
    experiment = load(None, overrides=settings(home, "parsing")).experiment
    bank = Treebank.open(prepare_corpus(experiment).ids("test"))
    model: Any = PARSING.load(runs["parsing"]).model
    parses = sorted(PARSING.parse(model, bank))
    assert [p.sentence for p in parses] == list(range(len(bank)))
    words = heads_right = both_right = 0
    for p in parses:
        _, _, heads, labels = bank.batch(np.array([p.sentence]))
        assert p.heads.count(0) == 1
        for i, (head, label) in enumerate(zip(p.heads, p.labels, strict=True), 1):
            words += 1
            heads_right += head == heads[0, i]
            both_right += head == heads[0, i] and label == labels[0, i]
    figures = {name: figure["value"] for name, figure in scores_of(runs["parsing"])["figures"].items()}
    assert figures["uas"] == pytest.approx(100 * heads_right / words)
    assert figures["las"] == pytest.approx(100 * both_right / words)
    assert figures["uas"] > 50
    gold = [Parse(i, *(bank.columns.flat(n, np.array([i])).tolist() for n in ("heads", "labels"))) for i in (2, 0)]
    number = sum(len(p.heads) for p in gold)
    assert attachment(gold, bank) == {n: Figure(100.0, f"percent of {number} words") for n in ("uas", "las")}
    wrong = gold[0]._replace(labels=[0, *gold[0].labels[1:]])
    found = attachment([wrong, gold[1]], bank)
    assert found["uas"].value == 100.0
    assert found["las"].value == pytest.approx(100 * (number - 1) / number)


def test_trees_are_written_a_sentence_a_line(home: Path, runs: dict[str, Path]) -> None:
    lines = (runs["parsing"] / "hypotheses" / "test.trees.txt").read_text(encoding="utf-8").splitlines()
    texts = (home / "test.txt").read_text(encoding="utf-8").splitlines()
    assert [len(line.split()) for line in lines] == [len(text.split()) for text in texts]
    assert {arc.split(":")[1] for line in lines for arc in line.split()} <= {"dep", "root"}


@pytest.mark.parametrize("task", TASKS)
def test_a_finished_run_is_shown_and_not_repeated(
    home: Path, runs: dict[str, Path], task: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REPOSE_HOME", str(home / "home"))
    experiment = load(None, overrides=settings(home, task)).experiment
    written = (runs[task] / "scores.test.json").stat().st_mtime_ns
    result = run(experiment, runs[task], device="cpu", workers=1, progress="none")
    assert (runs[task] / "scores.test.json").stat().st_mtime_ns == written
    run_table(runs[task], result)
    assert f"test, {task.replace('_', ' ')}" in capsys.readouterr().out


@pytest.mark.parametrize("task", TASKS)
def test_it_does_not_translate(runs: dict[str, Path], task: str) -> None:
    from typer.testing import CliRunner

    caught = CliRunner().invoke(app, ["translate", str(runs[task])], input="red\n").exception
    assert isinstance(caught, CheckpointError)
    assert str(caught).endswith("but one of 'translation' is needed: `repose evaluate` measures any")


def test_damaged_models_are_told(runs: dict[str, Path], tmp_path: Path) -> None:
    for name, change, expected in (
        ("a", {"labels": []}, "has no labels"),
        ("e", {"labels": ["_", 3, []]}, "has no labels"),
        ("b", {"vocab_size": "x"}, "has no usable vocab_size"),
        ("c", {"task": "singing"}, "a model of 'singing'"),
        ("d", {"labels": ["_"]}, "belongs to another architecture"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        for file in (runs["parsing"] / "model").iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        config = json.loads((folder / "config.json").read_text()) | change
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(CheckpointError, match=expected):
            PARSING.load(folder)


@pytest.mark.parametrize("max_tokens", [None, "x", 0, 65, 10**30, []])
def test_a_damaged_length_of_blocks_is_refused(
    home: Path, runs: dict[str, Path], max_tokens: object, tmp_path: Path
) -> None:
    shutil.copytree(runs["language_modelling"] / "model", tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_tokens": max_tokens, "own_crc32": None}))
    with pytest.raises(CheckpointError, match="no usable max_tokens"):
        scored(tmp_path / "model", [home / "test.txt"])


@pytest.mark.parametrize(
    ("task", "override", "expected"),
    [
        ("parsing", "training.label_smoothing=0.1", "set it to 0"),
        ("parsing", "training.long_pairs=truncate", "set training.long_pairs = 'drop'"),
        ("language_modelling", "training.bleu_every_epochs=1", "leave it out"),
        ("parsing", "training.max_src_tokens=65", "longer than the model reads"),
        ("language_modelling", "training.max_tgt_tokens=65", "longer than the model reads"),
        ("parsing", "corpus.valid=[]", "takes one CoNLL-U file as corpus.valid, not 0"),
        ("language_modelling", 'corpus.test=["{home}/test.txt", "{home}/valid.txt"]', "as corpus.test, not 2"),
        ("language_modelling", "corpus.splits=merged", "for sentence pairs"),
        ("language_modelling", "corpus.held_out_test=100", "for sentence pairs"),
        ("parsing", "corpus.pretokenized=true", "for sentence pairs"),
    ],
)
def test_settings_that_a_task_has_no_use_for(
    home: Path, task: str, override: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPOSE_HOME", str(home / "home"))
    with pytest.raises(ConfigError, match=expected):
        prepare_corpus(load(None, overrides=settings(home, task, override.replace("{home}", str(home)))).experiment)


def test_a_named_corpus_is_of_sentence_pairs() -> None:
    with pytest.raises(ConfigError, match="names sentence pairs"):
        load(None, overrides=["training.task=parsing", "corpus.name=phrasebook"])


def test_data_of_each_task_has_a_key_of_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPOSE_HOME", str(home / "home"))
    data = {task: prepare_corpus(load(None, overrides=settings(home, task)).experiment) for task in TASKS}
    assert data["parsing"].digests.keys() == {"train", "valid", "src", "tgt"}
    assert data["parsing"].digests["train"] != data["language_modelling"].digests["train"]
    with pytest.raises(DataError, match="without sentence pairs"):
        data["parsing"].text("test")
    with pytest.raises(DataError, match="no dev set"):
        data["parsing"].ids("dev")
    shorter = settings(home, "language_modelling", "training.max_tgt_tokens=4")
    assert prepare_corpus(load(None, overrides=shorter).experiment).digests != data["language_modelling"].digests
