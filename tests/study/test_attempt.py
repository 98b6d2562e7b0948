from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from kltune.metrics.record import EvalMetrics, StepMetrics, TokenProfile
from kltune.study.attempt import Attempt
from kltune.study.ledger import Asked
from kltune.trial.folder import TrialFolder
from kltune.trial.outcome import StopReason, Verdict
from tests.fake_bank import FakeBank, small_spec

SPEC = small_spec(objective={"kl_limit": 0.3}, search={"beta": 0.001})


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    spec = SPEC.model_copy()
    trial = optuna.create_study().ask()
    from kltune.study.space import setting_of

    setting = setting_of({"beta": 0.001, "penalty": "k2-loss"}, spec)
    asked = Asked(trial, 0, 1, "sobol", setting, None)
    return Attempt(0, asked, TrialFolder(tmp_path, 0, 1), spec, 0.0, step=0)


def evaluation(attempt: Attempt, step: int) -> EvalMetrics:
    bank = FakeBank(1)
    bank.admit(0, 0, attempt.asked.setting, None)
    for _ in range(step):
        bank.train_step()
    attempt.step = step
    return bank.evaluate([0])[0]


def test_an_evaluation_is_due_at_step_0_every_n_and_at_the_last_step(attempt: Attempt) -> None:
    due = []
    for step in range(21):
        attempt.step = step
        if attempt.is_due():
            due.append(step)
    assert due == [0, 5, 10, 15, 20]
    attempt.take_evaluation(evaluation(attempt, 5))
    assert not attempt.is_due()


def test_a_checkpoint_is_the_best_only_if_it_respects_the_limit_and_is_after_step_0(
    attempt: Attempt,
) -> None:
    assert not attempt.take_evaluation(evaluation(attempt, 0))
    assert attempt.take_evaluation(evaluation(attempt, 3))
    assert attempt.take_evaluation(evaluation(attempt, 5))  # kl 0.25, gold at its peak
    assert not attempt.take_evaluation(evaluation(attempt, 6))  # kl 0.297, lower gold
    assert not attempt.take_evaluation(evaluation(attempt, 8))  # kl 0.396


def test_only_a_trial_that_is_told_has_a_value_or_a_constraint(attempt: Attempt) -> None:
    attempt.take_evaluation(evaluation(attempt, 0))
    attempt.take_evaluation(evaluation(attempt, 5))
    told = {
        reason: attempt.outcome(Verdict(reason, "x"))
        for reason in (StopReason.DONE, StopReason.PRUNED, StopReason.ERROR, StopReason.INTERRUPTED)
    }
    assert [o.value is not None for o in told.values()] == [True, False, False, False]
    assert [o.constraint is not None for o in told.values()] == [True, True, False, False]
    assert [o.is_feasible for o in told.values()] == [True, None, None, None]


def test_standings_are_in_the_unit_of_the_study(attempt: Attempt) -> None:
    attempt.take_evaluation(evaluation(attempt, 5))
    token = attempt.standings()[5].kl
    attempt.spec = SPEC.model_copy(update={"kl_unit": "sequence"})
    assert attempt.standings()[5].kl == pytest.approx(10 * token)


def test_a_later_attempt_recalls_the_very_steps_that_the_first_one_saw(attempt: Attempt) -> None:
    setting = attempt.asked.setting
    attempt.folder.write_config(setting, "sobol", 0.5, attempt.spec.kl_unit, attempt.spec.beta_unit)
    attempt.folder.append_event("started", 0)
    for step in (1, 2, 3):
        profile = TokenProfile((0, 1, 3), (0.123456 * step, 2 / 3), (4, 7)) if step > 1 else None
        values = {"train/entropy_token": 1 / step, "kl/k1_seq": -0.1, "time/step_s": float("nan")}
        metrics = StepMetrics(0, 0, step, 0.1, 1.0, 0.3, 0.001, 80, True, values, profile)
        attempt.advance(metrics)
        attempt.folder.append_step(metrics)
    attempt.folder.append_warning("truncation", "60 % cut", 1, 2)
    attempt.folder.append_warning("repetition", "half repeats", 1, 3)
    folder = TrialFolder(attempt.folder.study_path, 0, 2)
    folder.append_event("resumed", 2)
    later = Attempt(0, attempt.asked, folder, attempt.spec, 0.0, step=2)
    later.recall()
    assert later.warned == {StopReason.TRUNCATION}
    assert [m.step for m in later.history] == [1, 2]
    for one, other in zip(attempt.history, later.history, strict=False):
        assert one.profile == other.profile
        for name, value in one.values.items():
            assert other.values[name] == pytest.approx(value, rel=0, abs=0, nan_ok=True)
        assert (one.kl_token, one.kl_seq, one.proxy) == (other.kl_token, other.kl_seq, other.proxy)
