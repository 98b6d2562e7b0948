from __future__ import annotations

import math

import numpy as np
import pytest
from generated_trials import Noise, binomial_ceiling, make_records, rl_law
from scipy import stats

from kltune.statistics.frontier import compare_frontiers
from kltune.statistics.law import LawPoints, law_points

DRAWS = 120
NOISE = Noise(run_sd=0.08, run_rho=0.5, kl_sd=0.1)


def study(rng: np.random.Generator, shift: float) -> tuple[list[LawPoints], list[float]]:
    """24 betas, low ones reaching far; ``shift``: slope of gold over d, highest less lowest beta."""
    logs = rng.uniform(-6, 0, 24)
    rank = (stats.rankdata(logs) - 1) / 23 - 0.5
    kls = [np.sort(np.exp(rng.uniform(-2, 0, 8) - 0.35 * log)) for log in logs]
    records = make_records(rng, rl_law(0.9, 0.6), NOISE, kls)
    points = [
        law_points(r.kl_S, r.gold_SN + (shift * z * np.sqrt(r.kl_S))[:, None])
        for r, z in zip(records, rank, strict=True)
    ]
    return points, np.exp(logs).tolist()


@pytest.mark.parametrize("shift", [0.0, 0.25])
def test_the_interval_holds_what_beta_adds(shift: float) -> None:
    rng = np.random.default_rng(1)
    inside = apart = 0
    for _ in range(DRAWS):
        found = compare_frontiers(*study(rng, shift))
        inside += found.low <= shift * math.sqrt(found.kl) <= found.high
        apart += found.is_one is False
    assert inside >= 0.9 * DRAWS, f"{inside} of {DRAWS}"
    if shift:
        assert apart >= 0.9 * DRAWS, f"{apart} of {DRAWS} told from one frontier"
    else:
        most = binomial_ceiling(DRAWS, 0.05)
        assert apart <= most, f"{apart} of {DRAWS} falsely told from one frontier"


def test_too_few_trials_or_betas_are_not_tested() -> None:
    points, betas = study(np.random.default_rng(2), 0.0)
    for found in (
        compare_frontiers(points[:7], betas[:7]),
        compare_frontiers(points, [0.1, 0.2] * 12),
        compare_frontiers([], []),
    ):
        assert not found.is_tested
        assert found.is_one is None


def test_trials_that_keep_to_one_kl_are_not_tested() -> None:
    points, betas = study(np.random.default_rng(3), 0.0)
    still = [LawPoints(np.full(p.d_P.shape, 1.0), p.gain_PN) for p in points]
    assert not compare_frontiers(still, betas).is_tested


def test_beta_zero_is_the_lowest_rank() -> None:
    points, betas = study(np.random.default_rng(4), 0.25)
    lowest = int(np.argmin(betas))
    zero = [0.0 if i == lowest else beta for i, beta in enumerate(betas)]
    assert compare_frontiers(points, zero) == compare_frontiers(points, betas)
