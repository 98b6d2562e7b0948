from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spec_files import adaptive, minimal, problems_of

from kltune.spec.duration import seconds
from kltune.spec.study import StudySpec


def told(folder: Path, **changes: Any) -> list[str]:
    return problems_of(folder, {**minimal(), **changes})


def test_the_smallest_spec_has_sound_defaults(tmp_path: Path) -> None:
    spec = StudySpec.model_validate(minimal())
    assert spec.objective.metric == "gold_peak"
    assert spec.kl_guard is None
    assert spec.budget.slots == "auto"


def test_the_guard_defaults_to_the_limit_of_the_objective() -> None:
    spec = StudySpec.model_validate({**minimal(), "objective": {"kl_limit": 0.5}})
    assert spec.kl_guard is not None
    assert (spec.kl_guard.limit, spec.kl_guard.patience) == (0.5, 3)
    own = {**minimal(), "objective": {"kl_limit": 0.5}, "guards": {"kl": {"limit": 1}}}
    guard = StudySpec.model_validate(own).kl_guard
    assert guard is not None
    assert guard.limit == 1


@pytest.mark.parametrize(
    "budget", [{"slots": 4, "workers": 2}, {"workers": 2}, {"slots": 3}, {"slots": 1, "workers": 1}]
)
def test_slots_are_shared_by_workers(tmp_path: Path, budget: dict[str, int]) -> None:
    assert told(tmp_path, budget={"trials": 4, **budget}) == []


@pytest.mark.parametrize(("slots", "workers"), [(3, 2), (1, 2)])
def test_slots_that_workers_can_not_share_equally_are_refused(
    tmp_path: Path, slots: int, workers: int
) -> None:
    assert told(tmp_path, budget={"trials": 4, "slots": slots, "workers": workers}) == [
        f"budget.workers: {workers} can't share budget.slots {slots} equally: use one of its divisors"
    ]


def test_full_fine_tuning_is_one_trial_in_each_worker(tmp_path: Path) -> None:
    full = {"base": "builtin:kitchen", "finetune": "full"}
    for good in ({}, {"workers": 2}, {"slots": 2, "workers": 2}, {"slots": 1}):
        assert told(tmp_path, model=full, budget={"trials": 4, **good}) == []
    assert told(tmp_path, model=full, budget={"trials": 4, "slots": 4, "workers": 2}) == [
        "budget.slots: model.finetune: full trains one trial at a time in each of 2 worker(s) (got 4)"
    ]
    (line,) = told(tmp_path, model=full, budget={"trials": 4, "slots": 2})
    assert line == "budget.slots: model.finetune: full trains one trial at a time (got 2)"


@pytest.mark.parametrize("name", ["", "a b", "../x", ".hidden", "a/b", "x\n", "ä", "x" * 101])
def test_a_name_that_is_no_folder_name_is_refused(tmp_path: Path, name: str) -> None:
    (line,) = told(tmp_path, name=name)
    assert line.startswith("name: must be a folder name")


def test_a_budget_below_the_baselines_is_refused(tmp_path: Path) -> None:
    spec = {"baselines": ["verl-ppo", "deepseekmath"], "budget": {"trials": 2}}
    search = {"beta": {"log": [0.1, 1], "zero": True}}
    assert told(tmp_path, **spec) == []
    assert told(tmp_path, **spec, search=search) == [
        "budget.trials: 2 is fewer than the 3 baselines (beta = 0 arm included)"
    ]


def test_repeats_for_the_noise_floor_need_room_and_something_to_repeat(tmp_path: Path) -> None:
    budget = {"trials": 3, "noise_seeds": 3}
    zero = {"beta": {"log": [0.1, 1], "zero": True}}
    assert told(tmp_path, budget={"trials": 4, "noise_seeds": 3}, search=zero) == []
    assert told(tmp_path, budget=budget, search=zero) == [
        "budget.trials: 3 is fewer than the 4 baselines (beta = 0 arm and noise_seeds included)"
    ]
    (line,) = told(tmp_path, budget=budget, search={"beta": {"log": [0.1, 1]}})
    assert line.startswith("budget.noise_seeds: repeats the beta = 0 arm or a baseline")


def test_unknown_and_repeated_baselines_are_refused(tmp_path: Path) -> None:
    (line,) = told(tmp_path, baselines=["verl"])
    assert line.startswith("baselines: unknown recipe 'verl'; did you mean verl-ppo or ")
    assert "`kltune explain recipes` lists all; a setting of your own is written out: {" in line
    (line,) = told(tmp_path, baselines=["verl-ppo", "verl-ppo"])
    assert line.startswith("baselines.1: is called ")


def test_a_horizon_at_which_one_step_reverses_beta_is_refused(tmp_path: Path) -> None:
    spec = adaptive()  # 8 completions per step
    spec["search"]["horizon"] = 1.6
    assert problems_of(tmp_path, spec) == [
        "search.horizon: must be above 1.6 sequences (0.2 x 8 completions per step): below it, "
        "one step at KL 0 takes beta to 0 or under (got 1.6)"
    ]
    spec["search"]["horizon"] = 1.7
    assert problems_of(tmp_path, spec) == []


@pytest.mark.parametrize(
    ("text", "value"), [(90, 90), ("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200)]
)
def test_durations_are_read_in_seconds(text: object, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "m", "5x", "1 h", "-5s", "nans", "infh", "1e3s", "٣s"])
def test_other_durations_are_refused(tmp_path: Path, text: str) -> None:
    (line,) = told(tmp_path, budget={"trials": 1, "wall": text})
    assert line.startswith("budget.wall: must be seconds, or like 90s, 15m, 2h")


@pytest.mark.parametrize("wall", [0, -1, "0s", True, [1]])
def test_a_wall_clock_must_be_above_0(tmp_path: Path, wall: object) -> None:
    (line,) = told(tmp_path, guards={"wall": wall})
    assert line.startswith("guards.wall: ")


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("objective.kl_limit", {"objective": {"kl_limit": 0}}),
        ("objective.metric", {"objective": {"metric": "proxy"}}),
        ("guards.kl.limit", {"guards": {"kl": {"limit": float("nan")}}}),
        ("guards.kl.patience", {"guards": {"kl": {"limit": 1, "patience": 0}}}),
        ("pruning.warmup", {"pruning": {"warmup": 1}}),
        ("evaluate.every", {"evaluate": {"every": 0}}),
        ("evaluate", {"evaluate": None}),
        ("budget.trials", {"budget": {"trials": 0}}),
        ("budget.slots", {"budget": {"trials": 1, "slots": 0}}),
        ("budget.workers", {"budget": {"trials": 1, "workers": 0}}),
        ("budget.workers", {"budget": {"trials": 1, "workers": "all"}}),
        ("sampler.name", {"sampler": {"name": "cmaes"}}),
        ("kl_unit", {"kl_unit": "nats"}),
        ("beta_unit", {"beta_unit": "token"}),
        ("seed", {"seed": -1}),
        ("model.rank", {"model": {"base": "x", "rank": 0}}),
        ("model.base", {"model": {"base": ""}}),
    ],
)
def test_a_wrong_value_is_one_line_that_names_its_field(
    tmp_path: Path, field: str, changes: dict[str, Any]
) -> None:
    (line,) = told(tmp_path, **changes)
    assert line.startswith(f"{field}: ")
    assert "(got " in line


def test_numbers_too_large_to_mean_anything_are_refused_by_name(tmp_path: Path) -> None:
    assert problems_of(tmp_path, minimal(), f"seed={2**63}") == [
        f"seed: Input should be less than or equal to {2**63 - 1} (got {2**63})"
    ]
    (line,) = problems_of(tmp_path, minimal(), "trainer.steps=99999999999999999999999")
    assert line.startswith("trainer.steps: Input should be less than or equal to 10000000")
