"""Which scores come with a warning."""

from typing import Any

from repose.tasks.inflation import inflated


def scores(**more: float) -> dict[str, Any]:
    decoded = {"unfinished": 1, "looping": 0, "bleu": {"value": 8.1}, "chrf": {"value": 30.0}}
    decoded |= {name: {"value": value} for name, value in more.items()}
    return {"num_sentences": 1000, "references": {"tokenised": 970, "entities": 0}, "decoded": {"greedy": decoded}}


def test_scores_of_text_as_people_write_it_carry_none() -> None:
    assert inflated(scores()) == ""
    assert inflated({"decoded": {"greedy": {"bleu": {"value": 8.1}}}}) == ""  # nothing was counted
    assert inflated({"figures": {}}) == ""


def test_a_figure_that_is_not_inflated_carries_none() -> None:
    assert inflated(scores(bleu_detokenised=8.06)) == ""


def test_both_figures_are_in_the_warning() -> None:
    warning = inflated(scores(bleu_detokenised=2.94, chrf_detokenised=29.0))
    assert warning.startswith("970 of the 1,000 references look tokenised, so")
    assert "(greedy 8.10, detokenised 2.94)" in warning
    assert "2.94" not in inflated(scores(bleu_detokenised=2.94), figures=False)
