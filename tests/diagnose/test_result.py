from __future__ import annotations

import json

import pytest
from diagnose_case import run_log, trl_log

from kltune.diagnose.causes import explain
from kltune.diagnose.findings import diagnose
from kltune.diagnose.result import HEALTHY, Diagnosis, Sign
from kltune.grade import Grade
from kltune.metrics.jsonl import encode
from kltune.symptoms.curve import Quantity


@pytest.mark.parametrize("name", ["healthy", "learning_rate_x100", "beta_zero"])
def test_json_is_strict_and_holds_all(name: str) -> None:
    found = diagnose(trl_log(name))
    whole = json.loads(encode(found.as_json()))
    assert whole["condition"] == found.condition
    assert [one["name"] for one in whole["findings"]] == [one.sign.name for one in found.findings]
    assert {one["unit"] for one in whole["readings"] if one["quantity"] == "kl_token"} <= {
        "nats/token"
    }
    for one in whole["findings"]:
        assert {"detail", "numbers", "causes", "first", "grade", "first_step"} <= set(one)


def test_a_finding_that_passes_leaves_the_run_healthy() -> None:
    sign = Sign("gold_missing", Grade.PASS, 1, 9, "")
    found = _diagnosis(sign)
    assert (found.grade, found.condition) == (Grade.PASS, HEALTHY)


def test_the_condition_is_the_worst_finding_with_its_cause() -> None:
    sign = Sign("kl_stalled", Grade.FAIL, 1, 9, "", {}, "beta_too_large")
    assert _diagnosis(sign).condition == "kl_stalled (beta_too_large)"


def _diagnosis(sign: Sign) -> Diagnosis:
    found = diagnose(run_log({Quantity.KL_TOKEN: [0.0]}))
    return Diagnosis(
        path=found.path,
        framework="",
        kind="",
        steps=(1, 90),
        num_steps=90,
        findings=(explain(sign),),
        passed=("something",),
        untold=(),
        readings=(),
        facts={},
        notes=(),
    )
