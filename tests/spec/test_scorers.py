from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spec_files import minimal, problems_of

from kltune.spec.load import from_resolved, resolved
from kltune.spec.scorers import FunctionSpec, WeightedSpec, function_of, functions_of
from kltune.spec.study import StudySpec
from kltune.spec.task import TaskSpec

OWN = {"prompts": "p.jsonl", "proxy": "r.py:proxy", "gold": "r.py:gold"}


def task(**changes: Any) -> TaskSpec:
    found = StudySpec.model_validate({**minimal(), "task": {**OWN, **changes}}).task
    assert isinstance(found, TaskSpec)
    return found


def problems(folder: Path, **changes: Any) -> list[str]:
    return problems_of(folder, {**minimal(), "task": {**OWN, **changes}})


def test_parts_stand_in_one_section_each_with_their_weight() -> None:
    proxy = task(
        proxy={
            "weighted": [
                {"function": "r.py:Correct", "weight": 2},
                "r.py:short",
                {"verifier": "math", "weight": -1, "name": "sums"},
            ]
        }
    ).proxy
    assert isinstance(proxy, WeightedSpec)
    parts = [(part.called, part.weight) for part in proxy.weighted]
    assert parts == [("correct", 2.0), ("short", 1.0), ("sums", -1.0)]
    assert [f.function for f in functions_of(proxy)] == ["r.py:Correct", "r.py:short"]


def test_a_spec_with_every_kind_of_scorer_comes_back_from_resolved_json() -> None:
    own = {
        **OWN,
        "proxy": {"weighted": [{"function": "r.py:a", "style": "verl"}, {"verifier": "math"}]},
        "gold": {"function": "r.py:gold", "style": "trl"},
        "golds": {"right": {"verifier": "math"}, "both": {"weighted": ["r.py:c"]}},
        "timeout": "60s",
        "errors": {"action": "skip", "share": 0.2},
    }
    spec = StudySpec.model_validate({**minimal(), "task": own})
    assert from_resolved(resolved(spec)) == spec


def test_a_function_in_its_long_form_is_the_same() -> None:
    assert function_of("r.py:f") == FunctionSpec(function="r.py:f")
    assert task(proxy={"function": "r.py:f", "style": "verl"}).proxy == FunctionSpec(
        function="r.py:f", style="verl"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"proxy": {"weighted": []}}, "task.proxy.weighted: needs a part"),
        (
            {"proxy": {"weighted": ["r.py:f", "s.py:f"]}},
            "task.proxy.weighted.1.name: 'f' is part 0 too; give each part its own name",
        ),
        (
            {"proxy": {"weighted": [{"function": "r.py:f", "weight": 0}]}},
            "task.proxy.weighted: needs a part with a weight that is not 0",
        ),
        (
            {"proxy": {"weighted": [{"function": "r.py:f", "name": "A b"}]}},
            "task.proxy.weighted.0.name: must be up to 40 lowercase letters",
        ),
        (
            {"proxy": {"weighted": [{"weight": 1}]}},
            "task.proxy.weighted.0.reward: must have one of the keys function, model, verifier",
        ),
        (
            {"proxy": {"functon": "r.py:f"}},
            "task.proxy: must have one of the keys function, weighted, learned, model",
        ),
        (
            {"proxy": 3},
            "task.proxy: must be package.module:function, file.py:function, or a section",
        ),
        ({"proxy": {"function": "r.py"}}, "task.proxy.function: must look like package.module:"),
        ({"proxy": {"function": "r.py:f", "style": "v"}}, "task.proxy.style: "),
        (
            {"gold": {"learned": {}}},
            "task.gold: must have one of the keys function, weighted, model",
        ),
        ({"errors": {"share": 0}}, "task.errors.share: "),
        ({"timeout": "soon"}, "task.timeout: must be seconds, or like 90s, 15m, 2h"),
    ],
)
def test_a_mistake_is_one_line_with_its_field(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    (line,) = problems(tmp_path, **changes)
    assert line.startswith(said), line
