from __future__ import annotations

import math

import pytest

from kltune.guard.finite import judge_finite
from kltune.metrics.record import StepMetrics
from kltune.trial.outcome import StopReason


def step(kl: float = 0.1, is_finite: bool = True, **values: float) -> StepMetrics:
    named = {name.replace("__", "/"): value for name, value in values.items()}
    return StepMetrics(0, 0, 7, kl, 10 * kl, 0.0, 0.1, 80, is_finite, named)


@pytest.mark.parametrize("kl", [math.nan, math.inf])
def test_a_kl_that_is_not_finite_is_diverged(kl: float) -> None:
    verdict = judge_finite(step(kl))
    assert verdict is not None
    assert verdict.reason is StopReason.DIVERGED
    assert verdict.detail.startswith(f"not finite at step 7: kl/exact_token = {kl}")


def test_tokens_loss_and_gradients_are_named() -> None:
    verdict = judge_finite(step(is_finite=False, train__loss=math.nan, train__nonfinite_tokens=3))
    assert verdict is not None
    assert verdict.detail == "not finite at step 7: train/loss = nan, 3 valid tokens"


def test_what_a_finite_step_leaves_unmeasured_is_no_divergence() -> None:
    assert judge_finite(step(kl__k1_seq_se=math.nan, time__score_s=math.nan)) is None
