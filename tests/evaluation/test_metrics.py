"""BLEU and chrF against values derived by hand, and their names and signatures."""

import importlib.util
import math
import subprocess
import sys
from typing import Any

import pytest
import sacrebleu
from sacrebleu.metrics.bleu import BLEU

from repose.evaluation.metrics import (
    Score,
    bleu,
    bleu_sentence_mean,
    chrf,
    corpus_scores,
    tokenizer_for,
    without_accents,
)
from repose.system.errors import ConfigError, DataError


def percent_bleu(*precisions: float, brevity: float = 1.0) -> float:
    return 100 * brevity * math.prod(precisions) ** 0.25


@pytest.mark.parametrize(
    ("hypotheses", "references", "lowercase", "tokenize", "value"),
    [
        (["the cat sat on it"], ["the cat sat on it"], False, "13a", 100.0),
        (["a b c d"], ["e f g h"], False, "13a", 0.0),
        (["", ""], ["a b c d", "e"], False, "13a", 0.0),
        (["a b c d e"], ["a b c d f"], False, "13a", percent_bleu(4 / 5, 3 / 4, 2 / 3, 1 / 2)),
        # no 4-gram of 1 matches: exponential smoothing makes it 1 / (2 × 1)
        (["a b c d"], ["a b c e"], False, "13a", percent_bleu(3 / 4, 2 / 3, 1 / 2, 1 / 2)),
        # no 3-gram of 2, no 4-gram of 1: 1 / (2 × 2), 1 / (4 × 1)
        (["a b x d"], ["a b c d"], False, "13a", percent_bleu(3 / 4, 1 / 3, 1 / 4, 1 / 4)),
        # four tokens for six: brevity penalty exp(1 - 6/4)
        (["a b c d"], ["a b c d e f"], False, "13a", percent_bleu(1, 1, 1, 1, brevity=math.exp(-0.5))),
        # counts are clipped: "a" is once in the reference
        (["a a a a"], ["a b c d"], False, "13a", percent_bleu(1 / 4, 1 / 6, 1 / 8, 1 / 8)),
        # counts are summed over the corpus, sentences are not averaged
        (["a b c d e", "p q r s"], ["a b c d f", "p q r s"], False, "13a", percent_bleu(8 / 9, 6 / 7, 4 / 5, 2 / 3)),
        (["A B c d"], ["a b C D"], False, "13a", 0.0),
        (["A B c d"], ["a b C D"], True, "13a", 100.0),
        (["a b c d."], ["a b c d ."], False, "13a", 100.0),
        (
            ["a b c d."],
            ["a b c d ."],
            False,
            "none",
            percent_bleu(3 / 4, 2 / 3, 1 / 2, 1 / 2, brevity=math.exp(-1 / 4)),
        ),
        (["abcde"], ["abcdf"], False, "char", percent_bleu(4 / 5, 3 / 4, 2 / 3, 1 / 2)),
        (["我们走吧"], ["我们走了"], False, "zh", percent_bleu(3 / 4, 2 / 3, 1 / 2, 1 / 2)),
    ],
)
def test_bleu(hypotheses: list[str], references: list[str], lowercase: bool, tokenize: str, value: float) -> None:
    score = bleu(hypotheses, references, lowercase=lowercase, tokenize=tokenize)
    assert score.value == pytest.approx(value, abs=1e-9)
    case = "lc" if lowercase else "mixed"
    version = sacrebleu.__version__
    assert score.name == "bleu"
    assert score.signature == f"nrefs:1|case:{case}|eff:no|tok:{tokenize}|smooth:exp|version:{version}"


@pytest.mark.parametrize(
    ("hypotheses", "references", "value"),
    [
        (["a b c d"], ["a b c d"], 100.0),
        (["a b c d e"], ["a b c d f"], percent_bleu(4 / 5, 3 / 4, 2 / 3, 1 / 2)),
        (["a b c d"], ["a b c d e f"], percent_bleu(1, 1, 1, 1, brevity=math.exp(-0.5))),
        (["a b c d e f"], ["a b c d"], percent_bleu(4 / 6, 3 / 5, 2 / 4, 1 / 3)),
        # not smoothed: no 4-gram in common, or too short to have one
        (["a b c x d e"], ["a b c y d e"], 0.0),
        (["a b c"], ["a b c"], 0.0),
        (["", ""], ["a b c d", ""], 0.0),
        # the mean of the sentences, not of their counts
        (
            ["a b c d e", "p q r s", "x"],
            ["a b c d f", "p q r s", "y"],
            (percent_bleu(4 / 5, 3 / 4, 2 / 3, 1 / 2) + 100) / 3,
        ),
        # words are what spaces part
        (["a b c d."], ["a b c d ."], 0.0),
        (["A b c d"], ["a b c d"], 0.0),
    ],
)
def test_mean_of_sentence_bleus(hypotheses: list[str], references: list[str], value: float) -> None:
    score = bleu_sentence_mean(hypotheses, references)
    assert score.value == pytest.approx(value, abs=1e-9)
    version = sacrebleu.__version__
    assert score.signature == f"nrefs:1|case:mixed|eff:no|tok:none|smooth:none|version:{version}|mean:sentences"


@pytest.mark.parametrize(
    ("hypotheses", "references", "lowercase", "value"),
    [
        (["the cat"], ["the cat"], False, 100.0),
        (["ab"], ["cd"], False, 0.0),
        # unigrams 1 of 2, bigrams 0 of 1, no longer ones: precision = recall = (1/2 + 0) / 2
        (["ab"], ["ac"], False, 25.0),
        # precision 1, recall 1/2, beta 2: 5 × 1/2 / (4 × 1 + 1/2)
        (["a"], ["ab"], False, 100 * 2.5 / 4.5),
        (["a b"], ["ab"], False, 100.0),
        (["AB"], ["ab"], False, 0.0),
        (["AB"], ["ab"], True, 100.0),
    ],
)
def test_chrf(hypotheses: list[str], references: list[str], lowercase: bool, value: float) -> None:
    score = chrf(hypotheses, references, lowercase=lowercase)
    assert score.value == pytest.approx(value, abs=1e-9)
    case = "lc" if lowercase else "mixed"
    assert score.name == "chrf"
    assert score.signature == f"nrefs:1|case:{case}|eff:yes|nc:6|nw:0|space:no|version:{sacrebleu.__version__}"


def test_corpus_scores_of_a_lossless_cased_tokenizer_are_two() -> None:
    scores = corpus_scores(
        ["a b c d"], ["a b c d"], lowercase=False, pretokenized=False, round_trip=None, strip_accents=False
    )
    assert scores == {"bleu": bleu(["a b c d"], ["a b c d"]), "chrf": chrf(["a b c d"], ["a b c d"])}


def test_corpus_scores_says_what_differs() -> None:
    """A tokenizer that lower-cases, strips accents and splits "n't" in three, on a corpus of tokenised text."""
    hypotheses = ["wir sind do n ' t uber muller ."]
    references = ["Wir sind do n't über Müller ."]

    def round_trip(text: str) -> str:
        return without_accents(text).lower().replace("n't", "n ' t")

    scores = corpus_scores(
        hypotheses, references, lowercase=True, pretokenized=True, round_trip=round_trip, strip_accents=True
    )
    assert list(scores) == ["bleu", "chrf", "bleu_tok_none", "bleu_round_trip", "chrf_round_trip", "bleu_no_accents"]
    assert all(name == score.name for name, score in scores.items())
    assert all("|case:lc|" in score.signature for score in scores.values())
    assert scores["bleu"] == bleu(hypotheses, references, lowercase=True)
    assert scores["chrf"] == chrf(hypotheses, references, lowercase=True)
    plain = bleu(hypotheses, references, lowercase=True, tokenize="none")
    assert scores["bleu_tok_none"] == Score("bleu_tok_none", plain.value, plain.signature, plain.brevity_penalty)
    assert "|tok:none|" in plain.signature
    assert scores["bleu_round_trip"].value == pytest.approx(100.0, abs=1e-9)
    assert scores["chrf_round_trip"].value == pytest.approx(100.0, abs=1e-9)
    assert scores["bleu_round_trip"].signature == scores["bleu"].signature + "|refs:round_trip"
    assert scores["chrf_round_trip"].signature == scores["chrf"].signature + "|refs:round_trip"
    bare = bleu(["wir sind do n ' t uber muller ."], ["wir sind do n't uber muller ."])
    assert scores["bleu"].value < scores["bleu_no_accents"].value == pytest.approx(bare.value, abs=1e-9)
    assert scores["bleu_no_accents"].signature == scores["bleu"].signature + "|accents:no"


def test_both_sides_are_detokenised_where_that_is_asked_for() -> None:
    """13a takes "&apos;" apart into four tokens, three of which a wrong translation has, too."""
    hypotheses, references = ["I &apos;m a cat"], ["you &apos;m a dog"]
    plain = {"lowercase": False, "pretokenized": False, "round_trip": None, "strip_accents": False}
    scores = corpus_scores(hypotheses, references, **plain, detokenise=lambda text: text.replace(" &apos;", "'"))  # type: ignore[arg-type]
    assert list(scores) == ["bleu", "chrf", "bleu_detokenised", "chrf_detokenised"]
    assert scores["bleu_detokenised"].value == bleu(["I'm a cat"], ["you'm a dog"]).value < scores["bleu"].value
    assert scores["chrf_detokenised"].value == chrf(["I'm a cat"], ["you'm a dog"]).value
    for name in ("bleu", "chrf"):
        assert scores[f"{name}_detokenised"].signature == f"{scores[name].signature}|text:detokenised"


def test_detokenised_scores_are_by_the_same_tokenizer_and_case() -> None:
    hypotheses, references = ["I &apos;m A cat"], ["i &apos;m a CAT"]
    how: Any = {
        "lowercase": True,
        "pretokenized": False,
        "round_trip": None,
        "strip_accents": False,
        "tokenize": "char",
    }
    scores = corpus_scores(hypotheses, references, **how, detokenise=lambda text: text.replace(" &apos;", "'"))
    wanted = bleu(["I'm A cat"], ["i'm a CAT"], lowercase=True, tokenize="char")
    assert scores["bleu_detokenised"].value == wanted.value == pytest.approx(100.0)
    assert scores["bleu_detokenised"].signature == f"{wanted.signature}|text:detokenised"
    assert scores["chrf_detokenised"].value == pytest.approx(100.0)
    assert scores["chrf_detokenised"].signature == f"{scores['chrf'].signature}|text:detokenised"


def test_the_brevity_penalty_is_that_of_bleu() -> None:
    assert bleu(["a b c d"], ["a b c d e f"]).brevity_penalty == pytest.approx(math.exp(-0.5))
    assert bleu(["a b c d e"], ["a b c d"]).brevity_penalty == 1.0
    assert chrf(["a"], ["a b"]).brevity_penalty is None


def test_accents_are_stripped_on_both_sides() -> None:
    scores = corpus_scores(
        ["ça va très bien"],
        ["ca va tre\u0300s bien"],
        lowercase=False,
        pretokenized=False,
        round_trip=None,
        strip_accents=True,
    )
    assert list(scores) == ["bleu", "chrf", "bleu_no_accents"]
    assert scores["bleu"].value < 60
    assert scores["bleu_no_accents"].value == pytest.approx(100.0, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("Ångström, naïve, ação", "Angstrom, naive, acao"),
        ("e\u0301", "e"),
        ("ß ø đ", "ß ø đ"),  # letters of their own, no marks
        ("한국어", "한국어"),
        ("が", "か"),  # the voicing mark is a combining mark, which tokenizers strip too
        ("", ""),
    ],
)
def test_without_accents(text: str, bare: str) -> None:
    assert without_accents(text) == bare


def test_tokenize_reaches_all_bleus_but_tok_none() -> None:
    scores = corpus_scores(
        ["我们走吧"],
        ["我们走了"],
        lowercase=False,
        pretokenized=True,
        round_trip=str,
        strip_accents=True,
        tokenize="char",
    )
    tokenizers = {name: score.signature.partition("tok:")[2].partition("|")[0] for name, score in scores.items()}
    assert tokenizers == {
        "bleu": "char",
        "chrf": "",
        "bleu_tok_none": "none",
        "bleu_round_trip": "char",
        "chrf_round_trip": "",
        "bleu_no_accents": "char",
    }


@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [(["a"], ["a", "b"], r"differ \(1 and 2\)"), ([], [], "nothing to score"), ([], ["a"], r"\(0 and 1\)")],
)
def test_wrong_counts(hypotheses: list[str], references: list[str], message: str) -> None:
    for metric in (bleu, chrf, bleu_sentence_mean):
        with pytest.raises(DataError, match=message):
            metric(hypotheses, references)
    with pytest.raises(DataError, match=message):
        corpus_scores(hypotheses, references, lowercase=False, pretokenized=True, round_trip=str, strip_accents=True)


@pytest.mark.parametrize(
    ("references", "tokenizer"),
    [
        (["The cat sees a dog.", "中文"], "13a"),
        (["我今天早上在公园里看见一只黑猫。", "他喜欢iPhone。"], "zh"),
        (["我 今天 早上 在 公园 里 看见 一只 黑猫 。"], "13a"),
        (["私は今朝公園で黒い猫を見ました。"], "char"),
        (["私 は 今朝 公園 で 黒い 猫 を 見 ました 。"], "13a"),
        (["ฉันเห็นแมวดำในสวนเมื่อเช้านี้"], "char"),
        (["나는 오늘 아침 공원에서 검은 고양이를 보았다."], "13a"),
        (["1 2 3", ""], "13a"),
        (["你好吗？", "谢谢你。", "我饿了。"], "zh"),  # lines of a word's length
        (["你好吗？", "他昨天晚上没来。"], "zh"),
        (["你 好 吗 ？", "谢谢 你 。", "他 昨天 晚上 没 来 。"], "13a"),
        (["はい。", "そうか。", "だめだ！"], "char"),
    ],
)
def test_the_tokenizer_for_references(references: list[str], tokenizer: str) -> None:
    assert tokenizer_for(references) == tokenizer
    assert f"|tok:{tokenizer}|" in bleu(references, references).signature


def test_unknown_tokenizer() -> None:
    with pytest.raises(ConfigError, match=r"'words'.*13a.*zh"):
        bleu(["a"], ["a"], tokenize="words")


@pytest.mark.parametrize(
    ("tokenize", "module", "needed"),
    [("ja-mecab", "MeCab", "[ja]"), ("ko-mecab", "mecab_ko", "[ko]"), ("flores200", "sentencepiece", "sentencepiece")],
)
def test_tokenizer_that_is_not_installed(tokenize: str, module: str, needed: str) -> None:
    if importlib.util.find_spec(module) is not None:
        pytest.skip(f"{module} is installed")
    with pytest.raises(ConfigError) as caught:
        bleu(["a"], ["a"], tokenize=tokenize)
    message = str(caught.value)
    assert tokenize in message
    assert needed in message
    assert "\n" not in message


def test_tokenised_text_is_scored_without_advice(caplog: pytest.LogCaptureFixture) -> None:
    lines = ["a b c d ."] * 150
    BLEU().corpus_score(lines, [lines])
    assert caplog.records, "sacreBLEU no longer warns: `force` has become needless"
    caplog.clear()
    assert bleu(lines, lines).value == pytest.approx(100.0)
    assert not caplog.records


def test_metrics_do_not_load_torch() -> None:
    code = "import sys, repose.evaluation.metrics; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
