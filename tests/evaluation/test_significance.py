"""Significance tests against sacreBLEU, enumeration, closed forms, and their nominal error rates."""

import itertools
import math
import random
import statistics
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, estimate_ci

from repose.evaluation import ratio, significance
from repose.evaluation.metrics import bleu
from repose.evaluation.ratio import RatioStatistics, read_ratio, write_ratio
from repose.evaluation.sentence_statistics import Metric, References, SentenceStatistics
from repose.evaluation.significance import (
    SEED,
    Resampled,
    approximate_randomization,
    compare,
    holm,
    resample,
    resample_ratio,
    student_inside,
    student_quantile,
    welch,
)
from repose.system.errors import ConfigError, DataError

WORDS = ["a", "the", "red", "small", "dog", "cat", "runs", "sits", "on", "under", "table", ",", ".", "tree", "slowly"]


def sentences(number: int, draw: random.Random) -> list[str]:
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 14))) for _ in range(number)]


def translated(references: list[str], wrong: float, draw: random.Random) -> list[str]:
    """The references, each word replaced with this probability."""
    return [" ".join(draw.choice(WORDS) if draw.random() < wrong else w for w in line.split()) for line in references]


def three_systems(number: int = 120, seed: int = 5) -> tuple[list[str], list[list[str]]]:
    draw = random.Random(seed)
    references = sentences(number, draw)
    return references, [translated(references, wrong, draw) for wrong in (0.30, 0.26, 0.30)]


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_one_seed_is_sacrebleus_paired_bootstrap(metric: Metric, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    references, (base, *others) = three_systems()
    scorer = BLEU(force=True) if metric == "bleu" else CHRF()
    named = [("base", base), *((str(i), other) for i, other in enumerate(others))]
    _, results = PairedTest(named, {metric: scorer}, [references], test_type="bs", n_samples=1000)()
    theirs = results["BLEU" if metric == "bleu" else "chrF2"]
    counted = References(references)
    first = resample([counted.statistics(base)], metric, num_resamples=1000)
    for hypotheses, result in zip((base, *others), theirs, strict=True):
        ours = resample([counted.statistics(hypotheses)], metric, num_resamples=1000)
        assert ours.value == result.score
        # they compute in single precision: 1e-4 of a percentage
        assert estimate_ci(ours.values) == pytest.approx((result.mean, result.ci), abs=1e-4), "not the same resamples"
        if result.p_value is not None:
            # their p, from our resamples: the upper tail alone of |difference| about its mean
            sizes = np.abs(ours.values - first.values)
            beyond = np.count_nonzero(sizes - sizes.mean() > abs(ours.value - first.value))
            assert result.p_value == pytest.approx((beyond + 1) / 1001, abs=1.1 / 1001)


def test_p_is_about_twice_sacrebleus_where_all_resamples_agree_on_the_sign() -> None:
    """Theirs counts one tail then; both tails of a difference that is normal are twice that."""
    references, (base, other, _) = three_systems(400, seed=6)
    counted = References(references)
    a, b = (resample([counted.statistics(h)], num_resamples=20_000) for h in (other, base))
    found = compare(a, b)
    sizes = np.abs(a.values - b.values)
    theirs = (np.count_nonzero(sizes - sizes.mean() > abs(found.value)) + 1) / 20_001
    assert 0.002 < found.p < 0.2, "neither rare nor common, to be compared"
    assert found.p == pytest.approx(2 * theirs, rel=0.15)


def test_resamples_do_not_depend_on_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    references, (hypotheses, *_) = three_systems(37)
    statistics_ = [References(references).statistics(hypotheses)]
    whole = resample(statistics_).values
    monkeypatch.setattr(significance, "_BLOCK", 37 * 7 + 5)
    np.testing.assert_array_equal(resample(statistics_).values, whole)


def test_all_resamples_of_four_sentences() -> None:
    """256 equally likely resamples, each scored as text, against 20,000 drawn ones."""
    references = ["a b c d e f", "the dog runs", "on the red table .", "a cat sits under the small tree"]
    one = ["a b c d e f", "the dog runs", "on a red table .", "a cat sits on the small tree"]
    two = ["a b c d e x", "a dog runs", "on the red table .", "a cat sits under the small tree"]
    exact = np.array(
        [
            bleu([one[i] for i in places], [references[i] for i in places]).value
            - bleu([two[i] for i in places], [references[i] for i in places]).value
            for places in itertools.product(range(4), repeat=4)
        ]
    )
    counted = References(references)
    a, b = (resample([counted.statistics(h)], num_resamples=20_000) for h in (one, two))
    drawn = a.values - b.values
    # 1.95 / sqrt(20,000) bounds the largest distance of the two distributions with probability 0.999 (Kolmogorov)
    grid = np.unique(np.round(exact, 6)) + 1e-5
    shares = [[np.mean(values <= x) for x in grid] for values in (exact, drawn)]
    assert np.abs(np.subtract(*shares)).max() < 0.0138
    side = min(np.mean(exact <= 1e-9), np.mean(exact >= -1e-9))
    assert 0.05 < side < 0.45, "both signs must occur"
    # five standard errors of a share of 20,000
    assert compare(a, b).p == pytest.approx(2 * side, abs=2 * 5 * math.sqrt(side * (1 - side) / 20_000))


def test_seeds_are_averaged_within_a_resample() -> None:
    references, systems = three_systems()
    counted = References(references)
    seeds = [counted.statistics(hypotheses) for hypotheses in systems]
    together, alone = resample(seeds), [resample([one]) for one in seeds]
    np.testing.assert_allclose(together.values, np.mean([one.values for one in alone], axis=0), rtol=0, atol=1e-12)
    assert together.value == pytest.approx(statistics.fmean(one.score() for one in seeds), abs=1e-12)
    pooled = SentenceStatistics(*(np.concatenate([one.of(m) for one in seeds]) for m in ("bleu", "chrf")))
    assert abs(together.value - pooled.score()) > 1e-6, "not the BLEU of all translations together"


def resampled(values: NDArray[np.float64], value: float) -> Resampled:
    return Resampled(value, values, 100)


def test_p_and_interval_by_hand() -> None:
    """199 differences -9, -8, ... 189: 10 are not above 0, and 5 lie beyond either limit's place."""
    values = np.random.default_rng(0).permutation(np.arange(-9.0, 190.0))
    found = compare(resampled(values + 50, 140), resampled(np.full(199, 50.0), 50))
    assert found.value == 90
    assert found.p == 2 * (1 + 10) / 200
    assert (found.low, found.high) == (-9 + 4, 189 - 4)  # the 5th from each end: 0.025 × 200


def test_the_interval_leaves_out_zero_exactly_where_p_is_at_most_5_percent() -> None:
    draw = np.random.default_rng(3)
    outcomes = []
    for shift in np.linspace(1.5, 2.5, 200):
        values = draw.normal(shift, 1, size=1000)
        found = compare(resampled(values, shift), resampled(np.zeros(1000), 0))
        assert (found.p <= 0.05) == (found.low > 0 or found.high < 0)
        outcomes.append(found.p <= 0.05)
    assert 20 < sum(outcomes) < 180, "both outcomes must occur"


def test_the_other_way_round_is_the_mirror() -> None:
    references, systems = three_systems()
    counted = References(references)
    a, b, _ = (resample([counted.statistics(h)]) for h in systems)
    one, two = compare(a, b), compare(b, a)
    assert (one.value, one.low, one.high, one.p) == (-two.value, -two.high, -two.low, two.p)


def test_a_system_does_not_differ_from_itself() -> None:
    references, systems = three_systems()
    counted = References(references)
    seeds = [counted.statistics(hypotheses) for hypotheses in systems]
    found = compare(resample(seeds), resample(seeds[::-1]))  # the sum in another order is not the same float
    assert found.value == pytest.approx(0, abs=1e-12)
    assert (found.low, found.high, found.p) == (0.0, 0.0, 1.0)


def test_a_ratio_is_resampled_as_its_sums_are(tmp_path: Path) -> None:
    """By hand, over the same draws as those of BLEU; and as it was written."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 30, 50).astype(np.float64)
    seeds = [RatioStatistics("las", "sentences", rng.uniform(0, 1, 50) * sizes, sizes, 100.0) for _ in range(2)]
    for place, one in enumerate(seeds):
        write_ratio(tmp_path / f"{place}.npz", one)
    seeds = [read_ratio(tmp_path / f"{place}.npz") for place in range(2)]
    found = resample_ratio(seeds, num_resamples=300)
    assert found.value == pytest.approx(np.mean([100 * one.amounts.sum() / sizes.sum() for one in seeds]))
    draws = np.random.default_rng(SEED).choice(50, size=(300, 50), replace=True)
    by_hand = [np.mean([100 * one.amounts[d].sum() / sizes[d].sum() for one in seeds]) for d in draws]
    np.testing.assert_allclose(found.values, by_hand)
    (tmp_path / "0.npz").write_bytes((tmp_path / "0.npz").read_bytes()[:-40])
    for name, sentence in (("0.npz", r"0\.npz is damaged"), ("9.npz", r"there is no 9\.npz")):
        with pytest.raises(DataError, match=sentence):
            read_ratio(tmp_path / name)


@pytest.mark.parametrize("sizes", [np.zeros(3), np.ones(2)])
def test_a_ratio_to_nothing_or_to_other_units_is_damage(tmp_path: Path, sizes: NDArray[np.float64]) -> None:
    path = tmp_path / "statistics.npz"
    write_ratio(path, RatioStatistics("las", "sentences", np.ones(3), sizes, 100.0))
    with pytest.raises(DataError, match="is damaged"):
        read_ratio(path)


def test_a_ratio_of_a_later_version_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ratio, "FORMAT", 2)
        write_ratio(tmp_path / "statistics.npz", RatioStatistics("las", "sentences", np.ones(3), np.ones(3)))
    with pytest.raises(DataError, match="has format 2, this version reads 1"):
        read_ratio(tmp_path / "statistics.npz")


def test_what_cannot_be_resampled_or_compared() -> None:
    references, (base, other, _) = three_systems(20)
    found = References(references).statistics(base)
    shorter = References(references[:9]).statistics(other[:9])
    with pytest.raises(ConfigError, match="99 resamples give no"):
        resample([found], num_resamples=99)
    with pytest.raises(DataError, match="9 and 20 sentences"):
        resample([found, shorter])
    with pytest.raises(DataError, match="no sentences"):
        resample([])
    for unlike in (resample([shorter]), resample([found], num_resamples=100)):
        with pytest.raises(DataError, match="compare the same resamples"):
            compare(resample([found]), unlike)


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_approximate_randomization_is_sacrebleus_where_no_trial_ties(
    metric: Metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    references, (base, other, _) = three_systems()
    scorer = BLEU(force=True) if metric == "bleu" else CHRF()
    _, results = PairedTest([("base", base), ("other", other)], {metric: scorer}, [references], n_samples=500)()
    counted = References(references)
    found = approximate_randomization(counted.statistics(other), counted.statistics(base), metric, num_trials=500)
    first, second = results["BLEU" if metric == "bleu" else "chrF2"]
    assert found.p == second.p_value
    assert found.difference == second.score - first.score
    with pytest.raises(DataError, match="one test set"):
        approximate_randomization(counted.statistics(other), References(["a"]).statistics(["a"]))


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_approximate_randomization_agrees_with_all_ways_to_change_sides(metric: Metric) -> None:
    """256 equally likely trials, each scored as text; some differ exactly as much as the systems do."""
    references, (base, other, _) = three_systems(8, seed=3)
    counted = References(references)

    def difference(swaps: tuple[bool, ...]) -> float:
        sides = zip(*((b, a) if swap else (a, b) for swap, a, b in zip(swaps, other, base, strict=True)), strict=True)
        one, two = (counted.statistics(list(side)).score(metric) for side in sides)
        return one - two

    trials = [abs(difference(swaps)) for swaps in itertools.product((False, True), repeat=8)]
    exact = statistics.fmean(trial >= trials[0] - 1e-9 for trial in trials)
    found = approximate_randomization(counted.statistics(other), counted.statistics(base), metric)
    assert found.p == pytest.approx(exact, abs=0.02)
    assert statistics.fmean(trial > trials[0] + 1e-9 for trial in trials) < exact, "no trial ties: nothing is shown"


def test_translations_that_hardly_differ_are_not_significantly_different() -> None:
    """Where one sentence alone differs, a trial has the systems as they are or the other way round."""
    references, (base, other, _) = three_systems()
    counted = References(references)
    one = counted.statistics(base)
    assert approximate_randomization(one, one, num_trials=100).p == 1
    places = [i for i, (a, b) in enumerate(zip(base, other, strict=True)) if a != b]
    assert len(places) > 20
    for place in places:
        nearly = counted.statistics([*base[:place], other[place], *base[place + 1 :]])
        for metric in ("bleu", "chrf"):
            assert approximate_randomization(one, nearly, metric, num_trials=100).p == 1, (place, metric)


def test_trials_of_large_test_sets_are_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    references, (base, other, _) = three_systems(37)
    one, two = (References(references).statistics(h) for h in (other, base))
    whole = approximate_randomization(one, two).p
    monkeypatch.setattr(significance, "_BLOCK", 37 * 7 + 5)
    assert approximate_randomization(one, two).p == pytest.approx(whole, abs=0.02)


def test_holm() -> None:
    # 4 × 0.005, 3 × 0.01, 2 × 0.03, and 1 × 0.04, which is raised to the one before it
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02], abs=1e-15)
    assert holm([0.2, 0.6]) == pytest.approx([0.4, 0.6])
    assert holm([0.7, 0.8, 0.9]) == [1.0, 1.0, 1.0]
    assert holm([0.03]) == [0.03]
    assert holm([]) == []


@pytest.mark.parametrize("t", [0.0, 0.1, 1.0, 3.0, 30.0])
def test_student_against_closed_forms(t: float) -> None:
    assert student_inside(t, 1) == pytest.approx(2 / math.pi * math.atan(t), abs=1e-12)
    assert student_inside(t, 2) == pytest.approx(t / math.sqrt(2 + t * t), abs=1e-12)
    four = t / math.sqrt(4 + t * t)  # sine of the angle: 3/2 of the integral of cos^3
    assert student_inside(t, 4) == pytest.approx(1.5 * (four - four**3 / 3), abs=1e-12)
    # the normal distribution is off by about 1 / (4 × degrees)
    assert student_inside(t, 1e6) == pytest.approx(math.erf(t / math.sqrt(2)), abs=1e-6)


@pytest.mark.parametrize(("degrees", "t"), [(1, 12.706), (2, 4.303), (4, 2.776), (8, 2.306), (2.5, 3.558)])
def test_student_quantiles(degrees: float, t: float) -> None:
    """As printed in tables, to three digits; the one of 2.5 degrees lies between those of 2 and 3 (3.182)."""
    found = student_quantile(0.95, degrees)
    assert student_inside(found, degrees) == pytest.approx(0.95, abs=1e-12)
    assert found == pytest.approx(t, abs=5e-4 if degrees != 2.5 else 0.2)


def test_welch_by_hand() -> None:
    """Variances 1 and 4 of three each: shares 1/3 and 4/3, (5/3)² / ((1/9 + 16/9) / 2) degrees."""
    found = welch([30.0, 31.0, 32.0], [26.0, 28.0, 30.0])
    assert found is not None
    assert found.value == 3.0
    assert found.degrees == pytest.approx((25 / 9) / (17 / 18))
    margin = student_quantile(0.95, found.degrees) * math.sqrt(5 / 3)
    assert (found.low, found.high) == pytest.approx((3 - margin, 3 + margin))


def test_welch_of_equal_spreads_is_students_interval() -> None:
    found = welch([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])
    assert found is not None
    assert found.degrees == pytest.approx(4)
    assert found.high - found.low == pytest.approx(2 * 2.7764 * math.sqrt(2 / 3), abs=1e-3)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1.0], [1.0, 2.0]),
        ([1.0, 2.0], [1.0]),
        ([1.0, 1.0], [2.0, 2.0]),
        ([1.0, 1.0 + 1e-13], [2.0, 2.0]),  # seeds that differ by rounding alone
        ([1.0, math.nan], [2.0, 3.0]),
        ([1.0, 2.0], [3.0, math.inf]),
    ],
)
def test_welch_needs_a_spread_of_numbers(a: list[float], b: list[float]) -> None:
    assert welch(a, b) is None


@pytest.mark.slow
def test_equal_systems_are_called_different_in_5_percent_of_trials() -> None:
    """600 test sets, two systems of the same quality, one and two seeds: 5 % ± 3 standard errors (0.9 %).

    sacreBLEU's p calls 10 % ± 3 standard errors (1.2 %) different, as it counts one tail: why it is not taken over.
    """
    draw, ours, theirs = random.Random(11), [], []
    for _ in range(600):
        references = sentences(150, draw)
        counted = References(references)
        a, b = (
            resample([counted.statistics(translated(references, 0.3, draw)) for _ in range(number)], num_resamples=1000)
            for number in (1, 2)
        )
        found = compare(a, b)
        ours.append(found.p <= 0.05)
        sizes = np.abs(a.values - b.values)
        theirs.append((np.count_nonzero(sizes - sizes.mean() > abs(found.value)) + 1) / 1001 <= 0.05)
    assert 0.05 - 0.027 < statistics.fmean(ours) < 0.05 + 0.027
    assert 0.10 - 0.037 < statistics.fmean(theirs) < 0.10 + 0.037
