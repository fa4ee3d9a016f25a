"""Which sentences are for training and which for evaluation: a corpus's own sets, or a split of it."""

import contextlib
import dataclasses
import gc
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.parquet import write_table

from repose.config.experiment import CorpusConfig, Experiment, FurtherCorpus, TokenizerConfig, TrainingConfig
from repose.data import corpora, phrasebook
from repose.data.findings import Kind
from repose.data.tokenizer import Tokenizer
from repose.model.architecture import Architecture
from repose.saved_run.folder import RunConfig, RunFolder
from repose.system.errors import ConfigError, DataError, WriteError
from repose.system.locks import locked
from repose.tasks import corpus as corpus_module
from repose.tasks import corpus_files
from repose.tasks.corpus import prepare_corpus, published_text
from repose.tasks.corpus_files import direction_of, files_of, reader_of, with_languages
from repose.tasks.corpus_of_run import TrainedOn, text_of_run
from repose.tasks.prepared import CorpusData
from repose.tasks.registry import get_task

SIZES = {"train": 40, "valid": 7, "test": 3}


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, tuple[str, ...]]:
    """Three sets of pairs that name their set and their place in it."""
    for split, size in SIZES.items():
        lines = [f"{split} number {place}\t{split} nummer {place}\n" for place in range(size)]
        (tmp_path / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    return {split: (str(tmp_path / f"{split}.tsv"),) for split in SIZES}


def prepared(corpus: dict[str, Any], **training: Any) -> CorpusData:
    return prepare_corpus(
        Experiment(
            corpus=CorpusConfig(**corpus),
            tokenizer=TokenizerConfig(kind="wordlevel"),
            training=TrainingConfig(**training),
        )
    )


def sources(data: CorpusData) -> dict[str, list[str]]:
    return {split: data.text(split)[0] for split in SIZES if data.has_text(split)}


def test_two_files_of_different_lengths_are_left_to_the_check(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("my text.pt", "my text.en")]
    for name, lines in zip(names, ("um\ndois\n", "one\n"), strict=True):
        Path(name).write_text(lines, encoding="utf-8")
    with pytest.raises(DataError, match=r"run `repose check '.*my text\.pt' '.*my text\.en'`$"):
        prepared({"train": tuple(names)})


def test_a_corpus_keeps_its_own_sets(files: dict[str, Any]) -> None:
    data = prepared(files | {"held_out_valid": 5, "held_out_test": 7, "split_seed": 3})
    found = sources(data)
    assert "corpus.held_out_valid is not used: the corpus has its own validation set" in data.report
    unused = "corpus.held_out_test is not used: the corpus has its own test set"
    assert unused in data.report
    assert unused in prepared(files | {"held_out_test": 0}).report
    assert {split: len(lines) for split, lines in found.items()} == SIZES
    assert all(line.startswith(split) for split, lines in found.items() for line in lines)


def test_a_script_needs_no_main_guard(files: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("".join(f"number {n}\tnummer {n}\n" for n in range(9000)), encoding="utf-8")
    settings = {name: list(paths) for name, paths in files.items()}
    script = tmp_path / "script.py"
    script.write_text(
        "from repose.config.experiment import CorpusConfig, Experiment, TokenizerConfig\n"
        "from repose.tasks.corpus import prepare_corpus\n"
        f"corpus, tokenizer = CorpusConfig(**{settings!r}), TokenizerConfig(kind='wordlevel')\n"
        "data = prepare_corpus(Experiment(corpus=corpus, tokenizer=tokenizer), workers=2)\n"
        "print(len(data.text('train')[0]))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "9000\n", "")


def test_the_phrasebook_is_known_by_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    for digest in ("a", "b"):
        monkeypatch.setattr(phrasebook, "digest", lambda digest=digest: digest)
        keys.append(corpus_module._key(Experiment(corpus=CorpusConfig(name="phrasebook"))))
    assert keys[0] != keys[1]


def test_a_prepared_corpus_stays_in_the_cache_while_it_is_read(
    files: dict[str, Any], run_repose: Callable[..., tuple[int, str, str]]
) -> None:
    one, other = prepared(files), prepared({"train": files["train"]})
    folder = other.folder
    del other
    code, _, said = run_repose("cache", "--clear")
    assert code == 0
    assert "of 1 prepared corpora removed\n1 prepared corpus stays, since it is in use\n" in said
    assert (len(sources(one)["train"]), folder.exists()) == (SIZES["train"], False)
    folder = one.folder
    del one
    assert "in use" not in run_repose("cache", "--clear")[2]
    assert not folder.exists()


def test_a_corpus_that_is_being_prepared_stays_and_the_rest_of_the_cache_is_cleared(
    files: dict[str, Any], run_repose: Callable[..., tuple[int, str, str]]
) -> None:
    folder = prepared(files).folder
    with locked(folder.with_name(f".{folder.name}.lock")):
        code, _, said = run_repose("cache", "--clear")
    assert (code, folder.exists()) == (0, True)
    assert "1 prepared corpus stays, since it is in use\n0.0 MB of graphs of models removed\n" in said


def test_a_prepared_corpus_that_cannot_be_removed_keeps_no_other_from_it(
    files: dict[str, Any], run_repose: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [prepared(files).folder, prepared({"train": files["train"]}).folder]
    rmtree = shutil.rmtree

    def refusing(folder: Path) -> None:
        if folder == max(folders, key=lambda one: sum(p.stat().st_size for p in one.rglob("*") if p.is_file())):
            raise PermissionError(1, "Operation not permitted")
        rmtree(folder)

    monkeypatch.setattr("repose.tasks.cache.shutil.rmtree", refusing)
    gc.collect()
    code, _, said = run_repose("cache", "--clear")
    assert code != 0
    assert "of 1 prepared corpora removed" in said
    assert "cannot be removed (Operation not permitted): remove it as the user who made it" in said
    assert sorted(folder.exists() for folder in folders) == [False, True]


def test_a_folder_of_other_files_is_not_written_over(files: dict[str, Any], tmp_path: Path) -> None:
    experiment = Experiment(corpus=CorpusConfig(**files), tokenizer=TokenizerConfig(kind="wordlevel"))
    mine = tmp_path / "project"
    (mine / "text").mkdir(parents=True)
    notes = mine / "text" / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(DataError, match="other files"):
        prepare_corpus(experiment, folder=mine)
    assert notes.read_text() == "mine"
    notes.unlink()
    own = (mine / "text" / "train.src", mine / "text" / "train.tgt")
    for path in own:
        path.write_text("one\ntwo\n")
    corpus = CorpusConfig(train=tuple(map(str, own)), held_out_valid=1, held_out_test=0)
    with pytest.raises(DataError, match="other files"):
        prepare_corpus(dataclasses.replace(experiment, corpus=corpus), folder=mine)
    assert [path.read_text() for path in own] == ["one\ntwo\n"] * 2
    for path in own:
        path.unlink()
    named = (mine / "text" / "synthetic.src", mine / "text" / "synthetic.tgt")
    corpus = dataclasses.replace(experiment.corpus, synthetic=tuple(map(str, named)))
    for kept, settings in (((mine / "text" / "mine.src",), experiment.corpus), (named, corpus)):
        for path in kept:
            path.write_text("mine\n")
        with pytest.raises(DataError, match="other files"):
            prepare_corpus(dataclasses.replace(experiment, corpus=settings), folder=mine)
        for path in kept:
            assert path.read_text() == "mine\n"
            path.unlink()
    unfinished = tmp_path / "unfinished"
    (unfinished / "text").mkdir(parents=True)
    for name in ("text/train.src", "text/.train.tgt.0123abcd.tmp", ".tokenizer.src.json.0123abcd.tmp"):
        (unfinished / name).write_text("half")
    assert prepare_corpus(experiment, folder=unfinished).has_text("train")
    assert not list(unfinished.rglob(".*.tmp"))


def test_a_folder_with_an_empty_folder_of_texts_is_not_taken_for_a_preparation(
    files: dict[str, Any], tmp_path: Path
) -> None:
    experiment = Experiment(corpus=CorpusConfig(**files), tokenizer=TokenizerConfig(kind="wordlevel"))
    mine = tmp_path / "project"
    (mine / "text").mkdir(parents=True)
    (mine / "report.json").write_text('{"my": 1}')
    with pytest.raises(DataError, match="other files"):
        prepare_corpus(experiment, folder=mine)
    assert (mine / "report.json").read_text() == '{"my": 1}'
    (mine / "report.json").unlink()  # with nothing else in it, the beginning of one
    assert prepare_corpus(experiment, folder=mine).has_text("train")


def test_nothing_is_left_in_or_beside_a_folder_that_a_user_named(files: dict[str, Any], tmp_path: Path) -> None:
    experiment = Experiment(corpus=CorpusConfig(**files), tokenizer=TokenizerConfig(kind="wordlevel"))
    out = tmp_path / "here" / "texts"
    prepare_corpus(experiment, folder=out)
    assert [path.name for path in out.parent.iterdir()] == ["texts"]
    assert not list(out.rglob(".*"))


def test_who_prepares_a_folder_is_waited_for(files: dict[str, Any], tmp_path: Path) -> None:
    experiment = Experiment(corpus=CorpusConfig(**files), tokenizer=TokenizerConfig(kind="wordlevel"))
    said: list[str] = []
    lock = locked(tmp_path / "texts" / ".lock")
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(1) as threads:
        stack.enter_context(lock)
        waits = threads.submit(prepare_corpus, experiment, folder=tmp_path / "texts", say=said.append)
        while not said and not waits.done():
            time.sleep(0.01)
        assert said == ["another process prepares this corpus: waiting for it"]
        assert not (tmp_path / "texts" / "report.json").exists()
        stack.close()
        assert waits.result(timeout=60).has_text("train")


def test_what_cannot_be_prepared_leaves_nothing_in_the_cache(files: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be held out"):
        prepared({"train": files["train"], "held_out_valid": 5_000})
    assert not [path for path in (tmp_path / "home" / "prepared").iterdir() if path.is_dir()]


def test_a_folder_to_prepare_in_is_no_file(files: dict[str, Any], tmp_path: Path) -> None:
    experiment = Experiment(corpus=CorpusConfig(**files), tokenizer=TokenizerConfig(kind="wordlevel"))
    (tmp_path / "afile").write_text("mine")
    with pytest.raises(WriteError, match="is a file: choose another folder"):
        prepare_corpus(experiment, folder=tmp_path / "afile")


def test_the_same_bytes_under_another_ending_are_read_anew(tmp_path: Path) -> None:
    """Quotes are text in TSV, and not in CSV."""
    text = "".join(f'"o gato {n}"\t"the cat {n}"\n' for n in range(20))
    found = []
    for name in ("q.tsv", "q.csv"):
        (tmp_path / name).write_text(text)
        found.append(prepared({"train": (str(tmp_path / name),)}).text("train")[0][0][0])
    assert found == ['"', "o"]


def test_held_out_validation_pairs_are_none_of_the_test_set(tmp_path: Path) -> None:
    names = {}
    for split, size in (("train", 200), ("test", 150)):
        lines = [f"number {place}\tnummer {place}\n" for place in range(size)]
        (tmp_path / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
        names[split] = (str(tmp_path / f"{split}.tsv"),)
    found = sources(prepared({**names, "held_out_valid": 20}))
    assert len(found["valid"]) == 20
    assert not set(found["valid"]) & set(found["test"])


def test_sets_whose_names_say_that_they_are_the_wrong_way_round(tmp_path: Path) -> None:
    files = {name: str(tmp_path / name) for name in ("c.de", "c.en", "v.deu", "v.eng")}
    for name, path in files.items():
        Path(path).write_text("".join(f"{name} {n}\n" for n in range(20)), encoding="utf-8")
    train, valid = (files["c.de"], files["c.en"]), (files["v.deu"], files["v.eng"])
    assert prepared({"train": train, "valid": valid, "held_out_test": 1})
    for split in ("valid", "test"):
        with pytest.raises(ConfigError, match=r"v\.eng and .*v\.deu seem to be named the wrong way round, since"):
            prepared({"train": train, split: valid[::-1], "held_out_test": None})


def test_a_table_in_either_direction_is_prepared_apart(tmp_path: Path) -> None:
    rows = (f"the house {n}\tdas Haus {n}" for n in range(40))
    (tmp_path / "k.tsv").write_text("\n".join(["English\tGerman", *rows]) + "\n", encoding="utf-8")
    found = {}
    for src, tgt in (("en", "de"), ("de", "en"), ("German", "english")):
        data = prepared({"train": (str(tmp_path / "k.tsv"),), "src_lang": src, "tgt_lang": tgt})
        found[data.folder] = data.text("train")[0][0].split()[0]
    assert list(found.values()) == ["the", "das"]


def test_names_that_hold_a_pair_or_are_no_text_say_nothing_of_the_order(tmp_path: Path) -> None:
    files = [tmp_path / "v.de-en.src", tmp_path / "v.de-en.tgt"]
    for path in files:
        path.write_text("a\n", encoding="utf-8")
    memories = [Path(tmx(tmp_path / f"{name}.de-en.tmx", "de", en="one", de="eins")) for name in "ab"]
    corpus = CorpusConfig(train=("c.en", "c.de"))
    assert list(reader_of(corpus, files, "valid")) == [("a", "a")]
    assert next(iter(reader_of(corpus, memories, "valid"))) == ("one 0", "eins 0")


def test_sets_in_two_variants_of_a_language_are_in_their_order(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("v.pt-BR", "v.pt-PT")]
    for path in files:
        path.write_text("a\n", encoding="utf-8")
    corpus = CorpusConfig(train=tuple(map(str, files)))
    assert list(reader_of(corpus, files, "valid")) == [("a", "a")]


def test_tables_are_read_in_the_languages_of_the_corpus(tmp_path: Path) -> None:
    """Whatever the order of their columns, in the corpus and in a set of it."""
    for name, first, second in (("talks.de-en.tsv", "English", "German"), ("v.tsv", "German", "English")):
        rows = (f"{first} {n}\t{second} {n}" for n in range(20))
        (tmp_path / name).write_text("\n".join([f"{first}\t{second}", *rows]) + "\n", encoding="utf-8")
    sets = {"train": (str(tmp_path / "talks.de-en.tsv"),), "valid": (str(tmp_path / "v.tsv"),)}
    for src, tgt, pair in (("de", "en", ("German 0", "English 0")), ("en", "de", ("English 0", "German 0"))):
        corpus = CorpusConfig(**sets, src_lang=src, tgt_lang=tgt)
        for split, files in sets.items():
            assert next(iter(reader_of(corpus, [Path(files[0])], split))) == pair


def test_sets_may_be_other_files_than_the_corpus_with_its_fields(tmp_path: Path) -> None:
    pairs = [(f"s {n}", f"t {n}") for n in range(20)]
    lines = (json.dumps({"translation": {"de": a, "en": b}}) + "\n" for a, b in pairs)
    (tmp_path / "train.jsonl").write_text("".join(lines), encoding="utf-8")
    corpus = CorpusConfig(
        train=(str(tmp_path / "train.jsonl"),), src_field="translation.de", tgt_field="translation.en"
    )
    for name, heads, read in (
        ("named.csv", "src,tgt", ("s 0", "t 0")),
        ("languages.csv", "English,German", ("t 0", "s 0")),
    ):
        (tmp_path / name).write_text("\n".join([heads, *map(",".join, pairs)]) + "\n", encoding="utf-8")
        assert next(iter(reader_of(corpus, [tmp_path / name], "valid"))) == read
    (tmp_path / "plain.csv").write_text("\n".join(map(",".join, pairs)) + "\n", encoding="utf-8")
    assert next(iter(reader_of(corpus, [tmp_path / "plain.csv"], "valid"))) == ("s 0", "t 0")
    with pytest.raises(DataError, match=r"there is no field 'translation\.de'"):
        list(reader_of(corpus, [tmp_path / "named.csv"], "train"))
    named = dataclasses.replace(corpus, src_field="german", tgt_field="english")
    for wrong in ("german,score", "englisch,german"):
        (tmp_path / "wrong.csv").write_text(f"{wrong}\na,b\n", encoding="utf-8")
        with pytest.raises(DataError, match="there is no field 'english'"):
            list(reader_of(named, [tmp_path / "wrong.csv"], "valid"))


def test_a_language_that_is_set_goes_with_what_names_say_of_the_other(tmp_path: Path) -> None:
    files = (str(tmp_path / "a.pt"), str(tmp_path / "a.en"))
    of = corpus_files.languages_of
    assert of(CorpusConfig(train=files, src_lang="gl")) == ("gl", "en")
    assert of(CorpusConfig(train=files, tgt_lang="en-GB")) == ("pt", "en-GB")
    assert of(CorpusConfig(train=files, tgt_lang="pt")) == ("und", "pt"), "the names are of the other direction"
    assert of(CorpusConfig(name="multi30k")) == ("de", "en")
    assert of(CorpusConfig(name="multi30k", src_lang="fr")) == ("fr", "en")
    assert of(CorpusConfig(name="multi30k", tgt_lang="cs"))[1] == "cs"
    assert of(CorpusConfig(name="multi30k", src_lang="gl")) == ("gl", "und"), "which is none of its pairs"


@pytest.mark.parametrize("kind", ["flat.jsonl", "inner.jsonl", "inner.parquet", "table.csv", "memory.tmx"])
def test_of_two_languages_that_a_file_names_the_other_one_is_known(tmp_path: Path, kind: str) -> None:
    file = tmp_path / kind
    record = {"en": "one", "de": "eins"}
    inner = {"id": 1, "translation": record}
    match kind:
        case "inner.parquet":
            write_table(pa.Table.from_pylist([inner]), file)
        case "table.csv":
            file.write_text("English,German\none,eins\n", encoding="utf-8")
        case "memory.tmx":
            tmx(file, "en", **record)
        case _:
            file.write_text(json.dumps(record if kind == "flat.jsonl" else inner) + "\n", encoding="utf-8")
    for of in ({"src_lang": "de"}, {"tgt_lang": "en"}):
        corpus = with_languages(Experiment(corpus=CorpusConfig(train=(str(file),), **of))).corpus
        assert (corpus.src_lang, corpus.tgt_lang) == ("de", "en")
        assert next(iter(reader_of(corpus, [file], "train")))[0].startswith("eins")
    corpus = CorpusConfig(train=(str(file),), src_lang="fr")
    assert corpus_files.languages_of(corpus)[0] == "fr", "what is stated stays, though the file names others"


def test_the_phrasebook_has_one_direction() -> None:
    of = corpus_files.languages_of
    assert of(CorpusConfig(name="phrasebook", src_lang="pt-BR")) == ("pt", "en")
    with pytest.raises(ConfigError, match="from Portuguese to English"):
        of(CorpusConfig(name="phrasebook", src_lang="en", tgt_lang="pt"))


def test_sets_that_are_put_together_may_have_sentences_in_common(files: dict[str, Any]) -> None:
    same = {**files, "test": files["valid"]}
    long = "".join(f"{'a long sentence ' * 5}{n}\t{'ein langer Satz ' * 5}{n}\n" for n in range(7))
    Path(files["valid"][0]).write_text(long, encoding="utf-8")
    found = {one.kind for one in corpus_files.check_files(CorpusConfig(**same)).findings}
    assert Kind.VALIDATED_ON in found
    found = {one.kind for one in corpus_files.check_files(CorpusConfig(**same, splits="merged")).findings}
    assert Kind.VALIDATED_ON not in found


def run_of(experiment: Experiment, data: CorpusData, folder: Path, test: str | None = None) -> RunFolder:
    """A run directory that was trained on it; without a model."""
    config = RunConfig(
        run_id="id",
        experiment=experiment,
        digests=data.digests,
        data=data.folder.name,
        report=(),
        versions={},
        test=test,
    )
    run = RunFolder(folder)
    run.write_new_config(config)
    return run


def test_a_run_is_measured_on_what_was_held_out_in_its_training(tmp_path: Path) -> None:
    """Not on another draw from files that have changed since, most of which was trained on."""
    path = tmp_path / "corpus.tsv"
    path.write_text("".join(f"number {n}\tnummer {n}\n" for n in range(60)), encoding="utf-8")
    corpus = CorpusConfig(train=(str(path),), held_out_valid=5, held_out_test=10)
    experiment = Experiment(corpus=corpus, tokenizer=TokenizerConfig(kind="wordlevel"))
    data = prepare_corpus(experiment)
    run = run_of(experiment, data, tmp_path / "run")
    held_out = data.text("test")
    assert text_of_run(run, "test") == held_out
    path.write_text(path.read_text(encoding="utf-8").replace("mer", "mer ."), encoding="utf-8")
    assert text_of_run(run, "test") == held_out, "from the cache"
    other = RunFolder(tmp_path / "other")
    other.write_new_config(dataclasses.replace(run.config(), digests={**data.digests, "valid": "another"}))
    with pytest.raises(DataError, match="not the one that this run was trained on"):
        text_of_run(other, "test")
    shutil.rmtree(data.folder)
    with pytest.raises(DataError, match="its files have changed: name files to measure it on"):
        text_of_run(run, "test")


def test_what_the_model_that_a_run_began_with_had_learnt_is_not_known_without_a_record(
    files: dict[str, Any], tmp_path: Path
) -> None:
    experiment = Experiment(corpus=CorpusConfig(**files), tokenizer=TokenizerConfig(kind="wordlevel"))
    data = prepare_corpus(experiment)
    further = dataclasses.replace(experiment, training=TrainingConfig(init_from="elsewhere"))
    for one, is_all in ((experiment, True), (further, False)):
        known = TrainedOn.of(run_of(one, data, tmp_path / str(is_all)).path)
        assert (known.is_all, known.counts(data.text("train")[0])) == (is_all, [SIZES["train"]])


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_run_is_not_measured_on_a_test_set_that_has_changed(
    files: dict[str, Any], is_kept: bool, tmp_path: Path
) -> None:
    """Its training and validation sets may be the same all the same."""
    experiment = Experiment(corpus=CorpusConfig(**files), tokenizer=TokenizerConfig(kind="wordlevel"))
    data = prepare_corpus(experiment)
    run = run_of(experiment, data, tmp_path / "run", test=data.test_digest)
    held_out = data.text("test")
    for path in map(Path, files["test"]):
        path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:1]), encoding="utf-8")
    if is_kept:
        assert text_of_run(run, "test") == held_out
        return
    shutil.rmtree(data.folder)
    with pytest.raises(DataError, match="its files have changed: name files to measure it on"):
        text_of_run(run, "test")
    assert len(text_of_run(run, "valid")[0]) == SIZES["valid"]


def test_a_share_of_the_whole_is_held_out(files: dict[str, Any]) -> None:
    """The Enhanced paper's: 20 % of all that there is, and no third set."""
    data = prepared(files | {"splits": "merged", "held_out_valid": 0.2, "held_out_test": 0})
    found = sources(data)
    assert {split: len(lines) for split, lines in found.items()} == {"train": 40, "valid": 10}
    everything = {f"{split} number {place}" for split, size in SIZES.items() for place in range(size)}
    assert {*found["train"], *found["valid"]} == everything
    assert any(not line.startswith("train") for line in found["train"])
    for src, tgt in zip(*data.text("train"), strict=True):
        assert tgt == src.replace("number", "nummer")
    assert "held out: 10 validation and 0 test pairs, 40 left to train on" in data.report
    with pytest.raises(DataError, match="no test set: choose one of train, valid"):
        data.text("test")


def test_numbers_and_shares_for_both(files: dict[str, Any]) -> None:
    found = sources(prepared(files | {"splits": "merged", "held_out_valid": 4, "held_out_test": 0.1}))
    assert {split: len(lines) for split, lines in found.items()} == {"train": 41, "valid": 4, "test": 5}
    usual = sources(prepared(files | {"splits": "merged"}))
    assert {split: len(lines) for split, lines in usual.items()} == {"train": 46, "valid": 2, "test": 2}
    data = prepared({"train": files["train"], "held_out_valid": 0.001, "held_out_test": 1})
    assert "held out: 1 validation and 1 test pair, 38 left to train on" in data.report
    few = sources(prepared({"train": files["train"], "held_out_valid": 0.001}))
    assert {split: len(lines) for split, lines in few.items()} == {"train": 37, "valid": 1, "test": 2}


def test_repetitions_of_held_out_pairs_are_reported_as_repose_check_calls_them(files: dict[str, Any]) -> None:
    for path in map(Path, files["train"]):
        path.write_text(path.read_text(encoding="utf-8") * 2, encoding="utf-8")
    data = prepared({"train": files["train"], "held_out_valid": 1, "held_out_test": 1})
    dropped = "2 repetitions of held-out pairs dropped"
    assert f"held out: 1 validation and 1 test pair, 76 left to train on, {dropped}" in data.report


def test_a_test_set_of_its_own_stays(files: dict[str, Any]) -> None:
    del files["valid"]
    found = sources(prepared(files | {"held_out_valid": 0.25, "held_out_test": 0.5}))
    assert {split: len(lines) for split, lines in found.items()} == {"train": 30, "valid": 10, "test": 3}


def test_a_test_set_that_is_asked_for_is_held_out_beside_a_validation_set(files: dict[str, Any]) -> None:
    del files["test"]
    assert {split: len(lines) for split, lines in sources(prepared(files)).items()} == {"train": 40, "valid": 7}
    data = prepared(files | {"held_out_test": 10})
    found = sources(data)
    assert {split: len(lines) for split, lines in found.items()} == {"train": 30, "valid": 7, "test": 10}
    assert not {*found["test"]} & {*found["train"]}
    assert all(line.startswith("valid") for line in found["valid"])
    assert "held out: 0 validation and 10 test pairs, 30 left to train on" in data.report
    # Of a validation set that was taken from the training text, none.
    texts = [Path(path).read_text(encoding="utf-8").splitlines(keepends=True)[:30] for path in files["train"]]
    for path, lines in zip(files["valid"], texts, strict=True):
        Path(path).write_text("".join(lines), encoding="utf-8")
    found = sources(prepared(files | {"held_out_test": 10}))
    assert not {*found["test"]} & {*found["valid"]}


def test_the_draw_depends_on_its_seed_and_not_on_the_training_s(files: dict[str, Any]) -> None:
    corpus = files | {"splits": "merged", "held_out_valid": 0.2}
    first, again, other = (
        sources(prepared(corpus | {"split_seed": split_seed}, seed=seed))["valid"]
        for split_seed, seed in ((0, 0), (0, 1), (1, 0))
    )
    assert first == again != other


def test_the_phrasebook_has_sets_of_its_own(files: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"leave corpus\.valid and corpus\.test out"):
        prepared({"name": "phrasebook", "valid": files["valid"]})


def test_a_model_to_start_from_brings_two_tokenizers(
    files: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("repose.tasks.corpus.tokenizer_paths", lambda _: (Path("src.json"), Path("tgt.json")))
    experiment = Experiment(
        corpus=CorpusConfig(**files),
        tokenizer=TokenizerConfig(sharing="shared"),
        architecture=Architecture(tie_embeddings="all"),
        training=TrainingConfig(init_from=str(tmp_path)),
    )
    with pytest.raises(
        ConfigError, match=r"brings a tokenizer for each side: architecture\.tie_embeddings = 'all' needs"
    ):
        prepare_corpus(experiment)


def test_a_tag_that_a_ready_tokenizer_lacks_is_said_before_the_corpus_is_read(
    files: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = tmp_path / "ready.json"
    Tokenizer.train(["train number 1"], kind="wordlevel", vocab_size=99).save(ready)
    experiment = Experiment(
        corpus=CorpusConfig(**files, synthetic=files["train"]),
        tokenizer=TokenizerConfig(src_file=str(ready), tgt_file=str(ready)),
    )
    monkeypatch.setattr("repose.tasks.corpus._write_texts", lambda *_: pytest.fail("the corpus is read"))
    with pytest.raises(ConfigError, match=r"the tag 'BT' is not in .*: leave .* --set corpus\.synthetic_tag=none"):
        prepare_corpus(experiment)


def test_a_folder_may_be_the_current_one(
    files: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    experiment = Experiment(corpus=CorpusConfig(**files), tokenizer=TokenizerConfig(kind="wordlevel"))
    assert prepare_corpus(experiment, folder=Path()).has_text("train")


def test_the_phrasebook_can_be_split_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {
        split: [(f"{split} {place}", f"{split}, {place}") for place in range(size)] for split, size in SIZES.items()
    }
    monkeypatch.setattr(phrasebook, "read", lambda: made)
    found = sources(prepared({"name": "phrasebook", "splits": "merged", "held_out_valid": 0.1, "held_out_test": 0}))
    assert {split: len(lines) for split, lines in found.items()} == {"train": 45, "valid": 5}


def test_who_tunes_leaves_a_test_set_alone_that_comes_with_the_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {split: [(f"{split} {n}", f"{split}, {n}") for n in range(size)] for split, size in SIZES.items()}
    monkeypatch.setattr(phrasebook, "read", lambda: made)
    data = prepared({"name": "phrasebook", "held_out_test": 0})
    assert (sources(data).keys(), data.measured) == ({"train", "valid"}, "valid")
    assert prepared({"name": "phrasebook"}).measured == "test"


def test_a_published_test_set_is_left_alone_likewise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for split in ("train", "valid", "test_2016_flickr"):
        for language in ("de", "en"):
            (tmp_path / f"{split}.{language}").write_text("eins zwei\n", encoding="utf-8")
    monkeypatch.setattr(corpora, "locate", lambda _: tmp_path)
    corpus = CorpusConfig(name="multi30k", src_lang="de", tgt_lang="en")
    assert files_of(corpus).keys() == {"train", "valid", "test"}
    assert files_of(dataclasses.replace(corpus, held_out_test=0)).keys() == {"train", "valid"}
    assert files_of(dataclasses.replace(corpus, held_out_test=0, splits="merged")).keys() == {"train", "valid", "test"}


def test_further_published_sets_can_be_measured_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for split in ("train", "valid", "test_2016_flickr", "test_2017_flickr"):
        for language in ("de", "en"):
            (tmp_path / f"{split}.{language}").write_text(f"{split} {language}\n", encoding="utf-8")
    monkeypatch.setattr(corpora, "locate", lambda _: tmp_path)
    experiment = Experiment(
        corpus=CorpusConfig(name="multi30k", src_lang="de", tgt_lang="en"), tokenizer=TokenizerConfig(kind="wordlevel")
    )
    assert published_text(experiment.corpus, "test_2017_flickr") == (["test_2017_flickr de"], ["test_2017_flickr en"])
    assert prepare_corpus(experiment).text("test") == (["test_2016_flickr de"], ["test_2016_flickr en"])
    with pytest.raises(DataError, match=r"no test_2019 set: choose one of train, valid, test, .*test_2017_mscoco"):
        published_text(experiment.corpus, "test_2019")


def test_a_twentieth_is_held_out_and_no_more_than_enough() -> None:
    assert [corpus_module._num_held_out(None, total) for total in (3, 100, 10_039, 10**6)] == [1, 5, 500, 500]


def test_another_way_of_splitting_is_other_data(files: dict[str, Any]) -> None:
    """Each has a folder of its own, so that none is taken for another."""
    base = CorpusConfig(**files, held_out_valid=5)
    changes: list[dict[str, Any]] = [{}, {"splits": "merged"}, {"split_seed": 1}]
    changes += [{"held_out_valid": 0.1}, {"held_out_test": 2}]
    folders = {prepared(dataclasses.asdict(dataclasses.replace(base, **change))).folder for change in changes}
    assert len(folders) == len(changes)


def test_whatever_else_shapes_the_data_makes_other_data(tmp_path: Path) -> None:
    lines = [json.dumps({"src": f"eins {n}", "tgt": f"one {n}", "other": f"un {n}"}) + "\n" for n in range(9)]
    (tmp_path / "c.jsonl").write_text("".join(lines), encoding="utf-8")
    files = dict.fromkeys(("train", "valid"), (str(tmp_path / "c.jsonl"),))
    fields: list[dict[str, Any]] = [{}, {"src_field": "other"}, {"tgt_field": "other"}]
    limits: list[dict[str, Any]] = [{"max_src_tokens": 9}, {"max_tgt_tokens": 9}, {"long_pairs": "truncate"}]
    others = [*limits, {"task": "language_modelling"}]
    folders = {prepared(files | change).folder for change in fields} | {
        prepared(files, **change).folder for change in others
    }
    assert len(folders) == len(fields) + len(others)


def test_tags_and_tokenizers_make_other_data(files: dict[str, Any], tmp_path: Path) -> None:
    def folder(tag: str | None, tag_of_also: str, **tokenizer: Any) -> Path:
        also = [{"train": list(files["test"]), "tag": tag_of_also}]
        corpus = CorpusConfig(**files | {"test": ()}, tag=tag, also=also)  # type: ignore[arg-type]
        return prepare_corpus(Experiment(corpus=corpus, tokenizer=TokenizerConfig(**tokenizer))).folder

    kind = {"kind": "wordlevel"}
    folders = [folder(None, "aa", **kind), folder(None, "bb", **kind), folder("aa", "aa", **kind)]
    folders.append(folder(None, "aa", **kind, vocab_size=50))
    ready = tmp_path / "ready.json"
    for words in ("number", "nummer"):
        Tokenizer.train([words], kind="wordlevel", vocab_size=50, tags=["aa"]).save(ready)
        folders.append(folder(None, "aa", src_file=str(ready), tgt_file=str(ready)))
    assert len(set(folders)) == len(folders) == 6


def test_all_translation_memories_of_a_corpus_have_one_direction(tmp_path: Path) -> None:
    """Whichever language each file names as its own; and another direction is other data."""
    for split, own in (("train", "en-US"), ("valid", "de"), ("test", "fr")):
        texts = [(f"{split} number {n}", f"{split} nummer {n}") for n in range(SIZES[split])]
        units = (
            f'<tu><tuv xml:lang="de-DE"><seg>{de}</seg></tuv><tuv xml:lang="en-US"><seg>{en}</seg></tuv></tu>'
            for en, de in texts
        )
        content = f'<tmx><header srclang="{own}"/><body>{"".join(units)}</body></tmx>'
        (tmp_path / f"{split}.tmx").write_text(content, encoding="utf-8")
    files = {split: (str(tmp_path / f"{split}.tmx"),) for split in SIZES}
    data = prepared(files)
    assert sources(data) == {split: [f"{split} number {n}" for n in range(size)] for split, size in SIZES.items()}
    assert corpus_files.languages_of(CorpusConfig(**files)) == ("en", "de")
    assert "train: 40 of 40 pairs read, en → de" in data.report
    other = prepared(files | {"src_lang": "de", "tgt_lang": "en"})
    assert sources(other)["valid"][0] == "valid nummer 0"
    assert other.folder != data.folder


@pytest.mark.parametrize(
    ("codes", "stated"), [(("English", "German"), ("en", "de")), (("en", "customer's"), ("en", "und"))]
)
def test_a_memory_may_call_its_languages_anything(codes: Any, stated: Any, tmp_path: Path) -> None:
    file = tmx(tmp_path / "m.tmx", codes[0], **{codes[0]: "one", codes[1]: "eins"})
    experiment = with_languages(Experiment(corpus=CorpusConfig(train=(file,))))
    assert (experiment.corpus.src_lang, experiment.corpus.tgt_lang) == stated
    assert next(iter(reader_of(experiment.corpus, [Path(file)], "train"))) == ("one 0", "eins 0")


def tmx(path: Path, own: str, **texts: str) -> str:
    """A translation memory of units that count, by the code of each language."""
    units = ("".join(f'<tuv xml:lang="{a}"><seg>{text} {n}</seg></tuv>' for a, text in texts.items()) for n in range(9))
    content = f'<tmx><header srclang="{own}"/><body>{"".join(f"<tu>{unit}</tu>" for unit in units)}</body></tmx>'
    path.write_text(content, encoding="utf-8")
    return str(path)


def test_a_memory_beside_text_needs_languages(tmp_path: Path, files: dict[str, Any]) -> None:
    corpus = files | {"valid": (tmx(tmp_path / "v.tmx", "de", en="one", de="eins"),), "test": ()}
    with pytest.raises(ConfigError, match=r"v\.tmx is read in .*, which are unknown: .*, or with corpus\.src_lang and"):
        prepared(corpus)
    data = prepared(corpus | {"src_lang": "en", "tgt_lang": "de"})
    assert data.text("valid")[0][0] == "one 0"


def test_a_related_memory_is_translated_into_the_same_language(tmp_path: Path) -> None:
    """Whichever language it names as its own."""
    own = tmx(tmp_path / "own.tmx", "gl", gl="un", en="one")
    related = FurtherCorpus(train=(tmx(tmp_path / "other.tmx", "en", en="one", pt="um"),), tag="pt")
    data = prepared({"train": (own,), "also": (related,), "tag": "gl"})
    assert (data.folder / "text" / "also0.src").read_text(encoding="utf-8").startswith("um ")
    assert any(line.startswith("also0 (tag pt)") and ", pt → en" in line for line in data.report)


def test_a_carriage_return_within_a_line_stays_there(tmp_path: Path, files: dict[str, Any]) -> None:
    """Of a text that is measured on: line n of the sources stays that of line n of the references."""
    rows = [("one\rtwo", "eins zwei"), ("three", "drei"), ("four\x85five", "vier fünf")]
    (tmp_path / "test.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8", newline="\n")
    src, references = prepared(files).text("test")
    assert list(zip(src, references, strict=True)) == rows


def flip(path: Path) -> None:
    """Change one bit in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_whatever_is_damaged_in_a_prepared_corpus_is_told(files: dict[str, Any]) -> None:
    """Bytes that changed would give other numbers under the same run id."""
    folder = prepared(files).folder
    paths = sorted(path for path in folder.rglob("[!.]*") if path.is_file() and path.name != "report.json")
    assert len(paths) == 6 + 2 + 2 * 5 + 1  # texts, tokenizers, ids, findings
    for path in paths:
        good = path.read_bytes()
        for damage in (flip, Path.unlink):
            damage(path)
            name = path.relative_to(folder).as_posix()
            with pytest.raises(DataError, match=rf"{folder} has changed .* \({name}\): delete that folder"):
                prepared(files)
        path.write_bytes(good)
    assert prepared(files).text("valid")


def test_a_corpus_without_checksums_is_prepared_anew(files: dict[str, Any]) -> None:
    data = prepared(files)
    record = json.loads((data.folder / "report.json").read_text())
    checksums = record.pop("crc32")
    (data.folder / "report.json").write_text(json.dumps(record))
    assert prepared(files) == data
    assert json.loads((data.folder / "report.json").read_text())["crc32"] == checksums


@pytest.mark.parametrize("field", ["train", "valid"])
def test_a_pipe_or_a_device_is_refused_before_it_is_read(tmp_path: Path, files: dict[str, Any], field: str) -> None:
    os.mkfifo(tmp_path / "pipe.tsv")
    for path in (tmp_path / "pipe.tsv", Path("/dev/zero")):
        with pytest.raises(DataError, match=f"{path} is not a regular file"):
            prepared(files | {field: (str(path),)})


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("damage", ["", "{", "[]", "3", '{"key": 3}', '{"report": 3}', "[" * 100_000])
def test_a_damaged_report_of_a_prepared_corpus_has_it_made_anew(damage: str, files: dict[str, Any]) -> None:
    first = prepared(files)
    (first.folder / "report.json").write_text(damage.replace("3}", '3, "key": "' + first.folder.name + '"}'))
    assert prepared(files) == first
    assert (first.folder / "report.json").read_text() != damage


def test_it_is_said_which_way_a_model_will_translate(tmp_path: Path) -> None:
    pairs = phrasebook.read()["train"][:200]
    files = tuple(str(tmp_path / name) for name in ("c.pt", "c.en"))
    for name, lines in zip(files, zip(*pairs, strict=True), strict=True):
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "c.csv").write_text("".join(f'"{tgt}";"{src}"\n' for src, tgt in pairs), encoding="utf-8")
    said = []
    rows = (tmp_path / "c.csv").read_text(encoding="utf-8")
    (tmp_path / "d.csv").write_text(f"English;Portuguese\n{rows}", encoding="utf-8")
    for train in (files, (str(tmp_path / "c.csv"),), (str(tmp_path / "d.csv"),)):
        experiment = Experiment(corpus=CorpusConfig(train=train), tokenizer=TokenizerConfig(kind="wordlevel"))
        said.append(direction_of(experiment, prepare_corpus(experiment).check))
    assert said == [
        "the model learns to translate pt (c.pt) to en (c.en)",
        "the model learns to translate en (column 1 of c.csv, detected) to pt (column 2 of c.csv, detected); to store "
        "its languages with the model, which serving needs, start again and set corpus.src_lang=en and "
        "corpus.tgt_lang=pt",
        "the model learns to translate en (column English of d.csv) to pt (column Portuguese of d.csv)",
    ]


def test_what_is_wrong_is_said_before_the_training_and_kept_with_the_corpus(files: dict[str, Any]) -> None:
    """Each line twice: the run's record of its data has the finding."""
    path = Path(files["train"][0])
    path.write_text(path.read_text(encoding="utf-8") * 2, encoding="utf-8")
    said: list[str] = []
    experiment = Experiment(corpus=CorpusConfig(**files), tokenizer=TokenizerConfig(kind="wordlevel"))
    for _ in range(2):  # prepared, and reused
        said.clear()
        data = prepare_corpus(experiment, say=said.append)
        assert "check: Repetitions of an earlier pair: 40 training pairs (50 %; first line 41)" in said
        assert not any("check" in sentence for sentence in data.report)
        (found,) = (one for one in get_task("translation").data_record(data).findings if one["kind"] == "repeated")
        assert found == {"kind": "repeated", "split": "train", "count": 40, "of": 80, "line": 41}
    direction = direction_of(experiment, data.check)
    assert direction is not None
    columns = "column 1 of train.tsv to column 2 of train.tsv"
    assert direction.startswith(f"the model learns to translate {columns}; to store ")
    assert direction.endswith(" and set corpus.src_lang and corpus.tgt_lang")
    (data.folder / "check.json").unlink()
    assert data.check.findings == ()  # as for tasks without pairs


def test_a_problem_is_listed_in_the_set_that_has_it(files: dict[str, Any]) -> None:
    for split, place in (("train", 2), ("valid", 4)):
        path = Path(files[split][0])
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        lines[place] = lines[place].partition("\t")[0] + "\t\n"
        path.write_text("".join(lines), encoding="utf-8")
    corpus = CorpusConfig(**files)
    found = list(corpus_files.problem_lines(corpus, corpus_files.check_files(corpus)))
    assert [(one.finding.split, one.number) for one in found if one.pair == ("", "")] == [("train", 3), ("valid", 5)]


def test_sets_that_are_put_together_may_share_sentences(files: dict[str, Any]) -> None:
    shared = "a sentence that is long enough to count\tein Satz, der lang genug ist, um zu zählen\n"
    for split in ("train", "test"):
        with Path(files[split][0]).open("a", encoding="utf-8") as file:
            file.write(shared)
    kinds = {
        splits: {one.kind.value for one in prepared(files | {"splits": splits}).check.findings}
        for splits in ("given", "merged")
    }
    assert "trained_on" in kinds["given"]
    assert "trained_on" not in kinds["merged"]


def test_a_corpus_is_checked_anew_for_other_languages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_files, "identify", lambda text: ("de" if text.startswith("die") else "en", 1.0))
    long = "one of all those long lines by which a language can be told"
    lines = [f"line {n} is {long}\tdie Zeile {n} ist {long}\n" for n in range(120)]
    (tmp_path / "c.tsv").write_text("".join(lines), encoding="utf-8")
    found = []
    for languages in ({"src_lang": "en", "tgt_lang": "de"}, {"src_lang": "de", "tgt_lang": "en"}, {}):
        data = prepared({"train": (str(tmp_path / "c.tsv"),), **languages})
        found.append((data.folder, {one.kind for one in data.check.findings} & {Kind.SWAPPED}))
    assert [kinds for _, kinds in found] == [set(), {Kind.SWAPPED}, set()]
    assert len({folder for folder, _ in found}) == 3
