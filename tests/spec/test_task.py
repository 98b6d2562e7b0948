from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spec_files import minimal, problems_of

from kltune.spec.study import StudySpec
from kltune.spec.task import BuiltinTask, ProxySpec, TaskSpec

OWN = {"prompts": "p.jsonl", "proxy": "pkg.mod:score", "gold": "folder with space/r.py:gold"}


def test_a_word_is_a_built_in_task() -> None:
    task = StudySpec.model_validate({**minimal(), "task": "kitchen"}).task
    assert task == BuiltinTask(builtin="kitchen")


def test_a_section_with_prompts_is_a_task_of_ones_own() -> None:
    task = StudySpec.model_validate({**minimal(), "task": OWN}).task
    assert isinstance(task, TaskSpec)
    assert task.proxy == "pkg.mod:score"


def test_a_learned_proxy_has_defaults() -> None:
    task = {**OWN, "proxy": {"learned": {"from": "gold"}}}
    spec = StudySpec.model_validate({**minimal(), "task": task}).task
    assert isinstance(spec, TaskSpec)
    assert isinstance(spec.proxy, ProxySpec)
    assert (spec.proxy.learned.comparisons, spec.proxy.learned.label_noise) == (1500, 0.15)


@pytest.mark.parametrize("reference", ["score", "a.b:", ":f", "r.py:f()", "a-b:f", "r.py:", "a:1"])
@pytest.mark.parametrize("field", ["proxy", "gold"])
def test_a_reference_to_no_function_is_refused(tmp_path: Path, field: str, reference: str) -> None:
    spec = {**minimal(), "task": {**OWN, field: reference}}
    (line,) = problems_of(tmp_path, spec)
    assert line == (
        f"task.{field}: must look like package.module:function or file.py:function "
        f"(got {reference!r})"
    )


@pytest.mark.parametrize(
    ("learned", "field"),
    [
        ({"from": "proxy"}, "from"),
        ({"label_noise": 0.5}, "label_noise"),
        ({"comparisons": 0}, "comparisons"),
        ({"layers": 0}, "layers"),
    ],
)
def test_a_learned_proxy_is_checked(tmp_path: Path, learned: dict[str, Any], field: str) -> None:
    spec = {**minimal(), "task": {**OWN, "proxy": {"learned": learned}}}
    (line,) = problems_of(tmp_path, spec)
    assert line.startswith(f"task.proxy.learned.{field}: ")


@pytest.mark.parametrize("name", ["gold", "Tone", "tone_se", "a b"])
def test_a_gold_with_a_bad_name_is_refused_by_field_and_value(tmp_path: Path, name: str) -> None:
    task = {**OWN, "golds": {name: "r.py:f", "good": "r.py:g"}}
    (line,) = problems_of(tmp_path, {**minimal(), "task": task})
    assert line.startswith(f"task.golds.{name}: ")
    assert line.endswith(f"(got {name!r})")
    (line,) = problems_of(tmp_path, {**minimal(), "task": {"builtin": "kitchen", "golds": [name]}})
    assert line.startswith("task.golds: ")
    assert line.endswith(f"(got {name!r})")


def test_a_gold_that_is_no_function_is_refused_by_its_name(tmp_path: Path) -> None:
    (line,) = problems_of(tmp_path, {**minimal(), "task": {**OWN, "golds": {"tone": "r.py"}}})
    assert line == (
        "task.golds.tone: must look like package.module:function or file.py:function (got 'r.py')"
    )


def test_a_shipped_gold_is_named_once(tmp_path: Path) -> None:
    task = {"builtin": "kitchen", "golds": ["retention", "retention"]}
    (line,) = problems_of(tmp_path, {**minimal(), "task": task})
    assert line.startswith("task.golds: each gold once")
