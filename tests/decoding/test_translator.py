"""The translator with a small model that has learnt to reverse its input, and with untrained models."""

import copy
import dataclasses
import itertools
import math
import pickle
import random
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from repose.data.tokenizer import Tokenizer
from repose.decoding import stream
from repose.decoding.load import load
from repose.decoding.sampling import Sampling
from repose.decoding.torch_engine import TorchEngine
from repose.decoding.translator import MODEL_KIND, Translator
from repose.exporting.card import card as card_of_export
from repose.graphs.stacks import graphs_of
from repose.model.kernels.linear import quantize
from repose.model.presets import PRESETS, preset
from repose.model.transformer import Transformer
from repose.saved_model import directory
from repose.saved_model.api import build
from repose.system.device import one_thread
from repose.system.errors import CheckpointError, ConfigError, DataError, ReposeError

WORDS = ["ka", "lo", "mi", "nu", "pe", "ra", "so", "ti"]
TINY = {"d_token": 16, "num_heads": 2, "head_dim": 16, "d_ff": 32, "num_encoder_layers": 1, "num_decoder_layers": 1}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([" ".join(WORDS)] * 3, kind="wordlevel", vocab_size=50)


def tiny(name: str) -> Transformer:
    architecture = dataclasses.replace(preset(name), **TINY, max_length=24, dropout=0.0, attention_dropout=0.0)
    architecture = dataclasses.replace(architecture, attention_output_dropout=0.0, initialisation="xavier")
    return build(architecture, src_vocab_size=12, tgt_vocab_size=12)


def sentences(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 5))) for _ in range(count)]


def reverse(text: str) -> str:
    return " ".join(reversed(text.split()))


def learn_to_reverse(model: Transformer, tokenizer: Tokenizer, updates: int, lr: float = 4e-3) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for update in range(updates):
        src = sentences(64, seed=update)
        ids, tgt = (
            torch.nn.utils.rnn.pad_sequence([torch.tensor(tokenizer.encode(s)) for s in side], batch_first=True)
            for side in (src, [reverse(s) for s in src])
        )
        labels = tgt[:, 1:][tgt[:, :-1] != 0]
        loss = functional.cross_entropy(model.output(model.hidden(ids, tgt[:, :-1])), labels, ignore_index=0)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@pytest.fixture(scope="module")
def reversing(tokenizer: Tokenizer) -> Translator:
    model = tiny("reinforced").train()
    with one_thread():  # threads that wait for one another are slow on a busy machine
        learn_to_reverse(model, tokenizer, 120, lr=8e-3)
    return Translator(model, tokenizer, tokenizer)


def test_it_translates(reversing: Translator) -> None:
    src = sentences(40, seed=10_000)
    right = [t.text == reverse(s) for s, t in zip(src, reversing.translate(src), strict=True)]
    assert sum(right) >= 36


@pytest.mark.parametrize("name", PRESETS)
def test_scores_are_those_of_a_forced_decode(name: str, tokenizer: Tokenizer) -> None:
    """Of every preset that can decode; one that looks ahead gives other probabilities step by step."""
    translator = Translator(tiny(name), tokenizer, tokenizer, max_extra_tokens=2)
    src = sentences(6)
    for translation in translator.translate(src, beam_size=3, num_hypotheses=2):
        for hypothesis in translation.hypotheses:
            assert hypothesis.normalised == pytest.approx(
                hypothesis.score / ((5 + len(hypothesis.tokens) + hypothesis.finished) / 6) ** 0.6
            )
    translations = translator.translate(src, beam_size=3)
    finished = [(s, t) for s, t in zip(src, translations, strict=True) if t.hypotheses[0].finished]
    if finished and not translator.model.architecture.looks_ahead:
        forced = translator.score([s for s, _ in finished], [t.text for _, t in finished])
        assert forced == pytest.approx([t.score for _, t in finished], abs=1e-4)


def test_score_sums_over_all_targets_to_one(tokenizer: Tokenizer) -> None:
    """Every target of up to one token, and everything longer: the probabilities of the first add up below one."""
    translator = Translator(tiny("baseline"), tokenizer, tokenizer)
    targets = [[2, *ys, 3] for n in range(2) for ys in itertools.product(range(1, 12), repeat=n)]
    with torch.no_grad():  # padding is no target, but has a probability
        logits = translator.model(torch.tensor(translator.encode(["ka lo"])), torch.tensor([[2]]))
    padding = float(logits[0, 0].softmax(0)[0])
    forced = translator.force(["ka lo"] * len(targets), targets)
    assert 0 < sum(float(np.exp(f.log_probs.sum())) for f in forced) < 1
    firsts = {t[1]: float(np.exp(f.log_probs[0])) for t, f in zip(targets, forced, strict=True)}
    assert sum(firsts.values()) + padding == pytest.approx(1, abs=1e-5)
    assert {f.predictions[0] for f in forced} == {max(firsts, key=lambda token: firsts[token])}


def test_a_given_target_is_forced_after_the_tag_that_is_asked_for() -> None:
    tokenizer = Tokenizer.train(["ka lo mi"] * 3, kind="wordlevel", vocab_size=50, tags=["aa", "bb"])
    size = tokenizer.vocab_size
    model = build(tiny("baseline").architecture, src_vocab_size=size, tgt_vocab_size=size)
    one, other = (Translator(model, tokenizer, tokenizer) for _ in range(2))
    one.tag, other.tag = "aa", "bb"
    for to, as_of in ((None, one), ("aa", one), ("bb", other)):
        ours, theirs = one.force(["ka lo"], [[2, 5, 3]], to=to), as_of.force(["ka lo"], [[2, 5, 3]])
        assert (ours[0].log_probs == theirs[0].log_probs).all()
    assert (one.force(["ka"], [[2, 5, 3]])[0].log_probs != other.force(["ka"], [[2, 5, 3]])[0].log_probs).all()


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_batch_translates_as_each_sentence_alone(reversing: Translator, beam_size: int) -> None:
    src = sentences(20, seed=5)
    together = reversing.translate(src, beam_size=beam_size)
    for text, translation in zip(src, together, strict=True):
        (alone,) = reversing.translate([text], beam_size=beam_size)
        assert alone.text == translation.text
        assert alone.score == pytest.approx(translation.score, abs=1e-4)


def test_a_setting_of_0_is_asked_for_too(tokenizer: Tokenizer) -> None:
    """And is not taken for the translator's own."""
    model, src = tiny("baseline"), sentences(3)
    usual: dict[str, Any] = {"length_penalty": 2.0, "no_repeat_ngram_size": 1}
    plain, strict = (Translator(model, tokenizer, tokenizer, **how, beam_size=2) for how in ({}, usual))
    wanted = plain.translate(src, length_penalty=0)
    assert all(h.normalised == h.score for one in wanted for h in one.hypotheses)
    assert strict.translate(src, length_penalty=0, no_repeat_ngram_size=0) == wanted
    for name in usual:
        assert strict.translate(src, **{name: 0}) != wanted


def test_numbers_may_be_numpys(reversing: Translator) -> None:
    src = sentences(3)
    wanted = {"beam_size": 4, "num_hypotheses": 2, "no_repeat_ngram_size": 1, "length_penalty": 0.5}
    given: Any = {name: (np.float16 if name == "length_penalty" else np.int64)(value) for name, value in wanted.items()}
    assert reversing.translate(src, **given) == reversing.translate(src, **wanted)  # type: ignore[arg-type]
    drawn: Any = Sampling(np.float32(0.5), np.uint8(3), np.int64(2**62))
    assert reversing.translate(src, sampling=drawn) == reversing.translate(src, sampling=Sampling(0.5, 3, 2**62))


def test_sentences_in_several_calls_are_drawn_as_in_one(reversing: Translator) -> None:
    src = sentences(12)
    whole = reversing.translate(src, sampling=Sampling(5.0, 3))
    halves = [reversing.translate(src[at : at + 6], sampling=Sampling(5.0, 3, first=at)) for at in (0, 6)]
    assert [t.text for half in halves for t in half] == [t.text for t in whole]
    again = reversing.translate(src[6:], sampling=Sampling(5.0, 3))
    assert [t.text for t in again] != [t.text for t in halves[1]], "nothing is shown"


def test_hypotheses_are_ranked_and_differ(reversing: Translator) -> None:
    for translation in reversing.translate(sentences(10, seed=3), beam_size=4, num_hypotheses=4):
        ranks = [h.normalised for h in translation.hypotheses]
        assert ranks == sorted(ranks, reverse=True)
        assert len({h.tokens for h in translation.hypotheses}) == len(ranks)


def test_blank_sentences_stay_blank(reversing: Translator) -> None:
    texts = [t.text for t in reversing.translate(["", "ka lo", "   "])]
    assert texts == ["", "lo ka", ""]
    assert reversing.translate([]) == []


@pytest.mark.parametrize("text", ["\u00ad", " \u00ad "])
def test_what_normalization_leaves_nothing_of_is_blank(tokenizer: Tokenizer, text: str) -> None:
    """A soft hyphen alone."""
    config = {"src_normalization": {"form": "NFC", "replace": {"\u00ad": ""}}}
    plain, normalising = (Translator(tiny("baseline"), tokenizer, tokenizer, config=given) for given in ({}, config))
    (found,) = normalising.translate([text])
    assert (found.text, found.hypotheses) == ("", ())
    assert plain.translate([text])[0].hypotheses


@pytest.mark.parametrize("text", ["\0", "\u200d", "\u0301", " \x07 "])
def test_a_text_without_tokens_is_blank(text: str) -> None:
    wordpieces = Tokenizer.train(
        ["ka lo mi"], kind="wordpiece", vocab_size=40, lowercase=True, strip_accents=True, tags=["pt"]
    )
    size = wordpieces.vocab_size
    model = build(tiny("baseline").architecture, src_vocab_size=size, tgt_vocab_size=size)
    for tag in (None, "pt"):
        translator = Translator(model, wordpieces, wordpieces, config={"tag": tag} if tag else {})
        blank, other = translator.translate([text, "ka"])
        assert (blank.text, blank.hypotheses) == ("", ())
        assert other.hypotheses


def test_over_long_sources_are_cut_and_say_so(reversing: Translator) -> None:
    long, short = reversing.translate(["ka " * 100, "ka"])
    assert (long.truncated, short.truncated) == (True, False)
    assert len(long.src_tokens) == 24
    assert long.src_tokens[-1] == "[END]"


def test_an_over_long_source_of_a_given_target_says_so(reversing: Translator) -> None:
    assert [one.truncated for one in reversing.force(["ka", "ka " * 100], [[2, 4, 3]] * 2)] == [False, True]


def test_attention_says_where_the_model_looked(reversing: Translator) -> None:
    (translation,) = reversing.translate(["ka lo mi"], attention=True)
    assert translation.attention is not None
    assert translation.attention.shape == (1, 2, len(translation.hypotheses[0].tokens) + 1, 5)
    np.testing.assert_allclose(translation.attention.sum(3), np.ones((1, 2, 4)), rtol=1e-5)
    assert reversing.translate(["ka"])[0].attention is None
    assert "attention" not in repr(translation)  # a screen full of numbers


def test_translations_with_attention_can_be_compared(reversing: Translator) -> None:
    plain, looked = reversing.translate(["ka lo"]), reversing.translate(["mi", "ka lo"], attention=True)
    assert plain[0] in looked
    assert len({*plain, *looked, *reversing.translate(["ka lo"], attention=True)}) == 2


def test_a_hypothesis_that_does_not_end_has_no_row_for_it(tokenizer: Tokenizer) -> None:
    translator = Translator(tiny("baseline"), tokenizer, tokenizer)
    with torch.no_grad():
        translator.model.output.weight[3] = 0  # END: some other logit is above
    (translation,) = translator.translate(["ka lo"], attention=True, beam_size=1)
    assert translation.attention is not None
    assert (len(translation.hypotheses[0].tokens), translation.hypotheses[0].finished) == (24, False)
    assert translation.attention.shape == (1, 2, 24, 4)


def test_a_translator_shows_what_it_is(reversing: Translator) -> None:
    few = reversing.translate(["ka lo"])
    assert repr(few) == f"[Translation(text={few[0].text!r}, score={few[0].score!r}, truncated=False)]"
    said = repr(reversing)
    assert said.startswith("<repose.Translator of ")
    assert "engine='torch', precision='fp32', workers=" in said


def test_tokens_of_bytes_can_be_read() -> None:
    tokenizer = Tokenizer.train(["o cão viu a maçã", "o gato comeu"] * 5, kind="bpe", vocab_size=270)
    size = tokenizer.vocab_size
    model = build(tiny("reinforced").architecture, src_vocab_size=size, tgt_vocab_size=size)
    translator = Translator(model, tokenizer, tokenizer, max_extra_tokens=3)
    translation = translator.translate(["o cão viu"], beam_size=1)[0]
    source, target = translator.labels(translation)
    assert (source[0], source[-1]) == ("[START]", "[END]")
    assert "".join(source[1:-1]).translate({ord("·"): None, ord("␣"): None}) == "ocãoviu"
    assert "Ã" in "".join(translation.src_tokens)
    assert len(target) == len(translation.hypotheses[0].tokens) > 0
    assert translator.labels(translator.translate([""])[0])[1] == []


def test_a_file_that_is_read_no_further_is_let_go(
    reversing: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "WINDOW", 2)
    (tmp_path / "text").write_text("ka lo\n" * 100)
    before = {*threading.enumerate()}
    with (tmp_path / "text").open("rb") as source:
        lines = stream.translate_lines(reversing, source, stream.StreamCounts())
        assert next(lines).text == "lo ka"
        (thread,) = {*threading.enumerate()} - before
        lines.close()
        thread.join(10)
        assert not thread.is_alive()


def test_sentences_may_come_from_anything_that_gives_them(reversing: Translator) -> None:
    src, tgt = sentences(3), sentences(3, seed=1)
    assert reversing.translate(iter(src)) == reversing.translate(src)
    assert reversing.score(iter(src), (text for text in tgt)) == reversing.score(src, tgt)


def test_lines_of_a_file_are_sentences(reversing: Translator, tmp_path: Path) -> None:
    """With the line breaks that Python leaves at their ends."""
    src, tgt = sentences(3), sentences(3, seed=1)
    for name, lines, end in (("src", src, "\n"), ("tgt", tgt, "\r\n")):
        (tmp_path / name).write_text(end.join(lines) + end, encoding="utf-8", newline="")
    with (tmp_path / "src").open() as a, (tmp_path / "tgt").open(newline="") as b:
        assert reversing.score(a, b) == reversing.score(src, tgt)
    assert reversing.translate(f"{line}\n" for line in src) == reversing.translate(src)


def test_wrong_use_is_a_sentence(reversing: Translator) -> None:
    wrong: Any
    table = type("DataFrame", (), {"columns": ["src"], "__iter__": lambda _: iter(["src"])})()
    for wrong, name in (({"ka lo": 1}, "dict"), (table, "DataFrame")):
        with pytest.raises(ConfigError, match=f"translate takes a list of sentences, not a {name}: give one of its"):
            reversing.translate(wrong)
    wrong = {"ka", "lo"}
    with pytest.raises(ConfigError, match="a list of sentences, not a set, which has no order"):
        reversing.translate(wrong)
    wrong = [["ka"] * 3000]
    with pytest.raises(ConfigError, match="translate takes sentences, not") as caught:
        reversing.translate(wrong)
    assert len(str(caught.value)) < 100
    with pytest.raises(ConfigError, match="list of sentences"):
        reversing.translate("ka")
    for nothing in (None, 1, b"ka"):
        texts: Any = ["ka", nothing]
        with pytest.raises(ConfigError, match=rf"translate takes sentences, not {nothing!r} \(item 1\)"):
            reversing.translate(texts)
        for pair in ((texts, ["ka", "ka"]), (["ka", "ka"], texts)):
            with pytest.raises(ConfigError, match=f"score takes sentences, not {nothing!r}"):
                reversing.score(*pair)
    for nothing in ("ab", b"ab", None, 1):
        wrong = nothing
        for call, arguments in (
            (reversing.translate, [wrong]),
            (reversing.score, [wrong, ["a"]]),
            (reversing.score, [["a"], wrong]),
            (reversing.force, [wrong, [[2, 3]]]),
            (reversing.encode, [wrong]),
        ):
            with pytest.raises(ConfigError, match=f"{call.__name__} takes a list of sentences, not {wrong!r}"):
                call(*arguments)
    for size in ("4", 2.5):
        wrong = size
        with pytest.raises(ConfigError, match=f"beam_size is {size!r}, but must be a whole number"):
            reversing.translate(["a"], beam_size=wrong)
    with pytest.raises(ConfigError, match="to is 5, but must be the name of a tag"):
        reversing.translate(["a"], to=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"sampling is 1\.0: give a repose\.Sampling"):
        reversing.translate(["a"], sampling=1.0)  # type: ignore[arg-type]
    for beside in ({"beam_size": 4}, {"num_hypotheses": 2}):
        with pytest.raises(ConfigError, match="sampling draws one translation of each text"):
            reversing.translate(["a"], sampling=Sampling(), **beside)
    with pytest.raises(ConfigError, match="num_hypotheses"):
        reversing.translate(["ka"], beam_size=2, num_hypotheses=3)
    assert reversing.beam_size < 6, "which is wider where more are wanted"
    assert reversing.translate(["ka"], num_hypotheses=6) == reversing.translate(["ka"], beam_size=6, num_hypotheses=6)
    with pytest.raises(DataError, match=r"numbers of sources and targets differ \(2 and 1\)"):
        reversing.score(["ka", "lo"], ["ka"])
    with pytest.raises(DataError, match="max_length"):
        reversing.score(["ka"], ["ka " * 100])


def test_a_translator_of_what_does_not_fit_is_refused(tokenizer: Tokenizer) -> None:
    for nothing in ("reinforced", None, torch.nn.Linear(1, 1)):
        model: Any = nothing
        with pytest.raises(ConfigError, match=f"a model that translates, not {type(nothing).__name__}"):
            Translator(model, tokenizer, tokenizer)
    for sides in (("a", tokenizer), (tokenizer, None)):
        with pytest.raises(ConfigError, match=r"tokenizer is a repose.Tokenizer, not (str|NoneType)"):
            Translator(tiny("baseline"), *sides)  # type: ignore[arg-type]
    small = Tokenizer.train(["ka lo"], kind="wordlevel", vocab_size=50)
    model = build(tiny("baseline").architecture, src_vocab_size=small.vocab_size, tgt_vocab_size=12)
    with pytest.raises(ConfigError, match="the source tokenizer has 12 tokens, and the model is built for 6: use its"):
        Translator(model, tokenizer, tokenizer)
    with pytest.raises(ConfigError, match="the target tokenizer has 6 tokens, and the model is built for 12"):
        Translator(tiny("baseline"), tokenizer, small)
    model = build(tiny("baseline").architecture, src_vocab_size=12, tgt_vocab_size=small.vocab_size)
    with pytest.raises(ConfigError, match="the target tokenizer has 12 tokens"):
        Translator(model, tokenizer, tokenizer)
    assert Translator(model, tokenizer, small).translate(["mi"])


def test_a_model_returns_to_the_modes_that_it_was_in(tokenizer: Tokenizer) -> None:
    model = build(tiny("reinforced").architecture, src_vocab_size=12, tgt_vocab_size=12)
    model.train()
    model.decoder.eval()
    modes = [module.training for module in model.modules()]
    translator, src = Translator(model, tokenizer, tokenizer, beam_size=1, workers=1), ["mi ka lo"]
    calm = Translator(copy.deepcopy(model).eval(), tokenizer, tokenizer, beam_size=1, workers=1)
    for _ in range(3):
        assert translator.translate(src, attention=True) == calm.translate(src)
        assert translator.score(src, src) == calm.score(src, src)
    assert [module.training for module in model.modules()] == modes
    assert {True, False} == set(modes)


def test_a_model_in_another_precision_is_saved_in_fp32(tokenizer: Tokenizer, tmp_path: Path) -> None:
    translator = Translator(tiny("reinforced").bfloat16(), tokenizer, tokenizer, workers=1)
    translator.save(tmp_path / "model")
    with load(tmp_path / "model", engine="torch") as again:
        assert {weights.dtype for weights in again.model.parameters()} == {torch.float32}


def test_a_score_that_is_no_number_is_refused(tokenizer: Tokenizer) -> None:
    translator = Translator(tiny("reinforced"), tokenizer, tokenizer)
    with torch.no_grad():
        translator.model.output.weight.fill_(math.nan)
    with pytest.raises(ReposeError, match="NaN"):
        translator.score(["ka"], ["lo"])


@pytest.mark.parametrize("place", ["encoder.embedding.tokens.weight", "output.weight", "decoder.layers.0.feed_forward"])
def test_weights_that_are_no_numbers_are_none_in_int8(place: str) -> None:
    model = tiny("reinforced")
    with torch.no_grad():
        next(weights for name, weights in model.named_parameters() if name.startswith(place))[2] = math.nan
    for make in (quantize, lambda model: graphs_of(model, int8=True)):
        with pytest.raises(ReposeError, match="the model has weights that are NaN"):
            make(model)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_copies_in_int8_are_in_int8(tokenizer: Tokenizer, copied: Callable[[Translator], Translator]) -> None:
    model = tiny("reinforced")
    quantize(model)
    translator = Translator(model, tokenizer, tokenizer, workers=1)
    expected = translator.translate(["ka lo", "mi"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = copied(translator)
    assert again.precision == "int8"
    assert again.model is not model
    assert again.translate(["ka lo", "mi"]) == expected


def quantized(model: Transformer) -> Transformer:
    quantize(model)
    return model


def test_weights_that_change_are_packed_anew(tokenizer: Tokenizer) -> None:
    """Those in 8-bit integers, too."""
    translator = Translator(quantized(tiny("baseline")), tokenizer, tokenizer, workers=1)
    assert isinstance(translator.engine, TorchEngine)
    before = translator.translate(["ka lo", "mi"])
    with torch.no_grad():
        for parameter in translator.model.parameters():
            parameter.mul_(-1.5)
    model = tiny("baseline")
    model.load_state_dict(translator.model.state_dict())
    fresh = Translator(quantized(model), tokenizer, tokenizer, workers=1)
    assert translator.translate(["ka lo", "mi"]) == fresh.translate(["ka lo", "mi"]) != before


def test_constants_are_derived_anew_after_a_write_that_torch_does_not_count(tokenizer: Tokenizer) -> None:
    translator = Translator(tiny("baseline"), tokenizer, tokenizer, workers=1)
    before = [t.score for t in translator.translate(["ka lo"])]
    for parameter in translator.model.parameters():
        parameter.data.mul_(1.5)
    translator.refresh()
    after = [t.score for t in translator.translate(["ka lo"])]
    fresh = Translator(copy.deepcopy(translator.model), tokenizer, tokenizer, workers=1)
    assert after == [t.score for t in fresh.translate(["ka lo"])] != before


@pytest.mark.parametrize(
    ("decoding", "expected"),
    [
        ({"beam_size": 10**9}, "beam_size of decoding cannot be 1000000000: 4 is usual"),
        ({"beam_size": 0}, "beam_size of decoding cannot be 0"),
        ({"beam_size": "x"}, "beam_size of decoding cannot be 'x'"),
        ({"beam_size": "4"}, "beam_size of decoding cannot be '4'"),
        ({"beam_size": True}, "beam_size of decoding cannot be True"),
        ({"beam_size": [1]}, r"beam_size of decoding cannot be \[1\]"),
        ({"batch_size": 0}, "batch_size of decoding cannot be 0"),
        ({"length_penalty": 1e300}, "length_penalty of decoding cannot be 1e\\+300"),
        ({"max_extra_tokens": None}, "max_extra_tokens of decoding cannot be None"),
        ([], "has no usable decoding: save or copy the model again"),
        ("x", "has no usable decoding: save or copy the model again"),
        (None, "has no usable decoding: save or copy the model again"),
    ],
)
def test_settings_of_a_model_directory_are_checked(
    decoding: object, expected: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model, texts = tiny("baseline"), [tokenizer.json] * 2
    directory.save(tmp_path / "model", MODEL_KIND, model, texts, card="", extra={"decoding": decoding})
    with pytest.raises(CheckpointError, match=expected) as caught:
        load(tmp_path / "model")
    assert str(tmp_path / "model") in str(caught.value)


@pytest.mark.parametrize("content", [[], {"form": "NFC", "replace": {"a": "b", "b": "c"}}])
def test_a_normalization_that_is_none_is_refused(content: object, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model, texts = tiny("baseline"), [tokenizer.json] * 2
    directory.save(tmp_path, MODEL_KIND, model, texts, card="", extra={"src_normalization": content})
    with pytest.raises(CheckpointError, match=r"src_normalization in config\.json cannot be used"):
        load(tmp_path)


def test_settings_that_a_model_directory_does_not_have_are_the_usual_ones(tokenizer: Tokenizer, tmp_path: Path) -> None:
    extra = {"decoding": {"beam_size": 2, "of_a_later_version": 3}}
    directory.save(tmp_path / "model", MODEL_KIND, tiny("baseline"), [tokenizer.json] * 2, card="", extra=extra)
    with load(tmp_path / "model") as translator:
        assert (translator.beam_size, translator.length_penalty, translator.batch_size) == (2, 0.6, 64)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PRESETS if not PRESETS[name].architecture.looks_ahead])
def test_every_causal_preset_learns_to_reverse(name: str, tokenizer: Tokenizer) -> None:
    model = tiny(name).train()
    learn_to_reverse(model, tokenizer, 400)
    src = sentences(40, seed=10_000)
    translations = Translator(model, tokenizer, tokenizer).translate(src)
    assert sum(t.text == reverse(s) for s, t in zip(src, translations, strict=True)) >= 30


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"beam_size": 0}, "beam_size is 0"),
        ({"beam_size": 4, "num_hypotheses": 99}, "num_hypotheses is 99"),
        ({"num_hypotheses": "2"}, "num_hypotheses is '2', but must be a whole number"),
        ({"length_penalty": math.nan}, "alpha is nan"),
        ({"num_hypotheses": True}, "num_hypotheses is True, but must be a whole number"),
        ({"length_penalty": -1.0}, "alpha is -1"),
        ({"length_penalty": "a"}, "alpha is 'a'"),
        ({"length_penalty": [1]}, r"alpha is \[1\]"),
        ({"length_penalty": True}, "alpha is True"),
        ({"no_repeat_ngram_size": 3.0}, r"no_repeat_ngram_size is 3\.0, but must be a whole number"),
        ({"no_repeat_ngram_size": True}, "no_repeat_ngram_size is True"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size of decoding cannot be -1"),
        ({"sampling": Sampling(), "length_penalty": -1.0}, "alpha is -1"),
        ({"sampling": Sampling(seed=1.5)}, "seed of sampling is 1.5"),  # type: ignore[arg-type]
        ({"sampling": Sampling(first=-1)}, "first sentence of sampling is -1"),
    ],
)
@pytest.mark.parametrize("texts", [[], [""], ["ka"]])
def test_settings_out_of_range_are_refused_where_there_is_nothing_to_search(
    reversing: Translator, texts: list[str], settings: dict[str, Any], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        reversing.translate(texts, **settings)


def test_a_model_from_a_loop_of_ones_own_is_saved_and_used_as_any_other(reversing: Translator, tmp_path: Path) -> None:
    texts = sentences(5)
    wanted = [one.text for one in reversing.translate(texts)]
    reversing.save(tmp_path / "model", src_lang="pt", tgt_lang="en")
    loaded = load(tmp_path / "model", engine="torch", device="cpu")
    assert [one.text for one in loaded.translate(texts)] == wanted
    assert (loaded.config["src_lang"], loaded.config["tgt_lang"]) == ("pt", "en")
    assert loaded.beam_size == reversing.beam_size
    assert "Translation from Portuguese to English" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    with torch.no_grad():
        loaded.model.output.weight.mul_(-1)
    loaded.save(str(tmp_path / "model"))  # in the place of the one that it came from
    again = load(tmp_path / "model", engine="torch")
    assert again.config["src_lang"] == "pt"
    assert torch.equal(again.model.output.weight, loaded.model.output.weight)
    with pytest.raises(ConfigError, match=r"src_lang should be a code such as 'pt', not 3"):
        reversing.save(tmp_path / "other", src_lang=3)  # type: ignore[arg-type]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(CheckpointError, match="something other than a model"):
        reversing.save(tmp_path / "mine")


@pytest.mark.parametrize("content", ['{"experiment": {}, "run_id": "0123"}', '{"mine": 1}', "no JSON", "[]"])
def test_a_model_is_not_saved_over_a_run_or_over_other_files(
    reversing: Translator, tmp_path: Path, content: str
) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match="something other than a model: choose a new or empty folder"):
        reversing.save(tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == [content]


def test_a_model_is_not_saved_over_that_of_a_run(reversing: Translator, tmp_path: Path) -> None:
    reversing.save(tmp_path / "model")
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(CheckpointError, match="model is in a run directory: choose a folder elsewhere"):
        reversing.save(tmp_path / "model")


def test_a_damaged_model_can_be_saved_anew(reversing: Translator, tmp_path: Path) -> None:
    reversing.save(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text("{")
    reversing.save(tmp_path / "model")
    assert load(tmp_path / "model", engine="torch").config["src_lang"] == "und"


def test_the_card_of_a_saved_model_has_a_header_and_says_how_it_is_loaded(
    reversing: Translator, tmp_path: Path
) -> None:
    reversing.save(tmp_path / "model", src_lang="pt")
    text = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    header = '---\nlanguage: ["pt"]\nlibrary_name: "repose"\npipeline_tag: "translation"\ntags: ["repose"]\n---\n'
    assert text.startswith(header)
    assert "## How to load\n\n```sh\necho" in text
    assert 'repose.load("FOLDER")' in card_of_export(text, "onnx", ['repose.load("FOLDER")'])


def test_what_a_model_says_of_its_text_is_saved_and_its_run_is_not(reversing: Translator, tmp_path: Path) -> None:
    config = {"run_id": "0123", "tag": None, "src_lang": "gl", "max_src_tokens": 9, "src_scripts": ["Latin"]}
    own = Translator(reversing.model, reversing.src_tokenizer, reversing.tgt_tokenizer, config=config)
    own.save(tmp_path / "model")
    kept = load(tmp_path / "model", engine="torch").config
    assert (kept["src_lang"], kept["tgt_lang"], kept["max_src_tokens"]) == ("gl", "und", 9)
    assert "run_id" not in kept


def test_the_example_of_a_loop_of_ones_own_runs(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "own_training.py"
    command = [sys.executable, str(example), str(tmp_path / "model"), "--updates", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert load(tmp_path / "model", engine="torch").config["src_lang"] == "pt"
