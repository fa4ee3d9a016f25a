from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from repose.config.experiment import DecodingConfig
from repose.tasks.decoding_choice import DecodingChoice, DecodingTrial, choose_decoding, searches

GREEDY = DecodingTrial(1, 0.0, 20.0)
REFERENCE = "The old cat sleeps on the warm stone by the river."


def test_a_beam_is_taken_where_it_is_better_than_greedy_search() -> None:
    beams = [DecodingTrial(4, penalty, 21.0) for penalty in (0.6, 1.0, 1.5)]
    choice = DecodingChoice((GREEDY, *beams))
    assert choice.settings == {"beam_size": 4, "length_penalty": 1.0, "no_repeat_ngram_size": 0}


@pytest.mark.parametrize(("deviation", "penalty"), [(0.6, 1.0), (0.4, 1.5)])
def test_another_penalty_is_taken_where_its_lead_is_more_than_chance(deviation: float, penalty: float) -> None:
    beams = (DecodingTrial(4, 1.0, 21.0), DecodingTrial(4, 1.5, 21.5, deviation=deviation))
    choice = DecodingChoice((GREEDY, *beams))
    assert choice.settings["length_penalty"] == choice.best.length_penalty == penalty
    assert DecodingChoice.from_json(choice.to_json()) == choice


def test_on_few_sentences_a_lead_says_little() -> None:
    """A penalty of 1.0 cuts some of them, all others cut fewer words of others."""

    class Cutting:
        no_repeat_ngram_size = 0
        tgt_tokenizer = SimpleNamespace(lowercase=False)

        def translate(
            self, sources: list[str], *, length_penalty: float, on_progress: Callable[[float], None], **_: float
        ) -> list[SimpleNamespace]:
            on_progress(0.5)
            on_progress(1.0)
            cut = [place % 3 == 0 and length_penalty == 1.0 for place in range(len(sources))]
            less = [place % 3 == 1 and length_penalty != 1.0 for place in range(len(sources))]
            ends = [-9 if a else -6 if b else None for a, b in zip(cut, less, strict=True)]
            return [SimpleNamespace(text=REFERENCE[:end]) for end in ends]

    asked = DecodingConfig(no_repeat_ngram_size=3)
    for times, penalty in ((1, 1.0), (200, 0.2)):  # of which the first 500
        sources, references = [""] * 4 * times, [REFERENCE] * 4 * times
        shares = list[float]()
        choice = choose_decoding(Cutting(), sources, references, asked, shares.append)  # type: ignore[arg-type]
        assert [share * 17 for share in shares] == pytest.approx([0.5, 1, 3, 5, 7, 9, 11, 13, 15, 17])
        assert [trial.beam_size for trial in choice.trials] == searches(asked)
        beams = {trial.length_penalty: trial.bleu for trial in choice.trials if trial.beam_size > 1}
        assert beams[1.0] < beams[0.2]
        assert choice.settings["length_penalty"] == penalty


def test_greedy_search_is_taken_where_no_beam_is_better() -> None:
    choice = DecodingChoice((GREEDY, DecodingTrial(4, 0.6, 19.0), DecodingTrial(4, 1.0, 20.0)))
    assert choice.settings == {"beam_size": 1, "length_penalty": 1.0, "no_repeat_ngram_size": 0}


@pytest.mark.parametrize("beams", [(), (DecodingTrial(4, 0.2, 0.0), DecodingTrial(4, 1.5, 0.0))])
def test_where_nothing_tells_penalties_apart_it_is_the_usual_one(beams: tuple[DecodingTrial, ...]) -> None:
    greedy = DecodingTrial(1, 0.0, 0.0 if beams else 20.0)
    assert DecodingChoice((greedy, *beams)).settings == {
        "beam_size": 1,
        "length_penalty": 0.6,
        "no_repeat_ngram_size": 0,
    }


@pytest.mark.parametrize(("gain", "forbids"), [(0.0, False), (0.15, False), (0.25, True)])
def test_repeats_are_forbidden_where_that_gains_enough(gain: float, forbids: bool) -> None:
    """The mean of greedy search and of the best beam; the beam alone stays the best of all."""
    beam = DecodingTrial(4, 1.0, 21.0)
    others = (DecodingTrial(1, 0.0, 20.0 + 2 * gain, 5), DecodingTrial(4, 1.0, 21.0, 5))
    choice = DecodingChoice((GREEDY, DecodingTrial(4, 0.6, 19.0), beam, *others))
    assert choice.best is (others[1] if forbids else beam)
    assert choice.settings == {"beam_size": 4, "length_penalty": 1.0, "no_repeat_ngram_size": 5 * forbids}
    assert DecodingChoice.from_json(choice.to_json()) == choice


@pytest.mark.parametrize("usual", [0, 3])
def test_repeats_are_tried_unless_they_are_forbidden_already(usual: int) -> None:
    class Repeating:
        """Says the reference, and in a beam with repeats the same again."""

        no_repeat_ngram_size = 5  # as an earlier choice left it
        tgt_tokenizer = SimpleNamespace(lowercase=False)

        def translate(self, _: object, *, beam_size: int, no_repeat_ngram_size: int, **__: float) -> list[Any]:
            asked.append((beam_size, no_repeat_ngram_size))
            return [SimpleNamespace(text=REFERENCE if no_repeat_ngram_size == 5 else f"{REFERENCE} {REFERENCE}")]

    asked: list[tuple[int, int]] = []
    choice = choose_decoding(Repeating(), [""], [REFERENCE], DecodingConfig(no_repeat_ngram_size=usual))  # type: ignore[arg-type]
    plain = [(1, usual), *[(4, usual)] * 4]
    assert asked == (plain if usual else [*plain, (1, 5), (4, 5)])
    assert choice.settings["no_repeat_ngram_size"] == (usual or 5)
    assert choice.settings["beam_size"] == 1


def test_chinese_is_chosen_by_its_characters() -> None:
    """Of sentences without spaces 13a makes one word each, so that nothing but equal sentences counts."""
    references = ["我今天早上在公园里看见一只黑猫。", "他们明天要去北京看朋友吗？"]

    class Chinese:
        no_repeat_ngram_size = 0
        tgt_tokenizer = SimpleNamespace(lowercase=False)

        def translate(self, _: object, **settings: float) -> list[SimpleNamespace]:
            cut = -1 if settings["length_penalty"] == 1.0 else 6
            return [SimpleNamespace(text=reference[:cut]) for reference in references]

    choice = choose_decoding(Chinese(), ["", ""], references, DecodingConfig())  # type: ignore[arg-type]
    assert choice.settings == {"beam_size": 4, "length_penalty": 1.0, "no_repeat_ngram_size": 0}
    assert choice.best.bleu > 50
