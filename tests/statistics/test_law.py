from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from generated_trials import (
    Floats,
    Noise,
    best_of_n_law,
    binomial_ceiling,
    binomial_floor,
    cliff,
    make_record,
    rl_law,
)

from kltune.statistics.law import (
    LawDoubt,
    LawFit,
    LawForm,
    LawPoints,
    LawVerdict,
    RunNoise,
    fit_law,
    law_points,
    peak_kl,
    scaled_design,
)
from kltune.statistics.law_errors import student_t, trial_coefficients
from kltune.statistics.run_noise import usual_run_noise

DRAWS = 400
A, B = 0.9, 0.6
KL_PEAK = math.exp(2 * (A / B - 1))
STILL = Noise(prompt_sd=0.0, answer_sd=0.0, sample_sd=0.0)
RUN = Noise(run_sd=0.1)
NOISES = {
    "prompts": Noise(),
    "heavy tails": Noise(tail_df=3),
    "autocorrelated": Noise(sample_rho=0.8),
    "noisy KL": Noise(kl_sd=0.15),
    "run": RUN,
    "run, autocorrelated": replace(RUN, run_rho=0.5),
    "all": Noise(tail_df=3, sample_rho=0.6, run_sd=0.08, run_rho=0.5, kl_sd=0.1),
}


def study(law: Callable[[Floats], Floats], noise: Noise, draws: int, seed: int) -> list[LawFit]:
    """Trials judged by the usual run of the 25 that they come with, as in a study."""
    rng = np.random.default_rng(seed)
    fits: list[LawFit] = []
    for _ in range(draws // 25):
        records = [make_record(rng, law, noise) for _ in range(25)]
        points = [law_points(r.kl_S, r.gold_SN) for r in records]
        run = usual_run_noise(points, LawForm.RL)
        fits += [fit_law(p, LawForm.RL, run) for p in points]
    return fits


def draw(noise: Noise, seed: int = 1) -> list[LawFit]:
    return study(rl_law(A, B), noise, DRAWS, seed)


@pytest.mark.parametrize(
    ("form", "law", "kl_peak", "gain"),
    [
        (LawForm.RL, rl_law(A, B), KL_PEAK, B * math.sqrt(KL_PEAK)),
        (LawForm.BEST_OF_N, best_of_n_law(A, 0.3), (A / 0.6) ** 2, A**2 / 1.2),
    ],
)
def test_without_noise_the_law_is_recovered(
    form: LawForm, law: Callable[[Floats], Floats], kl_peak: float, gain: float
) -> None:
    record = make_record(np.random.default_rng(1), law, STILL)
    fit = fit_law(law_points(record.kl_S, record.gold_SN), form)
    assert fit.a is not None
    assert fit.b is not None
    assert fit.kl_peak is not None
    assert fit.a.value == pytest.approx(A, abs=1e-6)
    assert fit.b.value == pytest.approx(B if form is LawForm.RL else 0.3, abs=1e-6)
    assert fit.kl_peak.value == pytest.approx(kl_peak, abs=1e-6)
    assert fit.kl_peak.low == pytest.approx(kl_peak, abs=1e-4)
    assert fit.gain_peak == pytest.approx(gain, abs=1e-6)
    assert fit.gain(np.sqrt(record.kl_S[1:])) == pytest.approx(record.true_gold_S[1:])
    assert fit.verdict is LawVerdict.IDENTIFIED


@pytest.mark.parametrize("name", NOISES)
def test_intervals_hold_the_truth(name: str) -> None:
    fits = draw(NOISES[name])
    least = binomial_ceiling(DRAWS, 0.90)
    for truth, what in ((A, "a"), (B, "b"), (KL_PEAK, "kl_peak")):
        inside = sum(e.low <= truth <= e.high for fit in fits if (e := getattr(fit, what)))
        # A chance of 90 % reaches this in 1 of 100 cases: so the true one is above it.
        assert inside >= least, f"{what}: {inside} of {DRAWS}, {least} wanted"


def test_a_run_that_wanders_for_long_is_covered_at_90_percent_and_no_better() -> None:
    fits = draw(replace(RUN, run_rho=0.7))
    inside = sum(e.low <= KL_PEAK <= e.high for fit in fits if (e := fit.kl_peak))
    least = binomial_floor(DRAWS, 0.90)
    assert inside >= least, f"{inside} of {DRAWS}, {least} wanted"


@pytest.mark.parametrize("name", [n for n in NOISES if n != "noisy KL"])
def test_a_law_that_holds_is_rejected_in_1_of_20(name: str) -> None:
    rejected = sum(fit.verdict is LawVerdict.REJECTED for fit in draw(NOISES[name], seed=2))
    most = binomial_ceiling(DRAWS, 0.05)
    assert rejected <= most, f"{rejected} of {DRAWS}, at most {most} wanted"


def test_noisy_kl_rejects_a_law_that_holds_in_no_more_than_1_of_8() -> None:
    rejected = sum(fit.verdict is LawVerdict.REJECTED for fit in draw(NOISES["noisy KL"], seed=2))
    most = binomial_ceiling(DRAWS, 0.125)
    assert rejected <= most, f"{rejected} of {DRAWS}, at most {most} wanted"


def test_best_of_n_is_covered() -> None:
    rng, kl = (
        np.random.default_rng(4),
        np.array([np.log(n) - (n - 1) / n for n in 2 ** np.arange(1, 9)]),
    )
    inside = 0
    for _ in range(DRAWS):
        record = make_record(rng, best_of_n_law(A, 0.35), Noise(sample_rho=0.9), kl)
        fit = fit_law(law_points(record.kl_S, record.gold_SN), LawForm.BEST_OF_N)
        assert fit.kl_peak is not None
        inside += fit.kl_peak.low <= (A / 0.7) ** 2 <= fit.kl_peak.high
    least = binomial_ceiling(DRAWS, 0.90)
    assert inside >= least, f"{inside} of {DRAWS}, {least} wanted"


@pytest.mark.parametrize("noise", [Noise(), Noise(run_sd=0.04)], ids=["prompts", "run"])
def test_a_truth_outside_the_family_is_rejected(noise: Noise) -> None:
    fits = study(cliff, noise, 100, seed=5)
    rejected = sum(fit.verdict is LawVerdict.REJECTED for fit in fits)
    assert rejected >= 95, f"{rejected} of 100"


def test_a_short_range_of_kl_is_named_and_bounds_the_peak_from_below() -> None:
    rng, kl = np.random.default_rng(6), np.linspace(0.1, 1.0, 8)
    records = [make_record(rng, rl_law(A, B), Noise(), kl) for _ in range(DRAWS)]
    fits = [fit_law(law_points(r.kl_S, r.gold_SN), LawForm.RL) for r in records]
    identified = sum(fit.verdict is LawVerdict.IDENTIFIED for fit in fits)
    assert identified <= 0.05 * DRAWS, f"{identified} of {DRAWS} claim a peak that was not reached"
    assert {fit.doubt for fit in fits} <= {LawDoubt.OUTSIDE, LawDoubt.NO_BEND}
    above = sum(fit.kl_peak.low <= KL_PEAK for fit in fits if fit.kl_peak)
    least = binomial_ceiling(DRAWS, 0.90)
    assert above >= least, f"{above} of {DRAWS} lower ends are right, {least} wanted"


@pytest.mark.parametrize("top", [8.0, 1.0])
def test_the_interval_ends_where_the_slope_of_the_law_can_be_told_from_0(top: float) -> None:
    kl = np.linspace(0.1, top, 8)
    record = make_record(np.random.default_rng(8), rl_law(A, B), Noise(), kl)
    points = law_points(record.kl_S, record.gold_SN)
    design = scaled_design(points, LawForm.RL, 2, float(np.median(points.d_P)))
    found, _ = trial_coefficients(*design)
    peak = peak_kl(found, LawForm.RL)
    assert (peak.high < math.inf) == (top == 8.0)
    _, _, df = found.along(slope_at(peak.value))
    for end, sign in ((peak.low, 1), (peak.high, -1)):
        if end < math.inf:
            value, se, _ = found.along(slope_at(end))
            assert value / se == pytest.approx(sign * student_t(df), rel=1e-6)
            inner, se, _ = found.along(slope_at(end * 1.05**sign))
            assert abs(inner) / se < student_t(df)


def slope_at(kl: float) -> Floats:
    """What a and b are multiplied by in the slope of the RL law."""
    return np.array([1.0, -(1 + 0.5 * math.log(kl))])


def test_gold_that_only_rises_has_no_peak() -> None:
    rng = np.random.default_rng(7)
    fits = []
    for _ in range(100):
        record = make_record(rng, lambda d: 0.5 * d, Noise())
        fits.append(fit_law(law_points(record.kl_S, record.gold_SN), LawForm.RL))
    assert sum(fit.verdict is LawVerdict.IDENTIFIED for fit in fits) <= 5
    record = make_record(rng, lambda d: d**2, STILL)
    upwards = fit_law(law_points(record.kl_S, record.gold_SN + 1e-3), LawForm.BEST_OF_N)
    assert upwards.doubt is LawDoubt.NO_BEND
    assert upwards.kl_peak is not None
    assert math.isnan(upwards.kl_peak.value)
    assert math.isnan(upwards.gain_peak)


def test_the_peak_of_a_law_that_bends_upwards_is_beyond_all() -> None:
    record = make_record(np.random.default_rng(8), lambda d: d**2, Noise(sample_sd=0.1))
    fit = fit_law(law_points(record.kl_S, record.gold_SN), LawForm.BEST_OF_N)
    assert fit.kl_peak is not None
    assert fit.kl_peak.low == math.inf


def test_too_few_evaluations_or_prompts_or_a_single_kl_are_named() -> None:
    record = make_record(np.random.default_rng(9), rl_law(A, B), Noise())
    points = law_points(record.kl_S, record.gold_SN)
    few = LawPoints(points.d_P[:4], points.gain_PN[:4])
    fits = [
        fit_law(few, LawForm.RL),
        fit_law(LawPoints(points.d_P, points.gain_PN[:, :7]), LawForm.RL),
        fit_law(LawPoints(np.full(8, 1.3), points.gain_PN), LawForm.RL),
        fit_law(law_points(np.empty(0), np.empty((0, 0))), LawForm.RL),
    ]
    for fit in fits:
        assert (fit.verdict, fit.doubt) == (LawVerdict.NOT_IDENTIFIABLE, LawDoubt.TOO_FEW)
        assert fit.a is None
        assert np.isnan(fit.gain(np.ones(3))).all()


def test_evaluations_without_kl_or_not_finite_are_left_out() -> None:
    record = make_record(np.random.default_rng(10), rl_law(A, B), Noise())
    kl, gold = record.kl_S.copy(), record.gold_SN.copy()
    kl[2], kl[3], gold[4, 5] = 0.0, np.nan, np.inf
    points = law_points(kl, gold)
    assert points.d_P == pytest.approx(np.sqrt(record.kl_S[[1, 5, 6, 7, 8]]))
    assert points.gain_PN == pytest.approx(gold[[1, 5, 6, 7, 8]] - gold[0])


def test_a_usual_run_explains_what_prompts_do_not() -> None:
    record = make_record(np.random.default_rng(3), rl_law(A, B), replace(RUN, run_sd=0.15))
    points = law_points(record.kl_S, record.gold_SN)
    alone = fit_law(points, LawForm.RL)
    among = fit_law(points, LawForm.RL, RunNoise(0.11, 1.6))
    assert alone.verdict is LawVerdict.REJECTED
    assert among.verdict is not LawVerdict.REJECTED
    assert alone.run_sd > 0.05
    assert alone.kl_peak is not None
    assert among.kl_peak is not None
    assert among.kl_peak.high / among.kl_peak.low >= alone.kl_peak.high / alone.kl_peak.low
