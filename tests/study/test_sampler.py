from __future__ import annotations

import optuna
import pytest

from kltune.metrics.record import RewardScale
from kltune.study.sampler import make_sampler, plan_search, planned_trials
from tests.fake_bank import small_spec


@pytest.mark.parametrize(("trials", "sobol"), [(1, 1), (2, 2), (6, 2), (10, 4), (24, 9), (100, 10)])
def test_the_startup_fits_the_budget(trials: int, sobol: int) -> None:
    plan = plan_search(small_spec(budget={"trials": trials}))
    assert (plan.fixed, plan.sobol, plan.guided) == (0, sobol, trials - sobol)


def test_fixed_trials_come_out_of_the_budget_and_the_plan_says_so() -> None:
    search = {"beta": {"log": [0.01, 1], "zero": True}}
    spec = small_spec(budget={"trials": 24}, baselines=["verl-ppo", "trl-rloo"], search=search)
    plan = plan_search(spec)
    assert plan.describe() == (
        "24 trials: 3 fixed (baselines, beta = 0), 8 Sobol points, 13 model-guided (TPE)"
    )


def test_a_given_startup_is_used() -> None:
    spec = small_spec(budget={"trials": 24}, sampler={"startup": 16})
    assert plan_search(spec).sobol == 16


def test_random_search_needs_no_startup() -> None:
    spec = small_spec(sampler={"name": "random"})
    assert plan_search(spec).describe().endswith("0 Sobol points, 6 at random")
    assert isinstance(make_sampler(spec, 0), optuna.samplers.RandomSampler)


def test_a_space_where_nothing_varies_has_no_sobol_points() -> None:
    assert plan_search(small_spec(search={"beta": 0.1})).sobol == 0


def test_the_sampler_is_made_without_a_warning() -> None:
    assert isinstance(make_sampler(small_spec(), 0), optuna.samplers.TPESampler)


def test_planned_trials_are_fixed_ones_then_settings_at_sobol_points() -> None:
    spec = small_spec(budget={"trials": 10}, baselines=["verl-ppo"])
    planned = planned_trials(spec, RewardScale(0.5, 0.5, 0.0, 8, 20.0))
    assert [p.origin for p in planned] == ["baseline:verl-ppo", "sobol", "sobol", "sobol"]
    assert len({p.setting for p in planned}) == 4


def test_repeats_for_the_noise_floor_come_out_of_the_budget() -> None:
    search = {"beta": {"log": [0.01, 1], "zero": True}}
    spec = small_spec(budget={"trials": 24, "noise_seeds": 4}, search=search)
    plan = plan_search(spec)
    assert (plan.fixed, plan.noise, plan.fixed + plan.sobol + plan.guided) == (5, 4, 24)
    assert "5 fixed (baselines, beta = 0, 4 on other seeds for the noise floor)" in plan.describe()
