from __future__ import annotations

import pytest

from kltune.spec.golds import name_problem


@pytest.mark.parametrize("name", ["retention", "a", "tone-2", "long_name", "sense"])
def test_a_plain_name_is_taken(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize("name", ["", "Tone", "2nd", "a b", "é", "a/b", "-a", "a.b", "x" * 41])
def test_a_name_that_no_metric_can_bear_is_refused_with_it(name: str) -> None:
    problem = name_problem(name)
    assert problem is not None
    assert "lowercase letters" in problem
    assert f"(got {name!r})" in problem


@pytest.mark.parametrize("name", ["gold", "se", "tone_se"])
def test_a_name_that_means_something_else_is_refused(name: str) -> None:
    problem = name_problem(name)
    assert problem is not None
    assert name in problem
