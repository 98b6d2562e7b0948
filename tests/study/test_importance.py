from __future__ import annotations

import math
from pathlib import Path

import numpy as np
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


def test_the_parameter_that_decides_is_named_and_the_other_is_not(study: optuna.Study) -> None:
    for i in range(20):
        add(study, i / 20, -((i / 20 - 0.3) ** 2) + 0.001 * (i % 3))
    found = importance_of(study)
    assert list(found.shares) == ["beta"]
    assert 0.95 < found.shares["beta"] <= 1.0
    assert found.unavailable is None
    beta, penalty = found.sentences()
    assert beta.endswith("of the variance of the value between 20 trials (p < 0.01)")
    assert penalty.startswith("penalty: can't be told from chance by 20 trials (p = ")


def test_beta_that_decides_is_named_with_20_trials_of_a_space_with_a_controller() -> None:
    """As in a recorded study, of whose best tenth (two trials) PED-ANOVA said beta 0 %, horizon 51 %."""
    rng = np.random.default_rng(4)
    search = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=4))

    def worth(trial: optuna.Trial) -> float:
        beta = trial.suggest_float("beta", 0.01, 10, log=True)
        if trial.suggest_categorical("controller", ["fixed", "proportional"]) == "proportional":
            trial.suggest_float("target_kl", 0.02, 0.5, log=True)
            trial.suggest_float("horizon", 50, 6000, log=True)
        return -0.2 * max(0.0, math.log(beta / 0.3)) + 0.07 * rng.standard_normal()

    search.optimize(worth, n_trials=20)
    found = importance_of(search)
    assert list(found.shares) == ["beta"]
    others = {p.name: p for p in found.parameters if p.name != "beta"}
    assert set(others) == {"controller", "target_kl", "horizon"}
    assert others["target_kl"].num_used < 20
    assert not any(p.is_found for p in others.values())


def test_a_parameter_is_judged_on_the_scale_it_was_drawn_on() -> None:
    search = optuna.create_study(direction="maximize")
    log = optuna.distributions.FloatDistribution(0.001, 10, log=True)
    for i in range(12):
        beta = 10 ** (-3 + 4 * i / 12)
        worth = -((math.log10(beta) + 1) ** 2)
        trial = optuna.trial.create_trial(
            params={"beta": beta}, distributions={"beta": log}, value=worth
        )
        search.add_trial(trial)
    assert importance_of(search).shares["beta"] == pytest.approx(1.0)


def test_values_of_chance_alone_name_no_parameter(study: optuna.Study) -> None:
    rng = np.random.default_rng(9)
    for i in range(12):
        add(study, i / 12, rng.standard_normal())
    found = importance_of(study)
    assert found.shares == {}
    assert found.unavailable is None
    assert found.describe().count("can't be told from chance by 12 trials") == 2


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
