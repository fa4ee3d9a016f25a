"""Detecting tokenised text and detokenising it."""

import pytest

from repose.data.tokenised_text import ENTITY, TextForm, detokeniser, form_of, looks_tokenised


@pytest.mark.parametrize(
    "text",
    [
        "The end .",
        "Well , no",
        "( Laughter )",
        "it 's late",
        "they do n't",
        "IT 'S",
        "彼 は 来 た 。",
        "well @-@ known",
        "un@@ known",
    ],
)
def test_tokenised(text: str) -> None:
    assert looks_tokenised(text)


@pytest.mark.parametrize(
    "text",
    [
        "The end.",
        "Well, no (really).",
        "it's late",
        "Vraiment ?",
        "Et puis ...",
        "at .5 percent",
        "彼は来た。",
        "'s avonds",
    ],
)
def test_as_people_write(text: str) -> None:
    assert not looks_tokenised(text)


def test_entities() -> None:
    assert all(ENTITY.search(text) for text in ("it &apos;s", "&#91;", "&#x27;", "A &amp; B"))
    assert not any(ENTITY.search(text) for text in ("A & B;", "R&D", "&;", "AT&T; Bell"))


def test_from_how_many_lines_on_bleu_is_inflated() -> None:
    assert form_of(["It &apos;s .", "So , no", "Yes."]) == TextForm(3, 2, 1)
    assert TextForm(100, 5, 0).inflates_bleu
    assert TextForm(200, 0, 1).inflates_bleu
    assert not TextForm(100, 4, 0).inflates_bleu
    assert not TextForm(201, 0, 1).inflates_bleu
    assert not form_of([]).inflates_bleu


def test_text_is_put_together() -> None:
    english = detokeniser("und")
    assert english("( Laughter ) it &apos;s &quot; fine &quot; , he said .") == '(Laughter) it\'s "fine", he said.'
    assert english("( Laughter ) it 's &#91; A &amp; B &#93;") == "(Laughter) it's [A & B]"
    assert detokeniser("fr")("l&apos; eau , non ?") == "l'eau, non ?"
    assert detokeniser("ja")("彼 は 来 た 。") == "彼は来た。"
    assert english("It's fine, he said (really).") == "It's fine, he said (really)."
    assert english("") == ""
