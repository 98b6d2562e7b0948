from __future__ import annotations

from pathlib import Path

import pytest

from kltune.scaffold.draft import render
from kltune.scaffold.sound import checked
from kltune.scaffold.start import (
    ALGORITHMS,
    LEARNED,
    PRESETS,
    RIVALS,
    Answers,
    start_draft,
)
from kltune.spec.doubts import find_doubts
from kltune.spec.load import load_spec
from kltune.spec.recipes import RECIPES
from kltune.tasks.registry import BUILTIN_TASKS

HERE = Path("spec.yaml")


def test_the_built_in_tasks_are_those_that_exist() -> None:
    assert set(PRESETS) == set(BUILTIN_TASKS)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("task", [*PRESETS, None])
def test_a_drafted_spec_loads_and_nothing_in_it_is_without_effect(
    tmp_path: Path, task: str | None, algorithm: str
) -> None:
    draft = start_draft(
        Answers("mine", task=task, model=None if task else "m", algorithm=algorithm)
    )
    path = tmp_path / "spec.yaml"
    path.write_text(render(draft), encoding="utf-8")
    spec = load_spec(path).spec
    assert spec == checked(draft, HERE).spec
    assert find_doubts(spec) == []
    assert spec.trainer.algorithm == algorithm


def test_every_line_is_explained() -> None:
    for answers in (Answers("a"), Answers("a", task=None, model="m", proxy=LEARNED)):
        assert [line.key for line in start_draft(answers).lines if not line.comment] == []


def test_rivals_are_known_recipes_of_every_algorithm() -> None:
    assert set(RIVALS) == set(ALGORITHMS)
    assert {name for names in RIVALS.values() for name in names} <= set(RECIPES)


def test_the_answers_are_in_the_spec() -> None:
    answers = Answers("mine", None, "p.txt", "a.b:gold", "c.py:proxy", "org/model", "rloo", 2.5)
    spec = checked(start_draft(answers), HERE).spec
    task = spec.task.model_dump()
    assert (task["prompts"], task["gold"], task["proxy"]) == ("p.txt", "a.b:gold", "c.py:proxy")
    assert (spec.name, spec.model.base, spec.budget.wall) == ("mine", "org/model", 150.0)


def test_a_learned_proxy_is_labelled_by_gold() -> None:
    for answers in (Answers("a", proxy=LEARNED), Answers("a", None, model="m", proxy=LEARNED)):
        task = checked(start_draft(answers), HERE).spec.task.model_dump(by_alias=True)
        assert task["proxy"]["learned"]["from"] == "gold"


def test_only_scorers_of_a_task_of_ones_own_are_functions_of_the_user() -> None:
    assert Answers("a").functions == ()
    assert Answers("a", task=None).functions == ("rewards.py:gold", "rewards.py:proxy")
    assert Answers("a", task=None, proxy=LEARNED).functions == ("rewards.py:gold",)
