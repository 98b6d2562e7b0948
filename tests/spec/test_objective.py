from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spec_files import minimal, own_task, problems_of

from kltune.spec.load import from_resolved, resolved
from kltune.spec.objective import GoldLimit, ObjectiveSpec
from kltune.spec.study import StudySpec

KITCHEN = {"builtin": "kitchen", "golds": ["retention"]}


def told(folder: Path, also: Any, task: Any = KITCHEN) -> list[str]:
    return problems_of(folder, {**minimal(), "task": task, "objective": {"also": also}})


def test_a_gold_is_limited_below_or_in_its_drop_or_only_looked_at(tmp_path: Path) -> None:
    for limit in ({"min": -0.5}, {"max_drop": 0.1}, {}):
        assert told(tmp_path, {"retention": limit}) == []
    objective = ObjectiveSpec(also={"a": GoldLimit(min=0), "b": GoldLimit()})
    assert list(objective.gold_limits) == ["a"]


@pytest.mark.parametrize(
    ("limit", "line"),
    [
        (
            {"min": 0.5, "max_drop": 0.1},
            "objective.also.retention: give min or max_drop, not both (got min 0.5 and max_drop 0.1)",
        ),
        (
            {"max_drop": 0},
            "objective.also.retention.max_drop: Input should be greater than 0 (got 0)",
        ),
        ({"min": ".nan"}, None),
        ({"least": 1}, None),
        (0.5, None),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_by_field(
    tmp_path: Path, limit: Any, line: str | None
) -> None:
    (said,) = told(tmp_path, {"retention": limit})
    assert said.startswith("objective.also.retention")
    assert line is None or said == line


def test_a_limit_on_a_gold_that_the_task_lacks_is_refused(tmp_path: Path) -> None:
    assert told(tmp_path, {"retentoin": {"min": 0.5}}) == [
        "objective.also.retentoin: the task has no gold 'retentoin' beside the objective's; "
        "it has retention"
    ]
    assert told(tmp_path, {"x": {}}, "kitchen") == [
        "objective.also.x: the task has no gold 'x' beside the objective's; it names none in task.golds"
    ]


def test_a_limit_on_a_gold_of_ones_own_task(tmp_path: Path) -> None:
    spec = own_task(tmp_path)
    spec["task"]["golds"] = {"tone": "rewards.py:tone"}
    assert problems_of(tmp_path, {**spec, "objective": {"also": {"tone": {"min": 1}}}}) == []


def test_limits_come_back_from_the_resolved_spec() -> None:
    spec = StudySpec.model_validate(
        {**minimal(), "task": KITCHEN, "objective": {"also": {"retention": {"max_drop": 0.1}}}}
    )
    assert from_resolved(resolved(spec)) == spec
