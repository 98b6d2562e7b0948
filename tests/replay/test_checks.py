"""The sums agree for a sound step; each kind of wrong number is caught under its own name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from replay_case import traced

from kltune.metrics.trace import StepTrace
from kltune.replay.checks import Check, check_trace


def wrong(trace: StepTrace, metrics: dict[str, float]) -> list[str]:
    return [check.name for check in check_trace(trace, metrics) if not check.is_equal]


@pytest.mark.parametrize(
    "trainer", [{}, {"epochs": 2, "minibatches": 2}, {"reference": {"every": 1, "mixture": 0.5}}]
)
def test_a_sound_step_agrees_in_everything(trainer: dict[str, Any]) -> None:
    trace, metrics = traced(trainer, penalty="k2-loss", beta=1.0)
    checks = check_trace(trace, metrics)
    assert len(checks) >= 18
    assert [check for check in checks if not check.is_equal] == []


@pytest.mark.parametrize(
    "name", ["kl/exact_token", "kl/exact_seq", "kl/k1_seq", "train/reward_mean", "train/loss"]
)
def test_a_logged_number_that_is_off_by_a_thousandth_is_caught(name: str) -> None:
    trace, metrics = traced(penalty="k2-loss", beta=1.0)
    assert wrong(trace, {**metrics, name: metrics[name] * 1.001 + 1e-5}) == [name]


def changed(trace: StepTrace, **columns: float) -> StepTrace:
    """The first token of the first completion is off by so much."""
    first = trace.completions[0]
    own = {
        name: (values[0] + columns.get(name, 0.0), *values[1:])
        for name, values in first.columns.items()
    }
    return replace(trace, completions=(replace(first, columns=own), *trace.completions[1:]))


def test_a_wrong_advantage_is_caught() -> None:
    trace, metrics = traced(penalty="k2-loss", beta=1.0)
    found = wrong(changed(trace, advantage=0.01), metrics)
    assert {"advantage of each token", "loss of update 1", "train/loss_policy"} <= set(found)


def test_a_wrong_log_prob_of_the_reference_is_caught() -> None:
    trace, metrics = traced(penalty="k1-reward", beta=1.0)
    found = wrong(changed(trace, reference=-0.01), metrics)
    assert {"kl/k1_token", "kl/k1_seq", "train/reward_mean"} <= set(found)
    assert "kl/exact_token" not in found


def test_wrong_weights_are_caught() -> None:
    trace, metrics = traced({"aggregation": "seq-mean-token-mean"})
    other = replace(trace, rules={**trace.rules, "aggregation": "token-mean"})
    assert wrong(other, metrics) == ["token weights of update 1"]


def test_two_that_are_not_finite_agree_and_one_does_not() -> None:
    nan = float("nan")
    assert Check("x", "", nan, nan, 0.0).is_equal
    assert not Check("x", "", 1.0, nan, 0.1).is_equal


def test_a_step_that_is_not_finite_can_be_checked_without_a_warning() -> None:
    trace, metrics = traced(penalty="k3-loss", beta=1.0)
    assert "kl/k3_token" in wrong(changed(trace, reference=2000.0), metrics)
    assert wrong(changed(trace, policy=float("nan")), metrics) != []
