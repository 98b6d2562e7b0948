from __future__ import annotations

import math
from dataclasses import replace

import pytest
from diagnose_case import ramp, run_log, trl_log

from kltune.diagnose.findings import RULES, diagnose, ruled_out
from kltune.diagnose.result import HEALTHY, SHORT, UNTOLD
from kltune.grade import Grade
from kltune.symptoms.curve import Quantity


@pytest.mark.parametrize(
    ("name", "condition", "grade"),
    [
        ("healthy", HEALTHY, Grade.PASS),
        ("beta_zero", "reference_kl_missing (beta_zero)", Grade.WARN),
        ("beta_huge", "kl_stalled (beta_too_large)", Grade.FAIL),
        ("learning_rate_x100", "kl_explosion (learning_rate_too_high)", Grade.FAIL),
        ("no_spread", "kl_stalled (no_group_spread)", Grade.FAIL),
        ("over_optimised", "over_optimised", Grade.FAIL),
    ],
)
def test_what_trl_logged_is_named_right(name: str, condition: str, grade: Grade) -> None:
    found = diagnose(trl_log(name))
    assert (found.condition, found.grade) == (condition, grade)


def test_trl_logs_are_in_nats_per_token_and_shown_per_sequence_too() -> None:
    found = diagnose(trl_log("learning_rate_x100"))
    units = {one.quantity: (one.unit, one.estimator, one.is_certain) for one in found.readings}
    assert units[Quantity.KL_TOKEN] == ("nats/token", "k3", True)
    assert units[Quantity.KL_SEQ] == ("nats/sequence", "k3", True)
    detail = found.findings[0].sign.detail
    assert "nats/token (" in detail
    assert "nats/sequence)" in detail


def test_the_coefficient_that_trl_does_not_log_is_read_off_its_loss() -> None:
    detail = diagnose(trl_log("beta_huge")).findings[0].sign.detail
    # It ran with 1000.
    assert "beta 992" in detail
    assert "not in the log" in detail


def test_the_first_thing_to_do_is_that_of_the_cause() -> None:
    found = diagnose(trl_log("no_spread")).findings[0]
    assert found.causes[0].name == "no_group_spread"
    assert found.first == found.causes[0].first
    assert "rewards of one group" in found.first


def test_a_loss_that_starts_at_0_and_rises_is_no_finding() -> None:
    """Field cases A34 and E4: the value of a centred loss is about beta x KL."""
    values = {
        Quantity.LOSS: [0.0, 0.0, *ramp(0.001, 0.02, 38)],
        Quantity.PROXY: ramp(0.0, 0.8, noise=0.05),
        Quantity.PROXY_STD: [0.9] * 40,
        Quantity.KL_TOKEN: ramp(0.0, 0.05),
        Quantity.KL_SEQ: ramp(0.0, 2.0),
        Quantity.GRAD_NORM: [0.2] * 40,
    }
    found = diagnose(run_log(values, estimators={Quantity.KL_TOKEN: "k3"}))
    assert found.grade is Grade.PASS
    assert found.condition == HEALTHY


def test_a_positive_k3_raises_no_alert_of_a_negative_kl() -> None:
    """Field case A2: the metric is k3 (0.05743), the signed mean (-0.0667) is k1 and nowhere logged."""
    values = {Quantity.KL_TOKEN: [0.057430] * 20}
    run = run_log(values, steps=range(10, 30), estimators={Quantity.KL_TOKEN: "k3"})
    found = diagnose(run)
    assert found.findings == ()
    assert any("k1" in lacks for lacks, _ in found.untold)


def test_what_the_log_lacks_is_said_and_not_passed() -> None:
    found = diagnose(run_log({Quantity.KL_TOKEN: ramp(0.0, 0.05)}))
    asked = {title for _, title in found.untold}
    assert "gold holds what it reached" in asked
    assert "beta lets the policy move" in asked
    assert asked.isdisjoint(found.passed)


def test_an_empty_log_is_not_healthy() -> None:
    found = diagnose(run_log({}))
    assert found.condition != HEALTHY
    assert found.steps is None
    assert found.condition in {UNTOLD, "reference_kl_missing"}


def test_the_same_thing_is_told_once() -> None:
    values = {Quantity.KL_TOKEN: [*ramp(0.0, 0.1, 20), *[6.0] * 20]}
    found = diagnose(run_log(values))
    assert [one.sign.name for one in found.findings] == ["kl_explosion"]


def test_the_worst_comes_first() -> None:
    values = {
        Quantity.KL_TOKEN: ramp(0.0, 3.0),
        Quantity.ENTROPY: ramp(1.0, 0.05),
        Quantity.LENGTH: ramp(10.0, 40.0),
    }
    grades = [one.sign.grade for one in diagnose(run_log(values)).findings]
    assert grades == [Grade.FAIL, Grade.WARN, Grade.WARN]


def test_causes_that_the_log_rules_out_are_not_listed() -> None:
    run = trl_log("learning_rate_x100")
    assert {"set_up", "no_group_spread"} <= ruled_out(run)
    names = [cause.name for cause in diagnose(run).findings[0].causes]
    assert names[0] == "learning_rate_too_high"
    assert "set_up" not in names
    late = replace(run, curve=replace(run.curve, steps=tuple(s + 9 for s in run.curve.steps)))
    assert "set_up" not in ruled_out(late)


@pytest.mark.parametrize("name", ["healthy", "learning_rate_x100", "over_optimised", "no_spread"])
def test_every_check_stands_in_one_place(name: str) -> None:
    found = diagnose(trl_log(name))
    answered = [title for one in found.findings for title in one.checks]
    places = [*answered, *found.passed, *(title for _, title in found.untold)]
    assert len(places) == len(set(places))
    assert {rule.title for rule in RULES if not rule.is_optional} <= set(places)


def test_what_follows_from_a_finding_is_told_with_it() -> None:
    finding = diagnose(trl_log("learning_rate_x100")).findings[0]
    assert "the KL does not jump" in finding.checks
    assert "with it: the KL jumped within a step" in finding.sign.detail


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_few_rows_pass_nothing_that_needs_a_course(count: int) -> None:
    run = trl_log("healthy")
    curve = run.curve.up_to(run.curve.steps[count - 1])
    found = diagnose(replace(run, curve=curve))
    assert (found.condition, found.grade) == (SHORT, Grade.PASS)
    assert {"the KL stays bounded", "the KL does not jump", "the length holds"}.isdisjoint(
        found.passed
    )


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-30, math.inf, math.nan])
@pytest.mark.parametrize("count", [1, 3, 9, 25])
def test_no_log_breaks_a_rule(value: float, count: int) -> None:
    found = diagnose(run_log({quantity: [value] * count for quantity in Quantity}))
    answered = [title for one in found.findings for title in one.checks]
    places = [*answered, *found.passed, *(title for _, title in found.untold)]
    assert len(places) == len(set(places))


def test_a_log_that_begins_late_does_not_tell_where_the_policy_started() -> None:
    found = diagnose(run_log({Quantity.KL_TOKEN: ramp(0.0, 0.1)}, steps=range(10, 410, 10)))
    assert "the policy starts at its reference" in {title for _, title in found.untold}


def test_rules_ask_different_questions() -> None:
    titles = [rule.title for rule in RULES]
    assert len(set(titles)) == len(titles)
