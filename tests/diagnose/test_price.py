from __future__ import annotations

import pytest
from diagnose_case import ramp, run_log, trl_log

from kltune.diagnose.price import coefficient, is_paid_in_reward, lacks_price, yardstick
from kltune.symptoms.curve import Quantity


def test_what_the_log_has_comes_first() -> None:
    logged = run_log({Quantity.BETA: [0.1, 0.2, 0.3]}, facts={"beta": 9.0})
    found = coefficient(logged)
    assert found is not None
    assert (found.value, found.how) == (0.2, "")
    set_so = coefficient(run_log({}, facts={"beta": 9.0}))
    assert set_so is not None
    assert set_so.value == 9.0


def test_a_loss_that_follows_the_kl_tells_the_coefficient() -> None:
    found = coefficient(trl_log("beta_huge"))
    assert found is not None
    assert found.value == pytest.approx(1000, rel=0.03)
    assert "not in the log" in found.how


@pytest.mark.parametrize("name", ["healthy", "learning_rate_x100", "over_optimised"])
def test_a_loss_that_does_not_follow_it_tells_nothing(name: str) -> None:
    assert coefficient(trl_log(name)) is None


def test_the_kl_part_of_the_loss_tells_it_exactly() -> None:
    kl = ramp(0.0, 0.2)
    run = run_log({Quantity.KL_TOKEN: kl, Quantity.LOSS_KL: [0.04 * x for x in kl]})
    found = coefficient(run)
    assert found is not None
    assert found.value == pytest.approx(0.04)


@pytest.mark.parametrize(
    ("facts", "framework", "is_in_reward"),
    [
        ({"beta_unit": "reward", "penalty": "k3-loss"}, "kltune", True),
        ({"beta_unit": "native", "algorithm": "ppo"}, "kltune", False),
        ({"penalty": "k1-reward"}, "verl", True),
        ({"penalty": "low_var_kl-loss", "algorithm": "rloo"}, "verl", False),
        ({"algorithm": "rloo"}, "trl", True),
        ({}, "openrlhf", True),
        ({}, "trl", False),
    ],
)
def test_where_the_kl_is_paid(
    facts: dict[str, float | str], framework: str, *, is_in_reward: bool
) -> None:
    run = run_log({Quantity.PROXY_STD: [0.3] * 5}, facts=facts, framework=framework)
    assert is_paid_in_reward(run) == is_in_reward
    stick = yardstick(run)
    assert stick is not None
    assert stick.spread == (0.3 if is_in_reward else 1.0)


def test_without_a_spread_a_price_in_the_reward_has_nothing_to_be_held_against() -> None:
    run = run_log({}, facts={"beta": 0.1, "penalty": "k1-reward"})
    assert yardstick(run) is None
    assert lacks_price(run) == "spread of the reward"
    assert lacks_price(run_log({})) == "KL coefficient"
    assert lacks_price(run_log({}, facts={"beta": 0.1})) == ""
