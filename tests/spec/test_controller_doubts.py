from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spec_files import adaptive, minimal, write

from kltune.spec.controller_doubts import controller_doubts, inert_horizon
from kltune.spec.load import load_spec


def doubts(folder: Path, spec: dict[str, Any]) -> list[str]:
    return [str(doubt) for doubt in controller_doubts(load_spec(write(folder, spec)).spec)]


def of(kind: str, steps: int = 100, **control: Any) -> dict[str, Any]:
    """A spec of one controller; its target is searched where it has one and does not measure it."""
    spec = minimal()
    spec["trainer"]["steps"] = steps
    spec["search"]["controller"] = kind
    if kind != "schedule" and "calibrate" not in control:
        spec["search"]["target_kl"] = 0.05
    if kind == "proportional":
        spec["search"]["horizon"] = 64  # of 8 completions a step: gain 1 / 8
    return {**spec, "control": control}


def test_inert_horizon_is_where_beta_can_move_by_ten_percent() -> None:
    bound = inert_horizon(rows=64, steps=80)
    assert (1 + 0.2 * 64 / bound) ** 80 == pytest.approx(1.1)
    assert bound == pytest.approx(10737.5, abs=1)
    assert inert_horizon(rows=64, steps=1) == pytest.approx(128)


def test_a_horizon_that_cannot_move_beta_is_called_inert(tmp_path: Path) -> None:
    spec = adaptive()
    assert doubts(tmp_path, spec) == []
    spec["search"]["horizon"]["log"] = [8, 10_000]  # 8 completions x 20 steps: inert above 335
    (told,) = doubts(tmp_path, spec)
    assert told.startswith("search.horizon: values above 335 leave the proportional controller")
    assert "at 10,000 sequences it can raise beta by 0.3 % at most in 20 steps" in told
    spec["search"]["horizon"] = 10_000
    (told,) = doubts(tmp_path, spec)
    assert told.startswith("search.horizon: every value leave")


def test_a_sensible_controller_raises_no_doubt(tmp_path: Path) -> None:
    assert doubts(tmp_path, minimal()) == []
    assert doubts(tmp_path, of("proportional", ema=0.5, beta_min=1e-4, beta_max=10)) == []
    assert doubts(tmp_path, of("proportional", calibrate={"share": 0.1})) == []
    assert doubts(tmp_path, of("threshold")) == []
    assert doubts(tmp_path, of("threshold-1.5x")) == []
    assert doubts(tmp_path, of("threshold-1.2x")) == []
    assert doubts(tmp_path, of("schedule", schedule=[[0, 0.25], [0.1, 1]])) == []


def test_a_warm_up_shortens_the_time_in_which_a_horizon_can_act(tmp_path: Path) -> None:
    spec = of("proportional", calibrate={"share": 0.9})
    spec["search"]["horizon"] = 200  # inert above 167 in 10 steps, above 1,677 in 100
    (told,) = doubts(tmp_path, spec)
    assert told.startswith("search.horizon: every value leave the proportional controller inert")
    assert "in 10 steps of 8 completions" in told
    spec["control"]["calibrate"]["share"] = 0.1
    assert doubts(tmp_path, spec) == []


def test_a_gain_above_1_is_named_with_its_size(tmp_path: Path) -> None:
    spec = of("proportional")
    spec["search"]["horizon"] = 8
    assert doubts(tmp_path, spec) == []
    spec["search"]["horizon"] = {"choice": [4, 64]}
    (told,) = doubts(tmp_path, spec)
    assert told.startswith("search.horizon: at 4 sequences the gain n / horizon is 2 (8 compl")
    assert "up to 40 %" in told


@pytest.mark.parametrize(
    ("kind", "steps", "told"),
    [
        ("threshold-1.2x", 50, "search.controller: `threshold-1.2x` never acts: it looks every 50"),
        ("threshold-1.2x", 30, "search.controller: `threshold-1.2x` never acts"),
        ("threshold", 5, "control.threshold.every: the rule never acts: it looks every 5 steps"),
    ],
)
def test_a_rule_that_never_looks_in_time_is_named(
    tmp_path: Path, kind: str, steps: int, told: str
) -> None:
    (line,) = doubts(tmp_path, of(kind, steps))
    assert line.startswith(told)
    assert doubts(tmp_path, of(kind, steps * 2 + 1)) == []


def test_a_warm_up_takes_looks_away(tmp_path: Path) -> None:
    (line,) = doubts(tmp_path, of("threshold-1.2x", 100, calibrate={"share": 0.5}))
    assert "never acts" in line
    assert "after a warm-up of 50" in line


def test_a_rule_whose_looks_cannot_move_beta_by_ten_percent_is_inert(tmp_path: Path) -> None:
    rule = {"above": 1.1, "below": 0.9, "up": 1.02, "down": 1 / 1.02, "every": 20}
    (line,) = doubts(tmp_path, of("threshold", 100, threshold=rule))
    assert line == (
        "control.threshold.every: the rule is inert: 4 look(s) in 100 steps move beta by a factor of 1.08 "
        "at most, less than 1.1"
    )
    assert doubts(tmp_path, of("threshold", 101, threshold=rule)) == []  # 1.02 ** 5 = 1.104


def test_a_band_narrower_than_a_move_is_named(tmp_path: Path) -> None:
    rule = {"above": 1.1, "below": 0.9, "up": 1.5, "down": 1 / 1.5, "every": 5}
    (line,) = doubts(tmp_path, of("threshold", threshold=rule))
    assert line.startswith("control.threshold: the rule can't rest: its band from 0.9 to 1.1")
    assert "spans a factor of 1.22, and one move of beta is 1.5" in line
    assert doubts(tmp_path, of("threshold", threshold={**rule, "above": 1.35})) == []


def test_a_rule_that_moves_faster_than_kl_answers_is_named(tmp_path: Path) -> None:
    (line,) = doubts(tmp_path, of("threshold-ppo2017"))
    assert line.startswith("search.controller: `threshold-ppo2017` moves beta by up to 2 per step")
    assert "every 4 steps or more keeps it within 1.2 per step" in line
    assert doubts(tmp_path, of("threshold", threshold={"up": 2, "down": 0.5, "every": 4})) == []


def test_an_uneven_rule_is_named_with_its_drift(tmp_path: Path) -> None:
    (line,) = doubts(tmp_path, of("threshold-1.2x0.8"))
    assert line.startswith("search.controller: `threshold-1.2x0.8` is uneven: a rise by 1.2 and a")
    assert "leave beta at 0.96 of where it was, 0.66 after ten pairs" in line
    assert doubts(tmp_path, of("threshold", threshold={"up": 1.5, "down": 0.667})) == []


@pytest.mark.parametrize("schedule", [[[0, 1]], [[0, 1], [0.5, 1.05]], [[0, 0]]])
def test_a_schedule_that_stands_still_is_named(tmp_path: Path, schedule: list[Any]) -> None:
    (line,) = doubts(tmp_path, of("schedule", schedule=schedule))
    assert line.startswith("control.schedule: ")
    assert "it is `fixed` by another name" in line


def test_a_stage_after_the_last_step_is_named(tmp_path: Path) -> None:
    stages: list[list[float]] = [[0, 1], [0.95, 2]]
    assert doubts(tmp_path, of("schedule", 20, schedule=stages)) == []
    stages[1][0] = 0.96
    (line,) = doubts(tmp_path, of("schedule", 20, schedule=stages))
    assert line == (
        "control.schedule: the stage from 0.96 on never comes: the last of 20 steps begins at 0.95"
    )
    (line,) = doubts(tmp_path, of("proportional", 20, targets=stages))
    assert line.startswith("control.targets: the stage from 0.96")


def test_an_ema_that_cannot_answer_within_the_trial_is_named(tmp_path: Path) -> None:
    spec = of("proportional", 20, ema=0.97)
    lines = doubts(tmp_path, spec)
    assert lines[-1] == (
        "control.ema: too slow to answer: 20 steps at 0.97 take in 46 % of a lasting change of KL; "
        "half of it within the trial needs 0.966 or less"
    )
    assert all(
        "too slow" not in line for line in doubts(tmp_path, of("proportional", 20, ema=0.96))
    )


def test_an_ema_that_makes_the_loop_swing_is_named(tmp_path: Path) -> None:
    (line,) = doubts(tmp_path, of("proportional", ema=0.9))  # 9 steps late x gain 1 / 8
    assert line.startswith(
        "control.ema: the smoothed KL is 9 steps late, in which the proportional"
    )
    assert "ema 0.89 or horizon 72" in line
    assert doubts(tmp_path, of("proportional", ema=0.88)) == []
    (line,) = doubts(tmp_path, of("threshold", 200, ema=0.95))  # 1.5 ** (19 / 5) = 4.7
    assert line.startswith("control.ema: the smoothed KL is 19 steps late, in which the rule moves")
    assert doubts(tmp_path, of("threshold", 200, ema=0.9)) == []  # 1.5 ** (9 / 5) = 2.07 < 2.25


@pytest.mark.parametrize(
    ("share", "told"),
    [
        (0.99, "a warm-up of 20 of 20 steps leaves no move of beta"),
        (0.95, "a warm-up of 19 of 20 steps leaves no move of beta"),
        (0.1, "the target is measured in 2 step(s), and the first has KL 0"),
    ],
)
def test_a_warm_up_that_is_too_long_or_too_short_is_named(
    tmp_path: Path, share: float, told: str
) -> None:
    spec = of("proportional", 20, calibrate={"share": share})
    spec["search"]["horizon"] = 8
    line = doubts(tmp_path, spec)[-1]
    assert line.startswith(f"control.calibrate.share: {told}")


def test_bounds_that_leave_no_room_are_named(tmp_path: Path) -> None:
    spec = of("proportional", beta_min=0.1, beta_max=0.105)
    spec["search"]["beta"] = 0.1
    (line,) = doubts(tmp_path, spec)
    assert line == (
        "control.beta_max: beta_min and beta_max leave a factor of 1.05: every controller is inert"
    )
