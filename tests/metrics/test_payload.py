from __future__ import annotations

import json
import math

import pytest

from kltune.metrics.payload import (
    Point,
    flatten,
    points,
    run_status,
    sample_table,
    state_tags,
    warning_tag,
)


def test_only_registered_finite_metrics_become_points() -> None:
    row = {"time": 2.5, "step": 7, "attempt": 1, "eval/gold": 0.5, "kl": 0.1, "eval/proxy": None}
    assert points([row]) == [Point("eval/gold", 0.5, 2500, 7)]
    assert points([{**row, "eval/gold": math.nan}]) == []


def test_nested_settings_become_dotted_params() -> None:
    assert flatten({"schema": 1, "a": {"b": 1e-3, "c": None}, "d": [1, "é"]}) == {
        "a.b": "0.001",
        "d": '[1, "é"]',
    }


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("complete", "FINISHED"),
        ("pruned", "KILLED"),
        ("failed", "FAILED"),
        ("interrupted", "KILLED"),
        ("running", "RUNNING"),
    ],
)
def test_each_ending_has_its_run_status(state: str, status: str) -> None:
    assert run_status(state) == status


def test_the_stop_detail_is_passed_on_word_for_word() -> None:
    detail = "kl 0.612 > 0.5 nats/token for 3 steps"
    ending = {"state": "complete", "reason": "kl_limit", "detail": detail, "feasible": False}
    tags = state_tags(ending)
    assert tags["kltune.stop_detail"] == detail
    assert tags["kltune.feasible"] == "false"


def test_a_trial_that_runs_again_loses_the_words_of_its_last_end() -> None:
    ended = state_tags({"state": "failed", "reason": "error", "detail": "x", "feasible": None})
    assert ended.keys() == state_tags(None).keys()
    assert state_tags(None)["kltune.stop_reason"] == ""


def test_the_sample_table_is_what_mlflow_reads_as_one() -> None:
    table = json.loads(sample_table([{"step": 1, "prompt": "é", "gold": 0.5}]))
    assert len(table["data"][0]) == len(table["columns"])
    assert dict(zip(table["columns"], table["data"][0], strict=True))["prompt"] == "é"


def test_further_golds_reach_the_tracker_by_name() -> None:
    row = {
        "time": 2.5,
        "step": 7,
        "eval/gold": 0.5,
        "eval/gold_tone": 0.25,
        "eval/gold_tone_se": None,
    }
    assert points([row]) == [
        Point("eval/gold", 0.5, 2500, 7),
        Point("eval/gold_tone", 0.25, 2500, 7),
    ]
    table = json.loads(sample_table([{"step": 1, "golds": {"tone": 0.25}}, {"step": 2}]))
    assert table["columns"][-1] == "gold_tone"
    assert [line[-1] for line in table["data"]] == [0.25, None]


def test_warnings_are_one_tag_in_the_guards_own_words() -> None:
    said = [
        {"guard": "truncation", "step": 30, "detail": "60 % of the completions are cut"},
        {"guard": "repetition", "step": 40, "detail": "x" * 9000},
    ]
    tag = warning_tag(said)["kltune.warnings"]
    assert tag.startswith(
        "truncation at step 30: 60 % of the completions are cut\nrepetition at step 40: x"
    )
    assert len(tag) == 5000
    assert warning_tag([]) == {"kltune.warnings": ""}
