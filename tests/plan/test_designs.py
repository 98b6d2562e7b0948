from __future__ import annotations

from dataclasses import replace

import pytest

from kltune.plan.designs import (
    SAMPLES,
    SEEDS,
    Price,
    cheapest,
    purposes,
    round_differences,
    seen,
)
from kltune.plan.noise import Scenario
from kltune.statistics.power import Design, Noise, power

NOISE = Noise(seed=0.004, seed_correlation=0.0, prompt=0.1, prompt_seed=0.0, sample=0.7)
SCENARIO = Scenario("middle", "", NOISE)
PRICE = Price(train=16.0, judged=0.002, evaluations=9, is_timed=True, words="")
CONFIRM, SWEEP = purposes(24, 3, (78, 256))


def test_the_cheapest_design_sees_it_and_nothing_cheaper_does() -> None:
    need = cheapest(0.2, SCENARIO, SWEEP, PRICE, 0.8)
    assert need.design is not None
    assert power(0.2, NOISE, need.design) >= 0.8
    assert need.cost == pytest.approx(PRICE.of(need.design))
    cheaper = [
        design
        for seeds in SEEDS
        for prompts in (16, 32, 64, 78)
        for samples in SAMPLES
        if PRICE.of(design := replace(need.design, seeds=seeds, prompts=prompts, samples=samples))
        < need.cost
    ]
    assert not any(power(0.2, NOISE, design) >= 0.8 for design in cheaper)


def test_a_smaller_difference_costs_more() -> None:
    costs = [cheapest(d, SCENARIO, CONFIRM, PRICE, 0.8).cost for d in (0.4, 0.2, 0.1)]
    assert all(cost is not None for cost in costs)
    assert costs == sorted(costs, key=lambda cost: cost or 0.0)


def test_more_prompts_than_there_are_come_last() -> None:
    few = replace(CONFIRM, available=16)
    hard = Scenario("x", "", replace(NOISE, seed=0.0, prompt=0.5))
    need = cheapest(0.1, hard, few, PRICE, 0.8)
    assert need.design is not None
    assert need.design.prompts > 16
    easy = cheapest(1.0, hard, few, PRICE, 0.8)
    assert easy.design is not None
    assert easy.design.prompts <= 16


def test_what_no_design_sees_is_said_to_be_out_of_reach() -> None:
    need = cheapest(1e-4, SCENARIO, SWEEP, PRICE, 0.8)
    assert (need.design, need.cost) == (None, None)


def test_the_price_counts_every_run_and_every_evaluation() -> None:
    price = Price(train=100.0, judged=1.0, evaluations=3, is_timed=False, words="")
    assert price.of(Design(2, 10, 4, settings=5)) == 2 * 5 * (100 + 3 * 40)


def test_a_confirmation_compares_its_few_and_a_sweep_all() -> None:
    assert (CONFIRM.settings, CONFIRM.comparisons, CONFIRM.available) == (6, 5, 256)
    assert (SWEEP.settings, SWEEP.comparisons, SWEEP.available) == (24, 23, 78)


def test_a_study_of_one_trial_sees_pairs_only() -> None:
    assert {one.comparisons for one in seen((SCENARIO,), 64, 2, 1, 0.8)} == {1}
    assert {one.comparisons for one in seen((SCENARIO,), 64, 2, 24, 0.8)} == {1, 24}


def test_differences_of_the_table_have_one_digit() -> None:
    assert round_differences(0.47) == (0.5, 0.2, 0.1, 0.05)
