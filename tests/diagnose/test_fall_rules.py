from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from diagnose_case import ramp, run_log

from kltune.diagnose.fall_rules import falls, goes_up_and_down, swing_count
from kltune.diagnose.findings import diagnose
from kltune.grade import Grade
from kltune.symptoms.curve import Quantity

RISE_AND_CRASH = [*ramp(0.3, 0.7, 60, noise=0.03), *ramp(0.05, 0.05, 40, noise=0.03)]


@pytest.mark.parametrize(
    ("reward", "kl", "grade"),
    [
        (ramp(0.7, 0.2, 100, noise=0.03), ramp(0, 10, 100), Grade.FAIL),
        (RISE_AND_CRASH, ramp(0, 10, 100), Grade.FAIL),
        (RISE_AND_CRASH, [2.0] * 100, Grade.WARN),
        ([*ramp(0.3, 0.9, 60, noise=0.03), *ramp(0.9, 0.5, 40)], ramp(0, 10, 100), Grade.WARN),
    ],
)
def test_a_reward_that_falls_is_told_and_fails_below_its_start_while_the_kl_grows(
    reward: Sequence[float], kl: Sequence[float], grade: Grade
) -> None:
    found = falls(run_log({Quantity.PROXY: reward, Quantity.KL_SEQ: kl}))
    assert found is not None
    assert (found.name, found.grade) == ("reward_falls", grade)


def test_a_fall_at_a_kl_of_0_is_no_stall_and_puts_the_log_in_doubt() -> None:
    values = {Quantity.PROXY: ramp(0.7, 0.1, 100, noise=0.03), Quantity.KL_SEQ: ramp(0, 0.04, 100)}
    (finding,) = diagnose(run_log(values)).findings
    assert finding.sign.name == "reward_falls_at_reference"
    assert [one.name for one in finding.causes][:2] == ["kl_metric_wrong", "reward_unstable"]
    assert "the run does not stand still" in finding.checks
    flat = {**values, Quantity.PROXY: ramp(0.7, 0.7, 100, noise=0.03)}
    assert diagnose(run_log(flat)).findings[0].sign.name == "kl_stalled"


def test_without_a_kl_it_warns_and_says_so() -> None:
    found = falls(run_log({Quantity.PROXY: ramp(0.7, 0.2, 100, noise=0.03)}))
    assert found is not None
    assert found.grade is Grade.WARN
    assert "no KL" in found.detail


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9])
def test_noise_is_no_fall_whether_or_not_it_remembers(memory: float) -> None:
    draw = random.Random(3)
    seen = 0
    for _ in range(60):
        state, reward = 0.0, list[float]()
        for i in range(80):
            state = memory * state + draw.gauss(0, 0.05)
            reward.append(0.3 + 0.4 * min(1, i / 30) + state)
        run = run_log({Quantity.PROXY: reward, Quantity.PROXY_STD: [0.3] * 80})
        seen += falls(run) is not None or goes_up_and_down(run) is not None
    assert seen <= 1


def test_a_bad_last_step_is_no_fall() -> None:
    reward = [*ramp(0.3, 0.7, 98, noise=0.03), 0.0, 0.0]
    assert falls(run_log({Quantity.PROXY: reward})) is None


def test_a_reward_that_comes_and_goes_swings() -> None:
    reward = [0.5 + 0.3 * math.sin(i / 5) + 0.02 * (-1) ** i for i in range(200)]
    run = run_log({Quantity.PROXY: reward, Quantity.PROXY_STD: [0.3] * 200})
    found = goes_up_and_down(run)
    assert found is not None
    assert (found.name, found.grade) == ("reward_swings", Grade.WARN)
    assert found.numbers["swings"] == swing_count(run.curve.known(Quantity.PROXY), 0.3)[0] == 6
    wide = run_log({Quantity.PROXY: reward, Quantity.PROXY_STD: [2.0] * 200})
    assert goes_up_and_down(wide) is None


def test_too_few_rewards_tell_nothing() -> None:
    assert falls(run_log({Quantity.PROXY: ramp(1, 0, 11)})) is None
