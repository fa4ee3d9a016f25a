"""Statistics per sentence give the scores of whole texts, also after a round trip through a file."""

import random
from pathlib import Path

import numpy as np
import pytest

from repose.evaluation.metrics import bleu, chrf
from repose.evaluation.sentence_statistics import (
    Metric,
    References,
    SentenceStatistics,
    SourceLengths,
    StoredStatistics,
    read_stored,
    scores_of,
    write_stored,
)
from repose.system.errors import ConfigError, DataError, WriteError

WORDS = ["a", "the", "red", "small", "dog", "cat", "runs", "sits", "on", "under", "table", ",", ".", "tree", "slowly"]


def made_up(number: int, seed: int) -> tuple[list[str], list[str]]:
    """References, and translations with a third of the words wrong; one of these is empty."""
    draw = random.Random(seed)
    references = [" ".join(draw.choices(WORDS, k=draw.randint(1, 12))).capitalize() for _ in range(number)]
    hypotheses = [
        " ".join(word if draw.random() < 0.67 else draw.choice(WORDS) for word in line.split()) for line in references
    ]
    return references, ["", *hypotheses[1:]]


@pytest.mark.parametrize(("lowercase", "tokenize"), [(False, "13a"), (True, "13a"), (False, "char"), (True, "none")])
def test_the_whole_scores_as_metrics_does(lowercase: bool, tokenize: str) -> None:
    references, hypotheses = made_up(40, 1)
    hypotheses = [line.lower() for line in hypotheses]
    found = References(references, lowercase=lowercase, tokenize=tokenize).statistics(hypotheses)
    assert len(found) == 40
    assert found.score("bleu") == bleu(hypotheses, references, lowercase=lowercase, tokenize=tokenize).value
    assert found.score("chrf") == chrf(hypotheses, references, lowercase=lowercase).value


def test_a_part_and_a_sentence_score_as_metrics_does() -> None:
    references, hypotheses = made_up(30, 2)
    found = References(references).statistics(hypotheses)
    part = np.array([3, 4, 4, 29])  # a sentence may be there twice
    texts = [[side[i] for i in part] for side in (hypotheses, references)]
    assert found.score("bleu", part) == bleu(*texts).value
    assert found.score("chrf", part) == chrf(*texts).value
    assert found.sentence_chrf().tolist() == [chrf([h], [r]).value for h, r in zip(hypotheses, references, strict=True)]


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_many_rows_are_scored_as_each_alone(metric: Metric) -> None:
    """All at once, translations longer and shorter than their references among them."""
    draw = random.Random(4)
    references = ["a b c d e f g h i j"] * 150
    hypotheses = [" ".join("abcdefghij"[: draw.randint(6, 10)]) + " k l m" * (i % 2) for i in range(150)]
    counts = References(references).statistics(hypotheses).of(metric)
    alone = [float(scores_of(metric, row[None])[0]) for row in counts]
    assert scores_of(metric, counts) == pytest.approx(alone, abs=1e-9)


def test_wrong_counts_and_tokenizers_are_one_sentence() -> None:
    with pytest.raises(DataError, match=r"hypotheses and references differ \(1 and 2\)"):
        References(["a", "b"]).statistics(["a"])
    with pytest.raises(DataError, match="nothing to score"):
        References([])
    with pytest.raises(ConfigError, match="'words'"):
        References(["a"], tokenize="words")


def stored(number: int = 20) -> StoredStatistics:
    references, hypotheses = made_up(number, 3)
    counted = References(references)
    return StoredStatistics(
        {"beam4": counted.statistics(hypotheses), "greedy": counted.statistics(references)},
        SourceLengths(np.arange(number, dtype=np.int64), np.arange(number, dtype=np.int64) * 70_000, 300),
    )


def assert_same(a: SentenceStatistics, b: SentenceStatistics) -> None:
    np.testing.assert_array_equal(a.bleu, b.bleu)
    np.testing.assert_array_equal(a.chrf, b.chrf)
    assert a.bleu.dtype == b.bleu.dtype == np.int64


def test_counts_come_back_from_their_file(tmp_path: Path) -> None:
    wanted = stored()
    write_stored(tmp_path / "statistics.test.npz", wanted)
    found = read_stored(tmp_path / "statistics.test.npz")
    assert list(found.decodings) == ["beam4", "greedy"]
    for name, statistics in wanted.decodings.items():
        assert_same(found.decodings[name], statistics)
    np.testing.assert_array_equal(found.lengths.words, wanted.lengths.words)
    np.testing.assert_array_equal(found.lengths.tokens, wanted.lengths.tokens)
    assert found.lengths.longest_trained == 300
    write_stored(tmp_path / "again.npz", wanted)
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "statistics.test.npz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.npz", "statistics.test.npz"]


def test_the_file_holds_integers_alone(tmp_path: Path) -> None:
    write_stored(tmp_path / "statistics.npz", stored())
    with np.load(tmp_path / "statistics.npz", allow_pickle=False) as file:
        assert all(np.issubdtype(file[name].dtype, np.integer) for name in file.files)


def test_damaged_files_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "statistics.npz"
    with pytest.raises(DataError, match=r"there is no .*statistics\.npz"):
        read_stored(path)
    path.write_bytes(b"not an archive")
    with pytest.raises(DataError, match="is damaged"):
        read_stored(path)
    write_stored(path, stored())
    whole = path.read_bytes()
    for end in (10, len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:end])
        with pytest.raises(DataError, match="is damaged"):
            read_stored(path)
    path.write_bytes(whole)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **(arrays | {"format": np.array(2)}))
    with pytest.raises(DataError, match="has format 2"):
        read_stored(path)
    for name in ("src_words", "src_tokens", "greedy.bleu", "greedy.chrf"):
        np.savez(path, **(arrays | {name: arrays[name][..., 1:]}))
        with pytest.raises(DataError, match="do not fit"):
            read_stored(path)
    np.savez(path, **{name: array for name, array in arrays.items() if name != "greedy.chrf"})
    with pytest.raises(DataError, match="is damaged"):
        read_stored(path)


def test_an_unwritable_place_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match=r"statistics\.npz cannot be written"):
        write_stored(tmp_path / "file" / "statistics.npz", stored())
