from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_study import FakeTrial, trial, write_study

from kltune.grade import Grade
from kltune.report.compare import Difference
from kltune.report.recommend import NoAnswer, Recommendation, recommend
from kltune.report.rows import StudyRows, read_study
from kltune.spec.trial import ControllerKind
from kltune.validate.search import baselines_line, controller_line, trials_line

UP = (0.2, 0.5, 0.8, 1.0, 1.1, 1.0, 0.9, 0.6, 0.3)
LOW = tuple(0.5 * g for g in UP)


def answered(folder: Path, *trials: FakeTrial, budget: int | None = None):
    count = len(trials) if budget is None else budget
    spec = {"budget": {"trials": max(4, count)}, "baselines": []}
    found = read_study(write_study(folder / "study", trials, **spec))
    answer = recommend(found)
    return found, answer


def told(found: tuple[StudyRows, object]) -> tuple[StudyRows, Recommendation]:
    study, answer = found
    assert isinstance(answer, Recommendation)
    return study, answer


def test_no_feasible_trial_fails_with_the_way_out(tmp_path: Path) -> None:
    study, answer = answered(tmp_path, trial(0.001, learning_rate=0.02))
    assert isinstance(answer, NoAnswer)
    line = trials_line(study, answer)
    assert line.grade is Grade.FAIL
    assert line.action


@pytest.mark.parametrize(
    ("count", "budget", "grade"), [(6, 6, "pass"), (6, 9, "warn"), (4, 4, "warn")]
)
def test_few_or_unfinished_trials_are_warned_of(
    tmp_path: Path, count: int, budget: int, grade: str
) -> None:
    found = answered(
        tmp_path, *(trial(0.1 + 0.01 * i, gold=UP) for i in range(count)), budget=budget
    )
    assert trials_line(*found).grade.value == grade


def test_few_trials_that_all_respect_the_limit_are_not_blamed_on_it(tmp_path: Path) -> None:
    line = trials_line(*answered(tmp_path, *(trial(0.1 + 0.01 * i, gold=UP) for i in range(4))))
    assert line.meaning.startswith("All 4 trials are feasible, but so few")
    assert "beta" not in line.action
    beyond = (*(trial(0.1, gold=UP),) * 3, trial(0.001, learning_rate=0.02))
    line = trials_line(*answered(tmp_path / "beyond", *beyond))
    assert line.meaning.startswith("Only 3 of 4 complete trials respect the KL limit")
    assert "Move the range of search.beta up" in line.action


def test_repeats_for_the_noise_floor_are_no_trials_of_the_search(tmp_path: Path) -> None:
    trials = [trial(0.1 + 0.01 * i, gold=UP) for i in range(4)]
    repeats = [trial(0.1, gold=UP, origin=f"noise:{seed}", seed=seed) for seed in (1, 2)]
    spec = {"budget": {"trials": 6, "noise_seeds": 2}, "baselines": ["trl-grpo-0.18"]}
    found = read_study(write_study(tmp_path / "study", [*trials, *repeats], **spec))
    line = trials_line(found, recommend(found))
    assert line.number == 4
    assert line.shown == (
        "4 feasible of 4 ended (4 planned); 2 repeats for the noise floor not counted"
    )


def test_one_planned_trial_is_one(tmp_path: Path) -> None:
    found = answered(tmp_path, *(trial(0.1 + 0.01 * i, gold=UP) for i in range(6)), budget=7)
    assert trials_line(*found).meaning == "1 planned trial has not ended: the answer may change."


def test_a_fixed_beta_can_not_be_inert(tmp_path: Path) -> None:
    assert controller_line(*told(answered(tmp_path, trial(0.1)))).grade is Grade.PASS


def test_an_inert_controller_is_warned_of_with_its_number(tmp_path: Path) -> None:
    slow = trial(0.05, controller=ControllerKind.PROPORTIONAL, target_kl=0.1, horizon=1e6, gold=UP)
    line = controller_line(*told(answered(tmp_path, slow)))
    assert line.grade is Grade.WARN
    assert line.number == pytest.approx(1.0, abs=0.1)
    assert "fixed beta" in line.action


def baseline(gold: tuple[float, ...], noise: float) -> FakeTrial:
    return trial(0.03, origin="baseline:verl-ppo", gold=gold, noise=noise)


def test_a_baseline_that_is_clearly_lower_is_beaten(tmp_path: Path) -> None:
    _, answer = told(answered(tmp_path, trial(0.1, gold=UP, noise=0.05), baseline(LOW, 0.05)))
    line = baselines_line(answer)
    assert (line.grade, line.shown) == (Grade.PASS, "1 of 1 beaten")
    assert "verl-ppo" in line.meaning


def test_a_baseline_that_is_as_good_is_a_tie(tmp_path: Path) -> None:
    _, answer = told(answered(tmp_path, trial(0.1, gold=UP, noise=0.4), baseline(UP, 0.4)))
    if answer.best.origin != "sobol":  # tied, so either may be recommended
        answer = replace(answer, baselines=tuple(replace(v) for v in answer.baselines))
    line = baselines_line(answer)
    assert line.grade is Grade.WARN


def test_a_baseline_that_is_better_fails(tmp_path: Path) -> None:
    _, answer = told(answered(tmp_path, trial(0.1, gold=UP, noise=0.05), baseline(LOW, 0.05)))
    (versus,) = answer.baselines
    better = replace(versus, difference=Difference(-0.3, -0.4, -0.2, 64, 60))
    assert baselines_line(replace(answer, baselines=(better,))).grade is Grade.FAIL


def test_without_a_baseline_nothing_was_beaten(tmp_path: Path) -> None:
    _, answer = told(answered(tmp_path, trial(0.1, gold=UP)))
    line = baselines_line(answer)
    assert line.grade is Grade.WARN
    assert "No known recipe" in line.meaning
