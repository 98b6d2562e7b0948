from __future__ import annotations

from diagnose_case import ramp, run_log

from kltune.diagnose.findings import diagnose
from kltune.diagnose.result import SHORT, Diagnosis
from kltune.diagnose.stall_rules import LEARNS
from kltune.grade import Grade
from kltune.symptoms.curve import Quantity


def found(count: int, kl: list[float], **facts: float) -> Diagnosis:
    values = {
        Quantity.KL_SEQ: kl,
        Quantity.PROXY: ramp(0.3, 0.3, count, noise=0.03),
        Quantity.PROXY_STD: [0.3] * count,
        Quantity.LEARNING_RATE: ramp(1e-6, 1e-9, count),
    }
    return diagnose(run_log(values, facts=facts))


def test_without_a_coefficient_no_cause_is_claimed() -> None:
    finding = found(100, [0.004] * 100).findings[0]
    assert (finding.condition, finding.sign.grade) == ("kl_stalled", Grade.FAIL)
    assert "learning_rate_too_low" in [one.name for one in finding.causes]
    assert "no KL coefficient" in finding.sign.detail
    assert "learning rate too small" not in finding.sign.detail


def test_with_one_that_does_not_explain_it_the_rate_is_that_of_the_run() -> None:
    finding = found(100, [0.004] * 100, beta=0.01).findings[0]
    assert finding.condition == "kl_stalled (learning_rate_too_low)"
    # The last ten steps of the decay have 5e-8 on average.
    assert "5.01e-07" in finding.sign.detail


def test_a_short_run_whose_kl_still_grows_can_not_be_told_yet() -> None:
    short = found(30, [0.0001 * i * i for i in range(30)])
    assert short.findings == ()
    assert short.condition == SHORT
    assert LEARNS not in short.passed
    assert next(lack for lack, title in short.untold if title == LEARNS).startswith("settled KL")


def test_a_short_flat_run_and_a_slow_one_warn() -> None:
    assert found(20, [0.004] * 20).findings[0].sign.grade is Grade.WARN
    assert found(100, ramp(0.0, 0.09, 100)).findings[0].sign.grade is Grade.WARN
