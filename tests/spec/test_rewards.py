"""Rewards that are no function: told by their key, wrong ones named by field."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from kltune.spec.judge import JudgeSpec
from kltune.spec.rewards import (
    REWARD_KEYS,
    RecordedSpec,
    RewardModelSpec,
    RewardSpec,
    WinRateSpec,
    as_judged,
    columns_of,
    judge_calls,
    judge_of,
    reward_kind,
)
from kltune.spec.verifiers import CodeVerifierSpec, JsonVerifierSpec, MathVerifierSpec

JUDGE: dict[str, Any] = {"judge": "m", "url": "http://localhost:8000/v1"}
SECTIONS: list[tuple[dict[str, Any], type]] = [
    ({"model": "owner/name"}, RewardModelSpec),
    ({"verifier": "math"}, MathVerifierSpec),
    ({"verifier": "json", "schema": "s.json"}, JsonVerifierSpec),
    ({"verifier": "code"}, CodeVerifierSpec),
    (JUDGE, JudgeSpec),
    ({"recorded": "scores.jsonl"}, RecordedSpec),
    ({"win_rate": {"reference": "r.jsonl", "by": JUDGE}}, WinRateSpec),
]


def read(section: dict[str, Any]) -> Any:
    return TypeAdapter(RewardSpec).validate_python(section)


@pytest.mark.parametrize(("section", "kind"), SECTIONS)
def test_each_reward_is_told_by_the_key_that_only_it_has(
    section: dict[str, Any], kind: type
) -> None:
    made = read(section)
    assert type(made) is kind
    assert reward_kind(made) == reward_kind(section)
    assert read(made.model_dump(mode="json", by_alias=True)) == made
    assert sum(key in section for key in REWARD_KEYS) == 1


def test_a_section_without_such_a_key_is_no_reward() -> None:
    assert reward_kind({"learned": {}}) is None
    assert reward_kind("file.py:f") is None


def test_only_a_judge_costs_requests_and_a_win_rate_two() -> None:
    by_model = read({"win_rate": {"reference": "r.csv", "by": {"model": "a/b"}}})
    by_judge = read({"win_rate": {"reference": "r.csv", "by": JUDGE}})
    assert [judge_calls(s) for s in (read(JUDGE), by_judge, by_model, "f.py:g")] == [1, 2, 0, 0]
    assert judge_of(by_judge) == read(JUDGE)
    assert judge_of(by_model) is None


def test_the_columns_that_a_reward_reads_are_known_before_it_is_made() -> None:
    asked = {**JUDGE, "ask": "{food}: {prompt} / {completion}"}
    assert columns_of(read(asked)) == ("food",)
    assert columns_of(read({"win_rate": {"reference": "r.csv", "by": asked}})) == ("food",)
    assert columns_of(read({"verifier": "math", "answer": "truth"})) == ("truth",)
    assert columns_of(read({"verifier": "json", "schema_column": "s"})) == ("s",)
    assert columns_of(read({"verifier": "code"})) == ("tests",)
    assert columns_of(read({"recorded": "a.csv"})) == ()


def test_a_classifier_that_sees_no_prompt_has_no_use_for_a_template() -> None:
    with pytest.raises(ValueError, match="template: always needs the prompt"):
        read({"model": "a/b", "sees": "completion", "template": "always"})


def test_how_a_reward_is_run_is_no_part_of_what_it_judges() -> None:
    judge = {"judge": "m", "url": "http://h/v1", "scale": [0, 1], "budget": {"calls": 1}}
    assert as_judged({"gold": judge, "x": [judge]}) == {
        "gold": {"judge": "m", "scale": [0, 1]},
        "x": [{"judge": "m", "scale": [0, 1]}],
    }
    model = read({"model": "a/b", "batch": 3, "device": "cpu"}).model_dump()
    assert as_judged(model) == as_judged(read({"model": "a/b"}).model_dump())
    # The policy's own section has these keys too, and they count there.
    assert as_judged({"model": "a/b", "batch": 3}) == {"model": "a/b", "batch": 3}
