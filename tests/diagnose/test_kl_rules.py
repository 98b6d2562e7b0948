from __future__ import annotations

import math

import pytest
from diagnose_case import ramp, run_log

from kltune.diagnose import kl_rules
from kltune.diagnose.findings import diagnose
from kltune.diagnose.kl_rules import both_units
from kltune.diagnose.result import Sign
from kltune.grade import Grade
from kltune.symptoms.curve import Quantity

TOKEN, SEQ = Quantity.KL_TOKEN, Quantity.KL_SEQ


def seen(sign: Sign | None) -> Sign:
    assert sign is not None
    return sign


def test_a_kl_is_shown_per_token_and_per_sequence() -> None:
    """Field case E2: 0.05 nats per token at 40 tokens are 2 per sequence."""
    run = run_log({TOKEN: [0.05], SEQ: [2.0]})
    assert both_units(run, 1) == "0.05 nats/token (2 nats/sequence)"
    assert both_units(run_log({SEQ: [2.0]}), 1) == "2 nats/sequence"


@pytest.mark.parametrize(
    ("quantity", "top", "is_gone"), [(TOKEN, 0.9, 0), (TOKEN, 3.0, 1), (SEQ, 40, 0), (SEQ, 300, 1)]
)
def test_what_counts_as_exploded_depends_on_the_unit(
    quantity: Quantity, top: float, is_gone: int
) -> None:
    found = kl_rules.exploded(run_log({quantity: ramp(0.0, top)}))
    assert (found is not None) == bool(is_gone)


def test_one_spike_is_no_explosion() -> None:
    values = [0.01] * 40
    values[20] = 5.0
    assert kl_rules.exploded(run_log({TOKEN: values})) is None


def test_a_log_that_ends_in_the_explosion_is_one() -> None:
    found = seen(kl_rules.exploded(run_log({TOKEN: [*[0.01] * 38, 4.0, 9.0]})))
    assert (found.grade, found.first_step) == (Grade.FAIL, 39)


def test_an_explosion_that_passed_only_warns() -> None:
    values = [*[0.01] * 10, *[3.0] * 5, *[0.1] * 25]
    found = seen(kl_rules.exploded(run_log({TOKEN: values})))
    assert (found.grade, found.first_step, found.last_step) == (Grade.WARN, 11, 15)
    assert found.name == "kl_spike"


def test_what_came_back_speaks_for_a_batch_and_not_for_beta() -> None:
    values = {TOKEN: [*[0.01] * 30, *[3.0] * 5, *[0.1] * 25], Quantity.PROXY: ramp(0, 1, 60)}
    finding = diagnose(run_log(values)).findings[0]
    assert [one.name for one in finding.causes][:2] == ["one_batch", "learning_rate_too_high"]
    assert "beta_too_small" not in [one.name for one in finding.causes]


def test_an_explosion_within_steps_speaks_for_the_learning_rate() -> None:
    values = {TOKEN: [0.0, 0.01, *[6.0] * 38], Quantity.LEARNING_RATE: [0.3] * 40}
    found = seen(kl_rules.exploded(run_log(values)))
    assert found.cause == "learning_rate_too_high"
    assert "learning rate up to 0.3" in found.detail


def test_an_explosion_while_the_reward_rises_speaks_for_a_cheap_penalty() -> None:
    values = {TOKEN: ramp(0.0, 2.5), Quantity.PROXY: ramp(0.0, 2.0)}
    assert seen(kl_rules.exploded(run_log(values))).cause == "beta_too_small"


def test_the_first_logged_step_tells_no_cause() -> None:
    run = run_log({TOKEN: [6.0] * 20}, steps=range(10, 210, 10))
    found = seen(kl_rules.exploded(run))
    assert found.cause == ""
    assert "first one in the log" in found.detail


def test_a_kl_at_the_start_is_a_set_up_and_no_explosion() -> None:
    run = run_log({TOKEN: [30.0] * 20})
    assert seen(kl_rules.far_at_start(run)).name == "start_kl"
    assert kl_rules.exploded(run) is None


@pytest.mark.parametrize("start", [0.0, 1e-4, 0.02])
def test_rounding_at_the_start_is_none(start: float) -> None:
    assert kl_rules.far_at_start(run_log({TOKEN: [start, 0.1]})) is None


def test_a_later_first_step_is_no_start() -> None:
    assert kl_rules.far_at_start(run_log({TOKEN: [0.4] * 5}, steps=range(10, 15))) is None


@pytest.mark.parametrize(("estimator", "is_wrong"), [("k3", 1), ("exact", 1), ("k1", 0), ("", 0)])
def test_only_what_can_not_be_negative_is_called_so(estimator: str, is_wrong: int) -> None:
    run = run_log({TOKEN: [0.1, -0.2, 0.1]}, estimators={TOKEN: estimator})
    assert (kl_rules.impossible(run) is not None) == bool(is_wrong)


def test_a_missing_kl_is_not_a_kl_of_0() -> None:
    found = seen(kl_rules.missing(run_log({Quantity.PROXY: ramp(0, 1)})))
    assert "must not be read as a KL of 0" in found.detail
    assert found.cause == ""


def test_without_beta_trl_had_none() -> None:
    run = run_log({Quantity.PROXY: ramp(0, 1)}, framework="trl")
    assert seen(kl_rules.missing(run)).cause == "beta_zero"
    set_so = run_log({Quantity.PROXY: ramp(0, 1)}, facts={"beta": 0.0})
    assert seen(kl_rules.missing(set_so)).cause == "beta_zero"


def test_the_kl_of_an_update_is_never_taken_for_one_to_the_reference() -> None:
    """Field case E6: two distances, two names."""
    run = run_log({Quantity.UPDATE_KL_TOKEN: [2.0] * 20})
    found = seen(kl_rules.missing(run))
    assert found.cause == "update_kl_only"
    assert "KL of one update" in found.detail
    assert kl_rules.exploded(run) is None
    assert kl_rules.missing(run_log({TOKEN: [0.1] * 20})) is None


def test_only_the_distance_that_is_large_is_named() -> None:
    """Field case E6 again: each of the two fires alone."""
    large_update = run_log({Quantity.UPDATE_KL_TOKEN: [0.5] * 20, TOKEN: ramp(0, 0.1, 20)})
    assert seen(kl_rules.large_updates(large_update)).name == "large_updates"
    assert kl_rules.exploded(large_update) is None
    far = run_log({Quantity.UPDATE_KL_TOKEN: [0.001] * 20, TOKEN: ramp(0, 4, 20)})
    assert kl_rules.large_updates(far) is None
    assert kl_rules.exploded(far) is not None


@pytest.mark.parametrize(
    ("kl", "grade"), [(5e-4, None), (-5e-4, None), (0.01, Grade.WARN), (-0.5, Grade.FAIL)]
)
def test_a_sampler_that_disagrees_is_graded_by_how_much(kl: float, grade: Grade | None) -> None:
    found = kl_rules.sampler_apart(run_log({Quantity.SAMPLER_KL_TOKEN: [kl] * 10}))
    assert (found.grade if found else None) == grade


def test_a_reward_that_soars_at_a_tiny_kl_puts_the_metric_in_doubt() -> None:
    values = {Quantity.PROXY: ramp(0, 3), Quantity.PROXY_STD: [1.0] * 40, SEQ: ramp(0, 0.01)}
    found = seen(kl_rules.too_small_to_be_true(run_log(values)))
    assert found.numbers["needed_kl_seq"] > 100 * found.numbers["kl_seq"]
    assert kl_rules.too_small_to_be_true(run_log({**values, SEQ: ramp(0, 8)})) is None
    small = {**values, Quantity.PROXY: ramp(0, 0.1)}
    assert kl_rules.too_small_to_be_true(run_log(small)) is None


def test_rare_successes_need_little_kl() -> None:
    """From 1 % to 20 % of a reward of 0 or 1: 0.43 nats are enough, and no alarm."""
    proxy = [*[0.01] * 12, *ramp(0.01, 0.2, 16), *[0.2] * 12]
    spread = [math.sqrt(p * (1 - p)) for p in proxy]
    kl = [p * math.log(p / 0.01) + (1 - p) * math.log((1 - p) / 0.99) for p in proxy]
    values = {Quantity.PROXY: proxy, Quantity.PROXY_STD: spread, SEQ: kl}
    assert kl_rules.too_small_to_be_true(run_log(values)) is None


def test_infinity_is_found_wherever_it_is() -> None:
    values = {TOKEN: [0.1] * 5, Quantity.GRAD_NORM: [1.0, 1.0, math.inf, math.nan, 1.0]}
    found = seen(kl_rules.not_finite(run_log(values)))
    assert found.first_step == 3
    assert "gradient norm (step 3)" in found.detail
    assert kl_rules.not_finite(run_log({TOKEN: [0.1, math.nan]})) is None
