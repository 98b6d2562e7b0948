from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spec_files import adaptive, minimal, problems_of

from kltune.spec.penalty import Penalty
from kltune.spec.search import Dimension, SearchSpec


def told(folder: Path, **search: Any) -> list[str]:
    spec = adaptive()
    spec["search"] |= search
    return problems_of(folder, spec)


def test_a_log_range_from_0_is_refused_with_the_way_to_include_0(tmp_path: Path) -> None:
    assert told(tmp_path, beta={"log": [0, 0.5]}) == [
        "search.beta.log: both bounds must be above 0 (got [0.0, 0.5]); "
        "for a beta = 0 arm write `zero: true` beside a range above 0"
    ]
    assert told(tmp_path, beta={"log": [1e-4, 0.5], "zero": True}) == []


@pytest.mark.parametrize(
    ("beta", "line"),
    [
        ({"log": [1, 0.1]}, "search.beta.log: the first bound must be below the second"),
        ({"uniform": [1, 1]}, "search.beta.uniform: the first bound must be below the second"),
        ({"choice": []}, "search.beta.choice: at least one value is needed"),
        ({"choice": [1, 1.0]}, "search.beta.choice: values must differ"),
        ({}, "search.beta: give exactly one of log: [low, high]"),
        ({"log": [1, 2], "value": 1}, "search.beta: give exactly one of log: [low, high]"),
        (-0.1, "search.beta: must not be below 0 (got -0.1)"),
        (True, "search.beta: Input should not be a truth value (got true)"),
        ("much", "search.beta: must be a number (got 'much')"),
        ({"choice": [0.1, "x"]}, "search.beta: must be a number (got 'x')"),
        ({"log": [1, 2], "when": {"penalty": "k2-loss"}}, "search.beta.when: every trial needs"),
    ],
)
def test_an_impossible_beta_is_refused(tmp_path: Path, beta: object, line: str) -> None:
    (got,) = told(tmp_path, beta=beta)
    assert got.startswith(line)


@pytest.mark.parametrize("name", ["target_kl", "horizon"])
@pytest.mark.parametrize("value", [0, -1, {"uniform": [0, 1]}, {"choice": [0, 1]}])
def test_target_and_horizon_must_be_above_0(tmp_path: Path, name: str, value: object) -> None:
    (line,) = told(tmp_path, **{name: value})
    assert line.startswith(f"search.{name}: must be above 0 (got ")


@pytest.mark.parametrize("override", ["search.target_kl=.nan", "search.horizon=.inf"])
def test_target_and_horizon_must_be_finite(tmp_path: Path, override: str) -> None:
    (line,) = problems_of(tmp_path, adaptive(), override)
    assert line.startswith(override.split("=")[0])
    assert "finite number" in line


@pytest.mark.parametrize("beta", [0, {"choice": [0, 0.1]}, {"uniform": [0, 1]}])
def test_adaptive_from_beta_0_is_refused(tmp_path: Path, beta: object) -> None:
    (line,) = told(tmp_path, beta=beta)
    assert line.startswith("search.controller: proportional multiplies beta, so it can't leave")


def test_beta_0_is_fine_where_beta_is_fixed(tmp_path: Path) -> None:
    assert problems_of(tmp_path, {**minimal(), "search": {"beta": 0}}) == []


def test_k1_in_the_loss_is_refused_by_estimator_and_place(tmp_path: Path) -> None:
    (line,) = told(tmp_path, penalty={"choice": ["k2-loss", "k1-loss"]})
    assert line.startswith("search.penalty: estimator k1 placed in the loss has an expected")
    assert "(got 'k1-loss'; sound: k1-reward, exact-full, k2-loss, wk1-loss," in line
    assert line.endswith("to study it all the same: allow_biased: true)")


BIASED = ["k1-loss", "abs-loss", "abs-reward", "k2-reward", "k3-reward", "exact-reward"]


@pytest.mark.parametrize("penalty", BIASED)
def test_a_biased_penalty_is_refused_with_its_reason_unless_it_is_asked_for(
    tmp_path: Path, penalty: str
) -> None:
    (line,) = told(tmp_path, penalty=penalty)
    assert line.startswith(f"search.penalty: {Penalty(penalty).nature.refusal} (got ")
    spec = {**minimal(), "allow_biased": True}
    spec["search"]["penalty"] = penalty
    assert problems_of(tmp_path, spec) == []


def test_an_unknown_penalty_is_refused_and_all_are_named(tmp_path: Path) -> None:
    (line,) = told(tmp_path, penalty="kl")
    allowed = ", ".join(p.value for p in Penalty)
    assert line == f"search.penalty: unknown value (got 'kl'; allowed: {allowed})"


@pytest.mark.parametrize("penalty", [p.value for p in Penalty if p.value not in BIASED])
def test_sound_penalties_are_taken(tmp_path: Path, penalty: str) -> None:
    assert told(tmp_path, penalty=penalty) == []


def test_a_range_of_penalties_is_refused(tmp_path: Path) -> None:
    (line,) = told(tmp_path, penalty={"log": [1, 2]})
    assert line.startswith("search.penalty: must be a choice among: k1-reward, exact-full, ")


@pytest.mark.parametrize("name", ["target_kl", "horizon"])
def test_a_proportional_controller_needs_target_and_horizon(tmp_path: Path, name: str) -> None:
    spec = adaptive()
    del spec["search"][name]
    (line,) = problems_of(tmp_path, spec)
    assert line.startswith(f"search.{name}: needed, since controller can be proportional")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("target_kl", "controller never steers KL (fixed)"),
        ("horizon", "controller is never proportional"),
    ],
)
def test_a_setting_without_effect_is_refused_by_name(tmp_path: Path, name: str, why: str) -> None:
    spec = minimal()
    spec["search"][name] = 100
    assert problems_of(tmp_path, spec) == [f"search.{name}: has no effect, since {why}: remove it"]


def test_a_condition_that_leaves_a_proportional_trial_without_target_is_refused(
    tmp_path: Path,
) -> None:
    when = {"controller": "proportional", "penalty": "k2-loss"}
    lines = told(tmp_path, target_kl={"log": [1, 2], "when": when}, penalty="k2-loss")
    assert len(lines) == 1
    assert lines[0].startswith("search.target_kl.when: can only be {controller: proportional}")


@pytest.mark.parametrize(
    ("when", "told_so"),
    [
        ({"target": 1}, "'target' is not another searched parameter"),
        ({"learning_rate": 1e-3}, "'learning_rate' is not another searched parameter"),
        ({"controller": "adaptive"}, "controller never is 'adaptive' (it can be 'fixed', 'prop"),
        ({"beta": 0.1}, "beta never is 0.1 (it can be a range)"),
    ],
)
def test_a_condition_that_never_holds_is_refused(
    tmp_path: Path, when: dict[str, object], told_so: str
) -> None:
    (line,) = told(tmp_path, learning_rate={"log": [1e-4, 1e-3], "when": when})
    assert line.startswith(f"search.learning_rate.when: {told_so}")


def test_conditions_that_go_round_are_refused(tmp_path: Path) -> None:
    lines = told(
        tmp_path,
        learning_rate={"choice": [1e-3, 1e-4], "when": {"controller": "fixed"}},
        controller={"choice": ["fixed", "proportional"], "when": {"learning_rate": 1e-3}},
    )
    assert any("conditions go round: " in line for line in lines)


def test_zero_belongs_to_beta_alone(tmp_path: Path) -> None:
    (line,) = told(tmp_path, horizon={"log": [8, 64], "zero": True})
    assert line == "search.horizon.zero: only beta has a zero arm"


def test_a_dimension_knows_its_numbers() -> None:
    assert Dimension(log=(1, 8)).numbers() == (1, 8)
    assert Dimension(choice=("a", 3, True, 2)).numbers() == (3, 2)
    assert Dimension(choice=("a", 3, 2)).smallest() == 2
    assert Dimension(choice=("a", 3, 2)).largest() == 3
    assert Dimension(value="a").smallest() is None
    assert Dimension(uniform=(1, 8)).values() == ()
    assert Dimension(value=0).values() == (0,)


def test_only_given_dimensions_are_listed() -> None:
    search = SearchSpec.model_validate({"beta": 0.1})
    assert list(search.dimensions()) == ["beta", "penalty", "controller"]


@pytest.mark.parametrize("name", ["target_kl", "horizon", "learning_rate"])
def test_only_beta_is_told_of_its_zero_arm(tmp_path: Path, name: str) -> None:
    (line,) = told(tmp_path, **{name: {"log": [0, 5]}})
    assert line == f"search.{name}.log: both bounds must be above 0 (got [0.0, 5.0])"
