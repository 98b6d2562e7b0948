from __future__ import annotations

import ast
import json

import pytest

from kltune.scaffold.task_files import PROMPTS, REWARDS, SPEC, Kind, task_files


@pytest.mark.parametrize("kind", ["function", "verl", "model"])
def test_each_kind_has_prompts_of_every_split_and_functions_that_the_spec_names(kind: Kind) -> None:
    files = task_files("mine", "mine", kind)
    rows = [json.loads(line) for line in files[PROMPTS].splitlines()]
    assert {row["split"] for row in rows} == {"train", "select", "test"}
    defined = {
        node.name for node in ast.parse(files[REWARDS]).body if isinstance(node, ast.FunctionDef)
    }
    named = {"function": "proxy", "verl": "compute_score"}.get(kind)
    assert "gold" in defined
    assert "rewards.py:gold" in files[SPEC]
    if named is None:
        assert "learned: {from: gold}" in files[SPEC].replace("learned:\n      ", "learned: ")
    else:
        assert named in defined
        assert f"rewards.py:{named}" in files[SPEC]


def test_a_verl_task_has_verls_columns() -> None:
    row = json.loads(task_files("mine", "mine", "verl")[PROMPTS].splitlines()[0])
    assert {"data_source", "ground_truth"} <= row.keys()
