from pathlib import Path

import pytest

import scaling
from repose.model.presets import preset
from scaling import exponent, exponents, of_all_widths, of_width, points, prepare_random, random_batch

LENGTHS, WIDTHS = [8, 32, 128], [64, 128, 512]


def test_exponent_of_a_power_law() -> None:
    sizes = [1, 2, 4, 8]
    assert exponent(sizes, [3 * size**1.5 for size in sizes]) == pytest.approx(1.5)
    assert exponent(sizes, [7.0] * 4) == 0.0
    assert exponent(sizes, [0.0] * 4) == 0.0  # a part that this model does not have


@pytest.mark.parametrize("name", scaling.CONTESTANTS)
def test_predictions_are_those_of_the_complexity_table(name: str) -> None:
    """Per sentence n²d and nd²; the tokens of a batch are as many throughout, so that one n is gone."""
    wanted = {
        "n": {"projections": 0, "attention": 1, "feed_forward": 0, "logits": 0},
        "d": {"projections": 1, "attention": 0, "feed_forward": 1, "logits": 1},
        "widths": {"projections": 2, "attention": 1, "feed_forward": 2, "logits": 1},
    }
    for sweep, parts in wanted.items():
        group = [p for p in points(LENGTHS, WIDTHS) if (p.sweep, p.contestant) == (sweep, name)]
        found = exponents(group, [1.0] * len(group))
        assert {part: found[f"FLOPs of {part}"] for part in parts} == pytest.approx(parts, abs=1e-3)


@pytest.mark.parametrize("name", scaling.CONTESTANTS)
def test_both_models_have_the_same_width(name: str) -> None:
    a = preset(name)
    assert of_width(a, 256).d_model == of_all_widths(a, 256).d_model == 256
    assert (of_width(a, 256).head_dim, of_width(a, 256).d_ff) == (a.head_dim, a.d_ff)
    assert of_all_widths(a, 256).head_dim * a.num_heads == 256


def test_batches_of_sweep_n_have_as_many_tokens_throughout() -> None:
    for point in points(LENGTHS, WIDTHS):
        if point.sweep == "n":
            (batch,) = random_batch(point.length, point.sentences).micro_batches
            assert batch.src.shape == batch.tgt.shape == (point.sentences, point.length)
            assert len(batch.labels) == scaling.TOKENS
            assert (batch.tgt != 0).all()


def test_random_corpus(tmp_path: Path) -> None:
    data = prepare_random(tmp_path / "corpus", 300)
    assert len(data) == 300
    shortest, longest = scaling.EPOCH_LENGTHS
    assert data.src_lengths.min() == shortest
    assert data.src_lengths.max() == longest
    assert data.counts.truncated == {}
