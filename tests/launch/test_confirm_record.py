"""Runs on disk are matched with a design: what is there is used again, what is not is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from confirm_runs_case import DESIGN, PROMPTS, WHERE, train
from small_search import stop_after

from kltune.errors import RunError
from kltune.launch.confirm_record import (
    find_runs,
    gold_array,
    recorded_array,
    scored_array,
    whole_seeds,
)
from kltune.study.repeat import repeat
from kltune.tasks.scorers import function_scorer
from tests.fake_bank import FakeBank


def test_an_empty_folder_misses_every_run_seed_by_seed(tmp_path: Path) -> None:
    runs = find_runs(tmp_path, DESIGN)
    assert not runs.judged
    assert [run.number for run in runs.missing] == list(range(9))
    assert [run.setting.seed for run in runs.missing] == [11] * 3 + [12] * 3 + [13] * 3
    assert [run.stop for run in runs.missing[:3]] == [8, 4, 0]


def test_finished_runs_are_used_again_by_a_design_with_more_seeds(tmp_path: Path) -> None:
    train(tmp_path, replace(DESIGN, seeds=(11, 12)))
    runs = find_runs(tmp_path, DESIGN)
    assert len(runs.judged) == 6
    assert [run.number for run in runs.missing] == [6, 7, 8]
    assert {run.setting.seed for run in runs.missing} == {13}


@pytest.mark.parametrize("change", [{"digest": "other"}, {"samples": 3}, {"num_prompts": 8}])
def test_runs_on_other_prompts_are_not_used_again(
    tmp_path: Path, change: dict[str, object]
) -> None:
    train(tmp_path, DESIGN)
    assert not find_runs(tmp_path, DESIGN).missing
    assert len(find_runs(tmp_path, replace(DESIGN, **change)).missing) == 9  # type: ignore[arg-type]


def test_another_stop_is_another_run(tmp_path: Path) -> None:
    train(tmp_path, DESIGN)
    later = replace(DESIGN.arms[0], stop=9)
    runs = find_runs(tmp_path, replace(DESIGN, arms=(later, *DESIGN.arms[1:])))
    assert [run.stop for run in runs.missing] == [9, 9, 9]


def test_an_interrupted_run_keeps_its_number_and_counts_attempts(tmp_path: Path) -> None:
    end = repeat(
        FakeBank(num_slots=1),
        find_runs(tmp_path, DESIGN).missing,
        WHERE(tmp_path),
        should_stop=stop_after(5),
    )
    assert end.reason is not None
    runs = find_runs(tmp_path, DESIGN)
    assert (runs.missing[0].number, runs.missing[0].attempt) == (0, 2)
    train(tmp_path, DESIGN)
    assert not find_runs(tmp_path, DESIGN).missing
    assert len(list((tmp_path / "runs").iterdir())) == 9


def test_values_are_by_seed_setting_and_prompt(tmp_path: Path) -> None:
    train(tmp_path, DESIGN)
    judged = find_runs(tmp_path, DESIGN).judged
    seeds = whole_seeds(DESIGN, judged)
    assert seeds == (0, 1, 2)
    values = gold_array(DESIGN, judged, seeds)
    assert values.shape == (3, 3, 4)
    assert values[1, 0].tolist() == list(judged[1, 0].gold_by_prompt)
    short = {cell: run for cell, run in judged.items() if cell != (1, 2)}
    assert whole_seeds(DESIGN, short) == (0, 2)


def test_a_second_gold_scores_the_very_same_completions(tmp_path: Path) -> None:
    train(tmp_path, DESIGN)
    judged = find_runs(tmp_path, DESIGN).judged

    def digits(completions: list[str], food: list[str]) -> list[float]:
        return [
            float(c.split()[-1]) + (100 if f == "egg" else 0)
            for c, f in zip(completions, food, strict=True)
        ]

    values = scored_array(function_scorer("d", digits), PROMPTS, DESIGN, judged, (0, 1, 2))
    assert values.shape == (3, 3, 4)
    # The completion ends in its place, 0 to 7; two of them per prompt; the first prompt's food is egg.
    assert np.allclose(values, np.array([0.5 + 100, 2.5, 4.5, 6.5]))
    assert np.allclose(recorded_array("short", DESIGN, judged, (0,)), [1, 5, 9, 13])

    def none(completions: list[str]) -> list[None]:
        return [None] * len(completions)

    with pytest.raises(RunError, match="a gold must score all"):
        scored_array(function_scorer("n", none), PROMPTS, DESIGN, judged, (0, 1, 2))
