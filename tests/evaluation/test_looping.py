"""Detecting translations that loop."""

import pytest

from repose.evaluation.looping import loops


@pytest.mark.parametrize(
    "text",
    [
        "no no no",
        "the, the, The end",
        "( Laughter ) ( Laughter )",
        "and I 'm going to be going to be going to be there",
        "he said that he said that",
        "of the of the of the house",
        "了了了",
        "\U00020000" * 4,  # an ideograph beyond the first 65,536 characters
        " ".join(["a b c d e f g h i j k l m n o p q r s t"] * 2),
    ],
)
def test_it_says_the_same_again_and_again(text: str) -> None:
    assert loops(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no",
        "no no, said he",
        "very very good",
        "so so, very very good",
        "of the of the house",
        "all in all and step by step",
        "1, 2, 3, 1, 2",
        "妈妈说",
    ],
)
def test_it_does_not(text: str) -> None:
    assert not loops(text)


@pytest.mark.parametrize("text", ["मेरे नाना नानी गाँव में रहते हैं।", "দাদা দাদী", "மாமா மாமி", "Ba\u0300 ba\u0301 ba\u0323"])
def test_vowel_signs_and_accents_belong_to_their_word(text: str) -> None:
    assert not loops(text)
    assert loops(" ".join([text.split()[1]] * 3))
