"""Parts of a test set by length have the scores of the same sentences as whole sets."""

import numpy as np
import pytest

from repose.evaluation.by_length import EDGES, Bucket, by_length, edges_with, scores_by_length
from repose.evaluation.metrics import bleu
from repose.evaluation.sentence_statistics import References
from repose.system.errors import DataError


def lengths(*values: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(values, np.int64)


def test_edges_are_inside_and_empty_parts_left_out() -> None:
    found = by_length(lengths(21, 10, 0, 11, 20, 1, 99, 51), (10, 20, 50))
    assert [(part.label, part.sentences.tolist()) for part in found] == [
        ("1–10", [1, 2, 5]),
        ("11–20", [3, 4]),
        ("21–50", [0]),
        ("51+", [6, 7]),
    ]
    assert [part.label for part in by_length(lengths(3, 60), (10, 20, 50))] == ["1–10", "51+"]


def test_each_sentence_is_in_one_part() -> None:
    values = np.random.default_rng(0).integers(0, 80, size=500)
    found = by_length(values)
    assert sorted(np.concatenate([part.sentences for part in found]).tolist()) == list(range(500))
    for part in found:
        inside = values[part.sentences]
        assert inside.max() <= (part.longest or 80)
        assert inside.min() >= part.shortest or part.shortest == 1


def test_small_parts_say_so() -> None:
    assert Bucket(1, 10, np.arange(49)).small
    assert not Bucket(1, 10, np.arange(50)).small


@pytest.mark.parametrize(
    ("limits", "edges"),
    [
        ([], EDGES),
        ([18], (10, 18, 30, 40, 50)),
        ([20], EDGES),
        ([15], (10, 15, 20, 30, 40, 50)),
        ([61], (10, 20, 30, 40, 50, 61)),
        ([18, 22], (10, 18, 22, 30, 40, 50)),
    ],
)
def test_a_limit_is_an_edge(limits: list[int], edges: tuple[int, ...]) -> None:
    assert edges_with(limits) == edges


def test_a_part_scores_as_its_sentences_alone() -> None:
    references = ["a b c d e f g", "h i", "j k l m n", "o p q r s t u v w", "x y z"]
    hypotheses = ["a b c d x f g", "h i", "j k l m o", "o p q r s t u w v", "x z y"]
    statistics = References(references).statistics(hypotheses)
    found = by_length(lengths(*(len(line.split()) for line in references)), (3, 7))
    expected = []
    for part in ([1, 4], [0, 2], [3]):
        expected.append(bleu([hypotheses[i] for i in part], [references[i] for i in part]).value)
    assert scores_by_length(statistics, found) == tuple(expected)
    assert len({*expected, statistics.score()}) == 4, "parts that score alike prove nothing"
    with pytest.raises(DataError, match="more sentences than the 4"):
        scores_by_length(References(references[:4]).statistics(hypotheses[:4]), found)
