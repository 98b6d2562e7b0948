from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from kltune.statistics.drift import (
    Drift,
    Interval,
    known_profile,
    paired_drift,
    parabola_profile,
    profile_drift,
)

SIZES = np.log([0.09, 0.35, 1.4])
MARGIN = 2.0


def is_plausible(count: int, draws: int, rate: float = 0.05) -> bool:
    """Whether as many as ``count`` of ``draws`` may happen at ``rate`` (once in 1,000 times)."""
    return bool(stats.binom.sf(count - 1, draws, rate) > 1e-3)


def transfers(drift: Drift) -> bool:
    return all(
        p.low is not None and p.high is not None and p.low >= 1 / MARGIN and p.high <= MARGIN
        for p in drift.pairs
    )


def shifts(drift: Drift) -> bool:
    low, high = drift.factor.low, drift.factor.high
    is_off = (low is not None and low > 1) or (high is not None and high < 1)
    return is_off and not transfers(drift)


def covers(interval: Interval, truth: float) -> bool:
    return (interval.low or 0) <= truth <= (math.inf if interval.high is None else interval.high)


def parabola(u: np.ndarray) -> np.ndarray:
    return 1 - 0.03 * u**2


def bump(u: np.ndarray) -> np.ndarray:
    return np.exp(-(u**2) / 8)


def plateau(u: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(1.5 * (u - 1)))


def flat(u: np.ndarray) -> np.ndarray:
    return 0 * u


def drawn(shape, factor: float, rng: np.random.Generator, num: int, is_heavy: bool) -> Drift:
    """The same betas on three sizes; the best one moves by ``factor`` from the smallest to the largest."""
    x = rng.uniform(math.log(0.01), math.log(10), num)
    profiles = []
    for share in (SIZES - SIZES.mean()) / np.ptp(SIZES):
        best = math.log(0.3) + math.log(factor) * share
        noise = rng.standard_t(3, num) / math.sqrt(3) if is_heavy else rng.normal(size=num)
        found = parabola_profile(x, shape(x - best) + 0.04 * noise)
        assert found is not None
        profiles.append(found)
    return profile_drift(profiles, SIZES.tolist())


def rates(shape, factor: float, draws: int, *, is_heavy: bool = False) -> tuple[int, int, int]:
    """Of ``draws``: those that say it transfers, that say it shifts, that miss the true factor."""
    rng = np.random.default_rng(round(7 * factor) + 1000 * is_heavy)
    found = [drawn(shape, factor, rng, 12, is_heavy) for _ in range(draws)]
    missed = sum(not covers(d.factor, factor) for d in found)
    return sum(map(transfers, found)), sum(map(shifts, found)), missed


def test_a_best_beta_that_stays_is_found_to_transfer_and_one_that_moves_to_shift() -> None:
    draws = 15
    told, shifted, missed = rates(bump, 1.0, draws)
    assert told >= draws / 2
    assert is_plausible(shifted, draws), f"{shifted} of {draws} said that it shifts"
    assert is_plausible(missed, draws), f"{missed} of {draws} intervals missed a factor of 1"
    told, shifted, _ = rates(bump, 6.0, draws)
    assert (told, shifted > draws / 2) == (0, True)


def test_a_curve_without_a_hump_says_nothing() -> None:
    told, shifted, _ = rates(flat, 1.0, 12)
    assert told == 0
    assert is_plausible(shifted, 12), f"{shifted} of 12 said that it shifts"


@pytest.mark.slow
@pytest.mark.parametrize("is_heavy", [False, True])
@pytest.mark.parametrize("shape", [parabola, bump, plateau, flat])
def test_false_verdicts_are_rare_inside_and_outside_the_family(shape, is_heavy: bool) -> None:
    draws = 80
    _, shifted, missed = rates(shape, 1.0, draws, is_heavy=is_heavy)
    assert is_plausible(shifted, draws), f"{shifted} of {draws} said that it shifts"
    assert is_plausible(missed, draws, 0.1), f"{missed} of {draws} intervals missed a factor of 1"
    # at the edge of what counts as transferring it must not be said to
    told, _, missed = rates(shape, MARGIN, draws, is_heavy=is_heavy)
    assert is_plausible(told, draws), f"{told} of {draws} said that it transfers"
    if shape is not flat:
        assert is_plausible(missed, draws, 0.1), (
            f"{missed} of {draws} intervals missed a factor of 2"
        )


def test_the_top_of_a_parabola_is_found_without_noise() -> None:
    x = np.linspace(-3, 3, 9)
    found = parabola_profile(x, parabola(x - 0.5))
    assert found is not None
    interval = found.interval()
    assert interval.value == pytest.approx(0.5, abs=0.05)
    assert interval.low is not None
    assert interval.high is not None
    assert interval.high - interval.low < 0.2


def test_values_that_only_rise_have_no_upper_end() -> None:
    x = np.linspace(-3, 3, 9)
    found = parabola_profile(x, x + 0.01 * np.sin(40 * x))
    assert found is not None
    assert found.interval().high is None
    assert found.interval().low is not None


def test_too_few_values_give_nothing() -> None:
    x = np.linspace(-1, 1, 4)
    assert parabola_profile(x, -(x**2)) is None
    same = np.array([0.0, 0, 0, 1, 1, 2])
    assert parabola_profile(same, -(same**2)) is None
    assert parabola_profile(np.array([]), np.array([])) is None


def test_estimates_with_intervals_give_the_interval_of_their_ratio() -> None:
    half = 1.96 * 0.1
    profiles = [known_profile(Interval(v, v - half, v + half)) for v in (0.0, 1.0)]
    drift = profile_drift([p for p in profiles if p is not None], [0.0, 2.0])
    assert drift.factor.value == pytest.approx(math.e, rel=0.05)
    wide = 1.96 * 0.1 * math.sqrt(2)
    assert drift.factor.low == pytest.approx(math.exp(1 - wide), rel=0.06)
    assert drift.factor.high == pytest.approx(math.exp(1 + wide), rel=0.06)
    assert drift.exponent.value == pytest.approx(0.5, abs=0.03)


def test_an_estimate_without_an_end_leaves_the_factor_without_one() -> None:
    profiles = [known_profile(Interval(0.0, -0.2, 0.2)), known_profile(Interval(1.0, 0.8, None))]
    drift = profile_drift([p for p in profiles if p is not None], [0.0, 1.0])
    assert drift.factor.high is None
    assert drift.factor.low == pytest.approx(math.exp(1 - 0.28), rel=0.1)
    assert known_profile(Interval(None)) is None


def test_the_same_settings_give_a_factor_that_covers() -> None:
    rng = np.random.default_rng(3)
    draws, missed = 400, 0
    for _ in range(draws):
        own = rng.normal(size=10)
        noise = rng.standard_t(3, (3, 10)) * 0.2
        drift = paired_drift(own + np.array([[-0.5], [0.0], [0.5]]) + noise, [0.0, 1.0, 2.0])
        assert drift is not None
        missed += not covers(drift.factor, math.e)
    assert is_plausible(missed, draws, 0.06), f"{missed} of {draws} intervals missed e"
    assert paired_drift(np.zeros((2, 3)), [0.0, 1.0]) is None


def test_sizes_off_one_line_do_not_transfer_though_the_ends_agree() -> None:
    own = np.linspace(0, 1, 8)
    noise = 0.02 * np.random.default_rng(0).normal(size=(3, 8))
    drift = paired_drift(own + np.array([[0.0], [1.5], [0.0]]) + noise, SIZES.tolist())
    assert drift is not None
    assert drift.factor.value == pytest.approx(1.0, abs=0.3)
    assert not transfers(drift)
