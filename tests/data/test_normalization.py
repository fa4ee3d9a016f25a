"""Users' text is normalised to the characters of the training text."""

import unicodedata
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from repose.data.normalization import Normalization, normalization_to
from repose.data.tokenizer import Kind, Tokenizer

TYPEWRITTEN = ['d\'un gros chat - enfin, "un chat" (gris)...'] * 2000
TYPESET = ["d’un gros chat – enfin, «\u00a0un chat\u00a0» !"] * 2000
HARD = "d\u2019un cafe\u0301, \u201cdit\u00adil\u201d\u00a0! Il a\ufb03che\u2026 \u2011 \ufeff12\u202f000 \uff1f"
ALPHABET = "ab' \"-,.!e\u0301\u00e9\u2019\u201c\u00a0\u00ad\u2026\ufb03\u2011\u1100\u1161\u0958\n日"


@pytest.mark.parametrize(
    ("lines", "text", "wanted"),
    [
        (TYPEWRITTEN, "l’été\u00a0: “dit\u00adil” — a\ufb03che…", 'l\'été : "ditil" - affiche...'),
        (TYPESET, "l'été\u202f- \"dit\u00adil»", 'l’été - "ditil»'),
        (["“I don’t know,” she said."] * 999 + ["He said ‘yes’."] * 3, "\"I don't", '"I don’t'),
        (["It’s"] * 998 + ["it's"] * 2, "Itʼs", "It’s"),
        (["Он — там, кто-то"] * 998, "Он – кто‑то", "Он — кто-то"),
        (["so - so"] * 998, "so — so", "so - so"),
        (TYPESET, "un\u00a0chat", "un\u00a0chat"),
        (["你好，世界！"] * 50, "你好,世界!", "你好，世界！"),
        (["caf\u00e9"] * 10, "cafe\u0301", "caf\u00e9"),
        (["cafe\u0301"] * 10, "caf\u00e9", "cafe\u0301"),
        (["caf\u00e9", "cafe\u0301"], "caf\u00e9 cafe\u0301", "caf\u00e9 cafe\u0301"),
        ([], "a\u00a0b", "a b"),
        (["\u0915\u094d\u200d\u0937"], "\u0915\u094d\u200d\u0937", "\u0915\u094d\u200d\u0937"),
    ],
)
def test_what_training_never_wrote_becomes_what_it_wrote(lines: list[str], text: str, wanted: str) -> None:
    assert normalization_to(lines)(text) == wanted


@pytest.mark.parametrize(
    "lines",
    [TYPEWRITTEN, TYPESET, ["Oui…"] * 10 + ["Non."] * 990, ["ខ្ញុំ​ស្រលាញ់"] * 10, ["א‏, ﬁn"] * 10],
)
def test_training_text_stays_as_it_is(lines: list[str]) -> None:
    assert normalization_to(lines)(lines[0]) == lines[0]


@given(st.text(ALPHABET + "​‏⁠ﬁ—«", max_size=40))
def test_what_is_in_every_line_stays(line: str) -> None:
    assert normalization_to([line] * 3)(line) == line


def test_a_line_in_a_thousand_is_noise() -> None:
    noise = ["cafe\u0301\u00ad ‘x’"]
    assert normalization_to([*TYPEWRITTEN, *noise]) == normalization_to(TYPEWRITTEN)
    assert normalization_to([*TYPEWRITTEN, *10 * noise]) != normalization_to(TYPEWRITTEN)


@pytest.mark.parametrize(("lines", "is_noise"), [(1000, False), (1001, True)])
def test_just_a_line_in_a_thousand_is_none(lines: int, is_noise: bool) -> None:
    found = normalization_to([*["plain"] * (lines - 1), "cafe\u0301\u00ad\ufb01"])
    assert found("e\u0301") == ("\u00e9" if is_noise else "e\u0301")
    assert found("\u00ad\ufb01") == ("fi" if is_noise else "\u00ad\ufb01")


def test_a_dash_in_thousands_of_lines_is_no_habit() -> None:
    assert normalization_to([*["so - so"] * 1999, "so \u2014 so"])("so \u2014 so") == "so - so"


def test_what_two_texts_never_wrote() -> None:
    both = normalization_to(TYPEWRITTEN) & normalization_to(TYPESET)
    assert both("l'été l’été a\u00a0b\u2003c\u00ad") == "l'été l’été a\u00a0b c"
    composed, separate = Normalization("NFC", {"a": "b"}), Normalization("NFD", {"a": "b"})
    assert (composed & composed, composed & separate) == (composed, Normalization("", {"a": "b"}))


@pytest.mark.parametrize(
    "content",
    [
        None,
        {"form": "NFC"},
        {"form": "NFKC", "replace": {}},
        {"form": "", "replace": {"a": 1}},
        {"form": "", "replace": {"ab": "c"}},
        {"form": "", "replace": {"a": "b", "b": "c"}},
        {"form": "", "replace": [["a", "b"]]},
    ],
)
def test_others_are_refused(content: Any) -> None:
    with pytest.raises(ValueError, match="normalization"):
        Normalization.from_json(content)


def test_a_file_keeps_it() -> None:
    found = normalization_to(TYPEWRITTEN)
    assert Normalization.from_json(found.to_json()) == found


MADE = {
    kind: Tokenizer.train([HARD, *TYPEWRITTEN[:5]], kind=kind, vocab_size=330)
    for kind in ("bpe", "unigram", "wordpiece", "wordlevel")
}


@pytest.mark.parametrize("kind", MADE)
@given(text=st.text(alphabet=ALPHABET, max_size=30))
def test_a_tokenizer_reads_what_the_normalization_gives(kind: Kind, text: str) -> None:
    plain, normalization = MADE[kind], normalization_to(TYPEWRITTEN)
    made = plain.normalizing(normalization)
    assert made.encode(text) == plain.encode(normalization(text))
    alone = tokenizers.Tokenizer.from_str(made.json)  # as another program reads the file
    alone.encode_special_tokens = True
    assert made.encode(text)[1:-1] == alone.encode(text, add_special_tokens=False).ids
    assert made.normalizing(normalization) is made
    assert len(made.encode(text)) <= made.most_tokens(text)
    assert made.words(text) == plain.words(normalization(text))


@given(st.text(alphabet=ALPHABET, max_size=30))
def test_a_text_grows_no_more_than_is_said(text: str) -> None:
    for lines in (TYPEWRITTEN, TYPESET):
        normalization = normalization_to(lines)
        assert len(normalization(text).encode()) <= normalization.most_bytes(text)


def test_tokens_stand_where_the_text_has_them() -> None:
    made = MADE["bpe"].normalizing(normalization_to(TYPEWRITTEN))
    covered = {place for start, end in made.spans(HARD) for place in range(start, end)}
    missing = "".join(HARD[place] for place in range(len(HARD)) if place not in covered)
    assert set(missing) <= set(" \u00a0\u202f\u00ad\ufeff"), missing
    assert made.spans(HARD)[-1] == (len(HARD), len(HARD))


def test_a_syllable_of_separate_letters_is_one_token_whole() -> None:
    made = Tokenizer.train(["가 나 각"] * 9, kind="bpe", vocab_size=300).normalizing(Normalization("NFC"))
    text = unicodedata.normalize("NFD", "각 가")
    assert {text[start:end] for start, end in made.spans(text)} == {"", *text.split()}


def test_lower_case_can_be_longer() -> None:
    made = Tokenizer.train(["ab"] * 9, kind="bpe", vocab_size=262, lowercase=True)
    assert len(made.encode("Ⱥ" * 50)) <= made.most_tokens("Ⱥ" * 50)


def test_steps_of_other_tokenizers_are_left_to_the_library() -> None:
    steps = [
        {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
        {"type": "NFC"},
        {"type": "Lowercase"},
    ]
    assert Normalization.taken_from(steps) == (Normalization(), steps)
    assert Normalization.taken_from(steps[1:]) == (Normalization("NFC"), steps[2:])
    twice = [{"type": "Replace", "pattern": {"String": "a"}, "content": to} for to in "bc"]
    assert Normalization.taken_from(twice) == (Normalization("", {"a": "b"}), twice[1:]), "the second finds none"
    assert unicodedata.is_normalized("NFC", Normalization("NFC")("e\u0301"))
