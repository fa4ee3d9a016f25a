"""Additional corpora and synthetic pairs: tags, what is left out, and how often an epoch reads them."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from repose.config.experiment import CorpusConfig, Experiment, TokenizerConfig, TrainingConfig
from repose.data.advice import sizes, where
from repose.data.dataset import PairDataset
from repose.data.findings import Kind
from repose.data.normalization import normalization_to
from repose.data.tokenizer import Tokenizer
from repose.saved_run.folder import RunFolder
from repose.system.errors import ConfigError
from repose.system.files import write_json
from repose.tasks.corpus import _key, prepare_corpus
from repose.tasks.corpus_files import check_files, reader_of, taught_also
from repose.tasks.corpus_of_run import TrainedOn, record_trained_on
from repose.tasks.more_corpora import mixture
from repose.tasks.prepared import CorpusData
from repose.tasks.translation import TASK


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))


def pairs_file(path: Path, what: str, number: int, *more: str) -> str:
    lines = [f"{what} number {place}\t{what} nummer {place}\n" for place in range(number)]
    path.write_text("".join([*lines, *more]), encoding="utf-8")
    return str(path)


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    """Galician (40 pairs) beside Portuguese (120) and synthetic ones (20)."""
    leaks = ("VALID  number 3\tsomething else\n", "something\ttest nummer 1\n")
    corpus: dict[str, Any] = {
        "train": (pairs_file(tmp_path / "gl.tsv", "gl", 39, "outro number 39\tgl nummer 39\n"),),
        "valid": (pairs_file(tmp_path / "valid.tsv", "valid", 7),),
        "test": (pairs_file(tmp_path / "test.tsv", "test", 3),),
        "also": [{"train": [pairs_file(tmp_path / "pt.tsv", "pt", 120, *leaks)], "tag": "pt"}],
        "synthetic": (pairs_file(tmp_path / "bt.tsv", "bt", 20),),
    }
    return Experiment(
        corpus=CorpusConfig(**corpus), tokenizer=TokenizerConfig(kind="wordlevel"), training=TrainingConfig()
    )


def changed(experiment: Experiment, section: str, **values: Any) -> Experiment:
    return dataclasses.replace(experiment, **{section: dataclasses.replace(getattr(experiment, section), **values)})


def opened(data: CorpusData) -> tuple[PairDataset, Tokenizer]:
    return PairDataset.open(data.folder / "train"), Tokenizer.load(data.tokenizer_path("src"))


def firsts(data: CorpusData, split: str) -> list[str]:
    """What stands after START."""
    pairs, tokenizer = PairDataset.open(data.folder / split), Tokenizer.load(data.tokenizer_path("src"))
    return tokenizer.tokens(pairs.batch(np.arange(len(pairs))).src[:, 1].tolist())


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_further_corpus_is_read_as_its_name_says(experiment: Experiment, tmp_path: Path, kind: str) -> None:
    def file(name: str) -> Path:
        path = tmp_path / f"{name}.{kind}"
        path.write_text('{"de": "zwei", "en": "two"}\n' if kind == "jsonl" else "de,en\nzwei,two\n", encoding="utf-8")
        return path

    def read(name: str) -> list[tuple[str, str]]:
        return [*reader_of(main.corpus, [file(name)], "also0")]

    main = changed(experiment, "corpus", train=(str(file("m.de-en")),), src_lang="de", tgt_lang="en")
    assert read("x.en-de") == [("two", "zwei")]
    assert read("x.de-en") == read("x") == [("zwei", "two")]
    also = ([{"train": [str(file(name))], "tag": "x"}] for name in ("x.en-de", "x.de-en"))
    beside = changed(main, "corpus", also=[{"train": [str(file("x"))], "tag": "x"}], synthetic=())
    (taught,) = taught_also(beside.corpus)
    assert (taught.src_lang, taught.tgt_lang) == ("de", "en")
    for tag, tgt_lang in (("en", "x"), (None, "en")):
        unnamed = changed(
            main, "corpus", also=[{"train": [str(tmp_path / "x.tsv")], "tag": "x"}], synthetic=(), tag=tag
        )
        assert taught_also(unnamed.corpus) == [("x", "und", tgt_lang)]
    first, second = (_key(changed(main, "corpus", also=one, synthetic=(), valid=(), test=())) for one in also)
    assert first != second


def test_what_is_measured_is_in_no_other_corpus(experiment: Experiment) -> None:
    data = prepare_corpus(experiment)
    (sentence,) = [sentence for sentence in data.report if sentence.startswith("also0")]
    assert "also0 (tag pt): 122 of 122 pairs read" in sentence
    assert "2 left out that are in the validation or test set" in sentence
    assert firsts(data, "train") == ["gl"] * 39 + ["outro"] + ["[pt]"] * 120 + ["[BT]"] * 20
    assert firsts(data, "valid") == ["[UNK]"] * 7  # "valid" is no word of the training text
    assert data.text("valid")[0][0] == "valid number 0"
    assert Tokenizer.load(data.tokenizer_path("tgt")).tags == {}


def test_a_tag_of_its_own_stands_before_what_is_measured_too(experiment: Experiment) -> None:
    plain, tagged = prepare_corpus(experiment), prepare_corpus(changed(experiment, "corpus", tag="gl"))
    assert plain.folder != tagged.folder
    assert firsts(tagged, "train")[:40] == ["[gl]"] * 40
    assert firsts(tagged, "valid") == ["[gl]"] * 7
    untagged = prepare_corpus(changed(experiment, "corpus", synthetic_tag=None))
    assert firsts(untagged, "train")[160:] == ["bt"] * 20


@pytest.mark.parametrize("bpe_dropout", [0.0, 0.1])
def test_batches_say_which_sources_begin_with_a_tag(experiment: Experiment, bpe_dropout: float) -> None:
    data = prepare_corpus(changed(experiment, "tokenizer", kind="bpe", vocab_size=400))
    paths = {f"{side}_tokenizer": data.tokenizer_path(side) for side in ("src", "tgt")}
    job: Any = SimpleNamespace(training=TrainingConfig(bpe_dropout=bpe_dropout), **paths)
    pairs = TASK.open(data.folder / "train")
    batch = TASK.micro_batch(TASK.sampler(pairs, job)(0), np.arange(len(pairs)), torch.device("cpu"))
    assert batch.tagged is not None
    assert batch.tagged.tolist() == [False] * 40 + [True] * 140
    assert TASK.micro_batch(pairs, np.arange(3), torch.device("cpu")).tagged is None


def test_epochs_read_the_corpora_in_the_shares_that_are_asked_for(experiment: Experiment) -> None:
    pairs, tokenizer = opened(prepare_corpus(experiment))
    assert mixture(pairs, tokenizer, experiment.training, "BT") is None

    def drawn_with(**training: Any) -> NDArray[np.int64]:
        config = changed(experiment, "training", **training).training
        found = mixture(pairs, tokenizer, config, "BT")
        assert found is not None
        return found(3)

    def counts(**training: Any) -> list[int]:
        drawn = drawn_with(**training)
        return [int(((drawn >= a) & (drawn < b)).sum()) for a, b in ((0, 40), (40, 160), (160, 180))]

    assert counts(upsample=3) == [120, 360, 20]
    assert counts(corpus_temperature=2.0) == [59, 101, 20]  # 1 : sqrt(3)
    assert counts(corpus_temperature=2.0, upsample=2) == [118, 202, 20]
    one, again, other = (drawn_with(corpus_temperature=2.0, seed=seed).tolist() for seed in (1, 1, 2))
    assert one == again != other


def test_synthetic_pairs_are_no_further_corpus_with_their_tag(experiment: Experiment) -> None:
    """Their texts lie elsewhere, and the cache must not take one for the other."""
    synthetic = changed(experiment, "corpus", also=())
    corpus = experiment.corpus
    further = [{"train": list(corpus.synthetic), "tag": corpus.synthetic_tag}]
    also = changed(experiment, "corpus", also=further, synthetic=(), synthetic_tag=None)
    folders = {prepare_corpus(one).folder for one in (also, synthetic)}
    assert len(folders) == 2
    assert (prepare_corpus(synthetic).folder / "text" / "synthetic.src").exists()


def test_what_was_learnt_from_further_and_synthetic_pairs_is_recorded(experiment: Experiment, tmp_path: Path) -> None:
    run, data = RunFolder(tmp_path), prepare_corpus(experiment)
    record_trained_on(run, data, None)
    known, text = TrainedOn.of(tmp_path), data.folder / "text"
    parts = [sources for path in sorted(text.glob("*.src")) if (sources := path.read_text().splitlines())]
    names = sorted(path.stem for path in text.glob("*.src"))
    assert {"train", "valid", "synthetic"} < set(names)
    found = dict(zip(names, known.counts(*parts), strict=True))
    sizes = dict(zip(names, map(len, parts), strict=True))
    assert known.is_all
    assert {name for name in names if found[name] == sizes[name]} == set(names) - {"valid", "test"}


def test_a_source_of_nothing_but_its_tag_is_left_out(experiment: Experiment, tmp_path: Path) -> None:
    empty = pairs_file(tmp_path / "empty.tsv", "de", 5, "\u200b\tnothing\n")
    one = changed(experiment, "corpus", also=[{"train": [empty], "tag": "de"}], synthetic=())
    data = prepare_corpus(changed(one, "tokenizer", kind="wordpiece", vocab_size=200))
    assert len(PairDataset.open(data.folder / "train")) == 45
    assert any("source without tokens" in sentence for sentence in data.report)


def test_ready_tokenizers_need_the_tags(experiment: Experiment) -> None:
    data = prepare_corpus(experiment)
    ready = {f"{side}_file": str(data.tokenizer_path(side)) for side in ("src", "tgt")}
    again = dataclasses.replace(experiment, tokenizer=TokenizerConfig(**ready))
    assert prepare_corpus(again).digests == data.digests
    with pytest.raises(ConfigError, match="'gl'"):
        prepare_corpus(changed(again, "corpus", tag="gl"))


def test_a_model_has_seen_what_the_model_saw_that_it_began_with(experiment: Experiment, tmp_path: Path) -> None:
    data, own = prepare_corpus(experiment), TASK.seen(experiment, prepare_corpus(experiment))
    longest, usual = own["max_src_tokens"], own["split_src_tokens"]
    replaced: Any = own["src_normalization"]
    assert "…" in replaced["replace"], "none of its lines has one"
    theirs = normalization_to(["and so on …"] * 9).to_json()
    further = changed(experiment, "training", init_from=str(tmp_path / "start"))
    for lengths, expected in (((99, 50), (99, 50)), ((2, 1), (longest, usual))):
        before = dict(zip(("max_src_tokens", "split_src_tokens"), lengths, strict=True))
        before |= {"format_version": 1, "src_scripts": ["Greek"], "src_normalization": theirs}
        write_json(tmp_path / "start" / "config.json", before)
        found: Any = TASK.seen(further, data)
        assert (found["max_src_tokens"], found["split_src_tokens"]) == expected
        assert found["src_scripts"] == ["Greek", "Latin"]
        kept = {character: to for character, to in replaced["replace"].items() if character != "…"}
        assert found["src_normalization"]["replace"] == kept


@pytest.mark.parametrize(
    ("training", "is_translated"),
    [({}, False), ({"best_by": "chrf", "keep": "best"}, True), ({"bleu_every_epochs": 2}, True)],
)
def test_validation_sets_are_translated_where_that_is_asked_for_or_decides(
    experiment: Experiment, training: dict[str, Any], is_translated: bool
) -> None:
    data = prepare_corpus(experiment)
    figures = TASK.validation_figures(changed(experiment, "training", **training), data)
    assert (figures is not None) == is_translated


def test_a_model_knows_which_tag_is_no_language(experiment: Experiment) -> None:
    assert TASK.model_extra(experiment)["synthetic_tag"] == "BT"
    assert "synthetic_tag" not in TASK.model_extra(changed(experiment, "corpus", synthetic=()))


def test_further_and_synthetic_pairs_are_looked_over(experiment: Experiment, tmp_path: Path) -> None:
    """But for what they share with the training set, which does no harm."""
    entities = "Tom &amp; Maria and all the others in the town\tTom e Maria e todos os outros\n"
    pairs_file(tmp_path / "bt.tsv", "bt", 20, entities)
    shared = "a sentence of more than forty characters, so that it counts\tand one that is as long as that, or longer\n"
    pairs_file(tmp_path / "gl.tsv", "gl", 40, shared)
    pairs_file(tmp_path / "pt.tsv", "pt", 120, shared)
    pairs_file(tmp_path / "valid.tsv", "valid", 7, shared)
    found = check_files(experiment.corpus)
    assert found.looked_at == {"train": 41, "valid": 8, "test": 3, "also0": 121, "synthetic": 21}
    by_set = {(finding.split, finding.kind) for finding in found.findings}
    assert ("synthetic", Kind.ENTITIES) in by_set
    assert ("valid", Kind.TRAINED_ON) in by_set
    assert ("also0", Kind.TRAINED_ON) not in by_set
    (entity,) = (finding for finding in found.findings if finding.kind is Kind.ENTITIES)
    assert "1 synthetic source (" in where(entity)
    assert "121 corpus.also[0]" in sizes(found)
