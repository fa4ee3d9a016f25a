from types import SimpleNamespace

import pytest

from repose.tasks.choice import Choice, Trial, choose

GREEDY = Trial(1, 0.0, 20.0)


def test_a_beam_is_taken_where_it_is_better_than_greedy_search() -> None:
    choice = Choice((GREEDY, Trial(4, 0.6, 19.0), Trial(4, 1.0, 21.0), Trial(4, 1.5, 21.0)))
    assert choice.settings == {"beam_size": 4, "length_penalty": 1.0}


def test_greedy_search_is_taken_where_no_beam_is_better() -> None:
    choice = Choice((GREEDY, Trial(4, 0.6, 19.0), Trial(4, 1.0, 20.0)))
    assert choice.settings == {"beam_size": 1, "length_penalty": 1.0}


@pytest.mark.parametrize("beams", [(), (Trial(4, 0.2, 0.0), Trial(4, 1.5, 0.0))])
def test_where_nothing_tells_penalties_apart_it_is_the_usual_one(beams: tuple[Trial, ...]) -> None:
    greedy = Trial(1, 0.0, 0.0 if beams else 20.0)
    assert Choice((greedy, *beams)).settings == {"beam_size": 1, "length_penalty": 0.6}


def test_chinese_is_chosen_by_its_characters() -> None:
    """Of sentences without spaces 13a makes one word each, so that nothing but equal sentences counts."""
    references = ["我今天早上在公园里看见一只黑猫。", "他们明天要去北京看朋友吗？"]

    class Chinese:
        tgt_tokenizer = SimpleNamespace(lowercase=False)

        def translate(self, _: object, **settings: float) -> list[SimpleNamespace]:
            cut = -1 if settings["length_penalty"] == 1.0 else 6
            return [SimpleNamespace(text=reference[:cut]) for reference in references]

    choice = choose(Chinese(), ["", ""], references, 4)  # type: ignore[arg-type]
    assert choice.settings == {"beam_size": 4, "length_penalty": 1.0}
    assert choice.best.bleu > 50
