from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from spec_files import minimal

from kltune.spec.problems import Problem, describe, message
from kltune.spec.study import StudySpec


def told(**changes: Any) -> list[str]:
    try:
        StudySpec.model_validate({**minimal(), **changes})
    except ValidationError as error:
        return [str(problem) for problem in describe(error.errors(), StudySpec)]
    return []


def test_a_message_has_one_line_per_mistake_and_no_line_twice() -> None:
    problems = [Problem("a.b", "wrong"), Problem("", "all wrong"), Problem("a.b", "wrong")]
    assert message("x.yaml", problems) == "x.yaml: 2 problem(s)\n  a.b: wrong\n  all wrong"


def test_the_branches_of_a_union_are_one_problem() -> None:
    assert told(budget={"trials": 1, "slots": "many"}) == [
        "budget.slots: Input should be a valid integer, unable to parse string as an integer, "
        "or 'auto' (got 'many')"
    ]
    assert told(search={"beta": {"choice": [0.1, None]}}) == [
        "search.beta.choice.1: Input should be a valid boolean, or a valid integer, "
        "or a valid number, or a valid string (got null)"
    ]


def test_mistakes_in_a_task_are_reported_for_the_kind_that_is_meant() -> None:
    assert told(task={"builtin": "kitchen", "promts": "x"}) == [
        "task.promts: Extra inputs are not permitted (got 'x'); did you mean task.prompts?"
    ]
    assert told(task={"prompts": "p.txt", "proxy": {"learned": {"from": "x"}}, "gold": "a:b"}) == [
        "task.proxy.learned.from: Input should be 'gold' (got 'x')"
    ]
    assert told(task={"prompts": "p.txt", "proxy": "a:b"}) == ["task.gold: needed, and not given"]
    assert told(task=3) == ["task: Input should be a section of `key: value` lines (got 3)"]


def test_a_constant_and_a_section_in_its_place_are_named_alike() -> None:
    assert told(search={"beta": -1}) == ["search.beta: must not be below 0 (got -1)"]
    assert told(search={"beta": {"value": -1}}) == ["search.beta: must not be below 0 (got -1)"]
    assert told(search={"beta": [1]}) == [
        "search.beta: Input should be a section of `key: value` lines (got [1])"
    ]


def test_a_rule_between_fields_names_the_field() -> None:
    assert told(trainer={"steps": 1, "completions": 6, "group_size": 4}) == [
        "trainer.completions: 6 is not a multiple of group_size 4; "
        "group sizes that divide it: 2, 3, 6"
    ]


def test_long_values_are_cut() -> None:
    (line,) = told(seed="x" * 5000)
    assert len(line) < 200


@pytest.mark.parametrize("value", [None, True])
def test_values_are_shown_as_yaml_writes_them(value: object) -> None:
    (line,) = told(trainer={"steps": value})
    assert line.endswith({None: "(got null)", True: "(got true)"}[value])  # type: ignore[index]


def test_a_list_that_is_too_short_names_the_missing_place() -> None:
    assert told(search={"beta": {"log": [0.1]}}) == ["search.beta.log.1: needed, and not given"]
