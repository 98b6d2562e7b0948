from __future__ import annotations

import math

import numpy as np
import pytest
from generated_trials import Noise, binomial_ceiling, make_record
from numpy.typing import NDArray

from kltune.statistics.peak import Peak, find_peak, tied_with_best, value_of_procedure
from kltune.trial.objective import EvalPoint, cross_valued

DRAWS = 400
PLATEAU = np.array([0.4, 0.9, 1.0, 1.0, 1.0, 0.7, 0.4, 0.1])
"""True gains at eight evaluations: three are the best."""


def peak_of(gold: NDArray[np.float64], allowed: list[bool] | None = None) -> Peak | None:
    size = len(gold)
    mask = np.ones(size, dtype=np.bool_) if allowed is None else np.array(allowed)
    return find_peak(gold, 10 * np.arange(1, size + 1), 0.5 * np.arange(1, size + 1), mask)


def around(means: list[float], num_prompts: int = 64, sd: float = 0.1) -> NDArray[np.float64]:
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((len(means), num_prompts))
    noise -= noise.mean(axis=1, keepdims=True)
    return np.array(means)[:, None] + sd * noise


def test_a_clear_peak_is_told_from_all_other_steps() -> None:
    peak = peak_of(around([0.2, 0.9, 0.3]))
    assert peak is not None
    assert (peak.step, peak.tied_steps, peak.first_step, peak.last_step) == (20, (20,), 20, 20)
    assert peak.value == pytest.approx(0.9)
    assert peak.kl == peak.kl_low == peak.kl_high == 1.0
    assert peak.is_told
    assert not peak.is_open
    assert peak.apart == ()


def test_the_earliest_of_equal_steps_is_the_peak_and_equals_are_tied() -> None:
    gold = around([0.2, 0.9, 0.3])
    peak = peak_of(np.concatenate([gold, gold[1:2]]))
    assert peak is not None
    assert (peak.step, peak.tied_steps) == (20, (20, 40))
    assert peak.apart == (40,)
    assert peak.is_open


def test_steps_as_good_beyond_a_gap_are_not_in_the_stretch() -> None:
    peak = peak_of(around([0.9, 0.2, 0.88, 0.91, 0.3, 0.9, 0.1]))
    assert peak is not None
    assert (peak.step, peak.first_step, peak.last_step) == (40, 30, 40)
    assert peak.apart == (10, 60)
    assert (peak.kl_low, peak.kl_high) == (0.5, 3.0)


def test_only_allowed_steps_can_be_chosen() -> None:
    gold = around([0.2, 0.9, 0.3])
    peak = peak_of(gold, [True, False, True])
    assert peak is not None
    assert (peak.step, peak.num_allowed, peak.last_allowed) == (30, 2, 30)
    assert peak_of(gold, [False] * 3) is None


def test_with_four_prompts_nothing_can_be_told() -> None:
    assert tied_with_best(around([0.0, 9.0, 3.0], num_prompts=4)).all()


def test_records_without_any_difference_are_tied() -> None:
    assert tied_with_best(np.ones((3, 64))).all()
    assert tied_with_best(np.ones((1, 64))).all()


def test_an_effect_of_the_prompts_alone_tells_nothing_apart() -> None:
    easy = np.linspace(-3, 3, 64)
    gold = around([0.2, 0.9, 0.3])
    assert tied_with_best(gold).tolist() == tied_with_best(gold + easy).tolist()


@pytest.mark.parametrize("num_prompts", [1, 2, 7, 64])
def test_the_value_is_that_told_to_the_search(num_prompts: int) -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        gold = rng.standard_normal((8, num_prompts)).round(1)  # rounded: equals occur
        steps = 10 * np.arange(1, 9)
        points = [
            EvalPoint(int(step), tuple(row), 0.1, 1.0)
            for step, row in zip(steps, gold.tolist(), strict=True)
        ]
        assert value_of_procedure(gold, steps).value == pytest.approx(cross_valued(points))


def test_the_value_is_not_biased_by_the_choice_and_its_error_is_nearly_that_of_repeats() -> None:
    rng = np.random.default_rng(3)
    steps = 10 * np.arange(1, 9)
    found = [value_of_procedure(rng.standard_normal((8, 64)), steps) for _ in range(DRAWS)]
    values = np.array([f.value for f in found])
    highest = 1.4 / math.sqrt(64)  # expected maximum of eight means
    assert abs(values.mean()) < 0.2 * highest
    share = np.mean([f.se for f in found]) / values.std()
    assert 0.8 < share < 1.05, f"{share:.2f} of the spread of {DRAWS} repeats without a true peak"


@pytest.mark.parametrize(
    "noise",
    [
        Noise(),
        Noise(tail_df=2.5),
        Noise(sample_rho=0.8),
        Noise(answer_sd=1.0, tail_df=3, sample_rho=0.6),
    ],
    ids=["plain", "heavy tails", "autocorrelated", "all"],
)
def test_all_truly_best_steps_are_in_the_set(noise: Noise) -> None:
    rng = np.random.default_rng(4)
    covered = told = 0
    kl = np.arange(1.0, 9.0)
    truth = np.concatenate([[0.0], PLATEAU])
    is_best = PLATEAU.max() == PLATEAU
    for _ in range(DRAWS):
        record = make_record(rng, lambda d: np.interp(d**2, np.arange(9.0), truth), noise, kl)
        is_tied = tied_with_best(record.gold_SN[1:], draws=499)
        covered += bool(is_tied[is_best].all())
        told += not is_tied.all()
    # A chance of 90 % reaches this in 1 of 100 cases: so the true one is above it.
    least = binomial_ceiling(DRAWS, 0.90)
    assert covered >= least, f"{covered} of {DRAWS} sets hold all best steps, {least} wanted"
    assert told > 0.9 * DRAWS, f"only {told} of {DRAWS} sets rule out any step"
