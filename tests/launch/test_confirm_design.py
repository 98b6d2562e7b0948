"""Which settings are confirmed, with which stop, and how long it takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from confirm_case import study
from fake_study import trial, write_study

from kltune.confirm.design import Design
from kltune.launch.confirm_design import choose_arms, seconds_needed, stop_of
from kltune.report.recommend import Recommendation, recommend
from kltune.report.rows import StudyRows, read_study
from kltune.report.trial_cost import Work


def read(folder: Path, **spec: object) -> tuple[StudyRows, Recommendation]:
    rows = read_study(study(folder / "study", **spec))
    found = recommend(rows)
    assert isinstance(found, Recommendation)
    return rows, found


def test_the_recommended_comes_first_then_the_next_best_then_all_baselines_then_the_start(
    tmp_path: Path,
) -> None:
    rows, found = read(tmp_path)
    arms = choose_arms(rows, found, top=3)
    assert arms[0].number == found.best.number
    assert [arm.role for arm in arms] == [
        "recommended", "candidate", "candidate", "baseline", "baseline", "baseline", "start"
    ]  # fmt: skip
    assert {arm.number for arm in arms if arm.role == "baseline"} == {0, 1, 2}
    assert arms[-1].stop == 0


def test_a_setting_that_was_tried_twice_is_in_once(tmp_path: Path) -> None:
    rows, found = read(tmp_path)
    arms = choose_arms(rows, found, top=9)
    betas = [arm.setting.beta for arm in arms if arm.role in ("recommended", "candidate")]
    assert sorted(betas) == [0.05, 0.1, 0.3]  # trials 4 and 5 are the same setting


def test_a_repeat_for_the_noise_floor_is_no_rival(tmp_path: Path) -> None:
    trials = [trial(0.1, value=0.9), trial(0.3, value=0.8, origin="noise:1", seed=1)]
    rows = read_study(write_study(tmp_path / "noisy", trials))
    found = recommend(rows)
    assert isinstance(found, Recommendation)
    assert [arm.number for arm in choose_arms(rows, found, top=3)] == [0, None]


def test_the_stop_is_the_best_checkpoint_or_the_end_by_the_objective(tmp_path: Path) -> None:
    rows, found = read(tmp_path)
    assert found.best.peak is not None
    assert stop_of(found.best, rows.spec.objective) == found.best.peak.step
    at_end = rows.spec.objective.model_copy(update={"metric": "gold_final"})
    assert stop_of(found.best, at_end) == found.best.steps_run


def test_only_one_setting_with_top_1(tmp_path: Path) -> None:
    rows, found = read(tmp_path)
    assert [arm.role for arm in choose_arms(rows, found, top=1)].count("candidate") == 0


def test_time_grows_with_steps_and_shrinks_with_trials_at_once(tmp_path: Path) -> None:
    rows, found = read(tmp_path)
    cost = replace(rows.trials[0].cost, steps=Work(80, 40.0), evaluations=Work(9, 9.0))
    rows = replace(rows, trials=tuple(replace(t, cost=cost, seconds=49.0) for t in rows.trials))
    design = Design(choose_arms(rows, found, 1), (1, 2, 3), 32, 2, "d")
    busy = 49.0 * len(rows.trials)
    alone, twice = (
        replace(rows, timing={"wall_s": busy}),
        replace(rows, timing={"wall_s": busy / 2}),
    )
    # 100 steps of 0.5 s; 3 evaluations of 1 s on half as many prompts.
    assert seconds_needed(alone, design, 100, 3) == pytest.approx(51.5)
    assert seconds_needed(twice, design, 100, 3) == pytest.approx(51.5 / 2)
    unknown = replace(cost, steps=Work())
    none = replace(rows, trials=tuple(replace(t, cost=unknown) for t in rows.trials))
    assert seconds_needed(none, design, 100, 3) is None
