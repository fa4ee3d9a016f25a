"""The page's requests to /explain."""

from typing import Any

import pytest
from stub_server import Shouting, ask, body, explained, service, translation

from repose.data.tokenizer import Tokenizer
from repose.decoding.translator import Translation
from repose.documents.alignment import token_spans
from repose.serving.app import make_app
from repose.serving.explain import tokens
from repose.serving.messages import How

TOKENIZER = Tokenizer.train(["o gato viu o cachorro", "START"], kind="bpe", vocab_size=270)
PT_EN = {"source": "pt", "target": "en"}


class Scoring(Shouting):
    """Two heads in each of two layers; alternatives with scores, one of them twice."""

    def answer(self, how: How, sentence: str) -> Translation:
        assert sentence
        texts, scores = ("A.", "B.", "A.", "")[: how.num_hypotheses], (-1.0, -1.5, -1.75, -2.0)
        layers = [[[[1.0, 0.0]], [[0.0, 1.0]]], [[[1.0, 0.0]], [[0.5, 0.5]]]]
        made = translation(*texts, scores=scores[: how.num_hypotheses])
        return explained(made, ["x", "y"], layers, tgt_labels=["A."], log_probs=[-0.5], tgt_spans=[(0, 2)])


def asked(**what: Any) -> Any:
    return body(ask(make_app(service(dispatcher=Scoring())), "POST", "/explain", json={**PT_EN, **what}))


def test_weights_are_the_mean_of_the_last_layer() -> None:
    (sentence,) = asked(q="x y")["sentences"]
    assert sentence["weights"] == [[0.75, 0.25]]
    assert len(sentence["attention"]) == len(sentence["attention"][0]) == 2
    (sentence,) = asked(q="x y", heads=False)["sentences"]
    assert sentence["weights"] == [[0.75, 0.25]]
    assert "attention" not in sentence
    made = make_app(service(dispatcher=Scoring()))
    refused = ask(made, "POST", "/explain", json={**PT_EN, "q": "x y", "heads": "maybe"})
    assert (refused.status_code, body(refused)["error"]) == (
        400,
        "Invalid request: heads parameter is not true or false",
    )


def test_alternatives_have_the_scores_of_all_sentences() -> None:
    assert asked(q="x y")["alternatives"] == []
    assert asked(q="x y", alternatives=3)["alternatives"] == [{"text": "B.", "score": -1.5}]
    found = asked(q="Um. Dois.", alternatives=3)
    assert found["translatedText"] == "A. A."
    assert found["alternatives"] == [{"text": "B. B.", "score": -3.0}]


def test_a_sentence_with_fewer_translations_counts_with_its_best() -> None:
    class Uneven(Scoring):
        def answer(self, _: How, sentence: str) -> Translation:
            return (
                translation(*"ABC", scores=(-1, -2, -3)) if sentence == "Um." else translation(*"AB", scores=(-4, -5))
            )

    asked = {**PT_EN, "q": "Um. Dois.", "alternatives": 2}
    found = body(ask(make_app(service(dispatcher=Uneven())), "POST", "/explain", json=asked))
    assert found["alternatives"] == [{"text": "B B", "score": -7}, {"text": "C A", "score": -7}]


def test_warnings_and_the_limit() -> None:
    assert asked(q="x y")["warnings"] == []
    (warning,) = asked(q="мир")["warnings"]
    assert "Cyrillic" in warning
    settings = body(ask(make_app(service(limits={"explain_limit": 7})), "GET", "/frontend/settings"))
    assert settings["explainLimit"] == 7
    limited = make_app(service(dispatcher=Scoring(), limits={"char_limit": 3}))
    assert ask(limited, "POST", "/explain", json={**PT_EN, "q": "x yz"}).status_code == 400


def test_a_text_that_spells_a_special_token_is_text() -> None:
    text = "[START] gato"
    found = placed(TOKENIZER, text)
    assert found[0] == {"text": "[START]", "start": 0, "end": 0, "continues": False}
    assert found[-1]["start"] == found[-1]["end"] == len(text)
    assert "".join(text[each["start"] : each["end"]] for each in found) == "[START]gato"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"kind": "wordpiece", "vocab_size": 100}, "o Þjóðminjasafn viu o cachorro"),
        ({"kind": "wordpiece", "vocab_size": 100, "lowercase": True, "strip_accents": True}, "Ó Gátö vìu ô Cachorrô"),
        ({"kind": "wordlevel", "vocab_size": 100}, "o İstanbul viu o cachorro"),
        ({"kind": "bpe", "vocab_size": 270}, "o 猫 viu o cachorro"),
    ],
)
def test_every_word_is_found_whatever_the_tokens_spell(settings: dict[str, Any], text: str) -> None:
    tokenizer = Tokenizer.train(["o gato viu o cachorro"] * 3, **settings)
    covered = {place for each in placed(tokenizer, text) for place in range(each["start"], each["end"])}
    assert covered == {place for place, char in enumerate(text) if not char.isspace()}


def test_white_space_around_a_translation_moves_its_tokens() -> None:
    class Spaced(Scoring):
        def answer(self, how: How, sentence: str) -> Translation:
            assert (how.explain, sentence) == (True, "x")
            about = {"tgt_labels": ["A", "."], "log_probs": [-0.5] * 2, "tgt_spans": [(1, 2), (2, 3)]}
            return explained(translation(" A. "), ["x"], [[[[1.0]] * 2]], **about)

    app = make_app(service(dispatcher=Spaced()))
    answer = body(ask(app, "POST", "/explain", json={**PT_EN, "q": "x"}))
    (sentence,) = answer["sentences"]
    shown = [answer["translatedText"][each["start"] : each["end"]] for each in sentence["target"]["tokens"]]
    assert shown == ["A", "."]


def placed(tokenizer: Tokenizer, text: str) -> list[dict[str, Any]]:
    """The tokens of a source."""
    ids = tokenizer.encode(text)
    return tokens(tokenizer.labels(ids), token_spans(text, len(ids), tokenizer), 0)
