from __future__ import annotations

from diagnose_case import ramp, run_log

from kltune.diagnose.findings import diagnose
from kltune.diagnose.update_rules import gradient_explodes, mostly_clipped
from kltune.grade import Grade
from kltune.symptoms.curve import Quantity


def test_a_gradient_norm_that_explodes_warns_with_its_first_step() -> None:
    found = gradient_explodes(run_log({Quantity.GRAD_NORM: [*[0.3] * 50, *ramp(1e4, 1e6, 50)]}))
    assert found is not None
    assert (found.grade, found.first_step) == (Grade.WARN, 51)


def test_a_gradient_norm_that_warms_up_or_spikes_is_none() -> None:
    assert gradient_explodes(run_log({Quantity.GRAD_NORM: ramp(0.1, 0.8, 100)})) is None
    spiked = [*[0.3] * 50, 500.0, *[0.3] * 49]
    assert gradient_explodes(run_log({Quantity.GRAD_NORM: spiked})) is None


def test_ratios_that_are_mostly_clipped_warn() -> None:
    found = mostly_clipped(run_log({Quantity.CLIP_FRAC: [0.9] * 20}))
    assert found is not None
    assert found.grade is Grade.WARN
    assert mostly_clipped(run_log({Quantity.CLIP_FRAC: [0.2] * 20})) is None


def test_both_are_asked_of_a_run_that_logs_them() -> None:
    values = {Quantity.GRAD_NORM: [0.3] * 20, Quantity.CLIP_FRAC: [0.01] * 20}
    passed = diagnose(run_log(values)).passed
    assert {"the gradient norm stays in its range", "few ratios are clipped"} <= set(passed)
