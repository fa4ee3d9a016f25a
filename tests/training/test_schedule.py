import math

import pytest

from repose.config.experiment import TrainingConfig
from repose.training.schedule import Plateau, Schedule, make_schedule


def schedule(kind: str, rate: float = 1e-3, warmup: int = 100) -> Schedule:
    return Schedule(kind=kind, learning_rate=rate, warmup=warmup, width=64, plateau_factor=0.5)


def test_noam_is_equation_15() -> None:
    rate = schedule("noam", rate=1.0, warmup=4000)
    assert rate(0) == 0.0
    for s in (1, 2, 1000, 3999, 4000, 4001, 100_000):
        expected = 64**-0.5 * min(s**-0.5, s * 4000**-1.5)
        assert rate(s) == pytest.approx(expected, rel=1e-12)
    assert rate(1) == pytest.approx(4.941e-7, rel=1e-3)
    assert rate(4000) == pytest.approx(1.976e-3, rel=1e-3)  # the papers' peak at width 64
    assert max(map(rate, range(10_000))) == rate(4000)


def test_inverse_sqrt_rises_to_its_peak_and_falls() -> None:
    rate = schedule("inverse_sqrt")
    assert [rate(s) for s in (0, 50, 100, 400)] == pytest.approx([0.0, 5e-4, 1e-3, 5e-4])


def test_constant_stays_at_its_peak() -> None:
    rate = schedule("constant")
    assert [rate(s) for s in (0, 50, 100, 10**6)] == pytest.approx([0.0, 5e-4, 1e-3, 1e-3])


def test_plateau_drops_by_its_factor() -> None:
    rate = schedule("plateau")
    assert [rate(200, drops) for drops in (0, 1, 3)] == pytest.approx([1e-3, 5e-4, 1.25e-4])


def test_linear_falls_to_zero() -> None:
    config = TrainingConfig(schedule="linear", learning_rate=1e-3, warmup_share=0.1, epochs=None, updates=1000)
    rate = make_schedule(config, d_token=64, total_updates=1000)
    assert [rate(s) for s in (0, 50, 100, 550, 1000)] == pytest.approx([0.0, 5e-4, 1e-3, 5e-4, 0.0])


def test_linear_bends_where_the_clock_ends_the_training_early() -> None:
    config = TrainingConfig(schedule="linear", learning_rate=1e-3, warmup_share=0.1, epochs=None, updates=1000)
    rate = make_schedule(config, d_token=64, total_updates=1000)
    assert [rate(s, end=500.0) for s in (25, 50, 275, 500, 510)] == pytest.approx([5e-4, 1e-3, 5e-4, 0.0, 0.0])
    assert rate(550, end=2000.0) == rate(550)


def test_a_warmup_in_updates_does_not_shrink_with_what_the_clock_leaves() -> None:
    """At first it leaves less than later: a GPU's first steps take longer. A model may not bear a shorter warm-up."""
    config = TrainingConfig(schedule="linear", learning_rate=1e-3, warmup_updates=100, epochs=None, updates=1000)
    rate = make_schedule(config, d_token=64, total_updates=1000)
    assert [rate(s, end=500.0) for s in (50, 100, 300, 500)] == pytest.approx([5e-4, 1e-3, 5e-4, 0.0])
    assert [rate(s, end=120.0) for s in (30, 60, 90, 120)] == pytest.approx([5e-4, 1e-3, 5e-4, 0.0])


def test_linear_by_the_clock_alone() -> None:
    config = TrainingConfig(schedule="linear", learning_rate=1e-3, warmup_updates=100, epochs=None, max_hours=1.0)
    rate = make_schedule(config, d_token=64, total_updates=None)
    assert [rate(50), rate(550, end=1000.0)] == pytest.approx([5e-4, 5e-4])
    assert [rate(50, end=end) for end in (80.0, 100.0)] == pytest.approx([5e-4, 5e-4]), "it ends in its warm-up"


@pytest.mark.parametrize("kind", ["noam", "inverse_sqrt", "linear", "constant", "plateau"])
def test_without_warmup_no_update_is_lost(kind: str) -> None:
    rate = schedule(kind, warmup=0)
    assert math.isfinite(rate(0))
    assert rate(0) == rate(1) > 0


def test_plateau_waits_for_its_patience() -> None:
    plateau = Plateau()
    drops = []
    for loss in (3.0, 2.0, 2.0, 2.5, 2.0, 2.1, 1.9, 1.95, 1.96):
        plateau = plateau.after(loss, patience=2)
        drops.append(plateau.drops)
    assert drops == [0, 0, 0, 1, 1, 2, 2, 2, 3]
    assert plateau.best == 1.9


def test_plateau_counts_validations_in_a_row() -> None:
    plateau = Plateau()
    seen = []
    for loss in (2.0, 2.1, 1.9, 1.95, 1.8, 1.85, 1.86):
        plateau = plateau.after(loss, patience=2)
        seen.append((plateau.waiting, plateau.drops))
    assert seen == [(0, 0), (1, 0), (0, 0), (1, 0), (0, 0), (1, 0), (0, 1)]


def test_plateau_may_ask_for_more_than_a_little() -> None:
    """1 % here: 1.99 is no better than 2, and stays no mark to beat; 1.97 is."""
    plateau = Plateau()
    seen = []
    for loss in (2.0, 1.99, 1.985, 1.97, 1.98, 1.96):
        plateau = plateau.after(loss, patience=2, threshold=0.01)
        seen.append((plateau.best, plateau.drops))
    assert seen == [(2.0, 0), (2.0, 0), (2.0, 1), (1.97, 1), (1.97, 1), (1.97, 2)]


def test_warmup_may_be_a_share_of_all_updates() -> None:
    config = TrainingConfig(warmup_share=0.25)
    assert make_schedule(config, d_token=64, total_updates=8100).warmup == 2025
    assert make_schedule(TrainingConfig(), d_token=64, total_updates=8100).warmup == 4000


def test_width_is_d_token_unless_it_is_set() -> None:
    assert make_schedule(TrainingConfig(), d_token=64, total_updates=1)(4000) == pytest.approx(1.976e-3, rel=1e-3)
    wider = make_schedule(TrainingConfig(schedule_width=128), d_token=64, total_updates=1)
    assert wider(4000) == pytest.approx(1.398e-3, rel=1e-3)
