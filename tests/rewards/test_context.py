"""What is missing shows when a scorer is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from kltune.errors import SpecError
from kltune.rewards.context import RewardContext
from kltune.tasks.protocol import Prompt

PROMPTS = (Prompt("p1", "a", {"answer": 0, "x": 1}), Prompt("p2", "b", {"answer": None, "x": 2}))


def test_a_prompt_without_the_column_is_named_with_those_it_has() -> None:
    context = RewardContext("task.gold", Path, PROMPTS)
    context.check_columns(["x"])
    with pytest.raises(
        SpecError,
        match=r"task\.gold: needs the column\(s\) answer, which prompt 'p2' lacks; columns there: answer, x",
    ):
        context.check_columns(["answer"])


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"task\.gold: there is no file .*a\.csv"):
        RewardContext("task.gold", tmp_path.joinpath).file("a.csv")


def test_only_the_proxy_may_leave_a_completion_unscored() -> None:
    fields = ("task.proxy", "task.proxy.weighted.1", "task.gold", "task.golds.more")
    assert [RewardContext(f, Path).must_score for f in fields] == [False, False, True, True]
