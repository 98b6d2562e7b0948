from __future__ import annotations

import struct

import pytest
from diagnose_case import ramp, run_log

from kltune.diagnose import reward_rules
from kltune.diagnose.findings import diagnose
from kltune.diagnose.result import Sign
from kltune.grade import Grade
from kltune.symptoms.curve import Quantity


def seen(sign: Sign | None) -> Sign:
    assert sign is not None
    return sign


HUMP = [0.0, 0.5, 1.0, 1.1, 0.8, 0.4, 0.1, -0.2]


def test_gold_past_its_peak_while_the_proxy_rises_is_over_optimisation() -> None:
    values = {
        Quantity.GOLD: HUMP,
        Quantity.GOLD_SE: [0.05] * 8,
        Quantity.PROXY: ramp(0, 2, 8),
        Quantity.KL_TOKEN: ramp(0, 0.7, 8),
    }
    found = seen(reward_rules.over_optimised(run_log(values)))
    assert (found.name, found.grade) == ("over_optimised", Grade.FAIL)
    assert found.numbers["peak_step"] == 4
    assert "0.3 nats/token" in found.detail


def test_gold_that_ends_above_its_start_only_warns() -> None:
    values = {Quantity.GOLD: [0.0, 1.0, 1.1, 1.0, 0.5, 0.4], Quantity.GOLD_SE: [0.05] * 6}
    assert seen(reward_rules.over_optimised(run_log(values))).grade is Grade.WARN


def test_a_fall_within_the_error_is_none() -> None:
    values = {Quantity.GOLD: [0.0, 1.0, 1.1, 1.0, 0.95, 0.9], Quantity.GOLD_SE: [0.2] * 6}
    assert reward_rules.over_optimised(run_log(values)) is None


def test_one_bad_evaluation_is_no_fall() -> None:
    values = {Quantity.GOLD: [0.0, 1.0, 1.1, 1.0, 1.1, 0.2], Quantity.GOLD_SE: [0.05] * 6}
    assert reward_rules.over_optimised(run_log(values)) is None


def test_gold_that_falls_with_the_proxy_is_not_called_over_optimisation() -> None:
    values = {
        Quantity.GOLD: HUMP,
        Quantity.GOLD_SE: [0.05] * 8,
        Quantity.PROXY: [0.0, 0.5, 1.0, 1.1, 0.9, 0.4, 0.1, -0.5],
    }
    assert seen(reward_rules.over_optimised(run_log(values))).name == "gold_drop"


def test_gold_that_only_ever_fell_is_not_called_over_optimisation() -> None:
    values = {
        Quantity.GOLD: ramp(0, -3, 8),
        Quantity.GOLD_SE: [0.05] * 8,
        Quantity.PROXY: ramp(0, 2, 8),
    }
    assert seen(reward_rules.over_optimised(run_log(values))).name == "gold_drop"


def test_four_evaluations_without_errors_are_enough_to_warn() -> None:
    """Field case E5: the best checkpoint is the second."""
    values = {
        Quantity.GOLD: [0.5, 0.6, 0.5, 0.4],
        Quantity.PROXY: [0.5, 0.7, 0.7, 0.7],
        Quantity.KL_SEQ: [1.0, 4.0, 9.0, 16.0],
    }
    found = seen(reward_rules.over_optimised(run_log(values)))
    assert (found.grade, found.numbers["peak_step"]) == (Grade.WARN, 2)


def test_noise_around_a_level_is_no_fall() -> None:
    gold = ramp(1.0, 1.0, 60, noise=0.3)
    assert reward_rules.over_optimised(run_log({Quantity.GOLD: gold})) is None


def test_without_gold_a_rising_proxy_can_not_be_told_from_over_optimisation() -> None:
    values = {Quantity.PROXY: ramp(0, 2, noise=0.1), Quantity.KL_TOKEN: ramp(0.001, 0.2)}
    found = diagnose(run_log(values))
    (finding,) = found.findings
    assert (finding.sign.name, finding.sign.grade) == ("gold_missing", Grade.PASS)
    assert "can't be told" in finding.sign.detail


def test_a_kl_that_grows_while_the_reward_stands_still_buys_nothing() -> None:
    values = {
        Quantity.PROXY: [*ramp(0, 1, 20), *ramp(1, 1, 20, noise=0.05)],
        Quantity.KL_TOKEN: [0.01 * 1.12**i for i in range(40)],
    }
    found = seen(reward_rules.drift_without_gain(run_log(values)))
    assert found.first_step == 21
    rising = {**values, Quantity.PROXY: ramp(0, 2, noise=0.05)}
    assert reward_rules.drift_without_gain(run_log(rising)) is None


def test_a_penalty_of_5000_spreads_is_named_with_the_ratio() -> None:
    """Field case E3: rewards spread by 1e-4, the penalty is 0.5."""
    values = {Quantity.PROXY_STD: [1e-4] * 20, Quantity.KL_SEQ: [10.0] * 20}
    run = run_log(values, facts={"beta": 0.05, "penalty": "k1-reward"})
    found = seen(reward_rules.dwarfs_reward(run))
    assert found.grade is Grade.WARN
    assert found.numbers["ratio"] == pytest.approx(5000)
    assert "5000 times" in found.detail


def test_a_penalty_in_the_loss_is_held_against_the_advantages() -> None:
    values = {Quantity.PROXY_STD: [1e-4] * 20, Quantity.KL_SEQ: [10.0] * 20}
    run = run_log(values, facts={"beta": 0.05, "penalty": "k3-loss"})
    assert reward_rules.dwarfs_reward(run) is None
    heavy = run_log(values, facts={"beta": 5.0, "penalty": "k3-loss"})
    assert seen(reward_rules.dwarfs_reward(heavy)).numbers["ratio"] == pytest.approx(50)


@pytest.mark.parametrize(("beta", "is_too_large"), [(0.04, False), (5.0, False), (20.0, True)])
def test_a_beta_at_which_nothing_can_be_gained_is_too_large(
    beta: float, *, is_too_large: bool
) -> None:
    run = run_log({Quantity.PROXY: ramp(0, 1)}, facts={"beta": beta, "penalty": "k3-loss"})
    assert (reward_rules.beta_too_large(run) is not None) == is_too_large


def test_a_reward_that_begins_to_swing_is_told() -> None:
    values = [*ramp(0, 0.3, 20, noise=0.02), *ramp(0.3, 0.5, 20, noise=0.5)]
    assert seen(reward_rules.swings(run_log({Quantity.PROXY: values}))).grade is Grade.WARN
    steady = run_log({Quantity.PROXY: ramp(0, 0.5, noise=0.5)})
    assert reward_rules.swings(steady) is None


def test_a_critic_below_a_constant_is_told() -> None:
    run = run_log({Quantity.EXPLAINED_VARIANCE: [0.5, 0.4, -0.1, -0.3, -0.3, -0.2]})
    assert seen(reward_rules.critic_is_blind(run)).name == "critic"
    good = run_log({Quantity.EXPLAINED_VARIANCE: [-0.5, 0.4, 0.6, 0.8]})
    assert reward_rules.critic_is_blind(good) is None


def test_a_flat_reward_while_the_kl_runs_away_from_the_first_step_buys_nothing() -> None:
    values = {
        Quantity.PROXY: ramp(0.3, 0.3, 100, noise=0.03),
        Quantity.KL_TOKEN: ramp(0.0, 0.5, 100),
    }
    found = seen(reward_rules.drift_without_gain(run_log(values)))
    assert (found.first_step, found.last_step) == (1, 100)
    near = {**values, Quantity.KL_TOKEN: ramp(0.0, 0.05, 100)}
    assert reward_rules.drift_without_gain(run_log(near)) is None


def test_the_rounding_of_float32_is_no_swing() -> None:
    """Its last digit grows with the value, so a straight line is rougher at its end than at its start."""
    straight = ramp(0.01, 0.9, 100)
    rounded = [struct.unpack("f", struct.pack("f", value))[0] for value in straight]
    assert reward_rules.swings(run_log({Quantity.PROXY: rounded})) is None


def test_without_gold_nothing_tells_progress_even_where_the_reward_is_flat() -> None:
    values = {Quantity.PROXY: ramp(0.3, 0.3, noise=0.1), Quantity.KL_TOKEN: ramp(0.001, 0.05)}
    title = "gold tells progress from over-optimisation"
    found = diagnose(run_log(values))
    assert title not in found.passed
    assert title in {one for _, one in found.untold}


def test_a_drop_that_the_trials_own_guard_saw_prompt_by_prompt_is_believed() -> None:
    values = {
        Quantity.GOLD: (0.2, 0.9, 0.8, 0.7, 0.75),
        Quantity.GOLD_SE: (0.1,) * 5,
        Quantity.PROXY: (0.1, 0.2, 0.3, 0.4, 0.5),
        Quantity.KL_TOKEN: (0.0, 0.1, 0.2, 0.3, 0.4),
    }
    assert reward_rules.over_optimised(run_log(values)) is None
    sign = reward_rules.over_optimised(run_log(values, facts={"ended_by": "gold_drop"}))
    assert sign is not None
    assert "prompt by prompt the trial's own guard saw it" in sign.detail
