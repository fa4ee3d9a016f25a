"""Dependency trees from CoNLL-U, and as numbers."""

import sys
from pathlib import Path

import numpy as np
import pytest

from repose.data.tokenizer import Tokenizer
from repose.data.treebank import Tree, Treebank, Trees, is_tree, label_inventory, write_treebank
from repose.system.errors import ConfigError, DataError
from repose.system.token_ids import END, START, UNK

# "She'll swim [fish] far": a multiword token, and an empty node that an elision leaves.
SAMPLE = """# sent_id = 1
1-2\tShe'll\t_\t_\t_\t_\t_\t_\t_\t_
1\tShe\tshe\tPRON\t_\t_\t3\tnsubj\t_\t_
2\t'll\twill\tAUX\t_\t_\t3\taux\t_\t_
3\tswim\tswim\tVERB\t_\t_\t0\troot\t_\t_
3.1\tfish\tfish\tNOUN\t_\t_\t_\t_\t3:obj\t_
4\tfar\tfar\tADV\t_\t_\t3\tadvmod:lmod\t_\t_

1\tYes\tyes\tINTJ\t_\t_\t0\troot\t_\t_
"""
FIRST = Tree(("She", "'ll", "swim", "far"), (3, 3, 0, 3), ("nsubj", "aux", "root", "advmod:lmod"))


def read(folder: Path, text: str) -> list[Tree]:
    (folder / "a.conllu").write_text(text, encoding="utf-8")
    return list(Trees(folder / "a.conllu"))


def test_rows_that_are_no_words_are_left_out(tmp_path: Path) -> None:
    assert read(tmp_path, SAMPLE) == [FIRST, Tree(("Yes",), (0,), ("root",))]
    assert list(Trees(tmp_path / "a.conllu")) == [FIRST, Tree(("Yes",), (0,), ("root",))]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("3\taux", "7\taux", r"sentence before line 8 has a word whose head is not in the sentence"),
        ("3\taux", "_\taux", r"has a word whose head is not in the sentence"),
        ("3\taux", "0\taux", r"is not a tree with one root"),
        ("3\tnsubj", "1\tnsubj", r"is not a tree with one root"),
        ("1\tYes\tyes\tINTJ\t_\t_\t0", "1\tYes\tyes\tINTJ\t_\t_\tx", r"sentence that ends at line 9 is not CoNLL-U"),
        ("1\tYes", "2\tYes", r"sentence that ends at line 9 is not CoNLL-U \(its words are not numbered"),
        ("1\tYes", "Yes", r"sentence that ends at line 9 is not CoNLL-U"),
    ],
)
def test_what_is_no_tree_is_told_with_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in SAMPLE
    with pytest.raises(DataError, match=expected) as caught:
        read(tmp_path, SAMPLE.replace(old, new))
    assert "\n" not in str(caught.value)


def test_a_sentence_without_end_is_refused(tmp_path: Path) -> None:
    row = "1\tYes\tyes\tINTJ\t_\t_\t0\troot\t_\t_\n"
    with pytest.raises(DataError, match="line 10001: a sentence has more than 10,000 rows"):
        read(tmp_path, row * 20_000)


def test_the_library_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "conllu", None)
    with pytest.raises(ConfigError, match=r"pip install 'repose-nmt\[parsing\]'"):
        read(tmp_path, SAMPLE)


def test_trees() -> None:
    assert is_tree([0])
    assert is_tree([2, 0, 2])
    assert not is_tree([0, 0])  # two roots
    assert not is_tree([2, 1])  # no root
    assert not is_tree([0, 3, 2])  # a cycle beside the root


def test_numbers(tmp_path: Path) -> None:
    """Each word by its first subword; ROOT is START's column."""
    tokenizer = Tokenizer.train(["Yes"] * 9 + list("abcdefghijklmnopqrstuvwxyz'S"), kind="bpe", vocab_size=263)
    yes = Tree(("Yes",), (0,), ("root",))
    labels = label_inventory([FIRST])
    assert labels == ["_", "advmod:lmod", "aux", "nsubj", "root"]
    said = write_treebank([FIRST, yes], tokenizer, labels, tmp_path / "all", max_tokens=None)
    assert said == "2 sentences of 5 words"
    bank = Treebank.open(tmp_path / "all")
    pieces = [tokenizer.encode(form)[1:-1] for form in FIRST.forms]
    src, first, heads, names = bank.batch(np.array([0, 1]))
    assert src[0].tolist() == [START, *(i for ids in pieces for i in ids), END]
    starts = np.cumsum([1, *(len(ids) for ids in pieces[:-1])]).tolist()
    assert first.tolist() == [[0, *starts], [0, 1, -1, -1, -1]]
    assert heads.tolist() == [[0, 3, 3, 0, 3], [0, 0, -1, -1, -1]]
    assert names[0, 1:].tolist() == [3, 2, 4, 1]
    assert src[1].tolist() == [*tokenizer.encode("Yes"), *[0] * (src.shape[1] - 3)]
    assert bank.tgt_lengths.tolist() == [4, 1]
    assert bank.src_lengths.tolist() == [src.shape[1], 3]
    assert bank.labels == labels


def test_long_sentences_and_new_labels_are_counted(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["Yes"], kind="wordlevel", vocab_size=5)
    trees = [FIRST, Tree(("Yes", "\u0301"), (0, 1), ("root", "odd"))]
    said = write_treebank(trees, tokenizer, ["_", "root"], tmp_path, max_tokens=5)
    assert said == "1 sentence of 2 words, 1 dropped (longer than 5 tokens), 1 word with a label unknown to training"
    bank = Treebank.open(tmp_path)
    src, _, _, labels = bank.batch(np.array([0]))
    assert src.tolist() == [[START, 4, UNK, END]]
    assert labels.tolist() == [[0, 1, 0]]
