from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from diagnose_case import ramp, run_log

from kltune.diagnose.result import Sign
from kltune.diagnose.runlog import RunLog
from kltune.diagnose.seen import RULES
from kltune.grade import Grade
from kltune.symptoms.curve import Quantity


def sign(title: str, run: RunLog) -> Sign | None:
    (rule,) = [rule for rule in RULES if rule.title == title]
    assert rule.lacks(run) == ""
    return rule.judge(run)


STALLED = {
    Quantity.KL_SEQ: [0.001] * 40,
    Quantity.PROXY: ramp(0.0, 0.0, noise=0.1),
    Quantity.PROXY_STD: [1.0] * 40,
}


@pytest.mark.parametrize(
    ("extra", "facts", "cause"),
    [
        ({Quantity.BETA: [50.0] * 40}, {"beta_unit": "reward"}, "beta_too_large"),
        ({}, {"beta": 50.0, "penalty": "k3-loss"}, "beta_too_large"),
        ({Quantity.PROXY_STD: [0.0] * 40}, {}, "no_group_spread"),
        ({Quantity.ADVANTAGE_STD: [0.0] * 40}, {}, "zero_advantages"),
        ({}, {"beta": 0.01}, "learning_rate_too_low"),
    ],
)
def test_a_stall_is_told_with_its_cause(
    extra: dict[Quantity, list[float]], facts: dict[str, float | str], cause: str
) -> None:
    found = sign("the run does not stand still", run_log({**STALLED, **extra}, facts=facts))
    assert found is not None
    assert (found.name, found.grade, found.cause) == ("kl_stalled", Grade.FAIL, cause)


def test_a_slow_start_is_no_stall() -> None:
    values = {
        **STALLED,
        Quantity.KL_SEQ: [*[0.001] * 25, *ramp(0.1, 9.0, 55)],
        Quantity.PROXY: [*ramp(0.0, 0.0, 25, noise=0.1), *ramp(0.0, 2.0, 55)],
        Quantity.PROXY_STD: [1.0] * 80,
    }
    assert sign("the run does not stand still", run_log(values)) is None


def test_k1_far_below_0_alerts_by_its_second_step() -> None:
    """Field case E7: k1 means of -0.4."""
    found = sign("the mean log-ratio is not negative", run_log({Quantity.K1_TOKEN: [-0.4] * 3}))
    assert found is not None
    assert (found.name, found.grade) == ("negative_kl", Grade.FAIL)
    assert found.first_step <= 2


def test_a_metric_that_is_k1_is_judged_as_such() -> None:
    run = run_log({Quantity.KL_TOKEN: [-0.4] * 3}, estimators={Quantity.KL_TOKEN: "k1"})
    assert sign("the mean log-ratio is not negative", run) is not None


def test_small_negatives_are_noise() -> None:
    """Field cases A1 and E1: -0.0667 nats per token."""
    run = run_log({Quantity.K1_TOKEN: [-0.066667] * 10})
    assert sign("the mean log-ratio is not negative", run) is None


def test_the_kl_of_other_estimators_says_nothing_of_its_sign() -> None:
    (rule,) = [rule for rule in RULES if "log-ratio" in rule.title]
    run = run_log({Quantity.KL_TOKEN: [0.1] * 5}, estimators={Quantity.KL_TOKEN: "k3"})
    assert "k1" in rule.lacks(run)


@pytest.mark.parametrize(
    ("title", "name", "values"),
    [
        ("the KL does not jump", "kl_jump", {Quantity.KL_TOKEN: [*[0.05] * 10, *[5.0] * 4]}),
        (
            "advantages keep their scale",
            "pseudo_explosion",
            {Quantity.KL_TOKEN: ramp(0.0, 1.0), Quantity.ADVANTAGE_STD: ramp(0.1, 3.0)},
        ),
        ("rewards differ within groups", "proxy_spread", {Quantity.ZERO_GROUPS: ramp(0.0, 1.0)}),
        ("the entropy holds", "entropy_collapse", {Quantity.ENTROPY: ramp(1.0, 0.01)}),
        ("the length holds", "length_growth", {Quantity.LENGTH: ramp(10, 60)}),
        ("the length holds", "length_collapse", {Quantity.LENGTH: ramp(60, 5)}),
        ("completions end by themselves", "truncation", {Quantity.TRUNCATED: ramp(0, 1)}),
        ("completions do not repeat themselves", "repetition", {Quantity.REPEATED: ramp(0, 1)}),
        (
            "the KL lies all over the tokens",
            "local_kl",
            {Quantity.KL_TOKEN: [0.1] * 10, Quantity.KL_P99_TOKEN: [15.0] * 10},
        ),
    ],
)
def test_every_symptom_becomes_a_sign(
    title: str, name: str, values: dict[Quantity, list[float]]
) -> None:
    found = sign(title, run_log(values))
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(("unit", "is_over"), [("token", True), ("sequence", False)])
def test_a_limit_is_held_against_the_kl_of_its_unit(unit: str, *, is_over: bool) -> None:
    run = run_log(
        {Quantity.KL_TOKEN: [0.6] * 5, Quantity.KL_SEQ: [0.4] * 5},
        facts={"kl_limit": 0.5, "kl_unit": unit},
    )
    assert (sign("the KL stays below its limit", run) is not None) == is_over


def test_what_passed_before_the_end_says_so() -> None:
    values = [*ramp(10, 50, 20), *ramp(50, 12, 20)]
    found = sign("the length holds", run_log({Quantity.LENGTH: values}))
    assert found is not None
    assert "not at the end any more" in found.detail
    assert found.last_step < 40


def test_values_that_are_logged_now_and_then_are_judged_among_themselves() -> None:
    every_tenth: Sequence[float] = [2.0 - i / 55 if i % 10 == 0 else math.nan for i in range(110)]
    found = sign("the entropy holds", run_log({Quantity.ENTROPY: every_tenth}))
    assert found is None
    collapsed = [v if i < 60 else v * 0.01 for i, v in enumerate(every_tenth)]
    found = sign("the entropy holds", run_log({Quantity.ENTROPY: collapsed}))
    assert found is not None
    assert "not at the end" not in found.detail


@pytest.mark.parametrize(
    ("reward", "equal", "cause"),
    [
        (ramp(0.2, 1.0), ramp(0.1, 1.0), "reward_solved"),
        ([0.0] * 40, [1.0] * 40, "no_group_spread"),
        ([*[0.0] * 20, *ramp(0.0, 0.3, 20)], [*[0.95] * 20, *[0.5] * 20], "no_group_spread"),
    ],
)
def test_a_reward_is_solved_only_where_it_rose_before_its_spread_vanished(
    reward: list[float], equal: list[float], cause: str
) -> None:
    values = {Quantity.PROXY: reward, Quantity.ZERO_GROUPS: equal}
    saturated = [*equal[:30], *[1.0] * 10] if cause == "reward_solved" else equal
    found = sign(
        "rewards differ within groups", run_log({**values, Quantity.ZERO_GROUPS: saturated})
    )
    assert found is not None
    assert found.cause == cause


@pytest.mark.parametrize(("share", "is_told"), [(1.0, True), (0.6, True), (0.3, False)])
def test_a_high_share_of_cut_completions_is_told_from_the_start(
    share: float, *, is_told: bool
) -> None:
    found = sign("completions end by themselves", run_log({Quantity.TRUNCATED: [share] * 40}))
    assert (found is not None) == is_told


def test_an_entropy_that_was_never_there_is_told() -> None:
    found = sign("the entropy holds", run_log({Quantity.ENTROPY: [1e-5] * 40}))
    assert found is not None
    assert found.name == "entropy_low"
    assert sign("the entropy holds", run_log({Quantity.ENTROPY: [0.3] * 40})) is None


def test_a_log_ratio_around_the_limit_does_not_flicker() -> None:
    found = sign(
        "the mean log-ratio is not negative",
        run_log({Quantity.K1_TOKEN: ramp(-0.1, -0.1, 100, noise=0.01)}),
    )
    assert found is not None
    assert (found.first_step, found.last_step) == (1, 100)
    assert "not at the end" not in found.detail
