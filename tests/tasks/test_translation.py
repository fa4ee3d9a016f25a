"""Figures of given predictions, worked out by hand, and their means over a training."""

import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from repose.data.tokenizer import Tokenizer
from repose.decoding.engine import Forced
from repose.evaluation.metrics import bleu
from repose.saved_run.records import Records
from repose.system.token_ids import END, START, UNK
from repose.tasks.base import EvaluationOptions
from repose.tasks.translation_scores import EvaluationSet, over_validations, score_set, teacher_forced

TOKENIZER = Tokenizer.train(["a b c d e f g h"], kind="wordlevel", vocab_size=20, lowercase=True, strip_accents=True)
HALF = math.log(0.5)


def scripted(*predictions: list[int]) -> Any:
    """A translator whose model predicts these tokens, each with probability 1/2 for the right one."""
    forced = [Forced(np.full(len(ids), HALF, dtype=np.float32), tuple(ids)) for ids in predictions]
    return SimpleNamespace(tgt_tokenizer=TOKENIZER, max_length=10, force=lambda *_, **__: forced)


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text)[1:-1]


def test_teacher_forced_figures() -> None:
    """Of two sentences one is right, the other has one wrong word and wants to end too early."""
    references = ["A b c d e", "f g h a b"]
    figures = teacher_forced(scripted([*ids("a b c d e"), END], [*ids("f g h a"), END, END]), ["", ""], references)
    assert figures["tf_loss"] == pytest.approx(-HALF)
    assert figures["tf_accuracy"] == pytest.approx(11 / 12)
    expected = bleu(["a b c d e", "f g h a"], references, lowercase=True)
    assert figures["tf_bleu"] == pytest.approx(expected.value)
    assert figures["tf_bleu_sentence_mean"] == pytest.approx((100 + 100 * math.exp(1 - 5 / 4)) / 2)


def test_of_a_reference_that_is_too_long_the_beginning_is_forced() -> None:
    translator = scripted(ids("a b c"))
    translator.max_length = 3
    assert teacher_forced(translator, [""], ["a b c d e"])["tf_accuracy"] == 1.0


def test_the_sentence_mean_leaves_unknown_words_out_on_both_sides() -> None:
    reference = "x a b c d"  # x is not in the vocabulary: there the model may say what is no word
    assert UNK in TOKENIZER.encode(reference)
    for said in (START, UNK):
        figures = teacher_forced(scripted([said, *ids("a b c d"), END]), [""], [reference])
        assert figures["tf_bleu_sentence_mean"] == pytest.approx(100.0)
        assert figures["tf_bleu"] < 100.0
    # A hypothesis that is shorter than four words without them has no 4-gram.
    assert teacher_forced(scripted([*ids("a b c"), UNK, UNK, END]), [""], ["a b c d e"])["tf_bleu_sentence_mean"] == 0.0


def test_translations_that_did_not_end_and_that_loop_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that loop as their references do are none."""
    round_and_round = "a b a b a b a b"
    said = [("a b c d e", False), (round_and_round, True), (round_and_round, True)]
    references = ["a b c d e", "a b c d e", round_and_round]
    translations = [
        SimpleNamespace(text=text, truncated=False, hypotheses=[SimpleNamespace(finished=finished)])
        for text, finished in said
    ]
    translator = MagicMock(tgt_tokenizer=TOKENIZER, max_length=9, config={}, no_repeat_ngram_size=0, precision="fp32")
    translator.engine.name, translator.engine.looks_ahead = "torch", False

    def half_done(result: list[Any], *_: object, on_progress: Callable[[float], None], **__: object) -> list[Any]:
        on_progress(0.5)
        return result

    translator.translate.side_effect = partial(half_done, translations)
    forced = scripted(*([*ids(text), END] for text in references)).force()
    translator.force.side_effect = partial(half_done, forced)
    monkeypatch.setattr("repose.training.display.Lines.SECONDS", 0.0)
    heard = list[str]()
    options = EvaluationOptions((1,), progress="lines", say=heard.append)
    scores = score_set(translator, EvaluationSet([""] * 3, references, "test"), options, {}, None)
    parts = [sentence.partition(" % done")[0] for sentence in heard]
    assert parts == ["translating (greedy): 50", "reading the references: 50"]
    greedy = scores["decoded"]["greedy"]
    assert {name: greedy[name] for name in ("unfinished", "looping")} == {"unfinished": 1, "looping": 1}
    assert greedy.keys() >= {"bleu", "chrf", "bleu_round_trip", "chrf_round_trip", "bleu_no_accents"}
    assert "|case:lc|" in greedy["bleu"]["signature"]
    assert "truncated_references" not in scores, "the longest one is just as long as what the model writes"


def test_means_over_the_last_translations() -> None:
    records: list[dict[str, Any]] = [{"kind": "train", "epoch": 1, "bleu": 99.0}]
    for epoch, score in enumerate([1.0, 10.0, 12.0, 17.0], 1):
        records.append({"kind": "epoch", "epoch": epoch})
        records.append({"kind": "valid", "epoch": epoch, "tf_loss": 3.0, "bleu": score, "tf_bleu": 2 * score})
        records.append({"kind": "valid", "epoch": epoch, "tf_loss": 3.0})  # one without a translation
    found = over_validations(Records(tuple(records)), 3)
    assert (found["num_validations"], found["first_epoch"], found["last_epoch"]) == (3, 2, 4)
    assert found["bleu"] == pytest.approx({"mean": 13.0, "sd": 13.0**0.5})  # of 10, 12, 17: (9 + 1 + 16) / 2
    assert found["tf_bleu"]["mean"] == 26.0
    assert found.keys() == {"num_validations", "first_epoch", "last_epoch", "bleu", "tf_bleu"}
    assert over_validations(Records(tuple(records)), 100)["num_validations"] == 4


def test_one_translation_has_no_deviation_and_none_no_mean() -> None:
    one = Records(({"kind": "valid", "epoch": 2, "bleu": 5.0},))
    assert over_validations(one, 100)["bleu"] == {"mean": 5.0, "sd": None}
    assert over_validations(Records(({"kind": "valid", "epoch": 1, "tf_loss": 3.0},)), 100) == {}


@pytest.mark.parametrize(
    ("config", "beams"),
    [
        ({}, (1, 4)),
        ({"decoding": {"beam_size": 2}}, (1, 2)),
        ({"decoding": {"beam_size": 1}, "decoding_asked": {"beam_size": 5}}, (1, 5)),  # a choice between both
    ],
)
def test_a_model_is_measured_with_its_own_beam(config: dict[str, Any], beams: tuple[int, ...]) -> None:
    assert EvaluationOptions().resolved(config).beam_sizes == beams
    assert EvaluationOptions((3,)).resolved(config).beam_sizes == (3,)
