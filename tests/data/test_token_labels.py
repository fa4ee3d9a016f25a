"""Labels of tokens are readable text with any tokenizer."""

import pytest

from repose.data.token_labels import BYTE_OF, byte_labels, piece_labels, shown
from repose.data.tokenizer import BYTES, Kind, Tokenizer
from repose.system.token_ids import END, START, UNK

LINES = ["The old lighthouse keeper counts the ships, and the ships count on him.", "猫が犬を見た。"] * 3
STAND_IN = {byte: char for char, byte in BYTE_OF.items()}


def stand_ins(raw: bytes) -> str:
    return "".join(STAND_IN[byte] for byte in raw)


def test_the_table_of_bytes_is_the_librarys() -> None:
    assert sorted(BYTE_OF) == BYTES
    space_a = Tokenizer.train(["a a"], kind="bpe", vocab_size=300)
    assert STAND_IN[ord(" ")] in "".join(space_a.tokens(space_a.encode("a a")))
    assert sorted(BYTE_OF.values()) == list(range(256))


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "wordlevel"])
def test_words_begin_plainly_and_go_on_with_a_dot(kind: Kind) -> None:
    tokenizer = Tokenizer.train(LINES, kind=kind, vocab_size=350)
    labels = tokenizer.labels(tokenizer.encode("The lighthouses, ships"))
    assert (labels[0], labels[-1]) == ("[START]", "[END]")
    if kind == "wordlevel":
        assert labels[1:-1] == ["The", "[UNK]", ",", "ships"]
        return
    words, heads = "".join(labels[1:-1]), [label for label in labels if not label.startswith("·")]
    assert words.replace("·", "").replace("␣", "") == "Thelighthouses,ships"
    # A word begins once, as itself or after a space of its own.
    assert len([label for label in heads[1:-1] if label != "␣"]) == 4


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "wordlevel"])
def test_ids_are_the_inverse_of_tokens(kind: Kind) -> None:
    tokenizer = Tokenizer.train(LINES, kind=kind, vocab_size=350)
    ids = tokenizer.encode("The keeper zählt 猫")
    assert tokenizer.ids(tokenizer.tokens(ids)) == ids
    assert tokenizer.ids(["no such token"]) == [UNK]
    assert tokenizer.labels([START, UNK, END]) == ["[START]", "[UNK]", "[END]"]


def test_bytes_of_unfinished_characters_are_shown() -> None:
    whole = " 猫が".encode()
    pieces = [whole[:2], whole[2:4], whole[4:6], whole[6:]]
    assert byte_labels([stand_ins(piece) for piece in pieces]) == ["<E7>", "·<8C AB>", "·<E3 81>", "·<8C>"]
    assert byte_labels([stand_ins(b"\xff"), stand_ins("猫".encode())]) == ["<FF>", "猫"]


CASES = {
    "plain words": ([b"He", b" reads", b"."], ["He", "reads", "."]),
    "inside a word": ([b" light", b"house", b"s"], ["light", "·house", "·s"]),
    "digits": ([b" 1", b"2", b"x"], ["1", "·2", "x"]),
    "signs": ([b".", b"..", b"'t"], [".", "·..", "·'t"]),
    "a space alone": ([b"a", b" ", b"b"], ["a", "␣", "b"]),
    "two spaces": ([b"a", b"  ", b"b"], ["a", "␣", "b"]),
    "marks are letters": (["हि".encode(), "न्दी".encode()], ["हि", "·न्दी"]),
    "a mark alone": (["ह".encode(), "ि".encode()], ["ह", "·◌ि"]),
    "control characters": ([b"\t", "\u200b".encode(), "\u2028".encode()], ["<U+0009>", "<U+200B>", "<U+2028>"]),
    "joiners inside": (["می\u200cخواهم".encode()], ["می\u200cخواهم"]),
    "nothing before": ([b"a"], ["a"]),
}


@pytest.mark.parametrize(("pieces", "labels"), CASES.values(), ids=CASES.keys())
def test_byte_labels(pieces: list[bytes], labels: list[str]) -> None:
    assert byte_labels([stand_ins(piece) for piece in pieces]) == labels


def test_special_tokens_break_words() -> None:
    assert byte_labels([None, "a", None, "b"]) == ["", "a", "", "b"]


def test_piece_labels_go_on_after_their_prefix_only() -> None:
    assert piece_labels([None, "gat", "##o", "##"], "##") == ["", "gat", "·o", "·"]
    assert piece_labels(["##", "##o"], "") == ["##", "##o"]


def test_shown_tells_text_from_a_label_in_hex() -> None:
    assert shown("<E7>") == "<E7>"
    assert shown("a b") == "a␣b"
    assert shown("\U000f0000") == "<U+F0000>"
