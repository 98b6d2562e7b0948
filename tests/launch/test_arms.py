"""What is wrong with an experiment is told in one message, before torch loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kltune.errors import SpecError, StudyError
from kltune.launch.arms import Experiment, refuse_wrong, run_experiment, written_arm
from kltune.spec.penalty import Penalty
from tests.arms_case import ARMS, Fakes, experiment, fakes, loaded_spec, never, runs_of

__all__ = ["fakes"]  # a fixture
K2 = {"beta": 0.1, "penalty": "k2-loss"}
STEERED = {**K2, "controller": "proportional", "target_kl": 0.1, "horizon": 640}
SEARCHED = ("search.controller={value: proportional}", "search.horizon={value: 640}")


@pytest.mark.parametrize(
    ("arm", "told"),
    [
        ("no-such", "arms['a']: unknown recipe 'no-such'; `kltune explain recipes` lists all"),
        ("trl-grpo", "arms['a']: trl-grpo trains without a KL"),
        (3, "arms['a']: must be a recipe's name or the fields of a setting (got 3)"),
        (None, "arms['a']: must be a recipe's name or the fields of a setting (got None)"),
        ({}, "arms['a']: beta: needed, and not given"),
        ({**K2, "penalti": 1}, "arms['a']: penalti: Extra inputs are not permitted (got 1); did"),
        ({**K2, "beta": -0.1}, "arms['a']: beta: Input should be greater than or equal to 0"),
        ({**K2, "beta": "0.1"}, "arms['a']: beta: Input should be a number, not a text"),
        ({**K2, "beta": float("nan")}, "arms['a']: beta: Input should be a finite number"),
        ({**K2, "penalty": "k9"}, "arms['a']: penalty: Input should be 'k1-reward'"),
        ({"beta": 0.1}, "arms['a']: penalty: needed where beta is above 0"),
        ({**K2, "seed": 3}, "arms['a']: seed: every arm runs on the same seeds"),
        ({**K2, "penalty": "k1-loss"}, "allow_biased: true admits it, to study it"),
        ({**K2, "learning_rate": 0}, "arms['a']: learning_rate: Input should be greater than 0"),
        (
            {**K2, "controller": "proportional", "horizon": 640},
            "arms['a']: target_kl: needed by controller proportional",
        ),
        (
            {**K2, "controller": "threshold-1.5x"},
            "arms['a']: target_kl: needed by controller threshold-1.5x",
        ),
        ({**K2, "controller": "proportional", "target_kl": 0.1}, "proportional needs horizon"),
        ({**STEERED, "beta": 0.0}, "proportional multiplies beta, so it can't leave beta = 0"),
        ({**K2, "target_kl": 0.1}, "target_kl: has no effect with controller fixed: remove it"),
        ({**K2, "horizon": 9}, "horizon: has no effect with controller fixed: remove it"),
        ({**STEERED, "horizon": 1.6}, "horizon: must be above 1.6 sequences (0.2 x 8 completions"),
    ],
)
def test_an_arm_that_is_no_setting_is_named_with_its_field(
    arm: Any, told: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as caught:
        run_experiment(experiment(tmp_path, {"fine": K2, "a": arm}))
    assert told in str(caught.value)
    assert str(caught.value).startswith("experiment: 1 problem(s)\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arms", "told"),
    [
        ({}, "arms: at least one is needed"),
        ([K2], "arms: must be a mapping of names to settings or recipes (got a list)"),
        ("stiennon", "arms: must be a mapping of names to settings or recipes (got a str)"),
        ({"": K2}, "arms: a name must be a text with something in it (got '')"),
        ({0.1: K2}, "arms: a name must be a text with something in it (got 0.1)"),
    ],
)
def test_arms_are_settings_by_name(arms: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        refuse_wrong(experiment(tmp_path, arms))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("seeds", "told"),
    [
        ((), "seeds: at least one is needed"),
        ((1, 2, 1), "seeds: each may be there once (got 1 again)"),
        ((0, -1), "seeds: must be from 0 to 2^63 - 1 (got -1)"),
        ((2**63,), "seeds: must be from 0 to 2^63 - 1"),
    ],
)
def test_seeds_are_there_once_and_can_be_drawn_from(
    seeds: tuple[int, ...], told: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as caught:
        refuse_wrong(experiment(tmp_path, seeds=seeds))
    assert told in str(caught.value)


def test_all_mistakes_are_in_one_message(tmp_path: Path) -> None:
    arms = {"a": "no-such", "b": {"beta": -1}, "c": {**K2, "horizon": 3, "target_kl": 1.0}}
    with pytest.raises(SpecError) as caught:
        refuse_wrong(experiment(tmp_path, arms, (1, 1)))
    head, *lines = str(caught.value).splitlines()
    assert head == "experiment: 5 problem(s)"
    starts = ["arms['a']: unk", "arms['b']: beta", "arms['c']: target", "arms['c']: hor", "seeds:"]
    assert [line.strip().startswith(start) for line, start in zip(lines, starts, strict=True)] == [
        True
    ] * 5


def test_sound_arms_are_let_through(tmp_path: Path) -> None:
    arms = {
        **ARMS,
        "steered": STEERED,
        "recipe": "ziegler-sentiment",
        "scheduled": {**K2, "controller": "schedule"},
        "numpy": {"beta": np.float64(0.1), "penalty": Penalty.K1_REWARD},
        "none with a penalty": {"beta": 0.0, "penalty": "k2-loss"},
    }
    refuse_wrong(experiment(tmp_path, arms, (0, 2**63 - 1)))


def test_a_biased_penalty_is_let_through_where_the_spec_says_so(tmp_path: Path) -> None:
    arms = {"a": {**K2, "penalty": "k1-loss"}}
    refuse_wrong(experiment(tmp_path, arms, overrides=("allow_biased=true",)))


def test_a_target_that_is_measured_need_not_be_given(tmp_path: Path) -> None:
    arms = {"a": {**K2, "controller": "proportional", "horizon": 640}}
    measured = (*SEARCHED, "control.calibrate={share: 0.2}")
    refuse_wrong(experiment(tmp_path, arms, overrides=measured))


@pytest.mark.parametrize(
    ("beta", "told"), [(0.01, "below control.beta_min"), (2.0, "above control.beta_max")]
)
def test_a_steered_beta_starts_within_its_bounds(beta: float, told: str, tmp_path: Path) -> None:
    bounds = ("search.target_kl={value: 0.1}", "search.beta={value: 0.1}")
    bounds += ("control.beta_min=0.05", "control.beta_max=1.0")
    arms = {"a": {**STEERED, "beta": beta}}
    with pytest.raises(SpecError, match=told):
        refuse_wrong(experiment(tmp_path, arms, overrides=(*SEARCHED, *bounds)))
    refuse_wrong(experiment(tmp_path, {"a": STEERED}, overrides=(*SEARCHED, *bounds)))


def test_an_arm_learns_at_the_trainers_rate_unless_it_names_one(tmp_path: Path) -> None:
    spec = loaded_spec(tmp_path, "search.learning_rate={value: 0.5}", "seed=9").spec
    assert written_arm(K2, spec).learning_rate == 2e-3
    assert written_arm({**K2, "learning_rate": 0.1}, spec).learning_rate == 0.1
    assert written_arm(K2, spec).seed == 9


def test_a_model_that_is_not_there_is_told_before_anything_loads(tmp_path: Path) -> None:
    asked = experiment(tmp_path, overrides=("model.base=./no/such",))
    with pytest.raises(SpecError, match=r"model\.base"):
        run_experiment(asked)
    assert not (tmp_path / "out").exists()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(StudyError, match="is a file; the runs need a folder"):
        run_experiment(experiment(tmp_path))


def test_what_is_sound_is_run(tmp_path: Path, fakes: Fakes) -> None:
    assert run_experiment(experiment(tmp_path)) is None
    assert len(runs_of(tmp_path)) == 4
    assert never()() is None


def test_torch_is_not_loaded_to_refuse_or_to_read(tmp_path: Path) -> None:
    asked: Experiment = experiment(tmp_path)
    script = f"""
import sys, kltune
from kltune.errors import KltuneError
for call in (
    lambda: kltune.run_arms({str(asked.spec.path)!r}, arms={{"a": "no-such"}}, seeds=[0], out="x"),
    lambda: kltune.open_arms("x"),
):
    try:
        call()
    except KltuneError as error:
        print(type(error).__name__)
print(sorted({{"torch", "transformers"}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.stdout.splitlines() == ["SpecError", "StudyError", "[]"], done.stderr
