"""Texts of any length: nothing is lost when they are split, and white space stays."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from repose.data.tokenizer import Tokenizer
from repose.decoding.lengths import Lengths
from repose.decoding.parts import is_wide, language_of, parts_of, translate_texts
from repose.decoding.translator import Hypothesis, Translation, Translator
from repose.model.architecture import Architecture
from repose.model.transformer import build
from repose.system.token_ids import END, START


def short(text: str) -> bool:
    return len(text) <= 20


@given(st.text(alphabet="aB ,;.\n。日\u2028\xa0\t", max_size=200))
@example("B\xa0.")
def test_nothing_is_lost(text: str) -> None:
    parts = parts_of(text, "en", short).parts
    assert "".join("".join(part) for part in parts) == text
    assert parts, "a blank text has a part too"


@pytest.mark.parametrize("piece", ["one two. ", "one ", "x", "« ", "猫。", ". "])
def test_very_long_lines_are_split_block_by_block(piece: str) -> None:
    text = piece * (50_000 // len(piece))
    parts = parts_of(text, "en", lambda _: True).parts
    assert "".join("".join(part) for part in parts) == text
    assert {part.text for part in parts} <= {"one two."} or piece != "one two. "
    assert max(len(part.text) for part in parts) <= 20_000


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("One. Two.  Three.", ["One.", "Two.", "Three."]),
        ("a first clause, a second one", ["a first clause,", "a second one"]),
        ("no commas in it but many words", ["no commas in it", "but many words"]),
        ("x" * 50, ["x" * 50]),
        ("猫" * 30, ["猫" * 15, "猫" * 15]),
        ("he sold 1,000 of them", ["he sold", "1,000 of them"]),
        ("he came at 10:30, she left", ["he came at 10:30,", "she left"]),
        ("do see https://a.com/b?c=d;e,f", ["do see", "https://a.com/b?c=d;e,f"]),
        ("one,two,three,four,five", ["one,two,three,", "four,five"]),
        ("猫" * 12 + "," + "犬" * 10, ["猫" * 12 + ",", "犬" * 10]),
        ("", [""]),
    ],
)
def test_sentences_then_clauses_then_words(text: str, wanted: list[str]) -> None:
    found = parts_of(text, "en", short)
    assert [part.text for part in found.parts] == wanted
    assert found.too_long == (len(wanted) == 2)


def test_runs_of_spaces_cost_no_more_than_letters() -> None:
    text = "a" + " " * 300_000 + "b"
    assert ["".join(part) for part in parts_of(text, "en", short).parts] == [text[:-1], "b"]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("gl", "J.R.R. Tolkien wrote www.Example.Com pages."),
        ("pt", "J.R.R. Tolkien"),
        ("en", "See www.Example.Com for Version 2.0.Final now."),
    ],
)
def test_no_sentence_ends_within_a_name_or_an_address(language: str, text: str) -> None:
    assert [part.text for part in parts_of(text, language, lambda _: True).parts] == [text]


@pytest.mark.parametrize("text", ["猫。犬。", "猫.犬", "यह अच्छा है।वह जाता है।", "Cat. Dog."])
def test_sentences_end_without_a_space_where_scripts_write_none(text: str) -> None:
    assert len(parts_of(text, "xx", lambda _: True).parts) == 2


class Shouting:
    """A translator that says what it reads in capitals, and reads twelve tokens: letters and two marks."""

    config: ClassVar[dict[str, Any]] = {"src_lang": "en", "max_src_tokens": 22}
    max_length = 64
    tag: str | None = None
    src_tokenizer = SimpleNamespace(encode=lambda text: [2, *map(ord, text), 3], most_tokens=lambda text: 2 + len(text))

    def translate(self, texts: list[str], **_: object) -> list[Translation]:
        return [Translation(t.upper(), -1.0, (), tuple(t), truncated=len(t) > 20) for t in texts]


def test_what_has_no_letters_stays_as_it_is() -> None:
    class Talking(Shouting):
        def translate(self, texts: list[str], **_: object) -> list[Translation]:
            return [replace(t, text=t.text and f"<{t.text}>") for t in super().translate(texts)]

    talking: Any = Talking()
    found = [(t.text, t.truncated) for t, _ in translate_texts(talking, ["3,5 + ½ = 4", "A dog. 12! ...", " ¿? " * 20])]
    assert found == [("3,5 + ½ = 4", False), ("<A DOG.> 12! ...", False), (" ¿? " * 20, False)]
    addresses = ["https://example.com/a?b=c&d=e", "Www.example.com", "o.gato+1@example.com"]
    assert [t.text for t, _ in translate_texts(talking, addresses)] == addresses
    for sentence in ("https://a.com是我们", "https://a.com/をご覧", "WWW.a.com—see"):
        assert parts_of(sentence, "xx", lambda _: True).parts[0].is_translated, "no spaces between words"
    ((two, _),) = translate_texts(talking, ["3,5"], num_hypotheses=2)
    assert two.src_tokens == ("3", ",", "5"), "asked for several, the model says what it makes of it"


def test_the_score_of_a_text_is_that_of_the_parts_that_were_translated() -> None:
    shouting: Any = Shouting()
    ((found, parts),) = translate_texts(shouting, ["A dog. 12! A cat."])
    assert (len(parts.parts), found.score) == (3, -2.0)


@pytest.mark.parametrize("text", ["A dog. " + "x" * 30, "x" * 30 + ". A dog."])
def test_a_text_was_cut_where_any_of_its_parts_was(text: str) -> None:
    shouting: Any = Shouting()
    ((found, parts),) = translate_texts(shouting, [text])
    assert (len(parts.parts), found.truncated) == (2, True)


def test_a_clause_that_ends_a_short_text_is_no_place_to_split_it() -> None:
    found = parts_of("😀😀😀:", "en", lambda text: len(text.encode()) <= 10)
    assert [part.text for part in found.parts] == ["😀😀", "😀:"]


@pytest.mark.parametrize(
    ("config", "to", "wanted"),
    [
        ({}, None, "xx"),
        ({"src_lang": "pt-BR", "tgt_lang": "en"}, None, "pt"),
        ({"src_lang": "gl", "tgt_lang": "en", "tag": "en"}, None, "gl"),
        ({"src_lang": "gl", "tgt_lang": "en", "tag": "en"}, "en", "gl"),
        ({"src_lang": "gl", "tgt_lang": "en", "tag": "en"}, "gl", "en"),
        ({"src_lang": "gl", "tgt_lang": "en", "tag": "en"}, "pt", "xx"),
        ({"src_lang": "gl", "tgt_lang": "en"}, "es", "xx"),
    ],
)
def test_sentences_end_as_in_the_language_that_is_read(config: dict[str, str], to: str | None, wanted: str) -> None:
    shouting: Any = Shouting()
    shouting.config = config
    assert language_of(shouting, to) == wanted
    text = "See No. 5, e.g. this."
    (found,) = translate_texts(shouting, [text], **({} if to is None else {"to": to}))
    assert (len(found[1].parts) == 1) == (wanted in ("en", "xx")), "without a language, English's rules apply"


def test_what_is_longer_than_usual_is_split_and_cut_only_where_it_is_longer_than_any() -> None:
    shouting: Any = Shouting()
    shouting.config = {"src_lang": "en", "max_src_tokens": 22, "split_src_tokens": 12}
    for text, parts in (("ten lette.", 1), ("a clause, and so", 2), ("onewordofsixteen", 1), ("x" * 25, 1)):
        ((found, whole),) = translate_texts(shouting, [text])
        assert len(whole.parts) == parts, text
        assert found.text == text.upper()[:20]
        assert found.truncated == (len(text) > 20)


def test_a_tag_is_a_token_of_the_source() -> None:
    shouting: Any = Shouting()
    text = "a first clause, and so"
    assert len(translate_texts(shouting, [text[:20]])[0][1].parts) == 1
    assert len(translate_texts(shouting, [text[:20]], to="xx")[0][1].parts) == 2
    tagged: Any = Shouting()
    tagged.tag = "xx"
    assert len(translate_texts(tagged, [text[:20]])[0][1].parts) == 2


@pytest.mark.parametrize(("tagged", "most"), [(False, 20), (True, 19)])
def test_a_tag_takes_a_place_of_the_longest_source_and_of_the_usual_one(tagged: bool, most: int) -> None:
    config, tokenizer = {"max_src_tokens": 22, "split_src_tokens": 12}, Shouting.src_tokenizer
    lengths = Lengths.of(tokenizer, config, 64, tagged=tagged)  # type: ignore[arg-type]
    assert len(lengths.beginning("x" * 30)) == most
    assert [lengths.fits("x" * length) for length in (most, most + 1)] == [True, False]
    assert [lengths.stays_whole("x" * length) for length in (most - 10, most - 9)] == [True, False]


@pytest.mark.parametrize("config", [{}, {"max_src_tokens": 99, "split_src_tokens": 50}])
def test_no_source_is_longer_than_the_model_reads(config: dict[str, int]) -> None:
    lengths = Lengths.of(Shouting.src_tokenizer, config, 22, tagged=False)  # type: ignore[arg-type]
    assert (lengths.usual, lengths.longest) == (22, 22)


def test_attention_and_hypotheses_are_of_one_part() -> None:
    class Looking(Shouting):
        def translate(self, texts: list[str], **_: object) -> list[Translation]:
            hypotheses, attention = (Hypothesis("A", ("A",), -1.0, -1.0, True),), np.zeros((1, 1, 2, 2))
            return [replace(t, hypotheses=hypotheses, attention=attention) for t in super().translate(texts)]

    looking: Any = Looking()
    (alone, _), (several, _) = translate_texts(looking, [" One.", "One. Two."])
    assert alone.text == " ONE."
    assert (len(alone.hypotheses), alone.attention is None) == (1, False)
    assert (len(several.hypotheses), several.attention) == (0, None)


def test_a_text_is_put_together_with_its_own_white_space() -> None:
    shouting: Any = Shouting()
    texts = ["One. Two.\tThree.  ", " a first clause, a second one", "", "日本。 猫。", "x" * 30]
    found = translate_texts(shouting, texts)
    assert [t.text for t, _ in found] == [*(text.upper() for text in texts[:-1]), "X" * 20]
    assert [t.truncated for t, _ in found] == [False, False, False, False, True]
    assert translate_texts(shouting, texts[-1:], num_hypotheses=2)[0][0].text == "X" * 30
    assert [t.score for t, _ in found] == pytest.approx([-3.0, -2.0, math.nan, -2.0, -1.0], nan_ok=True)
    assert [t.truncated for t, _ in found] == [False, False, False, False, True]
    assert [parts.too_long for _, parts in found] == [False, True, False, False, False]
    assert [t.text for t, _ in translate_texts(shouting, ["One. Two."], num_hypotheses=2)] == ["ONE. TWO."]
    assert len(translate_texts(shouting, ["One. Two."], num_hypotheses=2)[0][1].parts) == 1


def test_sentences_that_were_glued_get_a_space_in_a_language_that_writes_them() -> None:
    class English(Shouting):
        def translate(self, texts: list[str], **_: object) -> list[Translation]:
            return [Translation({"猫。": "A cat.", "犬。": "A dog."}[t], 0.0, (), (), False) for t in texts]

    english: Any = English()
    assert translate_texts(english, ["猫。犬。"])[0][0].text == "A cat. A dog."
    same: Any = Shouting()
    assert translate_texts(same, ["猫。犬。"])[0][0].text == "猫。犬。"


@pytest.mark.parametrize("line", ["😀!😀", "१।२।३।", "۱۲؟۳", "5!»6", "3.”12"])
def test_what_has_no_letters_gets_no_space(line: str) -> None:
    shouting: Any = Shouting()
    assert translate_texts(shouting, [line])[0][0].text == line


def test_a_number_that_was_split_gets_no_space() -> None:
    shouting: Any = Shouting()
    (found, parts) = translate_texts(shouting, ["1234567890,1234567890x"])[0]
    assert (len(parts.parts), found.text) == (2, "1234567890,1234567890X")


def test_white_space_around_a_translation_is_that_of_the_text() -> None:
    class Spaced(Shouting):
        def translate(self, texts: list[str], **how: Any) -> list[Translation]:
            return [replace(t, text=f" {t.text}\u3000") for t in super().translate(texts, **how)]

    lines = ["One", " one", "One. Two."]
    assert [t.text for t, _ in translate_texts(Spaced(), lines)] == ["ONE", " ONE", "ONE. TWO."]  # type: ignore[arg-type]


def test_a_source_of_just_the_longest_length_is_not_cut() -> None:
    tokenizer = Tokenizer.train(["a b"] * 3, kind="wordlevel", vocab_size=50)
    sizes = {"d_token": 8, "num_heads": 1, "head_dim": 8, "d_ff": 8, "num_encoder_layers": 1, "num_decoder_layers": 1}
    architecture = replace(Architecture(), **sizes, max_length=6)
    vocab_sizes = {f"{side}_vocab_size": tokenizer.vocab_size for side in ("src", "tgt")}
    translator = Translator(build(architecture, **vocab_sizes), tokenizer, tokenizer, workers=1)
    texts = ["a b a b", "a b a b a"]  # and two marks
    for found in (translator.translate(texts), translator.force(texts, [[START, END]] * 2)):
        assert [one.truncated for one in found] == [False, True]


def test_letters_newer_than_pythons_tables_are_not_written_without_spaces() -> None:
    assert [c for c in "a\uac00\u3042\u732b\U00011f02\U0010ffff" if is_wide(c)] == ["\u3042", "\u732b"]
