from __future__ import annotations

from typing import Any

import pytest

from kltune.errors import RunError
from kltune.metrics.record import RewardScale
from kltune.spec.baseline import BaselineSpec
from kltune.study.space import fixed_trials
from kltune.study.written import written_setting
from kltune.units import advantage_scale, baseline_share, loss_coefficient
from tests.fake_bank import small_spec

SCALE = RewardScale(sigma=0.5, std=0.8, mean=0.0, num_groups=8, mean_tokens=20.0)


def baseline(**changes: Any) -> dict[str, Any]:
    return {"name": "mine", "penalty": "k2-loss", "beta": 0.1, "beta_in": "advantage", **changes}


def first(scale: RewardScale | None = SCALE, algorithm: str = "grpo", **given: Any) -> Any:
    changes = {k: given.pop(k) for k in ("beta_unit", "kl_unit") if k in given}
    spec = small_spec(baselines=[baseline(**given)], **changes)
    trainer = spec.trainer.model_copy(update={"algorithm": algorithm})
    return fixed_trials(spec.model_copy(update={"trainer": trainer}), scale)[0]


def test_it_is_run_under_its_name() -> None:
    assert first().origin == "baseline:mine"


@pytest.mark.parametrize("algorithm", ["grpo", "dr-grpo", "rloo", "reinforce", "ppo"])
def test_a_coefficient_is_the_one_that_the_trial_will_train_with(algorithm: str) -> None:
    for unit in ("reward", "native"):
        setting = first(algorithm=algorithm, beta_unit=unit).setting
        scale = advantage_scale(algorithm, SCALE.sigma, SCALE.std)
        group = small_spec().trainer.group_size
        share = baseline_share(algorithm, group) if unit == "reward" else 1.0
        assert share * loss_coefficient(setting.beta, unit, scale) == pytest.approx(0.1)


@pytest.mark.parametrize("unit", ["reward", "native"])
def test_a_price_in_the_reward_is_raw_reward_in_both_units(unit: str) -> None:
    paid = {"penalty": "k1-reward", "beta_unit": unit}
    assert first(beta_in="reward", **paid).setting.beta == 0.1
    assert first(beta_in="advantage", **paid).setting.beta == pytest.approx(0.05)


def test_a_raw_price_of_a_loss_becomes_its_coefficient_in_native_units() -> None:
    assert first(beta_in="reward").setting.beta == 0.1
    assert first(beta_in="reward", beta_unit="native").setting.beta == pytest.approx(0.2)


def test_targets_are_brought_to_the_studys_unit() -> None:
    steered = {"penalty": "k1-reward", "controller": "proportional", "horizon": 500}
    target = {"target_kl_seq": 6.0}
    assert first(**steered, **target).setting.target_kl == pytest.approx(0.3)
    assert first(**steered, **target, kl_unit="sequence").setting.target_kl == 6.0
    token = {"target_kl_token": 0.3}
    assert first(None, beta_in="reward", **steered, **token).setting.target_kl == 0.3
    assert first(**steered, **token, kl_unit="sequence").setting.target_kl == pytest.approx(6.0)
    assert first(**steered, **token).setting.horizon == 500


def test_without_the_scale_what_needs_it_is_refused_by_name() -> None:
    with pytest.raises(RunError, match="baseline mine: needs the proxy's scale"):
        first(None)
    assert first(None, beta_in="reward").setting.beta == 0.1
    assert first(None, algorithm="rloo").setting.beta == pytest.approx(0.1)  # divides by nothing
    flat = RewardScale(sigma=0.0, std=0.0, mean=0.0, num_groups=8, mean_tokens=20.0)
    with pytest.raises(RunError, match="baseline mine: sigma_R = 0"):
        first(flat)


def test_no_kl_is_no_kl() -> None:
    setting = first(None, penalty=None, beta=0).setting
    assert (setting.beta, setting.penalty) == (0, None)


def test_the_learning_rate_is_the_searchs_where_it_holds_one() -> None:
    given = BaselineSpec.model_validate(baseline(beta_in="reward"))
    found = written_setting(given, small_spec(), None, {"learning_rate": 3e-3})
    assert found.learning_rate == 3e-3
