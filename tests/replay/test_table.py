from __future__ import annotations

import io
from dataclasses import replace

import pytest
from replay_case import result
from rich.console import Console

from kltune.replay.result import ReplayResult
from kltune.replay.table import replay_table


def shown(found: ReplayResult) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(replay_table(found))
    return out.getvalue()


def test_a_repeated_record_is_said_first_and_has_no_differences() -> None:
    text = shown(result())
    assert text.startswith("trial 7 of kitchen: repeats the record to the last bit")
    assert "all 18 sums agree" in text
    assert "note: guards only warn" in text
    assert "What is not as it was" not in text


def test_a_parting_shows_quantities_and_what_has_changed_around_them() -> None:
    text = shown(result(0.5))
    assert "step 2: 1 of 1 quantities differ" in text
    assert "cpus: 2 in the record, 64 now" in text
    alone = shown(replace(result(0.5), surroundings=()))
    assert "Nothing that is recorded of machine, versions or threads differs." in alone


def test_sums_that_do_not_agree_are_named() -> None:
    found = result()
    assert found.traced is not None
    text = shown(replace(found, traced=replace(found.traced, wrong=("train/loss",))))
    assert "1 of 18 sums do NOT agree: train/loss" in text


@pytest.mark.parametrize("steps", [2, 3])
def test_steps_that_were_asked_but_not_run_are_told(steps: int) -> None:
    text = shown(replace(result(), steps_run=steps))
    assert ("2 run of 3 asked" in text) is (steps == 2)
