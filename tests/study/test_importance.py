from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from kltune.study.importance import importance_of, measure_importance

DISTRIBUTIONS = {
    "beta": optuna.distributions.FloatDistribution(0.0, 1.0),
    "penalty": optuna.distributions.CategoricalDistribution(["k1-reward", "k2-loss"]),
}


@pytest.fixture
def study() -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(direction="maximize")


def add(
    study: optuna.Study,
    beta: float,
    value: float,
    state: str = "COMPLETE",
    constraint: float = -1.0,
) -> None:
    trial = optuna.trial.create_trial(
        params={"beta": beta, "penalty": "k2-loss" if round(beta * 100) % 2 else "k1-reward"},
        distributions=DISTRIBUTIONS,
        value=value,
        state=optuna.trial.TrialState[state],
        constraints={"kl": constraint},
    )
    study.add_trial(trial)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_few_or_equal_results_have_no_importance_and_the_reason_is_given(
    study: optuna.Study, count: int
) -> None:  # field case B12
    for i in range(count):
        add(study, i / 10, 0.5)
    found = importance_of(study)
    assert found.shares == {}
    assert found.describe().startswith("not available: ")
    assert f"({count} of {count} trials)" in found.describe()


def test_the_parameter_that_decides_comes_first_and_shares_add_up(study: optuna.Study) -> None:
    for i in range(20):
        add(study, i / 20, -((i / 20 - 0.3) ** 2))
    found = importance_of(study)
    assert next(iter(found.shares)) == "beta"
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert found.unavailable is None


def test_it_says_how_many_trials_were_used(study: optuna.Study) -> None:  # field case B13
    for i in range(7):
        add(study, i / 10, i / 10)
    for i in range(8):
        add(study, i / 10, 0.1, "PRUNED")
    assert "from 7 of 15 trials" in importance_of(study).describe()


def test_a_value_beyond_the_limit_is_no_success_however_high(study: optuna.Study) -> None:
    other = optuna.create_study(direction="maximize")
    for i in range(20):
        is_beyond = i >= 15
        for target, beyond in ((study, 9.0), (other, -9.0)):
            value = beyond if is_beyond else -((i / 20 - 0.3) ** 2)
            add(target, i / 20, value, constraint=1.0 if is_beyond else -1.0)
    assert importance_of(study).shares == importance_of(other).shares != {}


def test_parameters_that_never_differ_have_no_importance(study: optuna.Study) -> None:
    for i in range(6):
        add(study, 0.5, i / 10)
    assert importance_of(study).unavailable == "no parameter differs between completed trials"


def test_a_folder_without_a_study_has_no_importance(tmp_path: Path) -> None:
    found = measure_importance(tmp_path)
    assert found.unavailable is not None
    assert "no study here" in found.unavailable
