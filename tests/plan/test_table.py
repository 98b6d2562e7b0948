from __future__ import annotations

import io

import pytest
from plan_case import PLAN, UNTIMED
from rich.console import Console

from kltune.plan.result import PlanResult
from kltune.plan.table import plan_table


def shown(plan: PlanResult, width: int = 100) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(plan_table(plan))
    return text.getvalue()


def on_one_line(text: str) -> str:
    return " ".join(text.split())


def test_every_number_has_its_unit() -> None:
    text = shown(PLAN)
    assert "gold or more" in text
    assert " min " in text
    assert "80% chance" in text
    assert "Seed variance not measured" in text


def test_what_is_out_of_reach_is_said_and_prompts_that_are_lacking_are_marked() -> None:
    text = shown(PLAN)
    assert "out of reach" in text
    assert "* " in text
    assert "more prompts than there are (256 for confirm and 78 for sweep)" in on_one_line(text)


def test_without_a_time_completions_are_counted() -> None:
    text = shown(UNTIMED)
    assert "completions" in text
    assert " min " not in text


@pytest.mark.parametrize("width", [80, 60])
def test_it_fits_the_terminal(width: int) -> None:
    assert max(map(len, shown(PLAN, width).splitlines())) <= width
