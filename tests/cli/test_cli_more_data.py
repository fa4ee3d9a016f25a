"""Training on more than one parallel corpus: fine-tuning, back-translation, several corpora."""

import dataclasses
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from repose.cli import main as cli
from repose.data import phrasebook
from repose.plots.attention import read
from repose.saved_model import directory
from repose.saved_run.folder import RunFolder
from repose.system.files import sealed, unsealed, write_json

TINY = {
    "architecture.d_token": 16,
    "architecture.num_heads": 2,
    "architecture.head_dim": 8,
    "architecture.d_ff": 32,
    "architecture.num_encoder_layers": 1,
    "architecture.num_decoder_layers": 1,
    "tokenizer.vocab_size": 400,
    "training.batch_size": 600,
    "training.epochs": 2,
    "decoding.max_extra_tokens": 3,
}
SETTINGS = [part for name, value in TINY.items() for part in ("--set", f"{name}={value}")]
Run = Callable[..., tuple[int, str, str]]


def write_pairs(path: Path, start: int, end: int) -> Path:
    pairs = phrasebook.read()["train"][start:end]
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def trained(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run."""
    folder = tmp_path_factory.mktemp("more-data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPOSE_HOME", str(home))
        files = write_pairs(folder / "first.tsv", 0, 300)
        command = [
            "repose",
            "train",
            str(files),
            "--out",
            str(folder / "run"),
            *SETTINGS,
            "--workers",
            "1",
            "--config",
            "default",
        ]
        patch.setattr(sys, "argv", command)
        torch.set_num_threads(1)
        with pytest.raises(SystemExit, match=r"^0$"):
            cli.main()
    return folder / "run"


# Fine-tuning


def test_fine_tuning_takes_sizes_and_tokenizers_along(trained: Path, run: Run, tmp_path: Path) -> None:
    new = write_pairs(tmp_path / "new.tsv", 1000, 1060)
    command = ("train", "--from", trained, new, "--out", tmp_path / "tuned", "--workers", "1")
    code, out, _ = run(*command, "--set", "training.epochs=1", "--set", "architecture.dropout=0.25")
    assert code == 0
    assert "beam4 bleu" in out
    first, second = (RunFolder(folder).config() for folder in (trained, tmp_path / "tuned"))
    assert second.run_id != first.run_id
    assert {side: second.digests[side] for side in ("src", "tgt")} == {s: first.digests[s] for s in ("src", "tgt")}
    architecture = second.experiment.architecture
    assert architecture == dataclasses.replace(first.experiment.architecture, dropout=0.25)
    training = second.experiment.training
    assert (training.schedule, training.learning_rate) == ("constant", 2e-4)
    assert second.experiment.decoding.max_extra_tokens == 3  # the model's
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (trained, tmp_path / "tuned")]
    assert weights[0] != weights[1]


def test_fine_tuning_says_what_it_starts_from_and_what_few_pairs_are_good_for(
    trained: Path, run: Run, tmp_path: Path
) -> None:
    test = ("--test", write_pairs(tmp_path / "test.tsv", 0, 60))
    few, tiny = "few to train a model further", "its scores will be measured on"
    for number, more, said in ((50, (), [few, tiny]), (50, test, [few]), (250, (), [tiny]), (1000, (), [])):
        files = write_pairs(tmp_path / "new.tsv", 0, number)
        _, _, err = run("train", "--from", trained, files, *more, "--print-config")
        assert f"starts from the model {trained}: its weights" in err
        assert [sentence for sentence in (few, tiny) if sentence in err] == said
    files = write_pairs(tmp_path / "new.tsv", 0, 50)
    _, _, err = run("train", "--from", trained, files, "--print-config")
    assert "its scores will be measured on 2 pairs, too few to mean anything" in err


def test_sets_that_a_model_was_trained_on_are_told(trained: Path, run: Run, tmp_path: Path) -> None:
    """A corpus with corrected translations is split anew."""
    lines = (trained.parent / "first.tsv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "corrected.tsv").write_text("".join(f"{line} indeed\n" for line in lines), encoding="utf-8")
    new = write_pairs(tmp_path / "new.tsv", 1000, 1300)
    options = ("--workers", "1", "--set", "training.epochs=1")
    for files, said in ((tmp_path / "corrected.tsv", True), (new, False)):
        _, _, err = run("train", "--from", trained, files, "--out", tmp_path / files.stem, *options)
        found = re.findall(rf"{re.escape(str(trained))} was trained on (\d+) of (\d+) (validation|test) sources", err)
        assert [name for _, _, name in found] == ["validation", "test"] * said
        assert all(int(number) > 0.5 * int(of) for number, of, _ in found)
    (_, out, _), (_, own, _) = (run("evaluate", trained, file) for file in (new, trained.parent / "first.tsv"))
    assert "was trained on" not in out
    assert re.search(r"WARNING: the model was trained on 2\d\d of these sources, so its scores may be too high", own)


def test_a_test_set_of_training_pairs_is_told_with_the_scores(run: Run, tmp_path: Path) -> None:
    files, test = write_pairs(tmp_path / "train.tsv", 0, 300), write_pairs(tmp_path / "test.tsv", 280, 320)
    options = ("--workers", "1", "--config", "default", "--set", "training.epochs=1")
    for name, sets, said in (("given", ("--test", test), True), ("drawn", (), False)):
        out = tmp_path / name
        code, shown, _ = run("train", files, *sets, "--out", out, *SETTINGS, *options)
        _, again, _ = run("evaluate", out)
        known = re.findall(r"WARNING: the model was trained on (\d+) of these sources", shown + again)
        assert (code, len(known)) == (0, 2 * said), "by the training and by the evaluation"
        assert all(15 <= int(number) <= 20 for number in known), "all but what is held out for validation"


def test_what_a_chain_of_models_was_trained_on_is_told_without_the_cache(
    trained: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, first = write_pairs(tmp_path / "new.tsv", 1000, 1300), trained.parent / "first.tsv"
    options = ("--workers", "1", "--set", "training.epochs=1")
    _, _, err = run("train", "--from", trained, new, "--out", tmp_path / "second", *options)
    assert "is known: if it has learnt" not in err
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "another home"))
    held_out = ("--set", "corpus.split_seed=9")
    _, _, err = run("train", "--from", tmp_path / "second", first, "--out", tmp_path / "third", *options, *held_out)
    assert re.search(rf"{tmp_path / 'second'} was trained on \d+ of \d+ test sources", err)
    _, _, err = run("train", "--from", trained / "model", new, "--out", tmp_path / "fourth", *options)
    assert f"not all that {trained / 'model'} was trained on is known: if it has learnt" in err


def test_a_training_goes_on_with_the_corpus_and_split_of_its_model(trained: Path, run: Run, tmp_path: Path) -> None:
    files = write_pairs(tmp_path / "a b.tsv", 1000, 1300)
    sets = ("--set", "corpus.held_out_test=20", "--set", "corpus.split_seed=3", "--set", "corpus.synthetic_tag=none")
    options = ("--workers", "1", "--epochs", "1")
    code, _, _ = run("train", "--from", trained, files, "--out", tmp_path / "one", *options, *sets)
    assert code == 0
    code, _, err = run("train", "--from", tmp_path / "one", "--out", tmp_path / "two", *options)
    assert (code, "was trained on" in err) == (0, False)
    one, two = (RunFolder(tmp_path / name).config() for name in ("one", "two"))
    assert one.experiment.corpus == two.experiment.corpus
    assert one.test == two.test
    code, _, err = run("train", "--from", tmp_path / "one", "--valid", files, "--out", tmp_path / "three", *options)
    assert (code, "keeps its split" in err) == (2, True)
    code, _, err = run("train", "--from", tmp_path / "one" / "model", "--out", tmp_path / "three", *options)
    assert (code, "there is no corpus" in err) == (2, True)


def test_fine_tuning_on_files_of_other_languages(trained: Path, run: Run, tmp_path: Path) -> None:
    """Of a related one, or of the opposite direction: card, splitting of sentences and server go by them."""
    pairs = phrasebook.read()["train"][1000:1060]
    for name, side in (("new.gl", 0), ("new.en", 1), ("new.pt", 0)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    for src, tgt in (("gl", "en"), ("en", "pt")):
        files = (tmp_path / f"new.{src}", tmp_path / f"new.{tgt}")
        out = tmp_path / f"{src}-{tgt}"
        code, _, err = run(
            "train",
            "--from",
            tmp_path / "gl-en" if src == "en" else trained,
            *files,
            "--epochs",
            1,
            "-o",
            out,
            "--workers",
            1,
        )
        assert code == 0
        config = json.loads((out / "model" / "config.json").read_text(encoding="utf-8"))
        assert (config["src_lang"], config["tgt_lang"]) == (src, tgt)
        assert ("the model translates gl-en, but the files are named en-pt: the new model is for en-pt" in err) == (
            src == "en"
        )


def test_fine_tuning_on_the_other_direction_takes_its_tag(run: Run, tmp_path: Path) -> None:
    pairs = phrasebook.read()["train"][:200]
    for name, side in (("a.pt", 0), ("a.en", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    pt, en = str(tmp_path / "a.pt"), str(tmp_path / "a.en")
    both = {
        "corpus.tag": "en",
        "corpus.also": f"[{{train = ['{en}', '{pt}'], tag = 'pt'}}]",
        "tokenizer.sharing": "shared",
    }
    settings = [part for name, value in both.items() for part in ("--set", f"{name}={value}")]
    command = (
        "train",
        pt,
        en,
        "--out",
        tmp_path / "both",
        *SETTINGS,
        *settings,
        "--workers",
        "1",
        "--config",
        "default",
    )
    assert run(*command, "--set", "training.epochs=1")[0] == 0
    code, out, err = run("train", "--from", tmp_path / "both", en, pt, "--out", tmp_path / "back", "--print-config")
    assert code == 0
    assert "the new model is for en-pt with the tag pt" in err
    assert re.search(r'tag = "pt" +# model', out)
    config = json.loads((tmp_path / "both" / "model" / "config.json").read_text(encoding="utf-8"))
    assert config["also"] == [{"tag": "pt", "src_lang": "en", "tgt_lang": "pt"}]
    code, _, err = run("evaluate", tmp_path / "both", "--to", "pt")
    assert code == 2
    assert "the references of the run's test set are in en, but the tag pt asks for pt: name source and refer" in err
    other = tmp_path / "a.gl"
    other.write_text(Path(pt).read_text(encoding="utf-8"), encoding="utf-8")
    _, out, err = run("train", "--from", tmp_path / "both", en, other, "--out", tmp_path / "back", "--print-config")
    assert "en-gl without a tag (--set corpus.tag=TAG gives it one)" in err
    assert re.search(r'tag = "none" +# default', out)


def test_fine_tuning_goes_on_after_its_model_was_moved(trained: Path, run: Run, tmp_path: Path) -> None:
    files = write_pairs(tmp_path / "new.tsv", 0, 50)
    shutil.copytree(trained, tmp_path / "first")
    command = (files, "--out", tmp_path / "run", "--epochs", 1, "--set", "training.batch_size=100", "--workers", 1)
    assert run("train", "--from", tmp_path / "first", *command, "--stop-after", 1)[0] == 3
    (tmp_path / "first").rename(tmp_path / "second")
    code, _, err = run("train", "--from", tmp_path / "second", *command)
    assert code == 0, err


def test_fine_tuning_on_a_language_that_helped_takes_its_tag(run: Run, tmp_path: Path) -> None:
    pairs = phrasebook.read()["train"][:200]
    for name, side in (("a.gl", 0), ("a.en", 1), ("b.pt", 0), ("b.en", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    also = f"corpus.also=[{{train = ['{tmp_path / 'b.pt'}', '{tmp_path / 'b.en'}'], tag = 'portuguese'}}]"
    command = ("train", tmp_path / "a.gl", tmp_path / "a.en", *SETTINGS, "--set", also, "--workers", 1)
    assert run(*command, "--config", "default", "--set", "training.epochs=1", "--out", tmp_path / "run")[0] == 0
    more = (tmp_path / "b.pt", tmp_path / "b.en", "--out", tmp_path / "new", "--print-config")
    code, out, err = run("train", "--from", tmp_path / "run", *more)
    assert code == 0
    assert "the new model is for pt-en with the tag portuguese" in err
    assert re.search(r'tag = "portuguese" +# model', out)


def test_fine_tuning_chooses_how_to_search_anew(run: Run, tmp_path: Path) -> None:
    files = write_pairs(tmp_path / "first.tsv", 0, 300)
    command = ("train", files, "--out", tmp_path / "run", *SETTINGS, "--workers", "1", "--config", "default")
    code, out, _ = run(*command, "--set", "decoding.length_penalty=none", "--set", "training.epochs=1")
    chosen = json.loads((tmp_path / "run" / "model" / "config.json").read_text(encoding="utf-8"))["decoding"]
    beam = f"with a beam of {chosen['beam_size']} and a length penalty of {chosen['length_penalty']}"
    said = "greedily" if chosen["beam_size"] == 1 else beam
    said += ", and never says the same 5 tokens in a row twice" if chosen["no_repeat_ngram_size"] else ""
    assert (code, f"it searches {said}: the best on the validation set" in " ".join(out.split())) == (0, True)
    shutil.copytree(tmp_path / "run" / "model", tmp_path / "model alone")
    for first in ("run", "model alone"):
        _, out, _ = run("train", "--from", tmp_path / first, files, "--out", tmp_path / "x", "--print-config")
        assert re.search(r"beam_size = 4 +# model", out)
        assert re.search(r'length_penalty = "none" +# model', out)
    few, place = write_pairs(tmp_path / "few.tsv", 1000, 1060), ("--out", tmp_path / "tuned", "--workers", 1)
    directory.change_config(
        tmp_path / "run", {"decoding": {"beam_size": 3, "length_penalty": 1.25, "no_repeat_ngram_size": 5}}
    )
    code, out, _ = run(
        "train", "--from", tmp_path / "run", few, *place, "--epochs", 1, "--set", "decoding.length_penalty=none"
    )
    config = json.loads((tmp_path / "tuned" / "model" / "config.json").read_text(encoding="utf-8"))
    kept = [config["decoding"][name] for name in ("beam_size", "length_penalty", "no_repeat_ngram_size")]
    assert (code, kept) == (0, [3, 1.25, 5])
    assert "it searches" not in out, "a few sentences decide nothing"


def test_fine_tuning_remembers_the_scripts_that_the_model_has_seen(trained: Path, run: Run, tmp_path: Path) -> None:
    first = tmp_path / "first"
    shutil.copytree(trained, first)
    directory.change_config(first, {"src_scripts": ["Cyrillic", "Latin"]})
    files = write_pairs(tmp_path / "new.tsv", 1000, 1060)
    assert run("train", "--from", first, files, "--out", tmp_path / "tuned", "--epochs", 1, "--workers", 1)[0] == 0
    config = json.loads((tmp_path / "tuned" / "model" / "config.json").read_text(encoding="utf-8"))
    assert config["src_scripts"] == ["Cyrillic", "Latin"]


def test_fine_tuning_replaces_what_neither_training_wrote(trained: Path, run: Run, tmp_path: Path) -> None:
    config = json.loads((trained / "model" / "config.json").read_text(encoding="utf-8"))
    assert {"\u00ad", "\u2019"} <= config["src_normalization"]["replace"].keys()
    (tmp_path / "new.tsv").write_text("".join(f"a cor d\u2019água {n}\tthe colour {n}\n" for n in range(60)))
    files = [tmp_path / "new.tsv", "--out", tmp_path / "tuned", "--epochs", 1, "--workers", 1]
    assert run("train", "--from", trained, *files)[0] == 0
    config = json.loads((tmp_path / "tuned" / "model" / "config.json").read_text(encoding="utf-8"))
    assert "\u00ad" in config["src_normalization"]["replace"]
    assert "\u2019" not in config["src_normalization"]["replace"]


def test_fine_tuning_of_a_model_with_a_damaged_normalization_is_one_sentence(
    trained: Path, run: Run, tmp_path: Path
) -> None:
    shutil.copytree(trained, tmp_path / "first")
    directory.change_config(tmp_path / "first", {"src_normalization": ["NFC"]})
    files = write_pairs(tmp_path / "new.tsv", 1000, 1060)
    code, _, err = run("train", "--from", tmp_path / "first", files, "--out", tmp_path / "tuned", "--workers", 1)
    assert code == 1
    assert err.splitlines()[-1].startswith("repose: src_normalization in config.json cannot be used")


def test_fine_tuning_of_a_model_that_does_not_say_what_it_has_seen_says_nothing_either(
    trained: Path, run: Run, tmp_path: Path
) -> None:
    first, files = tmp_path / "first", write_pairs(tmp_path / "new.tsv", 1000, 1060)
    shutil.copytree(trained, first)
    place = first / "model" / "config.json"
    config = dict(unsealed(json.loads(place.read_text(encoding="utf-8"))) or {})
    del config["src_scripts"], config["src_normalization"]
    write_json(place, sealed(config))
    assert run("train", "--from", first, files, "--out", tmp_path / "tuned", "--epochs", 1, "--workers", 1)[0] == 0
    config = json.loads((tmp_path / "tuned" / "model" / "config.json").read_text(encoding="utf-8"))
    assert not {"src_scripts", "src_normalization"} & config.keys()
    assert 0 < config["max_src_tokens"] < 128


def test_a_refused_start_stands_in_nobodys_way(trained: Path, run: Run, tmp_path: Path) -> None:
    files, out = write_pairs(tmp_path / "new.tsv", 1000, 1060), tmp_path / "tuned"
    code, _, err = run("train", "--from", trained, files, "--out", out, "--set", "architecture.d_token=32")
    assert code == 1
    assert "has another architecture than the one to train: architecture.d_token = " in err
    assert "pairs read" not in err, "said before the corpus is read"
    assert run("train", "--from", trained, files, "--out", out, "--epochs", 1, "--workers", 1)[0] == 0


def test_a_fine_tuned_model_is_measured_without_the_first_one(
    trained: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tokenizers are its own, wherever the model that it began with has gone, and the prepared corpus with it."""
    first, new = tmp_path / "first", write_pairs(tmp_path / "new.tsv", 1000, 1060)
    shutil.copytree(trained, first)
    command = ("train", "--from", first, new, "--out", tmp_path / "tuned", "--workers", "1")
    assert run(*command, "--set", "training.epochs=1")[0] == 0
    scores = [RunFolder(tmp_path / "tuned").scores("test")]
    shutil.rmtree(first)
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "other-home"))
    code, _, err = run("evaluate", tmp_path / "tuned", "--out", tmp_path / "scores")
    assert code == 0, err
    scores.append(json.loads((tmp_path / "scores" / "scores.test.json").read_text(encoding="utf-8")))
    first_time, again = (found["decoded"]["greedy"]["bleu"] for found in scores if found)
    assert again == first_time


def test_a_model_with_one_vocabulary_is_trained_further_and_measured_anew(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tied = ("--set", "architecture.tie_embeddings=all", "--set", "tokenizer.sharing=shared", "--preset", "original")
    first = write_pairs(tmp_path / "first.tsv", 0, 100)
    one = ("--set", "training.epochs=1", "--workers", 1, "--config", "default")
    assert run("train", first, "--out", tmp_path / "first", *SETTINGS, *one, *tied)[0] == 0
    new = write_pairs(tmp_path / "new.tsv", 1000, 1060)
    assert run("train", "--from", tmp_path / "first", new, "--out", tmp_path / "tuned", *one[:4])[0] == 0
    start = ("--set", f"training.init_from={tmp_path / 'first'}")
    code, _, err = run("train", new, "--out", tmp_path / "by-setting", *SETTINGS, *one, *tied, *start)
    assert code == 0, err
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "other-home"))  # the prepared corpora are gone
    for name in ("first", "tuned", "by-setting"):
        code, _, err = run("evaluate", tmp_path / name, "--beam-size", 1)
        assert code == 0, err


def test_words_that_cannot_be_cut_anew_are_told_before_the_run_begins(run: Run, tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path / "first.tsv", 0, 100)
    one = ("--set", "training.epochs=1", "--workers", 1, "--config", "default", "--set", "tokenizer.kind=unigram")
    anew = ("--set", "training.bpe_dropout=0.1")
    wanted = (
        "repose: training.bpe_dropout needs a tokenizer of kind 'bpe', not 'unigram': set tokenizer.kind = 'bpe' or"
    )
    code, _, err = run("train", pairs, "--out", tmp_path / "first", *SETTINGS, *one, *anew)
    assert (code, wanted in err, (tmp_path / "first").exists()) == (2, True, False)
    code, _, err = run("train", pairs, "--out", tmp_path / "first", *SETTINGS, *one)
    assert code == 0, err
    code, _, err = run(
        "train", "--from", tmp_path / "first", pairs, "--out", tmp_path / "further", "--workers", 1, *anew
    )
    assert (code, wanted in err, (tmp_path / "further" / "config.json").exists()) == (2, True, False)


def test_fine_tuning_keeps_the_architecture(trained: Path, run: Run, tmp_path: Path) -> None:
    code, _, err = run("train", "--from", trained, "a.tsv", "-o", tmp_path / "x", "--preset", "baseline")
    assert code == 2
    assert "keeps its architecture" in err
    code, _, err = run("train", "--from", trained, "a.tsv", "-o", tmp_path / "x", "--set", "tokenizer.vocab_size=500")
    assert (code, err.endswith("keeps its tokenizers: leave out tokenizer.vocab_size\n")) == (2, True)
    code, _, err = run("train", "--from", tmp_path / "none", "a.tsv", "-o", tmp_path / "x")
    assert code == 1
    assert "does not exist" in err


def test_fine_tuning_shows_what_the_model_decides(trained: Path, run: Run) -> None:
    code, out, _ = run("train", "--from", trained, "a.src", "b.tgt", "-o", "x", "--print-config")
    assert code == 0
    lines = {line.split(" = ")[0]: line for line in out.splitlines() if " = " in line}
    assert f"# model {trained}" in lines["d_token"]
    assert "# file fine-tuning.toml (shipped)" in lines["learning_rate"]


# Back-translation


def test_back_translated_pairs_are_trained_on_beside_real_ones(trained: Path, run: Run, tmp_path: Path) -> None:
    lines = [src for src, _ in phrasebook.read()["train"][2000:2060]]
    text = tmp_path / "mono.txt"
    text.write_text("\n".join([*lines[:30], "", *lines[30:]]) + "\n", encoding="utf-8")
    command = ("backtranslate", trained, text, "--sampling", "1", "--workers", "1")
    code, out, err = run(*command, "--out", tmp_path / "bt")
    assert code == 0, err
    assert out.split() == [str(tmp_path / "bt.src"), str(tmp_path / "bt.tgt")]
    src, tgt = ((tmp_path / f"bt.{side}").read_text(encoding="utf-8").splitlines() for side in ("src", "tgt"))
    assert len(src) == len(tgt) > 0
    assert f"{len(src):,} pairs of 61 lines" in err
    assert "1 left out (blank line)" in err
    assert set(tgt) <= set(lines)
    assert all(src)
    run(*command, "--out", tmp_path / "again")
    assert (tmp_path / "again.src").read_bytes() == (tmp_path / "bt.src").read_bytes()
    run(*command, "--out", tmp_path / "other", "--seed", "1")
    assert (tmp_path / "other.src").read_bytes() != (tmp_path / "bt.src").read_bytes()
    assert run(*command, "--out", tmp_path / "bt")[0] == 2  # which is there already
    assert run(*command, "--engine", "torch", "--precision", "int8", "--out", tmp_path / "int8")[0] == 0
    assert "there is no engine 'pen'" in run(*command, "--engine", "pen", "--out", tmp_path / "pen")[2]

    real = write_pairs(tmp_path / "real.tsv", 0, 100)
    more = ("--synthetic", tmp_path / "bt.src", tmp_path / "bt.tgt", "--set", "training.upsample=2")
    code, out, err = run("train", real, *more, "--out", tmp_path / "run", *SETTINGS, "--workers", "1")
    assert code == 0, err
    assert "synthetic (tag BT): " in err
    assert "beam4 bleu" in out


def test_what_a_model_was_not_made_for_is_said(trained: Path, run: Run, tmp_path: Path) -> None:
    unseen = "the text is in Cyrillic script, which this model's training hardly saw: expect nonsense"
    (tmp_path / "mono.txt").write_text("Привет, мир.\n" * 20, encoding="utf-8")
    assert unseen in run("backtranslate", trained, tmp_path / "mono.txt", "--out", tmp_path / "bt")[2]
    (tmp_path / "mono.en").write_text("Hello, world.\n" * 20, encoding="utf-8")
    files = (tmp_path / "mono.txt", tmp_path / "mono.en", "--beam-size", 1, "--out", tmp_path / "scores")
    _, out, _ = run("evaluate", trained, *files)
    assert f"WARNING: {unseen}" in " ".join(out.split())
    scores = json.loads((tmp_path / "scores" / "scores.mono.json").read_text(encoding="utf-8"))
    assert scores["input_warnings"] == [{"unlike": "script", "found": "Cyrillic", "expected": ["Latin"]}]
    code, out, err = run("score", trained, tmp_path / "mono.txt", tmp_path / "mono.en")
    assert (code, len(out.splitlines())) == (0, 20)
    assert unseen in err
    (tmp_path / "test.pt").write_text("pt\nO gato vive.\n", encoding="utf-8")
    (tmp_path / "test.en").write_text("en\nThe cat lives.\n", encoding="utf-8")
    _, out, _ = run("evaluate", trained, tmp_path / "test.pt", tmp_path / "test.en", "--beam-size", 1)
    assert "which is scored like any other, seems to name the columns (pt, en)" in " ".join(out.split())
    (tmp_path / "test.tsv").write_text("pt\ten\nO gato vive.\tThe cat lives.\n", encoding="utf-8")
    for fields in ((), ("--src-field", "pt", "--tgt-field", "en")):
        _, out, _ = run("evaluate", trained, tmp_path / "test.tsv", "--beam-size", 1, *fields)
        assert "test: 1 sentence" in out
        assert "name the columns" not in out


def test_a_text_that_gives_no_pair_leaves_no_files(trained: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "mono.txt").write_text("\n\n", encoding="utf-8")
    code, _, err = run("backtranslate", trained, tmp_path / "mono.txt", "--out", tmp_path / "bt")
    assert code == 1
    assert "gives no pair (blank line: 2)" in err
    assert {path.name for path in tmp_path.iterdir()} == {"mono.txt"}
    (tmp_path / "pairs.tsv").write_text("o gato\tthe cat\n", encoding="utf-8")
    code, _, err = run("backtranslate", trained, tmp_path / "pairs.tsv", "--out", tmp_path / "bt")
    assert code == 2
    assert "pairs.tsv is a .tsv file, and each line here is one text" in err
    code, _, err = run("backtranslate", trained, tmp_path / "x", "-o", tmp_path / "b", "-b", "2", "--sampling", "1")
    assert code == 2
    assert "give one of them" in err


# Several directions


def test_one_model_translates_both_ways(run: Run, tmp_path: Path) -> None:
    write_pairs(tmp_path / "there.tsv", 0, 150)
    pairs = phrasebook.read()["train"][:150]
    (tmp_path / "back.tsv").write_text("".join(f"{tgt}\t{src}\n" for src, tgt in pairs), encoding="utf-8")
    settings = (
        *("corpus.tag=en", f"corpus.also=[{{train=['{tmp_path / 'back.tsv'}'],tag='pt'}}]"),
        *("training.corpus_temperature=5", "training.bpe_dropout=0.1", "tokenizer.sharing=shared"),
        *("corpus.src_lang=pt", "corpus.tgt_lang=en"),
    )
    more = (part for setting in settings for part in ("--set", setting))
    command = ("train", tmp_path / "there.tsv", *SETTINGS, *more, "--workers", "1", "--out")
    code, _, err = run(*command, tmp_path / "run")
    assert code == 0, err
    assert "left out that are in the validation or test set" in err
    line = f"{pairs[0][0]}\n".encode()
    translate = ("translate", tmp_path / "run", "--scores")
    default, there, back = (run(*translate, *to, stdin=line)[1] for to in ((), ("--to", "en"), ("--to", "pt")))
    assert default == there != back
    score = ("score", tmp_path / "run", tmp_path / "one.src", tmp_path / "one.tgt")
    (tmp_path / "one.src").write_bytes(line)
    (tmp_path / "one.tgt").write_text("o gato\n", encoding="utf-8")
    default, there, back = (run(*score, *to)[1] for to in ((), ("--to", "en"), ("--to", "pt")))
    assert default == there != back
    scored = []
    for to in ((), ("--to", "en"), ("--to", "pt")):
        out = tmp_path / "-".join(["scores", *to])
        files = (tmp_path / "one.src", tmp_path / "one.tgt")
        assert run("evaluate", tmp_path / "run", *files, "--out", out, "--split", "x", *to)[0] == 0
        scored.append(RunFolder(out).scores("x") or {})
    default, there, back = (scores["teacher_forced"]["tf_loss"] for scores in scored)
    assert default == there != back
    assert [scores["decoding"].get("to") for scores in scored] == [None, "en", "pt"]
    code, _, err = run("evaluate", tmp_path / "run", "--to", "pt")
    assert (code, "the references of the run's test set are in en, but the tag pt asks for pt" in err) == (2, True), err
    keys = [read(tmp_path / "run", pairs[0][0], "o gato", to).maps["encoder"].keys for to in (None, "pt")]
    assert [labels[:2] for labels in keys] == [("[START]", "[en]"), ("[START]", "[pt]")]
    code, _, err = run(*translate, "--to", "fr", stdin=line)
    assert code == 2
    assert "'fr'" in err

    assert run(*command, tmp_path / "resumed", "--stop-after", "3")[0] == 3
    assert run(*command, tmp_path / "resumed")[0] == 0
    whole, resumed = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("run", "resumed"))
    assert whole == resumed


def test_several_files_of_pairs_are_not_swapped_by_their_order(run: Run, tmp_path: Path) -> None:
    rows = [json.dumps({"src": src, "tgt": tgt}) for src, tgt in phrasebook.read()["train"][:60]]
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    told = " ".join(run("check", tmp_path / "a.jsonl", tmp_path / "b.jsonl")[1].split())
    assert "If they are swapped, say which side is the source" in told
