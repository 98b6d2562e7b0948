from __future__ import annotations

import json

import pytest
from plan_case import PLAN, UNTIMED

from kltune.metrics.jsonl import encode
from kltune.plan.result import PlanResult


@pytest.mark.parametrize("plan", [PLAN, UNTIMED], ids=["timed", "untimed"])
def test_a_plan_comes_back_from_its_json(plan: PlanResult) -> None:
    text = encode(plan.as_json())
    back = PlanResult.from_json(json.loads(text, parse_constant=pytest.fail))
    assert encode(back.as_json()) == text
    assert back.scenarios == plan.scenarios


def test_minutes_are_given_only_where_time_was_measured() -> None:
    timed, untimed = PLAN.as_json()["needs"], UNTIMED.as_json()["needs"]
    assert all(need["completions"] is None for need in timed)
    assert all(need["minutes"] is None for need in untimed)
    assert any(need["minutes"] for need in timed)
    assert any(need["completions"] for need in untimed)
