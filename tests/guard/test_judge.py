from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from itertools import product

from kltune.guard.judge import StepWatch, judge_steps
from kltune.metrics.record import StepMetrics
from kltune.spec.study import KLGuardSpec
from kltune.spec.trial import KLUnit
from kltune.trial.outcome import StopReason, Verdict

LIMIT = KLGuardSpec(limit=0.5, patience=3)


def step(number: int, kl: float, is_finite: bool = True, **values: float) -> StepMetrics:
    named = {name.replace("__", "/"): value for name, value in values.items()}
    return StepMetrics(0, 0, number, kl, 10 * kl, 0.0, 0.1, 80, is_finite, named)


def judge(kls: Sequence[float], unit: KLUnit = KLUnit.TOKEN, first: int = 1) -> Verdict | None:
    return judge_steps([step(first + i, kl) for i, kl in enumerate(kls)], LIMIT, unit)


def test_kl_above_the_limit_for_patience_steps_ends_the_trial_and_says_so() -> None:
    verdict = judge([0.1, 0.55, 0.6, 0.612], first=40)
    assert verdict == Verdict(
        StopReason.KL_LIMIT, "kl 0.612 > 0.5 nats/token for 3 steps (steps 41-43)"
    )


def test_one_spike_is_forgiven() -> None:
    assert judge([0.6, 0.9, 0.4]) is None
    assert judge([0.6, 0.4, 0.7, 0.8]) is None


def test_the_limit_itself_is_allowed() -> None:
    assert judge([0.5] * 9) is None


def test_a_kl_just_above_the_limit_is_not_printed_as_equal_to_it() -> None:
    verdict = judge([0.50001] * 3)
    assert verdict is not None
    assert "kl 0.50001 > 0.5" in verdict.detail


def test_the_limit_is_in_the_unit_of_the_study() -> None:
    assert judge([0.06] * 3) is None
    verdict = judge([0.06] * 3, KLUnit.SEQUENCE)
    assert verdict is not None
    assert "kl 0.6 > 0.5 nats/sequence" in verdict.detail


def test_without_a_limit_no_kl_ends_a_trial() -> None:
    assert judge_steps([step(i, 99.0) for i in range(9)], None, KLUnit.TOKEN) is None


def test_the_distance_of_one_update_never_fires_the_reference_limit() -> None:  # field case E6
    history = [step(i, 0.01, kl__update_token=9.0) for i in range(9)]
    assert judge_steps(history, LIMIT, KLUnit.TOKEN) is None


def test_a_step_that_is_not_finite_is_diverged_and_says_where() -> None:
    history = [step(1, 0.1), step(2, 0.1, False, train__loss=math.nan, train__nonfinite_tokens=3.0)]
    assert judge_steps(history, LIMIT, KLUnit.TOKEN) == Verdict(
        StopReason.DIVERGED, "not finite at step 2: train/loss = nan, 3 valid tokens"
    )


def test_a_kl_that_is_not_finite_is_diverged_although_the_step_claims_to_be_fine() -> None:
    verdict = judge([0.1, math.inf])
    assert verdict is not None
    assert verdict.reason is StopReason.DIVERGED
    assert "kl/exact_token = inf" in verdict.detail


def test_a_metric_without_a_value_is_no_divergence() -> None:
    history = [step(1, 0.1, train__advantage_std=math.nan)]
    assert judge_steps(history, LIMIT, KLUnit.TOKEN) is None


def test_a_loss_that_starts_at_zero_and_rises_is_no_reason_to_stop() -> None:  # field case E4
    history = [step(i, 0.1, train__loss=loss) for i, loss in enumerate([0, 0, 0.001, 0.004])]
    assert judge_steps(history, LIMIT, KLUnit.TOKEN) is None


def test_the_wall_clock_of_the_trial_ends_it() -> None:
    history = [step(1, 0.1)]
    assert judge_steps(history, LIMIT, KLUnit.TOKEN, 2.9, 3.0) is None
    assert judge_steps(history, LIMIT, KLUnit.TOKEN, 3.26, 3.0) == Verdict(
        StopReason.WALL_CLOCK, "ran 3.3 s > 3 s of wall clock"
    )


def test_divergence_outranks_kl_and_kl_outranks_the_wall_clock() -> None:
    over = [step(i, 0.9) for i in range(3)]
    kl = judge_steps(over, LIMIT, KLUnit.TOKEN, 9.0, 1.0)
    nan = judge_steps([*over, step(3, 0.9, False)], LIMIT, KLUnit.TOKEN, 9.0, 1.0)
    assert kl is not None
    assert nan is not None
    assert (kl.reason, nan.reason) == (StopReason.KL_LIMIT, StopReason.DIVERGED)


def test_no_guard_ends_a_trial_right_after_a_step_that_the_watch_lets_pass() -> None:
    watch = pickle.loads(pickle.dumps(StepWatch(LIMIT, KLUnit.TOKEN)))
    num_ended = 0
    for kls in product((0.1, 0.500001, 9.0, math.nan, math.inf), repeat=4):
        for is_finite in (True, False):
            history = [*(step(i, kl) for i, kl in enumerate(kls)), step(4, kls[0], is_finite)]
            if judge_steps(history, LIMIT, KLUnit.TOKEN) is not None:
                num_ended += 1
                assert watch(history[-1])
    assert num_ended > 100
    assert not watch(step(1, 0.5))
