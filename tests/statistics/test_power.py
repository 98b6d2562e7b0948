from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from kltune.statistics.power import (
    ALPHA,
    Design,
    Noise,
    critical,
    degrees_of_freedom,
    detectable,
    power,
    standard_error,
)

NOISE = Noise(seed=0.02, seed_correlation=0.5, prompt=0.3, prompt_seed=0.2, sample=0.8)
DRAWS = 2000


def simulate(noise: Noise, design: Design, difference: float, seed: int) -> tuple[float, float]:
    """(share of draws in which setting 0 is told from 1, variance of their difference) in the layout itself.

    Settings share what a seed does to all of them (the correlation); the effects of one setting
    have half the variance of a difference.
    """
    rng = np.random.default_rng(seed)
    m, s, p = design.settings, design.seeds, design.prompts

    def effect(variance: float, *shape: int) -> np.ndarray:
        return rng.normal(0, math.sqrt(variance), (DRAWS, *shape))

    gold = effect(noise.seed * noise.seed_correlation, 1, s, 1)  # the same for all settings
    gold = gold + effect(noise.seed * (1 - noise.seed_correlation), m, s, 1)
    gold = gold + effect(noise.prompt / 2, m, 1, p) + effect(noise.prompt_seed / 2, m, s, p)
    gold = gold + effect(noise.sample / 2 / design.samples, m, s, p) + effect(1.0, 1, 1, p)
    gold[:, 0] += difference
    told = gold[:, 0].mean((1, 2)) - gold[:, 1].mean((1, 2))
    own = gold - gold.mean(1, keepdims=True)  # without what all settings share
    by_seed, by_prompt = own.mean(3, keepdims=True), own.mean(2, keepdims=True)
    grand = own.mean((2, 3), keepdims=True)
    pooled = m - 1
    ms_seed = p * ((by_seed - grand) ** 2).sum((1, 2, 3)) / (pooled * (s - 1))
    ms_prompt = s * ((by_prompt - grand) ** 2).sum((1, 2, 3)) / (pooled * (p - 1))
    rest = own - by_seed - by_prompt + grand
    ms_rest = (rest**2).sum((1, 2, 3)) / (pooled * (s - 1) * (p - 1))
    error = np.sqrt(2 * np.maximum(ms_seed + ms_prompt - ms_rest, 1e-12) / (s * p))
    return float((np.abs(told) / error > critical(noise, design)).mean()), float(told.var(ddof=1))


DESIGNS = [
    pytest.param(NOISE, Design(5, 64, 2), id="5 seeds"),
    pytest.param(NOISE, Design(10, 32, 4, comparisons=6, settings=4), id="10 seeds, 4 settings"),
    pytest.param(replace(NOISE, seed=0.1), Design(4, 64, 1, settings=3), id="seeds rule"),
    pytest.param(replace(NOISE, seed=1e-4), Design(3, 16, 2, comparisons=3), id="prompts rule"),
]


@pytest.mark.parametrize(("noise", "design"), DESIGNS)
def test_simulated_power_is_that_of_the_formula(noise: Noise, design: Design) -> None:
    for case, wanted in enumerate((0.3, 0.8)):
        difference = detectable(noise, design, wanted)
        seen, variance = simulate(noise, design, difference, seed=case)
        bound = 4 * math.sqrt(wanted * (1 - wanted) / DRAWS) + 0.01
        assert abs(seen - wanted) < bound, (
            f"{seen:.3f} of {DRAWS} draws told {difference:.3f} gold; formula {wanted}, bound {bound:.3f}"
        )
        ratio = variance / standard_error(noise, design) ** 2
        assert abs(ratio - 1) < 4 * math.sqrt(2 / DRAWS)


@pytest.mark.parametrize(("noise", "design"), DESIGNS)
def test_no_difference_is_told_as_rarely_as_the_level_says(noise: Noise, design: Design) -> None:
    level = ALPHA / design.comparisons
    seen, _ = simulate(noise, design, 0.0, seed=7)
    bound = level + 4 * math.sqrt(level * (1 - level) / DRAWS) + 0.2 * level
    assert seen <= bound, f"{seen:.4f} of {DRAWS} draws; at most {bound:.4f}"


def test_one_factor_alone_is_students_t() -> None:
    only_prompts = Noise(0, 0, 0.5, 0, 0)
    assert degrees_of_freedom(only_prompts, Design(1, 64, 2)) == pytest.approx(63)
    only_seeds = Noise(0.1, 0.25, 0, 0, 0)
    design = Design(6, 64, 2)
    assert degrees_of_freedom(only_seeds, design) == pytest.approx(5)
    assert standard_error(only_seeds, design) == pytest.approx(math.sqrt(2 * 0.1 * 0.75 / 6))
    limit = stats.t.isf(0.025, 5)
    assert critical(only_seeds, design) == pytest.approx(limit)


def test_every_kind_of_effort_helps_and_each_has_its_floor() -> None:
    base = Design(3, 32, 2)
    for more in (replace(base, seeds=12), replace(base, prompts=256), replace(base, samples=16)):
        assert detectable(NOISE, more) < detectable(NOISE, base)
    # Without end of prompts and samples the seeds' part stays.
    endless = standard_error(NOISE, Design(3, 10**9, 10**6))
    assert endless == pytest.approx(math.sqrt(NOISE.seed_difference / 3), rel=1e-4)


def test_common_random_numbers_narrow_the_difference() -> None:
    apart = replace(NOISE, seed_correlation=0.0)
    assert standard_error(NOISE, Design(3, 64, 2)) < standard_error(apart, Design(3, 64, 2))


def test_more_comparisons_see_less() -> None:
    one, many = Design(5, 64, 2), Design(5, 64, 2, comparisons=24)
    assert detectable(NOISE, many) > 1.2 * detectable(NOISE, one)


def test_without_noise_any_difference_is_seen() -> None:
    still = Noise(0, 0, 0, 0, 0)
    assert detectable(still, Design(1, 8, 1)) == 0.0
    assert power(0.01, still, Design(1, 8, 1)) == 1.0


def test_a_huge_difference_is_always_seen_and_its_sign_does_not_matter() -> None:
    design = Design(5, 64, 2)
    assert power(1e6, NOISE, design) == 1.0
    assert power(-0.2, NOISE, design) == power(0.2, NOISE, design)


@pytest.mark.parametrize(("df", "shift"), [(3, 2.0), (9, 3.0), (60, 1.0)])
def test_power_is_the_noncentral_t(df: int, shift: float) -> None:
    noise, design = Noise(0, 0, 1.0, 0, 0), Design(1, df + 1, 2)
    limit = critical(noise, design)
    exact = stats.nct.sf(limit, df, shift) + stats.nct.cdf(-limit, df, shift)
    assert power(shift * standard_error(noise, design), noise, design) == pytest.approx(
        exact, abs=1e-3
    )


def test_degrees_of_freedom_are_those_of_the_three_mean_squares() -> None:
    noise, design = Noise(0.01, 0.5, 0.4, 0.1, 0.6), Design(4, 30, 2, settings=3)
    rest = 0.1 + 0.6 / 2
    squares = {"seed": 30 * 0.01 + rest, "prompt": 4 * 0.4 + rest, "both": rest}
    dfs = {"seed": 3 * 2, "prompt": 29 * 2, "both": 3 * 29 * 2}
    # The two-way sum is seed + prompt - both; its variance adds up.
    total = squares["seed"] + squares["prompt"] - squares["both"]
    wanted = total**2 / sum(squares[name] ** 2 / dfs[name] for name in squares)
    assert degrees_of_freedom(noise, design) == pytest.approx(wanted)
    assert standard_error(noise, design) ** 2 == pytest.approx(total / (4 * 30))
