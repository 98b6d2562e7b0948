from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from generated_trials import (
    Floats,
    Noise,
    binomial_ceiling,
    cliff,
    make_records,
    rl_law,
)

from kltune.statistics.law import LawDoubt, LawFit, LawForm, LawPoints, LawVerdict, law_points
from kltune.statistics.law_pooled import (
    Design,
    fit_pooled_law,
    largest_gap,
    pooled_coefficients,
    shared_points,
)

DRAWS = 150
A, B = 0.9, 0.6
KL_PEAK = math.exp(2 * (A / B - 1))


def study(
    rng: np.random.Generator, noise: Noise, law: Callable[[Floats], Floats], number: int = 24
) -> list[LawPoints]:
    """Trials of different reach, as different betas make them; on the same prompts."""
    kls = [np.sort(np.exp(rng.uniform(-2, 0, 8) + rng.uniform(-0.5, 2.3))) for _ in range(number)]
    return [law_points(r.kl_S, r.gold_SN) for r in make_records(rng, law, noise, kls)]


def draw(noise: Noise, law: Callable[[Floats], Floats], draws: int = DRAWS) -> list[LawFit]:
    rng = np.random.default_rng(2)
    return [fit_pooled_law(study(rng, noise, law), LawForm.RL) for _ in range(draws)]


@pytest.mark.parametrize(
    "noise",
    [
        Noise(),
        Noise(tail_df=3),
        Noise(run_sd=0.15, run_rho=0.9),
        Noise(kl_sd=0.15),
        Noise(tail_df=3, sample_rho=0.6, run_sd=0.08, run_rho=0.5, kl_sd=0.1),
    ],
    ids=["prompts", "heavy tails", "run wanders for long", "noisy KL", "all"],
)
def test_intervals_hold_the_truth_and_a_law_that_holds_stands(noise: Noise) -> None:
    fits = draw(noise, rl_law(A, B))
    # Of 1,000 draws of "all" and "prompts", 95.0 to 96.2 % held the truth.
    for truth, what in ((A, "a"), (B, "b"), (KL_PEAK, "kl_peak")):
        inside = sum(e.low <= truth <= e.high for fit in fits if (e := getattr(fit, what)))
        assert inside >= 0.9 * DRAWS, f"{what}: {inside} of {DRAWS}"
    rejected = sum(fit.verdict is LawVerdict.REJECTED for fit in fits)
    most = binomial_ceiling(DRAWS, 0.05)
    assert rejected <= most, f"{rejected} of {DRAWS} rejected, at most {most} wanted"


def test_truths_outside_the_family_are_rejected_or_have_no_peak_to_tell() -> None:
    for law, least in ((cliff, 0.6), (np.tanh, 0.3)):
        fits = draw(Noise(run_sd=0.05), law, draws=60)
        rejected = sum(fit.verdict is LawVerdict.REJECTED for fit in fits)
        assert rejected >= least * 60, f"{law.__name__}: {rejected} of 60"
    claimed = sum(fit.verdict is LawVerdict.IDENTIFIED for fit in fits)
    assert claimed <= 3, f"{claimed} of 60 find a peak where gold only rises"


def test_without_noise_the_law_is_recovered_whatever_the_reach_of_the_trials() -> None:
    still = Noise(prompt_sd=0.0, answer_sd=0.0, sample_sd=0.0)
    fit = fit_pooled_law(study(np.random.default_rng(1), still, rl_law(A, B)), LawForm.RL)
    assert fit.a is not None
    assert fit.b is not None
    assert (fit.a.value, fit.b.value) == pytest.approx((A, B), abs=1e-6)


def test_five_trials_or_seven_prompts_are_too_few() -> None:
    trials = study(np.random.default_rng(3), Noise(), rl_law(A, B))
    few = [LawPoints(p.d_P, p.gain_PN[:, :7]) for p in trials]
    for fit in (fit_pooled_law(trials[:5], LawForm.RL), fit_pooled_law(few, LawForm.RL)):
        assert (fit.verdict, fit.doubt) == (LawVerdict.NOT_IDENTIFIABLE, LawDoubt.TOO_FEW)
    assert fit_pooled_law([], LawForm.RL).doubt is LawDoubt.TOO_FEW


def test_trials_on_other_prompts_are_left_out() -> None:
    trials = study(np.random.default_rng(3), Noise(), rl_law(A, B))
    odd = LawPoints(trials[0].d_P, trials[0].gain_PN[:, :32])
    used, everything = shared_points([odd, *trials[1:], LawPoints(np.empty(0), np.empty((0, 0)))])
    assert len(used) == 23
    assert everything.gain_PN.shape == (23 * 8, 64)


def test_errors_of_prompts_and_of_trials_add() -> None:
    """The mean of a table with effects of rows and columns, whose error is known."""
    rng = np.random.default_rng(4)
    errors, means = [], []
    for _ in range(300):
        trial_T, prompt_N = 0.3 * rng.standard_normal(20), rng.standard_normal(64)
        gains = [trial + prompt_N + 5 * rng.standard_normal((4, 64)) for trial in trial_T]
        found = pooled_coefficients(Design(tuple([np.ones((4, 1))] * 20), tuple(gains)))
        errors.append(found.along(np.ones(1))[1] ** 2)
        means.append(found.value_C[0])
    true = 0.09 / 20 + 1 / 64 + 25 / (20 * 4 * 64)
    assert np.mean(errors) == pytest.approx(true, rel=0.07)
    assert np.var(means) == pytest.approx(true, rel=0.2)


def test_the_largest_gap_is_where_gold_is_off() -> None:
    trials = study(np.random.default_rng(5), Noise(sample_sd=0.01, prompt_sd=0.01), cliff)
    fit = fit_pooled_law(trials, LawForm.RL)
    gap = largest_gap(trials, fit)
    assert gap is not None
    assert gap.kl_low < gap.kl_high
    assert abs(gap.gold) > 0.03
    assert largest_gap(trials[:2], fit_pooled_law(trials[:2], LawForm.RL)) is None
