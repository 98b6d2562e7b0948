from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

import optuna
import pytest
from pydantic import ValidationError

from kltune.errors import RunError
from kltune.metrics.record import RewardScale
from kltune.spec.penalty import Penalty
from kltune.spec.recipes import RECIPES
from kltune.spec.search import SearchSpec
from kltune.spec.trial import ControllerKind, TrialSpec
from kltune.study.space import drawing_order, fixed_trials, sobol_params, suggest, varying
from tests.fake_bank import small_spec

SCALE = RewardScale(sigma=0.5, std=0.5, mean=0.0, num_groups=8, mean_tokens=20.0)


def drawn(spec, count: int = 40) -> list[tuple[TrialSpec, Mapping[str, object]]]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    found = []
    for _ in range(count):
        trial = study.ask()
        found.append((suggest(trial, spec), trial.params))
    return found


def test_a_suggestion_is_a_setting_within_the_space() -> None:
    for setting, params in drawn(small_spec()):
        assert 1e-3 <= setting.beta <= 1
        assert setting.penalty in (Penalty.K1_REWARD, Penalty.K2_LOSS)
        assert setting.learning_rate == 1e-3
        assert params["beta"] == setting.beta


def test_target_and_horizon_are_drawn_only_for_the_proportional_controller() -> None:
    kinds = set()
    for setting, params in drawn(small_spec()):
        kinds.add(setting.controller)
        has_target = setting.controller is ControllerKind.PROPORTIONAL
        assert ("target_kl" in params) == ("horizon" in params) == has_target
        assert (setting.target_kl is not None) == has_target
    assert len(kinds) == 2


def test_the_controllers_own_condition_holds_without_being_written() -> None:
    search = small_spec().search.model_dump(exclude_none=True, exclude={"target_kl", "horizon"})
    spec = small_spec(search={**search, "target_kl": {"log": [0.01, 0.1]}, "horizon": 640})
    for setting, params in drawn(spec):
        assert ("target_kl" in params) == (setting.controller is ControllerKind.PROPORTIONAL)


def test_any_condition_decides_whether_a_parameter_is_drawn() -> None:
    rate = {"log": [1e-4, 1e-2], "when": {"penalty": "k2-loss"}}
    spec = small_spec(
        search={
            "beta": 0.1,
            "penalty": {"choice": ["k1-reward", "k2-loss"]},
            "learning_rate": rate,
        }
    )
    rates = {s.learning_rate for s, _ in drawn(spec) if s.penalty is Penalty.K1_REWARD}
    assert rates == {spec.trainer.learning_rate}
    assert len({s.learning_rate for s, _ in drawn(spec) if s.penalty is Penalty.K2_LOSS}) > 5


def test_constants_are_not_suggested() -> None:
    spec = small_spec(search={"beta": {"log": [0.01, 1]}, "penalty": {"choice": ["k2-loss"]}})
    assert varying(spec.search) == ["beta"]
    for setting, params in drawn(spec, 3):
        assert list(params) == ["beta"]
        assert setting.penalty is Penalty.K2_LOSS


def test_beta_zero_among_choices_draws_no_penalty() -> None:
    spec = small_spec(
        search={"beta": {"choice": [0, 0.1]}, "penalty": {"choice": ["k1-reward", "k2-loss"]}}
    )
    zeros = [(s, p) for s, p in drawn(spec) if s.beta == 0]
    assert zeros
    assert all(s.penalty is None and "penalty" not in p for s, p in zeros)


def test_conditions_parents_are_drawn_first() -> None:
    search = SearchSpec.model_validate(
        {
            "beta": 0.1,
            "controller": {"choice": ["fixed"], "when": {"learning_rate": 0.1}},
            "learning_rate": {"choice": [0.1, 0.2]},
        }
    )
    assert drawing_order(search) == ["beta", "penalty", "learning_rate", "controller"]


def test_a_log_range_from_zero_is_refused_with_the_way_to_zero() -> None:  # field case B15
    with pytest.raises(ValidationError, match="zero: true"):
        small_spec(search={"beta": {"log": [0, 0.5]}})
    spec = small_spec(search={"beta": {"log": [0.01, 0.5], "zero": True}})
    (zero,) = fixed_trials(spec, None)
    assert (zero.origin, zero.setting.beta, zero.setting.penalty) == ("zero", 0.0, None)


def test_sobol_points_cover_every_dimension_and_drop_inactive_ones() -> None:
    search = small_spec().search
    points = sobol_params(search, 16, seed=3)
    assert len(points) == 16
    quarters = {int(4 * (_log_share(p["beta"], 1e-3, 1.0))) for p in points}
    assert quarters == {0, 1, 2, 3}
    assert [p["penalty"] for p in points].count("k1-reward") == 8
    for p in points:
        assert ("target_kl" in p) == (p["controller"] == "proportional")


def _log_share(value: object, low: float, high: float) -> float:
    assert isinstance(value, float)
    return math.log(value / low) / math.log(high / low)


def test_sobol_points_depend_on_the_seed_and_a_longer_call_begins_with_the_same() -> None:
    search = small_spec().search
    assert sobol_params(search, 9, 1)[:3] == sobol_params(search, 3, 1)
    assert sobol_params(search, 3, 1) != sobol_params(search, 3, 2)


def test_enqueued_sobol_points_are_taken_as_they_are_and_without_warning() -> None:
    spec = small_spec()
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for point in sobol_params(spec.search, 8, 0):
            study.enqueue_trial(point)
            trial = study.ask()
            suggest(trial, spec)
            assert trial.params == point


def test_recipes_are_converted_to_reward_units_and_the_studys_kl_unit() -> None:
    spec = small_spec(baselines=["trl-grpo-0.18", "verl-ppo", "ziegler-sentiment"])
    trl, verl, ziegler = (fixed.setting for fixed in fixed_trials(spec, SCALE))
    assert trl.beta == pytest.approx(0.04 * 0.5)
    assert verl.beta == 0.001
    assert (ziegler.beta, ziegler.target_kl) == (0.15, pytest.approx(6.0 / 20))
    assert ziegler.horizon == 10_000
    assert {trl.seed, verl.seed, ziegler.seed} == {spec.seed}


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_recipe_becomes_a_trial_priced_in_raw_reward(name: str) -> None:
    recipe = RECIPES[name]
    (fixed,) = fixed_trials(small_spec(baselines=[name]), SCALE)
    by = 1.0 if recipe.beta_in == "reward" else SCALE.sigma
    assert fixed.origin == f"baseline:{name}"
    assert fixed.setting.beta == pytest.approx(recipe.beta * by)
    assert fixed.setting.penalty is recipe.penalty
    (native,) = fixed_trials(small_spec(baselines=[name], beta_unit="native"), SCALE)
    assert native.setting.beta == recipe.beta


def test_in_native_units_and_nats_per_sequence_a_recipe_stays_as_published() -> None:
    spec = small_spec(
        baselines=["trl-grpo-0.18", "ziegler-sentiment"], beta_unit="native", kl_unit="sequence"
    )
    trl, ziegler = (fixed.setting for fixed in fixed_trials(spec, None))
    assert (trl.beta, ziegler.target_kl) == (0.04, 6.0)


def test_recipes_outside_the_choices_are_fixed_trials_too() -> None:
    spec = small_spec(baselines=["deepseekmath"])  # k3-loss, which the search does not have
    (fixed,) = fixed_trials(spec, SCALE)
    assert fixed.setting.penalty is Penalty.K3_LOSS


def test_a_proxy_without_spread_or_a_missing_scale_is_one_clear_error() -> None:
    spec = small_spec(baselines=["deepseekmath"])
    with pytest.raises(RunError, match=r"baseline deepseekmath: sigma_R = 0\.0"):
        fixed_trials(spec, RewardScale(0.0, 0.0, 0.0, 8, 20.0))
    with pytest.raises(RunError, match="scale under the reference first"):
        fixed_trials(spec, None)


def test_fixed_trials_use_a_constant_learning_rate_of_the_search() -> None:
    spec = small_spec(search={"beta": {"log": [0.01, 1], "zero": True}, "learning_rate": 3e-3})
    assert fixed_trials(spec, None)[0].setting.learning_rate == 3e-3


def test_the_noise_floor_repeats_beta_zero_on_seeds_of_its_own() -> None:
    search = {"beta": {"log": [0.01, 1], "zero": True}}
    spec = small_spec(
        search=search, baselines=["verl-ppo"], seed=7, budget={"trials": 8, "noise_seeds": 3}
    )
    trials = fixed_trials(spec, SCALE)
    assert [t.origin for t in trials] == [
        *["baseline:verl-ppo", "zero"],
        *["noise:8", "noise:9", "noise:10"],
    ]
    assert [t.setting.seed for t in trials] == [7, 7, 8, 9, 10]
    assert {t.setting.model_copy(update={"seed": 7}) for t in trials[1:]} == {trials[1].setting}


def test_without_beta_zero_the_first_baseline_is_repeated() -> None:
    spec = small_spec(
        baselines=["verl-ppo", "deepseekmath"], budget={"trials": 8, "noise_seeds": 1}
    )
    first, _, repeat = fixed_trials(spec, SCALE)
    assert repeat.setting == first.setting.model_copy(update={"seed": 1})
    last = small_spec(
        baselines=["verl-ppo"], seed=2**63 - 1, budget={"trials": 8, "noise_seeds": 1}
    )
    assert fixed_trials(last, SCALE)[-1].setting.seed == 0
