"""`corpora.toml`: the catalogue of published corpora is complete, consistent, and agrees with its sources."""

from __future__ import annotations

import subprocess
import sys

import pytest

from repose.data.catalogue import CorpusInfo, describe, names
from repose.system.errors import DataError


def test_the_catalogue_names_the_published_corpora() -> None:
    pairs = "az_to_en aztr_to_en be_to_en beru_to_en es_to_pt fr_to_pt gl_to_en glpt_to_en he_to_pt it_to_pt"
    pairs += " pt_to_en ru_to_en ru_to_pt tr_to_en"
    ted = [f"ted_hrlr/{pair}" for pair in pairs.split()]
    assert names() == sorted(["multi30k", "small_parallel_enja", *ted])


@pytest.mark.parametrize("name", names())
def test_every_entry_is_consistent(name: str) -> None:
    info = describe(name)
    assert info.name == name
    assert all(mirror.startswith(("http://", "https://")) and mirror.endswith("/") for mirror in info.mirrors)
    assert info.mirrors
    assert info.licence
    assert {split.name for split in info.splits} >= {"train", "valid"}
    texts = [text for split in info.splits for text in split.texts]
    assert len({text.path for text in texts}) == len(texts)
    for split in info.splits:
        assert split.num_pairs is not None
        assert len(split.texts) >= 2
        assert any(set(pair) <= {text.language for text in split.texts} for pair in info.pairs)
    for known in texts:
        assert (known.sha256 is None) == (known.num_bytes is None)
        assert known.sha256 is None or len(bytes.fromhex(known.sha256)) == 32
        assert known.sha256 is not None or info.archive is not None, "something must tell a wrong text"
    assert {language for pair in info.pairs for language in pair} == {text.language for text in texts}


def test_multi30k_has_czech_only_where_it_was_published() -> None:
    info = describe("multi30k")
    without_czech = [split.name for split in info.splits if "cs" not in {text.language for text in split.texts}]
    assert without_czech == ["test_2017_flickr", "test_2017_mscoco"]
    assert [split.name for split in info.splits if split.name.startswith("test")] == [
        "test_2016_flickr",
        "test_2017_flickr",
        "test_2017_mscoco",
        "test_2018_flickr",
    ]
    assert not info.tokenised


def num_pairs(info: CorpusInfo) -> dict[str, int]:
    return {split.name: split.num_pairs or 0 for split in info.splits}


def test_ted_pairs_carry_the_paper_s_counts_and_names() -> None:
    info = describe("ted_hrlr/aztr_to_en")
    assert [split.num_pairs for split in info.splits] == [188_396, 671, 903]
    assert [split.texts[0].path for split in info.splits] == [
        "datasets/az_tr_to_en/az-tr.train",
        "datasets/az_tr_to_en/az.dev",
        "datasets/az_tr_to_en/az.test",
    ]
    assert info.pairs == (("aztr", "en"),)
    assert info.tokenised
    assert num_pairs(describe("ted_hrlr/pt_to_en"))["test"] == 1_803
    ted = [describe(name) for name in names() if name.startswith("ted_hrlr/")]
    assert len({entry.archive for entry in ted}) == 1, "one archive for all of them"
    # Sums of the two columns of Table 1.
    assert sum(num_pairs(entry)["train"] for entry in ted) == 1_156_484
    assert sum(num_pairs(entry)["valid"] for entry in ted) == 18_883


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("multi30", "did you mean 'multi30k'"),
        ("MULTI30K", "did you mean 'multi30k'"),
        ("pt_to_en", "did you mean 'ted_hrlr/pt_to_en'"),
        ("wmt14", "known are"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(wrong: str, meant: str) -> None:
    with pytest.raises(DataError, match=meant):
        describe(wrong)


def test_the_catalogue_loads_no_torch() -> None:
    code = "import sys; from repose.data import corpora; corpora.names(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
