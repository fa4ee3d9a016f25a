"""Fast paths for plain texts give the same results as the general ones."""

import pytest
import sentencex
from hypothesis import given
from hypothesis import strategies as st
from stub_server import served, translation

from repose.data.input_warning import input_warning
from repose.decoding.parts import Part, Parts
from repose.serving.catalogue import Direction
from repose.serving.texts import _ONE_SENTENCE, further, split, texts_of

LETTERS = st.text("abcdeXYZáçñöß ,'-.!?", max_size=60)


@pytest.mark.parametrize("language", ["pt", "en", "de"])
@given(text=LETTERS)
def test_what_is_taken_for_one_sentence_is_one_to_the_splitter(language: str, text: str) -> None:
    if _ONE_SENTENCE.fullmatch(text):
        assert list(sentencex.segment(language, text)) == [text]


@given(text=LETTERS)
def test_nothing_of_a_text_is_lost(text: str) -> None:
    whole = split(Direction("pt", "en", served("pt", "en"), 0, None), text)
    assert "".join(map("".join, whole.parts)) == text


def test_a_sentence_without_so_many_translations_has_its_best() -> None:
    whole = Parts((Part("", "One.", " "), Part("", "Two.", "")), False)
    answers = [translation("Un.", "Uno.", "Una."), translation("Deux.", "Dos.")]
    assert texts_of(whole, answers, 1) == ["Uno.", "Dos."]
    assert texts_of(whole, answers, 2) == ["Una.", "Deux."]


def test_alternatives_are_neither_empty_nor_the_best_nor_twice_there() -> None:
    whole = Parts((Part("", "One.", ""),), False)
    answer = translation("Un.", "", "Uno.", "Un.", "Uno.", " ", "Una.")
    assert further(whole, [answer], 6) == {"Uno.": 2, "Una.": 6}


def test_a_text_in_another_language_is_still_warned_of() -> None:
    german = "Der Hund schläft heute nicht auf dem Sofa, sondern im Garten."
    portuguese = "O cachorro não dorme hoje no sofá, mas no jardim."
    assert input_warning([german], ("Latin",), "de") is None
    assert input_warning([portuguese], ("Latin",), "pt") is None
    warning = input_warning([german], ("Latin",), "pt")
    assert warning is not None
    assert warning.found == "de"
