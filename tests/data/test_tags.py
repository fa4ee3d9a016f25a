"""Tags are reserved tokens after START, which no text can produce."""

import pickle
from typing import Any

import pytest

from repose.data.tags import TaggingEncoder, check_tags, direction, tag_pairs, taught, with_tag
from repose.data.tokenizer import Tokenizer
from repose.system.errors import ConfigError
from repose.system.token_ids import END, START

LINES = ["the cat saw the dog", "a [pt] is no tag in a text [BT]", "o gato viu o cão"] * 3


def tokenizer(kind: Any, **more: Any) -> Tokenizer:
    return Tokenizer.train(LINES, kind=kind, vocab_size=400, tags=("pt", "BT"), **more)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "wordlevel"])
def test_no_text_can_spell_a_tag(kind: str) -> None:
    found = tokenizer(kind)
    assert found.tags == {"pt": 4, "BT": 5}
    ids = found.encode("a [pt] is no tag in a text [BT]")
    assert not {4, 5} & set(ids)
    tagged = with_tag(found, ids, "BT")
    assert tagged[:2] == [START, 5]
    assert tagged[2:] == ids[1:]
    assert found.decode(tagged) == found.decode(ids)
    assert found.tokens(tagged)[1] == found.labels(tagged)[1] == "[BT]"
    assert found.lossless == (kind in ("bpe", "unigram"))
    assert found.vocab_size <= 400


def test_without_tags_a_vocabulary_is_what_it_was() -> None:
    plain = Tokenizer.train(LINES, kind="bpe", vocab_size=400)
    assert plain.tags == {}
    assert plain.digest == Tokenizer.train(LINES, kind="bpe", vocab_size=400, tags=()).digest


def test_an_encoder_reads_the_tag_before_a_text() -> None:
    encoder = pickle.loads(pickle.dumps(TaggingEncoder(tokenizer("bpe"))))
    pairs = [*tag_pairs([("o gato", "x")], "pt"), *tag_pairs([("the cat", "y")], None)]
    first, second = encoder.encode_batch([src for src, _ in pairs])
    assert first[:2] == [START, 4]
    assert first[2:] == tokenizer("bpe").encode("o gato")[1:]
    assert second == tokenizer("bpe").encode("the cat")
    assert first[-1] == second[-1] == END


def test_the_languages_of_a_tag() -> None:
    model = {"src_lang": "de", "tgt_lang": "en", "tag": "en"}
    assert direction(model, None) == direction(model, "en") == ("de", "en")
    assert direction(model, "de") == ("en", "de"), "the opposite, of a model that does not say more"
    assert direction(model, "fr") == ("und", "fr")
    also = [("de", "en", "de"), ("en", "fr", "en"), ("fr", "en", "fr")]
    names = ("tag", "src_lang", "tgt_lang")
    model["also"] = [dict(zip(names, one, strict=True)) for one in also]
    assert direction(model, None) == direction(model, "en") == ("und", "en"), "from German and from French"
    assert direction(model, "de") == ("en", "de")
    assert direction(model, "fr") == ("en", "fr")
    of_sources = {"src_lang": "gl", "tgt_lang": "en", "also": [{"tag": "pt", "src_lang": "pt", "tgt_lang": "en"}]}
    assert (direction(of_sources, None), direction(of_sources, "pt")) == (("gl", "en"), ("pt", "en"))
    for damaged in ("x", ["x"], [{}], [{"tag": ["pt"], "src_lang": 3}], {"tag": "pt"}):
        assert direction({**of_sources, "also": damaged}, "pt") == ("und", "en")
        assert {one.tag for one in taught({**of_sources, "also": damaged})} == {None}


def test_a_tag_that_is_not_there_is_told() -> None:
    with pytest.raises(ConfigError, match="made without tags"):
        with_tag(Tokenizer.train(LINES, kind="bpe", vocab_size=400), [START, END], "pt")
    with pytest.raises(ConfigError, match=r"^there is no source tag 'gl': known are pt, BT$"):  # of translate --to gl
        with_tag(tokenizer("bpe"), [START, END], "gl")
    with pytest.raises(ConfigError, match=r"'gl'.*: leave the tag out .*corpus\.synthetic_tag=none"):  # in training
        check_tags(tokenizer("bpe"), ["pt", "gl"])
